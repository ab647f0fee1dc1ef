//! Refusals: the reasons for which a model does not take a change or a state.

use std::fmt;

/// The reason for which a model refuses a change or a state.
///
/// ```
/// use brooklet_documents::{JsonChange, RefusalKind};
///
/// let refusal = JsonChange::parse_merge(br#"{"id": 123456789012345678901}"#).unwrap_err();
/// assert_eq!(refusal.kind(), RefusalKind::NumberNotKept);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    kind: RefusalKind,
    what: String,
}

/// The kind of a [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalKind {
    /// The bytes are malformed, such as text that is no JSON.
    Malformed,
    /// A value would be deeper than the limit.
    TooDeep,
    /// The state would be larger than the limit.
    TooLarge,
    /// A path leads to nothing, or to a value that has no such part.
    InvalidPointer,
    /// A test of the change failed.
    TestFailed,
    /// A number would change if it was stored.
    NumberNotKept,
    /// Another reason of the model.
    Other,
}

impl Refusal {
    /// Creates a refusal. `what` names the reason and the remedy, without a full stop.
    pub fn new(kind: RefusalKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into() }
    }

    /// Returns the kind.
    pub fn kind(&self) -> RefusalKind {
        self.kind
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Refusal {}

/// Returns text of a client for a message: at most `most` characters of it.
pub(crate) fn cut(text: &str, most: usize) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}
