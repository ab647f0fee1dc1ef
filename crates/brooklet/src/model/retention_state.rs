//! The terms of a log that keeps only a part of its entries: its limits, and the data to apply
//! them.
//!
//! The append of a commit applies limits of entries and bytes: the commit that adds an entry, or
//! sets the limit, trims the entries beyond the limit. Age is applied in two ways. Readers leave
//! out entries that are too old by the clock at the read, and store nothing: a clock that jumps
//! ahead and back removes nothing. A commit on the log trims the entries that are too old by then,
//! for good; without commits, `engine/expiry.rs` trims them.
//!
//! The terms keep times for groups of entries. The *granule* of an age is the power of two of
//! milliseconds at or below 1/64 of the age, and at least 1 ms. A *mark* says that the entries from
//! a number on, up to the next mark, were all committed before the mark's time, a multiple of the
//! granule. These entries are too old once the age has passed since the mark's time. So a log has
//! at most some 130 marks for each doubling of its age while the entries were written, and usually
//! 66 to 130 if commits are steady. When an age is made shorter, the newest mark gets the time that
//! it would have under the new age: existing entries expire by this time.
//!
//! Invariants:
//! 1. Marks ascend strictly, in number and in time: a clock that is set back makes entries seem
//!    younger, never older.
//! 2. Where an age is set and the log has an entry, its first entry has a mark.
//! 3. `held` is the sum of the log's payloads where bytes are limited, and 0 elsewhere.
//!
//! ```text
//! terms  = flags (1 byte: 1 entries, 2 bytes, 4 age are limited, one of them at least; 8 the log counts in the totals of
//!          its space, since format 5, and then 2, too)
//!          [most entries (varint)], [most bytes, bytes held (varints)],
//!          [age in milliseconds, number of marks (varints), marks], [number of the space (varint)]
//! mark   = number, time (varints, each counted from the mark before: from 0 for the first)
//!          time is in milliseconds since the Unix epoch
//! ```

use std::sync::Arc;
use std::time::Duration;

use brooklet_io::seeded::bug;
use brooklet_wal::{put_varint, take_varint};

use crate::model::retention::{LONGEST, MOST, Retention};
use crate::model::{Bounds, Effect};

/// A limit of bytes without effect: the terms still count the bytes of the log. Larger than any
/// real limit.
pub(crate) const COUNTED: u64 = 1 << 63;

/// The least number of marks of one age.
const MARKS: u64 = 64;

/// A log's bounds, and its terms if any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub bounds: Option<Bounds>,
    pub terms: Option<Arc<RetentionState>>,
}

impl State {
    /// Creates the state of a log that keeps all of its entries.
    pub fn without_terms(bounds: Bounds) -> Self {
        Self { bounds: Some(bounds), terms: None }
    }

    /// Returns the bounds that readers see at `now`.
    pub fn shown(&self, now: u64) -> Option<Bounds> {
        self.bounds.map(|bounds| shown(bounds, self.terms.as_deref(), now))
    }
}

/// Returns the bounds of a log that readers see at `now`.
pub(crate) fn shown(bounds: Bounds, terms: Option<&RetentionState>, now: u64) -> Bounds {
    Bounds { first: terms.map_or(bounds.first, |terms| terms.young(bounds, now)), ..bounds }
}

/// Returns the time of a mark for entries committed at `now`, under this age.
fn end_of_granule(age: u64, now: u64) -> u64 {
    let granule = (age / MARKS).checked_ilog2().map_or(1, |log| 1 << log);
    (now / granule).saturating_add(1).saturating_mul(granule)
}

/// Returns the retention that readers see for the terms of a log.
pub(crate) fn retention(terms: Option<&RetentionState>) -> Retention {
    terms.map_or(Retention::default(), |terms| Retention {
        entries: terms.entries,
        bytes: terms.bytes.filter(|most| *most != COUNTED),
        age: terms.age.map(Duration::from_millis),
    })
}

/// A mark: the entries from `seq` on were committed before `time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AgeMark {
    seq: u64,
    time: u64,
}

