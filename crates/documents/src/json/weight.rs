//! The memory that JSON text takes once it is parsed.

use serde_json::Value;

use super::numbers::string_end;

/// A value in its place.
pub(super) const VALUE: usize = size_of::<Value>();
/// The first allocation of an array: four values.
pub(super) const ARRAY: usize = 4 * VALUE + 16;
/// A node of an object: eleven members.
pub(super) const OBJECT: usize = 11 * (size_of::<String>() + VALUE) + 32;
/// A member of an object: its nodes are two thirds full, about.
pub(super) const MEMBER: usize = (size_of::<String>() + VALUE) * 3 / 2;
/// One more part: an array that doubles holds three places for each value, and nodes of an object
/// may be half empty.
const PART: usize = 4 * VALUE;
/// The allocation of a string, besides its bytes.
pub(super) const STRING: usize = 32;

/// Returns the most bytes of memory that the values of `text` take, about. Text that is no JSON
/// has a weight, too: the parser reads it up to its fault.
pub(super) fn weight(text: &[u8]) -> usize {
    let (mut weight, mut at) = (text.len(), 0);
    while at < text.len() {
        let byte = text[at];
        at += 1;
        weight += match byte {
            b'"' => {
                at = string_end(text, at);
                STRING
            }
            b'[' => ARRAY,
            b'{' => OBJECT,
            b',' => PART,
            _ => 0,
        };
    }
    weight
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that a value holds.
    fn held(value: &Value) -> usize {
        match value {
            Value::String(text) => text.capacity(),
            Value::Array(parts) => parts.capacity() * VALUE + parts.iter().map(held).sum::<usize>(),
            Value::Object(parts) => parts.iter().map(|(key, value)| key.capacity() + held(value)).sum(),
            _ => 0,
        }
    }

    #[test]
    fn the_weight_is_more_than_what_the_values_hold() {
        for part in ["[0]", "[]", "0", "\"\"", "\"a,[{\\\"\"", "{\"\":0}", "[[[[0]]]]", "[0,0,0,0,0]"] {
            let text = format!("[{}]", vec![part; 1000].join(","));
            let value: Value = serde_json::from_str(&text).unwrap();
            let (weight, held) = (weight(text.as_bytes()), held(&value));
            assert!(weight >= held, "{part}: {weight} for {held}");
        }
        // Brackets in strings are no arrays.
        assert_eq!(weight(b"\"[[[{{{,,,\""), 11 + STRING);
        assert_eq!(weight(b"\"[[["), 4 + STRING);
    }
}
