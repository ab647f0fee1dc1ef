//! What `wal` promises, tested from outside: one binary, a module for each subject.

mod callbacks;
mod devices;
mod flying;
mod forged;
#[path = "../common/fork.rs"]
mod fork;
mod forks;
mod logs;
mod mirror;
#[cfg(feature = "seeded-bugs")]
mod mutations;
mod pace;
mod recovery;
mod room;
mod waiting;
