//! The flip sweep and the misdirection sweep: a small closed store, damaged in one place at a time.
//! Reads must return the right bytes or a named error, and the check must report the damage.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use brooklet::io::{ManualClock, MemVolume, Rng, SECTOR};
use brooklet::{Bytes, Commit, Create, Entry, Error, Options, Retention, SpaceConfig, Store, check_volume};

use super::{Sweep, Swept};
use crate::campaign::guarded;
use crate::faulty_volume::Evidence;
use crate::model::{Log, Logs, SPACE, text};
use crate::oracle::{Expectation, Seen, Tolerance, Violation, violated};

/// Unit of torn writes, in bytes.
const PIECE: usize = 512;

/// A small store on its medium, its contents, and an earlier image of the medium.
pub struct Specimen {
    image: Vec<u8>,
    older: Vec<u8>,
    expected: Expectation,
    /// Contents of the store after each commit that is only in the ring.
    states: Vec<Logs>,
}

/// Bytes of the ring.
const RING: Range<usize> = 64 << 10..128 << 10;
/// One in this many flips also continues to use the store.
const GOES_ON: u64 = 50;
/// Most logs that one commit touches.
const TOUCHED: usize = 3;

fn options() -> Options {
    let clock = Arc::new(ManualClock::default());
    Options::new().ring_size(64 << 10).max_payload(8 << 10).threads(false).clock(clock).rng_seed(5)
}

impl Specimen {
    /// Creates a store with runs of two levels, a tombstone, a large log, and a ring that holds
    /// blocks and is in its second lap. Without `closed`, the store is abandoned when it is idle
    /// and the newest block records all acknowledged blocks. `has_space`: most logs belong to a
    /// space, so that runs have a table of spaces, and logs have limits, which drop no entry.
    pub fn new(closed: bool, has_space: bool) -> Result<Self, Error> {
        let disk = MemVolume::new(5);
        let store = options().create_on(Arc::new(disk.clone()))?;
        if has_space {
            let limits = Retention::new().entries(100);
            store.create_space(SPACE, SpaceConfig::new().max_logs(100).retention(limits))?;
        }
        let mut rng = Rng::new(5);
        let (mut older, mut states) = (Vec::new(), Vec::new());
        for round in 0..9 {
            for log in 0..8 {
                let payload: Vec<u8> = (0..60).map(|_| rng.next() as u8).collect();
                store.append(format!("log/{log}"), payload)?.wait()?;
                states.extend((round == 8).then(|| Self::whole(&store)));
            }
            let noise: Vec<u8> = (0..5000).map(|_| rng.next() as u8).collect();
            store.append("large", noise)?.wait()?;
            match round {
                2 => store.delete("log/3")?.wait()?,
                4 => store.trim("log/4", 2)?.wait()?,
                5 => older = disk.image(),
                _ => {}
            }
            if round < 8 {
                store.checkpoint()?;
                while store.step()? {}
            }
        }
        let mut commit = Commit::new();
        commit.append("log/1", b"both").append("log/2", b"or none").truncate("log/5", 3);
        store.commit(&commit)?.wait()?;
        states.push(Self::whole(&store));
        // Writes other entries with existing numbers, and one new entry.
        let next = store.bounds("log/6")?.next;
        let mut commit = Commit::new();
        commit.truncate("log/6", next - 2).append("log/6", b"other").append("log/6", b"ones");
        store.commit(&commit)?.wait()?;
        states.push(Self::whole(&store));
        store.append("log/6", b"more")?.wait()?;
        let logs = Self::whole(&store);
        states.push(logs.clone());
        match closed {
            true => store.close()?,
            false => {
                // The committer records the acknowledged number after some idle time.
                for _ in 0..100 {
                    store.step()?;
                }
                store.abandon();
            }
        }
        let tolerance = Tolerance { damaged: true, evidence: Evidence::There };
        let expected = Expectation { durable: logs, tolerance, ..Expectation::default() };
        Ok(Self { image: disk.image(), older, expected, states })
    }

    fn whole(store: &Store) -> Logs {
        match Seen::of(store, false, true) {
            Ok(Ok(seen)) => seen.logs,
            other => panic!("a sound store reads: {other:?}"),
        }
    }

