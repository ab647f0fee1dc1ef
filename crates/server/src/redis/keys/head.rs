//! The head of a key: a log with the type of the value, its expiry, and all of a small value.
//!
//! The first entry is a snapshot, and each further entry is a change; reading a head folds them. An
//! entry is the byte 1, the version, and then a [`Record`] in the encoding of postcard: variants
//! and integers as varints of 7 bits a byte, signed ones zigzag, bytes and lists with their length
//! before them. A long head is rewritten as one snapshot.
//!
//! Lists keep their elements in logs of their own, and streams their entries; see
//! [`names`](super::names).

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::stream::{Delta, Group, Id, Kept};

const VERSION: u8 = 1;

/// Bytes of a record, about, from which on a record of many parts is split.
const PART: usize = 32 << 10;

/// Bytes of a hash, or of the state of a stream, from which on several records hold it.
const LONG: usize = 256 << 10;

/// Most bytes of the delivery of an entry, and of an id.
const DELIVERY: usize = 40;
const ID: usize = 20;

/// Room for the fields of a record besides its value.
const ROOM: usize = 24;

/// Most bytes of a group, or of a record of a stream, besides its names and its ids.
const FRAME: usize = 64;

/// An entry of a head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// The whole state.
    Snapshot(Snapshot),
    /// Expiry of the key, in milliseconds since the Unix epoch; 0: never.
    Expire(u64),
    /// New values of fields of a hash.
    Put(Vec<(Bytes, Bytes)>),
    /// Removed fields of a hash.
    Remove(Vec<Bytes>),
    /// A change of a stream.
    Stream(Delta),
}

/// The contents of a head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Expiry of the key, in milliseconds since the Unix epoch; 0: never.
    pub expire: u64,
    /// Value of the key.
    pub what: What,
}

/// A value's type, and the part of the value that a head holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// A list.
    List {
        /// Whether the list has, or had, a log of elements pushed to the left.
        has_left: bool,
    },
    /// A string.
    String(Bytes),
    /// A hash.
    Hash(BTreeMap<Bytes, Bytes>),
    /// A stream, without its entries.
    Stream(Kept),
}

/// A [`Record::Snapshot`] of a value that is elsewhere, in the same encoding.
#[derive(Serialize)]
enum Shown<'a> {
    Snapshot { expire: u64, what: &'a WhatShown<'a> },
}

