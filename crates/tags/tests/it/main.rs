//! What `tags` promises, tested from outside: one binary, a module for each subject.

mod model;
mod tags;
