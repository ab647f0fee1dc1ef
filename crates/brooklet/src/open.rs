//! Creating and opening: finding the superblock, the runs, and what the ring holds beyond them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::seeded::bug;
use brooklet_io::{
    AlignedBuf, FileOptions, FileVolume, OpenMode, Persist, Rng, SECTOR, Volume, process_exists, publish,
    read_exact_at, read_unlocked, write_all_at,
};
use brooklet_wal::{Cursor, Recovery, Start, Zone, recover};

use crate::error::{Error, is_full};
use crate::front::Front;
use crate::heap::{Extent, Heap};
use crate::keeper::MAX_LEVEL;
use crate::manifest::{self, RunMeta};
use crate::options::{Create, Options};
use crate::runs::{Run, RunSet};
use crate::superblock::{NOTE_OFFSET, Place, RING_OFFSET, Slot, Superblock, read_note, write_note};

/// The longest manifest, in bytes: sixteen million runs.
const MAX_MANIFEST: u64 = 1 << 30;

/// A store as found on its volume.
pub(crate) struct Opened {
    pub superblock: Superblock,
    pub slots: Vec<Slot>,
    pub heap: Heap,
    pub manifest: Option<Extent>,
    pub front: Front,
    pub recovery: Recovery,
}

/// Opens the volume of a store at `path`, creating the store if the options say so.
pub(crate) fn volume(path: &Path, options: &Options) -> Result<Arc<dyn Volume>, Error> {
    let name = path.display().to_string();
    if options.create != Create::Never && !options.read_only {
        let exists = path.try_exists().map_err(Error::io(format!("looking for {name}")))?;
        let created = !exists && make(path, options)?;
        if !created && options.create == Create::New {
            return Err(Error::Exists { name });
        }
    }
    match open_patiently(path, options) {
        Ok(volume) => Ok(Arc::new(volume)),
        Err(e) if e.kind() == ErrorKind::ResourceBusy => {
            let holder = read_holder(path).unwrap_or_else(|| "holder unknown".into());
            Err(Error::Locked { name, holder })
        }
        Err(e) if e.kind() == ErrorKind::IsADirectory => {
            Err(Error::NotAStore { name, why: "it is a directory".into() })
        }
        // Not what the system says, but what the volume found before it asked.
        Err(e) if e.kind() == ErrorKind::InvalidInput && e.raw_os_error().is_none() && path.exists() => {
            Err(Error::NotAStore { name, why: "it is neither a file nor a block device".into() })
        }
        Err(e) => Err(Error::io(format!("opening {name}"))(e)),
    }
}

fn file_options(options: &Options) -> FileOptions {
    FileOptions { direct: options.direct, io_uring: options.io_uring, ..FileOptions::default() }
}

/// Makes a store under another name and gives it its own once it is whole, so that nobody ever finds half a store.
/// `false` where another was quicker.
fn make(path: &Path, options: &Options) -> Result<bool, Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let draft = path.with_file_name(name);
    let made = match new_draft(&draft, file_options(options)) {
        // It is another's, and stays.
        Err(e) if e.kind() == ErrorKind::ResourceBusy => return Err(creation_error(path, e)),
        Err(e) => Err(creation_error(path, e)),
        Ok(volume) => {
            let volume: Arc<dyn Volume> = Arc::new(volume);
            create(&volume, options).and_then(|()| publish(&draft, path).map_err(|e| creation_error(path, e)))
        }
    };
    if !matches!(made, Ok(true))
        && let Err(error) = std::fs::remove_file(&draft)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(%error, draft = %draft.display(), "half a store is left over; remove it");
    }
    made
}

