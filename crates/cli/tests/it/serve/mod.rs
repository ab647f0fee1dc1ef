//! `brooklet serve` from outside: what it acknowledged survives kills, and what clients see fits
//! one order of all commands.

#![expect(clippy::disallowed_methods, reason = "processes take real time and threads")]

mod beside;
mod cluster;
mod documents;
mod hostile;
mod jetstream;
mod kills;
mod linear;
mod lines;
mod logs;
mod pages;
mod process;
mod read_replica;
mod replication;
mod secrets;
mod settings;
mod strain;
mod takeovers;
