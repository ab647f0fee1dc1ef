//! Creation: makes an empty store on its volumes. Files get their names only once they are whole.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_io::{
    AlignedBuf, Files, OpenMode, Persist, Rng, SECTOR, Volume, publish, system_seed, write_all_at,
};
use brooklet_wal::{Cursor, Map};

use crate::error::{Error, is_full};
use crate::format::ring_label::Label;
use crate::format::superblock::{FORMAT, MIN_HEAP, Place, RING_OFFSET, Superblock};
use crate::options::Options;
use crate::volume::{Volumes, file_options};

/// Makes a store under temporary names, fills its heap with `fill`, and gives it its own name once
/// it is whole, so that nobody can find half a store. Returns `false` if another process was
/// faster.
pub(crate) fn make(
    path: &Path,
    options: &Options,
    fill: impl FnOnce(&Volumes, &mut Superblock) -> Result<(), Error>,
) -> Result<bool, Error> {
    options.validate()?;
    let data = Draft::new(path, options)?;
    let ring = options.ring.as_deref().map(|ring| Draft::new(ring, options)).transpose()?;
    let volumes = Volumes { data: data.volume.clone(), ring: ring.as_ref().map(|ring| ring.volume.clone()) };
    let mut superblock = plan(&volumes, options)?;
    fill(&volumes, &mut superblock)?;
    write(&volumes, &superblock, Drafts { data: Some(&data), ring: ring.as_ref() })
}

/// The volumes of a store that are files without their final names.
#[derive(Clone, Copy, Default)]
pub(crate) struct Drafts<'a> {
    pub data: Option<&'a Draft>,
    pub ring: Option<&'a Draft>,
}

/// A file without its final name. Dropping an unpublished draft removes the file.
pub(crate) struct Draft {
    path: PathBuf,
    draft: PathBuf,
    files: Arc<dyn Files>,
    pub volume: Arc<dyn Volume>,
}

impl Draft {
    pub fn new(path: &Path, options: &Options) -> Result<Self, Error> {
        let exists = if options.ring.as_deref() == Some(path) { Error::ring_exists } else { Error::exists };
        let name = path.display().to_string();
        if std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()) {
            let what = format!(
                "{name} is a block device: create the store by `brooklet format` or `Options::format`"
            );
            return Err(Error::InvalidOptions(what));
        }
        if options.files.exists(path).map_err(Error::io(format!("looking for {name}")))? {
            return Err(exists(name));
        }
        sweep(path);
        let (draft, volume) = new_draft(path, options).map_err(|e| creation_error(path, e))?;
        Ok(Self { path: path.to_owned(), draft, files: options.files.clone(), volume })
    }

    /// Returns the final name of the file.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Gives the file its final name. Returns `false` if another file has that name.
    fn publish(&self) -> Result<bool, Error> {
        publish(&*self.files, &self.draft, &self.path).map_err(|e| creation_error(&self.path, e))
    }

    /// Returns whether the final name exists, or may exist.
    fn is_named(&self) -> bool {
        self.files.exists(&self.path).unwrap_or(true)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Err(error) = self.files.remove(&self.draft)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%error, draft = %self.draft.display(), "the store could not remove an incomplete draft; remove it");
        }
    }
}

/// The part of a draft's name between the store's name and a random number.
const NEW: &str = ".new-";
/// Number of digits of that number.
const DIGITS: usize = 16;
/// Maximum number of random numbers that are tried. A draft needs another number if another process
/// locks its file, because that process takes the file for a leftover.
const TRIES: usize = 8;

/// Creates a file for a draft. Its name contains a random number and not the number of the process,
/// which is not unique in containers.
fn new_draft(path: &Path, options: &Options) -> io::Result<(PathBuf, Arc<dyn Volume>)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!("{NEW}{:0DIGITS$x}", system_seed()));
        let draft = path.with_file_name(name);
        match options.files.open(&draft, OpenMode::Create, file_options(options)) {
            Ok(volume) => return Ok((draft, volume)),
            Err(e) if e.kind() == ErrorKind::ResourceBusy && tries < TRIES => {}
            Err(e) => {
                let _ = options.files.remove(&draft);
                return Err(e);
            }
        }
    }
}

/// Removes the drafts of processes that were interrupted, as by a power failure, while they made
/// this store. A process that still works on a draft holds its lock.
fn sweep(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
    for found in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_draft = || {
            let found = found.file_name();
            let number = found.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(NEW.as_bytes())?;
            // No more than a draft has: somebody may have named a copy `store.new-20240101`.
            let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            (number.len() == DIGITS && number.iter().all(is_digit)).then_some(())
        };
        // A link of such a name is no draft, and is not followed.
        if is_draft().is_none() || !found.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        // The lock is held until the name is removed.
        if let Ok(left) = File::options().read(true).write(true).open(found.path())
            && left.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(found.path());
        }
    }
}

