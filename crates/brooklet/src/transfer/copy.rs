//! Copies: makes a new store from a view. The runs are copied byte by byte, so that a copy takes
//! the time to read and write their bytes. Each run is then read back and checked. The store gets
//! its name, or its superblock, only after the copied bytes are durable.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use brooklet_io::panics::caught;
use brooklet_io::seeded::bug;
use brooklet_io::{AlignedBuf, Persist, SECTOR, Volume, read_exact_at, write_all_at};

use crate::error::{Error, is_full};
use crate::format::manifest::{self, MAX_LEVEL, Manifest, PartName, TableMeta};
use crate::format::superblock::{Place, Superblock};
use crate::model::progress::Progress;
use crate::options::{Create, Options};
use crate::run::table::Table;
use crate::run::table_cache::TableCache;
use crate::store::Store;
use crate::store::view::View;
use crate::volume::Volumes;
use crate::volume::create;

/// Bytes that are copied at once.
const AT_ONCE: usize = 1 << 20;
/// Bytes that are written before a flush. The checks continue during the flush.
const FLUSH: u64 = 32 << 20;
/// Number of tables that may wait to be checked.
const WAITING: usize = 64;
/// Number of threads that check, if there are enough cores.
const CHECKING: usize = 4;

pub(super) type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

impl Options {
    /// Makes a new store at `path` with all logs of `view`, and opens it. The view can be of
    /// another store or of a backup. A copy is several times as fast as an [import](Store::import).
    /// An import adds logs to an existing store, and can import some of the logs only.
    ///
    /// Reports to `progress`. If `progress` returns `Break`, the call fails with
    /// [`Error::Cancelled`], and no store is left. The call reads back and checks all copied bytes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, store) = (dir.path().join("copy"), brooklet::Store::in_memory(1)?);
    /// use brooklet::{Options, Progress};
    ///
    /// store.append_many("doc", ["a", "b"])?.wait()?;
    /// let copy = Options::new().copy(&path, &store.view()?, Progress::ignore)?;
    /// assert_eq!(copy.bounds("doc")?.next, 2);
    /// copy.append("doc", "c")?.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`] if there is something at `path`; [`Error::Full`]; [`Error::Cancelled`];
    /// the errors of reading the view: [`Error::Io`], and [`Error::Damaged`] unless [damage is
    /// copied](Self::copy_damaged). After any of these errors, no store is left.
    pub fn copy(
        self,
        path: impl AsRef<Path>,
        view: &View,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Store, Error> {
        let (path, options) = self.create(Create::IfMissing).settled(path.as_ref())?;
        let fill = |volumes: &Volumes, superblock: &mut Superblock| {
            copy(view, volumes, superblock, &options, &mut progress)
        };
        if !create::make(&path, &options, fill)? {
            return Err(Error::exists(path.display().to_string()));
        }
        options.create(Create::Never).open(path)
    }

    /// Copies like [`copy`](Self::copy), on a volume.
    #[doc(hidden)]
    pub fn copy_on(self, volume: Arc<dyn Volume>, view: &View) -> Result<Store, Error> {
        let go_on = &mut |_| ControlFlow::Continue(());
        let fill =
            |volumes: &Volumes, superblock: &mut Superblock| copy(view, volumes, superblock, &self, go_on);
        create::create(&Volumes { data: volume.clone(), ring: None }, &self, fill)?;
        self.open_on(volume)
    }
}

/// Copies the runs of a view to the heap of a new store.
pub(super) fn copy(
    view: &View,
    volumes: &Volumes,
    superblock: &mut Superblock,
    options: &Options,
    progress: OnProgress<'_>,
) -> Result<(), Error> {
    let _span = tracing::info_span!("copy", store = volumes.data.info().name).entered();
    view.here()?;
    view.expect_whole()?;
    let mut manifest = view.manifest();
    // Backups of earlier versions may count entries as dead that are alive in them. Too small a
    // number costs the copy some space until its next merges.
    for ((meta, _), run) in manifest.runs.iter_mut().zip(view.runs.iter()) {
        if run.is_of_parts() {
            meta.dead = 0;
        } else if bug("copy-counts-the-living") {
            meta.dead = meta.entries;
        }
    }
    let copied = leave(&mut manifest, volumes, options);
    let begin = superblock.heap_offset();
    let mut end = begin;
    for table in manifest.runs[..copied].iter_mut().flat_map(|(_, tables)| tables) {
        (table.offset, table.extent) = (end, table.len.next_multiple_of(SECTOR as u64));
        end += table.extent;
    }
    let encoded = manifest.encode();
    let all = end + (encoded.len() as u64).next_multiple_of(SECTOR as u64);
    if superblock.capacity > 0 && all > superblock.capacity {
        let why = format!("it takes {all} bytes, and its capacity is {} bytes", superblock.capacity);
        return Err(Error::Full { what: "the copy of a store", why });
    }
    let volume = &volumes.data;
    volume.grow(all).map_err(failed(volume))?;
    let table_cache = TableCache::new(volume.clone(), options.cache_budget, Some(0), options.secret);
    let mut told = |bytes: u64| match progress(Progress::of_bytes(bytes, all - begin)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Cancelled { what: "the copy of a store" }),
    };
    let sources = view.runs.iter().take(copied).flat_map(|run| run.tables.iter());
    let targets = &manifest.runs[..copied];
    let targets = targets.iter().flat_map(|(run, metas)| metas.iter().map(move |meta| (run.id, meta)));
    let (mut tables, mut flushed) = (sources.zip(targets), begin);
    let mut copy_next = || {
        let Some((source, (run, meta))) = tables.next() else { return Ok::<_, Error>(None) };
        match source.reader() {
            // A damaged table stays zeros in the copy, which also reads as damage.
            Err(Error::Damaged { .. }) if options.copy_damaged => {}
            _ => copy_table(source, volume, meta.offset)?,
        }
        let end = meta.offset + meta.extent;
        if end - flushed >= FLUSH {
            volume.flush().map_err(failed(volume))?;
            flushed = end;
        }
        told(end - begin)?;
        Ok(Some(Written { source, run, meta: meta.clone() }))
    };
    let check = |written: &Written<'_>| match written.check(&table_cache) {
        Err(Error::Damaged { .. }) if options.copy_damaged => written.compare(&**volume),
        checked => checked,
    };
    let most = if options.threads { CHECKING } else { 0 };
    check_beside(&check, most, |check| {
        while let Some(written) = copy_next()? {
            if !check(written)? {
                break;
            }
        }
        Ok(())
    })?;
    put_manifest(&manifest, &encoded, end, volume, superblock)
}

