//! `brooklet serve` from outside: what it acknowledged survives kills, and what clients see fits one order of all commands.

#![expect(clippy::disallowed_methods, reason = "processes take real time and threads")]

#[path = "../common/mod.rs"]
mod common;
mod kills;
mod linear;
mod lines;
mod process;
mod settings;
