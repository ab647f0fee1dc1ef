//! Opening: finds the superblock, the ring and the runs, and replays the commits in the ring that
//! are not in the runs.

use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_io::{AlignedBuf, Rng, SECTOR, Volume, capped, read_exact_at};
use brooklet_wal::{
    Cursor, LocalLog, Recovery, Start, recover, recover_beside, recover_secured, sealed_blocks, secure, slot,
};

use crate::error::{Error, is_full};
use crate::format::manifest::{Manifest, PartName, TableMeta};
use crate::format::manifest_check::check_runs;
use crate::format::ring_label::{self, Label};
use crate::format::superblock::{COPIES, FORMAT, Place, RING_OFFSET, SCRATCH, Slot, Superblock, write_note};
use crate::options::Options;
use crate::options::mirror::MirrorOptions;
use crate::read::ReadView;
use crate::read::asked::Asked;
use crate::run::RunSet;
use crate::run::bounds_cache::BoundsCache;
use crate::run::table::Table;
use crate::run::table_cache::TableCache;
use crate::state::StoreState;
use crate::state::spaces::SpaceTable;
use crate::state::spaces::{Spaces, TABLE};
use crate::volume::Volumes;
use crate::volume::allocator::{Extent, Heap};
use crate::volume::beside::Beside;
use crate::volume::lock_owner;

/// The longest manifest, in bytes: sixteen million runs.
const MAX_MANIFEST: u64 = 1 << 30;

/// A store as found on its volumes.
pub(crate) struct Opened {
    /// The volumes; the data volume ends at the store's capacity.
    pub volumes: Volumes,
    pub table_cache: Arc<TableCache>,
    /// The label of the ring, if the ring has its own volume.
    pub label: Option<ring_label::Found>,
    pub superblock: Superblock,
    pub slots: Vec<Slot>,
    pub heap: Heap,
    pub manifest: Option<Extent>,
    pub state: StoreState,
    /// The layer that checks reads beside a writer.
    pub beside: Option<Beside>,
    /// The place where the recovery began.
    pub start: Start,
    pub recovery: Recovery,
    /// Whether the store shows the log of another host, and commits nothing.
    pub follows: bool,
}

/// Reads the store on its volumes; writes nothing.
pub(crate) fn load(volumes: &Volumes, options: &Options) -> Result<Opened, Error> {
    flush(volumes, options)?;
    let mut volumes = volumes.clone();
    let volume = &mut volumes.data;
    let beside = options.beside_writer.then(|| Beside::new(volume.clone()));
    if let Some(beside) = &beside {
        *volume = Arc::new(beside.clone());
    }
    let info = volume.info();
    let name = info.name;
    let size = volume.size().map_err(Error::io(format!("measuring {name}")))?;
    if size < RING_OFFSET {
        let why = format!(
            "it has {size} bytes, and the smallest store has {} bytes",
            RING_OFFSET + brooklet_wal::MIN_RING
        );
        return Err(Error::NotAStore { name, why });
    }
    let slots = slot::read_copies(&**volume, COPIES)
        .map_err(Error::io(format!("reading the superblock of {name}")))?;
    let superblock = Superblock::choose(&slots, &name, size, info.device.is_some())?;
    options.compare(&name, &superblock)?;
    if !options.beside_writer {
        log_copies(&name, &slots, &superblock);
    }
    let label = find_ring(volumes.ring.as_ref(), &superblock, &name)?;
    if superblock.capacity > 0 {
        *volume = capped(volume.clone(), superblock.capacity);
    }
    let size = size.min(if superblock.capacity > 0 { superblock.capacity } else { u64::MAX });
    let (manifest, manifest_at) = read_manifest(&**volume, &superblock, size)?;
    check_runs(&manifest, superblock.next_run)?;
    let heap = heap_around(&manifest, manifest_at, &superblock, size)?;
    let table_cache =
        TableCache::new(volume.clone(), options.cache_budget, options.bounds_cache, options.secret);
    let runs = Arc::new(open_runs(&table_cache, &manifest, &superblock, &name, options)?);
    table_cache.fit(&runs, 0);
    let bounds_cache = BoundsCache::new(options.secret, table_cache.bounds_cache_budget);
    let table = table_of(&runs, options.seed).or_else(|error| match error {
        // A read-only opening shows all readable logs despite the damage.
        error if options.read_only => {
            if !options.beside_writer {
                tracing::warn!(store = name, %error, "the store could not read its table of spaces; it opens without the table");
            }
            Ok(SpaceTable::unread(options.seed, error))
        }
        error => Err(to_be_read(error)),
    })?;
    let mut state = StoreState::new(options.seed, runs, bounds_cache, table);
    let (start, recovery) = recover_ring(&volumes, &superblock, &mut state, options)?;
    log_recovery(&name, &state, &recovery, options);
    state.claim_table();
    Ok(Opened {
        volumes,
        table_cache,
        label,
        superblock,
        slots,
        heap,
        manifest: manifest_at,
        state,
        beside,
        start,
        recovery,
        follows: false,
    })
}

