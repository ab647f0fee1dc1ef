//! The Redis frontend: RESP, on a store.
//!
//! `proto` reads requests, `reply` writes replies, `connection` moves the bytes of one client.
//! `engine` runs requests, one after another, by `commands`, on `keys`. `serve` drives them all.

mod acl;
mod client;
mod commands;
mod connection;
mod cross_protocol;
mod engine;
mod events;
mod fail;
#[cfg(fuzzing)]
pub mod fuzzing;
mod glob;
mod keys;
mod notices;
mod now;
mod proto;
mod pubsub;
mod reply;
mod scripts;
mod serve;
mod settings;
mod show;
mod spaces;
mod stats;
mod tracking;

pub use acl::Users;
pub use serve::Shared;
pub use settings::{Elsewhere, Settings};
pub use spaces::check_numbered;
