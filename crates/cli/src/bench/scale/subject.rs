//! The store that is measured: how its logs are named and filled, and when it rests.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use brooklet::io::Rng;
use brooklet::{Commit, Error, Options, Store, StoreInfo, Ticket};

use crate::bench::load::Payloads;
use crate::failure::Failure;

/// The store's memory budget, as it is by default.
pub const BUDGET: u64 = 128 << 20;
/// Appends of a commit that fills.
const COMMIT: usize = 1000;
/// Most logs that a store is filled with by commits alone: a hundred million take hours.
const COMMITTED: u64 = 10_000_000;
/// Logs that commits add after an import of all others.
const ADDED: u64 = 1_000_000;
/// Bytes of memory for the sorting of an import.
const SORTING: usize = 1 << 30;
/// Logs that are at work while all others rest.
const AT_WORK: u64 = 10_000;
/// Logs that are snapshotted over and over.
const SNAPSHOTTED: u64 = 1000;
/// A store that has done nothing for so long rests.
const QUIET: Duration = Duration::from_millis(300);

/// Options of the store.
pub fn options(ring: u64) -> Options {
    Options::new().ring_size(ring).memory_budget(BUDGET as usize)
}

/// The key of log `i`. Logs that follow one another lie far apart in the order of keys, as those
/// named by chance do.
pub fn key(i: u64) -> String {
    format!("doc/{:016x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// What is appended to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Some logs are at work, all others rest.
    AtWork,
    /// All logs alike.
    Spread,
    /// A new log for each append.
    Create,
    /// Few logs, each append of which trims all before it.
    Snapshot,
}

/// Where each kind of log begins to be counted: those that a thread creates, those that are
/// snapshotted, and those in the ring when the store is killed.
const CREATED: u64 = 1 << 36;
const SNAPSHOTS: u64 = 1 << 48;
pub const KILLED: u64 = 1 << 49;

/// A store with logs in it.
pub struct Subject<'a> {
    pub store: Store,
    path: PathBuf,
    payloads: &'a Payloads,
    /// Logs that it was filled with.
    pub filled: u64,
    /// Logs that were created later, snapshotted ones apart.
    created: u64,
    /// Payload bytes that were appended, snapshots apart.
    pub appended: u64,
}

impl<'a> Subject<'a> {
    /// Makes a store and fills it, by large commits that nobody waits for. If there are many logs,
    /// an import makes most of them before. Gives logs created a second by the commits, too.
    pub fn fill(path: &Path, ring: u64, logs: u64, payloads: &'a Payloads) -> Result<(Self, f64), Failure> {
        let store = options(ring).open(path)?;
        let mut subject =
            Self { store, path: path.to_owned(), payloads, filled: logs, created: 0, appended: 0 };
        let imported = if logs > COMMITTED { logs - ADDED } else { 0 };
        subject.import(imported)?;
        let start = Instant::now();
        let mut from = imported;
        while from < logs {
            let to = (from + COMMIT as u64).min(logs);
            let keys: Vec<String> = (from..to).map(key).collect();
            let mut commit = Commit::new();
            for (key, payload) in keys.iter().zip(subject.payloads_from(from as usize)) {
                commit.append(key, payload);
                subject.appended += payload.len() as u64;
            }
            drop(subject.store.commit(&commit)?);
            from = to;
        }
        subject.store.flush()?;
        let rate = (logs - imported) as f64 / start.elapsed().as_secs_f64();
        subject.store.checkpoint()?;
        Ok((subject, rate))
    }

    /// Makes the first logs by an import.
    fn import(&mut self, logs: u64) -> Result<(), Failure> {
        if logs == 0 {
            return Ok(());
        }
        let scratch = self.path.parent().unwrap_or(Path::new("."));
        let mut import = self.store.import().memory(SORTING).unsorted(scratch)?;
        for (i, payload) in (0..logs).zip(self.payloads_from(0)) {
            import.append(key(i), payload)?;
            self.appended += payload.len() as u64;
        }
        import.finish()?;
        Ok(())
    }

    /// Closes the store and opens it again, so that all its logs rest.
    pub fn reopened(self, ring: u64) -> Result<Self, Failure> {
        let Self { store, path, payloads, filled, created, appended } = self;
        store.close()?;
        drop(store);
        let store = options(ring).open(&path)?;
        Ok(Self { store, path, payloads, filled, created, appended })
    }

    /// Payloads in turn, from one of them on.
    pub fn payloads_from(&self, first: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.payloads.iter().cycle().skip(first % self.payloads.len()).map(|payload| &**payload)
    }

