//! What `cli` promises, tested from outside: one binary, a module for each subject.

mod archive;
mod bench_scale;
mod bench_wal;
mod bytes;
mod cli;
mod codes;
mod codex;
mod colours;
mod common;
mod damage;
mod doc;
mod export;
mod faults;
mod import;
mod json;
mod live;
mod prefix;
mod private;
mod probe;
mod serve;
mod soak;
mod space;
mod tags;
mod top;
mod trials;
mod units;
