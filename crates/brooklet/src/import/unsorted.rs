//! Entries that come in any order, on their way into logs.
//!
//! They are sorted by their log, and within it as they came, in a codex file at work:
//!
//! ```text
//! key    = as that of a chunk (`piece.rs`): the log, and when it came: 0 for what was said of the log itself, else 1 and up
//! value  = the payload
//!        | of 0: the log's first number, most entries, bytes and milliseconds, each plus 1, or 0 for no limit (varints)
//! ```

use std::fmt;
use std::path::Path;
use std::time::Duration;

use brooklet_codex::{BuilderOptions, Bytes, Cursor, Duplicates, FileBuilder, FileOptions, Map, Reader};
use brooklet_wal::{put_varint, take_varint};
use tempfile::TempDir;

use super::run::NewRun;
use super::{Import, Imported};
use crate::engine::check_key;
use crate::error::{Error, KeyText};
use crate::merge::Pending;
use crate::model::{Bounds, Piece};
use crate::piece::{PieceWriter, put_chunk_key, split_key};
use crate::retain::Retention;
use crate::terms::Terms;

/// Bytes of a log that are held in memory; of a longer one the rest is counted before it is read.
const HELD: usize = 1 << 20;

/// An import of entries in any order; see [`Store::import`](crate::Store::import). Dropping it leaves nothing behind.
pub struct Unsorted {
    import: Import,
    sorter: FileBuilder,
    dir: TempDir,
    key: Vec<u8>,
    came: u64,
}

impl Unsorted {
    pub(super) fn new(import: Import, scratch: &Path) -> Result<Self, Error> {
        import.store.inner().wal()?;
        let dir = tempfile::Builder::new().prefix(".brooklet-import-").tempdir_in(scratch);
        let dir = dir.map_err(Error::io("making a folder for an import"))?;
        let blocks = BuilderOptions { bits_per_item: 0, ..BuilderOptions::default() };
        let options = FileOptions {
            blocks,
            memory: import.memory,
            duplicates: Duplicates::Last,
            ..FileOptions::default()
        };
        let sorter = FileBuilder::new(dir.path().join("sorted"), options).map_err(scratch_error)?;
        Ok(Self { import, sorter, dir, key: Vec::new(), came: 0 })
    }

    /// Adds an entry to a log of the import, behind those that came before it.
    ///
    /// # Errors
    /// [`Error::InvalidKey`] and [`Error::PayloadTooLarge`] leave the import as it was; after [`Error::Io`] it is over.
    pub fn append(&mut self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<(), Error> {
        let (key, payload) = (key.as_ref(), payload.as_ref());
        check_key(key)?;
        let limit = self.import.store.inner().options.max_payload;
        if payload.len() > limit {
            return Err(Error::PayloadTooLarge { len: payload.len(), limit });
        }
        self.came += 1;
        self.put(key, self.came, payload)
    }

    /// Says of a log of the import that its first entry has the number `first`, and what it keeps: 0, and everything, where
    /// nothing is said. It need not get any entry. What is said last counts.
    ///
    /// A limit of entries is applied at once, one of bytes with the next commit on the log; ages count from the import on.
    ///
    /// # Errors
    /// [`Error::InvalidKey`] and [`Error::InvalidRetention`] leave the import as it was; after [`Error::Io`] it is over.
    pub fn log(&mut self, key: impl AsRef<[u8]>, first: u64, retention: Retention) -> Result<(), Error> {
        check_key(key.as_ref())?;
        retention.check()?;
        self.put(key.as_ref(), 0, &encode(first, retention))
    }

    fn put(&mut self, key: &[u8], number: u64, value: &[u8]) -> Result<(), Error> {
        self.key.clear();
        put_chunk_key(key, number, &mut self.key);
        self.sorter.add(&self.key, value).map_err(scratch_error)
    }

    /// Makes the logs part of the store.
    ///
    /// # Errors
    /// As [`Import::view`].
    pub fn finish(self) -> Result<Imported, Error> {
        let Self { import, sorter, dir, .. } = self;
        let path = dir.path().join("sorted");
        let len = sorter.finish().map_err(scratch_error)?.len;
        let mut run = import.begin()?;
        copy(&path, len, &mut run)?;
        // Before the store has them: whatever is left behind then is of no use.
        dir.close().map_err(Error::io("removing files at work"))?;
        run.finish()
    }
}

/// Writes all logs of the file at work as pieces.
fn copy(path: &Path, len: u64, run: &mut NewRun) -> Result<(), Error> {
    let map = Map::open(path).map_err(Error::io("reading a file at work"))?;
    let reader = Reader::open(map, len, None).map_err(scratch_error)?;
    let now = run.now();
    let mut pieces = PieceWriter::new(Pending::new(0));
    let mut cursor = reader.cursor();
    cursor.next().map_err(scratch_error)?;
    while cursor.valid() {
        copy_log(&mut cursor, &mut pieces, run, now)?;
    }
    Ok(())
}

/// Writes the log that the cursor is at as a piece, and moves on to the next.
fn copy_log(
    cursor: &mut Sorted<'_>,
    pieces: &mut PieceWriter<Pending>,
    run: &mut NewRun,
    now: u64,
) -> Result<(), Error> {
    let log = Log::begin(cursor)?;
    let held = log.hold(cursor)?;
    let (count, bytes) = log.count(&held, cursor)?;
    let Retention { entries: most, .. } = log.retention;
    let drops = most.map_or(0, |most| count.saturating_sub(most));
    let bounds = log.first.checked_add(count).map(|next| Bounds { first: log.first + drops, next });
    let bounds = bounds.ok_or_else(|| {
        let Log { key, first, .. } = &log;
        let key = KeyText::of(key);
        Error::InvalidImport(format!("log {key} begins with {first}, and has no numbers for {count} entries"))
    })?;
    let terms = Terms::of(log.retention, bounds, bytes, now);
    pieces.begin(&log.key, Piece { bounds: Some(bounds), base: 0 }, terms);
    let rest = std::iter::from_fn(|| log.next(cursor).transpose());
    for (payload, nth) in held.into_iter().map(Ok).chain(rest).zip(0..) {
        let payload = payload?;
        if nth >= drops {
            let Ok(()) = pieces.entry(&payload);
            run.put_all(pieces)?;
        }
    }
    let Ok(()) = pieces.end();
    run.put_all(pieces)
}

type Sorted<'r> = Cursor<&'r Reader<Map>>;

/// A log in the file at work.
struct Log {
    key: Vec<u8>,
    /// What the keys of its entries begin with.
    prefix: Vec<u8>,
    first: u64,
    retention: Retention,
}

impl Log {
    /// The log that the cursor is at, which then is at its first entry.
    fn begin(cursor: &mut Sorted<'_>) -> Result<Self, Error> {
        let other = || Error::damaged("a file at work", "it holds what was not put there");
        let (key, number) = split_key(cursor.key()).ok_or_else(other)?;
        let prefix = cursor.key()[..cursor.key().len() - size_of::<u64>()].to_vec();
        let (mut first, mut retention) = (0, Retention::default());
        if number == Some(0) {
            let said = cursor.value().map_err(scratch_error)?;
            (first, retention) = decode(&said).ok_or_else(other)?;
            cursor.next().map_err(scratch_error)?;
        }
        Ok(Self { key, prefix, first, retention })
    }

