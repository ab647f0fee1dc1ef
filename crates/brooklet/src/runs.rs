//! Runs: immutable sorted files in heap extents, and what they know of a log.

use std::io;
use std::sync::Arc;

use brooklet_codex::{Cursor, Reader, Source, Summary};
use brooklet_io::seeded::bug;
use brooklet_io::{AlignedBuf, Persist, SECTOR, Volume, read_exact_at, write_all_at};
use bytes::Bytes;

use crate::error::Error;
use crate::heap::Extent;
use crate::manifest::RunMeta;
use crate::model::Piece;
use crate::piece::{Chunk, Head, Out, chunk_key, filter_hash, head_key, head_piece, split_key};
use crate::shelf::Shelf;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::terms::State;

/// Part of a volume that a codex is read from.
pub(crate) struct ExtentSource {
    volume: Arc<dyn Volume>,
    offset: u64,
    len: u64,
}

impl Source for ExtentSource {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let sector = SECTOR as u64;
        let (from, to) = (self.offset + offset, self.offset + offset + len as u64);
        let (start, end) = (from / sector * sector, to.next_multiple_of(sector));
        let mut buf = AlignedBuf::new((end - start) as usize);
        buf.set_len((end - start) as usize);
        read_exact_at(&*self.volume, start, &mut buf)?;
        let skip = (from - start) as usize;
        Ok(buf.freeze().slice(skip..skip + len))
    }

    fn read_cached(&self, offset: u64, len: usize) -> Option<Bytes> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return None;
        }
        let mut buf = vec![0; len];
        self.volume.read_cached(self.offset + offset, &mut buf).then(|| buf.into())
    }
}

/// Writes a codex into an extent, in large pieces.
pub(crate) struct ExtentWriter {
    volume: Arc<dyn Volume>,
    extent: Extent,
    written: u64,
    buf: AlignedBuf,
}

/// Bytes of one write to the heap.
const WRITE: usize = 1 << 20;

impl ExtentWriter {
    pub fn new(volume: Arc<dyn Volume>, extent: Extent) -> Self {
        Self { volume, extent, written: 0, buf: AlignedBuf::new(WRITE.min(extent.len as usize)) }
    }

    fn drain(&mut self) -> io::Result<()> {
        self.buf.pad();
        if self.written + self.buf.len() as u64 > self.extent.len {
            let message =
                format!("it needs more than the {} bytes that are free in one piece", self.extent.len);
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        write_all_at(&*self.volume, self.extent.offset + self.written, &self.buf, Persist::Cached)?;
        self.written += self.buf.len() as u64;
        self.buf.clear();
        Ok(())
    }

    /// Writes what is left; returns the bytes of the extent in use.
    pub fn finish(mut self) -> io::Result<u64> {
        if !self.buf.is_empty() {
            self.drain()?;
        }
        Ok(self.written)
    }
}

impl io::Write for ExtentWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let n = data.len().min(self.buf.room());
        self.buf.extend(&data[..n]);
        if self.buf.room() == 0 {
            self.drain()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A codex being built as a run.
pub(crate) struct RunBuilder {
    codex: brooklet_codex::Builder<ExtentWriter>,
    filter_seed: u64,
}

impl RunBuilder {
    /// Starts a codex for run `id`.
    pub fn new(shelf: &Shelf, writer: ExtentWriter, id: u64) -> Self {
        let options = shelf.builder_options(id);
        let filter_seed = options.filter_seed;
        Self { codex: brooklet_codex::Builder::new(writer, options), filter_seed }
    }

    pub fn finish(self) -> Result<(Summary, ExtentWriter), brooklet_codex::Error> {
        self.codex.finish()
    }
}

impl Out for RunBuilder {
    type Error = brooklet_codex::Error;
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Self::Error> {
        self.codex.add(key, value)
    }
    fn log(&mut self, key: &[u8]) {
        if !(bug("filter-forgets") && key.len().is_multiple_of(5)) {
            self.codex.add_filter(filter_hash(self.filter_seed, key));
        }
    }
}

/// A log that the runs are asked about.
pub(crate) struct Wanted<'k> {
    key: &'k [u8],
    head: Vec<u8>,
    /// Its hash for the filters of one seed. Most have the same.
    seed: u64,
    hash: u64,
}

impl<'k> Wanted<'k> {
    pub fn new(key: &'k [u8]) -> Self {
        Self { key, head: head_key(key), seed: 0, hash: filter_hash(0, key) }
    }

