//! Tables: the parts of a run. Each table is a whole codex in its own extent.

use std::io;
use std::mem;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;

use brooklet_codex::{Builder, Reader, Source};
use brooklet_io::tether::is_gone;
use brooklet_io::{AlignedBuf, Persist, Process, SECTOR, Volume, read_exact_at, write_all_at};
use bytes::Bytes;

use crate::error::Error;
use crate::format::bounds_note;
use crate::format::log_hash::LogHash;
use crate::format::manifest::TableMeta;
use crate::format::run_entry::split_key;
use crate::run::notes_check::{Fault, NotesCheck};
use crate::run::table_cache::TableCache;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::volume::allocator::Extent;

/// The source of a table's bytes.
pub(crate) enum TableSource {
    /// The store's heap.
    Extent(ExtentSource),
    /// An offloaded table: the caller stores its bytes.
    Offloaded(Arc<dyn Source>),
}

impl Source for TableSource {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        match self {
            TableSource::Extent(extent) => extent.read(offset, len),
            TableSource::Offloaded(source) => source.read(offset, len),
        }
    }

    fn read_cached(&self, offset: u64, len: usize) -> Option<Bytes> {
        match self {
            TableSource::Extent(extent) => extent.read_cached(offset, len),
            TableSource::Offloaded(source) => source.read_cached(offset, len),
        }
    }

    fn is_memory(&self) -> bool {
        match self {
            TableSource::Extent(_) => false,
            TableSource::Offloaded(source) => source.is_memory(),
        }
    }
}

/// The part of a volume that holds a codex.
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
struct ExtentWriter {
    volume: Arc<dyn Volume>,
    extent: Extent,
    written: u64,
    buf: AlignedBuf,
}

/// Bytes of one write to the heap.
const WRITE: usize = 1 << 20;

impl ExtentWriter {
    fn new(volume: Arc<dyn Volume>, extent: Extent) -> Self {
        Self { volume, extent, written: 0, buf: AlignedBuf::new(WRITE.min(extent.len as usize)) }
    }

    fn drain(&mut self) -> io::Result<()> {
        self.buf.pad();
        let end = self.written + self.buf.len() as u64;
        assert!(end <= self.extent.len, "a codex of {end} bytes passes the end of {:?}", self.extent);
        write_all_at(&*self.volume, self.extent.offset + self.written, &self.buf, Persist::Cached)?;
        self.written = end;
        self.buf.clear();
        Ok(())
    }

    /// Writes the remaining bytes. Returns the used bytes of the extent.
    fn finish(mut self) -> io::Result<u64> {
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

/// A codex entry for a table. If the entry begins a log, it has the hashes of the log.
#[derive(Debug)]
pub(crate) struct Entry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub hash: Option<LogHash>,
}

/// The builder of a table.
pub(crate) struct TableBuilder {
    codex: Builder<ExtentWriter>,
    pub extent: Extent,
    /// The last key before the table, if known.
    before: Option<Vec<u8>>,
    first: Option<Vec<u8>>,
}

impl TableBuilder {
    /// Begins a table of run `id`. `before` is the last key of the table before it; empty for the
    /// first table.
    pub fn new(table_cache: &TableCache, extent: Extent, id: u64, before: Option<Vec<u8>>) -> Self {
        let writer = ExtentWriter::new(table_cache.volume.clone(), extent);
        Self { codex: Builder::new(writer, table_cache.builder_options(id)), extent, before, first: None }
    }

    /// Returns the bytes of a table that has only this entry.
    pub fn least(table_cache: &TableCache, entry: &Entry) -> u64 {
        size_with(&Builder::new(io::sink(), table_cache.builder_options(0)), entry)
    }

    /// Returns whether the table, with this entry added, fits in its extent.
    pub fn holds(&self, entry: &Entry) -> bool {
        size_with(&self.codex, entry) <= self.extent.len
    }

    pub fn add(&mut self, entry: &Entry) -> Result<(), brooklet_codex::Error> {
        if let Some(LogHash { filter, note }) = entry.hash {
            self.codex.add_note(filter, note, bounds_note::of_head(&entry.value));
        }
        self.first.get_or_insert_with(|| separator(self.before.as_deref(), &entry.key).to_vec());
        self.codex.add(&entry.key, &entry.value)
    }

    /// Returns the bytes written so far, without the current block.
    pub fn written(&self) -> u64 {
        self.codex.written()
    }