/// Replays the commits in the ring that are not in the runs.
fn recover_ring(
    volumes: &Volumes,
    superblock: &Superblock,
    state: &mut StoreState,
    options: &Options,
) -> Result<(Start, Recovery), Error> {
    let start = Start {
        cursor: superblock.trim,
        acked: superblock.acked,
        clean: superblock.clean,
        epoch: superblock.epoch,
    };
    let (ring, layout) = (&**volumes.ring(), superblock.layout());
    let recovery = if options.beside_writer {
        recover_beside(ring, layout, start, |found| state.replay_around(found, options.seed))?
    } else if options.read_only {
        recover_secured(ring, layout, start, |found| state.replay_around(found, options.seed))?
    } else {
        recover(ring, layout, start, |block, _| state.replay(block)).map_err(to_be_read)?
    };
    Ok((start, recovery))
}

/// Logs which copies of the superblock are not the newest.
fn log_copies(name: &str, slots: &[Slot], newest: &Superblock) {
    for (copy, slot) in slots.iter().enumerate() {
        match slot {
            // A process that is killed while it writes the copies leaves older ones behind.
            Slot::Valid(found) if found != newest => {
                tracing::info!(
                    store = name,
                    copy,
                    "a copy of the superblock is older; the store uses the newest copy"
                );
            }
            Slot::Valid(_) => {}
            _ => tracing::warn!(
                store = name,
                copy,
                "a copy of the superblock is damaged; the store uses the other copies"
            ),
        }
    }
}

/// Logs which of the commits in the ring are lost, or may be.
fn log_recovery(name: &str, state: &StoreState, recovery: &Recovery, options: &Options) {
    if let Some(lost) = &state.lost {
        tracing::warn!(store = name, place = lost.place(), what = lost.what(), "a part of the ring is lost");
    }
    // Beside a writer, the last blocks are on their way.
    if options.beside_writer {
        return;
    }
    let Recovery { withheld, unproven, .. } = *recovery;
    if withheld > 0 {
        let what = "the last blocks are not shown: a power cut could discard them";
        tracing::warn!(store = name, blocks = withheld, "{what}");
    }
    if unproven > 0 {
        tracing::info!(store = name, blocks = unproven, "a power cut could discard the last blocks");
    }
}

/// Returns the heap of a volume of `size` bytes: all space without a table or the manifest is free.
fn heap_around(
    manifest: &Manifest,
    manifest_at: Option<Extent>,
    superblock: &Superblock,
    size: u64,
) -> Result<Heap, Error> {
    let tables = manifest.runs.iter().flat_map(|(_, tables)| tables);
    let used = tables
        .filter(|table| !table.is_offloaded())
        .map(|m| Extent { offset: m.offset, len: m.extent })
        .chain(manifest_at.filter(|_| !bug("manifest-is-free-space")));
    let end = size / SECTOR as u64 * SECTOR as u64;
    Heap::new(superblock.heap_offset(), end, used).map_err(|extent| {
        let what =
            format!("the extent at offset {} overlaps another, or is outside of the heap", extent.offset);
        Error::damaged("the manifest", what)
    })
}

