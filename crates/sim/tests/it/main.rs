//! What `sim` promises, tested from outside: one binary, a module for each subject.

mod proof;
mod restarts;
