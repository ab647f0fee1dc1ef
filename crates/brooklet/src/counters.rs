//! Counters of commits and reads, which show why a store is slow. Counting orders nothing and waits
//! for nothing. Of frequent events, a million per second, the store times only one in [`SAMPLE`].

// These atomics do not take part in the interleavings that a test scheduler tries.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brooklet_io::Clock;
use brooklet_wal::{Histogram, SharedHistogram};

/// The store times one of this number of events: reading the clock twice takes about a tenth of the
/// time of a commit.
const SAMPLE: u64 = 16;

#[derive(Default)]
pub(crate) struct Counters {
    /// Commits until they have appended or were refused.
    pub appends: Timed,
    /// Look-ups of logs in the runs.
    pub run_lookups: Timed,
    pub slices: SharedHistogram,
    pub stalls: Stalls,
}

/// Events that are all counted, and some of which are timed.
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

/// The reason for which a commit waits before it appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StallReason {
    /// Full blocks wait to be compressed or written: the device or the compression limits the log.
    Backlog,
    /// The ring is full until a checkpoint ends.
    Ring,
    /// The memory budget is used up until a checkpoint ends.
    Memory,
    /// The commit has used the share of memory or of the ring that the progress of the running
    /// checkpoint allows.
    Checkpoint,
    /// The heap is full until merging frees room.
    Heap,
    /// The heap is almost full. The store slows commits down before it is full.
    HeapSlope,
    /// An import is about to become part of the store, and may contain the log.
    Import,
    /// The space of the log is moving to another class.
    Moving,
}

impl StallReason {
    /// All reasons.
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

    /// Returns the name of the reason in [metrics](crate::metrics::Metrics).
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

/// The waits of commits for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StallStats {
    /// Number of waits. A commit that waits for several reasons in turn counts for each.
    pub count: u64,
    /// Total time of the waits, without the waits that go on now.
    pub time: Duration,
    /// Number of commits that wait now.
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

/// The current wait of a commit. The counters record a wait when the reason changes or the wait
/// ends.
pub(crate) struct Stall<'a> {
    stalls: &'a Stalls,
    clock: &'a dyn Clock,
    since: Option<(StallReason, Duration)>,
}

impl<'a> Stall<'a> {
    pub fn new(stalls: &'a Stalls, clock: &'a dyn Clock) -> Self {
        Self { stalls, clock, since: None }
    }

    /// Records that the commit waits, or continues to wait, for this reason.
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

/// The number of reads, and of requests for the bounds of a log, by the source of the answer: the
/// newest source that knows the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadStats {
    /// Answers from the memtable that commits go to.
    pub active: u64,
    /// Answers from the memtable that a checkpoint is writing.
    pub frozen: u64,
    /// Answers from a space that is kept in memory.
    pub memory: u64,
    /// Answers from the bounds cache of logs that rest; requests for bounds only.
    pub bounds_cache: u64,
    /// Answers from the runs, or no answer because the log does not exist.
    pub runs: u64,
}

/// The source of a read: one of the memtables under the state's lock, or a source below them.
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
