//! The JSON of replies and events.

use brooklet_documents::{JsonChange, Refusal, RefusalKind, Update};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::http::streams::time;

/// A change: its media type, and the patch.
#[derive(Serialize)]
pub struct Change {
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

impl Change {
    /// Returns a change as a document stores it. Its text is checked, and no values are made.
    pub fn stored(bytes: &[u8]) -> Result<Self, Refusal> {
        let (media_type, text) = JsonChange::encoded_text(bytes)?;
        let patch = RawValue::from_string(text.to_owned());
        let patch = patch.map_err(|error| Refusal::new(RefusalKind::Malformed, error.to_string()))?;
        Ok(Self { media_type, patch })
    }
}

/// An update. The undo is left out: a client that wants it asks for a rewind.
#[derive(Serialize)]
pub struct Shown {
    pub version: u64,
    time: String,
    author: String,
    request: String,
    back_to: Option<u64>,
    change: Change,
}

impl Shown {
    /// Shows an update of this change.
    pub fn new<C>(update: &Update<C>, change: Change) -> Self {
        let since_1970 = update.time.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            version: update.version,
            time: time::format(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)),
            author: String::from_utf8_lossy(&update.author).into_owned(),
            request: String::from_utf8_lossy(&update.request).into_owned(),
            back_to: update.back_to,
            change,
        }
    }
}

/// Updates that follow each other.
#[derive(Serialize)]
pub struct Updates {
    /// Version of the document.
    pub head: u64,
    /// Version that the updates lead to.
    pub version: u64,
    /// One change with the effect of all updates, if there is one.
    pub merged: Option<Change>,
    pub updates: Vec<Box<RawValue>>,
}

/// Returns the JSON of a value of this module.
pub fn text(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("the values of this module are JSON")
}