/// Opens the tables of all runs, in the heap and offloaded.
fn open_runs(
    table_cache: &Arc<TableCache>,
    manifest: &Manifest,
    superblock: &Superblock,
    name: &str,
    options: &Options,
) -> Result<RunSet, Error> {
    let apart = manifest.runs.iter().flat_map(|(_, tables)| tables).filter(|it| it.is_offloaded());
    let parts = apart.count();
    let open = |run, table: TableMeta| match &options.offload_reader {
        _ if !table.is_offloaded() => {
            let opened = Table::open(table_cache, run, table.clone());
            let unread = matches!(opened, Err(Error::Io { .. }));
            let opened = opened.map_err(|error| unread_as_damage(error, run, &table, options));
            opened.or_else(|error| match error {
                // The rest of the store stays readable. A look-up of a log in this table fails.
                // Beside a writer, the table may have been replaced: the opening then starts over.
                Error::Damaged { .. } | Error::NewerFormat { .. } => {
                    if !options.beside_writer {
                        tracing::warn!(store = name, run, %error, "a part of a run cannot be read; the store continues without it");
                    }
                    let broken = Table::broken(run, table, error);
                    if unread {
                        broken.set_unread();
                    }
                    Ok(broken)
                }
                error => Err(error),
            })
        }
        Some(reader) => {
            let source = reader.0(PartName::of(&table))?;
            Table::offloaded(table_cache, run, table, source)
        }
        None => Err(Error::PartsNeeded { name: name.into(), parts }),
    };
    RunSet::open(table_cache, manifest, superblock.trim.lsn, open)
}

/// Returns the error of a table that the device does not read as damage, for an opening that writes
/// nothing. An opening for writing fails: the error may pass.
fn unread_as_damage(error: Error, run: u64, table: &TableMeta, options: &Options) -> Error {
    match error {
        Error::Io { cause, .. } if options.read_only => {
            let place = format!("run {run} at offset {}", table.offset);
            Error::damaged(place, format!("the device does not read it: {cause}"))
        }
        error => error,
    }
}

/// Flushes data that a killed process left in a volatile cache, before any of it is read.
///
/// A read-only opening continues if the flush fails: it shows only data on the medium.
fn flush(volumes: &Volumes, options: &Options) -> Result<(), Error> {
    if options.beside_writer || bug("no-flush-at-opening") {
        return Ok(());
    }
    let flushed = volumes.flush().map_err(Error::io("opening the store"));
    if options.read_only { Ok(()) } else { flushed }
}

/// Adds advice to an error about damage that keeps a store from being opened for writing.
fn to_be_read(error: Error) -> Error {
    match error {
        Error::Damaged { place, what } => {
            let what = format!(
                "{what}; the store accepts no writes: open it read-only (`Options::read_only`; the commands read, \
                 list, export and check)"
            );
            Error::Damaged { place, what }
        }
        error => error,
    }
}

/// Checks that the ring is at its place and of the same moment as the data. Returns its label.
fn find_ring(
    volume: Option<&Arc<dyn Volume>>,
    superblock: &Superblock,
    store: &str,
) -> Result<Option<ring_label::Found>, Error> {
    match (Label::of(superblock), volume) {
        (None, None) => Ok(None),
        (Some(label), Some(ring)) => label.find(superblock.mark_before, &**ring, store).map(Some),
        (Some(_), None) => Err(Error::RingNeeded { name: store.into() }),
        (None, Some(ring)) => Err(Error::wrong_ring(
            &ring.info().name,
            store,
            "the store keeps its ring in its own volume".into(),
        )),
    }
}

