//! The log that stands alone: [`brooklet_wal::Log`].

mod bad;
mod crash;
mod face;
mod files;
#[cfg(feature = "seeded-bugs")]
mod gallery;
mod golden;
mod live;
mod lives;
pub mod model;
mod restarts;
