//! JSON documents: merge patches (RFC 7396) and patches (RFC 6902), with computed undo.

mod apply;
mod change;
mod merge;
mod numbers;
mod plain;
mod replay;
mod size;
mod weight;

use std::ops::Deref;

use brooklet::Bytes;
use serde_json::Value;

pub use crate::json::change::JsonChange;
use crate::json::size::{Size, is_within, size};
use crate::json::weight::VALUE;
use crate::model::Model;
use crate::refusal::{Refusal, RefusalKind, cut};

/// Most characters of the parser's message that a refusal repeats.
const SHOWN: usize = 160;

/// Greatest depth that a model can allow. The parser reads 127 levels.
const MOST_DEPTH: usize = 120;

/// A [`Model`] of JSON values, with limits of depth and size.
///
/// ```
/// use brooklet_documents::{Documents, Json, JsonChange, Options};
/// use serde_json::json;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = brooklet::Store::in_memory(1)?;
/// let model = Json::new().max_depth(16).max_size(64 << 10);
/// let documents = Documents::open(&store, model, Options::new("docs/"))?;
/// documents.create("notes", "r1", &Json::parse(br#"{"title": "Notes", "tags": ["a"]}"#)?)?;
/// let merge = JsonChange::parse_merge(br#"{"title": null}"#)?;
/// documents.patch("notes", 1, "r2", &merge)?;
/// let patch = br#"[{"op": "add", "path": "/tags/-", "value": "b"}]"#;
/// documents.patch("notes", 2, "r3", &JsonChange::parse_patch(patch)?)?;
/// assert_eq!(**documents.get("notes")?.unwrap().state, json!({"tags": ["a", "b"]}));
/// documents.rewind("notes", 3, "r4", 1)?;
/// assert_eq!(documents.get("notes")?.unwrap().state["title"], "Notes");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Json {
    max_depth: usize,
    max_size: usize,
}

/// A JSON value as the state of a document.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonState {
    value: Value,
    /// Size of the value, kept up to date by each change.
    size: Size,
}

impl JsonState {
    /// Returns the value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the value, without a copy.
    ///
    /// ```
    /// use brooklet_documents::Json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Refusal> {
    /// assert_eq!(Json::parse(b"[1]")?.into_value(), serde_json::json!([1]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_value(self) -> Value {
        self.value
    }

    /// Returns the size of the value: its length as JSON text without spaces, about. An escaped
    /// character counts as one or more bytes as in UTF-8, and a number as 8 bytes.
    pub fn size(&self) -> usize {
        self.size.text
    }
}

/// Most bytes of memory of a byte of text: of an object with one member that has no name.
const MOST: usize = 48;

impl Deref for JsonState {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

impl From<Value> for JsonState {
    fn from(value: Value) -> Self {
        // A value that is too deep to be measured is refused by `create`.
        let most = Size { text: usize::MAX, memory: usize::MAX };
        let size = if is_within(&value, MOST_DEPTH) { size(&value) } else { most };
        Self { value, size }
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::new()
    }
}

impl Json {
    /// Returns a model of JSON values of at most 64 levels and 1 MiB.
    pub fn new() -> Self {
        Self { max_depth: 64, max_size: 1 << 20 }
    }

    /// Sets the greatest number of levels of arrays and objects, at most 120. Default: 64.
    pub fn max_depth(mut self, levels: usize) -> Self {
        self.max_depth = levels.min(MOST_DEPTH);
        self
    }

    /// Sets the greatest [size](JsonState::size) of a state in bytes. Default: 1 MiB.
    pub fn max_size(mut self, bytes: usize) -> Self {
        self.max_size = bytes;
        self
    }

    /// Parses JSON text as a state.
    ///
    /// # Errors
    /// [`RefusalKind::Malformed`]; [`RefusalKind::NumberNotKept`] if a number would change.
    pub fn parse(text: &[u8]) -> Result<JsonState, Refusal> {
        change::parse::<Value>(text).map(JsonState::from)
    }

    /// Returns the most bytes of memory that parsing JSON text takes, about, without parsing it. A
    /// few bytes of text can take a hundred times their room: a server decides by this number how
    /// many texts to parse at once.
    ///
    /// ```
    /// use brooklet_documents::Json;
    ///
    /// assert!(Json::weight(b"[[0],[0],[0]]") > 300);
    /// ```
    pub fn weight(text: &[u8]) -> usize {
        weight::weight(text)
    }

    fn check_depth(&self, value: &Value, above: usize) -> Result<(), Refusal> {
        match self.max_depth.checked_sub(above).is_some_and(|left| is_within(value, left)) {
            true => Ok(()),
            false => {
                let what = format!("a value would be deeper than {} levels: use fewer", self.max_depth);
                Err(Refusal::new(RefusalKind::TooDeep, what))
            }
        }
    }

    fn check_size(&self, size: usize) -> Result<(), Refusal> {
        match size <= self.max_size {
            true => Ok(()),
            false => {
                let limit = self.max_size;
                let what =
                    format!("the document would have {size} bytes, over the limit of {limit}: split it");
                Err(Refusal::new(RefusalKind::TooLarge, what))
            }
        }
    }
}

impl Model for Json {
    type State = JsonState;
    type Change = JsonChange;

    fn name(&self) -> &str {
        "json"
    }

    fn version(&self) -> u32 {
        1
    }

    fn snapshot(&self, state: &JsonState) -> Result<Vec<u8>, Refusal> {
        self.check_depth(&state.value, 0)?;
        self.check_size(state.size.text)?;
        serde_json::to_vec(&state.value).map_err(|error| malformed(&error))
    }

    fn load(&self, _version: u32, bytes: &Bytes) -> Result<JsonState, Refusal> {
        serde_json::from_slice::<Value>(bytes).map(JsonState::from).map_err(|error| malformed(&error))
    }

    fn encode(&self, change: &JsonChange) -> Result<Vec<u8>, Refusal> {
        change.check(|value, above| self.check_depth(value, above))?;
        change.encode()
    }

    fn decode(&self, bytes: &Bytes) -> Result<JsonChange, Refusal> {
        JsonChange::decode(bytes)
    }

    fn apply(&self, state: &mut JsonState, change: &JsonChange) -> Result<Option<JsonChange>, Refusal> {
        match change {
            JsonChange::Merge(patch) => self.apply_merge(state, patch).map(Some),
            JsonChange::Patch(patch) => self.apply_patch(state, patch).map(Some),
        }
    }

    fn replay(
        &self,
        state: &mut JsonState,
        changes: &mut dyn Iterator<Item = &Bytes>,
    ) -> Result<(), Refusal> {
        replay::replay(&mut state.value, changes)?;
        state.size = size(&state.value);
        Ok(())
    }

    fn compose(&self, changes: &[JsonChange]) -> Option<JsonChange> {
        JsonChange::compose(changes)
    }

    fn replace(&self, state: &JsonState) -> Option<JsonChange> {
        Some(JsonChange::replace(state.value.clone()))
    }

    fn size(&self, state: &JsonState) -> usize {
        // An empty array takes no memory of its own, and counts as much as one that is not.
        state.size.memory.min(state.size.text.saturating_mul(MOST)).saturating_add(VALUE)
    }
}

fn malformed(error: &serde_json::Error) -> Refusal {
    // The parser repeats values, such as the name of an operation that it does not know.
    let error = error.to_string();
    Refusal::new(
        RefusalKind::Malformed,
        format!("the bytes are not the expected JSON: {}", cut(&error, SHOWN)),
    )
}

#[cfg(test)]
mod tests;
