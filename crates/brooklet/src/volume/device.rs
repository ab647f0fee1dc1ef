//! Formatting: a store on a block device, of which nobody knows that it is free for it.
//!
//! The steps: have the devices alone (whatever is mounted or otherwise in use is refused here);
//! look what they bear, and go on only if that is nothing, or is to be overwritten by force; wipe;
//! then create as in a file.
//!
//! Wherever the power goes, what is left is what was there, or is refused as no store, or is the
//! new store: what makes a store of a device - superblock, label - goes first and durably, and
//! comes last, when the ring has its name.

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
    /// Where the store is.
    pub name: String,
    /// Identity of the store.
    pub id: u128,
    /// Bytes that the store may use there; 0: a file may grow as its file system lets it.
    pub capacity: u64,
    /// Bytes of the ring.
    pub ring_size: u64,
    /// Where the ring is, if it has a volume of its own.
    pub ring: Option<String>,
    /// What was overwritten: the device, and what it bore.
    pub overwritten: Vec<(String, String)>,
}

impl Options {
    /// Makes an empty store at `path`, and its ring [where these options say](Self::ring_at). Each
    /// is a block device, or the name of a file that is not there yet. The store is closed
    /// afterwards.
    ///
    /// A device must be blank: all of its first and last MiB is zero. `force` overwrites what a
    /// device bears.
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
    /// [`Error::NotBlank`] names what a device bears; [`Error::Locked`], even by force, where it is
    /// mounted or otherwise in use; [`Error::Exists`], even by force, where there is a file;
    /// [`Error::InvalidOptions`] where a device is too small.
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

    /// [`format`](Self::format) on volumes.
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

    /// `devices` are those of the volumes that may bear something.
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
                signature::look(&**device).map_err(Error::io(format!("looking at what {name} bears")))?;
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

/// Where a part of a store is to be.
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

/// Takes from devices all that makes something of them, to their very last byte: backups of
/// partition tables lie there, whether or not the store can use it. What makes a store of them goes
/// first: else one could be found that is whole but for its ring.
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