    /// The keys that a thread writes to, without end.
    pub fn keys(&self, load: Load, thread: usize) -> impl FnMut() -> String + use<> {
        let mut rng = Rng::new(self.appended ^ thread as u64);
        // Beyond all that this thread can have created before.
        let mut new = CREATED * (thread as u64 + 1) + self.created;
        let filled = self.filled;
        move || match load {
            Load::AtWork => key(rng.below(filled.min(AT_WORK))),
            Load::Spread => key(rng.below(filled)),
            Load::Snapshot => key(SNAPSHOTS + rng.below(SNAPSHOTTED)),
            Load::Create => {
                new += 1;
                key(new)
            }
        }
    }

    /// Takes note of what was written.
    pub fn count(&mut self, load: Load, writes: u64, bytes: u64) {
        match load {
            Load::AtWork | Load::Spread => self.appended += bytes,
            Load::Create => {
                self.appended += bytes;
                self.created += writes;
            }
            Load::Snapshot => {}
        }
    }

    /// Logs that are there.
    pub fn logs(&self) -> u64 {
        self.filled + self.created + SNAPSHOTTED
    }

    /// Payload bytes that live: all that was appended, and what the snapshots left.
    pub fn live(&self) -> Result<u64, Failure> {
        let mut live = self.appended;
        for i in 0..SNAPSHOTTED {
            let entries = match self.store.read(key(SNAPSHOTS + i), ..) {
                Err(Error::UnknownLog { .. }) => continue,
                entries => entries?,
            };
            for entry in entries {
                live += entry?.payload.len() as u64;
            }
        }
        Ok(live)
    }

    /// Bytes on the disk, without what is free in the ring.
    pub fn on_disk(&self) -> Result<u64, Failure> {
        on_disk(&self.path, &self.store)
    }

    /// Bytes that the store wrote to the device, to ring and heap, since it was made.
    pub fn written(&self) -> Result<u64, Failure> {
        let StoreInfo { wal, maintenance, .. } = self.store.info()?;
        Ok(wal.written_bytes + maintenance.heap_written_bytes)
    }

    /// Waits until checkpoints and compactions have come to rest, for `patience` at most.
    pub fn settle(&self, patience: Duration) -> Result<(), Failure> {
        self.store.flush()?;
        let start = Instant::now();
        let mut busy = start;
        while busy.elapsed() < QUIET && start.elapsed() < patience {
            let info = self.store.info()?;
            if info.checkpointing || info.compacting {
                busy = Instant::now();
            }
            thread::sleep(QUIET / 30);
        }
        Ok(())
    }
}

/// Bytes that a store at `path` takes on the disk, without what is free in its ring.
pub fn on_disk(path: &Path, store: &Store) -> Result<u64, Failure> {
    let allocated = std::fs::metadata(path)?.blocks() * 512;
    let info = store.info()?;
    Ok(allocated.saturating_sub(info.ring_size) + info.wal.used)
}

/// Writes to a log.
pub fn write(store: &Store, load: Load, key: &str, payload: &[u8]) -> Result<Ticket, Error> {
    if load == Load::Snapshot { store.snapshot(key, payload) } else { store.append(key, payload) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::bench::load::deltas;

    #[test]
    fn keys_differ_and_lie_apart() {
        let keys: BTreeSet<String> = (0..10_000).chain(SNAPSHOTS..SNAPSHOTS + SNAPSHOTTED).map(key).collect();
        assert_eq!(keys.len() as u64, 10_000 + SNAPSHOTTED);
        assert!(keys.iter().take(10).filter(|k| (0..100).map(key).any(|low| **k == low)).count() < 5);
    }

    #[test]
    fn logs_are_counted_and_what_lives_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let payloads = deltas();
        let (mut subject, rate) =
            Subject::fill(&dir.path().join("s"), 8 << 20, 1500, &payloads).ok().unwrap();
        let logs = |subject: &Subject<'_>| subject.store.scan("").unwrap().count();
        assert!(rate > 0.0 && logs(&subject) == 1500);
        let mut bytes = 0;
        for load in [Load::AtWork, Load::Spread, Load::Create, Load::Snapshot] {
            let mut keys = subject.keys(load, 0);
            for payload in subject.payloads_from(7).take(100) {
                write(&subject.store, load, &keys(), payload).unwrap().wait().unwrap();
                bytes = payload.len() as u64;
            }
            let before = subject.appended;
            subject.count(load, 100, bytes);
            assert_eq!(subject.appended - before, if load == Load::Snapshot { 0 } else { bytes });
            let new = subject.keys(Load::Create, 0)();
            assert!(!subject.store.exists(new).unwrap());
        }
        let snapshots = logs(&subject) - 1600;
        assert!((50..=100).contains(&snapshots), "{snapshots}");
        let left = subject.live().ok().unwrap() - subject.appended;
        assert!((64 * snapshots as u64..=512 * snapshots as u64).contains(&left), "{left}");
        assert!(subject.on_disk().ok().unwrap() > 0 && subject.written().ok().unwrap() > 0);
    }
}
