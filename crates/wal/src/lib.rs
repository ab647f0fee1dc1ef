//! A ring write-ahead log that acknowledges only what is on stable media.
//!
//! Records of any size up to a limit board the open *block*; a block is compressed, chained to the one before by its
//! checksum, and written to the ring in one durable write; several are in flight at once; none is acknowledged before
//! all blocks before it are safe. [`recover`] reads back every acknowledged record after a crash, or says which one is damaged.
//!
//! ```
//! use std::sync::Arc;
//! use brooklet_io::{MemVolume, SystemClock, Volume};
//! use brooklet_wal::{Config, Cursor, Records, Start, Wal, WalError, Zone, recover};
//!
//! # fn main() -> Result<(), WalError> {
//! let volume = Arc::new(MemVolume::new(1));
//! volume.grow(1 << 20)?;
//! let zone = Zone { offset: 0, size: 1 << 20, store: 42 };
//! let first = Cursor { seq: 1, ..Cursor::default() };
//! let wal = Wal::open(volume.clone(), zone, Config::default(), (0, first, 1), Arc::new(SystemClock::new()), Arc::new(()));
//! let (_, ack) = wal.append(b"hello")?;
//! ack.wait()?; // on stable media
//!
//! let mut seen = Vec::new();
//! let start = Start { cursor: first, acked: 0, clean: false, epoch: 1 };
//! recover(&*volume, zone, start, |block, _| {
//!     seen.extend(Records::new(block.data()).flatten().map(|(_, record)| record.to_vec()));
//!     Ok::<_, WalError>(())
//! })?;
//! assert_eq!(seen, [b"hello"]);
//! # Ok(())
//! # }
//! ```
//!
//! The rooms: `format` (the bytes of a block), `ring` (where blocks go), `core` (every decision), `seal` (compression),
//! `block` and `ack` (who is told), `wal` and `committer` (the drivers), `tape` and `recover` (reading back).

mod ack;
mod alarm;
mod block;
mod committer;
mod compress;
mod core;
mod error;
mod format;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod log;
mod map;
mod pace;
mod recover;
mod resize;
mod ring;
mod seal;
#[doc(hidden)]
pub mod sync;
mod tape;
mod tuner;
mod wal;

pub use crate::core::{Boarded, WalStats};
pub use ack::Ack;
pub use block::Block;
pub use committer::{Committer, Pause};
pub use error::WalError;
pub use format::{Codec, Header, Records, checksum, put_varint, take_varint};
pub use log::{Log, LogError, LogOptions, LogStats, Lsn, Reader};
pub use recover::{End, Recovery, Start, recover};
pub use ring::Cursor;
pub use wal::{Config, MIN_RING, Sink, Untold, Wal, Zone, max_record};
