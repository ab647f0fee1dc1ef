//! How a store is opened. Few options; the default of each, and its reason, stand beside it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::{Clock, SystemClock, system_seed};

use crate::error::Error;
use crate::superblock::MAX_RING;

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
    pub(crate) ring_size: u64,
    pub(crate) capacity: u64,
    pub(crate) ring: Option<PathBuf>,
    pub(crate) memory_budget: usize,
    pub(crate) max_payload: usize,
    pub(crate) block_size: usize,
    pub(crate) depth: usize,
    pub(crate) interval: Duration,
    pub(crate) rate: u64,
    pub(crate) linger: Duration,
    pub(crate) create: Create,
    pub(crate) read_only: bool,
    pub(crate) io_uring: bool,
    pub(crate) direct: bool,
    pub(crate) threads: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) seed: u64,
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
            ring_size: 64 << 20,
            capacity: 0,
            ring: None,
            memory_budget: 128 << 20,
            max_payload: 16 << 20,
            block_size: wal.block_size,
            depth: wal.depth,
            interval: wal.interval,
            rate: wal.rate,
            linger: wal.linger,
            create: Create::IfMissing,
            read_only: false,
            io_uring: true,
            direct: true,
            threads: true,
            clock: Arc::new(SystemClock::new()),
            seed: system_seed(),
        }
    }

    /// Bytes of the ring; fixed when the store is created. 64 MiB: it takes the largest payload with room to spare,
    /// and it is read back in some tens of milliseconds after a crash. At least 64 KiB.
    pub fn ring_size(mut self, bytes: u64) -> Self {
        self.ring_size = bytes;
        self
    }

    /// Bytes of the volume that the store may use, ring and superblock included; fixed when the store is created. 0: a
    /// file grows as its file system lets it, and a device is used whole. A device must have the capacity each time the
    /// store is opened. A multiple of 4096; it leaves the heap 1 MiB at least.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// The file or block device that the ring lies on by itself: a small fast disk beside a large one. Fixed when the
    /// store is created, and named each time it is opened. Without it, the ring lies in the store's own file.
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

    /// Bytes of memory for recent entries. 128 MiB: twice the default ring, since the ring is compressed. Half of it
    /// starts a checkpoint.
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.memory_budget = bytes;
        self
    }

    /// Largest payload in bytes. 16 MiB; at most about a third of the ring.
    pub fn max_payload(mut self, bytes: usize) -> Self {
        self.max_payload = bytes;
        self
    }

    /// Most bytes of a block of the ring. 1 MiB. The store starts with 256 KiB, the largest write that cloud volumes take
    /// in one piece, and finds out under load which size serves best.
    pub fn block_size(mut self, bytes: usize) -> Self {
        self.block_size = bytes;
        self
    }

    /// Most writes to the ring in flight at once. 16: enough to hide a cloud volume's latency. The store starts with 4 and
    /// finds out under load how many serve best.
    pub fn depth(mut self, writes: usize) -> Self {
        self.depth = writes;
        self
    }

    /// The least time from the start of a write to the ring to the start of the next, for a volume that is paid for by the
    /// operation: 1/3000 s, say. Zero: none.
    pub fn write_interval(mut self, time: Duration) -> Self {
        self.interval = time;
        self
    }

    /// Most bytes written to the ring in a second, for a volume that is paid for by the byte. Zero: no limit.
    pub fn write_rate(mut self, bytes: u64) -> Self {
        self.rate = bytes;
        self
    }

    /// How long a durable append may rest when nobody waits for it. 1 ms: a batch for callers that do not wait.
    pub fn linger(mut self, time: Duration) -> Self {
        self.linger = time;
        self
    }

    /// What to do where no store is. [`Create::IfMissing`].
    pub fn create(mut self, create: Create) -> Self {
        self.create = create;
        self
    }

    /// Opens for reading only: nothing is written, not even by recovery. Several readers may share a closed store.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
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

    /// Starts the store's own threads. Without them nothing happens by itself: a simulator calls
    /// [`Store::step`](crate::Store::step) instead. On.
    #[doc(hidden)]
    pub fn threads(mut self, on: bool) -> Self {
        self.threads = on;
        self
    }

    /// The clock and the seed for everything that needs chance: the system's by default.
    pub fn environment(mut self, clock: Arc<dyn Clock>, seed: u64) -> Self {
        self.clock = clock;
        self.seed = seed;
        self
    }

    /// Refuses one path for the store and its ring.
    pub(crate) fn keeps_apart(&self, path: &Path) -> Result<(), Error> {
        if self.ring.as_deref() != Some(path) {
            return Ok(());
        }
        let what = format!("{} cannot be both the store and its ring: name another", path.display());
        Err(Error::InvalidOptions(what))
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::InvalidOptions(what));
        let min = brooklet_wal::MIN_RING;
        if self.ring_size < min || !self.ring_size.is_multiple_of(brooklet_io::SECTOR as u64) {
            return wrong(format!(
                "a ring of {} bytes: use a multiple of 4096, at least {min}",
                self.ring_size
            ));
        }
        if self.ring_size > MAX_RING {
            return wrong(format!("a ring of {} bytes: use at most {MAX_RING}", self.ring_size));
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
        if !self.threads && (self.rate > 0 || !self.interval.is_zero()) {
            return wrong("a pace of writes without threads: only a thread of the store's keeps one".into());
        }
        if self.memory_budget < 64 << 10 {
            return wrong(format!("a memory budget of {} bytes: use at least 64 KiB", self.memory_budget));
        }
        Ok(())
    }
}
