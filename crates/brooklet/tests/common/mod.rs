//! A plain model of the store: what its logs hold after each commit, and nothing about how.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use brooklet::io::{ManualClock, Rng};
use brooklet::{Bounds, Commit, Error, Options, Store};

/// Options of a store so small that it goes round its ring, checkpoints and compacts all the time, and that does
/// nothing by itself.
pub fn tiny(clock: &Arc<ManualClock>, seed: u64) -> Options {
    let options = Options::new().ring_size(64 << 10).memory_budget(64 << 10).block_size(8 << 10);
    options.max_payload(9 << 10).threads(false).environment(clock.clone(), seed)
}

/// A log: its first number and its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    pub first: u64,
    pub entries: Vec<Vec<u8>>,
}

impl Log {
    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn trim(&mut self, before: u64) {
        if before > self.first {
            self.entries.drain(..(before - self.first) as usize);
            self.first = before;
        }
    }
}

pub type Logs = BTreeMap<Vec<u8>, Log>;

/// An operation as a test keeps it.
#[derive(Clone, Debug)]
pub enum Op {
    Append(Vec<u8>, Vec<u8>),
    Snapshot(Vec<u8>, Vec<u8>),
    Trim(Vec<u8>, u64),
    KeepLast(Vec<u8>, u64),
    Truncate(Vec<u8>, u64),
    Delete(Vec<u8>),
    ExpectNext(Vec<u8>, u64),
    ExpectAbsent(Vec<u8>),
}

/// How a commit should fail.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    Unknown,
    OutOfRange,
    Conflict,
}

/// Does a commit to the model, whole or not at all; gives the numbers of its entries.
pub fn apply(logs: &mut Logs, ops: &[Op]) -> Result<Vec<u64>, Refusal> {
    for op in ops {
        match op {
            Op::ExpectNext(key, next) if logs.get(key).map_or(0, Log::next) != *next => {
                return Err(Refusal::Conflict);
            }
            Op::ExpectAbsent(key) if logs.contains_key(key) => return Err(Refusal::Conflict),
            _ => {}
        }
    }
    let before = logs.clone();
    let mut seqs = Vec::new();
    for op in ops {
        if let Err(refusal) = apply_one(logs, op, &mut seqs) {
            *logs = before;
            return Err(refusal);
        }
    }
    Ok(seqs)
}

fn apply_one(logs: &mut Logs, op: &Op, seqs: &mut Vec<u64>) -> Result<(), Refusal> {
    match op {
        Op::Append(key, payload) | Op::Snapshot(key, payload) => {
            let log = logs.entry(key.clone()).or_default();
            let seq = log.next();
            seqs.push(seq);
            log.entries.push(payload.clone());
            if matches!(op, Op::Snapshot(..)) {
                log.trim(seq);
            }
        }
        Op::Trim(key, before) => {
            let log = logs.get_mut(key).ok_or(Refusal::Unknown)?;
            if *before > log.next() {
                return Err(Refusal::OutOfRange);
            }
            log.trim(*before);
        }
        Op::KeepLast(key, n) => {
            let log = logs.get_mut(key).ok_or(Refusal::Unknown)?;
            log.trim(log.next().saturating_sub(*n));
        }
        Op::Truncate(key, from) => {
            let log = logs.get_mut(key).ok_or(Refusal::Unknown)?;
            if *from < log.first || *from > log.next() {
                return Err(Refusal::OutOfRange);
            }
            log.entries.truncate((*from - log.first) as usize);
        }
        Op::Delete(key) => drop(logs.remove(key).ok_or(Refusal::Unknown)?),
        Op::ExpectNext(..) | Op::ExpectAbsent(..) => {}
    }
    Ok(())
}

