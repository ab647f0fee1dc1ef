//! Documents with versions, undo, history and snapshots: on [Brooklet](brooklet), a store of
//! millions of small logs.
//!
//! ```
//! use brooklet_documents::{Documents, Error, Json, JsonChange, Options};
//! use serde_json::json;
//!
//! # fn main() -> Result<(), Error> {
//! # let store = brooklet::Store::in_memory(1)?;
//! let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
//! documents.create("notes", "request 1", &json!({"title": "Notes"}).into())?;
//! documents.patch("notes", 1, "request 2", &JsonChange::merge(json!({"title": "My notes"})))?;
//! documents.rewind("notes", 2, "request 3", 1)?;              // undo, as version 3
//! let found = documents.get("notes")?.expect("it exists");
//! assert_eq!((found.version, &found.state["title"]), (3, &json!("Notes")));
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! A document is one log. Its entries are updates and snapshots. An update has author, request id,
//! change and undo; a snapshot has the state, the request ids that are remembered, and the places
//! of the older snapshots. A patch is one append that expects the next number of the log, so the
//! store itself decides between two patches of the same version.
//!
//! A load reads from the end of the log to the last snapshot, and nothing before it. Documents that
//! were used last stay in memory, within a budget. A patch changes the state in memory, appends the
//! entry, and waits; a reader of a state waits for the last patch of that state.
//!
//! # The modules
//!
//! `codec` and `format` (the entries), `head` and `ids` (all that a patch needs besides the state),
//! `load`, `cache`, `documents` (gets, creations, deletions), `patch`, `rewind`, `many`, `history`,
//! `snapshot` with `due`, `watch`, `moving`, `restore`; `model`, `json` and `opaque` (states and
//! changes); `request`, `options`, `refusal`, `error`.

#![forbid(unsafe_code)]

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct Readme;

mod cache;
mod codec;
mod documents;
mod due;
mod error;
mod format;
mod head;
mod history;
mod ids;
mod json;
mod load;
mod many;
mod model;
mod moving;
mod opaque;
mod options;
mod patch;
mod refusal;
mod request;
mod restore;
mod rewind;
mod snapshot;
mod watch;

pub use brooklet::Bytes;
pub use documents::{Answer, CacheInfo, Document, Documents, Names};
pub use error::{Error, ErrorKind, Result};
pub use history::{Changes, History, Update};
pub use json::{Json, JsonChange, JsonState};
pub use json_patch;
pub use model::Model;
pub use opaque::{Opaque, OpaqueState};
pub use options::Options;
pub use patch::Submitted;
pub use refusal::{Refusal, RefusalKind};
pub use request::Request;
pub use watch::{Event, Watch};
