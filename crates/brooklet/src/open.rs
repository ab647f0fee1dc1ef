//! Opening: finding the superblock, the ring, the runs, and what the ring holds beyond them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_io::{AlignedBuf, Rng, SECTOR, Volume, capped, read_exact_at};
use brooklet_wal::{Recovery, Start, recover, slot};

use crate::error::Error;
use crate::front::Front;
use crate::heap::{Extent, Heap};
use crate::label::{self, Label};
use crate::manifest::{self, RunMeta};
use crate::options::Options;
use crate::policy::MAX_LEVEL;
use crate::remembered::Remembered;
use crate::runs::{Run, RunSet};
use crate::shelf::Shelf;
use crate::superblock::{COPIES, FORMAT, Place, RING_OFFSET, SCRATCH, Slot, Superblock, write_note};
use crate::volumes::Volumes;

/// The longest manifest, in bytes: sixteen million runs.
const MAX_MANIFEST: u64 = 1 << 30;

/// A store as found on its volumes.
pub(crate) struct Opened {
    /// The volumes, the store's capacity being the data's end.
    pub volumes: Volumes,
    pub shelf: Arc<Shelf>,
    /// The label of the ring, where that has a volume of its own.
    pub label: Option<label::Found>,
    pub superblock: Superblock,
    pub slots: Vec<Slot>,
    pub heap: Heap,
    pub manifest: Option<Extent>,
    pub front: Front,
    pub recovery: Recovery,
}

/// Reads the store on its volumes; writes nothing.
pub(crate) fn load(volumes: &Volumes, options: &Options) -> Result<Opened, Error> {
    let mut volumes = volumes.clone();
    let volume = &mut volumes.data;
    let info = volume.info();
    let name = info.name;
    let size = volume.size().map_err(Error::io(format!("measuring {name}")))?;
    if size < RING_OFFSET {
        let why = format!(
            "it has {size} bytes, and the smallest store has {}",
            RING_OFFSET + brooklet_wal::MIN_RING
        );
        return Err(Error::NotAStore { name, why });
    }
    let slots =
        slot::read(&**volume, COPIES).map_err(Error::io(format!("reading the superblock of {name}")))?;
    let superblock = Superblock::choose(&slots, &name, size, info.device.is_some())?;
    options.compare(&name, &superblock)?;
    for (copy, slot) in slots.iter().enumerate() {
        match slot {
            // A process that is killed while it writes the copies leaves older ones behind.
            Slot::Valid(found) if *found != superblock => {
                tracing::info!(store = name, copy, "a copy of the superblock is older; the newest counts");
            }
            Slot::Valid(_) => {}
            _ => tracing::warn!(store = name, copy, "a copy of the superblock is damaged; the others serve"),
        }
    }
    let label = find_ring(volumes.ring.as_ref(), &superblock, &name)?;
    if superblock.capacity > 0 {
        *volume = capped(volume.clone(), superblock.capacity);
    }
    let size = size.min(if superblock.capacity > 0 { superblock.capacity } else { u64::MAX });
    let (metas, manifest) = read_manifest(volume, &superblock, size)?;
    check_runs(&metas, superblock.next_run)?;
    let used = metas
        .iter()
        .map(|m| Extent { offset: m.offset, len: m.extent })
        .chain(manifest.filter(|_| !bug("manifest-is-free-space")));
    let end = size / SECTOR as u64 * SECTOR as u64;
    let heap = Heap::new(superblock.heap_offset(), end, used).map_err(|extent| {
        Error::damaged(
            "the manifest",
            format!("the extent at {} overlaps another or lies outside", extent.offset),
        )
    })?;
    let shelf = Shelf::new(volume.clone(), options.cache_budget, options.remembered, options.secret);
    let runs = metas.iter().map(|&meta| Run::open(&shelf, meta).map(Arc::new));
    let runs = RunSet::new(runs.collect::<Result<_, _>>()?);
    let remembered = Remembered::new(options.secret, shelf.remembered_budget);
    let mut front = Front::new(options.seed, Arc::new(runs), remembered);
    let start = Start {
        cursor: superblock.trim,
        acked: superblock.acked,
        clean: superblock.clean,
        epoch: superblock.epoch,
    };
    let recovery = recover(&**volumes.ring(), superblock.zone(), start, |block, _| front.replay(block))?;
    Ok(Opened { volumes, shelf, label, superblock, slots, heap, manifest, front, recovery })
}

/// Makes sure that the ring is where it should be, and of the same moment; gives its label.
fn find_ring(
    volume: Option<&Arc<dyn Volume>>,
    superblock: &Superblock,
    store: &str,
) -> Result<Option<label::Found>, Error> {
    match (Label::of(superblock), volume) {
        (None, None) => Ok(None),
        (Some(label), Some(ring)) => label.find(superblock.mark_before, &**ring, store).map(Some),
        (Some(_), None) => Err(Error::RingNeeded { name: store.into() }),
        (None, Some(ring)) => {
            Err(Error::wrong_ring(&ring.info().name, store, "that store keeps its ring inside".into()))
        }
    }
}

/// Refuses runs that compaction could not have left: it finds them by number, and what is newer by level.
fn check_runs(metas: &[RunMeta], next_run: u64) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    let mut newer = 0;
    for run in metas {
        let wrong = if run.len > run.extent {
            "is longer than its extent"
        } else if run.id >= next_run {
            "is newer than the superblock knows"
        } else if !seen.insert(run.id) {
            "is there twice"
        } else if run.level < newer {
            "is of a lower level than a newer one"
        } else if run.level > MAX_LEVEL {
            "is of a level that no store reaches"
        } else if run.dead > run.entries || run.tombstones.saturating_add(run.empties) > run.logs {
            "counts more than it holds"
        } else {
            newer = run.level;
            continue;
        };
        return Err(Error::damaged("the manifest", format!("run {} {wrong}", run.id)));
    }
    Ok(())
}

