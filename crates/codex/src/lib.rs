//! Codex: an immutable file of sorted keys and their values, with builders and a reader.
//!
//! [`FileBuilder`] takes entries in any order and builds a file, with all cores and in bounded
//! memory. [`Builder`] takes sorted entries and writes to any output. [`Reader`] reads from a
//! [`Map`] of a file, a file, memory, or any other [`Source`].
//!
//! ```
//! use brooklet_codex::{Builder, BuilderOptions, Bytes, Progress, Reader};
//!
//! let mut builder = Builder::new(Vec::new(), BuilderOptions { id: 7, ..Default::default() });
//! builder.add(b"ash", b"tree")?; // keys come in strictly ascending order
//! builder.add_filter(42); // for the next key: the hash that readers pass to `may_contain`
//! builder.add(b"brook", b"water")?;
//! let (summary, file) = builder.finish()?;
//!
//! // A caller that keeps `summary.footer_sum` notices any other file in this one's place.
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
//! - A reader returns data only if the checksum of its block held. The block that points to it
//!   stores the checksum, so a reader notices stale and misdirected blocks as well as damaged
//!   blocks.
//! - A reader may open any bytes: a damaged or hostile file causes an [`Error`], never a panic, an
//!   endless loop, or an allocation out of proportion to the file.
//! - The same input, options and version of LZ4 produce the same file, bit for bit. A
//!   [`FileBuilder`] produces the same file for the same entries in any order, if each key is given
//!   once.
//! - A file of a [`FileBuilder`] appears under its name when the whole file is on the medium, or
//!   not at all.
//!
//! # Limits
//!
//! A key has at most [`MAX_KEY`] bytes, a value at most [`MAX_VALUE`] bytes. [`Reader::get_part`]
//! reads a part of a long value. While building, memory holds one block with its values, the lowest
//! index level and the filter as the file will store them, and the hashes of one filter part. A
//! [`FileBuilder`] also uses [`FileOptions::memory`]. The [`Cache`] bounds the memory of readers;
//! many readers may share one cache.
//!
//! # Modules
//!
//! - `format`: the layout of the file, described only there. `limits`: the limits of the format.
//!   `options`: the options of builders. `progress`: their progress reports.
//! - `block`: sorted entries in a block, and a position among them. `apart`: long values, stored
//!   outside their block.
//! - `filter`: the bloom filter, in parts. `filter_lookup`: look-ups in it. `notes`: four bytes of
//!   the caller for each item of the filter. `ordered_notes`: [`OrderedNotes`]. `directory`: finds
//!   the part for a key.
//! - `cache`: [`Cache`]; `class`: the time that each class of entry stays in the cache. `reread`:
//!   the blocks that were read lately. `values`: [`Values`].
//! - `pack`: packs sorted entries into blocks. `binder`: binds blocks into a file. `builder`:
//!   [`Builder`], which does both at once.
//! - `file`: [`FileBuilder`]. `arena`, `sort`: entries in memory. `spill`: sorted stretches of
//!   entries on the medium. `merge`: merges all of these, range by range. `turns`: parallel work
//!   whose results are taken in order. `write`: writes past the page cache.
//! - `source`, `map`: the sources of bytes. `reader`: [`Reader`]. `fences`: the first key of each
//!   data block. `cursor`: [`Cursor`]. `ahead`: reads ahead of a cursor. `prefetch`: [`Prefetch`].
//!   `range`: [`Range`]. `verify`: [`Reader::verify`].

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
mod filter_lookup;
mod format;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod limits;
mod map;
#[cfg(unix)]
mod merge;
mod notes;
mod options;
mod ordered_notes;
mod pack;
mod prefetch;
mod progress;
mod range;
mod reader;
mod reread;
#[cfg(unix)]
mod sort;
mod source;
#[cfg(unix)]
mod spill;
#[cfg(unix)]
mod turns;
mod values;
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
pub use notes::Noted;
pub use options::BuilderOptions;
#[cfg(unix)]
pub use options::{Duplicates, FileOptions};
pub use ordered_notes::OrderedNotes;
pub use prefetch::{DataBlock, Prefetch};
pub use progress::Progress;
pub use range::Range;
pub use reader::Reader;
pub use source::Source;
pub use values::Values;
pub use verify::Verified;
