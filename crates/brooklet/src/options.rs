//! How a store is opened. Few options; the default of each, and its reason, stand beside it.

pub mod paths;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brooklet_codex::Source;
use brooklet_io::{Clock, Files, SystemClock, SystemFiles, system_seed};

use crate::error::Error;
use crate::format::manifest::PartName;
use crate::format::superblock::{MAX_RING, Superblock};
use crate::model::keyed_hash::Secret;

/// Bytes of a ring, where none are asked for.
const RING_SIZE: u64 = 64 << 20;
/// Bytes of the largest payload, where nothing is asked for.
const MAX_PAYLOAD: usize = 16 << 20;
/// Most bytes of a commit besides the payload of its only entry: the key, and what the record says
/// of the log.
const AROUND: usize = 2 << 10;
/// The longest that a write may be put off: whoever waits longer for it takes it for lost.
const LONGEST: Duration = Duration::from_secs(3600);

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
    /// As it was asked for, if it was.
    pub(crate) ring_size: Option<u64>,
    pub(crate) capacity: u64,
    pub(crate) ring: Option<PathBuf>,
    pub(crate) memory_budget: usize,
    pub(crate) cache_budget: usize,
    pub(crate) bounds_cache: Option<usize>,
    /// As it was asked for, if it was.
    pub(crate) max_payload: Option<usize>,
    pub(crate) block_size: usize,
    pub(crate) depth: usize,
    pub(crate) interval: Duration,
    pub(crate) rate: u64,
    pub(crate) linger: Duration,
    pub(crate) create: Create,
    pub(crate) read_only: bool,
    pub(crate) copy_damaged: bool,
    pub(crate) io_uring: bool,
    pub(crate) direct: bool,
    pub(crate) threads: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) seed: u64,
    pub(crate) secret: Secret,
    pub(crate) offload_reader: Option<OffloadReader>,
    pub(crate) metrics_file: Option<MetricsFile>,
    pub(crate) files: Arc<dyn Files>,
}

type Open = dyn Fn(PartName) -> Result<Arc<dyn Source>, Error> + Send + Sync;

/// Opens what was offloaded.
#[derive(Clone)]
pub(crate) struct OffloadReader(pub Arc<Open>);

impl fmt::Debug for OffloadReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Elsewhere")
    }
}

