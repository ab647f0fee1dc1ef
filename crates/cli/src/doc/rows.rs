//! What the commands on documents print.

use std::fmt;

use brooklet::Bytes;
use brooklet_documents::{Answer, JsonChange, Update};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::output::Octets;
use crate::time::Moment;

/// A document at a version.
#[derive(Serialize)]
pub struct Document<'a> {
    #[serde(flatten)]
    name: Octets<'a>,
    version: u64,
    state: &'a Value,
}

impl<'a> Document<'a> {
    pub fn new(name: &'a [u8], version: u64, state: &'a Value) -> Self {
        Self { name: Octets::document(name), version, state }
    }
}

impl fmt::Display for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.state)
    }
}

/// The version that a change made.
#[derive(Serialize)]
pub struct Written<'a> {
    #[serde(flatten)]
    name: Octets<'a>,
    version: u64,
    /// Whether the request had happened before.
    repeated: bool,
}

impl<'a> Written<'a> {
    pub fn new(name: &'a [u8], Answer { version, repeated }: Answer) -> Self {
        Self { name: Octets::document(name), version, repeated }
    }
}

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = if self.repeated { ", by the same request before" } else { "" };
        write!(f, "{}  version {}{again}", self.name, self.version)
    }
}

#[derive(Serialize)]
pub struct Deleted<'a> {
    #[serde(flatten)]
    name: Octets<'a>,
    /// The version that the document had. A damaged document has none.
    version: Option<u64>,
    deleted: bool,
}

impl<'a> Deleted<'a> {
    pub fn new(name: &'a [u8], version: Option<u64>) -> Self {
        Self { name: Octets::document(name), version, deleted: true }
    }
}

impl fmt::Display for Deleted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  deleted", self.name)
    }
}

/// A document that has another place.
#[derive(Serialize)]
pub struct Moved<'a> {
    #[serde(flatten)]
    name: Octets<'a>,
    /// First bytes of the keys below which the document is now.
    #[serde(flatten)]
    below: Octets<'a>,
}

impl<'a> Moved<'a> {
    pub fn new(name: &'a [u8], below: &'a [u8]) -> Self {
        Self { name: Octets::document(name), below: Octets::below(below) }
    }
}

impl fmt::Display for Moved<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  below {}", self.name, self.below)
    }
}

/// A change: its media type, and the patch.
#[derive(Serialize)]
struct Change {
    #[serde(rename = "type")]
    media_type: &'static str,
    patch: Box<RawValue>,
}

impl From<&JsonChange> for Change {
    fn from(change: &JsonChange) -> Self {
        let patch = RawValue::from_string(change.to_json()).expect("a change is JSON");
        Self { media_type: change.media_type(), patch }
    }
}

/// An update.
#[derive(Serialize)]
pub struct Row {
    version: u64,
    time: Moment,
    #[serde(flatten)]
    author: Author,
    #[serde(flatten)]
    request: Id,
    /// The version that the update went back to.
    back_to: Option<u64>,
    change: Change,
    undo: Option<Change>,
}

/// Bytes of a row that outlives its update.
struct Author(Bytes);
struct Id(Bytes);

impl Serialize for Author {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Octets::or_null(Octets::author, (!self.0.is_empty()).then_some(&self.0[..])).serialize(serializer)
    }
}

impl Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Octets::or_null(Octets::request, (!self.0.is_empty()).then_some(&self.0[..])).serialize(serializer)
    }
}

impl Row {
    pub fn new(update: &Update<JsonChange>) -> Self {
        let since_1970 = update.time.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            version: update.version,
            time: Moment::millis(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)),
            author: Author(update.author.clone()),
            request: Id(update.request.clone()),
            back_to: update.back_to,
            change: (&update.change).into(),
            undo: update.undo.as_ref().map(Change::from),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let author = Octets::author(&self.author.0);
        write!(f, "{}\t{}\t{author}\t{}", self.version, self.time, self.change.patch)?;
        self.back_to.map_or(Ok(()), |back| write!(f, "\tback to {back}"))
    }
}

/// One patch with the effect of several.
#[derive(Serialize)]
pub struct Merged {
    /// The version that the patch leads to.
    version: u64,
    change: Change,
}

impl Merged {
    pub fn new(version: u64, change: &JsonChange) -> Self {
        Self { version, change: change.into() }
    }
}

impl fmt::Display for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.change.patch)
    }
}
