//! The record of a backup: its contents and their places.
//!
//! ```text
//! record (little endian), the object `backups/<number, 20 digits>`
//!    0  8  "BRKBACKP"
//!    8  4  version: 1, or 2 where something is damaged
//!   12  8  number of the backup; each has the next one, and the first has 0
//!   20 16  a number that nobody else draws
//!   36 16  id of the store
//!   52  8  when it was taken, in milliseconds since the Unix epoch, by the store's clock, which may be set back
//!   60  8  bytes of the objects of each upload, but for the last one of it, which is as long as it needs
//!   68  …  then each with its length, or count, in 4 bytes before it:
//!             bytes of text: who wrote it
//!             bytes of the table of parts, as `View::table` gives it
//!             uploads: each the number of a backup (8) and the number drawn for it (16)
//!             objects: each its upload (4), counted in this list, its place in that (4), its length (4), its XXH3-64 (8)
//!             parts: each the checksum of its footer (8), its length (8), its upload (4), the byte of that at which it
//!             begins (8), and its last 128 bytes: a reader begins with those
//!             in version 2, damaged parts: each the checksum of its footer (8) and its length (8)
//!   then 8 XXH3-64 of all before
//! ```
//!
//! A damaged part that is also in the list of parts was stored with its damage. A damaged part that
//! is not in that list could not be read.
//!
//! A backup uploads its new parts as one string of bytes, part after part, cut into objects of one
//! length. The objects are named
//! `bundles/<number, 20 digits>-<number drawn, base 16>/<place, 8 digits>`. So the number of
//! objects depends on the bytes, and not on the number of parts and logs, and the objects of a
//! backup that was given up conflict with no other backup.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use brooklet::PartName;
use twox_hash::XxHash3_64;

const MAGIC: &[u8; 8] = b"BRKBACKP";
/// Version of records with damaged parts. Others have version 1, which older versions of Brooklet
/// read.
pub(crate) const VERSION: u32 = 2;
/// Number of bytes before the text.
pub(crate) const HEAD: usize = 68;
/// Number of bytes at the end of a part that the record holds.
pub(crate) const TAIL: usize = 128;

/// The identity of the upload of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Upload {
    pub number: u64,
    pub drawn: u128,
}

impl Upload {
    /// Returns the name of one of its objects.
    pub fn object(self, place: u32) -> String {
        format!("{}{place:08}", self.folder())
    }

    /// Returns the begin of the names of its objects.
    pub fn folder(self) -> String {
        format!("{BUNDLES}/{:020}-{:032x}/", self.number, self.drawn)
    }
}

/// The folder of all bundles.
pub(crate) const BUNDLES: &str = "bundles";
/// The folder of all shipped commits.
pub(crate) const COMMITS: &str = "commits";
/// The folder of all records.
pub(crate) const BACKUPS: &str = "backups";

/// The contents of the record of a removed backup. The number stays taken, so that a host that was
/// stopped for long does not find that number free.
pub(crate) const TOMBSTONE: &[u8; 8] = b"BRKPRUND";
/// The name of an object that is written before tombstones are removed. A bucket that has the
/// object has had backups, even if its list shows none.
pub(crate) const IN_USE: &str = "in-use";

/// Returns the name of a backup's record.
pub(crate) fn name_of(number: u64) -> String {
    format!("{BACKUPS}/{number:020}")
}

/// Returns the number at the beginning of the rest of a name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.get(..20)?;
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// An object of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub len: u32,
    pub sum: u64,
}

/// The place of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub upload: Upload,
    /// Offset of the part in the upload, in bytes.
    pub start: u64,
    pub tail: [u8; TAIL],
}

/// The record of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub number: u64,
    pub drawn: u128,
    pub store: u128,
    pub taken: u64,
    pub object_len: u64,
    pub owner: String,
    pub table: Vec<u8>,
    pub objects: BTreeMap<(Upload, u32), Object>,
    pub parts: BTreeMap<PartName, Place>,
    /// The parts that were damaged when the backup was made. The ones that are not in `parts` could
    /// not be read.
    pub damaged: BTreeSet<PartName>,
}

