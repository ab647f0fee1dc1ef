//! Runs: immutable sorted files in heap extents, and what they know of a log.

use std::io;
use std::sync::Arc;

use brooklet_codex::{BuilderOptions, Cursor, Reader, Source};
use brooklet_io::seeded::bug;
use brooklet_io::{AlignedBuf, Persist, SECTOR, Volume, read_exact_at, write_all_at};
use bytes::Bytes;

use crate::error::Error;
use crate::heap::Extent;
use crate::manifest::RunMeta;
use crate::model::{Bounds, Piece};
use crate::piece::{Chunk, Head, Out, chunk_key, filter_hash, head_key, split_key};

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
pub(crate) type RunBuilder = brooklet_codex::Builder<ExtentWriter>;

/// Starts a codex for run `id`.
pub(crate) fn builder(writer: ExtentWriter, id: u64) -> RunBuilder {
    RunBuilder::new(writer, BuilderOptions { id, ..BuilderOptions::default() })
}

impl Out for RunBuilder {
    type Error = brooklet_codex::Error;
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Self::Error> {
        self.add(key, value)
    }
    fn log(&mut self, key: &[u8]) {
        if !(bug("filter-forgets") && key.len().is_multiple_of(5)) {
            self.add_filter(filter_hash(key));
        }
    }
}

/// An immutable run.
pub(crate) struct Run {
    pub meta: RunMeta,
    reader: Reader<ExtentSource>,
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
    pub fn open(volume: Arc<dyn Volume>, meta: RunMeta) -> Result<Self, Error> {
        let source = ExtentSource { volume, offset: meta.offset, len: meta.len };
        let reader =
            Reader::open(source, meta.len, Some(meta.footer_sum)).map_err(|e| codex_error(&meta, e))?;
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
        Ok(Self { meta, reader })
    }

    pub fn extent(&self) -> Extent {
        Extent { offset: self.meta.offset, len: self.meta.extent }
    }

    /// What the run knows of a log.
    pub fn head(&self, key: &[u8]) -> Result<Option<Head>, Error> {
        match self.reader.may_contain(filter_hash(key)) {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            // The filter only saves a look at the index, which says the same.
            Err(error @ brooklet_codex::Error::Damaged { .. }) => {
                tracing::warn!(run = self.meta.id, %error, "the filter of a run is damaged; going on without it");
            }
            Err(error) => return Err(self.error(error)),
        }
        let value = self.reader.get(&head_key(key)).map_err(|e| self.error(e))?;
        value.map(|value| Head::decode(&value).ok_or_else(|| self.malformed(key))).transpose()
    }

    /// The chunk that holds entry `seq` of a log.
    pub fn chunk(&self, key: &[u8], seq: u64) -> Result<Chunk, Error> {
        let mut cursor = self.reader.cursor();
        let found = cursor.seek_le(&chunk_key(key, seq)).map_err(|e| self.error(e))?;
        let part = if found { split_key(cursor.key()) } else { None };
        let chunk = match part {
            Some((k, None)) if k == key => Head::decode(&cursor.value()).map(|head| head.chunk),
            Some((k, Some(_))) if k == key => Chunk::decode(&cursor.value()),
            _ => None,
        };
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

    /// Bytes of memory its index and filter take.
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

    /// The log's bounds as of the runs; `None` where it does not exist.
    pub fn bounds(&self, key: &[u8]) -> Result<Option<Bounds>, Error> {
        for run in &self.runs {
            if let Some(head) = run.head(key)? {
                return Ok(head.piece.bounds);
            }
        }
        Ok(None)
    }

    /// The log's pieces, newest first, as far as entries from `first` on may be in them; `upper` is the first number
    /// that newer tiers account for.
    pub fn heads(
        &self,
        key: &[u8],
        first: Option<u64>,
        mut upper: u64,
    ) -> Result<Vec<(Arc<Run>, Head)>, Error> {
        let mut heads = Vec::new();
        let mut first = first;
        for run in &self.runs {
            if first.is_some_and(|first| upper <= first) {
                break;
            }
            let Some(head) = run.head(key)? else { continue };
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
        let meta = RunMeta {
            id: 3,
            level: 0,
            offset: 4096,
            len: 200,
            extent: 4096,
            footer_sum: 0,
            logs: 1,
            entries: 1,
        };
        let error =
            codex_error(&meta, brooklet_codex::Error::Damaged { offset: u64::MAX, what: "a pointer" });
        assert!(matches!(error, Error::Damaged { .. }));
    }
}
