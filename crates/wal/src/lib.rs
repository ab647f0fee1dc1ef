//! A ring write-ahead log that acknowledges only what is on stable media.
//!
//! Records of any size up to a limit are appended to the open *block*; a block is compressed,
//! chained to the one before by its checksum, and written to the ring in one durable write; several
//! are in flight at once; none is acknowledged before all blocks before it are safe. After a crash
//! every acknowledged record is read back, or it is an error that says which one is damaged; what
//! was in flight is there in order and without gaps, or not.
//!
//! # A first program
//!
//! ```
//! use std::error::Error;
//! use std::path::Path;
//! use std::sync::Arc;
//! use brooklet_io::{FileOptions, FileVolume, OpenMode};
//! use brooklet_wal::{Log, LogOptions};
//!
//! fn work(path: &Path) -> Result<(), Box<dyn Error>> {
//!     let volume = FileVolume::open(path, OpenMode::Create, FileOptions::default())?;
//!     let log = Log::create(Arc::new(volume), LogOptions::new().ring_size(1 << 20))?;
//!     let (_lsn, ack) = log.append(b"credit 7")?;
//!     ack.wait()?; // on stable media; or await it, or leave a callback
//!     let (_lsn, ack) = log.append_batch(&[b"debit 3", b"credit 3"])?; // both, or neither
//!     ack.wait()?;
//!     Ok(()) // as good as a crash: the log is not closed
//! }
//!
//! fn work_again(path: &Path) -> Result<usize, Box<dyn Error>> {
//!     let volume = FileVolume::open(path, OpenMode::ReadWrite, FileOptions::default())?;
//!     let log = Log::open(Arc::new(volume), LogOptions::new())?;
//!     let mut records = 0;
//!     for record in log.recover() {
//!         let (_lsn, _bytes) = record?; // apply it again
//!         records += 1;
//!     }
//!     log.trim(log.next())?; // once that is safe elsewhere: the room is free again
//!     log.close()?;
//!     Ok(records)
//! }
//! # let dir = tempfile::tempdir().unwrap();
//! # work(&dir.path().join("wal")).unwrap();
//! # assert_eq!(work_again(&dir.path().join("wal")).unwrap(), 3);
//! ```
//!
//! # Which to use
//!
//! - [`Log`] has a volume to itself and keeps a label there: identity, trim point, geometry. It can
//!   be resized while it is in use, and is what most programs want.
//! - [`Wal`] is the engine alone, for a program that has a superblock of its own in which trim
//!   point, acknowledged block and epoch are recorded together with other things, as Brooklet's
//!   store does. It shows every durable block to a [`Sink`] and encodes records in place;
//!   [`recover`] reads it back.
//!
//!
//! ```
//! use std::sync::Arc;
//! use brooklet_io::{MemVolume, SystemClock, Volume};
//! use brooklet_wal::{Config, Cursor, Opening, Records, Start, Wal, WalError, Zone, recover};
//!
//! # fn main() -> Result<(), WalError> {
//! let volume = Arc::new(MemVolume::new(1));
//! volume.grow(1 << 20)?;
//! let zone = Zone { offset: 0, size: 1 << 20, store: 42 };
//! let first = Cursor { seq: 1, ..Cursor::default() };
//! let opening = Opening { tail: 0, next: first, epoch: 1 };
//! let clock = Arc::new(SystemClock::new());
//! let wal = Wal::open(volume.clone(), zone, Config::default(), opening, clock, Arc::new(()));
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
//! The rooms: `config`, `format` (the bytes of a block), `ring` and `map` (where blocks go), `core`
//! (every decision), `tuner` and `pace` (how blocks are made, and when they may go), `seal` and
//! `compress`, `block_handle`, `listeners`, `ack` and `calls` (who is told, and where),
//! `histogram`, `wal`, `shared`, `committer` and `alarm` (the drivers), `read_ahead` and `recover`
//! (reading back), `secure` (what an opening does about the last blocks), `resize`, `log` (the log
//! that stands alone), `slot` (the envelope of its label, and of the store's superblock).

mod ack;
mod alarm;
mod block_handle;
mod calls;
mod committer;
mod compress;
mod config;
mod core;
mod error;
mod format;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod histogram;
mod listeners;
mod log;
mod map;
mod pace;
mod read_ahead;
mod recover;
mod resize;
mod ring;
mod seal;
mod secure;
mod shared;
mod sink;
#[doc(hidden)]
pub mod slot;

mod tuner;
mod wal;

pub use crate::core::{Appended, Stages, WalStats};
pub use ack::Ack;
pub use block_handle::Block;
#[doc(hidden)]
pub use brooklet_io::sync;
pub use calls::Hush;
pub use committer::{Committer, Pause};
pub use config::{Config, MIN_RING, Zone, max_record};
pub use error::WalError;
pub use format::{Codec, Header, Records, checksum, put_varint, take_varint};
pub use histogram::{Histogram, SharedHistogram};
pub use log::{Log, LogError, LogOptions, LogStats, Lsn, Reader};
pub use recover::{End, Found, Hole, Recovery, Start, recover};
pub use ring::Cursor;
pub use secure::{recover_secured, secure};
pub use shared::PendingNotify;
pub use sink::Sink;
pub use wal::{Opening, Wal};
