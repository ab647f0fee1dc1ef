//! Tests of documents from outside: one binary, a module for each subject.

mod common;
mod documents;
mod examples;
mod flush;
mod follow;
mod golden;
mod meta;
mod model;
mod refusals;
mod threads;
