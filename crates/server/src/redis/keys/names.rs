//! The logs of a key of a database.
//!
//! Database `d` is the space of that name. A key `k` of the database is spread over these logs;
//! most keys have one or two:
//!
//! | log | holds |
//! | --- | --- |
//! | `d/k`, or `d/` 0 `=k` where `k` begins with a zero byte | a list: its elements, from the first that was pushed to the right |
//! | `d/` 0 `<k` | a list: what was pushed to the left, the leftmost last |
//! | `d/` 0 `sk` | a stream: its entries |
//! | `d/` 0 `hk` | the [head](super::head): what kind of value the key has, its time to live, and all of a small value |
//!
//! A list with pushes on the right only, and without expiry, is the log `d/k` and nothing else. So
//! a log `d/k` of another program is a list, too.

use smallvec::SmallVec;

/// Longest key, in bytes: the part of a log's key that is left.
pub const MAX_NAME: usize = brooklet::MAX_KEY - 64 - 3;

const SEPARATOR: u8 = b'/';

/// A log's key. Short keys are stored inline: a lookup among many keys would otherwise miss the
/// processor's caches.
pub type LogKey = SmallVec<[u8; 24]>;

/// Writes the name of a key's plain log, which identifies the key everywhere, to `to`; clears `to`
/// first.
pub fn write_plain(database: &[u8], name: &[u8], to: &mut Vec<u8>) {
    to.clear();
    to.extend_from_slice(database);
    to.push(SEPARATOR);
    if name.first() == Some(&0) {
        to.extend_from_slice(b"\0=");
    }
    to.extend_from_slice(name);
}

/// Returns the end of the database's name.
fn split(plain: &[u8]) -> usize {
    plain.iter().position(|&b| b == SEPARATOR).map_or(0, |at| at + 1)
}

/// Returns the key of a plain log.
pub fn name(plain: &[u8]) -> &[u8] {
    let name = &plain[split(plain)..];
    name.strip_prefix(b"\0=").unwrap_or(name)
}

/// Returns the database of a plain log.
pub fn database(plain: &[u8]) -> &[u8] {
    &plain[..split(plain).saturating_sub(1)]
}

fn beside(plain: &[u8], kind: u8) -> LogKey {
    let mut key = LogKey::from_slice(&plain[..split(plain)]);
    key.extend_from_slice(&[0, kind]);
    key.extend_from_slice(name(plain));
    key
}

/// Returns the log of a key's head.
pub fn head(plain: &[u8]) -> LogKey {
    beside(plain, b'h')
}

/// Returns the log of elements pushed to the left of a list.
pub fn left(plain: &[u8]) -> LogKey {
    beside(plain, b'<')
}

/// Returns the log of a stream's entries.
pub fn entries(plain: &[u8]) -> LogKey {
    beside(plain, b's')
}

/// Returns the plain log of the key that a log belongs to; `None` for a log in no space.
pub fn plain_of(log: &[u8]) -> Option<LogKey> {
    let (database, rest) = (database(log), &log[split(log)..]);
    let name = match rest {
        _ if split(log) == 0 => return None,
        [0, b'h' | b'<' | b's', name @ ..] => name,
        _ => return Some(LogKey::from_slice(log)),
    };
    let mut plain = Vec::with_capacity(log.len() + 2);
    write_plain(database, name, &mut plain);
    Some(LogKey::from_slice(&plain))
}

/// Returns the prefix of all heads of a database.
pub fn heads(database: &[u8]) -> Vec<u8> {
    [database, b"/\0h"].concat()
}

/// The role of a log of a database, by its key.
#[derive(Debug, PartialEq, Eq)]
pub enum Role<'a> {
    /// The plain log of this key.
    Plain(&'a [u8]),
    /// The head of this key.
    Head(&'a [u8]),
    /// Another part of a key that has a head.
    Part,
}

/// Returns the role of a log of a database.
pub fn role(log: &[u8]) -> Role<'_> {
    match &log[split(log)..] {
        [0, b'=', name @ ..] => Role::Plain(name),
        [0, b'h', name @ ..] => Role::Head(name),
        [0, ..] => Role::Part,
        name => Role::Plain(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keys_logs_are_told_apart_and_lead_back_to_it() {
        for key in [&b"k"[..], b"", b"a/b", b"\0", b"\0hk", b"\0=", b"/"] {
            let mut plain = vec![1];
            write_plain(b"0", key, &mut plain);
            assert_eq!((name(&plain), database(&plain)), (key, &b"0"[..]));
            assert_eq!(role(&plain), Role::Plain(key));
            assert_eq!(role(&head(&plain)), Role::Head(key));
            assert_eq!(role(&left(&plain)), Role::Part);
            assert_eq!(role(&entries(&plain)), Role::Part);
            let logs = [LogKey::from_slice(&plain), head(&plain), left(&plain), entries(&plain)];
            assert!(logs.iter().all(|log| plain_of(log).is_some_and(|of| of[..] == plain)));
            assert!(logs.iter().all(|log| log.len() <= 3 + 2 + key.len()));
            let mut apart = logs.to_vec();
            apart.sort();
            apart.dedup();
            assert_eq!(apart.len(), 4);
        }
    }
}
