//! Parts of an offloaded store: read from the archive's bucket when the store needs them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brooklet::PartName;
use brooklet::codex::Source;
use bytes::Bytes;

use crate::bucket::Bucket;
use crate::cache::Cache;
use crate::error::Error;
use crate::record::{Place, Record, Upload, name_of};
use crate::records::read_record;
use crate::remote::{Memory, RemotePart, RemoteUpload};

/// A reader of [offloaded](crate::Archive::offload) data of a store. The handle is cheap to clone.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let (folder, path) = (dir.path().join("bucket"), dir.path().join("store"));
/// # let (address, cache) = (folder.to_str().unwrap(), dir.path());
/// use std::ops::ControlFlow;
/// use brooklet::Options;
/// use brooklet_archive::{Archive, Bucket, Parts};
///
/// let bucket = Bucket::open(address)?;
/// let parts = Parts::new(&bucket, 32 << 20).cache(cache, 256 << 20)?;
/// let open = || Options::new().offload_reader({ let parts = parts.clone(); move |name| parts.open(name) }).open(&path);
///
/// let store = open()?;
/// store.append_many("doc/1", ["a", "b"])?.wait()?;
/// let mut archive = Archive::new(bucket, dir.path().join("note"), "this host")?.with_parts(parts.clone());
/// archive.backup(&store, brooklet::Progress::ignore)?;
/// let offloaded = archive.offload(&store, 0, brooklet::Progress::ignore)?;
/// assert_eq!(offloaded.left, 0);
/// # store.close()?;
/// # drop(store);
/// assert_eq!(open()?.bounds("doc/1")?.next, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Parts {
    bucket: Bucket,
    memory: Arc<Memory>,
    cache: Option<Arc<Cache>>,
    /// The last backups that had what was asked for, the one of the last request first.
    known: Arc<Mutex<Vec<Located>>>,
}

/// Number of backups whose parts are remembered.
const KNOWN: usize = 4;

impl Parts {
    /// Returns a reader of the parts of the archive in a bucket. A sequential read reads ahead,
    /// within about `memory` bytes. Makes no request to the bucket.
    pub fn new(bucket: &Bucket, memory: usize) -> Self {
        Self { bucket: bucket.clone(), memory: Memory::new(memory), cache: None, known: Arc::default() }
    }

    /// Caches looked-up data, up to `bytes`, in a file in the directory `dir`. The file has no
    /// name, and the system removes it when the process ends. Repeated look-ups of logs, filters
    /// and indexes then cost no request.
    ///
    /// # Errors
    /// [`Error::Cache`].
    pub fn cache(self, dir: impl AsRef<Path>, bytes: u64) -> Result<Self, Error> {
        let cache = Cache::new(dir.as_ref(), bytes).map_err(|cause| {
            let path = dir.as_ref().to_path_buf();
            Error::Cache { path, cause }
        })?;
        Ok(Self { cache: Some(Arc::new(cache)), ..self })
    }

    /// Opens a part of the last backup that has it, for
    /// [`Options::offload_reader`](brooklet::Options::offload_reader).
    ///
    /// # Errors
    /// [`brooklet::Error::Io`] where the bucket cannot be read, or has no backup;
    /// [`brooklet::Error::Damaged`] where the part is in no backup.
    pub fn open(&self, name: PartName) -> Result<Arc<dyn Source>, brooklet::Error> {
        if let Some(part) = self.find(name) {
            return Ok(part);
        }
        // A newer backup may exist. Other threads meanwhile go on with the known ones.
        let newest = self.bucket.latest().map_err(not_found)?;
        let (mut latest, mut failed) = (None, None);
        // Another host backs up its own file, which has other parts. The bucket keeps the objects
        // of this one's backup until that backup is removed.
        for number in (0..=newest).rev() {
            let record = match read_record(&self.bucket, number) {
                Ok(record) => record,
                // It was removed, and so were all backups before it.
                Err(error @ Error::NoBackup(_)) => {
                    failed.get_or_insert(error);
                    break;
                }
                Err(error @ Error::Damaged { .. }) => {
                    tracing::warn!(%error, part = %name, "an offloaded part is looked for in other backups");
                    failed.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(not_found(error)),
            };
            if record.parts.contains_key(&name) {
                let located = self.of(Arc::new(record));
                let part = located.open(name);
                self.note(located);
                return part;
            }
            latest.get_or_insert(record);
        }
        match (latest, failed) {
            (None, Some(error)) => Err(not_found(error)),
            (latest, _) => self.of(Arc::new(latest.expect("a record was read"))).open(name),
        }
    }

    /// Opens a part of a known backup.
    fn find(&self, name: PartName) -> Option<Arc<dyn Source>> {
        let mut known = self.known();
        let at = known.iter().position(|located| located.record.parts.contains_key(&name))?;
        known[..=at].rotate_right(1);
        known[0].find(name).map(|part| part as Arc<dyn Source>)
    }

    /// Remembers the parts of a backup.
    fn note(&self, located: Located) {
        let mut known = self.known();
        known.retain(|other| other.record.number != located.record.number);
        known.insert(0, located);
        known.truncate(KNOWN);
    }

    fn known(&self) -> MutexGuard<'_, Vec<Located>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the parts of a backup.
    pub(crate) fn of(&self, record: Arc<Record>) -> Located {
        let mut objects = BTreeMap::<Upload, BTreeMap<u32, u32>>::new();
        for ((upload, at), object) in &record.objects {
            objects.entry(*upload).or_default().insert(*at, object.len);
        }
        let upload = |(upload, objects)| {
            let remote = RemoteUpload::new(&self.bucket, upload, record.object_len, objects, &self.memory);
            (upload, Arc::new(remote))
        };
        let uploads = objects.into_iter().map(upload).collect();
        let place = self.bucket.full(&name_of(record.number));
        Located { place, record, uploads, cache: self.cache.clone() }
    }
}

fn not_found(error: Error) -> brooklet::Error {
    match error {
        Error::Store(error) => error,
        error => brooklet::Error::Io {
            doing: "finding what was offloaded".into(),
            cause: Arc::new(io::Error::other(error)),
        },
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parts(in {})", self.bucket)
    }
}

/// The parts of a backup, and their places.
pub(crate) struct Located {
    /// Name of the backup's record, for messages.
    place: String,
    record: Arc<Record>,
    uploads: BTreeMap<Upload, Arc<RemoteUpload>>,
    cache: Option<Arc<Cache>>,
}

impl Located {
    /// Returns the bytes of a part, if the backup has it.
    pub fn find(&self, name: PartName) -> Option<Arc<RemotePart>> {
        let Place { upload, start, tail } = self.record.parts.get(&name)?;
        let (upload, tail) = (self.uploads.get(upload)?.clone(), Bytes::copy_from_slice(tail));
        let cached = self.cache.as_ref().map(|cache| cache.part());
        Some(Arc::new(RemotePart { upload, start: *start, len: name.len, tail, cached }))
    }

    /// Opens a part that the backup should have.
    pub fn open(&self, name: PartName) -> Result<Arc<dyn Source>, brooklet::Error> {
        let found = self.find(name).map(|part| part as Arc<dyn Source>);
        let what = || match self.record.damaged.contains(&name) {
            true => format!("part {name} could not be read when the backup was made"),
            false => format!("it does not record the place of part {name}"),
        };
        found.ok_or_else(|| brooklet::Error::Damaged { place: self.place.clone(), what: what() })
    }
}
