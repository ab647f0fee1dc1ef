//! What `archive` promises, tested from outside: one binary, a module for each subject.

mod archive;
mod common;
mod damage;
mod faults;
#[cfg(feature = "seeded-bugs")]
mod gallery;
mod hanging;
mod moments;
mod offload;
#[cfg(feature = "aws")]
mod s3;
