//! Data that is made once: read after a reopening, opened after a clean close and after a kill, and
//! weighed in memory.

use std::path::Path;
use std::time::{Duration, Instant};

use brooklet::io::Rng;
use serde::{Deserialize, Serialize};

use super::Figures;
use crate::outcome::Result;
use crate::payloads::{DELTA, Payloads};
use crate::peer::{Op, Peer};
use crate::stores::Kind;
use crate::system;

/// Logs with some entries each.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Data {
    /// How many logs.
    pub logs: u64,
    /// Entries of each.
    pub each: u64,
    /// How the store is left.
    pub left: Left,
}

/// What is done before a store with data is closed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Left {
    AsItIs,
    /// See [`Peer::settle`].
    Settled,
    /// See [`Peer::compact`].
    Compacted,
}

/// Logs that are read.
const READS: u64 = 10_000;
/// Entries of a transaction, while a store is filled.
const CHUNK: usize = 100_000;
/// Logs that are looked at after an opening.
const SPOT_CHECKS: u64 = 100;

impl Data {
    /// Makes the store: an entry for each log, then another for each, so that a log's entries come
    /// far apart.
    pub fn fill(self, kind: Kind, dir: &Path, payloads: Payloads) -> Result<Figures> {
        let store = kind.open(dir)?;
        let mut ops = Vec::with_capacity(CHUNK);
        for seq in 0..self.each {
            for i in 0..self.logs {
                // A prime that divides no number of logs: all of them, in an order that is not that
                // of their keys.
                let log = (i * 7919 + seq * 104_729) % self.logs;
                ops.push(Op { log, seq, first: seq, payload: payloads.delta(i + seq * self.logs) });
                if ops.len() == CHUNK {
                    store.all(&ops)?;
                    ops.clear();
                }
            }
        }
        store.all(&ops)?;
        match self.left {
            Left::AsItIs => {}
            Left::Settled => store.settle()?,
            Left::Compacted => store.compact()?,
        }
        store.close()?;
        let bytes = self.logs * self.each * DELTA as u64;
        Ok(Figures::from([("space per byte".into(), system::space(dir)? as f64 / bytes as f64)]))
    }

    /// Opens the store and reads logs, twice.
    pub fn read(self, kind: Kind, dir: &Path) -> Result<Figures> {
        let mut rng = Rng::new(3);
        let logs: Vec<u64> = (0..READS).map(|_| rng.below(self.logs)).collect();
        with_writes(dir, || {
            let store = kind.open(dir)?;
            let mut figures = Figures::new();
            for name in ["cold", "warm"] {
                let begin = Instant::now();
                logs.iter().try_for_each(|log| self.check(&*store, *log))?;
                figures.insert(name.into(), READS as f64 / begin.elapsed().as_secs_f64());
            }
            store.close()?;
            Ok(figures)
        })
    }

    /// Opens the store; reading a log counts as part of it, so that nothing is put off.
    pub fn open(self, kind: Kind, dir: &Path) -> Result<Figures> {
        with_writes(dir, || {
            let begin = Instant::now();
            let store = kind.open(dir)?;
            self.check(&*store, 0)?;
            let took = begin.elapsed();
            let mut rng = Rng::new(4);
            (0..SPOT_CHECKS).try_for_each(|_| self.check(&*store, rng.below(self.logs)))?;
            store.close()?;
            Ok(Figures::from([("ms".into(), took.as_secs_f64() * 1e3)]))
        })
    }

    /// Opens the store, reads a log, and tells the memory of the process beyond what it was before.
    pub fn weigh(self, kind: Kind, dir: &Path) -> Result<Figures> {
        let before = system::own_memory()?;
        let store = kind.open(dir)?;
        self.check(&*store, 0)?;
        std::thread::sleep(Duration::from_secs(1));
        let bytes = system::own_memory()?.saturating_sub(before);
        store.close()?;
        Ok(Figures::from([("bytes".into(), bytes as f64)]))
    }

    /// Reads a log and looks whether all is there.
    fn check(self, store: &dyn Peer, log: u64) -> Result<()> {
        let (mut next, mut whole) = (0, true);
        store.read(log, &mut |seq, payload| {
            whole &= seq == next && payload.len() == DELTA;
            next += 1;
        })?;
        if whole && next == self.each {
            Ok(())
        } else {
            Err(format!("log {log} is not as it was written").into())
        }
    }
}

/// Adds what the device was made to write meanwhile.
fn with_writes(dir: &Path, act: impl FnOnce() -> Result<Figures>) -> Result<Figures> {
    let (mut figures, written) = system::count_written(dir, act)?;
    figures.extend(written.map(|bytes| ("written MiB".to_owned(), bytes as f64 / f64::from(1 << 20))));
    Ok(figures)
}