    /// The key of its head in a run.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    fn hash(&mut self, seed: u64) -> u64 {
        if seed != self.seed {
            (self.seed, self.hash) = (seed, filter_hash(seed, self.key));
        }
        self.hash
    }
}

/// An immutable run.
pub(crate) struct Run {
    pub meta: RunMeta,
    shelf: Arc<Shelf>,
    reader: Reader<ExtentSource>,
    /// Its entries that newer runs are known to have made irrelevant, as the durable manifest has it.
    dead: AtomicU64,
}

pub(crate) type RunCursor = Cursor<RunReader>;

/// A run as its cursors hold it.
#[derive(Clone)]
pub(crate) struct RunReader(pub Arc<Run>);

impl std::ops::Deref for RunReader {
    type Target = Reader<ExtentSource>;
    fn deref(&self) -> &Self::Target {
        &self.0.reader
    }
}

impl Run {
    /// Opens a run that the manifest names.
    pub fn open(shelf: &Arc<Shelf>, meta: RunMeta) -> Result<Self, Error> {
        let source = ExtentSource { volume: shelf.volume.clone(), offset: meta.offset, len: meta.len };
        let reader = Reader::open_with(source, meta.len, Some(meta.footer_sum), shelf.cache.clone())
            .map_err(|e| codex_error(&meta, e))?;
        if reader.id() != meta.id {
            return Err(Error::damaged(
                format!("run {}", meta.id),
                format!("it says it is run {}", reader.id()),
            ));
        }
        // Room for a compaction is reckoned from these.
        if meta.logs > reader.entries() {
            return Err(Error::damaged(
                format!("run {}", meta.id),
                format!("the manifest counts {} logs in {} entries", meta.logs, reader.entries()),
            ));
        }
        Ok(Self { meta, shelf: shelf.clone(), reader, dead: AtomicU64::new(meta.dead) })
    }

    pub fn extent(&self) -> Extent {
        Extent { offset: self.meta.offset, len: self.meta.extent }
    }

    /// Its entries that newer runs are known to have made irrelevant; never more than there are.
    pub fn dead(&self) -> u64 {
        self.dead.load(Ordering::Relaxed)
    }

    /// `count` as a number of its dead entries: 0 where that cannot be, since too few cost space, and too many entries.
    pub fn at_most_all(&self, count: u64) -> u64 {
        if count > self.meta.entries { 0 } else { count }
    }

    /// Only the keeper does this, once the superblock is durable that says so.
    pub fn set_dead(&self, dead: u64) {
        self.dead.store(dead, Ordering::Relaxed);
    }

    /// What the run knows of a log.
    pub fn head(&self, wanted: &mut Wanted<'_>) -> Result<Option<Head>, Error> {
        let value = self.find(wanted)?;
        value.map(|value| Head::decode(&value).ok_or_else(|| self.malformed(wanted.key))).transpose()
    }

    /// The state of a log alone, without its entries.
    fn state(&self, wanted: &mut Wanted<'_>) -> Result<Option<State>, Error> {
        let value = self.find(wanted)?;
        let state = |value: Bytes| {
            let (piece, terms) = head_piece(&mut &value[..])?;
            Some(State { bounds: piece.bounds, terms })
        };
        value.map(|value| state(value).ok_or_else(|| self.malformed(wanted.key))).transpose()
    }

    /// Whether the filter of the run lets a log pass; `Some(false)` is certain, `None` where the filter is damaged: it
    /// only saves a look at the index, which says the same.
    pub fn may_know(&self, wanted: &mut Wanted<'_>) -> Result<Option<bool>, Error> {
        let hash = wanted.hash(self.reader.filter_seed());
        match self.reader.may_contain(&wanted.head, hash) {
            Err(error @ brooklet_codex::Error::Damaged { .. }) => {
                tracing::warn!(run = self.meta.id, %error, "the filter of a run is damaged; going on without it");
                Ok(None)
            }
            told => told.map(Some).map_err(|error| self.error(error)),
        }
    }

    /// The head of a log, as it is stored.
    fn find(&self, wanted: &mut Wanted<'_>) -> Result<Option<Bytes>, Error> {
        self.shelf.asked();
        let maybe = self.may_know(wanted)?;
        if maybe == Some(false) {
            return Ok(None);
        }
        let value = self.reader.get(&wanted.head).map_err(|e| self.error(e))?;
        if maybe == Some(true) && value.is_none() {
            self.shelf.misled();
        }
        Ok(value)
    }

    /// The chunk that holds entry `seq` of a log.
    pub fn chunk(&self, key: &[u8], seq: u64) -> Result<Chunk, Error> {
        let found = self.reader.get_le(&chunk_key(key, seq)).map_err(|e| self.error(e))?;
        self.decode_chunk(key, seq, found)
    }