/// A [`What`] that is elsewhere, in the same encoding.
#[derive(Serialize)]
pub enum WhatShown<'a> {
    /// A list.
    List {
        /// Whether the list has, or had, a log of elements pushed to the left.
        has_left: bool,
    },
    /// A string.
    String(&'a Bytes),
    /// A hash.
    Hash(&'a BTreeMap<Bytes, Bytes>),
    /// A stream, without its entries.
    Stream(&'a Kept),
}

/// Encodes a value as entries of the log: a snapshot, and the changes that follow it, if the value
/// is long.
pub fn encode_value(expire: u64, what: &WhatShown<'_>) -> (Bytes, Vec<Bytes>) {
    let changes = match what {
        WhatShown::Hash(fields) if bytes_of(fields.iter()) > LONG => {
            let fields = fields.iter().map(|(field, value)| (field.clone(), value.clone())).collect();
            return (
                encode_snapshot(expire, &WhatShown::Hash(&BTreeMap::new())),
                Record::Put(fields).split().iter().map(Record::encode).collect(),
            );
        }
        WhatShown::Stream(kept) if bytes_in_one(kept) > LONG => kept.split(),
        _ => return (encode_snapshot(expire, what), Vec::new()),
    };
    let (kept, changes) = changes;
    let changes = changes.into_iter().flat_map(|delta| Record::Stream(delta).split());
    (encode_snapshot(expire, &WhatShown::Stream(&kept)), changes.map(|record| record.encode()).collect())
}

fn bytes_of<'a>(fields: impl Iterator<Item = (&'a Bytes, &'a Bytes)>) -> usize {
    fields.map(|(field, value)| field.len() + value.len() + 6).sum()
}

/// Returns the bytes that the state of a stream takes as one record, about.
fn bytes_in_one(kept: &Kept) -> usize {
    kept.size() * DELIVERY + kept.names()
}

/// Returns the bytes that the state of a stream takes as a whole head, rounded up.
pub fn bytes_as_whole(kept: &Kept) -> usize {
    let in_one = bytes_in_one(kept);
    if in_one <= LONG {
        // Each pending entry has the length of a name, too.
        return in_one + in_one / 8 + (1 + kept.groups.len()) * FRAME;
    }
    let group = |(name, group): (&Bytes, &Group)| {
        let record = |consumer: &Bytes| name.len() + consumer.len() + FRAME;
        let consumers = group.consumers.bytes() + group.consumers.len() * (name.len() + FRAME);
        let deliveries = group.pending.counts().map(|(consumer, count)| {
            let ids = count * DELIVERY;
            ids + (1 + ids / PART) * record(consumer)
        });
        name.len() + FRAME + consumers + deliveries.sum::<usize>()
    };
    let gone = kept.gone.len() * ID;
    (2 + gone / PART) * FRAME + gone + kept.groups.iter().map(group).sum::<usize>()
}

fn encode_snapshot(expire: u64, what: &WhatShown<'_>) -> Bytes {
    let room = if let WhatShown::String(text) = what { text.len() + ROOM } else { ROOM };
    encode(&Shown::Snapshot { expire, what }, room)
}

fn encode(record: &impl Serialize, room: usize) -> Bytes {
    let mut entry = Vec::with_capacity(room);
    entry.push(VERSION);
    postcard::to_extend(record, entry).expect("memory takes it").into()
}

/// Splits the parts of a record, each with its size in bytes.
fn split<T>(parts: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let (mut all, mut bytes) = (Vec::new(), PART);
    for part in parts {
        if bytes >= PART {
            all.push(Vec::new());
            bytes = 0;
        }
        bytes += size(&part);
        if let Some(last) = all.last_mut() {
            last.push(part);
        }
    }
    all
}

impl Record {
    /// Encodes the record as an entry of the log.
    pub fn encode(&self) -> Bytes {
        encode(self, ROOM)
    }

    /// Returns whether the record may be longer than one entry should be.
    pub fn is_long(&self) -> bool {
        match self {
            Self::Put(fields) => bytes_of(fields.iter().map(|(field, value)| (field, value))) > PART,
            Self::Remove(fields) => fields.iter().map(|field| field.len() + 3).sum::<usize>() > PART,
            Self::Stream(Delta::Gone(ids) | Delta::Ack { ids, .. }) => ids.len() * ID > PART,
            Self::Stream(Delta::Deliver { ids, .. }) => ids.len() * DELIVERY > PART,
            _ => false,
        }
    }

    /// Splits a long record into several, which come to the same. A payload of the store has a
    /// limit, and a hash or a stream may have more parts.
    pub fn split(self) -> Vec<Self> {
        let id = |_: &Id| ID;
        match self {
            Self::Put(fields) => {
                let all = split(fields, |(field, value)| field.len() + value.len() + 6);
                all.into_iter().map(Self::Put).collect()
            }
            Self::Remove(fields) => {
                split(fields, |field| field.len() + 3).into_iter().map(Self::Remove).collect()
            }
            Self::Stream(Delta::Gone(ids)) => {
                split(ids, id).into_iter().map(|ids| Self::Stream(Delta::Gone(ids))).collect()
            }
            Self::Stream(Delta::Ack { group, ids }) => {
                let ack = |ids| Self::Stream(Delta::Ack { group: group.clone(), ids });
                split(ids, id).into_iter().map(ack).collect()
            }
            Self::Stream(Delta::Deliver { group, consumer, ids }) => {
                let deliver = |ids| {
                    let (group, consumer) = (group.clone(), consumer.clone());
                    Self::Stream(Delta::Deliver { group, consumer, ids })
                };
                split(ids, |_| DELIVERY).into_iter().map(deliver).collect()
            }
            record => vec![record],
        }
    }

    /// Decodes an entry; returns the reason if it is invalid.
    pub fn decode(entry: &[u8]) -> Result<Self, String> {
        match entry.split_first() {
            Some((&VERSION, rest)) => match postcard::take_from_bytes(rest) {
                Ok((record, [])) => Ok(record),
                Ok(_) => Err("bytes follow a record of it".into()),
                Err(error) => Err(format!("a record of it is malformed: {error}")),
            },
            Some((version, _)) => {
                Err(format!("a record of it is of version {version}, which this server does not read"))
            }
            None => Err("a record of it is empty".into()),
        }
    }
}

/// An entry that sets fields of a hash, decoded up to the fields.
pub struct Pairs {
    /// Expiry of the key, if the entry is a snapshot: then there are no earlier fields.
    pub expire: Option<u64>,
    /// Number of fields.
    pub count: usize,
    /// The fields with their values.
    pub rest: Bytes,
}

impl Pairs {
    /// Decodes the beginning of an entry; returns `None` if it sets no fields.
    pub fn of(entry: &Bytes) -> Option<Self> {
        // The numbers of the variants.
        const SNAPSHOT: u32 = 0;
        const PUT: u32 = 2;
        const HASH: u32 = 2;
        let rest = entry.strip_prefix(&[VERSION])?;
        let (variant, rest) = postcard::take_from_bytes::<u32>(rest).ok()?;
        let (expire, rest) = match variant {
            SNAPSHOT => {
                let ((expire, what), rest) = postcard::take_from_bytes::<(u64, u32)>(rest).ok()?;
                (what == HASH).then_some((Some(expire), rest))?
            }
            PUT => (None, rest),
            _ => return None,
        };
        let (count, rest) = postcard::take_from_bytes::<usize>(rest).ok()?;
        Some(Self { expire, count, rest: entry.slice_ref(rest) })
    }

    /// Takes the first field and its value off the rest; returns the reason if it is invalid.
    pub fn take(rest: &Bytes) -> Result<(Bytes, Bytes, Bytes), String> {
        match postcard::take_from_bytes::<(Bytes, Bytes)>(rest) {
            Ok(((field, value), after)) => Ok((field, value, rest.slice_ref(after))),
            Err(error) => Err(format!("a record of it is malformed: {error}")),
        }
    }
}

impl Snapshot {
    /// Folds the records of a head.
    pub fn fold(records: impl IntoIterator<Item = Result<Record, String>>) -> Result<Self, String> {
        let mut records = records.into_iter();
        let Some(Record::Snapshot(mut head)) = records.next().transpose()? else {
            return Err("it does not begin with a snapshot".into());
        };
        for record in records {
            match (record?, &mut head.what) {
                (Record::Snapshot(newer), _) => head = newer,
                (Record::Expire(at), _) => head.expire = at,
                (Record::Put(fields), What::Hash(all)) => all.extend(fields),
                (Record::Remove(fields), What::Hash(all)) => {
                    fields.iter().for_each(|field| drop(all.remove(field)));
                }
                (Record::Stream(delta), What::Stream(kept)) => kept.apply(delta),
                (record, what) => return Err(format!("{record:?} does not fit {what:?}")),
            }
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_head_stay_as_they_are() {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let snapshot = |what| Record::Snapshot(Snapshot { expire: 300, what });
        let id = Id { ms: 300, seq: 1 };
        let cases: [(Record, &[u8]); 9] = [
            (snapshot(What::List { has_left: true }), &[1, 0, 0xAC, 2, 0, 1]),
            (snapshot(What::String(bytes("hi"))), &[1, 0, 0xAC, 2, 1, 2, b'h', b'i']),
            (
                snapshot(What::Hash([(bytes("f"), bytes("v"))].into())),
                &[1, 0, 0xAC, 2, 2, 1, 1, b'f', 1, b'v'],
            ),
            (snapshot(What::Stream(Kept::default())), &[1, 0, 0xAC, 2, 3, 0, 0, 0, 0, 0, 0, 0]),
            (Record::Expire(0), &[1, 1, 0]),
            (Record::Put(vec![(bytes("f"), bytes("v"))]), &[1, 2, 1, 1, b'f', 1, b'v']),
            (Record::Remove(vec![bytes("f")]), &[1, 3, 1, 1, b'f']),
            (Record::Stream(Delta::Gone(vec![id])), &[1, 4, 1, 1, 0xAC, 2, 1]),
            (
                Record::Stream(Delta::Ack { group: bytes("g"), ids: vec![id] }),
                &[1, 4, 6, 1, b'g', 1, 0xAC, 2, 1],
            ),
        ];
        for (record, expected) in cases {
            assert_eq!(record.encode(), expected, "{record:?}");
            if let Record::Snapshot(Snapshot { expire, what }) = &record {
                let shown = match what {
                    What::List { has_left } => WhatShown::List { has_left: *has_left },
                    What::String(text) => WhatShown::String(text),
                    What::Hash(fields) => WhatShown::Hash(fields),
                    What::Stream(kept) => WhatShown::Stream(kept),
                };
                assert_eq!(encode_value(*expire, &shown), (expected.into(), Vec::new()));
            }
            assert_eq!(Record::decode(expected), Ok(record));
        }
    }

    #[test]
    fn a_long_record_is_split_and_comes_to_the_same() {
        let id = |ms| Id { ms, seq: 7 };
        let ids: Vec<Id> = (1..20_000).map(id).collect();
        let names: Vec<Bytes> = (0..20_000_u32).map(|n| n.to_string().into()).collect();
        let deliver = Delta::Deliver {
            group: names[1].clone(),
            consumer: names[2].clone(),
            ids: ids.iter().map(|id| (*id, u64::MAX, u64::MAX)).collect(),
        };
        let group = Delta::Group { name: names[1].clone(), last: id(9), read: None };
        let begin = [Record::Stream(group), Record::Stream(deliver.clone())];
        let stream = What::Stream(Kept::default());
        let hash = What::Hash(names.iter().map(|name| (name.clone(), Bytes::new())).collect());
        let ack = Delta::Ack { group: names[1].clone(), ids: ids[5..].to_vec() };
        let cases = [
            (stream.clone(), &begin[..1], Record::Stream(deliver)),
            (stream.clone(), &begin[..], Record::Stream(ack)),
            (stream, &begin[..1], Record::Stream(Delta::Gone(ids))),
            (hash.clone(), &begin[..0], Record::Put(names.iter().map(|n| (n.clone(), n.clone())).collect())),
            (hash, &begin[..0], Record::Remove(names[1..].to_vec())),
        ];
        for (what, before, record) in cases {
            let snapshot = Record::Snapshot(Snapshot { expire: 0, what });
            let whole = [&[snapshot.clone()][..], before, std::slice::from_ref(&record)].concat();
            assert!(record.is_long());
            let parts = record.split();
            assert!(parts.len() > 1 && parts.iter().all(|part| part.encode().len() < PART + 100));
            let split = [&[snapshot][..], before, &parts[..]].concat();
            let fold = |records: Vec<Record>| Snapshot::fold(records.into_iter().map(Ok)).unwrap();
            assert_eq!(fold(split), fold(whole));
        }
    }

    #[test]
    fn a_long_value_takes_several_records() {
        let names: Vec<Bytes> = (0..20_000_u32).map(|n| n.to_string().into()).collect();
        let fields: BTreeMap<Bytes, Bytes> = names.iter().map(|n| (n.clone(), n.clone())).collect();
        let id = |ms| Id { ms, seq: 7 };
        let mut kept = Kept::default();
        kept.meta.max_deleted = id(3);
        kept.gone.extend((1..9_000).map(id));
        for (at, group) in ["g", "h"].into_iter().enumerate() {
            let name = Bytes::from(group);
            kept.apply(Delta::Group { name: name.clone(), last: id(9), read: Some(4) });
            kept.apply(Delta::Consumer { group: name.clone(), name: names[at].clone(), seen: 8 });
            for consumer in 0..3 {
                let ids = (1..5_000).map(|n| (id(3 * n + consumer), n, n % 3 + 1)).collect();
                let consumer = names[consumer as usize].clone();
                kept.apply(Delta::Deliver { group: name.clone(), consumer, ids });
            }
        }
        let cases = [
            (WhatShown::Hash(&fields), What::Hash(fields.clone())),
            (WhatShown::Stream(&kept), What::Stream(kept.clone())),
        ];
        for (shown, what) in cases {
            let (snapshot, changes) = encode_value(5, &shown);
            assert!(changes.len() > 5 && changes.iter().all(|entry| entry.len() < PART + 100));
            let entries = std::iter::once(&snapshot).chain(&changes);
            let head = Snapshot::fold(entries.map(|entry| Record::decode(entry))).unwrap();
            assert_eq!(head, Snapshot { expire: 5, what });
        }
    }

    /// In the old state groups with consumers of long names were one record, whatever its length.
    #[test]
    fn names_of_groups_and_consumers_count() {
        let mut kept = Kept::default();
        for group in 0..20_u32 {
            let group = Bytes::from(format!("{group}").repeat(5_000));
            kept.apply(Delta::Group { name: group.clone(), last: Id::default(), read: None });
            for consumer in 0..10_u32 {
                let name = Bytes::from(format!("{consumer}").repeat(5_000));
                kept.apply(Delta::Consumer { group: group.clone(), name, seen: 8 });
            }
        }
        let (snapshot, changes) = encode_value(5, &WhatShown::Stream(&kept));
        let entries = std::iter::once(&snapshot).chain(&changes);
        assert!(entries.clone().all(|entry| entry.len() < PART));
        let len: usize = entries.clone().map(Bytes::len).sum();
        assert!((len..len + len / 8).contains(&bytes_as_whole(&kept)));
        let head = Snapshot::fold(entries.map(|entry| Record::decode(entry))).unwrap();
        assert_eq!(head.what, What::Stream(kept));
    }

    /// In the old state this took the square: minutes.
    #[test]
    fn many_removed_fields_cost_no_square() {
        let names: Vec<Bytes> = (0..100_000_u32).map(|n| n.to_string().into()).collect();
        let hash = names.iter().map(|name| (name.clone(), Bytes::new())).collect();
        let snapshot = Record::Snapshot(Snapshot { expire: 0, what: What::Hash(hash) });
        let removed = Record::Remove(names[1..].to_vec());
        let head = Snapshot::fold([Ok(snapshot), Ok(removed)]).unwrap();
        assert_eq!(head.what, What::Hash([(names[0].clone(), Bytes::new())].into()));
    }

    #[test]
    fn what_is_no_head_is_told() {
        assert!(Record::decode(&[]).unwrap_err().contains("empty"));
        assert!(Record::decode(&[2, 1, 0]).unwrap_err().contains("version 2"));
        assert!(Record::decode(&[1, 1, 0, 0]).unwrap_err().contains("follow"));
        assert!(Record::decode(&[1, 99]).unwrap_err().contains("is malformed"));
        let put = || Ok(Record::Put(Vec::new()));
        assert!(Snapshot::fold([put()]).is_err());
        assert!(Snapshot::fold([]).is_err());
        let list = Snapshot { expire: 0, what: What::List { has_left: false } };
        assert!(Snapshot::fold([Ok(Record::Snapshot(list)), put()]).unwrap_err().contains("does not fit"));
    }

    #[test]
    fn a_head_is_what_its_records_made_of_it() {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let hash = Snapshot { expire: 0, what: What::Hash(BTreeMap::new()) };
        let pair = |field, value| (bytes(field), bytes(value));
        let records = [
            Record::Snapshot(hash),
            Record::Put(vec![pair("a", "1"), pair("b", "2")]),
            Record::Expire(7),
            Record::Remove(vec![bytes("a")]),
            Record::Put(vec![pair("b", "3")]),
        ];
        let head = Snapshot::fold(records.map(Ok)).unwrap();
        assert_eq!(head, Snapshot { expire: 7, what: What::Hash([pair("b", "3")].into()) });
    }
}
