//! What `codex` promises, tested from outside: one binary, a module for each subject.

mod apart;
mod cached;
mod damage;
mod golden;
mod lookups;
mod model;
mod range;