fn creation_error(path: &Path, error: io::Error) -> Error {
    if is_full(&error) {
        return Error::Full { what: "a new store", why: error.to_string() };
    }
    if error.kind() == ErrorKind::InvalidFilename {
        let (len, more) = (path.file_name().unwrap_or_default().len(), NEW.len() + DIGITS);
        return Error::InvalidOptions(format!(
            "{} cannot be created: its name has {len} bytes, and it is made under a name with \
             {more} more bytes; use a shorter name ({error})",
            path.display()
        ));
    }
    Error::io(format!("creating {}", path.display()))(error)
}

/// Makes a store on existing volumes; `fill` may fill its heap.
pub(crate) fn create(
    volumes: &Volumes,
    options: &Options,
    fill: impl FnOnce(&Volumes, &mut Superblock) -> Result<(), Error>,
) -> Result<(), Error> {
    options.validate()?;
    let mut superblock = plan(volumes, options)?;
    fill(volumes, &mut superblock)?;
    write(volumes, &superblock, Drafts::default()).map(drop)
}

/// Leaves the heap of a new store empty.
pub(crate) fn empty(_: &Volumes, _: &mut Superblock) -> Result<(), Error> {
    Ok(())
}

/// Makes the planned store, whose heap is already written, in steps. Each step is durable before
/// the next:
///
/// 1. the heap; the ring, written with zeros, and its label;
/// 2. the name of the ring's file: a ring alone does no harm, but a store without its ring would;
/// 3. the superblock, which makes its volume a store, and the name of the data's file. If that file
///    has no name yet, the superblock may be written before step 2, because nobody can find it.
///
/// After an interruption at any step, there is a whole store, or none. In the latter case, a ring
/// may be left that is to be removed.
///
/// Returns `false` if another file has the data's name.
pub(crate) fn write(volumes: &Volumes, superblock: &Superblock, drafts: Drafts<'_>) -> Result<bool, Error> {
    let failed = |e| creation_error(Path::new(&volumes.data.info().name), e);
    lay(volumes, superblock).map_err(failed)?;
    let crown = || superblock.write(&*volumes.data).map_err(failed);
    if drafts.data.is_some() && !bug("name-before-content") {
        crown()?;
    }
    if let Some(ring) = drafts.ring
        && !ring.publish()?
    {
        return Err(Error::ring_exists(ring.name()));
    }
    // A failed write may still have written the superblock. From here on, the ring of a device
    // therefore stays.
    let Some(data) = drafts.data else { return crown().map(|()| true) };
    let made = data.publish();
    // The data may have its name despite an error, for example in the sync of its folder. The data
    // then needs its ring.
    let is_made = match made {
        Ok(made) => made,
        Err(_) => !bug("ring-goes-before-its-data") && data.is_named(),
    };
    if let (false, Some(ring)) = (is_made, drafts.ring) {
        let _ = ring.files.remove(&ring.path);
    }
    if bug("name-before-content") {
        crown()?;
    }
    made
}

/// Writes all of a store except its superblock.
fn lay(volumes: &Volumes, superblock: &Superblock) -> io::Result<()> {
    let (reach, end) = (superblock.ring_reach(), superblock.ring_end());
    if let (Some(label), Some(ring)) = (Label::of(superblock), &volumes.ring) {
        lay_out(&*volumes.data, RING_OFFSET, RING_OFFSET)?;
        lay_out(&**ring, reach, end)?;
        volumes.flush()?;
        return label.write(&**ring);
    }
    lay_out(&*volumes.data, reach, end)?;
    volumes.flush()
}

/// Makes a volume at least `end` bytes long: zeros up to `used`, and no space behind, where the
/// ring may grow.
fn lay_out(volume: &dyn Volume, used: u64, end: u64) -> io::Result<()> {
    volume.grow(end)?;
    zero(volume, 0..used)?;
    if used < end {
        volume.punch(used..end)?;
    }
    Ok(())
}

/// Writes zeros. Otherwise, the first commits in the ring would also have to write metadata of the
/// file system.
pub(crate) fn zero(volume: &dyn Volume, range: Range<u64>) -> io::Result<()> {
    let zeros = AlignedBuf::zeroed((1 << 20).min((range.end - range.start) as usize));
    let mut offset = range.start;
    while offset < range.end {
        let len = zeros.len().min((range.end - offset) as usize);
        write_all_at(volume, offset, &zeros[..len], Persist::Cached)?;
        offset += len as u64;
    }
    Ok(())
}

