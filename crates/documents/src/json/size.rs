//! Sizes and depths of JSON values. A size adds up from the sizes of the parts, so a change of a
//! part changes it without a walk over the whole.

use serde_json::Value;

/// Returns whether a value has at most `levels` levels of arrays and objects. Looks no deeper.
pub(super) fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(parts) => levels > 0 && parts.iter().all(|part| is_within(part, levels - 1)),
        Value::Object(parts) => levels > 0 && parts.values().all(|part| is_within(part, levels - 1)),
        _ => true,
    }
}

/// Returns the size of a value, about that of its text.
pub(super) fn size(value: &Value) -> usize {
    match value {
        Value::Null => 4,
        Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(parts) => 2 + parts.iter().map(element).sum::<usize>(),
        Value::Object(parts) => 2 + parts.iter().map(|(key, value)| member(key, value)).sum::<usize>(),
    }
}

/// Returns the size of an element of an array, with its comma.
pub(super) fn element(value: &Value) -> usize {
    size(value) + 1
}

/// Returns the size of a member of an object, with key, colon and comma.
pub(super) fn member(key: &str, value: &Value) -> usize {
    key.len() + 4 + size(value)
}

/// Returns the size of the value that a merge patch makes where there is no object. It has no
/// members that are null.
pub(super) fn merged(patch: &Value) -> usize {
    match patch {
        Value::Object(parts) => {
            let members = parts.iter().filter(|(_, value)| !value.is_null());
            2 + members.map(|(key, value)| key.len() + 4 + merged(value)).sum::<usize>()
        }
        other => size(other),
    }
}
