//! The options of a log.

use std::sync::Arc;
use std::time::Duration;

use brooklet_io::{Clock, SECTOR, SystemClock};

use super::error::LogError;
use super::label::MAX_RING;
use super::record::KIND;
use crate::core::Limits;

use crate::config::{Config, MIN_RING};

/// Block sizes: from one sector to about the largest record.
const BLOCKS: std::ops::RangeInclusive<usize> = SECTOR..=64 << 20;
/// The longest delay of a write: a caller that waits longer assumes that the write is lost.
const LONGEST: Duration = Duration::from_secs(3600);
/// The deepest queue that every volume supports.
const MAX_DEPTH: usize = 4096;

/// The options to create and open a [`Log`](crate::Log). The defaults suit a local solid-state
/// disk.
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
    /// Returns the default options.
    pub fn new() -> Self {
        Self {
            ring_size: 64 << 20,
            largest_record: None,
            // A trim of a log takes no room in the ring.
            config: Config { reserve_percent: 0, ..Config::default() },
            threads: true,
            clock: Arc::new(SystemClock::new()),
            identity: None,
            overwrite: false,
        }
    }

    /// Sets the size of a new log's ring, in bytes: whole sectors (4 KiB) from 64 KiB to 1 TiB. The
    /// ring holds all records between two trims, and opening may read all of it. Default: 64 MiB,
    /// read in a fraction of a second. [`Log::open`](crate::Log::open) ignores this option;
    /// [`Log::resize`](crate::Log::resize) changes the size.
    pub fn ring_size(self, bytes: u64) -> Self {
        Self { ring_size: bytes, ..self }
    }

    /// Sets the size of the largest record, in bytes; for a batch, the limit counts all its
    /// records, and a few bytes for each of them. Default: the most that the ring takes, about a
    /// third of its size and less than 1 GiB. With a smaller limit, a fuller ring can be resized.
    ///
    /// A new log must be able to take this size; an existing log takes the most that its ring can
    /// ([`Log::largest_record`](crate::Log::largest_record)).
    pub fn largest_record(self, bytes: usize) -> Self {
        Self { largest_record: Some(bytes), ..self }
    }

    /// Sets the bytes that one write carries before compression, 4 KiB to 64 MiB:
    /// [`Config::block_size`]. A small ring uses an eighth of its size.
    pub fn block_size(self, bytes: usize) -> Self {
        Self { config: Config { block_size: bytes, ..self.config }, ..self }
    }

    /// Sets the most writes in flight at once, 1 to 4096: [`Config::depth`].
    pub fn depth(self, writes: usize) -> Self {
        Self { config: Config { depth: writes, ..self.config }, ..self }
    }

    /// Sets the longest time that an append may rest if nobody waits for it: [`Config::linger`].
    pub fn linger(self, time: Duration) -> Self {
        Self { config: Config { linger: time, ..self.config }, ..self }
    }

    /// Sets all options of the engine at once. A log needs no reserve: leave `reserve_percent` at
    /// zero, the default here.
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Sets whether a committer thread drives appends that no thread waits for (default: yes).
    /// Without it, as in a simulation, call [`Log::step`](crate::Log::step).
    pub fn threads(self, threads: bool) -> Self {
        Self { threads, ..self }
    }

    /// Sets the clock. Default: the machine's clock.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Sets the identity. A new log gets this identity (default: drawn by the operating system); an
    /// existing log must have it (default: any). With it, [`Log::open`](crate::Log::open) refuses a
    /// wrong volume.
    pub fn identity(self, id: u128) -> Self {
        Self { identity: Some(id), ..self }
    }

    /// Sets whether to create a log on a volume that is not blank; the old contents are lost.
    /// Default: no.
    pub fn overwrite(self, overwrite: bool) -> Self {
        Self { overwrite, ..self }
    }

    /// Refuses options that no log can use.
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
                "a rate of {} bytes/s is below the smallest write: use at least {SECTOR} bytes/s",
                self.config.rate
            ));
        }
        for (what, time) in [("a write every", self.config.interval), ("a linger of", self.config.linger)] {
            if time > LONGEST {
                return invalid(format!("{what} {} s: use at most {} s", time.as_secs(), LONGEST.as_secs()));
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

    /// Returns the limits of a ring of `size` bytes. They count the engine's records, which include
    /// the kind byte.
    pub(crate) fn limits(&self, size: u64) -> Limits {
        let limits = Limits::new(&self.config, size);
        let asked = self.largest_record.map_or(usize::MAX, |largest| largest.saturating_add(KIND));
        Limits { max_record: limits.max_record.min(asked), ..limits }
    }
}
