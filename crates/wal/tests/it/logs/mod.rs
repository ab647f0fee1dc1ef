//! The log that stands alone: [`brooklet_wal::Log`].

mod api;
mod bad;
mod crash;
mod files;
mod golden;
mod live;
mod lives;
pub mod model;
#[cfg(feature = "seeded-bugs")]
mod mutations;
mod restarts;
