//! How a log is made and works.

use std::sync::Arc;
use std::time::Duration;

use brooklet_io::{Clock, SECTOR, SystemClock};

use super::error::LogError;
use super::label::MAX_RING;
use super::record::KIND;
use crate::core::Limits;

use crate::config::{Config, MIN_RING};

/// Blocks from one sector to what a record can be at most.
const BLOCKS: std::ops::RangeInclusive<usize> = SECTOR..=64 << 20;
/// The longest that a write may be put off: whoever waits longer for it takes it for lost.
const LONGEST: Duration = Duration::from_secs(3600);
/// The deepest queue that every volume takes.
const MAX_DEPTH: usize = 4096;

/// How a [`Log`](crate::Log) is created and opened. The defaults suit a local solid-state disk.
///
/// ```
/// let options = brooklet_wal::LogOptions::new().ring_size(16 << 20).largest_record(1 << 20);
/// # drop(options);
/// ```
#[derive(Clone, Debug)]
pub struct LogOptions {
    pub(crate) ring_size: u64,
    pub(crate) largest_record: Option<usize>,
    pub(crate) config: Config,
    pub(crate) threads: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) identity: Option<u128>,
    pub(crate) overwrite: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl LogOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            ring_size: 64 << 20,
            largest_record: None,
            // Trimming a log takes no room in its ring.
            config: Config { reserve_percent: 0, ..Config::default() },
            threads: true,
            clock: Arc::new(SystemClock::new()),
            identity: None,
            overwrite: false,
        }
    }

    /// Bytes of a new log's ring, whole sectors (4 KiB) from 64 KiB to 1 TiB: what it holds between
    /// two trims, and what opening may have to read. Default: 64 MiB, read in a fraction of a
    /// second. Ignored when opening; [`Log::resize`](crate::Log::resize) changes it.
    pub fn ring_size(self, bytes: u64) -> Self {
        Self { ring_size: bytes, ..self }
    }

    /// Bytes of the largest record, or of a batch with a few bytes for each of its records.
    /// Default: what the ring can take, about a third of its size and less than 1 GiB. A smaller
    /// limit lets a ring be resized when it is fuller.
    ///
    /// A new log must be able to take it; an existing one takes what its ring can
    /// ([`Log::largest_record`](crate::Log::largest_record)).
    pub fn largest_record(self, bytes: usize) -> Self {
        Self { largest_record: Some(bytes), ..self }
    }

    /// Bytes that one write carries before compression, 4 KiB to 64 MiB: [`Config::block_size`]. A
    /// small ring uses an eighth of itself.
    pub fn block_size(self, bytes: usize) -> Self {
        Self { config: Config { block_size: bytes, ..self.config }, ..self }
    }

    /// Writes in flight at once, 1 to 4096: [`Config::depth`].
    pub fn depth(self, writes: usize) -> Self {
        Self { config: Config { depth: writes, ..self.config }, ..self }
    }

    /// How long an append may rest when nobody waits for it: [`Config::linger`].
    pub fn linger(self, time: Duration) -> Self {
        Self { config: Config { linger: time, ..self.config }, ..self }
    }

    /// Everything that the engine can be told at once. A log needs no reserve: `reserve_percent` is
    /// best left zero, the default here.
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Whether a committer thread serves those who do not wait (default: yes). Without it, as in a
    /// simulation, call [`Log::step`](crate::Log::step).
    pub fn threads(self, threads: bool) -> Self {
        Self { threads, ..self }
    }

    /// Where the time comes from. Default: the machine's clock.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// The identity that a new log gets (default: drawn by the operating system), or that an
    /// existing one must have (default: any), so that the wrong volume is not taken for the right
    /// one.
    pub fn identity(self, id: u128) -> Self {
        Self { identity: Some(id), ..self }
    }

    /// Creates a log even on a volume whose first 64 KiB are not blank; what it holds is lost.
    /// Default: no.
    pub fn overwrite(self, overwrite: bool) -> Self {
        Self { overwrite, ..self }
    }

    /// Refuses what no log can work with.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        let Config { block_size, depth, .. } = self.config;
        let invalid = |what| Err(LogError::Invalid { what });
        if !BLOCKS.contains(&block_size) {
            return invalid(format!(
                "blocks of {block_size} bytes: use {} to {}",
                BLOCKS.start(),
                BLOCKS.end()
            ));
        }
        if !(1..=MAX_DEPTH).contains(&depth) {
            return invalid(format!("{depth} writes in flight: use 1 to {MAX_DEPTH}"));
        }
        if self.config.rate > 0 && self.config.rate < SECTOR as u64 {
            return invalid(format!(
                "{} bytes a second: no write is smaller than {SECTOR}",
                self.config.rate
            ));
        }
        for (what, time) in [("a write every", self.config.interval), ("a linger of", self.config.linger)] {
            if time > LONGEST {
                return invalid(format!("{what} {} s: use at most {}", time.as_secs(), LONGEST.as_secs()));
            }
        }
        if self.config.reserve_percent > 30 {
            return invalid(format!("a reserve of {} percent: use 0 to 30", self.config.reserve_percent));
        }
        Ok(())
    }

    /// Refuses a size that no ring can have.
    pub(crate) fn check_size(size: u64) -> Result<(), LogError> {
        if (MIN_RING..=MAX_RING).contains(&size) && size.is_multiple_of(SECTOR as u64) {
            return Ok(());
        }
        let what = format!(
            "a ring of {size} bytes: use {MIN_RING} to {MAX_RING}, in whole sectors of {SECTOR} bytes"
        );
        Err(LogError::Invalid { what })
    }

    /// What a ring of `size` bytes takes. Limits count the engine's records, which bear their kind.
    pub(crate) fn limits(&self, size: u64) -> Limits {
        let limits = Limits::new(&self.config, size);
        let asked = self.largest_record.map_or(usize::MAX, |largest| largest.saturating_add(KIND));
        Limits { max_record: limits.max_record.min(asked), ..limits }
    }
}
