//! Volumes for Brooklet: storage of bytes, and their way to stable media.
//!
//! - [`Volume`]: a fixed array of aligned bytes, with raw results. [`FileVolume`] stores them in a
//!   file with direct I/O; [`MemVolume`] in memory, on a [`Disk`] model that can lose, tear and
//!   reorder every byte that was not made durable.
//! - [`Queue`]: several operations in flight, with io_uring if the kernel allows it, else with
//!   threads.
//! - [`Layer`]: a volume on top of another, with a few methods changed.
//! - [`AlignedBuf`]: memory that direct I/O accepts.
//! - [`Clock`], [`Rng`]: replaceable sources of time and chance.
//! - [`Process`]: identifies the process that opened something, so that a fork is detected.

#![warn(missing_docs)]

mod buffer;
mod capped;
mod clock;
mod counts;
mod disk;
mod file;
mod files;
mod layer;
mod mem;
#[doc(hidden)]
pub mod panics;
mod process;
#[doc(hidden)]
pub mod seeded;
mod stream;
#[doc(hidden)]
pub mod sync;
#[doc(hidden)]
pub mod tether;
mod volume;

pub use buffer::{AlignedBuf, Reservation, SECTOR};
pub use capped::capped;
pub use clock::{Clock, ManualClock, Rng, SystemClock, exact_timers, system_seed};
pub use counts::Counts;
pub use disk::{Disk, Fault, SilentFault, SilentFaultRecord};
pub use file::{Durable, FileOptions, FileVolume, OpenMode, is_open_here, process_exists, read_unlocked};
pub use files::{Files, SystemFiles, publish};
pub use layer::Layer;
pub use mem::{MemFiles, MemVolume};
pub use process::Process;
pub use volume::{
    BlockDevice, Completion, Op, Persist, Queue, Tuning, Volume, VolumeInfo, read_exact_at,
    read_medium_exact_at, write_all_at,
};
