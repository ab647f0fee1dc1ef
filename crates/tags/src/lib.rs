//! Records with any number of tags, found by their tags: on [Brooklet](brooklet), a store of
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
//! notes.put("1", ["work"], "thank Ada")?.wait()?;                  // replaces the record
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
//! Each put is one commit of two logs: the record's own log, and a journal that numbers all
//! changes. The number is the record's *ordinal*; a tag is the set of the ordinals of its records.
//! Each set is a log, too: blocks of ordinals are appended to it. The index keeps the newest
//! changes in memory, as sets. If the index grows large, its changes are appended to the logs of
//! all their tags. An opening reads the journal only from there on. So a put writes its own data
//! once, however many records exist, and however many records have its tags.
//!
//! A replaced record has a new ordinal; the old one joins the set of dead ordinals. Sets are
//! Roaring bitmaps in memory. So a query for all, any or none of some tags is an operation on
//! bitmaps, and the newest records are found first.
//!
//! # The modules
//!
//! `format` (the logs and their entries), `index` (the sets, and their part in memory), `tags`
//! (records), `query`, `settle` (from memory into the logs).

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