/// Reads the manifest, and tells the extent it lies in.
pub(crate) fn read_manifest(
    volume: &Arc<dyn Volume>,
    superblock: &Superblock,
    size: u64,
) -> Result<(Vec<RunMeta>, Option<Extent>), Error> {
    let Place { offset, len, sum } = superblock.manifest;
    if len == 0 {
        return Ok((Vec::new(), None));
    }
    let damaged = |what: &str| Error::damaged(format!("the manifest at offset {offset}"), what);
    let fits =
        |whole: &u64| offset.checked_add(*whole).is_some_and(|end| end <= size) && *whole <= MAX_MANIFEST;
    let whole = len.checked_next_multiple_of(SECTOR as u64).filter(fits);
    let Some(whole) = whole.filter(|_| offset % SECTOR as u64 == 0) else {
        return Err(damaged("it lies outside the volume, which was cut short"));
    };
    let mut buf = AlignedBuf::zeroed(whole as usize);
    read_exact_at(&**volume, offset, &mut buf).map_err(Error::io("reading the manifest"))?;
    let metas = manifest::decode(&buf[..len as usize], sum).map_err(damaged)?;
    Ok((metas, Some(Extent { offset, len: whole })))
}

/// Makes what was read durable and starts a new epoch, so that no block of an earlier opening is taken for a new one.
///
/// Where the ring has a volume of its own, both get a new mark; `label.rs` says in which order, and why.
pub(crate) fn claim(opened: &mut Opened, options: &Options) -> Result<(), Error> {
    let volumes = &opened.volumes;
    let label = opened.label.as_ref();
    let mut next = Superblock {
        format: FORMAT,
        generation: opened.superblock.generation + 1,
        epoch: opened.superblock.epoch + u64::from(!bug("epoch-stays")),
        acked: opened.recovery.next.seq - 1,
        clean: bug("open-store-says-clean"),
        mark: label.map_or(0, |_| new_mark(opened.superblock.mark, options)),
        mark_before: label.map_or(0, label::Found::mark),
        ..opened.superblock
    };
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).unwrap_or_default().display();
    let note = format!("process {} ({program})", std::process::id());
    let mut done = || {
        // Blocks that were read may still sit in a volatile cache, written by a process that was killed.
        if !bug("no-flush-at-opening") {
            volumes.flush()?;
        }
        if let (Some(label), Some(ring)) = (label, &volumes.ring) {
            label.repair(&**ring)?;
        }
        next.write(&*volumes.data)?;
        if let (Some(label), Some(ring)) = (Label::of(&next), &volumes.ring) {
            label.write(&**ring)?;
            next = Superblock { generation: next.generation + 1, mark_before: next.mark, ..next };
            next.write(&*volumes.data)?;
        }
        write_note(&*volumes.data, &note)?;
        volumes.ring.as_ref().map_or(Ok(()), |ring| write_note(&**ring, &note))?;
        volumes.ring().tune(SCRATCH)
    };
    done().map_err(Error::io(format!("claiming {}", volumes.data.info().name)))?;
    opened.superblock = next;
    Ok(())
}

/// A mark that no other opening leaves, not even one with the same seed.
fn new_mark(last: u64, options: &Options) -> u64 {
    Rng::new(options.seed ^ options.clock.wall().as_nanos() as u64 ^ last).next()
}

#[cfg(test)]
mod tests {
    use brooklet_io::MemVolume;

    use super::*;

    fn on(volume: &Arc<dyn Volume>) -> Volumes {
        Volumes { data: volume.clone(), ring: None }
    }

    /// A superblock that counts fewer runs than there are has the next run named like one that is there: compaction
    /// then waited for ever for that one to go.
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
        assert!(compacted.unwrap_err().to_string().contains("run 2 is newer"));
    }

    /// The length of the manifest, as a superblock with a sound checksum gave it, overflowed when rounded up.
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
            assert!(error.contains("outside the volume"), "{error}");
        }
    }

    /// A manifest with sound checksums could make compaction merge the wrong runs, go on for ever or overflow.
    #[test]
    fn runs_that_no_compaction_leaves_are_refused() {
        let sound = RunMeta { len: 200, extent: 4096, logs: 1, entries: 1, ..RunMeta::default() };
        let run = |id, level| RunMeta { id, level, ..sound };
        assert!(check_runs(&[run(9, 0), run(7, 0), run(8, 1)], 10).is_ok());
        for (runs, because) in [
            (vec![RunMeta { len: 5000, ..run(1, 0) }], "longer than its extent"),
            (vec![run(10, 0)], "newer than the superblock knows"),
            (vec![run(1, 0), run(1, 1)], "there twice"),
            (vec![run(2, 1), run(1, 0)], "lower level than a newer one"),
            (vec![run(1, u64::MAX)], "a level that no store reaches"),
            (vec![RunMeta { dead: 2, ..run(1, 0) }], "counts more than it holds"),
            (vec![RunMeta { tombstones: 1, empties: u64::MAX, ..run(1, 0) }], "counts more than it holds"),
        ] {
            let error = check_runs(&runs, 10).expect_err(because).to_string();
            assert!(error.contains(because), "{error}");
        }
    }
}
