//! Exports: logs as a codex file. The file has the layout of a run, so that an import need not
//! encode any entry again.
//!
//! ```text
//! entries   one piece for each log (`format/run_entry.rs`), with all that the log holds; no log that is gone
//! filter    of the keys of logs, as in a run; its seed is the lower half of the store's id
//! metadata
//!    0  8   "BRKEXPRT"
//!    8  4   version, 1 (little endian, as all numbers)
//!   12 16   id of the store
//!   28  8   up to where in its log each log is as commits left it
//!   36  8   logs
//!   44  8   entries
//! ```

use std::io;

use brooklet_codex::{Builder, BuilderOptions, Reader, Source};

use crate::error::{Error, KeyText};
use crate::format::run_entry::PieceWriter;
use crate::maintenance::merge::Input;
use crate::model::key::check_key;
use crate::run::writer::Pending;
use crate::run::writer::read_error;
use crate::state::spaces::FIRST;
use crate::store::view::View;

const MAGIC: &[u8; 8] = b"BRKEXPRT";
const VERSION: u32 = 1;

/// The result of an export; see [`View::export`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportReport {
    /// Number of exported logs.
    pub logs: u64,
    /// Number of entries of these logs.
    pub entries: u64,
    /// Length of the file, in bytes.
    pub bytes: u64,
    /// Checksum of the file's footer. The checksum covers the whole file, and so identifies it.
    pub footer_sum: u64,
}

impl View {
    /// Writes the logs whose keys start with `prefix` to `out`, as one [codex](brooklet_codex) file
    /// with all bounds and entries. The caller makes the file durable.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// store.append_many("doc/1", ["a", "b"])?.wait()?;
    /// let mut file = Vec::new();
    /// let exported = store.view()?.export("doc/", &mut file)?;
    /// assert_eq!((exported.logs, exported.entries, exported.bytes), (1, 2, file.len() as u64));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Io`] if a run cannot be read; [`Error::Io`] if `out` fails.
    /// After an error, discard the bytes written so far. If [damage in the
    /// ring](crate::Options::read_only) removed a part of the store, the call writes nothing,
    /// because a reader of the file could not notice the damage. In that case, [`walk`](Self::walk)
    /// returns the remaining entries.
    pub fn export(&self, prefix: impl AsRef<[u8]>, out: impl io::Write) -> Result<ExportReport, Error> {
        let prefix = prefix.as_ref();
        self.write(prefix, |key| key.starts_with(prefix), out)
    }

    /// Exports one log, like [`export`](Self::export).
    ///
    /// # Errors
    /// The same errors as [`export`](Self::export), and [`Error::UnknownLog`].
    pub fn export_log(&self, key: impl AsRef<[u8]>, out: impl io::Write) -> Result<ExportReport, Error> {
        let key = key.as_ref();
        self.expect_log(key)?;
        self.write(key, |other| other == key, out)
    }

    /// Checks that the view has a log with this key.
    pub(crate) fn expect_log(&self, key: &[u8]) -> Result<(), Error> {
        self.here()?;
        check_key(key)?;
        match self.runs.state(key)?.bounds {
            Some(_) => Ok(()),
            None => Err(Error::UnknownLog { key: KeyText::of(key) }),
        }
    }

