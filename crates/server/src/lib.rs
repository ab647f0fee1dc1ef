//! A server for [Brooklet](brooklet) stores: programs in any language reach a store by protocols
//! with existing clients.
//!
//! `redis` speaks RESP: lists and streams are logs, transactions are commits. `http` speaks Durable
//! Streams, and shows the state of the store.

#![expect(clippy::disallowed_methods, reason = "a server drives real time and threads")]
#![forbid(unsafe_code)]

mod follow;
pub mod hot_logs;
pub mod http;
mod lease;
pub mod net;
pub mod redis;
pub mod replica;
mod server;
pub mod standby;
mod tls;

#[cfg(fuzzing)]
#[doc(hidden)]
pub use redis::fuzzing;

pub use lease::Lease;
pub use net::Address;
pub use server::{Addresses, Config, Error, serve, serve_replica};
pub use tls::Tls;
pub use tokio_util::sync::CancellationToken;