/// What opening does where no store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// Fail.
    Never,
    /// Create one.
    IfMissing,
    /// Create one; fail where there is something already.
    New,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        let wal = brooklet_wal::Config::default();
        Self {
            ring_size: None,
            capacity: 0,
            ring: None,
            memory_budget: 128 << 20,
            cache_budget: 64 << 20,
            bounds_cache: None,
            max_payload: None,
            block_size: wal.block_size,
            depth: wal.depth,
            interval: wal.interval,
            rate: wal.rate,
            linger: wal.linger,
            create: Create::IfMissing,
            read_only: false,
            copy_damaged: false,
            io_uring: true,
            direct: true,
            threads: true,
            clock: Arc::new(SystemClock::new()),
            seed: system_seed(),
            secret: Secret::of_system(),
            offload_reader: None,
            metrics_file: None,
            files: Arc::new(SystemFiles),
        }
    }

    /// Keeps a file of the store's [metrics](crate::Store::metrics) in the text format of
    /// Prometheus, which is replaced `every` so often while the store is open, and removed as it is
    /// closed. `brooklet top` shows it live; named `….prom` in the right directory, a node exporter
    /// collects it. None: there is no such file, and nothing is done for it.
    pub fn metrics_file(mut self, path: impl AsRef<Path>, every: Duration) -> Self {
        self.metrics_file = Some(MetricsFile { path: path.as_ref().into(), every });
        self
    }

    /// Bytes of the ring of a store that is made. 64 MiB: it takes the largest payload with room to
    /// spare, and it is read back in some tens of milliseconds after a crash. At least 64 KiB; a
    /// multiple of 4096.
    ///
    /// A store that is there keeps the ring that it has. Where that is of another size, opening the
    /// store works all the same and leaves a warning (by `tracing`), so that a program may ask for
    /// its ring at each start, whatever became of the store;
    /// [`StoreInfo::ring_size`](crate::StoreInfo::ring_size) tells what is there.
    pub fn ring_size(mut self, bytes: u64) -> Self {
        self.ring_size = Some(bytes);
        self
    }

    /// Gives the bytes of the parts that were [offloaded](crate::Store::offload): asked for each of
    /// them when the store is opened. A store of which parts were offloaded cannot be opened
    /// without, also for reading only.
    pub fn offload_reader(
        mut self,
        open: impl Fn(PartName) -> Result<Arc<dyn Source>, Error> + Send + Sync + 'static,
    ) -> Self {
        self.offload_reader = Some(OffloadReader(Arc::new(open)));
        self
    }

    /// Bytes of the volume that the store may use, ring and superblock included; fixed when the
    /// store is created. A multiple of 4096; it leaves the heap 1 MiB at least. A device must have
    /// the capacity each time the store is opened.
    ///
    /// 0, the default: a store that is made may use its device whole, or grow in its file as the
    /// file system lets it, and one that is there keeps the capacity that it has. Where another one
    /// is asked for than the store has, opening fails with [`Error::OtherCapacity`]: others may
    /// rely on the rest of the disk, or the store on more than that.
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

    /// The file or block device that the ring lies on by itself: a small fast disk beside a large
    /// one. Fixed when the store is created, and named each time it is opened. Without it, the ring
    /// lies in the store's own file.
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

    /// Bytes of memory for recent entries. 128 MiB: twice the default ring, since the ring is
    /// compressed. Half of it starts a checkpoint. What is found in the ring when a store is opened
    /// comes on top, as far as it takes more than half, until it has been checkpointed.
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.memory_budget = bytes;
        self
    }

    /// Bytes of memory for looking logs up. 64 MiB: two million logs that are committed to now and
    /// then, and filters and indexes of some ten million, or of fewer and what is read often. At
    /// least 256 KiB.
    ///
    /// Up to half of it is for the bounds of logs that were committed to since the store was opened
    /// and rest now, 16 bytes each in places of which a quarter or more are taken: a commit to one
    /// of them, and asking for its bounds, looks nothing up. The rest holds filters and indexes of
    /// the runs, and the blocks that were read last. What does not fit stays on the volume and is
    /// read when it is wanted, in blocks of 16 KiB or less. Finding out that a run does not have a
    /// log then takes one such read. These reads go through the system's page cache, which may
    /// answer them and is not part of this. What nobody asks for leaves memory after some ten
    /// seconds, filters after a minute and a half, unless the store is open read-only: it has no
    /// thread to see to that.
    pub fn cache_budget(mut self, bytes: usize) -> Self {
        self.cache_budget = bytes;
        self
    }

    /// Largest payload in bytes. 16 MiB, or what the ring takes if that is less. A ring takes about
    /// a third of itself; where more is asked for than the store's does, opening fails.
    pub fn max_payload(mut self, bytes: usize) -> Self {
        self.max_payload = Some(bytes);
        self
    }

    /// Most bytes of a block of the ring. 1 MiB. That is what the store starts with; it finds out
    /// under load whether smaller ones serve better. What waits for a block that fills slowly is
    /// written before it is full.
    pub fn block_size(mut self, bytes: usize) -> Self {
        self.block_size = bytes;
        self
    }

    /// Most writes to the ring in flight at once. 16: enough to hide a cloud volume's latency. The
    /// store starts with 4 and finds out under load how many serve best.
    pub fn depth(mut self, writes: usize) -> Self {
        self.depth = writes;
        self
    }

    /// The least time from the start of a write to the ring to the start of the next, for a volume
    /// that is paid for by the operation: 1/3000 s, say. Zero: none.
    pub fn write_interval(mut self, time: Duration) -> Self {
        self.interval = time;
        self
    }

    /// Most bytes written to the ring in a second, for a volume that is paid for by the byte. Zero:
    /// no limit.
    pub fn write_rate(mut self, bytes: u64) -> Self {
        self.rate = bytes;
        self
    }

    /// How long a durable append may rest when nobody waits for it. 1 ms: a batch for callers that
    /// do not wait.
    pub fn linger(mut self, time: Duration) -> Self {
        self.linger = time;
        self
    }

    /// What to do where no store is. [`Create::IfMissing`].
    pub fn create(mut self, create: Create) -> Self {
        self.create = create;
        self
    }

    /// Opens for reading only: nothing is written, not even by recovery. Several readers may share
    /// a closed store.
    ///
    /// A store of whose ring a part is damaged opens in no other way.
    /// [`Store::damage`](crate::Store::damage) names that part and the logs that it is known to
    /// touch. Logs that are made behind it, or whose entries before it were all trimmed since, read
    /// as ever. All others read as they were before it, and then comes
    /// [`Error::Damaged`](crate::Error::Damaged), since nobody can tell what the missing commits
    /// did to them; so do listings. Entries of theirs that are behind it are read by their numbers,
    /// which the error tells; asking for bounds fails with the same error.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Has [`copy`](Self::copy) take over damaged runs as they are (default: `false`; then it
    /// fails). The copy reads as what it was copied from: [`Error::Damaged`](crate::Error::Damaged)
    /// where that is damaged, and all else. For what is left of a store, or of a backup, where
    /// nothing better is to be had.
    pub fn copy_damaged(mut self, copy_damaged: bool) -> Self {
        self.copy_damaged = copy_damaged;
        self
    }

    /// Uses io_uring where the kernel lets it; threads otherwise. On.
    pub fn io_uring(mut self, on: bool) -> Self {
        self.io_uring = on;
        self
    }

    /// Bypasses the page cache where the file system lets it. On.
    pub fn direct(mut self, on: bool) -> Self {
        self.direct = on;
        self
    }

    /// Sets whether the store starts threads of its own. Without them nothing happens by itself: a
    /// simulator calls [`Store::step`](crate::Store::step) instead. Default: on. Needs the feature
    /// `testing`.
    #[cfg(any(test, feature = "testing"))]
    pub fn threads(mut self, on: bool) -> Self {
        self.threads = on;
        self
    }

    /// Bytes of the cache budget for what is remembered of logs, where a test wants it to be other
    /// than half of that.
    #[doc(hidden)]
    #[cfg(any(test, feature = "testing"))]
    pub fn bounds_cache(mut self, bytes: usize) -> Self {
        self.bounds_cache = Some(bytes);
        self
    }

    /// Sets the clock that retention by age, pace and statistics go by. Default: the system's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the seed of all random choices. Default: drawn anew at each opening.
    ///
    /// A reader of the seed can choose keys that a filter or a table takes for one another. Where
    /// strangers choose keys, use the default, or a secret number.
    pub fn rng_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self.secret = Secret::of_seed(seed);
        self
    }

    /// Where paths lead, instead of to the files of this machine: for simulators.
    #[doc(hidden)]
    pub fn files(mut self, files: Arc<dyn Files>) -> Self {
        self.files = files;
        self
    }

    /// The store's path, and options whose paths stay what they are wherever the process goes.
    /// Refuses one place for two things.
    pub(crate) fn settled(mut self, path: &Path) -> Result<(PathBuf, Self), Error> {
        let may_be_made = self.create != Create::Never && !self.read_only;
        let path = paths::resolve(path, may_be_made)?;
        self.ring = self.ring.as_deref().map(|ring| paths::resolve(ring, may_be_made)).transpose()?;
        self.settle_metrics()?;
        let mut taken = vec![("the store", path.clone())];
        let ring = self.ring.iter().map(|ring| ("its ring", ring.clone()));
        let metrics = self.metrics_file.iter().flat_map(|metrics| [metrics.path.clone(), metrics.part()]);
        for (what, at) in ring.chain(metrics.map(|metrics| ("its file of metrics", metrics))) {
            if let Some((of, _)) = taken.iter().find(|(of, other)| *of != what && paths::same(other, &at)) {
                let what = format!("{} cannot be both {of} and {what}: name another", at.display());
                return Err(Error::InvalidOptions(what));
            }
            taken.push((what, at));
        }
        Ok((path, self))
    }

    /// Fixes where the file of metrics is.
    pub(crate) fn settle_metrics(&mut self) -> Result<(), Error> {
        if let Some(metrics) = &mut self.metrics_file {
            metrics.path = paths::absolute(&metrics.path)?;
        }
        Ok(())
    }

    /// Largest payload in bytes.
    pub(crate) fn largest_payload(&self) -> usize {
        self.max_payload.unwrap_or(MAX_PAYLOAD)
    }

    /// Refuses payloads that no commit brings into a ring of `ring` bytes.
    pub(crate) fn fits(&self, ring: u64) -> Result<(), Error> {
        let most = brooklet_wal::max_record(ring).saturating_sub(AROUND);
        let Some(asked) = self.max_payload.filter(|asked| *asked > most) else { return Ok(()) };
        Err(Error::InvalidOptions(format!(
            "payloads of {asked} bytes in a ring of {ring}: it takes {most} at most, so ask for those, or make the store \
             with a larger ring"
        )))
    }

    /// Bytes of the ring of a store that is made with these options.
    pub(crate) fn new_ring_size(&self) -> u64 {
        self.ring_size.unwrap_or(RING_SIZE)
    }

    /// Compares what was asked for with the store that is there.
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
                "the ring has another size than was asked for, which counts for new stores only"
            );
        }
        Ok(())
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::InvalidOptions(what));
        let (ring, min) = (self.new_ring_size(), brooklet_wal::MIN_RING);
        if ring < min || !ring.is_multiple_of(brooklet_io::SECTOR as u64) {
            return wrong(format!("a ring of {ring} bytes: use a multiple of 4096, at least {min}"));
        }
        if ring > MAX_RING {
            return wrong(format!("a ring of {ring} bytes: use at most {MAX_RING}"));
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
                "{} bytes a second: no write is smaller than 4096, use that or more",
                self.rate
            ));
        }
        for (what, time) in [("a write every", self.interval), ("a linger of", self.linger)] {
            if time > LONGEST {
                return wrong(format!("{what} {} s: use at most {}", time.as_secs(), LONGEST.as_secs()));
            }
        }
        if self.read_only && self.create == Create::New {
            return wrong("a new store that is open for reading only: make it first, then open it".into());
        }
        match &self.metrics_file {
            Some(metrics) if metrics.every.is_zero() => {
                return wrong("a file of metrics written without a pause: use a millisecond or more".into());
            }
            Some(_) if !self.threads => {
                return wrong(
                    "a file of metrics without threads: only a thread of the store's keeps one".into(),
                );
            }
            _ => {}
        }
        if self.memory_budget < 64 << 10 {
            return wrong(format!("a memory budget of {} bytes: use at least 64 KiB", self.memory_budget));
        }
        if self.cache_budget < 256 << 10 {
            return wrong(format!("a cache budget of {} bytes: use at least 256 KiB", self.cache_budget));
        }
        Ok(())
    }
}

