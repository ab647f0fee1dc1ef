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

use super::stream::{Delta, Kept};

const VERSION: u8 = 1;

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

impl Record {
    /// Encodes the record as an entry of the log.
    pub fn encode(&self) -> Bytes {
        let encoded = postcard::to_extend(self, vec![VERSION]).expect("memory takes it");
        encoded.into()
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
    use crate::redis::keys::stream::Id;

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
            assert_eq!(Record::decode(expected), Ok(record));
        }
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
