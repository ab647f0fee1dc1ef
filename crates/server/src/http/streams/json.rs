//! Streams of JSON: splits bodies into messages, and joins messages into an array. A message keeps
//! its original text.

use std::fmt;

use bytes::Bytes;
use serde::Deserializer;
use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::http::reply::Refusal;

/// The messages of a body: the elements of an array, which may be none, or the one value that is
/// there; up to `most`.
pub fn messages(body: &Bytes, most: usize) -> Result<Vec<Bytes>, Refusal> {
    let invalid = |error: serde_json::Error| {
        let status = Refusal::invalid;
        status(format!("the body is not JSON ({error}): send a value, or an array of values"))
    };
    let is_array = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    if !is_array {
        let value: &RawValue = serde_json::from_slice(body).map_err(invalid)?;
        return Ok(vec![body.slice_ref(value.get().as_bytes())]);
    }
    let mut found = Elements { values: Vec::new(), most };
    let mut input = serde_json::Deserializer::from_slice(body);
    found.deserialize(&mut input).and_then(|()| input.end()).map_err(invalid)?;
    if found.values.len() > most {
        return Err(Refusal::too_large(format!(
            "the array has more than {most} messages: send fewer at once"
        )));
    }
    Ok(found.values.iter().map(|value| body.slice_ref(value.as_bytes())).collect())
}

/// The messages as one array.
pub fn array(messages: &[Bytes]) -> Vec<u8> {
    let len: usize = messages.iter().map(|message| message.len() + 1).sum();
    let mut array = Vec::with_capacity(len + 2);
    array.push(b'[');
    for (i, message) in messages.iter().enumerate() {
        if i > 0 {
            array.push(b',');
        }
        array.extend_from_slice(message);
    }
    array.push(b']');
    array
}

/// Collects elements, and one more than the most at the most.
struct Elements<'a> {
    values: Vec<&'a str>,
    most: usize,
}

impl<'a> Elements<'a> {
    fn deserialize(
        &mut self,
        input: &mut serde_json::Deserializer<serde_json::de::SliceRead<'a>>,
    ) -> serde_json::Result<()> {
        DeserializeSeed::deserialize(self, input)
    }
}

impl<'a> DeserializeSeed<'a> for &mut Elements<'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for &mut Elements<'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut array: A) -> Result<(), A::Error> {
        while let Some(value) = array.next_element::<&RawValue>()? {
            if self.values.len() <= self.most {
                self.values.push(value.get());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &'static str) -> Vec<Bytes> {
        messages(&Bytes::from_static(body.as_bytes()), 3).unwrap()
    }

    #[test]
    fn one_level_of_an_array_is_taken_apart() {
        assert_eq!(of(" {\"a\": 1} "), ["{\"a\": 1}"]);
        assert_eq!(of("[1, \"x\" ,[2,3]]"), ["1", "\"x\"", "[2,3]"]);
        assert_eq!(of("[[[1]]]"), ["[[1]]"]);
        assert!(of("[]").is_empty());
        assert_eq!(array(&of("[1.0, 1e400 ]")), b"[1.0,1e400]");
        assert_eq!(array(&[]), b"[]");
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for bad in ["", "{", "[1", "[1]]", "1 2", "[1,]", "nul", "\"\u{1}\""] {
            let refused = messages(&Bytes::from_static(bad.as_bytes()), 3).unwrap_err();
            assert_eq!(refused.status.as_u16(), 400, "{bad}");
        }
        assert!(messages(&Bytes::from_static(b"[\"\xff\"]"), 3).is_err());
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        messages(&Bytes::from(deep), 3).unwrap();
    }

    #[test]
    fn too_many_messages_are_refused() {
        let refused = messages(&Bytes::from_static(b"[1,2,3,4]"), 3).unwrap_err();
        assert_eq!(refused.status.as_u16(), 413);
    }
}