/// Where the metrics are written, and how often.
#[derive(Clone, Debug)]
pub(crate) struct MetricsFile {
    pub path: PathBuf,
    pub every: Duration,
}

impl MetricsFile {
    /// Where a whole document is written before it takes the place of the one before.
    pub fn part(&self) -> PathBuf {
        let mut part = self.path.clone().into_os_string();
        part.push(".part");
        part.into()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::Mutex;

    use brooklet_io::{ManualClock, MemVolume};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;

    /// Keeps what is warned of.
    #[derive(Clone, Default)]
    struct Warnings(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == Level::WARN
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut text = Text::default();
            event.record(&mut text);
            self.0.lock().unwrap().push(text.0);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[derive(Default)]
    struct Text(String);

    impl Visit for Text {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.0 += &format!("{field}={value:?} ");
        }
    }

    fn options() -> Options {
        let clock = Arc::new(ManualClock::default());
        Options::new().max_payload(8 << 10).threads(false).clock(clock).rng_seed(1)
    }

    #[test]
    fn a_ring_of_another_size_is_warned_of_and_opened() {
        let volume = Arc::new(MemVolume::new(1));
        drop(options().ring_size(128 << 10).create_on(volume.clone()).unwrap());
        let open = |options: Options| {
            let warnings = Warnings::default();
            let store =
                tracing::subscriber::with_default(warnings.clone(), || options.open_on(volume.clone()));
            assert_eq!(store.unwrap().info().unwrap().ring_size, 128 << 10);
            std::mem::take(&mut *warnings.0.lock().unwrap())
        };
        assert_eq!(open(options()), [""; 0]);
        assert_eq!(open(options().ring_size(128 << 10)), [""; 0]);
        let told = open(options().ring_size(64 << 10));
        assert!(told.len() == 1 && told[0].contains("asked=65536 found=131072"), "{told:?}");
    }

    #[test]
    fn another_capacity_than_the_stores_is_refused() {
        const MIB: u64 = 1 << 20;
        for made in [0, 4 * MIB] {
            let volume = Arc::new(MemVolume::new(1));
            let options = || options().ring_size(64 << 10);
            drop(options().capacity(made).create_on(volume.clone()).unwrap());
            for asked in [0, 3 * MIB, 4 * MIB, 5 * MIB] {
                for read_only in [false, true] {
                    let opened = options().capacity(asked).read_only(read_only).open_on(volume.clone());
                    match opened {
                        Ok(store) => {
                            assert!(asked == 0 || asked == made, "{asked}");
                            assert_eq!(store.info().unwrap().capacity, made);
                        }
                        Err(error) => {
                            assert!(asked > 0 && asked != made, "{error}");
                            let told = matches!(
                                error, Error::OtherCapacity { asked: a, found, .. } if (a, found) == (asked, made)
                            );
                            assert!(told, "{error}");
                        }
                    }
                }
            }
        }
    }
}
