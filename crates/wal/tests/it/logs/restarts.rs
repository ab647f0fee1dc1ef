//! Restarts on the same disk after a write or a flush that failed, without a power cut between:
//! what reads back need not be on the medium. Then work, and a power cut.

use std::io::ErrorKind;
use std::sync::Arc;

use brooklet_io::{Fault, Layer, MemVolume, Rng, Volume};
use brooklet_wal::{Log, LogError, LogOptions, Lsn};

use crate::logs::model::{options, read};

/// A volume that cannot distinguish the medium from the cache in front of it.
#[derive(Clone, Debug)]
struct Blind(MemVolume);

impl Layer for Blind {
    fn below(&self) -> &dyn Volume {
        &self.0
    }

    fn read_medium(&self, _: u64, _: &mut [u8]) -> Option<std::io::Result<usize>> {
        None
    }
}

fn fault(rng: &mut Rng) -> Fault {
    let kind = ErrorKind::Other;
    match rng.below(2) {
        0 => Fault::ErrorAfter { operations: rng.below(4), kind, sticky: false },
        _ => Fault::FlushErrorAfter { flushes: rng.below(2), kind, sticky: false },
    }
}

/// Forgets the faults that have not come up.
fn healed(disk: &MemVolume) {
    let kind = ErrorKind::Other;
    disk.fail(Fault::ErrorAfter { operations: u64::MAX, kind, sticky: false });
    disk.fail(Fault::FlushErrorAfter { flushes: u64::MAX, kind, sticky: false });
}

/// Appends until something fails, or enough is there; returns what was acknowledged.
fn work(log: &Log, rng: &mut Rng, acked: &mut Vec<(Lsn, Vec<u8>)>) {
    for _ in 0..rng.below(5) {
        let record = vec![rng.next() as u8; rng.below(4000) as usize];
        let Ok((lsn, ack)) = log.try_append(&record) else { return };
        if ack.wait().is_err() {
            return;
        }
        acked.push((lsn, record));
    }
}

/// Opens the log on the same disk again and again, whatever fails meanwhile.
fn restarted(open: &dyn Fn() -> Result<Log, LogError>, disk: &MemVolume, rng: &mut Rng) -> Log {
    for _ in 0..rng.below(3) {
        disk.fail(fault(rng));
        if let Ok(log) = open() {
            log.abandon();
        }
    }
    healed(disk);
    open().expect("the disk works again")
}

fn story(seed: u64, volume: &dyn Fn(&MemVolume) -> Arc<dyn Volume>) {
    let rng = &mut Rng::new(seed);
    let disk = MemVolume::new(seed);
    let within = volume(&disk);
    let within = || within.clone();
    let options = || -> LogOptions { options() };
    let mut acked = Vec::new();
    let mut log = Log::create(within(), options()).unwrap();
    for _ in 0..1 + rng.below(3) {
        work(&log, rng, &mut acked);
        disk.fail(fault(rng));
        work(&log, rng, &mut acked);
        log.abandon();
        log = restarted(&|| Log::open(within(), options()), &disk, rng);
        work(&log, rng, &mut acked);
    }
    log.abandon();
    let after = Log::open(Arc::new(MemVolume::from_image(disk.crash(), seed)), options());
    let after = after.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let found = read(&after);
    for (lsn, record) in acked {
        let kept = found.iter().any(|(at, bytes)| *at == lsn && *bytes == record);
        assert!(kept, "seed {seed}: the record at {lsn} was acknowledged");
    }
}

#[test]
pub fn nothing_that_was_acknowledged_rests_on_what_only_a_cache_holds() {
    (0..3000).for_each(|seed| story(seed, &|disk| Arc::new(disk.clone())));
}

/// Such a volume has every block written again that no other block vouches for. Sectors that a
/// power cut turns into garbage while they are written again are beyond it, so no cut falls there.
#[test]
pub fn a_volume_that_knows_no_medium_has_its_last_blocks_written_again() {
    (0..1000).for_each(|seed| story(seed, &|disk| Arc::new(Blind(disk.clone()))));
}