/// The times at which the entries of a log become too old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ageing {
    pub entries: u64,
    /// The first and the last of these times, in milliseconds since the Unix epoch.
    pub from: u64,
    pub to: u64,
}

impl Ageing {
    pub fn sum(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(a), Some(b)) = (one, other) else { return one.or(other) };
        let entries = a.entries.saturating_add(b.entries);
        Some(Self { entries, from: a.from.min(b.from), to: a.to.max(b.to) })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RetentionState {
    pub entries: Option<u64>,
    pub bytes: Option<u64>,
    /// The age limit, in milliseconds.
    pub age: Option<u64>,
    pub held: u64,
    marks: Vec<AgeMark>,
    /// The number of the space whose totals include the log; 0: none.
    pub space: u64,
}

/// Applies an effect to the terms of a log. `bounds` are the bounds of the log after the effect.
/// `len` is the length of an appended entry, in bytes.
pub(crate) fn apply(
    terms: &mut Option<Arc<RetentionState>>,
    effect: Effect,
    bounds: Option<Bounds>,
    len: u64,
) {
    let changes = |terms: &RetentionState| match effect {
        Effect::Append(_) => terms.bytes.is_some(),
        Effect::Trim(_) | Effect::Truncate(_) => !terms.marks.is_empty(),
        _ => true,
    };
    let begins = matches!(effect, Effect::Entries(1..) | Effect::Bytes(1..) | Effect::Age(1..));
    if !terms.as_deref().map_or(begins, changes) {
        return;
    }
    let now = Arc::make_mut(terms.get_or_insert_default());
    let bounds = bounds.unwrap_or_default();
    match effect {
        Effect::Append(_) => now.held = now.held.saturating_add(len),
        Effect::Trim(_) | Effect::Truncate(_) | Effect::Begin(_) => now.forget(bounds),
        Effect::Entries(n) => now.entries = n.checked_sub(1),
        Effect::Bytes(n) => {
            now.bytes = n.checked_sub(1);
            now.held = now.bytes.map_or(0, |_| now.held);
            now.space = now.bytes.map_or(0, |_| now.space);
        }
        Effect::Age(n) => {
            now.age = n.checked_sub(1);
            if now.age.is_none() {
                now.marks.clear();
            }
        }
        Effect::Mark(time) => now.mark(bounds, time),
        Effect::Held(held) => now.held = now.bytes.map_or(0, |_| held),
        Effect::Count(space) => now.space = now.bytes.map_or(0, |_| space),
        Effect::Delete => *now = RetentionState::default(),
    }
    if (now.entries, now.bytes, now.age) == (None, None, None) {
        *terms = None;
    }
}

impl RetentionState {
    /// Creates the terms of a log that gets all these entries at `now`, with `held` bytes. Returns
    /// `None` if the log keeps all entries.
    pub fn of(retention: Retention, bounds: Bounds, held: u64, now: u64) -> Option<Arc<Self>> {
        let Retention { entries, bytes, age } = retention;
        let age = age.map(|age| age.as_millis() as u64);
        let held = bytes.map_or(0, |_| held);
        let mut terms = Self { entries, bytes, age, held, marks: Vec::new(), space: 0 };
        if let Some(time) = terms.wanted_mark(now).filter(|_| !bounds.is_empty()) {
            terms.mark(bounds, time);
        }
        retention.is_limited().then(|| terms.into())
    }

    /// Returns the first entry that is not too old at `now`.
    pub fn young(&self, bounds: Bounds, now: u64) -> u64 {
        let Some(age) = self.age else { return bounds.first };
        let old = self.marks.partition_point(|mark| mark.time.saturating_add(age) <= now);
        let first = match self.marks.get(old) {
            _ if old == 0 => bounds.first,
            Some(mark) => mark.seq,
            None => bounds.next,
        };
        first.clamp(bounds.first, bounds.next)
    }

    /// Returns the first entry within the limits of entries and age at `now`.
    pub fn kept(&self, bounds: Bounds, now: u64) -> u64 {
        let few = self.entries.map_or(bounds.first, |most| bounds.next.saturating_sub(most));
        few.max(self.young(bounds, now))
    }