    fn is_at(&self, cursor: &Sorted<'_>) -> bool {
        cursor.valid() && cursor.key().starts_with(&self.prefix)
    }

    /// The payload of the next entry.
    fn next(&self, cursor: &mut Sorted<'_>) -> Result<Option<Bytes>, Error> {
        if !self.is_at(cursor) {
            return Ok(None);
        }
        let payload = cursor.value().map_err(scratch_error)?;
        cursor.next().map_err(scratch_error)?;
        Ok(Some(payload))
    }

    /// Entries, as many as are held in memory.
    fn hold(&self, cursor: &mut Sorted<'_>) -> Result<Vec<Bytes>, Error> {
        let (mut held, mut bytes) = (Vec::new(), 0);
        while bytes < HELD
            && let Some(payload) = self.next(cursor)?
        {
            bytes += payload.len() + size_of::<Bytes>();
            held.push(payload);
        }
        Ok(held)
    }

    /// How many entries it has, those that are held and those that follow, and of how many bytes.
    fn count(&self, held: &[Bytes], cursor: &Sorted<'_>) -> Result<(u64, u64), Error> {
        let mut count = held.len() as u64;
        let mut bytes = held.iter().map(|payload| payload.len() as u64).sum();
        if self.is_at(cursor) {
            let mut ahead = cursor.reader().cursor();
            ahead.seek(cursor.key()).map_err(scratch_error)?;
            while self.is_at(&ahead) {
                (count, bytes) = (count + 1, bytes + ahead.value_len().map_err(scratch_error)?);
                ahead.next().map_err(scratch_error)?;
            }
        }
        Ok((count, bytes))
    }
}

/// What was said of a log.
fn encode(first: u64, retention: Retention) -> Vec<u8> {
    let limit = |limit: Option<u64>| limit.map_or(0, |limit| limit + 1);
    let age = retention.age.map(|age| age.as_millis() as u64);
    let mut out = Vec::new();
    for number in [first, limit(retention.entries), limit(retention.bytes), limit(age)] {
        put_varint(&mut |bytes| out.extend_from_slice(bytes), number);
    }
    out
}

fn decode(mut said: &[u8]) -> Option<(u64, Retention)> {
    let first = take_varint(&mut said)?;
    let mut limit = || Some(take_varint(&mut said)?.checked_sub(1));
    let (entries, bytes) = (limit()?, limit()?);
    let age = limit()?.map(Duration::from_millis);
    Some((first, Retention { entries, bytes, age }))
}

fn scratch_error(error: brooklet_codex::Error) -> Error {
    match error {
        brooklet_codex::Error::Io(source) => Error::io("sorting entries in a file at work")(source),
        other => Error::damaged("a file at work", other.to_string()),
    }
}

impl fmt::Debug for Unsorted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unsorted({} entries)", self.came)
    }
}
