//! A stream: a log of entries, and its state in the head.
//!
//! A deleted entry in the middle of a log cannot leave it: its id is *gone*, and the head keeps the
//! id until trimming has passed it. The head also has the groups, the consumers and the pending
//! entries; each command that changes them adds one [`Delta`] to the head.
//!
//! An entry of the log is its id, as two varints of 7 bits a byte, and then until the end, field
//! and value in turn, each a varint of its length and its bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use brooklet::{Error, Store};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::body::Body;

/// The id of an entry: a time in milliseconds, and a number among those of that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id {
    /// Milliseconds since the Unix epoch.
    pub ms: u64,
    /// The number.
    pub seq: u64,
}

impl Id {
    /// The largest.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };
    /// The smallest, which no entry has.
    pub const MIN: Self = Self { ms: 0, seq: 0 };

    /// The one right after it.
    pub fn after(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The one right before it.
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

/// An entry: its id; fields and values in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: Id,
    /// Fields and values in turn.
    pub fields: Vec<Bytes>,
}

impl Entry {
    /// As an entry of the log.
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

    /// What an entry of the log says, if it makes sense.
    pub fn decode(mut entry: Bytes) -> Option<Self> {
        let id = Id { ms: take_varint(&mut entry)?, seq: take_varint(&mut entry)? };
        let mut fields = Vec::new();
        while entry.has_remaining() {
            let len = usize::try_from(take_varint(&mut entry)?).ok()?;
            if len > entry.len() {
                return None;
            }
            fields.push(entry.split_to(len));
        }
        fields.len().is_multiple_of(2).then_some(Self { id, fields })
    }
}

fn put_varint(out: &mut BytesMut, mut n: u64) {
    while n >= 0x80 {
        out.put_u8(n as u8 | 0x80);
        n >>= 7;
    }
    out.put_u8(n as u8);
}

fn take_varint(bytes: &mut Bytes) -> Option<u64> {
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

/// What a head keeps of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// What is known of ids that the log does not show.
    pub meta: Meta,
    /// Ids that were deleted from the midst of the log.
    pub gone: BTreeSet<Id>,
    /// The groups, by name.
    pub groups: BTreeMap<Bytes, Group>,
}

/// What is known of a stream besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// No id up to this one is given any more; that of the log's last entry counts, too.
    pub last: Id,
    /// The largest that was deleted.
    pub max_deleted: Id,
    /// Entries that were added, less the log's next number.
    pub more_added: i64,
}

/// A consumer group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Entries up to this one were delivered.
    pub last: Id,
    /// How many entries those are, where that is known.
    pub read: Option<u64>,
    /// What was delivered and not acknowledged.
    pub pending: BTreeMap<Id, Pending>,
    /// The consumers, each with the time when it was last seen, in milliseconds since the Unix
    /// epoch.
    pub consumers: BTreeMap<Bytes, u64>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// Whose it is.
    pub consumer: Bytes,
    /// When it was delivered last, in milliseconds since the Unix epoch.
    pub at: u64,
    /// How often it was.
    pub times: u64,
}

/// Something of a stream that changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Delta {
    /// This is so from now on.
    Meta(Meta),
    /// Entries of these ids were deleted.
    Gone(Vec<Id>),
    /// A group is here, or stands elsewhere.
    Group {
        /// Its name.
        name: Bytes,
        /// Where it stands.
        last: Id,
        /// How many entries that is, where that is known.
        read: Option<u64>,
    },
    /// A group goes.
    NoGroup(Bytes),
    /// A consumer is here, and was seen.
    Consumer {
        /// Its group.
        group: Bytes,
        /// Its name.
        name: Bytes,
        /// When, in milliseconds since the Unix epoch.
        seen: u64,
    },
    /// A consumer goes, with what is pending for it.
    NoConsumer {
        /// Its group.
        group: Bytes,
        /// Its name.
        name: Bytes,
    },
    /// Entries are not pending any more.
    Ack {
        /// Of this group.
        group: Bytes,
        /// Them.
        ids: Vec<Id>,
    },
    /// Entries are pending for a consumer.
    Deliver {
        /// The group.
        group: Bytes,
        /// The consumer.
        consumer: Bytes,
        /// Them, each with when it was delivered and how often.
        ids: Vec<(Id, u64, u64)>,
    },
}