    /// Completes the codex. The returned metadata has the extent that the codex needed.
    pub fn finish(self) -> Result<TableMeta, brooklet_codex::Error> {
        let (summary, writer) = self.codex.finish()?;
        Ok(TableMeta {
            offset: self.extent.offset,
            len: summary.len,
            extent: writer.finish()?,
            footer_sum: summary.footer_sum,
            first: self.first.unwrap_or_default(),
        })
    }
}

/// Returns the shortest key that separates `key` from the key before it, and from all keys that are
/// looked up there. Within a log, look-ups use the numbers of entries in the chunk before, so only
/// the whole key separates.
fn separator<'k>(before: Option<&[u8]>, key: &'k [u8]) -> &'k [u8] {
    let begins_log = split_key(key).is_none_or(|(_, chunk)| chunk.is_none());
    let Some(before) = before.filter(|_| begins_log) else { return key };
    let common = before.iter().zip(key).take_while(|(a, b)| a == b).count();
    &key[..(common + 1).min(key.len())]
}

fn size_with<W: io::Write>(codex: &Builder<W>, entry: &Entry) -> u64 {
    codex.size_with(entry.key.len(), entry.value.len(), entry.hash.iter().len(), true)
}

/// An immutable part of a run.
pub(crate) struct Table {
    pub meta: TableMeta,
    /// The number of the table's run.
    run: u64,
    reader: Result<Reader<TableSource>, Error>,
    /// Whether damage was found in the table.
    damaged: AtomicBool,
    /// Whether a part of the table could not be read.
    unread: AtomicBool,
    /// Whether the table is not read from the heap.
    is_of_parts: bool,
    process: Process,
}

impl Drop for Table {
    fn drop(&mut self) {
        if !self.process.is_here() {
            // A dropped reader takes the lock of the cache, and in this process that lock may never
            // be free.
            mem::forget(mem::replace(&mut self.reader, Err(Error::Forked)));
        }
    }
}

impl Table {
    /// Opens a table of run `run` that the manifest names.
    pub fn open(table_cache: &TableCache, run: u64, meta: TableMeta) -> Result<Self, Error> {
        let source = ExtentSource { volume: table_cache.volume.clone(), offset: meta.offset, len: meta.len };
        Self::open_on(table_cache, run, meta, TableSource::Extent(source))
    }

    /// Opens a table of run `run` that is stored elsewhere.
    pub fn offloaded(
        table_cache: &TableCache,
        run: u64,
        meta: TableMeta,
        source: Arc<dyn Source>,
    ) -> Result<Self, Error> {
        Self::open_on(table_cache, run, meta, TableSource::Offloaded(source))
    }

    fn open_on(
        table_cache: &TableCache,
        run: u64,
        meta: TableMeta,
        source: TableSource,
    ) -> Result<Self, Error> {
        let is_of_parts = matches!(source, TableSource::Offloaded(_));
        let reader = Reader::open_with(source, meta.len, Some(meta.footer_sum), table_cache.cache.clone())
            .map_err(|e| codex_error(run, meta.offset, e))?;
        if reader.id() != run {
            return Err(Error::damaged(
                format!("run {run}"),
                format!("it is labelled as run {}", reader.id()),
            ));
        }
        Ok(Self {
            meta,
            run,
            reader: Ok(reader),
            damaged: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            is_of_parts,
            process: Process::current(),
        })
    }

    /// Returns a table that cannot be read, for the reason `why`.
    pub fn broken(run: u64, meta: TableMeta, why: Error) -> Self {
        Self {
            meta,
            run,
            reader: Err(why),
            damaged: AtomicBool::new(true),
            unread: AtomicBool::new(false),
            is_of_parts: true,
            process: Process::current(),
        }
    }

    /// Returns whether the table is read from a source of the user.
    pub fn is_of_parts(&self) -> bool {
        self.is_of_parts
    }

