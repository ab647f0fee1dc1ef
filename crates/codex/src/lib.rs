//! Codex: an immutable file of sorted keys and their values, with a builder and a reader.
//!
//! ```
//! use brooklet_codex::{Builder, BuilderOptions, Bytes, Reader};
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
//! assert_eq!((cursor.key(), &cursor.value()[..]), (&b"brook"[..], &b"water"[..]));
//! assert!(cursor.prev()?);
//! assert_eq!(cursor.key(), b"ash");
//!
//! assert_eq!(reader.verify(&mut |_bytes_done| {})?.entries, 2);
//! # Ok::<(), brooklet_codex::Error>(())
//! ```
//!
//! # Promises
//!
//! - Nothing is handed out unless the checksum of the block it came from held. The checksum is kept by the block that
//!   points there, so that a stale or misdirected block is noticed as well as a damaged one.
//! - Any bytes may be opened: damaged or hostile files give an [`Error`], never a panic, an endless loop, or an
//!   allocation out of proportion to the file.
//! - The same input, options and version of LZ4 give the same file, bit for bit.
//!
//! # Limits
//!
//! Keys: [`MAX_KEY`] bytes. Values: [`MAX_VALUE`] bytes; a value is read whole. While building, memory holds one block,
//! the lowest index level and the filter as they will be stored, and the hashes of one part of that.
//! What readers keep is bounded by their [`Cache`], which many may share.
//!
//! # The rooms
//!
//! - `format`: the layout of the file; the only description there is.
//! - `block`: sorted entries in a block, and a place among them.
//! - `filter`: the bloom filter, in parts. `directory`: the way to them. `cache`: [`Cache`].
//! - `builder`: [`Builder`]. `reader`: [`Reader`]. `cursor`: [`Cursor`]. `verify`: [`Reader::verify`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod block;
mod builder;
mod cache;
mod cursor;
mod directory;
mod error;
mod filter;
mod format;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod reader;
mod source;
mod verify;

pub use builder::{Builder, BuilderOptions, Summary};
pub use bytes::Bytes;
pub use cache::{Cache, CacheStats};
pub use cursor::Cursor;
pub use error::{Error, Result};
pub use format::{MAX_KEY, MAX_METADATA, MAX_VALUE, VERSION};
pub use reader::Reader;
pub use source::Source;
pub use verify::Verified;
