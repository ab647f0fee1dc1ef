//! The commit record: the bytes that one commit writes into the ring. Only this module describes
//! its bytes.
//!
//! ```text
//! record  = effect, effect, …
//! effect  = tag (1 byte), [key length (varint), key], [number (varint), absent for delete],
//!           [first (varint), next (varint)], [terms], [payload length (varint), payload]
//! tag     = kind: 1 append, 2 trim, 3 truncate, 4 delete;
//!                 of logs that keep a part of their entries (since format 4 of the store):
//!                 5 limit of entries, 6 limit of bytes, 7 limit of age, 8 mark, 9 held;
//!                 of logs that count in the totals of their space (since format 5): 10 count;
//!                 of empty logs (since format 7): 11 begin
//!           + 0x80 the key is that of the effect before
//!           + 0x40 the effect is the first on this log since the last checkpoint: the log's bounds before it follow
//!           + 0x20 and so do its terms (see `model/retention_state.rs`)
//! number  = the entry's number (append), the new first (trim), the new next (truncate), the limit and one more, 0 for
//!           none (limits; of age in milliseconds), the time before which the entries to come are committed, in
//!           milliseconds since the Unix epoch (mark), the bytes of all payloads (held), the number of the space (count), or
//!           the number of the next entry (begin)
//! ```
//!
//! Only the log in which the store keeps its table of spaces has an empty key (since format 5).
//!
//! The bounds and terms make replay independent of the runs: recovery reads only the ring.

use brooklet_io::seeded::bug;
use brooklet_wal::{put_varint, take_varint};

use crate::limits::MAX_KEY;
use crate::model::retention_state::{RetentionState, State};
use crate::model::{Bounds, Effect};

const SAME_KEY: u8 = 0x80;
const WITH_BOUNDS: u8 = 0x40;
const WITH_TERMS: u8 = 0x20;

/// Maximum bytes of pieces of an effect that are gathered before they are written.
const GATHERED: usize = 64;

/// One effect of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub key: &'a [u8],
    pub effect: Effect,
    /// The log's state before the effect, if recorded. A log that did not exist has no bounds.
    pub before: State,
    /// An append's payload.
    pub payload: &'a [u8],
}

/// Returns the maximum bytes of an effect, without terms.
pub(crate) fn bound(key: &[u8], payload: &[u8]) -> usize {
    1 + 2 + key.len() + 3 * 10 + 10 + payload.len()
}

/// Writes an effect. `same_key` is set if the effect is on the log of the effect before. The
/// payload is written last.
pub(crate) fn encode(out: &mut impl FnMut(&[u8]), entry: &Entry<'_>, same_key: bool) {
    let (kind, number) = match entry.effect {
        Effect::Append(seq) => (1, seq),
        Effect::Trim(first) => (2, first),
        Effect::Truncate(next) => (3, next),
        Effect::Delete => (4, 0),
        Effect::Entries(n) => (5, n),
        Effect::Bytes(n) => (6, n),
        Effect::Age(n) => (7, n),
        Effect::Mark(time) => (8, time),
        Effect::Held(bytes) => (9, bytes),
        Effect::Count(space) => (10, space),
        Effect::Begin(next) => (11, if bug("begin-forgets-its-number") { 0 } else { next }),
    };
    let State { bounds, terms } = &entry.before;
    let terms = terms.as_deref().filter(|_| bounds.is_some());
    let same = if same_key { SAME_KEY } else { 0 };
    let with = bounds.map_or(0, |_| WITH_BOUNDS) | terms.map_or(0, |_| WITH_TERMS);
    let mut pieces = Pieces { out, gathered: [0; GATHERED], len: 0 };
    pieces.put(&[kind | same | with]);
    if !same_key {
        pieces.number(entry.key.len() as u64);
        pieces.put(entry.key);
    }
    if kind != 4 {
        pieces.number(number);
    }
    if let Some(before) = bounds {
        pieces.number(before.first);
        pieces.number(before.next);
    }
    if let Some(terms) = terms {
        terms.encode(&mut |piece: &[u8]| pieces.put(piece));
    }
    if kind == 1 {
        pieces.number(entry.payload.len() as u64);
        pieces.put(entry.payload);
    }
    pieces.flush();
}

/// The pieces of an effect, some of which are gathered before they are written: a call of `out`
/// costs more than the few bytes of most pieces.
struct Pieces<'a, F> {
    out: &'a mut F,
    gathered: [u8; GATHERED],
    len: usize,
}

impl<F: FnMut(&[u8])> Pieces<'_, F> {
    #[inline]
    fn put(&mut self, piece: &[u8]) {
        if let Some(place) = self.gathered.get_mut(self.len..self.len + piece.len()) {
            place.copy_from_slice(piece);
            self.len += piece.len();
        } else {
            self.flush();
            (self.out)(piece);
        }
    }

    #[inline]
    fn number(&mut self, number: u64) {
        if number < 0x80 {
            self.put(&[number as u8]);
        } else {
            put_varint(&mut |piece: &[u8]| self.put(piece), number);
        }
    }

    fn flush(&mut self) {
        if self.len > 0 {
            (self.out)(&self.gathered[..self.len]);
            self.len = 0;
        }
    }
}

