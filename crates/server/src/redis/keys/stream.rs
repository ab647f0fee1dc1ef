//! A stream: a log of entries, and its state in the head.
//!
//! A deleted entry in the middle of a log cannot leave it: its id is *gone*, and the head keeps the
//! id until trimming has passed it. The head also has the groups, the consumers and the pending
//! entries; each command that changes them adds one [`Delta`] to the head.
//!
//! An entry of the log is its id, as two varints of 7 bits a byte, and then until the end, field
//! and value in turn, each a varint of its length and its bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::{Bound, Range};

use brooklet::{Error, Store};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::body::Body;
use super::named::Named;
use super::pending::PendingEntries;

/// The id of an entry: a time in milliseconds, and a number among those of that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id {
    /// Milliseconds since the Unix epoch.
    pub ms: u64,
    /// The number.
    pub seq: u64,
}

impl Id {
    /// The largest id.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };
    /// The smallest id, which no entry has.
    pub const MIN: Self = Self { ms: 0, seq: 0 };

    /// Returns the next larger id.
    pub fn after(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// Returns the next smaller id.
    pub fn before(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// An entry, as the log holds it: the id is decoded, and the rest is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Id of the entry.
    pub id: Id,
    /// Number of fields and values.
    pub parts: usize,
    /// The entry of the log.
    pub encoded: Bytes,
    /// Where the fields begin.
    at: usize,
}

impl Entry {
    /// Encodes an entry of the log.
    pub fn encode(id: Id, fields: &[Bytes]) -> Bytes {
        let bytes: usize = fields.iter().map(|field| field.len() + 2).sum();
        let mut out = BytesMut::with_capacity(bytes + 12);
        put_varint(&mut out, id.ms);
        put_varint(&mut out, id.seq);
        for field in fields {
            put_varint(&mut out, field.len() as u64);
            out.put_slice(field);
        }
        out.freeze()
    }

    /// Decodes an entry of the log; returns `None` if it is invalid.
    pub fn decode(encoded: Bytes) -> Option<Self> {
        let mut rest = &encoded[..];
        let id = Id { ms: take_varint(&mut rest)?, seq: take_varint(&mut rest)? };
        let (at, mut parts) = (encoded.len() - rest.len(), 0_usize);
        while !rest.is_empty() {
            rest = split_part(rest)?.1;
            parts += 1;
        }
        parts.is_multiple_of(2).then_some(Self { id, parts, encoded, at })
    }

    /// Returns the most bytes that the entry takes in memory, or in a reply.
    pub fn cost(&self) -> usize {
        // Of each part, a reply has its length and two ends of lines besides.
        const HEADS: usize = 100;
        const PART: usize = 16;
        self.encoded.len() + HEADS + self.parts * PART
    }

    /// Returns fields and values in turn.
    pub fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.encoded[self.at..];
        std::iter::from_fn(move || {
            let (part, after) = split_part(rest)?;
            rest = after;
            Some(part)
        })
    }
}

/// Splits the first part of an entry off the rest; `None` at the end, and if the part is not whole.
fn split_part(mut rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = usize::try_from(take_varint(&mut rest)?).ok()?;
    rest.split_at_checked(len)
}

fn put_varint(out: &mut BytesMut, mut n: u64) {
    while n >= 0x80 {
        out.put_u8(n as u8 | 0x80);
        n >>= 7;
    }
    out.put_u8(n as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes.try_get_u8().ok()?;
        let part = u64::from(byte & 0x7F);
        if shift == 63 && part > 1 {
            return None;
        }
        n |= part << shift;
        if byte < 0x80 {
            return Some(n);
        }
    }
    None
}

/// The state of a stream in its head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// State that the log does not show.
    pub meta: Meta,
    /// Ids of entries that were deleted from the middle of the log.
    pub gone: BTreeSet<Id>,
    /// Groups, by name.
    pub groups: BTreeMap<Bytes, Group>,
}

/// The state of a stream besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Largest used id: no id up to this one is given again. The id of the log's last entry counts,
    /// too.
    pub last: Id,
    /// Largest id of a deleted entry.
    pub max_deleted: Id,
    /// Number of entries ever added, minus the log's next number.
    pub more_added: i64,
}

