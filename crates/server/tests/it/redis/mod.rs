//! The Redis frontend, as clients see it: over sockets, with the bytes of the protocol.

#![expect(clippy::disallowed_methods, reason = "tests drive real time and threads")]

mod budget;
pub mod client;
mod costs;
mod crowd;
mod events;
mod hostile_scripts;
mod limits;
mod long;
mod long_reads;
mod observed;
mod pauses;
mod pubsub;
mod rights;
mod scripts;
mod spaces;
mod strangers;
mod tracking;
mod transcripts;
mod users;
mod waits;
mod watched;