/// Reads the manifest, and returns it with its extent.
pub(crate) fn read_manifest(
    volume: &dyn Volume,
    superblock: &Superblock,
    size: u64,
) -> Result<(Manifest, Option<Extent>), Error> {
    let Place { offset, len, sum } = superblock.manifest;
    if len == 0 {
        return Ok((Manifest::default(), None));
    }
    let damaged = |what: &str| Error::damaged(format!("the manifest at offset {offset}"), what);
    let fits =
        |whole: &u64| offset.checked_add(*whole).is_some_and(|end| end <= size) && *whole <= MAX_MANIFEST;
    let whole = len.checked_next_multiple_of(SECTOR as u64).filter(fits);
    let Some(whole) = whole.filter(|_| offset % SECTOR as u64 == 0) else {
        return Err(damaged("it is outside of the volume, which was cut short"));
    };
    let mut buf = AlignedBuf::zeroed(whole as usize);
    read_exact_at(volume, offset, &mut buf).map_err(Error::io("reading the manifest"))?;
    let manifest = Manifest::decode(&buf[..len as usize], sum).map_err(damaged)?;
    Ok((manifest, Some(Extent { offset, len: whole })))
}

/// Makes the recovered data durable, and starts a new epoch, so that no block of an earlier opening
/// counts as a new block.
///
/// If the ring has its own volume, both volumes get a new mark; `format/ring_label.rs` describes
/// the order and its reason.
pub(crate) fn claim(opened: &mut Opened, options: &Options) -> Result<(), Error> {
    let volumes = &opened.volumes;
    let label = opened.label.as_ref();
    let mut next = Superblock {
        format: FORMAT,
        generation: opened.superblock.generation + 1,
        epoch: opened.superblock.epoch + u64::from(!bug("epoch-stays")),
        acked: opened.recovery.next.seq - 1,
        clean: bug("open-store-says-clean"),
        mirrored: opened.superblock.mirrored || options.mirror.is_some(),
        mark: label.map_or(0, |_| new_mark(opened.superblock.mark, options)),
        mark_before: label.map_or(0, ring_label::Found::mark),
        ..opened.superblock
    };
    fill_holes(opened)?;
    let note = lock_owner::note();
    let mut done = || {
        if !bug("no-flush-at-opening") {
            let layout = opened.superblock.layout();
            secure(&**volumes.ring(), layout, opened.start, &opened.recovery)
                .map_err(std::io::Error::other)?;
        }
        if let (Some(label), Some(ring)) = (label, &volumes.ring) {
            label.repair(&**ring)?;
        }
        // An earlier opening usually has measured this device.
        if !next.tuning.is_some_and(|tuning| volumes.ring().adopt(tuning)) {
            volumes.ring().tune(SCRATCH)?;
        }
        next.tuning = volumes.ring().tuning();
        next.write(&*volumes.data)?;
        if let (Some(label), Some(ring)) = (Label::of(&next), &volumes.ring) {
            label.write(&**ring)?;
            next = Superblock { generation: next.generation + 1, mark_before: next.mark, ..next };
            next.write(&*volumes.data)?;
        }
        write_note(&*volumes.data, &note)?;
        volumes.ring.as_ref().map_or(Ok(()), |ring| write_note(&**ring, &note))
    };
    done().map_err(Error::io(format!("claiming {}", volumes.data.info().name)))?;
    opened.superblock = next;
    Ok(())
}

/// Lets the mirror continue with the log that was found.
pub(crate) fn open_mirror(opened: &Opened, options: &Options) -> Result<(), Error> {
    let Some(MirrorOptions { mirror, .. }) = &options.mirror else { return Ok(()) };
    let refused = |why| Err(Error::MirrorRefused { why });
    if !opened.state.spaces.in_memory().is_empty() {
        return refused("a space is kept in memory: configure it with another class first".into());
    }
    let Opened { volumes, superblock, start, recovery, state, .. } = opened;
    let has_more = !state.runs.is_empty();
    let blocks = sealed_blocks(&**volumes.ring(), superblock.layout(), *start, recovery)?;
    let Cursor { lsn: begin, chain: sum, .. } = start.cursor;
    mirror.open(LocalLog { store: superblock.id, begin, sum, blocks, has_more }).or_else(refused)
}