/// A new file for a draft. Half a store may be there, from a process of the same number (in a container, each one's is
/// the same) that went down with the power.
fn new_draft(draft: &Path, options: FileOptions) -> std::io::Result<FileVolume> {
    match FileVolume::open(draft, OpenMode::Create, options.clone()) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            // Whoever still writes it holds its lock, and this fails. Ours is kept until its name is gone.
            let stale = FileVolume::open(draft, OpenMode::ReadWrite, options.clone())?;
            std::fs::remove_file(draft)?;
            drop(stale);
            FileVolume::open(draft, OpenMode::Create, options)
        }
        opened => opened,
    }
}

fn creation_error(path: &Path, error: std::io::Error) -> Error {
    if is_full(&error) {
        return Error::Full { what: "a new store", why: error.to_string() };
    }
    Error::io(format!("creating {}", path.display()))(error)
}

/// Looks at a held lock, 5 ms apart, before it counts as held; and as long as its holder is known to be gone. The kernel
/// lets go of a killed process's lock only when its last write has ended, and a process may die before it leaves a note.
const LOOKS: Range<u32> = 20..200;

fn open_patiently(path: &Path, options: &Options) -> std::io::Result<FileVolume> {
    let mode = if options.read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
    let mut looks = 0;
    loop {
        match FileVolume::open(path, mode, file_options(options)) {
            Err(e)
                if e.kind() == ErrorKind::ResourceBusy
                    && (looks < LOOKS.start || looks < LOOKS.end && holder_is_gone(path)) =>
            {
                std::thread::park_timeout(Duration::from_millis(5));
                looks += 1;
            }
            done => return done,
        }
    }
}

fn read_holder(path: &Path) -> Option<String> {
    read_unlocked(path, NOTE_OFFSET, SECTOR).ok().and_then(|bytes| read_note(&bytes))
}

fn holder_is_gone(path: &Path) -> bool {
    let holder = read_holder(path);
    let pid = holder.as_deref().and_then(|h| h.strip_prefix("process ")?.split(' ').next()?.parse().ok());
    pid.is_some_and(|pid| !process_exists(pid))
}

/// Makes an empty store on a volume: ring written with zeros, then the superblock.
pub(crate) fn create(volume: &Arc<dyn Volume>, options: &Options) -> Result<(), Error> {
    options.check()?;
    let mut rng = Rng::new(options.seed ^ options.clock.wall().as_nanos() as u64);
    let superblock = Superblock {
        id: u128::from(rng.next()) << 64 | u128::from(rng.next()),
        generation: 1,
        ring_size: options.ring_size,
        epoch: 0,
        trim: Cursor { position: 0, seq: 1, lsn: 0, chain: 0 },
        acked: 0,
        clean: true,
        manifest: Place::default(),
        next_run: 1,
        created: options.clock.wall().as_nanos() as u64,
    };
    let made = || -> std::io::Result<()> {
        volume.grow(superblock.heap_offset())?;
        // Writing a ring for the first time would be metadata in the commit path; so it is written here.
        let zeros = AlignedBuf::zeroed((1 << 20).min(options.ring_size as usize));
        let mut offset = 0;
        while offset < superblock.heap_offset() {
            let len = zeros.len().min((superblock.heap_offset() - offset) as usize);
            write_all_at(&**volume, offset, &zeros[..len], Persist::Cached)?;
            offset += len as u64;
        }
        volume.flush()?;
        superblock.write(&**volume)
    };
    made().map_err(|e| creation_error(Path::new(&volume.info().name), e))
}

/// Where the ring of a store lies.
pub(crate) fn zone(superblock: &Superblock) -> Zone {
    Zone {
        offset: RING_OFFSET,
        size: superblock.ring_size,
        store: superblock.id as u64 ^ (superblock.id >> 64) as u64,
    }
}

