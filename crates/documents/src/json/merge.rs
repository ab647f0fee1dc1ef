//! Merges the text of a merge patch into a value while the text is read: no patch is built first.

use std::borrow::Cow;
use std::fmt;

use serde_core::Deserialize;
use serde_core::de::value::SeqAccessDeserializer;
use serde_core::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Error, Map, Value};

/// Merges a merge patch (RFC 7396) into a value. After a failure, the value may have a part of it.
pub(super) fn merge_text(target: &mut Value, text: &[u8]) -> Result<(), Error> {
    let mut parser = serde_json::Deserializer::from_slice(text);
    if Merge(target).deserialize(&mut parser)? == Merged::Null {
        *target = Value::Null;
    }
    parser.end()
}

/// Returns whether the parser shows a number as one. With serde_json's feature
/// `arbitrary_precision`, which any crate of a program may enable, it shows an object of its own.
pub(super) fn reads_numbers() -> bool {
    serde_json::from_str::<Value>("1e999").is_err()
}

#[derive(PartialEq, Eq)]
enum Merged {
    /// The target has the value.
    Value,
    /// The patch is `null`, and the target is as before.
    Null,
}

/// The target of a patch, or of a member of one.
struct Merge<'a>(&'a mut Value);

impl Merge<'_> {
    fn set<E>(self, value: impl Into<Value>) -> Result<Merged, E> {
        *self.0 = value.into();
        Ok(Merged::Value)
    }
}

impl<'de> DeserializeSeed<'de> for Merge<'_> {
    type Value = Merged;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Merged, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Merge<'_> {
    type Value = Merged;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Merged, E> {
        Ok(Merged::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Merged, E> {
        self.set(value)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Merged, E> {
        self.set(value)
    }

    fn visit_u64<E>(self, value: u64) -> Result<Merged, E> {
        self.set(value)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Merged, E> {
        self.set(value)
    }

    fn visit_str<E>(self, value: &str) -> Result<Merged, E> {
        self.set(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<Merged, A::Error> {
        // An array replaces the value, with its nulls.
        let array = Value::deserialize(SeqAccessDeserializer::new(parts))?;
        self.set(array)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut patch: A) -> Result<Merged, A::Error> {
        if !self.0.is_object() {
            *self.0 = Value::Object(Map::new());
        }
        let Value::Object(members) = self.0 else { unreachable!("it is an object by now") };
        while let Some(key) = patch.next_key_seed(Key)? {
            if let Some(member) = members.get_mut(&*key) {
                if patch.next_value_seed(Merge(member))? == Merged::Null {
                    members.remove(&*key);
                }
                continue;
            }
            let mut member = Value::Null;
            if patch.next_value_seed(Merge(&mut member))? == Merged::Value {
                members.insert(key.into_owned(), member);
            }
        }
        Ok(Merged::Value)
    }
}

/// A key, without a copy if the text has it as it is.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Self::Value, D::Error> {
        parser.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}