    /// Returns whether damage was found in the table.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Records damage that no checksum detects.
    pub fn set_damaged(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    /// Records that a part of the table could not be read.
    pub fn set_unread(&self) {
        self.unread.store(true, Ordering::Relaxed);
    }

    /// Returns whether a part of the table could not be read since the last call.
    pub fn was_unread(&self) -> bool {
        self.unread.swap(false, Ordering::Relaxed)
    }

    /// Returns the table's reader.
    pub fn reader(&self) -> Result<&Reader<TableSource>, Error> {
        self.reader.as_ref().map_err(Clone::clone)
    }

    /// Reads `len` bytes of the table from `offset` on, without checking them: exactly so many,
    /// although the source of an offloaded table is code of the user.
    pub fn read(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        let read = self.reader()?.source().read(offset, len);
        let read = read.and_then(|data| match data.len() == len {
            true => Ok(data),
            false => Err(io::Error::other("the source returned another length than requested")),
        });
        read.map_err(|error| self.error(error.into()))
    }

    /// Returns the place of the table, for messages.
    pub fn place(&self) -> String {
        format!("run {} at offset {}", self.run, self.meta.offset)
    }

    /// Returns the table's extent in the heap; empty if the table is stored elsewhere.
    pub fn extent(&self) -> Extent {
        Extent { offset: self.meta.offset, len: self.meta.extent }
    }

    /// Records and converts an error of a read.
    pub fn error(&self, error: brooklet_codex::Error) -> Error {
        match error {
            brooklet_codex::Error::Io(_) => self.set_unread(),
            brooklet_codex::Error::Cancelled => {}
            _ => self.set_damaged(),
        }
        codex_error(self.run, self.meta.offset, error)
    }

    /// Reads the whole table, checks every checksum, and checks that all keys are between the
    /// manifest's first key and `next`.
    pub fn verify(
        &self,
        next: Option<&[u8]>,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let damaged = |what: String| Error::damaged(self.place(), what);
        let reader = self.reader()?;
        let mut notes = NotesCheck::new(reader).map_err(|e| self.error(e))?;
        let verified = reader.verify_each(
            |done| progress(done.bytes),
            |key, value| notes.check(key, value.unwrap_or_default()),
        );
        let verified = verified.map_err(|e| self.error(e))?;
        notes.finish(verified.notes).map_err(|fault| match fault {
            Fault::Unread(error) => self.error(error),
            Fault::Contradiction(what) => {
                self.set_damaged();
                damaged(what)
            }
        })?;
        let mut cursor = reader.cursor();
        cursor.seek_first().map_err(|e| self.error(e))?;
        if cursor.key() < self.meta.first.as_slice() {
            return Err(damaged("it has keys before its range".into()));
        }
        cursor.seek_last().map_err(|e| self.error(e))?;
        if next.is_some_and(|next| cursor.key() >= next) {
            return Err(damaged("it has keys after its range".into()));
        }
        Ok(())
    }
}

fn codex_error(run: u64, at: u64, error: brooklet_codex::Error) -> Error {
    let place = format!("run {run} at offset {at}");
    match error {
        brooklet_codex::Error::Io(source) if is_gone(&source) => Error::Closed,
        brooklet_codex::Error::Io(source) => Error::io(format!("reading {place}"))(source),
        brooklet_codex::Error::Damaged { offset, what } => {
            // A damaged pointer may contain any offset.
            Error::damaged(format!("run {run} at offset {}", at.saturating_add(offset)), what)
        }
        brooklet_codex::Error::Newer { version } => {
            Error::NewerFormat { name: place, found: version, known: brooklet_codex::VERSION }
        }
        brooklet_codex::Error::Cancelled => Error::Cancelled { what: "the check of a run" },
        other => Error::damaged(place, other.to_string()),
    }
}

/// A readable table that a cursor holds.
#[derive(Clone)]
pub(crate) struct TableReader(Arc<Table>);

impl TableReader {
    pub fn new(table: &Arc<Table>) -> Result<Self, Error> {
        table.reader().map(|_| Self(table.clone()))
    }
}

impl Deref for TableReader {
    type Target = Reader<TableSource>;
    fn deref(&self) -> &Self::Target {
        self.0.reader.as_ref().expect("it can be read")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_is_as_short_as_can_be() {
        for (before, key, separator_is) in [
            (&b""[..], &b"abc"[..], &b"a"[..]),
            (b"abc", b"abd", b"abd"),
            (b"abc", b"b", b"b"),
            (b"ab", b"abcd", b"abc"),
        ] {
            assert_eq!(separator(Some(before), key), separator_is);
        }
        assert_eq!(separator(None, b"abc"), b"abc");
        // Entry 5,000 may be in the chunk that begins with 4,990.
        let [before, key] = [4990, 5010].map(|seq| crate::format::run_entry::chunk_key(b"log", seq));
        assert_eq!(separator(Some(&before), &key), key);
    }

    /// Regression: a pointer to the end of the address space, with a correct checksum, overflowed
    /// in the error message.
    #[test]
    fn damage_anywhere_is_told() {
        let error =
            codex_error(3, 4096, brooklet_codex::Error::Damaged { offset: u64::MAX, what: "a pointer" });
        assert!(matches!(error, Error::Damaged { .. }));
    }
}
