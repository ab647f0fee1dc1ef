//! Changes of JSON documents: parsing, encoding, composing.

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, ReplaceOperation};
use serde_json::{Map, Value};

use crate::json::{malformed, numbers};
use crate::refusal::{Refusal, RefusalKind};

const MERGE: u8 = b'm';
const PATCH: u8 = b'p';

const MERGE_TYPE: &str = "application/merge-patch+json";
const PATCH_TYPE: &str = "application/json-patch+json";

/// A change of a JSON document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonChange {
    /// A merge patch, as RFC 7396 has it: the members of an object are merged, `null` removes one,
    /// and any other value replaces what is there.
    Merge(Value),
    /// A patch, as RFC 6902 has it: a list of operations, all of which happen, or none.
    Patch(Patch),
}

/// Parses JSON text whose numbers are all kept.
pub(super) fn parse<T: serde_json_de::Parsed>(text: &[u8]) -> Result<T, Refusal> {
    numbers::check(text)?;
    T::parse(text).map_err(|error| malformed(&error))
}

/// The types that are parsed, without a dependency on `serde` itself.
mod serde_json_de {
    use json_patch::Patch;
    use serde_json::{Result, Value, from_slice};

    pub(in crate::json) trait Parsed: Sized {
        fn parse(text: &[u8]) -> Result<Self>;
    }

    impl Parsed for Value {
        fn parse(text: &[u8]) -> Result<Self> {
            from_slice(text)
        }
    }

    impl Parsed for Patch {
        fn parse(text: &[u8]) -> Result<Self> {
            from_slice(text)
        }
    }
}

impl JsonChange {
    /// Returns a merge patch.
    pub fn merge(patch: Value) -> Self {
        Self::Merge(patch)
    }

    /// Parses a merge patch: the body of `application/merge-patch+json`.
    ///
    /// # Errors
    /// [`RefusalKind::Malformed`]; [`RefusalKind::NumberNotKept`] if a number would change.
    pub fn parse_merge(text: &[u8]) -> Result<Self, Refusal> {
        parse(text).map(Self::Merge)
    }

    /// Parses a patch: the body of `application/json-patch+json`.
    ///
    /// # Errors
    /// [`RefusalKind::Malformed`], also for a path that is no JSON pointer;
    /// [`RefusalKind::NumberNotKept`] if a number would change.
    pub fn parse_patch(text: &[u8]) -> Result<Self, Refusal> {
        parse(text).map(Self::Patch)
    }

    /// Returns the JSON text of the change, which one of the two parsers reads back.
    pub fn to_json(&self) -> String {
        match self {
            Self::Merge(patch) => patch.to_string(),
            Self::Patch(patch) => patch.to_string(),
        }
    }

