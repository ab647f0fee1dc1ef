//! Sizes and depths of JSON values. A size adds up from the sizes of the parts, so a change of a
//! part changes it without a walk over the whole.

use std::iter::Sum;
use std::ops::{Add, Sub};

use serde_json::{Map, Value};

use super::weight::{ARRAY, MEMBER, OBJECT, STRING, VALUE};

/// The size of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Bytes of its text, about.
    pub text: usize,
    /// Bytes of memory besides the value's own place, about: an object of few bytes of text has
    /// room for eleven members.
    pub memory: usize,
}

impl Add for Size {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self { text: self.text + more.text, memory: self.memory + more.memory }
    }
}

impl Sub for Size {
    type Output = Self;

    fn sub(self, less: Self) -> Self {
        Self { text: self.text - less.text, memory: self.memory - less.memory }
    }
}

impl Sum for Size {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::default(), Self::add)
    }
}

/// Returns whether a value has at most `levels` levels of arrays and objects. Looks no deeper.
pub(super) fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(parts) => levels > 0 && parts.iter().all(|part| is_within(part, levels - 1)),
        Value::Object(parts) => levels > 0 && parts.values().all(|part| is_within(part, levels - 1)),
        _ => true,
    }
}

/// Returns the size of a value.
pub(super) fn size(value: &Value) -> Size {
    let of = |text, memory| Size { text, memory };
    match value {
        Value::Null => of(4, 0),
        Value::Bool(_) => of(5, 0),
        Value::Number(_) => of(8, 0),
        Value::String(text) => of(text.len() + 2, string(text)),
        Value::Array(parts) => of(2, ARRAY) + parts.iter().map(element).sum(),
        Value::Object(parts) => of(2, OBJECT) + parts.iter().map(|(key, value)| member(key, value)).sum(),
    }
}

/// Returns the memory of a string.
fn string(text: &str) -> usize {
    if text.is_empty() { 0 } else { text.len() + STRING }
}

/// Returns the size of an element of an array, with its comma.
pub(super) fn element(value: &Value) -> Size {
    // An array that has grown has room for half as many elements again.
    size(value) + Size { text: 1, memory: VALUE * 3 / 2 }
}

/// Returns the size of a member of an object, with key, colon and comma.
pub(super) fn member(key: &str, value: &Value) -> Size {
    named(key) + size(value)
}

/// Returns what a member of an object adds to the size of its value.
fn named(key: &str) -> Size {
    Size { text: key.len() + 4, memory: string(key) + MEMBER }
}

/// Returns the size of a member that a merge patch makes where there is none.
pub(super) fn merged_member(key: &str, patch: &Value) -> Size {
    named(key) + merged(patch)
}

/// Returns the size of the value that a merge patch makes where there is no object. It has no
/// members that are null.
pub(super) fn merged(patch: &Value) -> Size {
    match patch {
        Value::Object(parts) => {
            let members = parts.iter().filter(|(_, value)| !value.is_null());
            size(&Value::Object(Map::new())) + members.map(|(key, value)| merged_member(key, value)).sum()
        }
        other => size(other),
    }
}