/// A consumer group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Id of the last delivered entry.
    pub last: Id,
    /// Number of entries up to that id, if known.
    pub read: Option<u64>,
    /// Entries that were delivered and not acknowledged.
    pub pending: PendingEntries,
    /// Consumers, each with the time of its last request, in milliseconds since the Unix epoch.
    pub consumers: Named<u64>,
}

/// A delivered entry that is not acknowledged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// Consumer of the entry.
    pub consumer: Bytes,
    /// Time of the last delivery, in milliseconds since the Unix epoch.
    pub at: u64,
    /// Number of deliveries.
    pub times: u64,
}

/// A change of a stream's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Delta {
    /// Replaces the state besides the entries.
    Meta(Meta),
    /// Entries with these ids were deleted.
    Gone(Vec<Id>),
    /// A group is created, or moves.
    Group {
        /// Name of the group.
        name: Bytes,
        /// Id of the last delivered entry.
        last: Id,
        /// Number of entries up to that id, if known.
        read: Option<u64>,
    },
    /// A group is deleted.
    NoGroup(Bytes),
    /// A consumer is created, or made a request.
    Consumer {
        /// Group of the consumer.
        group: Bytes,
        /// Name of the consumer.
        name: Bytes,
        /// Time of the request, in milliseconds since the Unix epoch.
        seen: u64,
    },
    /// A consumer is deleted, with its pending entries.
    NoConsumer {
        /// Group of the consumer.
        group: Bytes,
        /// Name of the consumer.
        name: Bytes,
    },
    /// Entries are acknowledged.
    Ack {
        /// Group of the entries.
        group: Bytes,
        /// Ids of the entries.
        ids: Vec<Id>,
    },
    /// Entries are delivered to a consumer.
    Deliver {
        /// Group of the consumer.
        group: Bytes,
        /// Name of the consumer.
        consumer: Bytes,
        /// Ids of the entries, each with the time and the number of its deliveries.
        ids: Vec<(Id, u64, u64)>,
    },
}

impl Kept {
    /// Applies a change; ignores a change of a missing group.
    pub fn apply(&mut self, delta: Delta) {
        // Kept names are copied, so that the rest of their packet does not stay in memory.
        let kept = |name: &Bytes| Bytes::copy_from_slice(name);
        match delta {
            Delta::Meta(meta) => self.meta = meta,
            Delta::Gone(ids) => self.gone.extend(ids),
            Delta::Group { name, last, read } => {
                let group = self.groups.entry(kept(&name)).or_default();
                (group.last, group.read) = (last, read);
            }
            Delta::NoGroup(name) => drop(self.groups.remove(&name)),
            Delta::Consumer { group, name, seen } => {
                if let Some(group) = self.groups.get_mut(&group) {
                    group.consumers.insert(kept(&name), seen);
                }
            }
            Delta::NoConsumer { group, name } => {
                if let Some(group) = self.groups.get_mut(&group) {
                    group.consumers.remove(&name);
                    group.pending.remove_all_of(&name);
                }
            }
            Delta::Ack { group, ids } => {
                if let Some(group) = self.groups.get_mut(&group) {
                    ids.iter().for_each(|id| group.pending.remove(id));
                }
            }
            Delta::Deliver { group, consumer, ids } => {
                if let Some(group) = self.groups.get_mut(&group) {
                    let consumer = kept(&consumer);
                    for (id, at, times) in ids {
                        group.pending.insert(id, Pending { consumer: consumer.clone(), at, times });
                    }
                }
            }
        }
    }

    /// Drops the deleted ids up to this id: their entries are no longer in the log.
    pub fn pass(&mut self, id: Id) {
        while self.gone.first().is_some_and(|gone| *gone <= id) {
            self.gone.pop_first();
        }
    }