/// Reads the store on a volume; writes nothing.
pub(crate) fn load(volume: &Arc<dyn Volume>, options: &Options) -> Result<Opened, Error> {
    let name = volume.info().name;
    let size = volume.size().map_err(Error::io(format!("measuring {name}")))?;
    if size < RING_OFFSET {
        let why = format!(
            "it has {size} bytes, and the smallest store has {}",
            RING_OFFSET + brooklet_wal::MIN_RING
        );
        return Err(Error::NotAStore { name, why });
    }
    let slots =
        Superblock::read_slots(&**volume).map_err(Error::io(format!("reading the superblock of {name}")))?;
    let superblock = Superblock::choose(&slots, &name, size)?;
    for (copy, slot) in slots.iter().enumerate() {
        if *slot != Slot::Valid(superblock) {
            tracing::warn!(
                store = name,
                copy,
                "a copy of the superblock is damaged or older; the others serve"
            );
        }
    }
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
    let runs = metas.iter().map(|&meta| Run::open(volume.clone(), meta).map(Arc::new));
    let runs = RunSet::new(runs.collect::<Result<_, _>>()?);
    let mut front = Front::new(options.seed, Arc::new(runs));
    let start = Start {
        cursor: superblock.trim,
        acked: superblock.acked,
        clean: superblock.clean,
        epoch: superblock.epoch,
    };
    let recovery = recover(&**volume, zone(&superblock), start, |block, _| front.replay(block))?;
    Ok(Opened { superblock, slots: slots.to_vec(), heap, manifest, front, recovery })
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
pub(crate) fn claim(volume: &Arc<dyn Volume>, opened: &mut Opened) -> Result<(), Error> {
    let next = Superblock {
        generation: opened.superblock.generation + 1,
        epoch: opened.superblock.epoch + u64::from(!bug("epoch-stays")),
        acked: opened.recovery.next.seq - 1,
        clean: bug("open-store-says-clean"),
        ..opened.superblock
    };
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).unwrap_or_default().display();
    let note = format!("process {} ({program})", std::process::id());
    let done = || {
        // Blocks that were read may still sit in a volatile cache, written by a process that was killed.
        if !bug("no-flush-at-opening") {
            volume.flush()?;
        }
        next.write(&**volume)?;
        write_note(&**volume, &note)
    };
    done().map_err(Error::io(format!("claiming {}", volume.info().name)))?;
    opened.superblock = next;
    Ok(())
}

#[cfg(test)]
mod tests {
    use brooklet_io::MemVolume;

    use super::*;

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
        let mut superblock = load(&volume, &options()).unwrap().superblock;
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
        let superblock = load(&volume, &options()).unwrap().superblock;
        for (offset, len) in
            [(1 << 20, u64::MAX), (u64::MAX - 4095, 24), (1 << 20, MAX_MANIFEST + 1), (3, 24)]
        {
            let manifest = Place { offset, len, sum: 0 };
            Superblock { manifest, ..superblock }.write(&*volume).unwrap();
            let error = load(&volume, &options()).err().expect("there is no such manifest").to_string();
            assert!(error.contains("outside the volume"), "{error}");
        }
    }

    /// A manifest with sound checksums could make compaction merge the wrong runs, go on for ever or overflow.
    #[test]
    fn runs_that_no_compaction_leaves_are_refused() {
        let run = |id, level| RunMeta {
            id,
            level,
            offset: 0,
            len: 200,
            extent: 4096,
            footer_sum: 0,
            logs: 1,
            entries: 1,
        };
        assert!(check_runs(&[run(9, 0), run(7, 0), run(8, 1)], 10).is_ok());
        for (runs, because) in [
            (vec![RunMeta { len: 5000, ..run(1, 0) }], "longer than its extent"),
            (vec![run(10, 0)], "newer than the superblock knows"),
            (vec![run(1, 0), run(1, 1)], "there twice"),
            (vec![run(2, 1), run(1, 0)], "lower level than a newer one"),
            (vec![run(1, u64::MAX)], "a level that no store reaches"),
        ] {
            let error = check_runs(&runs, 10).expect_err(because).to_string();
            assert!(error.contains(because), "{error}");
        }
    }
}
