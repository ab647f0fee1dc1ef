//! What `archive` promises, tested from outside: one binary, a module for each subject.

mod archive;
mod archiver;
mod common;
mod damage;
mod faults;
mod hanging;
mod moments;
#[cfg(feature = "seeded-bugs")]
mod mutations;
mod offload;
#[cfg(feature = "aws")]
mod s3;
mod shipping;