    /// Returns the time of the mark that an entry committed at `now` needs, if it needs one.
    pub fn wanted_mark(&self, now: u64) -> Option<u64> {
        let time = end_of_granule(self.age?, now);
        self.marks.last().is_none_or(|last| last.time < time).then_some(time)
    }

    /// Returns the earlier time of the newest mark when the age changes at `now`, if the new age
    /// makes the time earlier: all entries of this mark exist by now, and later entries need a mark
    /// by the new age. The time changes by at most a granule, and does not change if the clock was
    /// set back: a wrong clock makes no entry old.
    pub fn sharper_mark(&self, age: Option<u64>, now: u64) -> Option<u64> {
        let time = end_of_granule(age?, now);
        let mut newest = self.marks.iter().rev().map(|mark| mark.time);
        let is_now = newest.next()? == end_of_granule(self.age?, now);
        (is_now && time < end_of_granule(self.age?, now) && newest.all(|before| before < time))
            .then_some(time)
    }

    pub fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    fn mark(&mut self, bounds: Bounds, time: u64) {
        let before = self.marks.iter().nth_back(1).map(|mark| mark.time);
        match self.marks.last_mut() {
            _ if self.age.is_none() => {}
            // The first mark covers all existing entries, too.
            None => self.marks.push(AgeMark { seq: bounds.first, time }),
            Some(last) if time < last.time && before.is_none_or(|before| before < time) => last.time = time,
            Some(last) if time > last.time && last.seq < bounds.next => {
                self.marks.push(AgeMark { seq: bounds.next, time });
            }
            Some(_) => {}
        }
    }

    /// Drops the marks of dropped entries.
    fn forget(&mut self, bounds: Bounds) {
        if bounds.is_empty() {
            self.marks.clear();
        }
        self.marks.truncate(self.marks.partition_point(|mark| mark.seq < bounds.next));
        let begun = self.marks.partition_point(|mark| mark.seq <= bounds.first);
        self.marks.drain(..begun.saturating_sub(1));
    }

    /// Returns the times at which the entries that are not too old at `now` become too old; `None`
    /// if no entry does.
    pub fn ageing(&self, bounds: Bounds, now: u64) -> Option<Ageing> {
        let age = self.age?;
        let young = self.young(bounds, now);
        let at = |mark: &AgeMark| mark.time.saturating_add(age);
        let from = self.marks.iter().map(at).find(|at| *at > now)?;
        let to = self.marks.last().map(at)?;
        (young < bounds.next).then(|| Ageing { entries: bounds.next - young, from, to })
    }

    /// Returns the most bytes of the encoded form.
    pub fn bound(&self) -> usize {
        1 + 6 * 10 + self.marks.len() * 20
    }

    pub fn encode(&self, out: &mut impl FnMut(&[u8])) {
        let flag = |limit: Option<u64>, bit| limit.map_or(0, |_| bit);
        let counts = if self.space > 0 { 8 } else { 0 };
        out(&[flag(self.entries, 1) | flag(self.bytes, 2) | flag(self.age, 4) | counts]);
        if let Some(entries) = self.entries {
            put_varint(out, entries);
        }
        if let Some(bytes) = self.bytes {
            put_varint(out, bytes);
            put_varint(out, if bug("retention-forgets-bytes") { 0 } else { self.held });
        }
        if let Some(age) = self.age {
            put_varint(out, age);
            put_varint(out, self.marks.len() as u64);
            let mut last = AgeMark { seq: 0, time: 0 };
            for mark in &self.marks {
                put_varint(out, mark.seq - last.seq);
                put_varint(out, mark.time - last.time);
                last = *mark;
            }
        }
        if self.space > 0 {
            put_varint(out, self.space);
        }
    }

