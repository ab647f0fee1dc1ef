//! The log record: what one commit writes into the ring. This is the only description of its bytes.
//!
//! ```text
//! record  = effect, effect, …
//! effect  = tag (1 byte), [key length (varint), key], [number (varint), absent for delete],
//!           [first (varint), next (varint)], [payload length (varint), payload]
//! tag     = kind: 1 append, 2 trim, 3 truncate, 4 delete
//!           + 0x80 the key is that of the effect before
//!           + 0x40 the effect is the first on this log since the last checkpoint: the log's bounds before it follow
//! number  = the entry's number (append), the new first (trim) or the new next (truncate)
//! ```
//!
//! The bounds make replay independent of the runs: recovery reads the ring and nothing else.

use brooklet_wal::{put_varint, take_varint};

use crate::model::{Bounds, Effect, MAX_KEY};

const SAME_KEY: u8 = 0x80;
const WITH_BOUNDS: u8 = 0x40;

/// One effect as it stands in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub key: &'a [u8],
    pub effect: Effect,
    /// The log's bounds before the effect, where they are told. `None` also stands for a log that did not exist.
    pub before: Option<Bounds>,
    /// An append's payload.
    pub payload: &'a [u8],
}

/// The most bytes an effect takes.
pub(crate) fn bound(key: &[u8], payload: &[u8]) -> usize {
    1 + 2 + key.len() + 3 * 10 + 10 + payload.len()
}

/// Writes an effect; `same_key` says that it is on the log of the effect before. The payload comes last.
pub(crate) fn encode(out: &mut impl FnMut(&[u8]), entry: Entry<'_>, same_key: bool) {
    let (kind, number) = match entry.effect {
        Effect::Append(seq) => (1, seq),
        Effect::Trim(first) => (2, first),
        Effect::Truncate(next) => (3, next),
        Effect::Delete => (4, 0),
    };
    let same = if same_key { SAME_KEY } else { 0 };
    let tag = kind | same | if entry.before.is_some() { WITH_BOUNDS } else { 0 };
    out(&[tag]);
    if !same_key {
        put_varint(out, entry.key.len() as u64);
        out(entry.key);
    }
    if kind != 4 {
        put_varint(out, number);
    }
    if let Some(before) = entry.before {
        put_varint(out, before.first);
        put_varint(out, before.next);
    }
    if kind == 1 {
        put_varint(out, entry.payload.len() as u64);
        out(entry.payload);
    }
}

/// Takes the next effect from the front of `rest`; `previous` is the key of the effect before.
/// `None` where the bytes are not a record.
pub(crate) fn decode<'a>(rest: &mut &'a [u8], previous: &'a [u8]) -> Option<Entry<'a>> {
    let (&tag, after) = rest.split_first()?;
    *rest = after;
    let key = if tag & SAME_KEY != 0 { previous } else { take_bytes(rest)? };
    if key.is_empty() || key.len() > MAX_KEY {
        return None;
    }
    let kind = tag & !(SAME_KEY | WITH_BOUNDS);
    let effect = match kind {
        1 => Effect::Append(take_varint(rest)?),
        2 => Effect::Trim(take_varint(rest)?),
        3 => Effect::Truncate(take_varint(rest)?),
        4 => Effect::Delete,
        _ => return None,
    };
    let before = match tag & WITH_BOUNDS {
        0 => None,
        _ => Some(Bounds { first: take_varint(rest)?, next: take_varint(rest)? }),
    };
    if before.is_some_and(|b| b.first > b.next) {
        return None;
    }
    let payload = if kind == 1 { take_bytes(rest)? } else { &[] };
    Some(Entry { key, effect, before, payload })
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_varint(rest)?).ok()?;
    let (bytes, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_round_trip() {
        let bounds = Some(Bounds { first: 3, next: 900 });
        let entries = [
            Entry { key: b"a", effect: Effect::Append(900), before: bounds, payload: b"hello" },
            Entry { key: b"a", effect: Effect::Trim(900), before: None, payload: b"" },
            Entry { key: b"b", effect: Effect::Truncate(5), before: bounds, payload: b"" },
            Entry { key: b"c", effect: Effect::Append(0), before: None, payload: b"" },
            Entry { key: b"c", effect: Effect::Delete, before: None, payload: b"" },
            Entry { key: b"d", effect: Effect::Delete, before: bounds, payload: b"" },
        ];
        let mut bytes = Vec::new();
        let mut previous: &[u8] = b"";
        for entry in entries {
            let before = bytes.len();
            encode(&mut |b| bytes.extend_from_slice(b), entry, previous == entry.key);
            assert!(bytes.len() - before <= bound(entry.key, entry.payload));
            previous = entry.key;
        }
        let (mut rest, mut previous) = (&bytes[..], &b""[..]);
        for entry in entries {
            assert_eq!(decode(&mut rest, previous), Some(entry));
            previous = entry.key;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn malformed_records_are_refused() {
        for bytes in [
            &[][..],
            &[9, 1, b'k'],
            &[1, 0, 0, 0],
            &[1, 1, b'k', 0, 5, b'x'],
            &[0x81, 0, 0],
            &[2, 1, b'k'],
            &[0x42, 1, b'k', 5, 9, 3],
            &[0x44, 1, b'k'],
        ] {
            assert_eq!(decode(&mut &bytes[..], b""), None, "{bytes:?}");
        }
    }
}
