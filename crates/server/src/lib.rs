//! A server for [Brooklet](brooklet): what is not written in Rust reaches a store by protocols that
//! it has clients for.
//!
//! `redis` speaks RESP: lists and streams are logs, transactions are commits. `http` speaks Durable
//! Streams, and shows the store at work.

#![expect(clippy::disallowed_methods, reason = "a server drives real time and threads")]
#![forbid(unsafe_code)]

pub mod hot_logs;
pub mod http;
pub mod net;
pub mod redis;
mod server;

#[cfg(fuzzing)]
#[doc(hidden)]
pub use redis::fuzzing;

pub use net::Address;
pub use server::{Addresses, Config, Error, serve};
pub use tokio_util::sync::CancellationToken;