/// Records the runs that stay where they are as offloaded: the oldest ones whose parts the reader
/// opens, if they shall stay. Returns the number of the other runs.
fn leave(manifest: &mut Manifest, volumes: &Volumes, options: &Options) -> usize {
    let mut copied = manifest.runs.len();
    let Some(reader) = options.offload_reader.as_ref().filter(|_| options.leave_offloaded) else {
        return copied;
    };
    let table_cache = TableCache::new(volumes.data.clone(), options.cache_budget, Some(0), options.secret);
    let opens = |run: u64, table: &TableMeta| {
        let source = reader.0(PartName::of(table))?;
        Table::offloaded(&table_cache, run, table.gone(), source).map(drop)
    };
    // A run that is being merged is not offloaded.
    let merged = manifest.merged();
    if manifest.merging.is_some() && merged.is_empty() {
        return copied;
    }
    while copied > merged.end {
        let (run, tables) = &mut manifest.runs[copied - 1];
        if let Err(error) = tables.iter().try_for_each(|table| opens(run.id, table)) {
            tracing::info!(run = run.id, %error, "this run and all newer ones are copied");
            break;
        }
        run.level = MAX_LEVEL;
        tables.iter_mut().for_each(|table| *table = table.gone());
        copied -= 1;
    }
    copied
}

fn failed(volume: &Arc<dyn Volume>) -> impl FnOnce(std::io::Error) -> Error {
    let name = volume.info().name;
    move |error| match is_full(&error) {
        true => Error::Full { what: "the copy of a store", why: error.to_string() },
        false => Error::io(format!("writing {name}"))(error),
    }
}

fn copy_table(source: &Table, volume: &Arc<dyn Volume>, to: u64) -> Result<(), Error> {
    let mut buf = AlignedBuf::new(AT_ONCE);
    let mut at = 0;
    while at < source.meta.len {
        let len = (source.meta.len - at).min(AT_ONCE as u64);
        let data = source.read(at, len as usize)?;
        buf.clear();
        buf.extend(&data);
        buf.pad();
        write_all_at(&**volume, to + at, &buf, Persist::Cached).map_err(failed(volume))?;
        at += len;
    }
    Ok(())
}

