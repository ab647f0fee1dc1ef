//! The request ids that a document remembers.

use std::collections::VecDeque;

use brooklet::Bytes;

use crate::format::UsedId;

/// Remembered request ids, oldest first. The bytes of all are together: a document has many of
/// them, and an allocation for each would take more memory than its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids {
    used: VecDeque<Used>,
    /// The ids, one behind the other. The bytes before `first` are of no id any more.
    bytes: Vec<u8>,
    first: usize,
}

/// A request whose id is remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// Hash of the content of the request.
    pub content: u64,
    /// Version that the request made.
    pub version: u64,
    /// Bytes of the id.
    len: usize,
}

impl Ids {
    /// Adds an id, whose request made a later version than the others.
    pub fn push(&mut self, id: &[u8], content: u64, version: u64) {
        self.bytes.extend_from_slice(id);
        self.used.push_back(Used { content, version, len: id.len() });
    }

    /// Drops the ids that a document at a version does not remember: an id is known for a number of
    /// versions, whenever snapshots are taken.
    pub fn forget(&mut self, version: u64, remember: u64) {
        while let Some(used) = self.used.front()
            && used.version.saturating_add(remember) <= version
        {
            self.first += used.len;
            self.used.pop_front();
        }
        if self.first > self.bytes.len() / 4 {
            self.bytes.drain(..self.first);
            self.first = 0;
        }
    }

    /// Returns the request that used an id last, if it is remembered.
    pub fn find(&self, id: &[u8]) -> Option<Used> {
        let mut end = self.bytes.len();
        for used in self.used.iter().rev() {
            let start = end - used.len;
            if self.bytes[start..end] == *id {
                return Some(*used);
            }
            end = start;
        }
        None
    }

    /// Returns the ids as a snapshot has them.
    pub fn to_vec(&self) -> Vec<UsedId> {
        let bytes = Bytes::copy_from_slice(&self.bytes[self.first..]);
        let mut at = 0;
        let entry = |used: &Used| {
            let id = bytes.slice(at..at + used.len);
            at += used.len;
            UsedId { id, content: used.content, version: used.version }
        };
        self.used.iter().map(entry).collect()
    }

    /// Returns the bytes of memory that the ids take.
    pub fn size(&self) -> usize {
        self.used.capacity() * size_of::<Used>() + self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> String {
        // Of different lengths.
        "x".repeat((n % 7) as usize) + &n.to_string()
    }

    #[test]
    fn ids_are_known_for_a_number_of_versions_and_take_little_memory() {
        let mut ids = Ids::default();
        for version in 1..=1000 {
            ids.forget(version, 64);
            ids.push(id(version).as_bytes(), 3 * version, version);
            let known = |n: u64| ids.find(id(n).as_bytes()).map(|used| (used.content, used.version));
            for n in version.saturating_sub(70)..version + 2 {
                let is_known = n > 0 && n <= version && n + 64 > version;
                assert_eq!(known(n), is_known.then_some((3 * n, n)), "{n} at version {version}");
            }
        }
        let all: Vec<(Vec<u8>, u64, u64)> =
            ids.to_vec().into_iter().map(|used| (used.id.to_vec(), used.content, used.version)).collect();
        let expected: Vec<_> = (937..=1000).map(|n| (id(n).into_bytes(), 3 * n, n)).collect();
        assert_eq!(all, expected);
        assert!(ids.size() < 64 * 48, "{} bytes", ids.size());
    }

    #[test]
    fn the_last_use_of_an_id_counts() {
        let mut ids = Ids::default();
        ids.push(b"a", 1, 1);
        ids.push(b"a", 2, 2);
        ids.push(b"b", 3, 3);
        assert_eq!(ids.find(b"a").map(|used| used.content), Some(2));
        assert!(ids.find(b"").is_none() && ids.find(b"ab").is_none());
        ids.forget(3, 1);
        assert!(ids.find(b"a").is_none() && ids.find(b"b").is_some());
    }
}
