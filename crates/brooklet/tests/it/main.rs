//! What `brooklet` promises, tested from outside: one binary, a module for each subject.

mod amplification;
mod apart;
mod api;
mod beside;
mod cached;
mod callbacks;
mod common;
mod compaction;
mod compaction_steps;
mod copy;
mod damage;
mod damaged_runs;
mod devices;
mod errors;
mod examples;
mod extremes;
mod files;
mod forged;
#[path = "../../../wal/tests/common/fork.rs"]
mod fork;
mod forks;
mod full;
mod golden;
mod import;
mod kept;
mod liars;
mod lookups;
mod metrics;
#[cfg(feature = "seeded-bugs")]
mod mutations;
mod names;
mod offload;
mod parts;
mod reads;
mod refusals;
mod restart;
mod retention;
mod scan;
mod spaces;
mod spans;
mod subscribe;
mod threads;
mod view;
mod walk;