    /// Splits the state: into one without ids and groups, and changes that come to the rest.
    pub fn split(&self) -> (Self, Vec<Delta>) {
        let mut changes = vec![Delta::Gone(self.gone.iter().copied().collect())];
        for (name, group) in &self.groups {
            let Group { last, read, .. } = *group;
            changes.push(Delta::Group { name: name.clone(), last, read });
            changes.extend(group.consumers.iter().map(|(consumer, seen)| {
                let (group, name) = (name.clone(), consumer.clone());
                Delta::Consumer { group, name, seen: *seen }
            }));
            let mut pending: BTreeMap<&Bytes, Vec<(Id, u64, u64)>> = BTreeMap::new();
            for (id, of) in group.pending.iter() {
                pending.entry(&of.consumer).or_default().push((*id, of.at, of.times));
            }
            for (consumer, ids) in pending {
                let (group, consumer) = (name.clone(), consumer.clone());
                changes.push(Delta::Deliver { group, consumer, ids });
            }
        }
        (Self { meta: self.meta, ..Self::default() }, changes)
    }

    /// Returns the bytes of the names in the state as one record: there, each pending entry has
    /// that of its consumer.
    pub fn names(&self) -> usize {
        let group = |(name, group): (&Bytes, &Group)| {
            let pending = group.pending.counts().map(|(consumer, count)| consumer.len() * count);
            name.len() + group.consumers.bytes() + pending.sum::<usize>()
        };
        self.groups.iter().map(group).sum()
    }

    /// Returns the bytes of the names in memory.
    pub fn texts(&self) -> usize {
        let group =
            |(name, group): (&Bytes, &Group)| name.len() + group.consumers.bytes() + group.pending.names();
        self.groups.iter().map(group).sum()
    }

    /// Returns the number of parts of the state, which bounds the length of the head.
    pub fn size(&self) -> usize {
        let group = |group: &Group| 1 + group.pending.len() + group.consumers.len();
        self.gone.len() + self.groups.values().map(group).sum::<usize>()
    }
}

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub(super) body: Body,
    /// State from the head, with the actual `last`.
    pub kept: Kept,
}

