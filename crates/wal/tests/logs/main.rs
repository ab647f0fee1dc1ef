//! The log that stands alone: [`brooklet_wal::Log`].

mod bad;
mod crash;
mod face;
mod files;
#[cfg(seeded_bugs)]
mod gallery;
mod golden;
mod live;
mod lives;
mod model;
