//! What `brooklet` promises, tested from outside: one binary, a module for each subject.

mod amplification;
mod apart;
mod cached;
mod common;
mod compaction;
mod copy;
mod devices;
mod errors;
mod extremes;
mod face;
mod follow;
mod forged;
mod full;
mod golden;
mod import;
mod instalments;
mod liars;
mod lookups;
mod metrics;
mod offload;
mod parts;
mod retention;
mod scan;
mod spaces;
mod threads;
mod view;
