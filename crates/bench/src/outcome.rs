//! How an operation of a store ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Whatever a store says went wrong.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of a call to a store.
pub type Result<T> = std::result::Result<T, Error>;

/// How an operation ended; told to everybody whose operation was in the same transaction.
pub type Outcome = std::result::Result<(), Arc<str>>;

/// What is called when an operation is durable, or has failed.
pub type Done = Box<dyn FnOnce(Outcome) + Send>;

/// An operation that a task awaits.
pub type Awaited = Pin<Box<dyn Future<Output = Result<()>> + Send>>;