    /// Like [`chunk`](Self::chunk), but nothing of it is kept in memory: for who reads everything once.
    pub fn chunk_once(&self, key: &[u8], seq: u64) -> Result<Chunk, Error> {
        let mut cursor = self.reader.cursor();
        let found = cursor.seek_le(&chunk_key(key, seq)).map_err(|e| self.error(e))?;
        self.decode_chunk(key, seq, found.then(|| (cursor.key().to_vec(), cursor.value())))
    }

    /// The chunk out of the last entry at or before its key.
    fn decode_chunk(&self, key: &[u8], seq: u64, found: Option<(Vec<u8>, Bytes)>) -> Result<Chunk, Error> {
        let chunk = found.and_then(|(found, value)| match split_key(&found)? {
            (k, None) if k == key => Head::decode(&value).map(|head| head.chunk),
            (k, Some(_)) if k == key => Chunk::decode(&value),
            _ => None,
        });
        chunk.filter(|c| c.range().contains(&seq)).ok_or_else(|| self.malformed(key))
    }

    pub fn error(&self, error: brooklet_codex::Error) -> Error {
        codex_error(&self.meta, error)
    }

    pub fn malformed(&self, key: &[u8]) -> Error {
        let key = crate::error::KeyText::of(key);
        Error::damaged(format!("run {}", self.meta.id), format!("the piece of log {key} does not make sense"))
    }

    /// Reads everything and checks every checksum.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
        self.reader.verify(progress).map(|_| ()).map_err(|e| self.error(e))
    }

    /// Bytes of its blocks before compression.
    pub fn raw_bytes(&self) -> u64 {
        self.reader.raw_bytes()
    }

    /// Bytes of memory its index and filter take now.
    pub fn memory(&self) -> usize {
        self.reader.memory()
    }
}

fn codex_error(meta: &RunMeta, error: brooklet_codex::Error) -> Error {
    let place = format!("run {} at offset {}", meta.id, meta.offset);
    match error {
        brooklet_codex::Error::Io(source) => Error::io(format!("reading {place}"))(source),
        brooklet_codex::Error::Damaged { offset, what } => {
            // A damaged pointer names any place.
            Error::damaged(format!("run {} at offset {}", meta.id, meta.offset.saturating_add(offset)), what)
        }
        brooklet_codex::Error::Newer { version } => {
            Error::NewerFormat { name: place, found: version, known: brooklet_codex::VERSION }
        }
        other => Error::damaged(place, other.to_string()),
    }
}

/// The runs of a moment, newest first.
#[derive(Default)]
pub(crate) struct RunSet {
    runs: Vec<Arc<Run>>,
}

impl RunSet {
    pub fn new(runs: Vec<Arc<Run>>) -> Self {
        Self { runs }
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Run>> + ExactSizeIterator {
        self.runs.iter()
    }

    /// The log's state as of the runs.
    pub fn state(&self, key: &[u8]) -> Result<State, Error> {
        let mut wanted = Wanted::new(key);
        for run in &self.runs {
            if let Some(state) = run.state(&mut wanted)? {
                return Ok(state);
            }
        }
        Ok(State::default())
    }

    /// The log's pieces, newest first, as far as entries from `first` on may be in them; `upper` is the first number
    /// that newer tiers account for.
    pub fn heads(
        &self,
        key: &[u8],
        first: Option<u64>,
        mut upper: u64,
    ) -> Result<Vec<(Arc<Run>, Head)>, Error> {
        let mut wanted = Wanted::new(key);
        let mut heads = Vec::new();
        let mut first = first;
        for run in &self.runs {
            if first.is_some_and(|first| upper <= first) {
                break;
            }
            let Some(head) = run.head(&mut wanted)? else { continue };
            let Piece { bounds, base } = head.piece;
            if first.is_none() {
                first = Some(bounds.map_or(0, |b| b.first));
            }
            upper = upper.min(base);
            heads.push((run.clone(), head));
        }
        Ok(heads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pointer to the end of the address space, its checksum sound: telling of it overflowed.
    #[test]
    fn damage_anywhere_is_told() {
        let meta = RunMeta { id: 3, offset: 4096, len: 200, extent: 4096, ..RunMeta::default() };
        let error =
            codex_error(&meta, brooklet_codex::Error::Damaged { offset: u64::MAX, what: "a pointer" });
        assert!(matches!(error, Error::Damaged { .. }));
    }
}