    /// Returns the store's undamaged disk.
    pub fn disk(&self, seed: u64) -> MemVolume {
        MemVolume::from_image(self.image.clone(), seed)
    }

    /// Opens the store for writing and reads everything; each readable entry must be right.
    pub fn open_and_read(&self, disk: &MemVolume) -> Result<Result<(), Error>, Violation> {
        let store = match options().create(Create::Never).open_on(Arc::new(disk.clone())) {
            Ok(store) => store,
            Err(error) => return Ok(Err(error)),
        };
        let seen = Seen::of(&store, false, true)?;
        store.abandon();
        let exactly = Expectation { tolerance: Tolerance::default(), ..self.expected.clone() };
        seen.map(|seen| exactly.admit(&seen))
            .map_or_else(|error| Ok(Err(error)), |known| known.map(|_| Ok(())))
    }

    /// Returns the offsets of the sectors with data.
    fn used(&self) -> Vec<usize> {
        let used = |at: &usize| self.image[*at..at + PIECE].iter().any(|&byte| byte != 0);
        (0..self.image.len()).step_by(PIECE).filter(used).collect()
    }

    /// Reads and checks a store that is damaged at one place.
    fn look(&self, disk: &MemVolume, at: usize, what: &dyn Fn() -> String) -> Result<Swept, Violation> {
        let within = |Violation(why): Violation| Violation(format!("{}: {why}", what()));
        let (met, (sound, spared)) = guarded(|| Ok((self.read(disk, at)?, check(disk)?))).map_err(within)?;
        if met && sound {
            return violated(format!("{}: a read meets damage that the check does not report", what()));
        }
        let mut swept = Swept { cases: 1, ..Swept::default() };
        swept.harmless = u64::from(sound);
        swept.checked = u64::from(!sound);
        swept.met = u64::from(met);
        swept.spared = u64::from(spared && !met);
        Ok(swept)
    }

    /// Reads everything; returns whether an error reported damage.
    fn read(&self, disk: &MemVolume, at: usize) -> Result<bool, Violation> {
        match options().read_only(true).open_on(Arc::new(disk.clone())) {
            Err(error) if hides_all(&error, at) => Ok(true),
            Err(error) => violated(format!("damage shows as: {error}")),
            Ok(store) => {
                let seen = Seen::of(&store, true, true)?;
                let seen = seen.or_else(|error| violated(format!("damage shows as: {error}")))?;
                self.expected.admit(&seen)?;
                if RING.contains(&at) {
                    self.look_for_the_rest(&store)?;
                }
                Ok(!seen.is_whole())
            }
        }
    }

    /// Continues to use a store that is damaged outside its ring: commits, checkpoints and merges
    /// must work, and lose nothing. A store whose table of spaces is damaged only opens for
    /// reading.
    fn go_on(&self, disk: &MemVolume, at: usize) -> Result<(), Violation> {
        let disk = MemVolume::from_image(disk.image(), 0);
        let store = match options().create(Create::Never).open_on(Arc::new(disk.clone())) {
            Ok(store) => store,
            Err(error) if hides_all(&error, at) || hides_table(&disk) => return Ok(()),
            Err(error) => return violated(format!("it does not open for writing: {error}")),
        };
        let mut later = Vec::new();
        for round in 0..3u8 {
            match store.append("later", [round]).and_then(|ticket| ticket.wait()) {
                Ok(()) => later.push(Bytes::from(vec![round])),
                // Whether the log exists cannot be read.
                Err(Error::Damaged { .. }) => {}
                Err(error) => return violated(format!("a commit fails: {error}")),
            }
            store.checkpoint().or_else(|error| violated(format!("a checkpoint fails: {error}")))?;
        }
        let merged = store.compact();
        let runs = store.info().map_err(|error| Violation(error.to_string()))?.runs;
        let sound = runs.iter().take_while(|run| !run.damaged).count();
        match merged {
            Ok(()) if runs.len() <= 1 => {}
            Err(Error::Damaged { .. }) if sound <= 1 && sound < runs.len() => {}
            told => return violated(format!("of {} runs {sound} are left sound: {told:?}", runs.len())),
        }
        let mut expected = Expectation { durable: self.expected.durable.clone(), ..self.expected.clone() };
        if !later.is_empty() {
            expected.durable.insert("later".into(), Arc::new(Log { entries: later, ..Log::default() }));
        }
        let seen =
            Seen::of(&store, true, false)?.or_else(|error| violated(format!("reads fail: {error}")))?;
        expected.admit(&seen).map(drop)
    }

