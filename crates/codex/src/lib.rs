//! Codex: an immutable file of sorted keys and their values, with builders and a reader.
//!
//! [`FileBuilder`] takes entries in any order and makes a file of them, with all cores and in
//! bounded memory. [`Builder`] takes them sorted, and writes to anything. [`Reader`] reads from a
//! [`Map`] of a file, a file, memory, or whatever is a [`Source`].
//!
//! ```
//! use brooklet_codex::{Builder, BuilderOptions, Bytes, Progress, Reader};
//!
//! let mut builder = Builder::new(Vec::new(), BuilderOptions { id: 7, ..Default::default() });
//! builder.add(b"ash", b"tree")?; // keys come in strictly ascending order
//! builder.add_filter(42); // a hash of whatever readers ask `may_contain` about, for the key that comes next
//! builder.add(b"brook", b"water")?;
//! let (summary, file) = builder.finish()?;
//!
//! // Whoever keeps `summary.footer_sum` notices any other file in this one's place.
//! let reader = Reader::open(Bytes::from(file), summary.len, Some(summary.footer_sum))?;
//! assert_eq!(reader.id(), 7);
//! assert_eq!(reader.get(b"brook")?.as_deref(), Some(&b"water"[..]));
//! assert!(reader.may_contain(b"brook", 42)?);
//!
//! let mut cursor = reader.cursor();
//! assert!(cursor.seek(b"b")?); // the first entry at or after "b"
//! assert_eq!((cursor.key(), &cursor.value()?[..]), (&b"brook"[..], &b"water"[..]));
//! assert!(cursor.prev()?);
//! assert_eq!(cursor.key(), b"ash");
//!
//! assert_eq!(reader.verify(Progress::ignore)?.entries, 2);
//! # Ok::<(), brooklet_codex::Error>(())
//! ```
//!
//! # Promises
//!
//! - Nothing is handed out unless the checksum of the block it came from held. The checksum is kept
//!   by the block that points there, so that a stale or misdirected block is noticed as well as a
//!   damaged one.
//! - Any bytes may be opened: damaged or hostile files give an [`Error`], never a panic, an endless
//!   loop, or an allocation out of proportion to the file.
//! - The same input, options and version of LZ4 give the same file, bit for bit. A [`FileBuilder`]
//!   gives the same file for the same entries, each key once, in whatever order they come.
//! - A file of a [`FileBuilder`] appears under its name when all of it is on the medium, or not at
//!   all.
//!
//! # Limits
//!
//! Keys: [`MAX_KEY`] bytes. Values: [`MAX_VALUE`] bytes; of long ones, parts are read
//! ([`Reader::get_part`]). While building, memory holds one block with the values in it, the lowest
//! index level and the filter as they will be stored, and the hashes of one part of that; a
//! [`FileBuilder`] moreover what [`FileOptions::memory`] says. What readers keep is bounded by
//! their [`Cache`], which many may share.
//!
//! # The rooms
//!
//! - `format`: the layout of the file; the only description there is. `limits`: the most it takes.
//!   `options`, `progress`: what callers set, and how builders report.
//! - `block`: sorted entries in a block, and a place among them. `apart`: long values, which lie
//!   outside.
//! - `filter`: the bloom filter, in parts. `directory`: the way to them. `cache`: [`Cache`];
//!   `class`: how long it keeps the kinds of things.
//! - `pack`: sorted entries become blocks. `binder`: blocks become a file. `builder`: [`Builder`],
//!   which does both at once.
//! - `file`: [`FileBuilder`]. `arena`, `sort`: entries in memory. `spill`: sorted stretches of them
//!   on the medium. `merge`: all of these, range by range. `turns`: by many threads. `write`: past
//!   the page cache.
//! - `source`, `map`: where bytes come from. `reader`: [`Reader`]. `fences`: where its blocks
//!   begin. `cursor`: [`Cursor`]. `range`: [`Range`]. `verify`: [`Reader::verify`].

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod ahead;
mod apart;
#[cfg(unix)]
mod arena;
mod binder;
mod block;
mod builder;
mod cache;
mod class;
mod cursor;
mod directory;
mod error;
mod fences;
#[cfg(unix)]
mod file;
mod filter;
mod format;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod limits;
mod map;
#[cfg(unix)]
mod merge;
mod options;
mod pack;
mod progress;
mod range;
mod reader;
#[cfg(unix)]
mod sort;
mod source;
#[cfg(unix)]
mod spill;
#[cfg(unix)]
mod turns;
mod verify;
#[cfg(unix)]
mod write;

pub use binder::Summary;
pub use builder::Builder;
pub use bytes::Bytes;
pub use cache::{Cache, CacheStats};
pub use cursor::Cursor;
pub use error::{Error, Result};
#[cfg(unix)]
pub use file::{FileBuilder, Sorter};
pub use filter::key_hash;
pub use limits::{MAX_KEY, MAX_METADATA, MAX_VALUE, VERSION};
pub use map::Map;
pub use options::BuilderOptions;
#[cfg(unix)]
pub use options::{Duplicates, FileOptions};
pub use progress::Progress;
pub use range::Range;
pub use reader::Reader;
pub use source::Source;
pub use verify::Verified;
