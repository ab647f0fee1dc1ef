//! The last refusals for lack of rights or of the right password, for `ACL LOG`.

use std::collections::VecDeque;

/// A refusal.
#[derive(Debug)]
pub struct Entry {
    /// Number of refusals like this, each less than a minute after the last.
    pub count: i64,
    /// `command`, `key`, `channel` or `auth`.
    pub reason: &'static str,
    /// `toplevel` or `multi`.
    pub context: &'static str,
    /// The command, the key or the channel that was refused.
    pub object: Vec<u8>,
    /// The user.
    pub user: String,
    /// Description of the client.
    pub client: String,
    /// Time of the last refusal, by the steady clock, in milliseconds.
    pub at: u64,
}

/// The last refusals, the newest first.
#[derive(Debug, Default)]
pub struct Log {
    entries: VecDeque<Entry>,
}

/// Most bytes of an object or of the name of a user. Strangers choose them.
const LONGEST: usize = 256;
/// Most bytes of the description of a client, which has names that the client chose.
const LONGEST_CLIENT: usize = 1 << 10;
/// Time in which equal refusals are one entry, in milliseconds.
const TOGETHER: u64 = 60_000;

impl Log {
    /// Records a refusal; keeps the last `most`.
    pub fn note(&mut self, mut new: Entry, most: usize) {
        new.object.truncate(LONGEST);
        cut(&mut new.user, LONGEST);
        cut(&mut new.client, LONGEST_CLIENT);
        let is_same = |old: &Entry| {
            (old.reason, old.context, &old.object, &old.user)
                == (new.reason, new.context, &new.object, &new.user)
                && new.at.saturating_sub(old.at) <= TOGETHER
        };
        if let Some(old) = self.entries.iter().position(is_same).and_then(|at| self.entries.remove(at)) {
            new.count += old.count;
        }
        self.entries.push_front(new);
        self.entries.truncate(most);
    }

    /// Records the refusals of another log, as if they came now one after another.
    pub fn append(&mut self, other: Self, most: usize) {
        other.entries.into_iter().rev().for_each(|entry| self.note(entry, most));
    }

    /// Returns the refusals, the newest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Forgets all refusals.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

/// Cuts a text to at most so many bytes.
fn cut(text: &mut String, most: usize) {
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_refusals_are_one_entry_and_all_are_few_and_short() {
        let entry = |object: &[u8], at| Entry {
            count: 1,
            reason: "key",
            context: "toplevel",
            object: object.to_vec(),
            user: "\u{e9}".repeat(300),
            client: "x".repeat(5000),
            at,
        };
        let mut log = Log::default();
        for (object, at) in [("a", 0), ("b", 1), ("a", 60_000), ("a", 120_001)] {
            log.note(entry(object.as_bytes(), at), 128);
        }
        let all: Vec<(&[u8], i64)> = log.entries().map(|entry| (&entry.object[..], entry.count)).collect();
        assert_eq!(all, [(&b"a"[..], 1), (b"a", 2), (b"b", 1)]);
        for n in 0..200_u32 {
            log.note(entry(&[&n.to_le_bytes()[..], &[0; 1000]].concat(), 0), 128);
        }
        assert_eq!(log.entries().len(), 128);
        assert!(log.entries().all(|entry| entry.object.len() <= LONGEST && entry.user.len() <= LONGEST));
        assert!(log.entries().all(|entry| entry.client.len() == LONGEST_CLIENT));
        log.clear();
        assert_eq!(log.entries().len(), 0);
    }
}
