//! What a store holds, as tests compare it.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;

use brooklet::{Error, Store};

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
}

pub type Logs = BTreeMap<Vec<u8>, Log>;

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