impl Stream {
    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        self.body.len() - self.kept.gone.len() as u64
    }

    /// Returns whether the stream has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries ever added.
    pub fn added(&self) -> u64 {
        self.body.next().saturating_add_signed(self.kept.meta.more_added)
    }

    /// Returns the numbers of the log's entries.
    pub fn seqs(&self) -> Range<u64> {
        self.body.first()..self.body.next()
    }

    /// Returns the entry with a number, deleted or not.
    pub fn entry(&self, store: &Store, key: &[u8], seq: u64) -> Result<Entry, Error> {
        decode(key, self.body.get(store, key, seq)?)
    }

    /// Returns the first of the entries with some numbers, deleted or not: one at least, and no
    /// more once they take `most` bytes.
    pub fn entries(
        &self,
        store: &Store,
        key: &[u8],
        seqs: Range<u64>,
        most: usize,
    ) -> Result<VecDeque<Entry>, Error> {
        let (mut entries, mut bytes) = (VecDeque::new(), 0);
        if seqs.is_empty() {
            return Ok(entries);
        }
        for payload in self.body.iter(store, key, seqs)? {
            let entry = decode(key, payload?)?;
            bytes += entry.cost();
            entries.push_back(entry);
            if bytes >= most {
                break;
            }
        }
        Ok(entries)
    }

    /// Returns the number of the first entry whose id is `id` or larger.
    pub fn seek(&self, store: &Store, key: &[u8], id: Id) -> Result<u64, Error> {
        let Range { start, end } = self.seqs();
        if id > self.kept.meta.last {
            return Ok(end);
        }
        // Most searches are for new entries: the steps back from the end grow until one passes the
        // id.
        let (mut low, mut high, mut step) = (start, end, 1);
        while low < high && high - low > step {
            let at = end.saturating_sub(step).max(low);
            if self.entry(store, key, at)?.id < id {
                low = at + 1;
                break;
            }
            high = at;
            step *= 2;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(store, key, middle)?.id < id { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Returns the live entries with ids in `from..=to`, at most `count`, from either end; `None`
    /// if they need more than `room` bytes of memory.
    pub fn range(
        &self,
        store: &Store,
        key: &[u8],
        (from, to): (Id, Id),
        count: usize,
        newest_first: bool,
        mut room: usize,
    ) -> Result<Option<Vec<Entry>>, Error> {
        let mut found = Vec::new();
        if from > to || count == 0 || self.body.is_empty() {
            return Ok(Some(found));
        }
        let start = self.seek(store, key, from)?;
        let end = to.after().map_or(Ok(self.body.next()), |after| self.seek(store, key, after))?;
        let (mut low, mut high) = (start, end);
        // Reads in portions, so that a small count reads few entries; the portions grow, because
        // many entries may be deleted.
        let mut size = (count as u64).clamp(1, 1024);
        while low < high && found.len() < count {
            let portion = size.min(high - low);
            size = (size * 2).min(1024);
            let seqs = if newest_first { high - portion..high } else { low..low + portion };
            if newest_first {
                high = seqs.start
            } else {
                low = seqs.end
            }
            let mut payloads = self.body.iter(store, key, seqs)?;
            let (before, mut last) = (found.len(), from);
            while let Some(payload) = if newest_first { payloads.next_back() } else { payloads.next() } {
                let entry = decode(key, payload?)?;
                last = entry.id;
                if self.kept.gone.contains(&entry.id) {
                    continue;
                }
                if found.len() == count {
                    break;
                }
                let Some(rest) = room.checked_sub(entry.cost()) else { return Ok(None) };
                room = rest;
                found.push(entry);
            }
            if found.len() == before && low < high {
                // Many entries may be deleted in a row.
                let gone = self.gone_beside(store, key, last, low..high, newest_first)?;
                if newest_first { high -= gone } else { low += gone }
            }
        }
        Ok(Some(found))
    }

    /// Returns how many entries at an end of a range of numbers are certainly deleted. `last` is
    /// the id of the entry next to this end. Reads few entries: between two ids there are only
    /// deleted entries if as many ids are gone as there are numbers.
    fn gone_beside(
        &self,
        store: &Store,
        key: &[u8],
        last: Id,
        seqs: Range<u64>,
        from_the_end: bool,
    ) -> Result<u64, Error> {
        let len = seqs.end - seqs.start;
        let (mut gone, mut step, mut last) = (0, 1024, last);
        while gone + step < len {
            let at = if from_the_end { seqs.end - 1 - gone - step } else { seqs.start + gone + step };
            let id = self.entry(store, key, at)?.id;
            let between = if from_the_end { (id, last) } else { (last, id) };
            if between.0 >= between.1 {
                break;
            }
            let between = (Bound::Excluded(between.0), Bound::Excluded(between.1));
            if self.kept.gone.range(between).count() as u64 != step {
                break;
            }
            // The entry there is not known to be deleted: it is the first of the next step.
            let beside = if from_the_end { id.after() } else { id.before() };
            (gone, last) = (gone + step, beside.unwrap_or(id));
            step *= 2;
        }
        Ok(gone)
    }
}

fn decode(key: &[u8], payload: Bytes) -> Result<Entry, Error> {
    Entry::decode(payload).ok_or_else(|| {
        let place = format!("log {}", String::from_utf8_lossy(key));
        Error::Damaged { place, what: "an entry is no entry of a stream".into() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_entry_stay_as_they_are() {
        let fields = [Bytes::from_static(b"f"), Bytes::from_static(b"value")];
        let encoded = Entry::encode(Id { ms: 300, seq: 1 }, &fields);
        assert_eq!(&encoded[..], b"\xAC\x02\x01\x01f\x05value");
        let entry = Entry::decode(encoded).unwrap();
        assert_eq!((entry.id, entry.parts), (Id { ms: 300, seq: 1 }, 2));
        assert!(entry.fields().eq(fields.iter().map(|field| &field[..])));
        for id in [Id::MAX, Id::MIN] {
            assert_eq!(Entry::decode(Entry::encode(id, &[])).unwrap().id, id);
        }
        for wrong in [&b""[..], b"\x01", b"\x01\x01\x05a", b"\x01\x01\x01a", &[0xFF; 12]] {
            assert_eq!(Entry::decode(Bytes::from_static(wrong)), None, "{wrong:?}");
        }
    }

    #[test]
    fn ids_follow_each_other() {
        let end = Id { ms: 1, seq: u64::MAX };
        assert_eq!(end.after(), Some(Id { ms: 2, seq: 0 }));
        assert_eq!(Id { ms: 2, seq: 0 }.before(), Some(end));
        assert_eq!((Id::MAX.after(), Id::MIN.before()), (None, None));
    }
}
