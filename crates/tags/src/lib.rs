//! Records that bear any number of tags, and are found by them: on [Brooklet](brooklet), a store of
//! millions of small logs.
//!
//! ```
//! use brooklet_tags::{Options, Tags};
//!
//! # fn main() -> Result<(), brooklet_tags::Error> {
//! # let store = brooklet::Store::in_memory(1)?;
//! let notes = Tags::open(&store, "notes", Options::new())?;
//! notes.put("1", ["work", "urgent"], "call Ada")?.wait()?;         // one atomic commit, durable by now
//! notes.put("2", ["home", "urgent"], "mend the roof")?.wait()?;
//! notes.put("1", ["work"], "thank Ada")?.wait()?;                  // in the place of what it was
//!
//! let urgent = notes.find().all(["urgent"]).none(["work"]).run()?;
//! for record in urgent {
//!     println!("{}", String::from_utf8_lossy(&record?.payload));   // mend the roof
//! }
//! assert_eq!(notes.count("work")?, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! Each put is one commit of two logs: the record's own, and a journal that numbers all changes.
//! The number is the record's *ordinal*; a tag is the set of the ordinals of the records that bear
//! it. Such a set is a log too, to which blocks of ordinals are appended; what the journal has and
//! these do not yet is kept in memory, as sets, and is found there by whoever opens the store. Once
//! it is large, it is appended to the logs of all its tags, and the journal need not be gone
//! through any more from there. So a put writes what it brings, and nothing again, however many
//! records there are, and however many bear a tag of its.
//!
//! A record that is replaced has a new ordinal; the old one is in the set of those that count no
//! more. Sets are Roaring bitmaps in memory, so that all of, any of and none of are operations on
//! those, and the newest records are found first.
//!
//! # The rooms
//!
//! `format` (what lies where), `index` (the sets, and what of them is in memory), `tags` (records),
//! `query`, `settle` (from memory into the logs).

#![forbid(unsafe_code)]

mod error;
mod format;
mod index;
mod limits;
mod query;
mod settle;
mod tags;

pub use brooklet::Bytes;
pub use error::{Error, Result};
pub use limits::{MAX_ID, MAX_NAME, MAX_TAG, MAX_TAGS};
pub use query::{Found, Query, Records};
pub use tags::{Options, Record, Tags, Written};
