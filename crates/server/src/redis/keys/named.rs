//! Values by names, with the number of bytes that the names take.

use std::collections::BTreeMap;
use std::ops::Deref;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Values by their names. A head has them as a plain map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Named<T> {
    all: BTreeMap<Bytes, T>,
    bytes: usize,
}

impl<T> Named<T> {
    /// Returns the bytes of all names.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the value of a name.
    pub fn insert(&mut self, name: Bytes, value: T) {
        let len = name.len();
        if self.all.insert(name, value).is_none() {
            self.bytes += len;
        }
    }

    /// Removes a name with its value.
    pub fn remove(&mut self, name: &Bytes) -> Option<T> {
        let old = self.all.remove(name)?;
        self.bytes -= name.len();
        Some(old)
    }

    /// Returns the value of a name, for changes.
    pub fn get_mut(&mut self, name: &Bytes) -> Option<&mut T> {
        self.all.get_mut(name)
    }

    /// Returns all values, for changes.
    #[cfg(fuzzing)]
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.all.values_mut()
    }
}

impl<T> Deref for Named<T> {
    type Target = BTreeMap<Bytes, T>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.all.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = BTreeMap::<Bytes, T>::deserialize(deserializer)?;
        let bytes = all.keys().map(Bytes::len).sum();
        Ok(Self { all, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_the_names_are_known_whatever_happens_to_them() {
        let name = |text: &'static str| Bytes::from_static(text.as_bytes());
        let mut named = Named::default();
        for (text, bytes) in [("a", 1), ("bb", 3), ("a", 3), ("", 3)] {
            named.insert(name(text), bytes as u64);
            assert_eq!(named.bytes(), bytes, "{text}");
        }
        assert_eq!((named.remove(&name("ccc")), named.bytes()), (None, 3));
        assert_eq!((named.remove(&name("a")), named.bytes()), (Some(3), 2));
        let bytes = postcard::to_allocvec(&named).unwrap();
        assert_eq!(bytes, postcard::to_allocvec(&*named).unwrap(), "a plain map");
        assert_eq!(postcard::from_bytes::<Named<u64>>(&bytes).unwrap(), named);
    }
}
