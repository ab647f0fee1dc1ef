//! Values that a user of the cache makes and keeps there.

use std::sync::Arc;

use bytes::Bytes;

use crate::cache::{Cache, Kept, Key};
use crate::class::Class;

/// Values that the user of a [`Cache`] keeps in it, by key. They share the budget of the cache with
/// the readers, and the cache drops the values that are used least.
///
/// ```
/// # use {brooklet_codex::*, std::sync::Arc};
/// let values = Values::new(&Arc::new(Cache::new(1 << 20)), 7);
/// values.put(b"key", Bytes::from_static(b"value"));
/// assert_eq!(values.get(b"key"), Some(Bytes::from_static(b"value")));
/// ```
#[derive(Debug)]
pub struct Values {
    cache: Arc<Cache>,
    /// The cache takes the values for those of a reader with this number.
    number: u64,
    seed: u64,
}

impl Values {
    /// Creates an empty set of values. `seed` seeds the hashes of keys: keep it secret if others
    /// choose the keys.
    pub fn new(cache: &Arc<Cache>, seed: u64) -> Self {
        Self { cache: cache.clone(), number: cache.join(), seed }
    }

    /// Returns the value of `key`, if the cache still has it.
    pub fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.cache.look(self.place(key), |kept| match kept {
            Kept::Value(its_key, value) if **its_key == *key => Some(value.clone()),
            _ => None,
        })
    }

    /// Keeps a value, in place of any earlier value of this key. The cache counts the length of
    /// `value`, so `value` must not share a larger buffer.
    pub fn put(&self, key: &[u8], value: Bytes) {
        self.cache.replace(self.place(key), Class::Value, Kept::Value(key.into(), value));
    }

    fn place(&self, key: &[u8]) -> Key {
        Key::of_value(self.number, self.seed, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(byte: u8, len: usize) -> Bytes {
        vec![byte; len].into()
    }

    #[test]
    fn a_value_replaces_the_one_before_it_and_the_count_follows() {
        let cache = Arc::new(Cache::new(1 << 20));
        let (values, others) = (Values::new(&cache, 1), Values::new(&cache, 1));
        values.put(b"a", value(1, 100));
        let one = cache.stats().data_bytes;
        values.put(b"a", value(2, 300));
        assert_eq!((values.get(b"a"), others.get(b"a")), (Some(value(2, 300)), None));
        assert_eq!(cache.stats().data_bytes, one + 200);
        values.put(b"a", value(3, 50));
        assert_eq!((values.get(b"a"), cache.stats().data_bytes), (Some(value(3, 50)), one - 50));
    }

    #[test]
    fn values_stay_in_the_budget_even_if_they_grow_in_place() {
        let cache = Arc::new(Cache::new(1 << 20));
        let values = Values::new(&cache, 1);
        for round in 1..=8_u64 {
            for key in 0..100_u64 {
                values.put(&key.to_le_bytes(), value(round as u8, round as usize * 4_000));
                assert!(cache.stats().bytes() <= 1 << 20, "{:?}", cache.stats());
            }
        }
        let kept = (0..100_u64).filter(|key| values.get(&key.to_le_bytes()).is_some()).count();
        assert!((10..60).contains(&kept), "{kept} values of 32 KB in 1 MiB");
        values.put(b"large", value(1, 1_000));
        values.put(b"large", value(1, 2 << 20));
        assert_eq!(values.get(b"large"), None);
    }
}