    /// Writes the logs from key `from` on, as long as `wanted` returns `true`.
    fn write(
        &self,
        from: &[u8],
        wanted: impl Fn(&[u8]) -> bool,
        out: impl io::Write,
    ) -> Result<ExportReport, Error> {
        let _span = tracing::info_span!("export").entered();
        self.expect_whole()?;
        let failed = |error| match error {
            brooklet_codex::Error::Io(source) => Error::io("writing an export")(source),
            defect => Error::damaged("an export being written", defect.to_string()),
        };
        self.here()?;
        let options = BuilderOptions { apart_from: usize::MAX, ..self.builder.clone() };
        let mut pieces = PieceWriter::new(Pending::new(options.filter_seed));
        let mut codex = Builder::new(out, options);
        let mut input = Input::all(&self.runs, from.max(FIRST))?;
        while !input.is_between_logs() || input.next_log().is_some_and(&wanted) {
            input.step(&mut pieces).map_err(read_error)?;
            while let Some(entry) = pieces.out().pop() {
                entry.hash.into_iter().for_each(|hash| codex.add_filter(hash.filter));
                codex.add(&entry.key, &entry.value).map_err(failed)?;
            }
        }
        let (logs, entries) = (pieces.logs, pieces.entries);
        let (summary, _) = codex.finish_with(&self.metadata(logs, entries)).map_err(failed)?;
        Ok(ExportReport { logs, entries, bytes: summary.len, footer_sum: summary.footer_sum })
    }

    fn metadata(&self, logs: u64, entries: u64) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.store.to_le_bytes());
        for number in [self.lsn(), logs, entries] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out
    }
}

