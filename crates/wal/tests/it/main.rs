//! What `wal` promises, tested from outside: one binary, a module for each subject.

mod devices;
mod flying;
mod forged;
mod logs;
mod pace;
mod recovery;
mod room;
mod waiting;