/// A table that was copied.
struct Written<'a> {
    source: &'a Table,
    run: u64,
    /// The table in the copy.
    meta: TableMeta,
}

impl Written<'_> {
    /// Reads the copied table back and checks it.
    fn check(&self, table_cache: &TableCache) -> Result<(), Error> {
        Table::open(table_cache, self.run, self.meta.clone())?
            .verify(None, &mut |_| ControlFlow::Continue(()))
    }

    /// Compares the copied table with a damaged source.
    fn compare(&self, volume: &dyn Volume) -> Result<(), Error> {
        let (source, meta) = (self.source, &self.meta);
        if source.reader().is_err() {
            return Ok(());
        }
        let mut buf = AlignedBuf::zeroed(AT_ONCE);
        let mut at = 0;
        while at < meta.len {
            let len = (meta.len - at).min(AT_ONCE as u64) as usize;
            let was = source.read(at, len)?;
            read_exact_at(volume, meta.offset + at, &mut buf[..len.next_multiple_of(SECTOR)])
                .map_err(Error::io("reading back the copy of a store"))?;
            if was[..] != buf[..len] {
                return Err(Error::damaged(
                    format!("run {} of the copy", self.run),
                    "it does not read back as it was written",
                ));
            }
            at += len as u64;
        }
        Ok(())
    }
}

/// Checks the tables that `write` hands over, in at most so many threads that run during `write`,
/// or in between if the system starts no thread. `write` stops when the checks need no more.
fn check_beside<'a>(
    check: &(dyn Fn(&Written<'a>) -> Result<(), Error> + Sync),
    most: usize,
    write: impl FnOnce(&mut dyn FnMut(Written<'a>) -> Result<bool, Error>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (send, written) = sync_channel(WAITING);
    // Set to `None` at the first damage or panic, after which `write` stops.
    let written = Mutex::new(Some(written));
    let lock = || written.lock().unwrap_or_else(PoisonError::into_inner);
    let next = || lock().as_ref().and_then(|written| written.recv().ok());
    // A panic must not leave `write` with tables that nobody takes.
    let check = |written: &Written<'a>| {
        let panicked = Error::io("checking the copy of a store");
        caught("a check", || check(written)).unwrap_or_else(|panic| Err(panicked(panic)))
    };
    let checks = || {
        while let Some(written) = next() {
            check(&written).inspect_err(|_| drop(lock().take()))?;
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(most);
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().name("brooklet-copy".into()).spawn_scoped(scope, checks).ok();
        let checking: Vec<_> = (0..threads).map_while(start).collect();
        if checking.is_empty() {
            return write(&mut |written| check(&written).map(|()| true));
        }
        let wrote = write(&mut |written| Ok(send.send(written).is_ok()));
        drop(send);
        let checked = checking.into_iter().try_fold((), |(), checking| {
            checking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        wrote.and(checked)
    })
}

fn put_manifest(
    manifest: &Manifest,
    encoded: &[u8],
    at: u64,
    volume: &Arc<dyn Volume>,
    superblock: &mut Superblock,
) -> Result<(), Error> {
    let ids = manifest.runs.iter().map(|(run, _)| run.id);
    let merged = manifest.merging.iter().map(|merging| merging.into);
    superblock.next_run = ids.chain(merged).max().map_or(superblock.next_run, |newest| newest + 1);
    if manifest.runs.is_empty() {
        return Ok(());
    }
    let mut buf = AlignedBuf::new(encoded.len());
    buf.extend(encoded);
    buf.pad();
    write_all_at(&**volume, at, &buf, Persist::Cached).map_err(failed(volume))?;
    superblock.manifest = Place { offset: at, len: encoded.len() as u64, sum: manifest::sum_of(encoded) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All threads panic. In an earlier state, the copy of a large store then waited for them.
    #[test]
    fn a_panic_in_a_check_ends_the_copy() {
        let store = Store::in_memory(1).unwrap();
        store.append("log", "entry").unwrap().wait().unwrap();
        let view = store.view().unwrap();
        let source = &view.runs.iter().next().unwrap().tables[0];
        let check = |_: &Written<'_>| -> Result<(), Error> { panic!("a planned panic") };
        let copied = check_beside(&check, 2, |check| {
            while check(Written { source, run: 1, meta: source.meta.clone() })? {}
            Ok(())
        });
        let error = copied.unwrap_err().to_string();
        assert!(error.contains("a planned panic"), "{error}");
    }
}