    /// Reads each log of a store with a damaged ring, up to an error. Every entry must have
    /// existed, and only the logs of one commit may lack entries.
    fn look_for_the_rest(&self, store: &Store) -> Result<(), Violation> {
        let mut short = Vec::new();
        for (key, log) in &self.expected.durable {
            let entries = store.read(key, ..).ok();
            let entries: Vec<_> = entries.into_iter().flatten().map_while(Result::ok).collect();
            for Entry { seq, payload } in &entries {
                let held = |log: &Arc<Log>| log.entries.get(seq.checked_sub(log.first)? as usize).cloned();
                let known = |state: &Logs| state.get(key).and_then(held).as_ref() == Some(payload);
                if !self.states.iter().any(known) {
                    return violated(format!("entry {seq} of {} is {payload:?}", text(key)));
                }
            }
            if entries.len() < log.entries.len() {
                short.push(text(key));
            }
        }
        if short.len() > TOUCHED {
            return violated(format!("one damaged place hides parts of {}", short.join(", ")));
        }
        Ok(())
    }
}

/// Returns whether a store that is damaged at `at` may refuse to open with this error: only damage
/// to the manifest or the superblock may hide all other data.
fn hides_all(error: &Error, at: usize) -> bool {
    match error {
        Error::Damaged { place, .. } => place.contains("manifest") || place.contains("superblock"),
        Error::NotAStore { .. } | Error::NewerFormat { .. } => !RING.contains(&at),
        _ => false,
    }
}

/// Returns whether damage keeps the table of spaces from being read.
fn hides_table(disk: &MemVolume) -> bool {
    let opened = options().read_only(true).open_on(Arc::new(disk.clone()));
    opened.is_ok_and(|store| store.spaces_error().is_some())
}

/// Returns whether the check finds nothing, and whether it finds more than a bad copy of data that
/// is intact elsewhere.
fn check(disk: &MemVolume) -> Result<(bool, bool), Violation> {
    match check_volume(Arc::new(disk.clone()), brooklet::Progress::ignore) {
        Ok(report) => Ok((report.is_sound(), report.findings.iter().any(|finding| !finding.harmless))),
        Err(Error::NewerFormat { .. } | Error::NotAStore { .. }) => Ok((false, true)),
        Err(error) => violated(format!("the check itself fails: {error}")),
    }
}

/// Flips every `stride`-th bit of the used bytes of two closed stores, without and with a space.
pub struct Flips {
    targets: Vec<Target>,
    stride: u64,
}

/// A store whose bits flip.
struct Target {
    specimen: Specimen,
    used: Vec<usize>,
    /// Undamaged disks that are free for reuse.
    spare: Mutex<Vec<MemVolume>>,
}

impl Target {
    fn bits(&self) -> usize {
        self.used.len() * PIECE * 8
    }

    /// Flips bit `n` of the used bytes; `goes_on`: continues to use the store, too.
    fn flip(&self, n: usize, goes_on: bool) -> Result<Swept, Violation> {
        let (byte, bit) = (self.used[n / 8 / PIECE] + n / 8 % PIECE, (n % 8) as u8);
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let disk = spare().pop();
        let disk = disk.unwrap_or_else(|| self.specimen.disk(0));
        disk.flip(byte, bit);
        let what = || format!("bit {bit} of byte {byte} flipped");
        let swept = self.specimen.look(&disk, byte, &what).and_then(|swept| {
            if goes_on && !RING.contains(&byte) {
                let within = |Violation(why)| Violation(format!("{}: {why}", what()));
                guarded(|| self.specimen.go_on(&disk, byte)).map_err(within)?;
            }
            Ok(swept)
        });
        disk.flip(byte, bit);
        spare().push(disk);
        swept
    }
}

