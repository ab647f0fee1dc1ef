//! What is counted as commits and reads go by, for whoever asks why the store is slow. Counting
//! orders nothing and waits for nothing; of what happens a million times a second only one in
//! [`SAMPLE`] is timed.

// A scheduler that tries interleavings need not know of these.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brooklet_io::Clock;
use brooklet_wal::{Histogram, SharedHistogram};

/// One of so many is timed: reading the clock twice takes about as long as a tenth of a commit.
const SAMPLE: u64 = 16;

#[derive(Default)]
pub(crate) struct Counters {
    /// Commits on their way to the ring, until they have appended or were refused.
    pub appends: Timed,
    /// Logs that were looked for in the runs.
    pub run_lookups: Timed,
    pub slices: SharedHistogram,
    pub stalls: Stalls,
}

/// Something that is counted, and timed now and then.
#[derive(Default)]
pub(crate) struct Timed {
    count: AtomicU64,
    times: SharedHistogram,
}

impl Timed {
    pub fn time<T>(&self, clock: &dyn Clock, act: impl FnOnce() -> T) -> T {
        if !self.count.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLE) {
            return act();
        }
        let begun = clock.now();
        let done = act();
        self.times.record(clock.now().saturating_sub(begun));
        done
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub fn times(&self) -> Histogram {
        self.times.get()
    }
}

/// Why a commit has to wait before it appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StallReason {
    /// Full blocks wait to be compressed or written: the device, or compressing, is what holds the
    /// log up.
    Backlog,
    /// The ring is full until a checkpoint ends.
    Ring,
    /// Memory is taken until a checkpoint ends.
    Memory,
    /// A checkpoint has not got on as far as what is left of memory or of the ring would take.
    Checkpoint,
    /// There is no room in the heap until merging frees some.
    Heap,
    /// There is little room in the heap, and commits are slowed down a little before there is none.
    HeapSlope,
    /// An import is about to be part of the store, and may have the log.
    Import,
    /// Its space is being moved to another class.
    Moving,
}

impl StallReason {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Backlog,
        Self::Ring,
        Self::Memory,
        Self::Checkpoint,
        Self::Heap,
        Self::HeapSlope,
        Self::Import,
        Self::Moving,
    ];

    /// Its name in [metrics](crate::metrics::Metrics).
    pub fn name(self) -> &'static str {
        match self {
            Self::Backlog => "backlog",
            Self::Ring => "ring",
            Self::Memory => "memory",
            Self::Checkpoint => "checkpoint",
            Self::Heap => "heap",
            Self::HeapSlope => "heap-slope",
            Self::Import => "import",
            Self::Moving => "moving",
        }
    }
}

/// How commits had to wait for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StallStats {
    /// How often one had to. A commit that waits for one reason after another counts with each.
    pub count: u64,
    /// How long they did, all together; those that wait as of now are not in it.
    pub time: Duration,
    /// How many do, as of now.
    pub now: u64,
}

#[derive(Default)]
struct Stalled {
    count: AtomicU64,
    nanos: AtomicU64,
    now: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Stalls([Stalled; StallReason::ALL.len()]);

impl Stalls {
    fn of(&self, reason: StallReason) -> &Stalled {
        &self.0[reason as usize]
    }

    pub fn get(&self, reason: StallReason) -> StallStats {
        let Stalled { count, nanos, now } = self.of(reason);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StallStats { count: read(count), time: Duration::from_nanos(read(nanos)), now: read(now) }
    }
}

/// What a commit waits for; told when it waits for something else, or for nothing any more.
pub(crate) struct Stall<'a> {
    stalls: &'a Stalls,
    clock: &'a dyn Clock,
    since: Option<(StallReason, Duration)>,
}

impl<'a> Stall<'a> {
    pub fn new(stalls: &'a Stalls, clock: &'a dyn Clock) -> Self {
        Self { stalls, clock, since: None }
    }

    /// The commit waits, or goes on waiting, for this.
    pub fn waits(&mut self, reason: StallReason) {
        if self.since.is_none_or(|(before, _)| before != reason) {
            self.ends();
            self.since = Some((reason, self.clock.now()));
            self.stalls.of(reason).count.fetch_add(1, Ordering::Relaxed);
            self.stalls.of(reason).now.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn ends(&mut self) {
        if let Some((reason, since)) = self.since.take() {
            let took = self.clock.now().saturating_sub(since);
            self.stalls.of(reason).nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
            self.stalls.of(reason).now.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        self.ends();
    }
}

/// How many reads, and questions about a log's bounds, were answered by what: by the newest that
/// knows the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadStats {
    /// By the memtable that commits go to.
    pub active: u64,
    /// By the memtable that a checkpoint is writing.
    pub frozen: u64,
    /// By a space that is kept in memory.
    pub memory: u64,
    /// By what is remembered of logs that rest; asked for their bounds alone.
    pub bounds_cache: u64,
    /// By the runs, or by nothing: there is no such log.
    pub runs: u64,
}

/// What answers a read, of the memtables under the front's lock and what is below them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadSource {
    Active,
    Frozen,
    BoundsCache,
    Runs,
}

impl ReadStats {
    pub(crate) fn note(&mut self, read_source: ReadSource) {
        match read_source {
            ReadSource::Active => self.active += 1,
            ReadSource::Frozen => self.frozen += 1,
            ReadSource::BoundsCache => self.bounds_cache += 1,
            ReadSource::Runs => self.runs += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use brooklet_io::ManualClock;

    use super::*;

    #[test]
    fn a_stall_is_counted_with_each_reason_and_ends_with_the_commit() {
        let (stalls, clock) = (Stalls::default(), ManualClock::default());
        let second = Duration::from_secs(1);
        let mut stall = Stall::new(&stalls, &clock);
        for reason in [StallReason::Ring, StallReason::Ring, StallReason::Memory] {
            stall.waits(reason);
            clock.advance(second);
        }
        let at = |reason| stalls.get(reason);
        assert_eq!(at(StallReason::Ring), StallStats { count: 1, time: second * 2, now: 0 });
        assert_eq!(at(StallReason::Memory), StallStats { count: 1, time: Duration::ZERO, now: 1 });
        drop(stall);
        assert_eq!(at(StallReason::Memory), StallStats { count: 1, time: second, now: 0 });
        assert_eq!(at(StallReason::Backlog), StallStats::default());
        assert!(StallReason::ALL.iter().enumerate().all(|(i, reason)| *reason as usize == i));
    }

    #[test]
    fn all_are_counted_and_some_are_timed() {
        let (timed, clock) = (Timed::default(), ManualClock::default());
        for _ in 0..SAMPLE * 3 {
            timed.time(&clock, || clock.advance(Duration::from_micros(1)));
        }
        assert_eq!((timed.count(), timed.times().count()), (SAMPLE * 3, 3));
        assert_eq!(timed.times().sum(), Duration::from_micros(3));
    }
}
