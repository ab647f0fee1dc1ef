//! The plainest merge patches, which most are: one object whose members are integers, strings
//! without escapes, booleans or nulls. A load reads these without the parser of all JSON.
//!
//! Of many such patches in a row, the last value of each member counts. So a load notes where these
//! values are, and makes only them: a document of twelve members with a hundred patches takes
//! twelve values and not hundreds.

use std::str;

use serde_json::{Map, Value};

/// Most digits of an integer that is read here. More of them could be too many for 64 bits.
const DIGITS: usize = 18;

/// Most members that are noted. Each is compared with each name that is read.
const MOST: usize = 64;

/// Bytes of a string that are looked at together.
const TOGETHER: usize = 16;

/// Plain merge patches that are read and not merged yet.
#[derive(Default)]
pub(super) struct Patches<'a> {
    /// The members that the patches name, each with its last value.
    members: Vec<(&'a str, Scalar<'a>)>,
}

#[derive(Clone, Copy)]
enum Scalar<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    Text(&'a str),
}

impl<'a> Patches<'a> {
    /// Adds the next patch. Returns `None` for a patch that is not plain, and if there is no room.
    /// Some of its members may be noted then: a merge of the whole patch behind them has the same
    /// effect.
    pub fn add(&mut self, text: &'a [u8]) -> Option<()> {
        let mut rest = text.strip_prefix(b"{")?;
        loop {
            let (name, after) = string(rest)?;
            let (value, after) = scalar(after.strip_prefix(b":")?)?;
            let (end, after) = after.split_first()?;
            match end {
                b',' => rest = after,
                b'}' if after.is_empty() => {}
                _ => return None,
            }
            self.note(name, value)?;
            if *end == b'}' {
                return Some(());
            }
        }
    }

    fn note(&mut self, name: &'a str, value: Scalar<'a>) -> Option<()> {
        match self.members.iter().position(|(noted, _)| *noted == name) {
            Some(at) => self.members[at].1 = value,
            None if self.members.len() == MOST => return None,
            None => self.members.push((name, value)),
        }
        Some(())
    }

    /// Merges the patches into a value, and forgets them.
    pub fn merge(&mut self, target: &mut Value) {
        if self.members.is_empty() {
            return;
        }
        if !target.is_object() {
            *target = Value::Object(Map::new());
        }
        let Value::Object(members) = target else { unreachable!("it is an object by now") };
        for (name, value) in self.members.drain(..) {
            let value = match value {
                Scalar::Null => {
                    members.remove(name);
                    continue;
                }
                Scalar::Bool(bool) => Value::from(bool),
                Scalar::Integer(number) => Value::from(number),
                Scalar::Text(text) => Value::from(text),
            };
            match members.get_mut(name) {
                Some(member) => *member = value,
                None => drop(members.insert(name.to_owned(), value)),
            }
        }
    }
}

/// Returns the string at the begin of a text, and the text behind it.
fn string(text: &[u8]) -> Option<(&str, &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    // All of a chunk without a branch, which the compiler turns into few instructions.
    let is_inner = |chunk: &&[u8]| chunk.iter().fold(true, |inner, byte| inner & !ends(byte));
    let skipped = text.chunks_exact(TOGETHER).take_while(is_inner).count() * TOGETHER;
    let end = skipped + text[skipped..].iter().position(ends)?;
    let (string, after) = text.split_at(end);
    Some((str::from_utf8(string).ok()?, after.strip_prefix(b"\"")?))
}

/// Returns the value at the begin of a text, and the text behind it. Of a number that is no
/// integer, the text behind it has the rest.
fn scalar(text: &[u8]) -> Option<(Scalar<'_>, &[u8])> {
    match text.first()? {
        b'"' => string(text).map(|(string, after)| (Scalar::Text(string), after)),
        b'n' => Some((Scalar::Null, text.strip_prefix(b"null")?)),
        b't' => Some((Scalar::Bool(true), text.strip_prefix(b"true")?)),
        b'f' => Some((Scalar::Bool(false), text.strip_prefix(b"false")?)),
        b'-' => {
            // -0 is no integer.
            let (number, after) = integer(&text[1..]).filter(|(number, _)| *number != 0)?;
            Some((Scalar::Integer(-number), after))
        }
        _ => integer(text).map(|(number, after)| (Scalar::Integer(number), after)),
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
        let (mut patches, mut value) = (Patches::default(), json!({"a": {"b": [1]}, "c": "d"}));
        patches.add(text)?;
        patches.merge(&mut value);
        Some(value)
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
            (
                r#"{"a":"0123456789abcdef","c":"0123456789abcdefg"}"#,
                json!({"a": "0123456789abcdef", "c": "0123456789abcdefg"}),
            ),
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

    /// A string may end, and have what no plain one has, at each place of a chunk.
    #[test]
    fn strings_of_each_length_end_where_they_end() {
        for len in 0..50 {
            let plain = "é".repeat(len / 2) + &"x".repeat(len % 2);
            let (text, bad) = (format!("\"{plain}\",\"\\"), format!("\"{plain}\\n{plain}\""));
            assert_eq!(string(text.as_bytes()), Some((plain.as_str(), &b",\"\\"[..])));
            assert_eq!(string(bad.as_bytes()), None);
            assert_eq!(string(format!("\"{plain}\n\"").as_bytes()), None);
            assert_eq!(string(format!("\"{plain}").as_bytes()), None);
        }
    }

    #[test]
    fn the_last_value_of_a_member_counts() {
        let mut patches = Patches::default();
        for text in [r#"{"a":1,"b":2}"#, r#"{"b":null,"c":"x"}"#, r#"{"a":null}"#, r#"{"a":true}"#] {
            patches.add(text.as_bytes()).unwrap();
        }
        let mut value = json!("no object");
        patches.merge(&mut value);
        assert_eq!(value, json!({"a": true, "c": "x"}));
        let (mut same, many) = (value.clone(), (0..=MOST).map(|n| format!("{{\"{n}\":0}}")));
        let texts: Vec<_> = many.collect();
        patches.merge(&mut same);
        assert_eq!(same, value);
        let added: Vec<_> = texts.iter().map(|text| patches.add(text.as_bytes()).is_some()).collect();
        assert_eq!(added.iter().position(|added| !added), Some(MOST));
    }
}
