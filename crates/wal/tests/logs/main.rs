//! The log that stands alone: [`brooklet_wal::Log`].

mod bad;
mod crash;
mod face;
mod files;
mod golden;
mod live;
mod model;
