//! What a store holds, as tests compare it.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod busy;
pub mod disk;
pub mod gate;
pub mod small;
pub mod tasks;
pub mod twin;

use std::collections::BTreeMap;
use std::sync::Arc;

use brooklet::{Error, Part, Store, View, WalkItem};

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

/// Reads a view in all ways there are, and what it is elsewhere, which must agree.
pub fn seen(view: &View) -> Logs {
    let logs = seen_here(view);
    assert_eq!(seen_here(&elsewhere(view)), logs);
    logs
}

/// The view of a view's parts, which are kept in memory.
pub fn elsewhere(view: &View) -> View {
    let keep = |part: Part| {
        part.verify(brooklet::Progress::ignore).unwrap();
        (part.name(), part.read(0, part.name().len as usize).unwrap())
    };
    let kept: BTreeMap<_, _> = view.parts().into_iter().map(keep).collect();
    let table = view.table();
    let kept = View::from_parts(&table, 1 << 20, |name| Ok(Arc::new(kept[&name].clone()))).unwrap();
    assert_eq!((kept.lsn(), kept.store_id()), (view.lsn(), view.store_id()));
    assert!(kept.table() == table, "it can be taken apart again");
    assert!(view.table() == table, "a view stays as it is");
    kept
}

fn seen_here(view: &View) -> Logs {
    let mut logs = Logs::new();
    for log in view.scan("").unwrap() {
        let log = log.unwrap();
        assert_eq!(view.bounds(&log.key).unwrap(), log.bounds);
        let entries: Vec<_> = view.read(&log.key, ..).unwrap().map(|entry| entry.unwrap().payload).collect();
        let entries = entries.iter().map(|payload| payload.to_vec()).collect();
        logs.insert(log.key, Log { first: log.bounds.first, entries });
    }
    assert_eq!(walked(view, ""), logs);
    logs
}

/// Reads everything in some logs of a view from front to back.
pub fn walked(view: &View, prefix: &str) -> Logs {
    let mut logs = Logs::new();
    let mut last = None;
    for walked in view.walk(prefix).unwrap() {
        match walked.unwrap() {
            WalkItem::Log(log) => {
                assert!(last.as_ref().is_none_or(|last| *last < log.key), "logs come in order");
                logs.insert(log.key.clone(), Log { first: log.bounds.first, entries: Vec::new() });
                last = Some(log.key);
            }
            WalkItem::Entry(entry) => {
                let log = logs.get_mut(last.as_ref().expect("a log comes first")).unwrap();
                assert_eq!(entry.seq, log.next());
                log.entries.push(entry.payload.to_vec());
            }
        }
    }
    logs
}