    /// Returns the terms of a log that moves to another store, where no totals include the log yet.
    /// Returns `None` if no limit remains.
    pub fn carried_over(&self) -> Option<Self> {
        let bytes = self.bytes.filter(|most| *most != COUNTED);
        let held = bytes.map_or(0, |_| self.held);
        let terms = Self { bytes, held, space: 0, ..self.clone() };
        (terms.entries.is_some() || bytes.is_some() || terms.age.is_some()).then_some(terms)
    }

    /// Decodes terms from the front of `rest`. Returns `None` if the bytes are not valid terms.
    pub fn decode(rest: &mut &[u8]) -> Option<Self> {
        let (&flags, after) = rest.split_first()?;
        *rest = after;
        if flags == 0 || flags > 15 || flags & 10 == 8 {
            return None;
        }
        let mut terms = Self::default();
        if flags & 1 != 0 {
            terms.entries = Some(take_varint(rest).filter(|most| *most <= MOST)?);
        }
        if flags & 2 != 0 {
            terms.bytes = Some(take_varint(rest).filter(|most| *most <= MOST || *most == COUNTED)?);
            terms.held = take_varint(rest)?;
        }
        if flags & 4 != 0 {
            terms.age = Some(take_varint(rest).filter(|age| u128::from(*age) <= LONGEST.as_millis())?);
            let mut last = AgeMark { seq: 0, time: 0 };
            for n in 0..take_varint(rest)? {
                let (seq, time) = (take_varint(rest)?, take_varint(rest)?);
                if n > 0 && (seq == 0 || time == 0) {
                    return None;
                }
                last = AgeMark { seq: last.seq.checked_add(seq)?, time: last.time.checked_add(time)? };
                terms.marks.push(last);
            }
        }
        if flags & 8 != 0 {
            terms.space = take_varint(rest).filter(|space| *space > 0)?;
        }
        Some(terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(effects: &[(Effect, u64, u64)]) -> RetentionState {
        let mut terms = None;
        for &(effect, first, next) in effects {
            apply(&mut terms, effect, Some(Bounds { first, next }), 10);
        }
        terms.map(Arc::unwrap_or_clone).unwrap_or_default()
    }

    #[test]
    fn entries_go_once_all_of_their_mark_are_too_old() {
        let terms = of(&[
            (Effect::Age(641), 0, 4),
            (Effect::Mark(16), 0, 4), // for what is there
            (Effect::Mark(24), 0, 4),
            (Effect::Append(4), 0, 5),
            (Effect::Mark(24), 0, 5), // no later than the last
        ]);
        let bounds = Bounds { first: 1, next: 5 };
        let young = |now| terms.young(bounds, now);
        assert_eq!([young(0), young(655), young(656), young(663), young(664)], [1, 1, 4, 4, 5]);
        assert_eq!(terms.ageing(bounds, 0), Some(Ageing { entries: 4, from: 656, to: 664 }));
        assert_eq!(terms.ageing(bounds, 656), Some(Ageing { entries: 1, from: 664, to: 664 }));
        assert_eq!(terms.ageing(bounds, 664), None);
        assert_eq!(terms.wanted_mark(23), None);
        assert_eq!(terms.wanted_mark(24), Some(32));
    }

    #[test]
    fn a_shorter_age_sharpens_the_newest_mark() {
        let long = [(Effect::Age(64 * 64 + 1), 0, 4), (Effect::Mark(64), 0, 4), (Effect::Mark(128), 0, 4)];
        let terms = of(&long);
        assert_eq!(terms.sharper_mark(Some(640), 100), Some(104));
        assert_eq!(terms.sharper_mark(Some(64 * 64), 100), None, "the same granule");
        assert_eq!(terms.sharper_mark(Some(64 * 640), 100), None, "a longer age");
        assert_eq!(terms.sharper_mark(None, 100), None);
        assert_eq!(terms.sharper_mark(Some(1), 128), None, "of an earlier granule");
        assert_eq!(terms.sharper_mark(Some(1), 63), None, "the clock was set back");
        let times = |marks: &[u64]| {
            let marks = marks.iter().map(|&time| (Effect::Mark(time), 0, 4));
            let all: Vec<_> = long.into_iter().chain(marks).collect();
            of(&all).marks.iter().map(|mark| mark.time).collect::<Vec<_>>()
        };
        assert_eq!(times(&[104]), [64, 104]);
        assert_eq!(times(&[64]), [64, 128], "they ascend");
    }

    #[test]
    fn marks_go_with_their_entries() {
        let marked = [
            (Effect::Age(2), 0, 0),
            (Effect::Mark(5), 0, 0),
            (Effect::Append(0), 0, 3),
            (Effect::Mark(6), 0, 3),
            (Effect::Append(3), 0, 6),
            (Effect::Mark(7), 0, 6),
            (Effect::Append(6), 0, 9),
        ];
        let after = |effect, first, next| {
            let mut all = marked.to_vec();
            all.push((effect, first, next));
            of(&all).marks.iter().map(|mark| mark.seq).collect::<Vec<_>>()
        };
        assert_eq!(after(Effect::Trim(2), 2, 9), [0, 3, 6]);
        assert_eq!(after(Effect::Trim(3), 3, 9), [3, 6]);
        assert_eq!(after(Effect::Truncate(6), 0, 6), [0, 3]);
        assert_eq!(after(Effect::Truncate(7), 0, 7), [0, 3, 6]);
        assert_eq!(after(Effect::Trim(9), 9, 9), [0; 0]);
        assert_eq!(after(Effect::Age(0), 0, 9), [0; 0]);
    }

    #[test]
    fn terms_round_trip_and_nonsense_is_refused() {
        let all = of(&[
            (Effect::Entries(8), 3, 3),
            (Effect::Bytes(1000), 3, 3),
            (Effect::Age(500), 3, 3),
            (Effect::Mark(1 << 40), 3, 3),
            (Effect::Append(3), 3, 4),
            (Effect::Mark((1 << 40) + 9), 3, 4),
            (Effect::Append(4), 3, 5),
        ]);
        assert_eq!((all.held, all.marks.len()), (20, 2));
        let counted =
            of(&[(Effect::Entries(8), 0, 0), (Effect::Bytes(COUNTED + 1), 0, 0), (Effect::Count(300), 0, 0)]);
        assert_eq!((counted.space, retention(Some(&counted)).bytes), (300, None));
        assert_eq!(counted.carried_over(), Some(of(&[(Effect::Entries(8), 0, 0)])));
        for terms in [all, counted, of(&[(Effect::Entries(1), 0, 0)])] {
            let mut bytes = Vec::new();
            terms.encode(&mut |b| bytes.extend_from_slice(b));
            assert!(bytes.len() <= terms.bound());
            let mut rest = &bytes[..];
            assert_eq!(RetentionState::decode(&mut rest), Some(terms));
            assert!(rest.is_empty());
            for cut in 0..bytes.len() {
                assert_eq!(RetentionState::decode(&mut &bytes[..cut]), None);
            }
        }
        for bytes in
            [&[0][..], &[16, 1], &[8, 1], &[10, 1, 1, 0], &[4, 1, 2, 0, 1, 0, 1], &[4, 1, 2, 0, 1, 1, 0]]
        {
            assert_eq!(RetentionState::decode(&mut &bytes[..]), None, "{bytes:?}");
        }
    }

    /// Limits that no user can set would overflow later.
    #[test]
    fn limits_that_nobody_can_set_are_refused() {
        let encoded = |flag: u8, limit: u64| {
            let mut bytes = vec![flag];
            put_varint(&mut |b| bytes.extend_from_slice(b), limit);
            // No bytes are held, and there are no marks.
            bytes.push(0);
            bytes
        };
        let age = LONGEST.as_millis() as u64;
        for (flag, most) in [(1, MOST), (2, MOST), (4, age)] {
            assert!(RetentionState::decode(&mut &encoded(flag, most)[..]).is_some());
            for beyond in [most + 1, u64::MAX] {
                assert_eq!(RetentionState::decode(&mut &encoded(flag, beyond)[..]), None, "{flag}");
            }
        }
        assert!(RetentionState::decode(&mut &encoded(2, COUNTED)[..]).is_some());
    }
}