/// Allocates the space before the heap that is in use, on which all later writes rely: a copy of
/// the file may have holes. Free space of the heap is secured later, before it is used.
fn fill_holes(opened: &Opened) -> Result<(), Error> {
    let Opened { volumes, superblock, .. } = opened;
    let ring = volumes.ring.as_ref().map(|ring| (ring, superblock.ring_reach()));
    let end = if ring.is_some() { RING_OFFSET } else { superblock.ring_reach() };
    for (volume, end) in [(&volumes.data, end)].into_iter().chain(ring) {
        volume.allocate_range(0..end).map_err(|e| match volume.info().name {
            _ if is_full(&e) => Error::Full { what: "the ring, whose file has holes", why: e.to_string() },
            name => Error::io(format!("allocating the space of {name}"))(e),
        })?;
    }
    Ok(())
}

/// Returns a mark that differs from the marks of all other openings, even with the same seed.
fn new_mark(last: u64, options: &Options) -> u64 {
    Rng::new(options.seed ^ options.clock.wall().as_nanos() as u64 ^ last).next()
}

/// Returns the spaces of a store as recorded in its runs, and the bounds of the log of spaces.
/// `seed` is for the hashes of names.
pub(crate) fn table_of(runs: &Arc<RunSet>, seed: u64) -> Result<SpaceTable, Error> {
    let Some(log) = runs.state(TABLE)?.bounds else { return Ok(SpaceTable::empty(seed)) };
    let entry = ReadView::of_runs(runs.clone(), 0).entries(TABLE, &Asked::ALL)?.next_back();
    let table = entry.transpose()?.map(|entry| entry.payload).unwrap_or_default();
    let spaces = Spaces::decode(&table, seed);
    let spaces = spaces.ok_or_else(|| Error::damaged("the table of spaces", "it is malformed"))?;
    Ok(SpaceTable { spaces, log: Some(log) })
}

#[cfg(test)]
mod tests {
    use brooklet_io::MemVolume;

    use super::*;

    fn on(volume: &Arc<dyn Volume>) -> Volumes {
        Volumes { data: volume.clone(), ring: None }
    }

    /// The superblock counts fewer runs than exist. The next run then gets the name of an existing
    /// run, and compaction once waited forever for that run to be freed.
    #[test]
    fn a_run_newer_than_the_superblock_knows_is_refused() {
        let options = || Options::new().ring_size(64 << 10).max_payload(8 << 10).threads(false);
        let volume: Arc<dyn Volume> = Arc::new(MemVolume::new(1));
        let store = options().create_on(volume.clone()).unwrap();
        for _ in 0..2 {
            store.append("log", b"entry").unwrap().wait().unwrap();
            store.checkpoint().unwrap();
        }
        store.close().unwrap();
        drop(store);
        let mut superblock = load(&on(&volume), &options()).unwrap().superblock;
        superblock.next_run = 2;
        superblock.write(&*volume).unwrap();
        let compacted = options().open_on(volume).and_then(|store| store.compact());
        assert!(
            compacted
                .unwrap_err()
                .to_string()
                .contains("run 2 has a number that the superblock never assigned")
        );
    }

    /// The superblock has a sound checksum and an invalid length of the manifest. Rounding up this
    /// length once overflowed.
    #[test]
    fn a_manifest_that_cannot_be_there_is_refused() {
        let options = || Options::new().ring_size(64 << 10).max_payload(8 << 10).threads(false);
        let volume: Arc<dyn Volume> = Arc::new(MemVolume::new(1));
        options().create_on(volume.clone()).unwrap().close().unwrap();
        let superblock = load(&on(&volume), &options()).unwrap().superblock;
        for (offset, len) in
            [(1 << 20, u64::MAX), (u64::MAX - 4095, 24), (1 << 20, MAX_MANIFEST + 1), (3, 24)]
        {
            let manifest = Place { offset, len, sum: 0 };
            Superblock { manifest, ..superblock }.write(&*volume).unwrap();
            let error = load(&on(&volume), &options()).err().expect("there is no such manifest").to_string();
            assert!(error.contains("outside of the volume"), "{error}");
        }
    }
}
