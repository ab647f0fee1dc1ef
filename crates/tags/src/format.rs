//! The logs of tagged records, and the format of their entries. This is the only description of
//! both.
//!
//! All keys begin with the name and a slash, so the name can be the name of a space. Numbers are
//! varints, unless stated otherwise; a string is its length and its bytes.
//!
//! ```text
//! name/r/<id>       a record: its last entry counts
//!                   1 (version), ordinal (8 bytes, little endian), number of tags, the tags, ascending; the rest is the payload
//! name/j/<window>   the journal: entry n of window w is change w * 65536 + n, its ordinal; the window is 12 hex digits
//!                   1 a record was put, 2 it was removed; ordinal of what it replaces, and one more (0: nothing); its id
//! name/t/<tag>      the ordinals of records with the tag, in blocks, one an entry: ascending, each as the difference to the
//!                   one before. One may be in several blocks
//! name/x/<window>   ordinals of a window that count no more, by their lower 16 bits: a Roaring bitmap, in its portable format
//! name/w            1 (version), the ordinal up to which `t` and `x` tell of all changes; what follows, the journal does
//! ```
//!
//! Each put is one commit of the record and the change. So after a crash at any point, the journal
//! has the changes that the other logs lack. Those logs are brought up to date from time to time,
//! in several commits; the last of these commits writes `w`.

use brooklet_wal::{put_varint, take_varint};
use roaring::{RoaringBitmap, RoaringTreemap};

use crate::error::{Error, Result};
use crate::limits::{MAX_ID, MAX_NAME, MAX_TAG, MAX_TAGS};

/// Number of ordinals of a window.
pub(crate) const WINDOW: u64 = 1 << 16;

const VERSION: u8 = 1;

/// The keys of the logs of a name.
#[derive(Clone, Debug)]
pub(crate) struct Keys(String);

impl Keys {
    pub fn of(name: &str) -> Result<Self> {
        let lawful = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(lawful) {
            return Err(Error::InvalidName(name.escape_debug().to_string()));
        }
        Ok(Self(name.into()))
    }

    fn key(&self, kind: &str, rest: &[u8]) -> Vec<u8> {
        [self.0.as_bytes(), b"/", kind.as_bytes(), rest].concat()
    }

    pub fn record(&self, id: &[u8]) -> Vec<u8> {
        self.key("r/", id)
    }

    pub fn journal(&self, window: u64) -> Vec<u8> {
        self.key("j/", format!("{window:012x}").as_bytes())
    }

    pub fn tag(&self, tag: &[u8]) -> Vec<u8> {
        self.key("t/", tag)
    }

    pub fn dead(&self, window: u64) -> Vec<u8> {
        self.key("x/", format!("{window:012x}").as_bytes())
    }

    /// Returns the prefix of the keys of all windows with dead ordinals.
    pub fn all_dead(&self) -> Vec<u8> {
        self.key("x/", b"")
    }

    pub fn watermark(&self) -> Vec<u8> {
        self.key("w", b"")
    }
}

/// A change in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub removes: bool,
    /// The ordinal of the record that the change replaces or removes.
    pub old: Option<u64>,
    pub id: Vec<u8>,
}

fn varint(out: &mut Vec<u8>, number: u64) {
    put_varint(&mut |bytes| out.extend_from_slice(bytes), number);
}

impl Change {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![if self.removes { 2 } else { 1 }];
        varint(&mut out, self.old.map_or(0, |old| old + 1));
        out.extend_from_slice(&self.id);
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&kind, mut rest) = bytes.split_first()?;
        let old = take_varint(&mut rest)?.checked_sub(1);
        let lawful = matches!(kind, 1 | 2) && (1..=MAX_ID).contains(&rest.len());
        lawful.then(|| Self { removes: kind == 2, old, id: rest.to_vec() })
    }
}

/// Encodes a record; its tags must be in ascending order.
pub(crate) fn encode_record(ordinal: u64, tags: &[Vec<u8>], payload: &[u8]) -> Vec<u8> {
    let mut out =
        Vec::with_capacity(payload.len() + tags.iter().map(|tag| tag.len() + 2).sum::<usize>() + 12);
    out.push(VERSION);
    out.extend_from_slice(&ordinal.to_le_bytes());
    varint(&mut out, tags.len() as u64);
    for tag in tags {
        varint(&mut out, tag.len() as u64);
        out.extend_from_slice(tag);
    }
    out.extend_from_slice(payload);
    out
}

