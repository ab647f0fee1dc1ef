//! What `replica` promises, tested from outside: one binary, a module for each subject.

mod formats;
mod machines;
mod model;
mod reopening;
mod world;