/// Turns a test's operations into a commit.
pub fn commit(ops: &[Op]) -> Commit<'_> {
    let mut commit = Commit::new();
    for op in ops {
        match op {
            Op::Append(key, payload) => commit.append(key, payload),
            Op::Snapshot(key, payload) => commit.snapshot(key, payload),
            Op::Trim(key, before) => commit.trim(key, *before),
            Op::KeepLast(key, n) => commit.keep_last(key, *n),
            Op::Truncate(key, from) => commit.truncate(key, *from),
            Op::Delete(key) => commit.delete(key),
            Op::ExpectNext(key, next) => commit.expect_next(key, *next),
            Op::ExpectAbsent(key) => commit.expect_absent(key),
        };
    }
    commit
}

/// Whether an error is the refusal that the model gives.
pub fn is_refusal(error: &Error, refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Unknown => matches!(error, Error::UnknownLog { .. }),
        Refusal::OutOfRange => matches!(error, Error::OutOfRange { .. }),
        Refusal::Conflict => matches!(error, Error::Conflict { .. }),
    }
}

pub fn key(rng: &mut Rng) -> Vec<u8> {
    match rng.below(12) {
        0 => vec![0],
        1 => b"log/\0/x".to_vec(),
        2 => b"log/\0".to_vec(),
        n => format!("log/{n}").into_bytes(),
    }
}

pub fn payload(rng: &mut Rng, largest: u64) -> Vec<u8> {
    let len = if rng.percent(3) { rng.below(largest) } else { rng.below(120) };
    let byte = rng.next() as u8;
    if rng.percent(50) { vec![byte; len as usize] } else { (0..len).map(|_| rng.next() as u8).collect() }
}

/// A random operation that makes sense more often than not.
pub fn op(rng: &mut Rng, logs: &Logs, largest: u64) -> Op {
    let key = key(rng);
    let (first, next) = logs.get(&key).map_or((0, 0), |log| (log.first, log.next()));
    let within = |rng: &mut Rng| first.saturating_sub(rng.below(2)) + rng.below(next - first + 3);
    match rng.below(100) {
        0..60 => Op::Append(key, payload(rng, largest)),
        60..67 => Op::Snapshot(key, payload(rng, largest)),
        67..75 => Op::Trim(key, within(rng)),
        75..80 => Op::KeepLast(key, rng.below(5)),
        80..87 => Op::Truncate(key, within(rng)),
        87..92 => Op::Delete(key),
        92..97 => Op::ExpectNext(key, if rng.percent(80) { next } else { next + 1 }),
        _ => Op::ExpectAbsent(key),
    }
}

/// Reads everything a store shows, by listing and by reading each log, forward and backward.
pub fn contents(store: &Store) -> Result<Logs, Error> {
    let mut logs = Logs::new();
    for log in store.scan("")? {
        let log = log?;
        assert_eq!(store.bounds(&log.key)?, log.bounds);
        let entries: Vec<_> = store.read(&log.key, ..)?.collect::<Result<_, _>>()?;
        let mut back: Vec<_> = store.read(&log.key, ..)?.rev().collect::<Result<_, _>>()?;
        back.reverse();
        assert_eq!(entries, back);
        for (i, entry) in entries.iter().enumerate() {
            assert_eq!(entry.seq, log.bounds.first + i as u64);
        }
        let held =
            Log { first: log.bounds.first, entries: entries.iter().map(|e| e.payload.to_vec()).collect() };
        assert_eq!(held.next(), log.bounds.next);
        logs.insert(log.key, held);
    }
    Ok(logs)
}

/// Where two states differ, in words.
pub fn difference(found: &Logs, expected: &Logs) -> String {
    let mut out = String::new();
    for key in found.keys().chain(expected.keys().filter(|k| !found.contains_key(*k))) {
        let (f, e) = (found.get(key), expected.get(key));
        if f != e {
            let show = |log: Option<&Log>| log.map(|l| Bounds { first: l.first, next: l.next() });
            let _ = writeln!(out, "  {}: found {:?}, expected {:?}", key.escape_ascii(), show(f), show(e));
        }
    }
    out
}
