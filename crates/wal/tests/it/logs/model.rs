//! A log beside a plain list of what it was given.

use std::sync::Arc;

use brooklet_io::{AlignedBuf, ManualClock, MemVolume, Rng, SECTOR, Volume, read_exact_at};
use brooklet_wal::{Ack, Log, LogError, LogOptions, Lsn, Pause, WalError};

pub const KIB: u64 = 1 << 10;

/// A small log on one thread.
pub fn options() -> LogOptions {
    LogOptions::new()
        .ring_size(64 * KIB)
        .largest_record(8 << 10)
        .block_size(4096)
        .threads(false)
        .clock(Arc::new(ManualClock::default()))
        .identity(7)
}

/// A record that was appended.
pub struct Given {
    pub lsn: Lsn,
    pub bytes: Vec<u8>,
    /// The same for the records of a batch.
    batch: u64,
    ack: Option<Ack>,
    /// Known to be durable, without asking.
    durable: bool,
}

#[derive(Default)]
pub struct Model {
    pub given: Vec<Given>,
    first: Lsn,
    /// A trim that was begun and may have got through.
    trimming: Option<Lsn>,
    batches: u64,
}

impl Model {
    fn give(&mut self, lsn: Lsn, records: &[&[u8]], ack: &Ack) {
        self.batches += 1;
        for (lsn, bytes) in (lsn.0..).zip(records) {
            let (bytes, ack) = (bytes.to_vec(), Some(ack.clone()));
            self.given.push(Given { lsn: Lsn(lsn), bytes, batch: self.batches, ack, durable: false });
        }
    }

    /// The same, of a log that is gone.
    pub fn copy(&self) -> Self {
        let copy = |given: &Given| Given { bytes: given.bytes.clone(), ack: None, ..*given };
        let Self { first, trimming, batches, .. } = *self;
        Self { given: self.given.iter().map(copy).collect(), first, trimming, batches }
    }

    /// Whether nothing was ever done with it.
    pub fn is_new(&self) -> bool {
        self.given.is_empty() && self.first == Lsn(0) && self.trimming.is_none()
    }

    /// Notes which acknowledgements have come, and lets go of the log.
    pub fn settle_acks(&mut self) -> Vec<bool> {
        for given in &mut self.given {
            given.durable |= given.ack.take().is_some_and(|ack| ack.is_done());
        }
        self.given.iter().map(|given| given.durable).collect()
    }

    /// Checks what a log says after a crash, and goes on from there.
    pub fn check_recovered(&mut self, log: &Log, acked: &[bool]) {
        let got = read(log);
        let first = log.first();
        assert!(
            first == self.first || Some(first) == self.trimming,
            "trimmed to {first}, not {}",
            self.first
        );
        let start = self.given.partition_point(|given| given.lsn < first);
        let expected = &self.given[start..];
        assert!(got.len() <= expected.len(), "{} records of {}", got.len(), expected.len());
        for ((lsn, bytes), given) in got.iter().zip(expected) {
            assert!(
                *lsn == given.lsn && *bytes == given.bytes,
                "LSN {lsn} is not what was given as {}",
                given.lsn
            );
        }
        let kept = start + got.len();
        assert!(acked[kept..].iter().all(|acked| !acked), "an acknowledged record is gone");
        if let (Some(last), Some(lost)) = (expected[..got.len()].last(), self.given.get(kept)) {
            assert!(last.batch != lost.batch, "half a batch is there");
        }
        self.given.truncate(kept);
        self.given.iter_mut().for_each(|given| given.durable = true);
        self.first = first;
        self.trimming = None;
    }

    /// Checks what an open log gives back.
    pub fn check_open(&self, log: &Log, rng: &mut Rng) {
        let durable = log.stats().durable;
        let from = |lsn: Lsn| self.given.iter().filter(move |given| given.lsn >= lsn && given.lsn < durable);
        assert_eq!(log.first(), self.first);
        let same = |got: Vec<(Lsn, Vec<u8>)>, lsn| {
            assert!(got.iter().map(|(l, b)| (*l, b)).eq(from(lsn).map(|given| (given.lsn, &given.bytes))));
        };
        same(read(log), self.first);
        let lsn = Lsn(self.first.0 + rng.below(log.next().0 - self.first.0 + 1));
        same(collect(log.read_from(lsn).unwrap()), lsn);
    }
}

pub fn read(log: &Log) -> Vec<(Lsn, Vec<u8>)> {
    collect(log.recover())
}

pub fn collect(reader: brooklet_wal::Reader<'_>) -> Vec<(Lsn, Vec<u8>)> {
    reader.map(|record| record.map(|(lsn, bytes)| (lsn, bytes.to_vec())).unwrap()).collect()
}

/// Lets a committer without a thread come to an end.
pub fn drive(log: &Log) {
    while matches!(log.step(), Pause::None | Pause::Write(_)) {}
}

fn noise(rng: &mut Rng, len: u64) -> Vec<u8> {
    // Some of it shrinks.
    let mask = if rng.percent(50) { 0xff } else { 0x01 };
    (0..len).map(|_| rng.next() as u8 & mask).collect()
}

/// What random chance does to a log and its model, a step at a time.
pub struct Script {
    pub volume: MemVolume,
    /// Where the log is instead, if it is in a file.
    pub file: Option<Arc<dyn Volume>>,
    pub log: Option<Log>,
    pub model: Model,
    pub rng: Rng,
    pub seen: Seen,
}

/// What has happened, so that a test knows that it has.
#[derive(Default, Debug)]
pub struct Seen {
    pub full: u32,
    pub trims: u32,
    pub grown: u32,
    pub shrunk: u32,
    pub refused: u32,
    pub settling: u32,
    pub settled: u32,
    pub reopened: u32,
}

