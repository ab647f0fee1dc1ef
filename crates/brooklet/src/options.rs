//! The options of a store. The doc of an option states its default and the reason.

pub mod hidden;
pub mod metrics_file;
pub mod mirror;
pub mod offload;
pub mod paths;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::{Clock, Files, SystemClock, SystemFiles, system_seed};

use crate::error::Error;
use crate::format::superblock::{MAX_RING, Superblock};
use crate::model::keyed_hash::Secret;
use crate::options::metrics_file::refuse_others;
use crate::options::mirror::MirrorOptions;
use crate::options::offload::OffloadReader;

/// Default size of a ring, in bytes.
const RING_SIZE: u64 = 64 << 20;
/// Size of the ring of a new store at first, in bytes.
const FIRST_RING: u64 = 4 << 20;

/// Operations from which on a commit is a long one.
const LONG: usize = 4_000;
/// Default limit of a payload, in bytes.
const MAX_PAYLOAD: usize = 16 << 20;
/// Most bytes of a commit with one entry, without its payload: the key, and the record's
/// description of the log.
const AROUND: usize = 2 << 10;
/// The longest delay of a write. A caller that waits longer takes the write for lost.
const LONGEST: Duration = Duration::from_secs(3600);

/// Permissions of files that only the user of the process needs.
const PRIVATE: u32 = 0o600;

/// Options of [`Store::open`](crate::Store::open). The defaults suit a local solid-state disk.
///
/// ```no_run
/// # fn main() -> Result<(), brooklet::Error> {
/// let store = brooklet::Options::new().ring_size(256 << 20).open("events.brooklet")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// The requested value, if any.
    pub(crate) ring_size: Option<u64>,
    pub(crate) first_ring: u64,
    /// Least number of operations of a long commit.
    pub(crate) long: usize,
    pub(crate) capacity: u64,
    pub(crate) ring: Option<PathBuf>,
    pub(crate) memory_budget: usize,
    /// The requested value, if any.
    pub(crate) cache_budget: Option<usize>,
    pub(crate) bounds_cache: Option<usize>,
    /// The requested value, if any.
    pub(crate) max_payload: Option<usize>,
    pub(crate) block_size: usize,
    pub(crate) depth: usize,
    pub(crate) interval: Duration,
    pub(crate) rate: u64,
    pub(crate) linger: Duration,
    pub(crate) create: Create,
    pub(crate) read_only: bool,
    pub(crate) beside_writer: bool,
    pub(crate) copy_damaged: bool,
    pub(crate) io_uring: bool,
    pub(crate) direct: bool,
    pub(crate) permissions: u32,
    pub(crate) threads: bool,
    /// Whether the store itself commits trims of entries that are too old.
    pub(crate) sweeps: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) seed: u64,
    pub(crate) secret: Secret,
    pub(crate) offload_reader: Option<OffloadReader>,
    pub(crate) leave_offloaded: bool,
    pub(crate) metrics_file: Option<MetricsFile>,
    pub(crate) metrics_permissions: u32,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) mirror: Option<MirrorOptions>,
}