impl Flips {
    /// Makes the stores to damage.
    pub fn new(stride: u64) -> Result<Self, Violation> {
        let target = |has_space| -> Result<Target, Violation> {
            let specimen = Specimen::new(true, has_space);
            let specimen = specimen.or_else(|error| violated(format!("no store to damage: {error}")))?;
            Ok(Target { used: specimen.used(), specimen, spare: Mutex::default() })
        };
        Ok(Self { targets: vec![target(false)?, target(true)?], stride })
    }
}

impl Sweep for Flips {
    fn places(&self) -> u64 {
        let bits: usize = self.targets.iter().map(Target::bits).sum();
        (bits as u64).div_ceil(self.stride)
    }

    fn try_place(&self, nth: u64) -> Result<Swept, Violation> {
        let mut n = (nth * self.stride) as usize;
        for target in &self.targets {
            if n < target.bits() {
                return target.flip(n, nth.is_multiple_of(GOES_ON));
            }
            n -= target.bits();
        }
        unreachable!("the place is one of those that there are")
    }
}

/// Replaces each sector by zeros, noise, its earlier contents, or any other sector, in pieces of
/// 512 bytes and of 4 KiB; on closed stores without and with a space, and on a store that was
/// killed while idle. Tries every `stride`-th case.
pub struct Sectors {
    /// The cases, each lot with its used places, one for each piece.
    lots: Vec<Lot>,
    stride: u64,
}

/// The cases of one specimen and one piece size.
struct Lot {
    specimen: Arc<Specimen>,
    state: &'static str,
    len: usize,
    used: Vec<usize>,
}

impl Lot {
    /// Returns the number of replacements of a piece.
    fn kinds(&self) -> usize {
        self.used.len() + 3
    }

    fn cases(&self) -> usize {
        self.used.len() * self.kinds()
    }

    fn try_case(&self, n: usize) -> Result<Swept, Violation> {
        let (specimen, len) = (&*self.specimen, self.len);
        let mut rng = Rng::new(n as u64);
        let (at, kind) = (self.used[n / self.kinds()], n % self.kinds());
        let mut image = specimen.image.clone();
        let what = match kind {
            0 => {
                image[at..at + len].fill(0);
                "zeros".to_owned()
            }
            1 => {
                image[at..at + len].fill_with(|| rng.next() as u8);
                "noise".to_owned()
            }
            2 => {
                let old = specimen.older.get(at..at + len);
                image[at..at + len].copy_from_slice(old.unwrap_or(&vec![0; len]));
                "what was there earlier".to_owned()
            }
            _ => {
                let from = self.used[kind - 3];
                image.copy_within(from..from + len, at);
                format!("what belongs at {from}")
            }
        };
        if image == specimen.image {
            return Ok(Swept::default());
        }
        let disk = MemVolume::from_image(image, 0);
        let told = || format!("{}, {len} bytes at {at} hold {what}", self.state);
        specimen.look(&disk, at, &told)
    }
}

impl Sectors {
    /// Makes the stores to damage.
    pub fn new(stride: u64) -> Result<Self, Violation> {
        let mut lots = Vec::new();
        for (closed, has_space, state) in [
            (true, false, "a closed store"),
            (false, false, "an idle store"),
            (true, true, "a closed store with a space"),
        ] {
            let specimen = Specimen::new(closed, has_space);
            let specimen =
                Arc::new(specimen.or_else(|error| violated(format!("no store to damage: {error}")))?);
            for len in [PIECE, SECTOR] {
                let mut used: Vec<usize> = specimen.used().iter().map(|at| at / len * len).collect();
                used.dedup();
                lots.push(Lot { specimen: specimen.clone(), state, len, used });
            }
        }
        Ok(Self { lots, stride })
    }
}

impl Sweep for Sectors {
    fn places(&self) -> u64 {
        let cases: usize = self.lots.iter().map(Lot::cases).sum();
        (cases as u64).div_ceil(self.stride)
    }

    fn try_place(&self, nth: u64) -> Result<Swept, Violation> {
        let mut n = (nth * self.stride) as usize;
        for lot in &self.lots {
            if n < lot.cases() {
                return lot.try_case(n);
            }
            n -= lot.cases();
        }
        unreachable!("the place is one of those that there are")
    }
}