/// Returns a record's ordinal, its tags, and the offset of its payload.
pub(crate) fn decode_record(bytes: &[u8]) -> Option<(u64, Vec<Vec<u8>>, usize)> {
    let (&[VERSION, a, b, c, d, e, f, g, h], mut rest) = bytes.split_first_chunk::<9>()? else { return None };
    let ordinal = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let count = take_varint(&mut rest)?;
    let mut tags = Vec::new();
    for _ in 0..count {
        let len = take_varint(&mut rest)?;
        let (tag, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        tags.push(tag.to_vec());
        rest = after;
    }
    Some((ordinal, tags, bytes.len() - rest.len()))
}

/// Encodes ordinals, which must be in ascending order.
pub(crate) fn encode_block(ordinals: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let (mut out, mut last) = (Vec::new(), 0);
    for ordinal in ordinals {
        varint(&mut out, ordinal - last);
        last = ordinal;
    }
    out
}

/// Adds the ordinals of a block to a set.
pub(crate) fn decode_block(mut block: &[u8], to: &mut RoaringTreemap) -> Option<()> {
    let mut ordinals = Vec::new();
    let mut last = 0u64;
    while !block.is_empty() {
        last = last.checked_add(take_varint(&mut block)?)?;
        ordinals.push(last);
    }
    // Ordinals after the largest ordinal in the set are added in one step.
    let begins = to.max().map_or(0, |max| max + 1);
    match ordinals.first().is_some_and(|first| *first >= begins) {
        true => drop(to.append(ordinals).ok()?),
        false => to.extend(ordinals),
    }
    Some(())
}

/// Returns the lower 16 bits of a set's ordinals in a window.
pub(crate) fn of_window(set: &RoaringTreemap, window: u64) -> RoaringBitmap {
    // A treemap consists of bitmaps of 2^32 ordinals each.
    let (upper, start) = ((window * WINDOW) >> 32, (window * WINDOW) as u32);
    let bitmap = set.bitmaps().find(|(at, _)| u64::from(*at) == upper);
    let range = start..=start + (WINDOW - 1) as u32;
    bitmap
        .into_iter()
        .flat_map(|(_, bitmap)| bitmap.range(range.clone()))
        .map(|ordinal| ordinal - start)
        .collect()
}

/// Encodes the dead ordinals of a window.
pub(crate) fn encode_dead(dead: &RoaringTreemap, window: u64) -> Vec<u8> {
    let mut low = of_window(dead, window);
    low.optimize();
    let mut out = Vec::with_capacity(low.serialized_size());
    low.serialize_into(&mut out).expect("memory takes it");
    out
}

/// Adds the dead ordinals of a window to a set.
pub(crate) fn decode_dead(bytes: &[u8], window: u64, to: &mut RoaringTreemap) -> Option<()> {
    let low = RoaringBitmap::deserialize_from(bytes).ok()?;
    let start = window.checked_mul(WINDOW)?;
    if low.max().is_some_and(|max| u64::from(max) >= WINDOW) {
        return None;
    }
    to.extend(low.iter().map(|low| start + u64::from(low)));
    Some(())
}

pub(crate) fn encode_watermark(upto: u64) -> Vec<u8> {
    let mut out = vec![VERSION];
    varint(&mut out, upto);
    out
}

pub(crate) fn decode_watermark(bytes: &[u8]) -> Option<u64> {
    let (&[VERSION], mut rest) = bytes.split_first_chunk()? else { return None };
    take_varint(&mut rest).filter(|_| rest.is_empty())
}

/// Returns the tags of a record in ascending order, without duplicates.
pub(crate) fn check_tags<T: AsRef<[u8]>>(tags: impl IntoIterator<Item = T>) -> Result<Vec<Vec<u8>>> {
    let mut tags: Vec<Vec<u8>> = tags.into_iter().map(|tag| tag.as_ref().to_vec()).collect();
    if let Some(tag) = tags.iter().find(|tag| tag.is_empty() || tag.len() > MAX_TAG) {
        return Err(Error::InvalidTag { len: tag.len() });
    }
    tags.sort_unstable();
    tags.dedup();
    if tags.len() > MAX_TAGS { Err(Error::TooManyTags(tags.len())) } else { Ok(tags) }
}

pub(crate) fn check_id(id: &[u8]) -> Result<()> {
    if (1..=MAX_ID).contains(&id.len()) { Ok(()) } else { Err(Error::InvalidId { len: id.len() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are on somebody's disk.
    #[test]
    fn formats_stay_what_they_are() {
        let tags = [b"a".to_vec(), b"bc".to_vec()];
        let record = encode_record(258, &tags, b"payload");
        assert_eq!(record, b"\x01\x02\x01\0\0\0\0\0\0\x02\x01a\x02bcpayload");
        assert_eq!(decode_record(&record), Some((258, tags.to_vec(), 15)));
        let change = Change { removes: false, old: Some(299), id: b"id".to_vec() };
        assert_eq!(change.encode(), b"\x01\xac\x02id");
        assert_eq!(Change::decode(b"\x01\xac\x02id"), Some(change));
        let removed = Change { removes: true, old: None, id: b"id".to_vec() };
        assert_eq!((removed.encode(), Change::decode(b"\x02\0id")), (b"\x02\0id".to_vec(), Some(removed)));
        assert_eq!(encode_block([3, 5, 305]), b"\x03\x02\xac\x02");
        assert_eq!(
            (encode_watermark(300), decode_watermark(b"\x01\xac\x02")),
            (b"\x01\xac\x02".to_vec(), Some(300))
        );
        let dead: RoaringTreemap = [65535, 65536, 65539].into_iter().collect();
        let window = encode_dead(&dead, 1);
        assert_eq!(window, b"\x3a\x30\0\0\x01\0\0\0\0\0\x01\0\x10\0\0\0\0\0\x03\0");
        let keys = Keys::of("n").unwrap();
        assert_eq!(keys.journal(26), b"n/j/00000000001a");
        assert_eq!(
            (keys.record(b"i"), keys.tag(b"t"), keys.watermark()),
            (b"n/r/i".to_vec(), b"n/t/t".to_vec(), b"n/w".to_vec())
        );
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        for bytes in
            [&b""[..], b"\x02", b"\x01\0\0\0\0\0\0\0\0\x01\x05a", b"\x01\0\0\0\0\0\0\0\0\xff\xff\xff\xff\x0f"]
        {
            assert_eq!(decode_record(bytes), None, "{bytes:?}");
        }
        for bytes in [&b""[..], b"\x03\0id", b"\x01\0", b"\x01"] {
            assert_eq!(Change::decode(bytes), None, "{bytes:?}");
        }
        let mut none = RoaringTreemap::new();
        assert_eq!(decode_block(b"\x80", &mut none), None);
        assert_eq!(decode_block(b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", &mut none), None);
        assert!(decode_dead(b"nonsense", 0, &mut none).is_none());
        assert_eq!(
            (decode_watermark(b""), decode_watermark(b"\x02\0"), decode_watermark(b"\x01\0\0")),
            (None, None, None)
        );
    }
}
