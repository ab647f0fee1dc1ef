//! What `powercut` promises, tested from outside: one binary, a module for each subject.

mod cuts;
mod full;
mod fuse_file;
