//! Requests: the names under which patches happen once.

use brooklet::Bytes;
use twox_hash::XxHash3_64;

use crate::error::{Error, Result};

/// Longest request id, in bytes.
const MAX_ID: usize = 128;

/// Longest author, in bytes.
const MAX_AUTHOR: usize = 256;

/// The id of a request, and its author.
///
/// A request with an id happens once: the same call with the same id again, also after a crash,
/// returns the first answer. The id is any bytes, 1 to 128: a UUID, for example. A document
/// remembers an id for [`Options::remember`](crate::Options::remember) versions.
///
/// A string is a request with this id, and without an author.
///
/// ```
/// use brooklet_documents::{Documents, Json, JsonChange, Options, Request};
/// use serde_json::json;
///
/// # fn main() -> Result<(), brooklet_documents::Error> {
/// # let store = brooklet::Store::in_memory(1)?;
/// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
/// documents.create("notes", "r1", &json!({}).into())?;
/// let change = JsonChange::merge(json!({"title": "Notes"}));
/// let request = Request::new("r2").author("Ada");
/// let first = documents.patch("notes", 1, request.clone(), &change)?;
/// let again = documents.patch("notes", 1, request, &change)?;
/// assert_eq!((first.version, first.repeated), (2, false));
/// assert_eq!((again.version, again.repeated), (2, true));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub(crate) id: Bytes,
    pub(crate) author: Bytes,
}

impl Request {
    /// Returns a request with an id.
    pub fn new(id: impl AsRef<[u8]>) -> Self {
        Self { id: Bytes::copy_from_slice(id.as_ref()), author: Bytes::new() }
    }

    /// Returns a request without an id. If its answer is lost, the caller cannot know whether it
    /// happened.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Sets the author, which the history names: any bytes, at most 256.
    pub fn author(mut self, author: impl AsRef<[u8]>) -> Self {
        self.author = Bytes::copy_from_slice(author.as_ref());
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let limits = [("request id", self.id.len(), MAX_ID), ("author", self.author.len(), MAX_AUTHOR)];
        for (what, len, limit) in limits {
            if len > limit {
                return Err(Error::Invalid(format!("an {what} of {len} bytes: use at most {limit} bytes")));
            }
        }
        Ok(())
    }
}

impl From<&str> for Request {
    fn from(id: &str) -> Self {
        Self::new(id)
    }
}

impl From<String> for Request {
    fn from(id: String) -> Self {
        Self { id: id.into(), author: Bytes::new() }
    }
}

/// The calls that a request id names.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    Create = 1,
    Patch = 2,
    Rewind = 3,
    PatchMany = 4,
    Restore = 5,
}

/// Returns the hash of the content of a request.
pub(crate) fn content(call: Call, parts: &[&[u8]]) -> u64 {
    let mut hasher = XxHash3_64::with_seed(call as u64);
    for part in parts {
        std::hash::Hasher::write(&mut hasher, &(part.len() as u64).to_le_bytes());
        std::hash::Hasher::write(&mut hasher, part);
    }
    std::hash::Hasher::finish(&hasher)
}