impl ExportReport {
    /// Returns the report that the metadata of a codex file holds, or `None` if the file is not an
    /// export.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Io`] if the metadata cannot be read; [`Error::NewerFormat`].
    pub fn of<S: Source>(file: &Reader<S>) -> Result<Option<Self>, Error> {
        let metadata = file.metadata().map_err(export_error)?.unwrap_or_default();
        let Some((version, rest)) =
            metadata.strip_prefix(MAGIC).and_then(|rest| rest.split_first_chunk::<4>())
        else {
            return Ok(None);
        };
        match u32::from_le_bytes(*version) {
            VERSION => {}
            found => return Err(Error::NewerFormat { name: "the export".into(), found, known: VERSION }),
        }
        let number = |at: usize| Some(u64::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        let numbers = number(24).zip(number(32)).filter(|_| rest.len() == 40);
        let (logs, entries) =
            numbers.ok_or_else(|| Error::damaged("the export", "its metadata is too short"))?;
        Ok(Some(Self { logs, entries, bytes: file.len(), footer_sum: file.footer_sum() }))
    }
}

pub(crate) fn export_error(error: brooklet_codex::Error) -> Error {
    match error {
        brooklet_codex::Error::Io(source) => Error::io("reading an export")(source),
        brooklet_codex::Error::Newer { version } => {
            Error::NewerFormat { name: "the export".into(), found: version, known: brooklet_codex::VERSION }
        }
        damage => Error::damaged("the export", damage.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use brooklet_codex::{Bytes, Reader};

    use super::*;
    use crate::format::log_hash::filter_hash;
    use crate::format::run_entry::{Chunk, Head, head_key, split_key};
    use crate::{Bounds, Retention, Store};

    type Logs = BTreeMap<Vec<u8>, (Bounds, Vec<Bytes>)>;

    /// Creates a store with short, long, trimmed, limited, empty and deleted logs, in several runs.
    fn store() -> Store {
        let store = Store::in_memory(5).unwrap();
        for round in 0..4u8 {
            for n in 0..30u8 {
                let payload = vec![round; usize::from(n) * 100];
                store.append_many([b'l', n], vec![payload; 3]).unwrap().wait().unwrap();
            }
            store.trim("l\x03", 2).unwrap().wait().unwrap();
            store.set_retention("limited", Retention::new().entries(2)).unwrap().wait().unwrap();
            store.append("limited", [round]).unwrap().wait().unwrap();
            store.append("gone", "x").unwrap().wait().unwrap();
            store.checkpoint().unwrap();
        }
        store.delete("gone").unwrap().wait().unwrap();
        store.keep_last("l\x07", 0).unwrap().wait().unwrap();
        store
    }

    fn contents(store: &Store, prefix: &str) -> Logs {
        let log = |log: crate::LogInfo| {
            let entries = store.read(&log.key, ..).unwrap().map(|entry| entry.unwrap().payload).collect();
            (log.key, (log.bounds, entries))
        };
        store.scan(prefix).unwrap().map(|found| log(found.unwrap())).collect()
    }

    /// Reads an export as a reader that knows the format of runs would.
    fn read(file: &Reader<Bytes>) -> Logs {
        let (mut logs, mut cursor) = (Logs::new(), file.cursor());
        while cursor.next().unwrap() {
            let value = cursor.value().unwrap();
            let (key, chunk) = split_key(cursor.key()).unwrap();
            let chunk = if chunk.is_some() {
                Chunk::decode(&value).unwrap()
            } else {
                let head = Head::decode(&value).unwrap();
                logs.insert(key.clone(), (head.piece.bounds.unwrap(), Vec::new()));
                head.chunk
            };
            let (bounds, entries) = logs.get_mut(&key).unwrap();
            assert_eq!(chunk.base, bounds.first + entries.len() as u64);
            entries.extend(chunk.range().map(|seq| chunk.payload(seq)));
        }
        logs
    }

    fn open(file: Vec<u8>, exported: ExportReport) -> Reader<Bytes> {
        let reader = Reader::open(file.into(), exported.bytes, Some(exported.footer_sum)).unwrap();
        reader.verify(brooklet_codex::Progress::ignore).unwrap();
        reader
    }

    #[test]
    fn an_export_holds_what_the_view_shows() {
        let store = store();
        let (view, expected) = (store.view().unwrap(), contents(&store, ""));
        // Later changes are not in the export.
        store.delete("l\x05").unwrap().wait().unwrap();
        let mut file = Vec::new();
        let exported = view.export("", &mut file).unwrap();
        let reader = open(file.clone(), exported);
        assert_eq!(read(&reader), expected);
        let entries: usize = expected.values().map(|(_, entries)| entries.len()).sum();
        assert_eq!((exported.logs, exported.entries), (31, entries as u64));
        for key in expected.keys() {
            let hash = filter_hash(reader.filter_seed(), key);
            assert!(reader.may_contain(&head_key(key), hash).unwrap());
        }
        let metadata = reader.metadata().unwrap().unwrap();
        assert_eq!((&metadata[..12], metadata.len()), (&b"BRKEXPRT\x01\0\0\0"[..], 52));
        assert_eq!(metadata[12..28], store.info().unwrap().id.to_le_bytes());
        assert_eq!(metadata[28..36], view.lsn().to_le_bytes());
        let mut again = Vec::new();
        view.export("", &mut again).unwrap();
        assert!(again == file, "the same view gives the same file");
    }

    #[test]
    fn a_prefix_and_a_log_are_exported_alone() {
        let store = store();
        store.append("l\x03more", "x").unwrap().wait().unwrap();
        let view = store.view().unwrap();
        let mut file = Vec::new();
        let exported = view.export("l\x03", &mut file).unwrap();
        assert_eq!(read(&open(file, exported)), contents(&store, "l\x03"));
        let mut file = Vec::new();
        let exported = view.export_log("l\x03", &mut file).unwrap();
        let one = read(&open(file, exported));
        assert_eq!((one.len(), exported.logs, one[&b"l\x03"[..]].0.first), (1, 1, 2));
        assert!(matches!(view.export_log("gone", Vec::new()), Err(Error::UnknownLog { .. })));
        assert!(matches!(view.export_log("", Vec::new()), Err(Error::InvalidKey { .. })));
        let mut nothing = Vec::new();
        let exported = view.export("none", &mut nothing).unwrap();
        assert_eq!((exported.logs, read(&open(nothing, exported))), (0, Logs::new()));
    }

    #[test]
    fn a_full_disk_is_told() {
        struct Full(usize);
        impl io::Write for Full {
            fn write(&mut self, data: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(data.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(data.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let view = store().view().unwrap();
        for room in [0, 1000] {
            let error = view.export("", Full(room)).unwrap_err();
            assert!(
                matches!(&error, Error::Io { .. }) && error.to_string().contains("writing an export"),
                "{error}"
            );
        }
    }
}
