//! Documents of [yrs], each a log of updates: on [Brooklet](brooklet), a store of millions of small
//! logs.
//!
//! ```
//! use brooklet_yrs::Documents;
//! use yrs::{Doc, GetString, Text, Transact};
//!
//! # fn main() -> Result<(), brooklet_yrs::Error> {
//! # let store = brooklet::Store::in_memory(1)?;
//! let documents = Documents::new(&store, "docs/").flush_every(500);
//!
//! let doc = Doc::new();
//! let text = doc.get_or_insert_text("text");
//! let mut txn = doc.transact_mut();
//! text.push(&mut txn, "hello");
//! documents.push_update("notes", &txn.encode_update_v1())?;   // durable by now: acknowledge and broadcast it
//! drop(txn);
//!
//! let replica = Doc::new();                                   // after a restart
//! documents.load_doc("notes", &mut replica.transact_mut())?;
//! let text = replica.get_or_insert_text("text");
//! assert_eq!(text.get_string(&replica.transact()), "hello");
//! # Ok(())
//! # }
//! ```
//!
//! The calls have the names of the crate `yrs-kvstore`. All updates and states are in lib0 v1
//! encoding.
//!
//! # How it works
//!
//! A push is one append to the log of its document. The store writes the pushes of many threads
//! and tasks, to many documents, as one block. [`flush_doc`](Documents::flush_doc) merges all
//! updates into one entry, and drops the entries that it merged, in one atomic commit. Updates of
//! yrs commute, so the merged state may also come behind updates that were pushed during the flush.
//!
//! An update may build on others that the document lacks. Such an update is stored, and a flush
//! keeps it as it is. A load applies it once the others are there.
//!
//! [`updates`](Documents::updates) follows a document: a server broadcasts from there what any of
//! its threads pushed.
//!
//! # The modules
//!
//! `format` (the logs and their entries), `update` (decoding), `merge` (applies updates in order),
//! `documents` (loads, lists, clears), `push`, `flush`, `meta`, `follow`.

#![forbid(unsafe_code)]

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct Readme;

mod documents;
mod error;
mod flush;
mod follow;
mod format;
mod merge;
mod meta;
mod push;
mod update;

pub use brooklet::Bytes;
pub use documents::{DocNames, Documents};
pub use error::{Error, Result};
pub use follow::{DocEvent, Updates};
pub use meta::MetaEntries;
pub use push::Pushing;
