//! A ring write-ahead log that acknowledges a record only when it is on stable media.
//!
//! The log appends records, of any size up to a limit, to the open *block*. It compresses a block,
//! chains it to the block before by its checksum, and writes it to the ring in one durable write.
//! Several writes are in flight at once. The log acknowledges a block only when all blocks before
//! it are safe. After a crash, recovery reads every acknowledged record, or returns an error that
//! names the damaged block. Records that were in flight are recovered in order and without gaps, or
//! not at all.
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
//! # Which type to use
//!
//! - [`Log`] has its own volume, and keeps a label there: identity, trim point, geometry. A program
//!   can resize it while it is in use. Most programs need this type.
//! - [`Wal`] is only the engine, for a program with its own superblock. Such a program, like
//!   Brooklet's store, records trim point, acknowledged block and epoch together with other things.
//!   [`Wal`] passes every durable block to a [`Sink`] and encodes records in place; [`recover`]
//!   reads the ring.
//!
//! A program with a [`Wal`]:
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
//! # Modules
//!
//! - `config`; `error`; `histogram`.
//! - `format` (the bytes of a block); `ring` and `map` (the positions of blocks).
//! - `core` (every decision); `tuner` and `pace` (size and time of writes).
//! - `seal` and `compress`; `wal`, `shared`, `committer` and `alarm` (the drivers).
//! - `block_handle`, `listeners`, `ack` and `calls` (notification); `sink` (the receiver of durable
//!   blocks); `mirror` (a second place for the blocks).
//! - `read_ahead` and `recover` (reading); `beside` (reading beside a writer); `secure` (the last
//!   blocks at an opening); `resize`.
//! - `log` (the standalone log); `slot` (the envelope of its label, and of the store's superblock).

mod ack;
mod alarm;
mod beside;
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
mod mirror;
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
pub use beside::recover_beside;
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
pub use map::{Layout, Map, Span};
pub use mirror::{LocalLog, Mirror, MirrorHandle, MirrorStats, SealedBlock, Waits, sealed_blocks};
pub use recover::{End, Found, Hole, Recovery, Start, recover};
pub use resize::NotResized;
pub use ring::Cursor;
pub use secure::{recover_secured, secure};
pub use shared::PendingNotify;
pub use sink::{Sink, Waiters};
pub use wal::{Opening, Wal};