/// Takes the next effect from the front of `rest`; `previous` is the key of the effect before, if
/// any. Returns `None` if the bytes are not a record.
pub(crate) fn decode<'a>(rest: &mut &'a [u8], previous: Option<&'a [u8]>) -> Option<Entry<'a>> {
    let (&tag, after) = rest.split_first()?;
    *rest = after;
    let key = if tag & SAME_KEY != 0 { previous? } else { take_bytes(rest)? };
    if key.len() > MAX_KEY {
        return None;
    }
    let kind = tag & !(SAME_KEY | WITH_BOUNDS | WITH_TERMS);
    let effect = match kind {
        1 => Effect::Append(take_varint(rest)?),
        2 => Effect::Trim(take_varint(rest)?),
        3 => Effect::Truncate(take_varint(rest)?),
        4 => Effect::Delete,
        5 => Effect::Entries(take_varint(rest)?),
        6 => Effect::Bytes(take_varint(rest)?),
        7 => Effect::Age(take_varint(rest)?),
        8 => Effect::Mark(take_varint(rest)?),
        9 => Effect::Held(take_varint(rest)?),
        10 => Effect::Count(take_varint(rest)?),
        11 => Effect::Begin(take_varint(rest)?),
        _ => return None,
    };
    let bounds = match tag & WITH_BOUNDS {
        0 => None,
        _ => Some(Bounds { first: take_varint(rest)?, next: take_varint(rest)? }),
    };
    let terms = match tag & WITH_TERMS {
        0 => None,
        _ => Some(RetentionState::decode(rest)?.into()),
    };
    if bounds.is_some_and(|b| b.first > b.next) || terms.is_some() && bounds.is_none() {
        return None;
    }
    let payload = if kind == 1 { take_bytes(rest)? } else { &[] };
    Some(Entry { key, effect, before: State { bounds, terms }, payload })
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
        let mut terms = None;
        crate::model::retention_state::apply(&mut terms, Effect::Bytes(77), bounds, 0);
        let (none, bare, limited) =
            (State::default(), State { bounds, terms: None }, State { bounds, terms: terms.clone() });
        let entry = |key, effect, before: &State, payload| {
            let before = before.clone();
            Entry { key, effect, before, payload }
        };
        let entries = [
            entry(b"a", Effect::Append(900), &bare, &b"hello"[..]),
            entry(b"a", Effect::Trim(900), &none, b""),
            entry(b"b", Effect::Truncate(5), &bare, b""),
            entry(b"c", Effect::Append(0), &none, b""),
            entry(b"c", Effect::Delete, &none, b""),
            entry(b"d", Effect::Delete, &bare, b""),
            entry(b"e", Effect::Append(900), &limited, b"hello"),
            entry(b"e", Effect::Held(5), &none, b""),
            entry(b"f", Effect::Entries(0), &none, b""),
            entry(b"f", Effect::Bytes(9), &none, b""),
            entry(b"f", Effect::Age(8), &none, b""),
            entry(b"f", Effect::Mark(7), &none, b""),
            entry(b"g", Effect::Begin(12), &none, b""),
            entry(b"h", Effect::Begin(1_000), &limited, b""),
            entry(b"f", Effect::Count(3), &none, b""),
            entry(b"", Effect::Append(8), &none, b"table"),
            entry(b"", Effect::Trim(8), &none, b""),
        ];
        let mut bytes = Vec::new();
        let mut previous = None;
        for entry in &entries {
            let before = bytes.len();
            encode(&mut |b| bytes.extend_from_slice(b), entry, previous == Some(entry.key));
            let terms = entry.before.terms.as_ref().map_or(0, |terms| terms.bound());
            assert!(bytes.len() - before <= bound(entry.key, entry.payload) + terms);
            previous = Some(entry.key);
        }
        let (mut rest, mut previous) = (&bytes[..], None);
        for entry in entries {
            let key = entry.key;
            assert_eq!(decode(&mut rest, previous), Some(entry));
            previous = Some(key);
        }
        assert!(rest.is_empty());
    }

    /// The bytes do not depend on the pieces that are gathered.
    #[test]
    fn an_effect_follows_the_format_for_any_lengths() {
        let (bytes, lens) = ([0x5a; 3 * GATHERED], 0..3 * GATHERED);
        for (key, payload) in lens.clone().flat_map(|key| lens.clone().map(move |payload| (key, payload))) {
            let (key, payload) = (&bytes[..key], &bytes[..payload]);
            let effect = Effect::Append(900);
            let before = State { bounds: Some(Bounds { first: 5, next: 900 }), terms: None };
            let (mut written, mut calls) = (Vec::new(), 0);
            let mut out = |piece: &[u8]| {
                written.extend_from_slice(piece);
                calls += 1;
            };
            encode(&mut out, &Entry { key, effect, before, payload }, false);
            let mut wanted = vec![1 | WITH_BOUNDS];
            let mut put = |piece: &[u8]| wanted.extend_from_slice(piece);
            put_varint(&mut put, key.len() as u64);
            put(key);
            [900, 5, 900, payload.len() as u64].into_iter().for_each(|number| put_varint(&mut put, number));
            put(payload);
            assert_eq!(written, wanted);
            assert!(calls <= if written.len() <= GATHERED { 1 } else { 4 }, "{calls} calls");
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        for bytes in [
            &[][..],
            &[9, 1, b'k'],
            &[1, 1, b'k', 0, 5, b'x'],
            &[0x81, 0, 0],
            &[2, 1, b'k'],
            &[0x42, 1, b'k', 5, 9, 3],
            &[0x44, 1, b'k'],
            &[0x2a, 1, b'k', 0],
            &[0x24, 1, b'k', 1, 5],
            &[0x64, 1, b'k', 0, 1, 0],
        ] {
            assert_eq!(decode(&mut &bytes[..], None), None, "{bytes:?}");
        }
    }
}