/// Returns the superblock of a new store; an error if the volumes do not have enough room.
pub(crate) fn plan(volumes: &Volumes, options: &Options) -> Result<Superblock, Error> {
    options.fits(options.new_ring_size())?;
    let mut rng = Rng::new(options.seed ^ options.clock.wall().as_nanos() as u64);
    let mut identity = || u128::from(rng.next()) << 64 | u128::from(rng.next());
    let id = identity();
    let ring = volumes.ring.is_some().then(&mut identity);
    let mark = if ring.is_some() { identity() as u64 } else { 0 };
    let capacity = match (options.capacity, device_size(&*volumes.data)?) {
        (0, Some(size)) => size,
        (capacity, _) => capacity,
    };
    let superblock = Superblock {
        format: FORMAT,
        id,
        generation: 1,
        ring_size: options.new_ring_size(),
        epoch: 0,
        trim: Cursor { position: 0, seq: 1, lsn: 0, chain: 0 },
        acked: 0,
        clean: true,
        mirrored: false,
        manifest: Place::default(),
        next_run: 1,
        created: options.clock.wall().as_nanos() as u64,
        capacity,
        ring,
        mark,
        mark_before: mark,
        map: Map::new(options.first_ring()),
        tuning: None,
    };
    check_room(volumes, &superblock)?;
    Ok(superblock)
}

/// Returns the bytes of a device in whole sectors; `None` if the volume is not a device.
fn device_size(volume: &dyn Volume) -> Result<Option<u64>, Error> {
    let info = volume.info();
    let size = volume.size().map_err(Error::io(format!("measuring {}", info.name)))?;
    Ok(info.device.map(|_| size / SECTOR as u64 * SECTOR as u64))
}

/// Returns an error if the volumes do not have enough room for the store. Files that are too small
/// grow.
fn check_room(volumes: &Volumes, superblock: &Superblock) -> Result<(), Error> {
    let wrong = |what: String| Err(Error::InvalidOptions(what));
    let (capacity, ring) = (superblock.capacity, superblock.ring_size);
    if let Some(volume) = &volumes.ring
        && let Some(size) = device_size(&**volume)?
        && size < superblock.ring_end()
    {
        let name = volume.info().name;
        let most = size.saturating_sub(RING_OFFSET);
        return wrong(format!(
            "a ring of {ring} bytes: {name} has {size} bytes, so use at most {most} bytes"
        ));
    }
    let name = volumes.data.info().name;
    let size = device_size(&*volumes.data)?;
    if let Some(size) = size.filter(|size| *size < capacity) {
        return wrong(format!(
            "a capacity of {capacity} bytes: {name} has {size} bytes, so use at most {size} bytes"
        ));
    }
    let least = superblock.heap_offset() + MIN_HEAP;
    if capacity > 0 && capacity < least {
        let inside =
            if superblock.ring.is_none() { format!(" with a ring of {ring} bytes") } else { String::new() };
        return wrong(format!(
            "a capacity of {capacity} bytes for {name}: a store{inside} needs at least {least} bytes"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use brooklet_io::{Fault, FileVolume, MemVolume};
    use brooklet_wal::slot;

    use super::*;
    use crate::engine::recovery::load;
    use crate::format::superblock;

    /// A store is made on a device, with its ring in a file. The device loses power after each
    /// operation in turn. Whenever the device holds a store, the ring has its name.
    #[test]
    fn a_device_is_no_store_before_its_ring_has_a_name() {
        let (mut none, mut whole) = (0, 0);
        for after in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("ring");
            let options = Options::new().ring_size(64 << 10).max_payload(8 << 10).ring_at(&path);
            let device = MemVolume::from_image(vec![0; 4 << 20], after);
            device.fail(Fault::PowerOffAfter(after));
            let ring = Draft::new(&path, &options).unwrap();
            let volumes = Volumes { data: Arc::new(device.clone()), ring: Some(ring.volume.clone()) };
            let planned = Volumes { data: Arc::new(MemVolume::new(1)), ..volumes.clone() };
            let superblock = plan(&planned, &options).unwrap();
            let done = write(&volumes, &superblock, Drafts { data: None, ring: Some(&ring) });
            drop((volumes, planned, ring));
            for _ in 0..16 {
                let data: Arc<dyn Volume> = Arc::new(MemVolume::from_image(device.crash(), 1));
                let slots = slot::read(&*data, superblock::COPIES).unwrap();
                if Superblock::choose(&slots, "device", 4 << 20, false).is_err() {
                    none += 1;
                    continue;
                }
                let ring = FileVolume::open(&path, OpenMode::ReadWrite, file_options(&options));
                let ring = ring.unwrap_or_else(|error| panic!("{after}: a store without its ring: {error}"));
                load(&Volumes { data, ring: Some(Arc::new(ring)) }, &options).unwrap();
                whole += 1;
            }
            if done.is_ok() {
                break;
            }
        }
        assert!(none > 16 && whole > 16, "{none} none, {whole} whole");
    }

    /// Another process meanwhile creates a file with the data's name. The ring already has its
    /// name, and is removed.
    #[test]
    fn a_store_whose_name_is_taken_leaves_no_ring() {
        let dir = tempfile::tempdir().unwrap();
        let (data, ring) = (dir.path().join("data"), dir.path().join("ring"));
        let options = Options::new().ring_size(64 << 10).max_payload(8 << 10).ring_at(&ring);
        let taken = |_: &Volumes, _: &mut Superblock| {
            std::fs::write(&data, "taken").unwrap();
            Ok(())
        };
        assert!(!make(&data, &options, taken).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "neither ring nor draft is left");
    }
}
