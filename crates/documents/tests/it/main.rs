//! Tests of documents from outside: one binary, a module for each subject.

mod cache;
mod common;
mod documents;
mod golden;
mod history;
mod model;
mod opaque;
mod panics;
mod refusals;
mod snapshots;
mod threads;
mod watch;
