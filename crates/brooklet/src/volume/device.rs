//! Formatting: makes a store on a block device that may hold other data.
//!
//! Formatting first opens the devices exclusively, which refuses a mounted or used device. It then
//! looks for data on the devices, and continues only if there is none, or if `force` is set. Then
//! it wipes the devices, and creates the store as in a file.
//!
//! After a power failure at any time, a device holds its old data, or is refused as no store, or is
//! the new store. For this, wiping first removes the superblock and label durably. Creation writes
//! them last, after the ring has its name.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use brooklet_io::{AlignedBuf, Persist, SECTOR, Volume, write_all_at};

use crate::error::Error;
use crate::format::superblock::{RING_OFFSET, Superblock};
use crate::options::{Create, Options};
use crate::volume::create::{self, Draft, Drafts};
use crate::volume::signature::{self, ENDS};
use crate::volume::{self, Volumes};

/// A store that was made by [`Options::format`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Formatted {
    /// The path or name of the store.
    pub name: String,
    /// The id of the store.
    pub id: u128,
    /// Maximum size that the store may use, in bytes; 0 for a file that may grow as its file system
    /// allows.
    pub capacity: u64,
    /// Size of the ring, in bytes.
    pub ring_size: u64,
    /// The path or name of the ring, if the ring has its own volume.
    pub ring: Option<String>,
    /// The overwritten data: the name of each device, and a description of its old data.
    pub overwritten: Vec<(String, String)>,
}

impl Options {
    /// Makes an empty store at `path`, and its ring [at the place in these options](Self::ring_at).
    /// Each place is a block device, or the name of a file that does not exist yet. The store is
    /// closed afterwards.
    ///
    /// A device must be blank: its first and last MiB must contain only zeros. `force` overwrites
    /// the data of a device.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("store"); // in real life "/dev/nvme1n1"
    /// let options = brooklet::Options::new().ring_size(1 << 20).max_payload(1 << 16);
    /// let made = options.clone().capacity(64 << 20).format(&path, false)?;
    /// assert_eq!((made.capacity, made.overwritten.len()), (64 << 20, 0));
    /// options.create(brooklet::Create::Never).open(&path)?.append("log", b"entry")?.wait()
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotBlank`] names the data on a device; [`Error::Locked`], even with `force`, if a
    /// device is mounted or otherwise in use; [`Error::Exists`], even with `force`, if there is a
    /// file; [`Error::InvalidOptions`] if a device is too small.
    pub fn format(self, path: impl AsRef<Path>, force: bool) -> Result<Formatted, Error> {
        self.validate()?;
        let (path, options) = self.create(Create::New).read_only(false).settled(path.as_ref())?;
        let data = Place::find(&path, &options)?;
        let ring = options.ring.as_deref().map(|ring| Place::find(ring, &options)).transpose()?;
        let volumes = Volumes { data: data.volume(), ring: ring.as_ref().map(Place::volume) };
        let devices: Vec<_> =
            [Some(&data), ring.as_ref()].into_iter().flatten().filter_map(Place::device).collect();
        let drafts = Drafts { data: data.draft(), ring: ring.as_ref().and_then(Place::draft) };
        let made = options.make(&volumes, drafts, &devices, force)?;
        let ring = options.ring.map(|ring| ring.display().to_string());
        Ok(Formatted { name: path.display().to_string(), ring, ..made })
    }

    /// Makes a store like [`format`](Self::format), on volumes.
    #[doc(hidden)]
    pub fn format_on(
        self,
        volume: Arc<dyn Volume>,
        ring: Option<Arc<dyn Volume>>,
        force: bool,
    ) -> Result<Formatted, Error> {
        self.validate()?;
        let devices: Vec<_> = [Some(&volume), ring.as_ref()].into_iter().flatten().cloned().collect();
        self.make(&Volumes { data: volume, ring }, Drafts::default(), &devices, force)
    }

    /// Makes a store; `devices` are the volumes that may hold other data.
    fn make(
        &self,
        volumes: &Volumes,
        drafts: Drafts<'_>,
        devices: &[Arc<dyn Volume>],
        force: bool,
    ) -> Result<Formatted, Error> {
        let mut overwritten = Vec::new();
        for device in devices {
            let name = device.info().name;
            let found =
                signature::look(&**device).map_err(Error::io(format!("looking for data on {name}")))?;
            overwritten.extend(found.map(|found| (name, found)));
        }
        if !force && !overwritten.is_empty() {
            let (name, found) = overwritten.swap_remove(0);
            return Err(Error::NotBlank { name, found });
        }
        let superblock = create::plan(volumes, self)?;
        wipe(devices)?;
        if !create::write(volumes, &superblock, drafts)? {
            return Err(Error::exists(drafts.data.map_or(volumes.data.info().name, Draft::name)));
        }
        let Superblock { id, capacity, ring_size, .. } = superblock;
        let ring = volumes.ring.as_ref().map(|ring| ring.info().name);
        Ok(Formatted { name: volumes.data.info().name, id, capacity, ring_size, ring, overwritten })
    }
}

/// The place for a part of a store.
enum Place {
    Device(Arc<dyn Volume>),
    File(Draft),
}

impl Place {
    fn find(path: &Path, options: &Options) -> Result<Self, Error> {
        let is_device = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
        if !is_device {
            return Ok(Place::File(Draft::new(path, options)?));
        }
        Ok(Place::Device(volume::volume(path, options)?))
    }

    fn volume(&self) -> Arc<dyn Volume> {
        match self {
            Place::Device(volume) => volume.clone(),
            Place::File(draft) => draft.volume.clone(),
        }
    }

    fn device(&self) -> Option<Arc<dyn Volume>> {
        matches!(self, Place::Device(_)).then(|| self.volume())
    }

    fn draft(&self) -> Option<&Draft> {
        if let Place::File(draft) = self { Some(draft) } else { None }
    }
}

/// Wipes all signatures from devices, up to the last byte: backups of partition tables are there,
/// whether or not the store can use that space. Wipes the superblock and the label first.
/// Otherwise, a store could be found that is whole except for its ring.
fn wipe(devices: &[Arc<dyn Volume>]) -> Result<(), Error> {
    for device in devices {
        let name = device.info().name;
        let wiped = || {
            zero(&**device, 0, RING_OFFSET)?;
            device.flush()
        };
        wiped().map_err(Error::io(format!("wiping {name}")))?;
    }
    for device in devices {
        let name = device.info().name;
        let wiped = || {
            zero(&**device, 0, ENDS)?;
            zero(&**device, device.size()?.saturating_sub(ENDS), ENDS)?;
            device.zero_rest()?;
            device.flush()
        };
        wiped().map_err(Error::io(format!("wiping {name}")))?;
    }
    Ok(())
}

/// Writes zeros over the whole sectors in `len` bytes from the sector of `offset` on.
fn zero(volume: &dyn Volume, offset: u64, len: u64) -> io::Result<()> {
    let whole = |n: u64| n / SECTOR as u64 * SECTOR as u64;
    let end = whole(volume.size()?.min(offset + len));
    let start = whole(offset).min(end);
    write_all_at(volume, start, &AlignedBuf::zeroed((end - start) as usize), Persist::Cached)
}
