//! Merges the plainest merge patches, which most are: one object whose members are integers,
//! strings without escapes, booleans or nulls. A load reads these without the parser of all JSON.

use serde_json::{Map, Value};

/// Most digits of an integer that is read here. More of them could be too many for 64 bits.
const DIGITS: usize = 18;

/// Merges a patch into the members of an object. Returns `None` for a patch that is not plain. Some
/// of its members may be merged then: a second merge of the whole patch does the same to them.
pub(super) fn merge(members: &mut Map<String, Value>, text: &[u8]) -> Option<()> {
    let mut rest = text.strip_prefix(b"{")?;
    loop {
        let (key, after) = string(rest)?;
        let (value, after) = value(after.strip_prefix(b":")?)?;
        let (end, after) = after.split_first()?;
        match end {
            b',' => rest = after,
            b'}' if after.is_empty() => {}
            _ => return None,
        }
        if value.is_null() {
            members.remove(key);
        } else if let Some(member) = members.get_mut(key) {
            *member = value;
        } else {
            members.insert(key.to_owned(), value);
        }
        if *end == b'}' {
            return Some(());
        }
    }
}

/// Returns the string at the begin of a text, and the text behind it.
fn string(text: &[u8]) -> Option<(&str, &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
    let (string, after) = text.split_at(end);
    Some((std::str::from_utf8(string).ok()?, after.strip_prefix(b"\"")?))
}

/// Returns the value at the begin of a text, and the text behind it. Of a number that is no
/// integer, the text behind it has the rest.
fn value(text: &[u8]) -> Option<(Value, &[u8])> {
    match text.first()? {
        b'"' => string(text).map(|(string, after)| (Value::from(string), after)),
        b'n' => Some((Value::Null, text.strip_prefix(b"null")?)),
        b't' => Some((Value::Bool(true), text.strip_prefix(b"true")?)),
        b'f' => Some((Value::Bool(false), text.strip_prefix(b"false")?)),
        b'-' => {
            // -0 is no integer.
            let (number, after) = integer(&text[1..]).filter(|(number, _)| *number != 0)?;
            Some((Value::from(-number), after))
        }
        _ => integer(text).map(|(number, after)| (Value::from(number), after)),
    }
}

/// Returns the integer without a sign at the begin of a text, and the text behind it.
fn integer(text: &[u8]) -> Option<(i64, &[u8])> {
    let len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, after) = text.split_at(len);
    let begins_with_zero = len > 1 && digits[0] == b'0';
    if len == 0 || len > DIGITS || begins_with_zero {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| 10 * number + i64::from(digit - b'0'));
    Some((number, after))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(text: &[u8]) -> Option<Value> {
        let Value::Object(mut members) = json!({"a": {"b": [1]}, "c": "d"}) else { unreachable!() };
        merge(&mut members, text).map(|()| Value::Object(members))
    }

    #[test]
    fn plain_patches_are_merged() {
        let large = 999_999_999_999_999_999_i64;
        for (text, expected) in [
            (r#"{"a":1}"#, json!({"a": 1, "c": "d"})),
            (r#"{"a":null,"e":null,"f":-20,"g":0}"#, json!({"c": "d", "f": -20, "g": 0})),
            (r#"{"c":true,"c":false,"":""}"#, json!({"a": {"b": [1]}, "c": false, "": ""})),
            (r#"{"a":999999999999999999,"c":-999999999999999999}"#, json!({"a": large, "c": -large})),
            (r#"{"é":"ü ~","a":null,"c":null}"#, json!({"é": "ü ~"})),
        ] {
            assert_eq!(merged(text.as_bytes()), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_left_to_the_parser() {
        for text in [
            "",
            "{",
            "{}",
            "[]",
            "null",
            r#"{"a":{"b":1}}"#,
            r#"{"a":[1]}"#,
            r#"{"a":1.5}"#,
            r#"{"a":1e3}"#,
            r#"{"a":-0}"#,
            r#"{"a":-}"#,
            r#"{"a":01}"#,
            r#"{"a":1000000000000000000}"#,
            r#"{"a":nulls}"#,
            r#"{"a": 1}"#,
            r#"{"a":1} "#,
            r#"{"a":1,}"#,
            r#"{"a":1]"#,
            r#"{"a":"\n"}"#,
            "{\"a\":\"\n\"}",
            r#"{"\u0061":1}"#,
            r#"{"a":"b}"#,
            r#"{a:1}"#,
        ] {
            assert_eq!(merged(text.as_bytes()), None, "{text}");
        }
        assert_eq!(merged(b"{\"a\":\"\xff\"}"), None);
    }
}