impl Kept {
    /// Does what a delta says; what is not there is not changed.
    pub fn apply(&mut self, delta: Delta) {
        // Names that stay are copied: what came with them in the same packet is not to stay as
        // well.
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
                    group.pending.retain(|_, pending| pending.consumer != name);
                }
            }
            Delta::Ack { group, ids } => {
                if let Some(group) = self.groups.get_mut(&group) {
                    ids.iter().for_each(|id| drop(group.pending.remove(id)));
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

    /// Forgets the ids up to this one that are gone: they are not in the log any more.
    pub fn pass(&mut self, id: Id) {
        self.gone.retain(|gone| *gone > id);
    }

    /// Things in it, by which the length of its head is judged.
    pub fn size(&self) -> usize {
        let group = |group: &Group| 1 + group.pending.len() + group.consumers.len();
        self.gone.len() + self.groups.values().map(group).sum::<usize>()
    }
}

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub(super) body: Body,
    /// What its head keeps, `last` as it really is.
    pub kept: Kept,
}

impl Stream {
    /// Entries in it.
    pub fn len(&self) -> u64 {
        self.body.len() - self.kept.gone.len() as u64
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries that were ever added.
    pub fn added(&self) -> u64 {
        self.body.next().saturating_add_signed(self.kept.meta.more_added)
    }

    /// Numbers of its log's entries.
    pub fn seqs(&self) -> Range<u64> {
        self.body.first()..self.body.next()
    }

    /// The entry of a number, whether it is gone or not.
    pub fn entry(&self, store: &Store, key: &[u8], seq: u64) -> Result<Entry, Error> {
        decode(key, seq, self.body.get(store, key, seq)?)
    }

    /// The number of the first entry whose id is `id` or larger.
    pub fn seek(&self, store: &Store, key: &[u8], id: Id) -> Result<u64, Error> {
        let Range { start, end } = self.seqs();
        if id > self.kept.meta.last {
            return Ok(end);
        }
        // Most look for what is new: the steps back from the end grow until one is before it.
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

    /// The live entries with ids in `from..=to`, at most `count`, from either end.
    pub fn range(
        &self,
        store: &Store,
        key: &[u8],
        (from, to): (Id, Id),
        count: usize,
        newest_first: bool,
    ) -> Result<Vec<Entry>, Error> {
        let mut found = Vec::new();
        if from > to || count == 0 || self.body.is_empty() {
            return Ok(found);
        }
        let start = self.seek(store, key, from)?;
        let end = to.after().map_or(Ok(self.body.next()), |after| self.seek(store, key, after))?;
        let (mut low, mut high) = (start, end);
        while low < high && found.len() < count {
            // Read in portions: a count of few entries reads few.
            let portion = ((count - found.len()) as u64).clamp(1, 1024).min(high - low);
            let seqs = if newest_first { high - portion..high } else { low..low + portion };
            if newest_first {
                high = seqs.start
            } else {
                low = seqs.end
            }
            let payloads = self.body.read(store, key, seqs.clone())?;
            let entries = seqs.zip(payloads).map(|(seq, payload)| decode(key, seq, payload));
            let mut entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
            if newest_first {
                entries.reverse();
            }
            found.extend(entries.into_iter().filter(|entry| !self.kept.gone.contains(&entry.id)));
        }
        found.truncate(count);
        Ok(found)
    }
}

fn decode(key: &[u8], seq: u64, payload: Bytes) -> Result<Entry, Error> {
    Entry::decode(payload).ok_or_else(|| {
        let place = format!("log {}", String::from_utf8_lossy(key));
        Error::Damaged { place, what: format!("entry {seq} is no entry of a stream") }
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
        assert_eq!(
            Entry::decode(encoded),
            Some(Entry { id: Id { ms: 300, seq: 1 }, fields: fields.to_vec() })
        );
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
