//! Small logs to do harm to, and what they were given.

use std::sync::{Arc, OnceLock};

use brooklet_io::{Fault, ManualClock, MemVolume, Rng, SECTOR, Volume};
use brooklet_wal::{Log, LogError, LogOptions, Lsn};

use crate::{Cover, Seam, blocks};

/// No log here grows beyond this.
pub const LARGEST: u64 = 1 << 20;
/// Where the ring starts.
const RING: usize = 64 << 10;
const KIB: u64 = 1 << 10;

/// A record, and the number of its batch.
#[derive(Clone, Debug)]
pub struct Given {
    pub lsn: Lsn,
    pub bytes: Vec<u8>,
    pub batch: usize,
}

/// A log on its volume.
#[derive(Debug)]
pub struct Sample {
    pub image: Vec<u8>,
    /// Every record, those that are trimmed, too.
    pub given: Vec<Given>,
    /// Where the log was trimmed to, by the newest slot of the label, and by the one that comes
    /// back if that is lost.
    pub firsts: [Lsn; 2],
    /// LSN behind the last record that both slots know to be durable.
    pub told: Lsn,
    pub seams: Vec<Seam>,
}

/// Options of a log that is small and does nothing by itself.
pub fn options() -> LogOptions {
    let options = LogOptions::new().ring_size(64 * KIB).largest_record(8 << 10).block_size(4096);
    options.threads(false).clock(Arc::new(ManualClock::default())).identity(7)
}

/// A volume that holds `image` and has little room beyond.
pub fn volume(image: Vec<u8>) -> Arc<dyn Volume> {
    let volume = MemVolume::from_image(image, 5);
    volume.fail(Fault::Full(LARGEST));
    Arc::new(volume)
}

/// The logs: one that was closed after some laps, one that was killed while it settled after a
/// resize that its blocks went round, one that was killed with its last trim in one slot of the
/// label only, and one with little in it.
pub fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<[Sample; 4]> = OnceLock::new();
    SAMPLES.get_or_init(|| [closed(), settling(), trimmed(), Maker::new().ended(false)])
}

/// A log that is being given records.
struct Maker {
    volume: MemVolume,
    log: Log,
    given: Vec<Given>,
    /// What the older and the newer slot of the label say: where the log is trimmed to, and behind
    /// what is durable.
    slots: [(Lsn, Lsn); 2],
    rng: Rng,
}

impl Maker {
    fn new() -> Self {
        let volume = MemVolume::new(5);
        let log = Log::create(Arc::new(volume.clone()), options()).expect("memory has room");
        let mut maker = Self { volume, log, given: Vec::new(), slots: Default::default(), rng: Rng::new(5) };
        maker.append(&[5, 0, 900]);
        maker
    }

    /// Appends records of these lengths as one batch, or a single one by itself.
    fn append(&mut self, lengths: &[usize]) {
        let batch = self.given.last().map_or(0, |last| last.batch + 1);
        // Every other one shrinks.
        let mask = if batch.is_multiple_of(2) { 0xff } else { 1 };
        let records: Vec<Vec<u8>> =
            lengths.iter().map(|len| (0..*len).map(|_| self.rng.next() as u8 & mask).collect()).collect();
        let parts: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let appended = if let [record] = parts[..] {
            self.log.try_append(record)
        } else {
            self.log.try_append_batch(&parts)
        };
        let (lsn, ack) = appended.expect("it has room");
        ack.wait().expect("memory takes writes");
        let lsns = lsn.0..;
        self.given.extend(lsns.zip(records).map(|(lsn, bytes)| Given { lsn: Lsn(lsn), bytes, batch }));
    }

    /// Fills and trims, until blocks go round the end of the ring.
    fn go_round(&mut self) {
        for n in 0..24 {
            self.append(&[2000 + 50 * n, 20 * n]);
            self.append(&[7 * n]);
            if n > 1 {
                self.trim(6);
            }
        }
    }

    /// Keeps so many records.
    fn trim(&mut self, keep: usize) {
        let lsn = self.given[self.given.len() - keep].lsn;
        self.log.trim(lsn).expect("it is durable");
        self.slots = [self.slots[1], (lsn, self.log.next())];
    }

    /// Changes the ring, and so both slots.
    fn resize(&mut self, size: u64) {
        self.log.resize(size).expect("there is room");
        self.slots = [(self.log.first(), self.log.next()); 2];
    }

    fn ended(self, closed: bool) -> Sample {
        let Self { volume, log, given, mut slots, .. } = self;
        if closed {
            slots = [(log.first(), log.next()); 2];
            log.close().expect("memory takes writes");
        } else {
            log.abandon();
        }
        let (firsts, told) = (slots.map(|(first, _)| first), slots.map(|(_, told)| told));
        let told = told[0].min(told[1]);
        let image = volume.image();
        let seams = seams(&image);
        Sample { image, given, firsts, told, seams }
    }
}

fn closed() -> Sample {
    let mut maker = Maker::new();
    maker.go_round();
    maker.ended(true)
}

fn settling() -> Sample {
    let mut maker = Maker::new();
    maker.go_round();
    maker.resize(128 * KIB);
    assert!(maker.log.stats().settling, "the blocks go round");
    for n in 0..6 {
        maker.append(&[2000, n]);
    }
    maker.ended(false)
}

fn trimmed() -> Sample {
    let mut maker = Maker::new();
    for n in 0..4 {
        maker.append(&[100 * n, 50]);
        maker.append(&[2000]);
    }
    maker.trim(5);
    maker.append(&[300]);
    maker.ended(false)
}

/// Reads all that a log keeps.
pub fn contents(log: &Log) -> Result<Vec<(Lsn, Vec<u8>)>, LogError> {
    log.recover().map(|record| record.map(|(lsn, bytes)| (lsn, bytes.to_vec()))).collect()
}

/// The checksums of a sound log, each before those of what names it.
fn seams(image: &[u8]) -> Vec<Seam> {
    let mut seams = blocks(image, RING..image.len());
    let slots = [0, SECTOR];
    for slot in slots {
        // The trim point names the block before it.
        let named = |seam: &&mut Seam| {
            seam.put.first().is_some_and(|&at| image[at..at + 8] == image[slot + 88..slot + 96])
        };
        if let Some(before) = seams.iter_mut().find(named) {
            before.put.push(slot + 88);
        }
    }
    seams.extend(slots.map(|slot| Seam { covers: Cover::Bytes(slot..slot + 504), put: vec![slot + 504] }));
    seams
}
