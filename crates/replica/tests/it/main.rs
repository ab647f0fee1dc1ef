//! What `replica` promises, tested from outside: one binary, a module for each subject.

mod backups;
mod cluster;
mod doctor;
mod ends;
mod faulty;
mod formats;
mod jetstream;
mod leases;
mod machines;
mod map;
mod messages;
mod model;
#[cfg(feature = "seeded-bugs")]
mod mutations;
mod part;
mod probe;
mod read_replica;
mod records;
mod reopening;
mod replica;
mod s3;
mod slow;
mod store;
mod successions;
mod world;