    /// Returns the media type of the change: `application/merge-patch+json` or
    /// `application/json-patch+json`.
    ///
    /// ```
    /// use brooklet_documents::JsonChange;
    ///
    /// let change = JsonChange::merge(serde_json::json!({"title": "Notes"}));
    /// assert_eq!(change.media_type(), "application/merge-patch+json");
    /// ```
    pub fn media_type(&self) -> &'static str {
        match self {
            Self::Merge(_) => MERGE_TYPE,
            Self::Patch(_) => PATCH_TYPE,
        }
    }

    /// Returns the media type and the JSON text of a change from its bytes in a document, as
    /// [`History::next_encoded`](crate::History::next_encoded) returns them, without parsing them.
    ///
    /// # Errors
    /// [`RefusalKind::Malformed`] if the bytes are those of no change.
    pub fn encoded_text(bytes: &[u8]) -> Result<(&'static str, &str), Refusal> {
        let (kind, text) = match bytes.split_first() {
            Some((&MERGE, text)) => (MERGE_TYPE, text),
            Some((&PATCH, text)) => (PATCH_TYPE, text),
            _ => return Err(no_change()),
        };
        Ok((kind, std::str::from_utf8(text).map_err(|_| no_change())?))
    }

    /// Returns the change that replaces the whole document by a value.
    ///
    /// ```
    /// use brooklet_documents::JsonChange;
    ///
    /// let change = JsonChange::replace(serde_json::json!([1]));
    /// assert_eq!(change.to_json(), r#"[{"op":"replace","path":"","value":[1]}]"#);
    /// ```
    pub fn replace(value: Value) -> Self {
        let whole = ReplaceOperation { path: PointerBuf::new(), value };
        Self::Patch(Patch(vec![PatchOperation::Replace(whole)]))
    }

    /// Calls `check` for each value of the change, with the number of levels above it.
    pub(super) fn check(&self, check: impl Fn(&Value, usize) -> Result<(), Refusal>) -> Result<(), Refusal> {
        let Self::Patch(patch) = self else {
            let Self::Merge(patch) = self else { unreachable!("a change is a merge or a patch") };
            return check(patch, 0);
        };
        patch.iter().try_for_each(|operation| match operation {
            PatchOperation::Add(add) => check(&add.value, add.path.count()),
            PatchOperation::Replace(replace) => check(&replace.value, replace.path.count()),
            PatchOperation::Test(test) => check(&test.value, test.path.count()),
            other => check(&Value::Null, other.path().count()),
        })
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, Refusal> {
        let mut to = Vec::with_capacity(64);
        let written = match self {
            Self::Merge(patch) => {
                to.push(MERGE);
                serde_json::to_writer(&mut to, patch)
            }
            Self::Patch(patch) => {
                to.push(PATCH);
                serde_json::to_writer(&mut to, patch)
            }
        };
        written.map_err(|error| malformed(&error))?;
        Ok(to)
    }

    /// Returns the text of a merge patch that is encoded; `None` for a change of another kind.
    pub(super) fn text_of_merge(bytes: &[u8]) -> Option<&[u8]> {
        bytes.split_first().filter(|(kind, _)| **kind == MERGE).map(|(_, text)| text)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
        let decoded = match bytes.split_first() {
            Some((&MERGE, text)) => serde_json::from_slice(text).map(Self::Merge),
            Some((&PATCH, text)) => serde_json::from_slice(text).map(Self::Patch),
            _ => return Err(no_change()),
        };
        decoded.map_err(|error| malformed(&error))
    }

    /// Composes changes of one kind; none of them are an empty patch. `None` for changes of both
    /// kinds, and for merge patches that have together no merge patch of the same effect.
    pub(super) fn compose(changes: &[Self]) -> Option<Self> {
        let Some((first, others)) = changes.split_first() else {
            return Some(Self::Patch(Patch(Vec::new())));
        };
        let mut all = first.clone();
        for change in others {
            match (&mut all, change) {
                (Self::Patch(Patch(all)), Self::Patch(Patch(more))) => all.extend(more.iter().cloned()),
                (Self::Merge(all), Self::Merge(more)) => compose_merge(all, more)?,
                _ => return None,
            }
        }
        Some(all)
    }
}

fn no_change() -> Refusal {
    Refusal::new(RefusalKind::Malformed, "the bytes are no change of JSON")
}

/// Makes `first` a merge patch that has the effect of `first` and then `second`.
fn compose_merge(first: &mut Value, second: &Value) -> Option<()> {
    let Value::Object(second) = second else {
        *first = second.clone();
        return Some(());
    };
    // An object after another value replaces what is there. A merge patch can only merge an object.
    let Value::Object(first) = first else { return None };
    for (key, value) in second {
        compose_member(first, key, value)?;
    }
    Some(())
}

fn compose_member(first: &mut Map<String, Value>, key: &str, value: &Value) -> Option<()> {
    match (first.get_mut(key), value) {
        (Some(before), Value::Object(_)) => compose_merge(before, value),
        (Some(before), _) => {
            *before = value.clone();
            Some(())
        }
        (None, _) => {
            first.insert(key.into(), value.clone());
            Some(())
        }
    }
}
