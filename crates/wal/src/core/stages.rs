//! The time that blocks take, stage by stage.

use std::time::Duration;

use crate::histogram::Histogram;

/// The times that blocks with records took for each stage, since the opening. A stage begins where
/// the stage before ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stages {
    /// From the block's first record until a driver takes the block: the block fills, waits for a
    /// slot, and for the pace.
    pub wait: Histogram,
    /// Until the block is compressed and has its place in the ring.
    pub seal: Histogram,
    /// Until the block's write has ended.
    pub write: Histogram,
    /// Until all blocks before it are durable, too, and readers see the block. The log notifies
    /// waiters then.
    pub ack: Histogram,
    /// The whole time: from the first record of a block to its acknowledgement.
    pub whole: Histogram,
}

/// The times at which a block reached each stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockTimes {
    pub appended: Duration,
    pub taken: Duration,
    pub placed: Duration,
    pub written: Duration,
}

impl BlockTimes {
    /// Creates the times of a block that a driver takes now.
    pub fn begun(appended: Duration, now: Duration) -> Self {
        Self { appended, taken: now, placed: now, written: now }
    }
}

impl Stages {
    /// Records the times of a block that is acknowledged now.
    pub(super) fn record(&mut self, times: &BlockTimes, now: Duration) {
        self.wait.record(times.taken.saturating_sub(times.appended));
        self.seal.record(times.placed.saturating_sub(times.taken));
        self.write.record(times.written.saturating_sub(times.placed));
        self.ack.record(now.saturating_sub(times.written));
        self.whole.record(now.saturating_sub(times.appended));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use brooklet_io::{Clock, Layer, ManualClock, MemVolume, Persist, Volume};

    use super::*;
    use crate::{Config, Cursor, Opening, Sink, Wal, Zone};

    const WAIT: Duration = Duration::from_millis(3);
    const WRITE: Duration = Duration::from_millis(20);
    const ACK: Duration = Duration::from_millis(100);

    /// Takes its time for each write.
    #[derive(Clone, Debug)]
    struct Slow(MemVolume, Arc<ManualClock>);

    impl Layer for Slow {
        fn below(&self) -> &dyn Volume {
            &self.0
        }

        fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
            self.1.advance(WRITE);
            self.0.write_at(offset, data, persist)
        }
    }

    /// Takes its time to see what is durable.
    struct Sees(Arc<ManualClock>);

    impl Sink for Sees {
        fn durable(&self, _: &[Arc<crate::Block>], _: &mut crate::Waiters) {
            self.0.advance(ACK);
        }
    }

    #[test]
    fn each_stage_is_told_how_long_it_took() {
        let clock = Arc::new(ManualClock::default());
        let volume = MemVolume::new(7);
        volume.grow(1 << 20).unwrap();
        let zone = Zone { offset: 0, size: 1 << 20, store: 1 };
        let at = Opening { tail: 0, next: Cursor { seq: 1, ..Cursor::default() }, epoch: 1 };
        let slow = Arc::new(Slow(volume, clock.clone()));
        let wal = Wal::open(slow, zone, Config::default(), at, clock.clone(), Arc::new(Sees(clock.clone())));
        assert_eq!(wal.stages(), Stages::default());
        for round in 1..=3 {
            let (_, ack) = wal.append(b"first of its block").unwrap();
            clock.advance(WAIT);
            wal.append(b"second").unwrap().1.wait().unwrap();
            assert!(ack.is_done());
            let Stages { wait, seal, write, ack, whole } = wal.stages();
            let sums = [&wait, &seal, &write, &ack, &whole].map(Histogram::sum);
            assert_eq!(sums, [WAIT, Duration::ZERO, WRITE, ACK, WAIT + WRITE + ACK].map(|time| time * round));
            assert!([wait, seal, write, ack, whole].iter().all(|stage| stage.count() == u64::from(round)));
        }
        assert_eq!(clock.now(), (WAIT + WRITE + ACK) * 3);
    }
}