/// The behavior of an opening where no store exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// Opening fails.
    Never,
    /// Opening creates a store.
    IfMissing,
    /// Opening creates a store, and fails if something exists at the place already.
    New,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Creates the default options.
    pub fn new() -> Self {
        let wal = brooklet_wal::Config::default();
        Self {
            ring_size: None,
            first_ring: FIRST_RING,
            long: LONG,
            capacity: 0,
            ring: None,
            memory_budget: 128 << 20,
            cache_budget: None,
            bounds_cache: None,
            max_payload: None,
            block_size: wal.block_size,
            depth: wal.depth,
            interval: wal.interval,
            rate: wal.rate,
            linger: wal.linger,
            create: Create::IfMissing,
            read_only: false,
            beside_writer: false,
            copy_damaged: false,
            io_uring: true,
            direct: true,
            permissions: PRIVATE,
            threads: true,
            sweeps: true,
            clock: Arc::new(SystemClock::new()),
            seed: system_seed(),
            secret: Secret::of_system(),
            offload_reader: None,
            leave_offloaded: false,
            metrics_file: None,
            metrics_permissions: PRIVATE,
            files: Arc::new(SystemFiles),
            mirror: None,
        }
    }

    /// Sets a second place for the store's log, such as object storage. Default: none.
    ///
    /// An import, and a space in memory, bypass the log. A store with a mirror refuses both, also
    /// when it is open without its mirror later. A [copy](Self::copy) of the store is one without a
    /// mirror.
    ///
    /// Closing waits for the mirror if [commits do](crate::Waits::Kept), and fails if the mirror
    /// has ended. If the mirror does not answer, end it first. With
    /// [`Waits::Local`](crate::Waits::Local) closing does not wait: the next opening passes the
    /// rest to the mirror.
    pub fn mirror(mut self, mirror: MirrorOptions) -> Self {
        self.mirror = Some(mirror);
        self
    }

    /// Sets a file for the store's [metrics](crate::Store::metrics), in the text format of
    /// Prometheus. The store replaces the file at the interval `every` while the store is open, and
    /// removes the file when the store is closed. `brooklet top` shows the file live; a node
    /// exporter collects a file that is named `….prom` in the right directory. Opening fails with
    /// [`Error::InvalidOptions`] if there is a file that is neither empty nor such a file. Default:
    /// no file.
    pub fn metrics_file(mut self, path: impl AsRef<Path>, every: Duration) -> Self {
        self.metrics_file = Some(MetricsFile { path: path.as_ref().into(), every });
        self
    }

    /// Sets the permissions of the metrics file. Default: 0o600. A collector that is another user
    /// needs 0o644, for example.
    pub fn metrics_permissions(mut self, mode: u32) -> Self {
        self.metrics_permissions = mode;
        self
    }

    /// Sets the permissions of the files of a new store, less those that the process's umask takes
    /// away. Default: 0o600, so that only the user of the process reads the store. The files of an
    /// existing store keep their permissions.
    pub fn permissions(mut self, mode: u32) -> Self {
        self.permissions = mode;
        self
    }

    /// Sets the size of the ring of a new store, in bytes. Default: 64 MiB, which takes the largest
    /// payload with room to spare, and which recovery reads in some tens of milliseconds after a
    /// crash. At least 64 KiB; a multiple of 4096.
    ///
    /// The ring of a new store takes 4 MiB of the disk, and grows under load up to this size. If
    /// the disk has no room for that, the ring keeps its size, and the store works on.
    ///
    /// An existing store keeps its ring. If the sizes differ, opening succeeds and logs a warning
    /// (by `tracing`), so that a program may request the same ring at each start.
    /// [`StoreInfo::ring_size`](crate::StoreInfo::ring_size) reports the actual size.
    pub fn ring_size(mut self, bytes: u64) -> Self {
        self.ring_size = Some(bytes);
        self
    }

    /// Sets the bytes of the volume that the store may use, ring and superblock included. The
    /// capacity is fixed when the store is created. A multiple of 4096; the capacity leaves the
    /// heap at least 1 MiB. A device must have the capacity each time the store is opened.
    ///
    /// Default: 0. A new store may then use its whole device, or grow in its file as far as the
    /// file system allows; an existing store keeps its capacity. If the requested capacity differs
    /// from that of the store, opening fails with [`Error::OtherCapacity`]: other programs may rely
    /// on the rest of the disk, or the store may need more than the requested bytes.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("store");
    /// let options = brooklet::Options::new().ring_size(1 << 20).max_payload(1 << 16);
    /// options.clone().capacity(64 << 20).open(&path)?.append("log", b"entry")?.wait()?;
    /// assert_eq!(options.clone().open(&path)?.info()?.capacity, 64 << 20);
    /// let error = options.capacity(32 << 20).open(&path).unwrap_err();
    /// assert!(matches!(error, brooklet::Error::OtherCapacity { .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// Sets a separate file or block device for the ring: a small fast disk next to a large one.
    /// The place is fixed when the store is created, and must be named each time the store is
    /// opened. Default: the ring is in the store's own file.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (data, ring) = (dir.path().join("data"), dir.path().join("ring"));
    /// let options = brooklet::Options::new().ring_size(1 << 20).max_payload(1 << 16).ring_at(&ring);
    /// options.clone().open(&data)?.append("log", b"entry")?.wait()?;
    /// let error = brooklet::Options::new().open(&data).unwrap_err();
    /// assert!(matches!(error, brooklet::Error::RingNeeded { .. }));
    /// assert_eq!(options.open(&data)?.bounds("log")?.next, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn ring_at(mut self, path: impl Into<PathBuf>) -> Self {
        self.ring = Some(path.into());
        self
    }

    /// Sets the bytes of memory for recent entries. Default: 128 MiB, twice the default ring, since
    /// the ring is compressed. A checkpoint starts when half of the budget is used. If the entries
    /// found in the ring at opening take more than half, the excess is added to the budget until a
    /// checkpoint has written these entries.
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.memory_budget = bytes;
        self
    }

    /// Sets the bytes of memory for looking up logs. Default: 64 MiB, for two million logs that are
    /// committed to now and then, and for the filters and indexes of some ten million logs, or of
    /// fewer logs and the data that is read often. If the largest run has more than 16 million
    /// logs, the default is 32 MiB and two bytes for each of these logs, so that the filters stay
    /// in memory: 234 MB for a hundred million logs. At least 256 KiB.
    ///
    /// Up to half of the budget holds the bounds of logs that were committed to since the opening
    /// and that rest now. Each bound takes 16 bytes, in a table of which a quarter or more is in
    /// use. A commit to such a log, and a request for its bounds, looks nothing up in the runs.
    ///
    /// The rest of the budget holds filters and indexes of the runs, and the blocks that were read
    /// last. Data beyond the budget stays on the volume; the store reads it when needed, in blocks
    /// of 16 KiB or less. One such read then shows that a run does not have a log. These reads go
    /// through the system's page cache, which may answer them and is not part of the budget.
    ///
    /// Unused blocks of entries leave memory after 10 to 20 seconds, and unused filters and indexes
    /// after 50 to 90 seconds. A store that is open read-only has no thread for this work, and
    /// keeps the data.
    pub fn cache_budget(mut self, bytes: usize) -> Self {
        self.cache_budget = Some(bytes);
        self
    }

    /// Sets the largest payload, in bytes. Default: 16 MiB, or the most that the ring takes if that
    /// is less. A ring takes a payload of about a third of its size. If the limit is more than the
    /// store's ring takes, opening fails.
    pub fn max_payload(mut self, bytes: usize) -> Self {
        self.max_payload = Some(bytes);
        self
    }

    /// Sets the most bytes of a block of the ring. Default: 1 MiB. The store starts with this size,
    /// and finds out under load whether smaller blocks serve better. The store writes a block that
    /// fills slowly before the block is full.
    pub fn block_size(mut self, bytes: usize) -> Self {
        self.block_size = bytes;
        self
    }

    /// Sets the most writes to the ring in flight at once. Default: 16, enough to hide a cloud
    /// volume's latency. The store starts with 4, and finds out under load how many writes serve
    /// best.
    pub fn depth(mut self, writes: usize) -> Self {
        self.depth = writes;
        self
    }

    /// Sets the least time from the start of one write to the ring to the start of the next, for a
    /// volume that is billed by the operation: for example 1/3000 s. Default: zero, no limit.
    pub fn write_interval(mut self, time: Duration) -> Self {
        self.interval = time;
        self
    }

    /// Sets the most bytes written to the ring per second, for a volume that is billed by the byte.
    /// Default: 0, no limit.
    pub fn write_rate(mut self, bytes: u64) -> Self {
        self.rate = bytes;
        self
    }

    /// Sets how long the store may hold back a durable append while no caller waits for it.
    /// Default: 1 ms, a batch for callers that do not wait.
    pub fn linger(mut self, time: Duration) -> Self {
        self.linger = time;
        self
    }

    /// Sets whether opening creates a store. Default: [`Create::IfMissing`].
    pub fn create(mut self, create: Create) -> Self {
        self.create = create;
        self
    }

    /// Sets whether the store is open for reading only. The store then writes nothing, not even
    /// during recovery. Several readers may share a closed store. Default: `false`.
    ///
    /// A store with a damaged part in its ring opens only in this mode.
    /// [`Store::damage`](crate::Store::damage) names this part and the logs that the damage is
    /// known to touch. A log reads normally if it was created after the damage, or if all its
    /// entries before the damage were trimmed later. Such a log may lack the limits
    /// ([`Retention`](crate::Retention)) that it got before the damage or in it, and then shows
    /// entries that these limits have removed.
    ///
    /// Every other log reads as it was before the damage, and then returns
    /// [`Error::Damaged`](crate::Error::Damaged), since the effect of the missing commits is
    /// unknown. A listing ends with the same error. A caller can read the log's entries after the
    /// damage by their numbers, which the error reports. A request for the log's bounds fails with
    /// the same error.
    ///
    /// A part of the ring, or the end of a run, that the device does not read counts as damaged in
    /// this mode. Such a store does not open for writing.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self.beside_writer &= read_only;
        self
    }

    /// Sets whether the store is open for reading only, while another process may have it open for
    /// writing. Default: `false`. Implies [`read_only`](Self::read_only).
    ///
    /// The store shows the state that was on stable media at the opening, and this state does not
    /// change. The last commits before the opening may be missing, for as long as the writer has
    /// not recorded that they are acknowledged: until its next commits, or a moment later if it
    /// rests. Logs of a space in memory are shown as of the last dump.
    ///
    /// The writer goes on, and may replace data that this store has not read yet. The read then
    /// fails with [`Error::Replaced`](crate::Error::Replaced): open the store again.
    /// [`Store::is_outdated`](crate::Store::is_outdated) returns whether there is anything newer to
    /// see. The writer need not be alive; the store needs no lock, and the writer notices nothing.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), brooklet::Error> {
    /// let store = brooklet::Options::new().beside_writer(true).open("documents.brooklet")?;
    /// println!("{:?}", store.last("doc/7")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn beside_writer(mut self, beside_writer: bool) -> Self {
        self.beside_writer = beside_writer;
        self.read_only |= beside_writer;
        self
    }

    /// Sets whether [`copy`](Self::copy) copies damaged runs as they are. Default: `false`, and
    /// [`copy`](Self::copy) then fails on a damaged run. The copy returns
    /// [`Error::Damaged`](crate::Error::Damaged) where the original is damaged, and has all other
    /// data. Use this option for the remains of a store or of a backup, when nothing better is
    /// available.
    pub fn copy_damaged(mut self, copy_damaged: bool) -> Self {
        self.copy_damaged = copy_damaged;
        self
    }

    /// Sets whether the store uses io_uring where the kernel allows it. Otherwise the store uses
    /// threads. Default: `true`.
    pub fn io_uring(mut self, on: bool) -> Self {
        self.io_uring = on;
        self
    }

    /// Sets whether the store bypasses the page cache where the file system allows it. Default:
    /// `true`.
    pub fn direct(mut self, on: bool) -> Self {
        self.direct = on;
        self
    }

    /// Sets whether the store starts its own threads. A store without threads does no work by
    /// itself: a simulator calls [`Store::step`](crate::Store::step) instead. Default: `true`.
    /// Needs the feature `testing`.
    #[cfg(any(test, feature = "testing"))]
    pub fn threads(mut self, on: bool) -> Self {
        self.threads = on;
        self
    }

    /// Sets the bytes of the cache budget for the bounds of logs. For tests that need another value
    /// than half.
    #[doc(hidden)]
    #[cfg(any(test, feature = "testing"))]
    pub fn bounds_cache(mut self, bytes: usize) -> Self {
        self.bounds_cache = Some(bytes);
        self
    }

    /// Sets the clock for retention by age, pace and statistics. Default: the system clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the seed of all random choices. Default: drawn anew at each opening.
    ///
    /// An attacker who knows the seed can choose keys that a filter or a table confuses with each
    /// other. If strangers choose keys, use the default, or a secret number.
    pub fn rng_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self.secret = Secret::of_seed(seed);
        self
    }

    /// Sets the files that paths lead to, in place of the files of this machine. For simulators.
    #[doc(hidden)]
    pub fn files(mut self, files: Arc<dyn Files>) -> Self {
        self.files = files;
        self
    }

    /// Returns the store's path and the options, with paths that do not depend on the working
    /// directory. Refuses one place for two purposes.
    pub(crate) fn settled(mut self, path: &Path) -> Result<(PathBuf, Self), Error> {
        let may_be_made = self.create != Create::Never && !self.read_only;
        let path = paths::resolve(path, may_be_made)?;
        self.ring = self.ring.as_deref().map(|ring| paths::resolve(ring, may_be_made)).transpose()?;
        self.settle_metrics()?;
        let mut taken = vec![("the store", path.clone())];
        let ring = self.ring.iter().map(|ring| ("its ring", ring.clone()));
        let metrics = self.metrics_file.iter().flat_map(|metrics| [metrics.path.clone(), metrics.part()]);
        for (what, at) in ring.chain(metrics.map(|metrics| ("its metrics file", metrics))) {
            if let Some((of, _)) = taken.iter().find(|(of, other)| *of != what && paths::same(other, &at)) {
                let what = format!("{} cannot be both {of} and {what}: name another path", at.display());
                return Err(Error::InvalidOptions(what));
            }
            taken.push((what, at));
        }
        self.refuse_other_files()?;
        Ok((path, self))
    }

    /// Refuses a path of the metrics file, whole or in part, at which there is another file.
    pub(crate) fn refuse_other_files(&self) -> Result<(), Error> {
        self.metrics_file.iter().try_for_each(|metrics| {
            refuse_others(&metrics.path)?;
            let part = metrics.part();
            // A link there is removed, and not followed.
            if part.is_symlink() { Ok(()) } else { refuse_others(&part) }
        })
    }

    /// Makes the path of the metrics file absolute.
    pub(crate) fn settle_metrics(&mut self) -> Result<(), Error> {
        if let Some(metrics) = &mut self.metrics_file {
            metrics.path = paths::absolute(&metrics.path)?;
        }
        Ok(())
    }

    /// Returns the largest payload, in bytes.
    pub(crate) fn largest_payload(&self) -> usize {
        self.max_payload.unwrap_or(MAX_PAYLOAD)
    }

    /// Refuses a payload limit that is more than a ring of `ring` bytes takes.
    pub(crate) fn fits(&self, ring: u64) -> Result<(), Error> {
        let most = brooklet_wal::max_record(ring).saturating_sub(AROUND);
        let Some(asked) = self.max_payload.filter(|asked| *asked > most) else { return Ok(()) };
        Err(Error::InvalidOptions(format!(
            "payloads of {asked} bytes do not fit in a ring of {ring} bytes: use at most {most} bytes, or create the store \
             with a larger ring"
        )))
    }

    /// Returns the size that the ring of a new store may grow to, in bytes.
    pub(crate) fn new_ring_size(&self) -> u64 {
        self.ring_size.unwrap_or(RING_SIZE)
    }

    /// Returns the size of the ring of a new store at first, in bytes.
    pub(crate) fn first_ring(&self) -> u64 {
        self.first_ring.min(self.new_ring_size())
    }

    /// Compares the requested values with the existing store.
    pub(crate) fn compare(&self, name: &str, found: &Superblock) -> Result<(), Error> {
        if self.capacity > 0 && self.capacity != found.capacity {
            let (name, asked, found) = (name.into(), self.capacity, found.capacity);
            return Err(Error::OtherCapacity { name, asked, found });
        }
        if !self.read_only {
            self.fits(found.ring_size)?;
        }
        if let Some(asked) = self.ring_size.filter(|asked| *asked != found.ring_size) {
            tracing::warn!(
                store = name,
                asked,
                found = found.ring_size,
                "the ring keeps its size: the requested size applies to new stores only"
            );
        }
        Ok(())
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::InvalidOptions(what));
        let (ring, min) = (self.new_ring_size(), brooklet_wal::MIN_RING);
        if ring < min || !ring.is_multiple_of(brooklet_io::SECTOR as u64) {
            return wrong(format!("a ring of {ring} bytes: use a multiple of 4096, at least {min} bytes"));
        }
        if ring > MAX_RING {
            return wrong(format!("a ring of {ring} bytes: use at most {MAX_RING} bytes"));
        }
        if !self.capacity.is_multiple_of(brooklet_io::SECTOR as u64) || self.capacity >= 1 << 62 {
            return wrong(format!("a capacity of {} bytes: use a multiple of 4096", self.capacity));
        }
        if self.depth == 0 || self.depth > 1024 {
            return wrong(format!("{} writes in flight: use 1 to 1024", self.depth));
        }
        if self.block_size < 4096 || self.block_size > 16 << 20 {
            return wrong(format!("a block of {} bytes: use 4 KiB to 16 MiB", self.block_size));
        }
        if self.rate > 0 && self.rate < brooklet_io::SECTOR as u64 {
            return wrong(format!(
                "a rate of {} bytes/s is below the smallest write: use at least 4096 bytes/s",
                self.rate
            ));
        }
        for (what, time) in [("a write every", self.interval), ("a linger of", self.linger)] {
            if time > LONGEST {
                return wrong(format!("{what} {} s: use at most {} s", time.as_secs(), LONGEST.as_secs()));
            }
        }
        if self.read_only && self.create == Create::New {
            return wrong("a new store cannot be read-only: create it first, then open it read-only".into());
        }
        match &self.metrics_file {
            Some(metrics) if metrics.every.is_zero() => {
                return wrong("a metrics file with an interval of 0: use at least 1 ms".into());
            }
            Some(_) if !self.threads => {
                return wrong("a metrics file needs a thread of the store: allow threads".into());
            }
            _ => {}
        }
        self.mirror.as_ref().map_or(Ok(()), MirrorOptions::check)?;
        if self.memory_budget < 64 << 10 {
            return wrong(format!("a memory budget of {} bytes: use at least 64 KiB", self.memory_budget));
        }
        if let Some(bytes) = self.cache_budget.filter(|bytes| *bytes < 256 << 10) {
            return wrong(format!("a cache budget of {bytes} bytes: use at least 256 KiB"));
        }
        Ok(())
    }
}

/// The path of the metrics file, and the interval between its replacements.
#[derive(Clone, Debug)]
pub(crate) struct MetricsFile {
    pub path: PathBuf,
    pub every: Duration,
}

impl MetricsFile {
    /// Returns the path of the temporary file that replaces the metrics file once it is complete.
    pub fn part(&self) -> PathBuf {
        let mut part = self.path.clone().into_os_string();
        part.push(".part");
        part.into()
    }
}