/// The beginning of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub version: u32,
    pub number: u64,
    pub drawn: u128,
    pub store: u128,
    pub taken: u64,
    pub object_len: u64,
}

/// The reason why bytes are no valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    Version(u32),
    Other(&'static str),
}

impl From<&'static str> for Defect {
    fn from(what: &'static str) -> Self {
        Defect::Other(what)
    }
}

impl Record {
    pub fn upload(&self) -> Upload {
        Upload { number: self.number, drawn: self.drawn }
    }

    /// Returns the size of its parts in bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.keys().map(|part| part.len).sum()
    }

    /// Returns the names of all its parts, with those that could not be read.
    pub fn names(&self) -> impl Iterator<Item = &PartName> {
        let all: BTreeSet<&PartName> = self.parts.keys().chain(&self.damaged).collect();
        all.into_iter()
    }

    /// Returns the number of bytes that the backup added to the archive.
    pub fn added(&self) -> u64 {
        let own = self.upload();
        self.objects
            .iter()
            .filter(|((upload, _), _)| *upload == own)
            .map(|(_, object)| u64::from(object.len))
            .sum()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(if self.damaged.is_empty() { 1 } else { VERSION }.to_le_bytes());
        out.extend(self.number.to_le_bytes());
        out.extend(self.drawn.to_le_bytes());
        out.extend(self.store.to_le_bytes());
        out.extend(self.taken.to_le_bytes());
        out.extend(self.object_len.to_le_bytes());
        let count = |out: &mut Vec<u8>, n: usize| {
            out.extend(u32::try_from(n).expect("nothing here is that long").to_le_bytes());
        };
        for bytes in [self.owner.as_bytes(), &self.table] {
            count(&mut out, bytes.len());
            out.extend(bytes);
        }
        let mut uploads: Vec<Upload> = self.objects.keys().map(|(upload, _)| *upload).collect();
        uploads.dedup();
        let place =
            |upload: &Upload| uploads.binary_search(upload).expect("what a part lies in is there") as u32;
        count(&mut out, uploads.len());
        for upload in &uploads {
            out.extend(upload.number.to_le_bytes());
            out.extend(upload.drawn.to_le_bytes());
        }
        count(&mut out, self.objects.len());
        for ((upload, at), object) in &self.objects {
            for number in [place(upload), *at, object.len] {
                out.extend(number.to_le_bytes());
            }
            out.extend(object.sum.to_le_bytes());
        }
        count(&mut out, self.parts.len());
        for (name, Place { upload, start, tail }) in &self.parts {
            out.extend(name.footer_sum.to_le_bytes());
            out.extend(name.len.to_le_bytes());
            out.extend(place(upload).to_le_bytes());
            out.extend(start.to_le_bytes());
            out.extend(tail);
        }
        if !self.damaged.is_empty() {
            count(&mut out, self.damaged.len());
            for name in &self.damaged {
                out.extend(name.footer_sum.to_le_bytes());
                out.extend(name.len.to_le_bytes());
            }
        }
        let sum = XxHash3_64::oneshot(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    pub fn decode(data: &[u8]) -> Result<Self, Defect> {
        let RecordHead { version, number, drawn, store, taken, object_len } = RecordHead::decode(data)?;
        let (all, sum) = data.split_last_chunk::<8>().ok_or("it is truncated")?;
        if XxHash3_64::oneshot(all) != u64::from_le_bytes(*sum) {
            return Err("its checksum does not match".into());
        }
        let mut rest = Rest(all.get(HEAD..).ok_or("it is truncated")?);
        let owner = String::from_utf8_lossy(rest.bytes()?).into_owned();
        let table = rest.bytes()?.to_vec();
        let uploads = rest.list(24, |rest| Ok(Upload { number: rest.u64()?, drawn: rest.u128()? }))?;
        if !uploads.is_sorted_by(|a, b| a < b) {
            return Err("its uploads are out of order".into());
        }
        let upload = |at: u32| {
            uploads.get(at as usize).copied().ok_or("it places data in an upload that it does not list")
        };
        let objects = rest.list(20, |rest| {
            let (of, at) = (upload(rest.u32()?)?, rest.u32()?);
            Ok(((of, at), Object { len: rest.u32()?, sum: rest.u64()? }))
        })?;
        let parts = rest.list(28 + TAIL, |rest| {
            let name = rest.name()?;
            let (upload, start) = (upload(rest.u32()?)?, rest.u64()?);
            Ok((name, Place { upload, start, tail: *rest.array()? }))
        })?;
        let damaged = if version > 1 { rest.list(16, Rest::name)? } else { Vec::new() };
        if !rest.0.is_empty() {
            return Err("it has data past its end".into());
        }
        let (objects, parts) = (objects.into_iter().collect(), parts.into_iter().collect());
        let damaged = damaged.into_iter().collect();
        let record = Self { number, drawn, store, taken, object_len, owner, table, objects, parts, damaged };
        record
            .parts
            .iter()
            .all(|(name, place)| record.holds(name, place))
            .then_some(())
            .ok_or("the place of a part is missing")?;
        Ok(record)
    }

    /// Returns whether the record has all objects of a part, each long enough.
    fn holds(&self, name: &PartName, place: &Place) -> bool {
        let Some(end) = place.start.checked_add(name.len) else { return false };
        if self.object_len == 0 || name.len < TAIL as u64 {
            return false;
        }
        let Ok(last) = u32::try_from((end - 1) / self.object_len) else { return false };
        let first = (place.start / self.object_len) as u32;
        (first..=last).all(|at| {
            let needed = (end - u64::from(at) * self.object_len).min(self.object_len);
            self.objects.get(&(place.upload, at)).is_some_and(|object| u64::from(object.len) >= needed)
        })
    }

    /// Returns the objects of a range of bytes of an upload, and the range in each of them.
    pub fn pieces(object_len: u64, bytes: Range<u64>) -> impl Iterator<Item = (u32, Range<u64>)> {
        let (first, last) = (bytes.start / object_len, bytes.end.div_ceil(object_len));
        (first..last).map(move |at| {
            let begin = at * object_len;
            (at as u32, bytes.start.max(begin) - begin..bytes.end.min(begin + object_len) - begin)
        })
    }
}

impl RecordHead {
    /// Decodes the beginning of a record. The checksum covers the whole record, and is not checked.
    pub fn decode(data: &[u8]) -> Result<Self, Defect> {
        let rest = data.strip_prefix(MAGIC).ok_or("it is not a record of a backup")?;
        let mut rest = Rest(rest);
        let version = rest.u32()?;
        if !(1..=VERSION).contains(&version) {
            return Err(Defect::Version(version));
        }
        Ok(Self {
            version,
            number: rest.u64()?,
            drawn: rest.u128()?,
            store: rest.u128()?,
            taken: rest.u64()?,
            object_len: rest.u64()?,
        })
    }
}

/// The bytes that are not decoded yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Defect> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("it is truncated")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Defect> {
        Ok(self.take(N)?.try_into().expect("it is that long"))
    }

    fn u32(&mut self) -> Result<u32, Defect> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Result<u64, Defect> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn name(&mut self) -> Result<PartName, Defect> {
        Ok(PartName { footer_sum: self.u64()?, len: self.u64()? })
    }

    fn u128(&mut self) -> Result<u128, Defect> {
        self.array().map(|bytes| u128::from_le_bytes(*bytes))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Defect> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    fn list<T>(
        &mut self,
        each: usize,
        mut decode: impl FnMut(&mut Self) -> Result<T, Defect>,
    ) -> Result<Vec<T>, Defect> {
        let count = self.u32()? as usize;
        if count.checked_mul(each).is_none_or(|len| len > self.0.len()) {
            return Err("it is truncated".into());
        }
        (0..count).map(|_| decode(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record {
        let [old, own] = [(3, 7), (5, 9)].map(|(number, drawn)| Upload { number, drawn });
        let object = |len, sum| Object { len, sum };
        let place = |upload, start, with| Place { upload, start, tail: [with; TAIL] };
        Record {
            number: 5,
            drawn: 9,
            store: 1 << 100,
            taken: 1_700_000_000_000,
            object_len: 1000,
            owner: "a host".into(),
            table: b"a table".to_vec(),
            objects: [((old, 2), object(1000, 1)), ((old, 3), object(300, 2)), ((own, 0), object(640, 3))]
                .into(),
            parts: [
                (PartName { footer_sum: 11, len: 600 }, place(old, 2700, 1)),
                (PartName { footer_sum: 12, len: 500 }, place(own, 140, 2)),
            ]
            .into(),
            damaged: BTreeSet::new(),
        }
    }

    /// One of its parts is damaged, and one is not to be had.
    fn damaged() -> Record {
        let damaged = [(12, 500), (13, 700)].map(|(footer_sum, len)| PartName { footer_sum, len }).into();
        Record { damaged, ..sample() }
    }

    #[test]
    fn what_was_written_is_read() {
        let record = sample();
        assert_eq!(Record::decode(&record.encode()), Ok(record.clone()));
        assert_eq!(Record::decode(&damaged().encode()), Ok(damaged()));
        assert_eq!((record.bytes(), record.added()), (1100, 640));
        assert_eq!(number_of(name_of(17).strip_prefix("backups/").unwrap()), Some(17));
        assert_eq!(number_of("0000000000000000001"), None);
        assert_eq!(number_of("+0000000000000000001"), None);
    }

    /// A difference means that the format changed: then its version is bumped, and a new golden
    /// file joins this one.
    #[test]
    fn the_golden_record_is_written_and_read_as_it_always_was() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        for (version, record) in [(1, sample()), (2, damaged())] {
            let path = format!("{golden}/v{version}.backup");
            if std::env::var_os("BROOKLET_WRITE_GOLDEN").is_some() {
                std::fs::write(&path, record.encode()).unwrap();
            }
            let golden = std::fs::read(&path).unwrap();
            assert!(golden == record.encode());
            assert_eq!(Record::decode(&golden), Ok(record));
            let mut newer = golden;
            newer[8] = 3;
            assert_eq!(Record::decode(&newer), Err(Defect::Version(3)));
        }
    }

    #[test]
    fn nothing_else_is_taken_for_a_record() {
        let data = damaged().encode();
        for bit in 0..data.len() * 8 {
            let mut damaged = data.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&damaged).is_err(), "bit {bit}");
        }
        for cut in 0..data.len() {
            assert!(Record::decode(&data[..cut]).is_err(), "cut to {cut}");
        }
    }

    /// Its checksum may fit all the same.
    #[test]
    fn what_it_says_must_make_sense() {
        let refused = |change: fn(&mut Record)| {
            let mut record = sample();
            change(&mut record);
            Record::decode(&record.encode()).unwrap_err()
        };
        let nowhere = Defect::Other("the place of a part is missing");
        assert_eq!(refused(|record| record.object_len = 0), nowhere);
        assert_eq!(
            refused(|record| record.parts.values_mut().for_each(|place| place.start = u64::MAX - 3)),
            nowhere
        );
        assert_eq!(refused(|record| record.parts.values_mut().for_each(|place| place.start += 1)), nowhere);
        assert_eq!(refused(|record| record.objects.retain(|(_, at), _| *at != 2)), nowhere);
    }

    #[test]
    fn pieces_are_all_of_it_in_order() {
        let pieces = |bytes| Record::pieces(1000, bytes).collect::<Vec<_>>();
        assert_eq!(pieces(2700..3300), [(2, 700..1000), (3, 0..300)]);
        assert_eq!(pieces(1000..2000), [(1, 0..1000)]);
        assert_eq!(pieces(5..7), [(0, 5..7)]);
        assert_eq!(pieces(999..3001), [(0, 999..1000), (1, 0..1000), (2, 0..1000), (3, 0..1)]);
        assert_eq!(pieces(7..7).len(), 1);
    }
}
