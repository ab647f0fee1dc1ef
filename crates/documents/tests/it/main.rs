//! Tests of documents from outside: one binary, a module for each subject.

mod cache;
mod common;
mod documents;
mod golden;
mod history;
mod model;
mod moving;
mod no_undo;
mod opaque;
mod panics;
mod refusals;
mod restore;
mod rewinds;
mod snapshots;
#[path = "../../examples/traces/text.rs"]
mod text;
mod threads;
mod traces;
mod watch;
