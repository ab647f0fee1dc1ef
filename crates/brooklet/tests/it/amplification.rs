//! What compaction costs and leaves, in bytes: the real store on a memory volume, with JSON
//! payloads of 64 to 512 bytes. All sizes are 1/128 of the defaults, so that 100 times the memory
//! budget takes seconds. One thread does everything, so the figures are the same each time:
//!
//! ```sh
//! cargo test --release -p brooklet --test it amplification -- --nocapture
//! ```

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{ManualClock, MemVolume, Rng, Volume};
use brooklet::{Options, Store};

const BUDGET: u64 = 1 << 20;

struct Trial {
    volume: MemVolume,
    clock: Arc<ManualClock>,
    store: Store,
    rng: Rng,
    payload: u64,
    appends: u64,
    most_runs: usize,
}

impl Trial {
    fn new() -> Self {
        let (volume, clock) = (MemVolume::new(1), Arc::new(ManualClock::default()));
        let options = Options::new().ring_size(512 << 10).memory_budget(BUDGET as usize).block_size(32 << 10);
        let options = options.max_payload(64 << 10).threads(false).clock(clock.clone()).rng_seed(1);
        let store = options.create_on(Arc::new(volume.clone())).unwrap();
        Self { volume, clock, store, rng: Rng::new(1), payload: 0, appends: 0, most_runs: 0 }
    }

    /// An entry of a log; as a snapshot, it is all that the log holds.
    fn append(&mut self, log: u64, snapshot: bool) {
        let json = delta(&mut self.rng);
        self.payload += json.len() as u64;
        self.appends += 1;
        let key = format!("document/{log}");
        let ticket = if snapshot { self.store.snapshot(key, json) } else { self.store.append(key, json) };
        drop(ticket.unwrap());
        if self.appends.is_multiple_of(100) {
            // The store's own work gets on while it is wanted, and nobody waits for a block that is
            // not full.
            while self.store.step().unwrap() {}
            self.most_runs = self.most_runs.max(self.store.info().unwrap().runs.len());
        }
    }

    /// Lets the store be idle, prints what there is to tell, and gives the bytes written and in
    /// use, for each byte of payload written and live.
    fn finish(mut self, name: &str) -> (f64, f64) {
        let written = self.volume.counts().written_bytes;
        let wal = self.store.info().unwrap().wal;
        let maintenance = self.store.info().unwrap().maintenance;
        self.store.flush().unwrap();
        // The store looks at the clock when it works: once to see that nobody commits, once to see
        // for how long.
        while self.store.step().unwrap() {}
        self.clock.advance(Duration::from_secs(60));
        while self.store.step().unwrap() {}
        let live: u64 = self.store.scan("").unwrap().map(|log| self.live(&log.unwrap().key)).sum();
        let runs = self.store.info().unwrap().runs;
        let space = runs.iter().map(|run| run.bytes).sum::<u64>() as f64 / live.max(1) as f64;
        let dense: u64 = self.compacted();
        let of = |bytes: u64| bytes as f64 / self.payload as f64;
        println!(
            "{name}: written {:.2} bytes a byte of payload (ring {:.2}, runs {:.2}), {} checkpoints, {} compactions, \
             {} runs freed unread; at most {} runs, {} at last; idle, runs take {space:.2} bytes a live byte, and \
             {:.2} times what one run takes",
            of(written),
            of(wal.written_bytes),
            of(maintenance.heap_written_bytes),
            maintenance.checkpoints,
            maintenance.compactions,
            maintenance.dead_runs,
            self.most_runs,
            runs.len(),
            runs.iter().map(|run| run.bytes).sum::<u64>() as f64 / dense.max(1) as f64,
        );
        assert!(self.most_runs <= 13, "{} runs: 12, and a new one", self.most_runs);
        (of(written), space)
    }

    fn live(&self, key: &[u8]) -> u64 {
        let entries = self.store.read(key, ..).unwrap();
        entries.map(|entry| entry.unwrap().payload.len() as u64).sum()
    }

    /// Bytes that all runs take when merged into one.
    fn compacted(&mut self) -> u64 {
        self.store.compact().unwrap();
        self.store.info().unwrap().runs.iter().map(|run| run.bytes).sum()
    }
}

/// A JSON delta of 64 to 512 bytes, as an editor or a game would send it.
fn delta(rng: &mut Rng) -> String {
    let len = 64 + rng.below(449) as usize;
    let (id, at) = (rng.below(1_000_000), rng.next());
    let mut out = format!("{{\"op\":\"update\",\"player\":{id},\"at\":{at},\"fields\":{{");
    while out.len() < len {
        write!(out, "\"field{}\":{},", rng.below(40), rng.below(100_000)).unwrap();
    }
    out.truncate(len);
    out
}

#[test]
fn append_only() {
    let mut trial = Trial::new();
    while trial.payload < 100 * BUDGET {
        let log = trial.rng.below(800);
        trial.append(log, false);
    }
    let (written, space) = trial.finish("append-only, 800 logs, 100 times the memory budget");
    assert!(written <= 3.0 && space <= 1.3);
}

#[test]
fn snapshot_and_trim() {
    let mut trial = Trial::new();
    while trial.payload < 50 * BUDGET {
        let (log, snapshot) = (trial.rng.below(8), trial.rng.below(16) == 0);
        trial.append(log, snapshot);
    }
    let (written, space) = trial.finish("snapshot-and-trim, 8 logs, every 16th a snapshot");
    assert!(written <= 0.8 && space <= 1.3);
}

#[test]
fn random_deletes() {
    let mut trial = Trial::new();
    while trial.payload < 50 * BUDGET {
        let log = trial.rng.below(4000);
        if trial.rng.below(10) == 0 {
            let _ = trial.store.delete(format!("document/{log}"));
        } else {
            trial.append(log, false);
        }
    }
    let (_, space) = trial.finish("random deletes, 4,000 logs, every 10th change a delete");
    assert!(space <= 1.3);
}

#[test]
fn a_hot_log_among_cold_ones() {
    let mut trial = Trial::new();
    for log in 1..=40_000 {
        trial.append(log, false);
    }
    while trial.payload < 50 * BUDGET {
        let cold = trial.rng.below(10) == 0;
        let log = if cold { 1 + trial.rng.below(40_000) } else { 0 };
        trial.append(log, false);
        if trial.appends.is_multiple_of(100) {
            drop(trial.store.keep_last("document/0", 1000).unwrap());
        }
    }
    let (_, space) = trial.finish("a hot log, kept to 1,000 entries, among 40,000 cold ones");
    assert!(space <= 1.3);
}