impl Script {
    pub fn new(seed: u64) -> Self {
        let (rng, volume) = (Rng::new(seed), MemVolume::new(seed));
        Self { volume, file: None, log: None, model: Model::default(), rng, seen: Seen::default() }
    }

    fn place(&self) -> Arc<dyn Volume> {
        self.file.clone().unwrap_or_else(|| Arc::new(self.volume.clone()))
    }

    pub fn log(&self) -> &Log {
        self.log.as_ref().expect("open")
    }

    pub fn create(&mut self) -> Result<(), LogError> {
        self.log = Some(Log::create(self.place(), options())?);
        Ok(())
    }

    pub fn step(&mut self) -> Result<(), LogError> {
        match self.rng.below(100) {
            0..25 => self.append(1, true),
            25..45 => self.append(3, false),
            45..57 => self.batch(),
            57..65 => {
                for _ in 0..self.rng.below(6) {
                    self.log().step();
                }
                Ok(())
            }
            65..83 => self.trim(),
            83..94 => self.resize(),
            _ => self.reopen(),
        }
    }

    /// Losing either slot of the label now would bring nothing older back.
    fn slots_agree(&self) {
        let mut slots = AlignedBuf::zeroed(2 * SECTOR);
        read_exact_at(&*self.place(), 0, &mut slots).unwrap();
        assert!(slots[..SECTOR] == slots[SECTOR..]);
    }

    fn append(&mut self, records: u64, wait: bool) -> Result<(), LogError> {
        for _ in 0..1 + self.rng.below(records) {
            let len = match self.rng.below(10) {
                0 => 0,
                1 => 8 << 10,
                2..6 => self.rng.below(5000),
                _ => self.rng.below(200),
            };
            let record = noise(&mut self.rng, len);
            let appended = self.log().try_append(&record);
            if self.refused(&appended)? {
                return Ok(());
            }
            let (lsn, ack) = appended?;
            self.model.give(lsn, &[&record], &ack);
            if wait {
                drive(self.log());
                ack.wait()?;
            }
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<(), LogError> {
        let records: Vec<Vec<u8>> = (0..self.rng.below(5))
            .map(|_| {
                let len = self.rng.below(1500);
                noise(&mut self.rng, len)
            })
            .collect();
        let records: Vec<&[u8]> = records.iter().map(|record| &record[..]).collect();
        let appended = self.log().try_append_batch(&records);
        if self.refused(&appended)? {
            return Ok(());
        }
        let (lsn, ack) = appended?;
        self.model.give(lsn, &records, &ack);
        Ok(())
    }

    /// Whether an append was refused for want of room.
    fn refused<T>(&mut self, appended: &Result<T, WalError>) -> Result<bool, LogError> {
        match appended {
            Err(WalError::Full { .. }) => {
                self.seen.full += 1;
                self.trim().map(|()| true)
            }
            Err(WalError::Busy) => {
                drive(self.log());
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn trim(&mut self) -> Result<(), LogError> {
        let (first, next) = (self.model.first, self.log().next());
        let kept: Vec<Lsn> =
            self.model.given.iter().map(|given| given.lsn).filter(|lsn| *lsn > first).collect();
        let lsn = match self.rng.below(4) {
            0 => next,
            1 if !kept.is_empty() => kept[self.rng.below(kept.len() as u64) as usize],
            2 => Lsn(first.0 + self.rng.below(next.0 - first.0 + 1)),
            _ if !kept.is_empty() => kept[kept.len() / 3],
            _ => return Ok(()),
        };
        let settling = self.log().stats().settling;
        self.model.trimming = Some(lsn);
        self.log().trim(lsn)?;
        self.model.trimming = None;
        self.model.first = lsn;
        self.seen.trims += 1;
        if settling && !self.log().stats().settling {
            self.seen.settled += 1;
            self.slots_agree();
        }
        Ok(())
    }

    fn resize(&mut self) -> Result<(), LogError> {
        let (old, size) = (self.log().stats().ring.size, 64 * KIB + 4 * KIB * self.rng.below(40));
        let before = self.place().size()?;
        match self.log().resize(size) {
            Ok(()) => {
                self.seen.grown += u32::from(size > old);
                self.seen.shrunk += u32::from(size < old);
                self.seen.settling += u32::from(self.log().stats().settling);
                assert_eq!(self.log().stats().ring.size, size);
                if size != old {
                    self.slots_agree();
                }
            }
            Err(LogError::NoRoom { .. } | LogError::Settling { .. }) => {
                self.seen.refused += 1;
                assert_eq!(self.place().size()?, before);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), LogError> {
        let log = self.log.take().expect("open");
        let (clean, killed) = (self.rng.percent(40), self.rng.percent(30));
        if clean {
            log.close()?;
        }
        if killed {
            log.abandon();
        } else {
            drop(log);
        }
        let acked = self.model.settle_acks();
        let reads = self.volume.reads();
        self.log = Some(Log::open(self.place(), options())?);
        self.seen.reopened += 1;
        if clean && self.log().first() == self.log().next() {
            // The label, maybe in two short transfers.
            assert!(self.volume.reads() <= reads + 2, "nothing is kept, and nobody looks for more");
        }
        let given = self.model.given.len();
        let log = self.log.take().expect("open");
        self.model.check_recovered(&log, &acked);
        self.log = Some(log);
        let whole = clean || !killed && self.volume.failures() == 0;
        assert!(!whole || self.model.given.len() == given, "a log that was dropped or closed is all there");
        self.slots_agree();
        Ok(())
    }
}
