//! Reports of changed keys for commands that run in portions.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::names::{self, LogKey};

/// Most changed keys that are recorded between two portions.
const MOST: usize = 100_000;

/// The changed keys; `None`: any may have changed.
type Changes = Mutex<Option<Vec<LogKey>>>;

/// A list of the keys that commits have changed.
pub struct Follower(Arc<Changes>);

impl Follower {
    /// Takes the plain logs of the keys that changed since the last call; `None` if all keys may
    /// have changed.
    pub fn take(&self) -> Option<Vec<LogKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(Vec::new())
    }

    /// Returns whether one of some keys may have changed since the last call.
    pub fn have_changed<N: AsRef<[u8]>>(&self, database: &[u8], all: &[N]) -> bool {
        let Some(changed) = self.take() else { return true };
        let of_database = changed.iter().filter(|key| names::database(key) == database);
        let changed: BTreeSet<&[u8]> = of_database.map(|key| names::name(key)).collect();
        !changed.is_empty() && all.iter().any(|name| changed.contains(name.as_ref()))
    }
}

/// The lists that are in use.
#[derive(Default)]
pub struct Followers(Vec<Weak<Changes>>);

impl Followers {
    /// Adds a list.
    pub fn add(&mut self) -> Follower {
        self.0.retain(|list| list.strong_count() > 0);
        let list = Arc::new(Mutex::new(Some(Vec::new())));
        self.0.push(Arc::downgrade(&list));
        Follower(list)
    }

    /// Records that a key has changed.
    pub fn note(&mut self, key: &LogKey) {
        self.each(|changes| {
            if let Some(all) = changes.as_mut().filter(|all| all.len() < MOST) {
                all.push(key.clone());
            } else {
                *changes = None;
            }
        });
    }

    /// Records that all keys may have changed.
    pub fn note_all(&mut self) {
        self.each(|changes| *changes = None);
    }

    fn each(&mut self, note: impl Fn(&mut Option<Vec<LogKey>>)) {
        self.0.retain(|list| {
            let list = list.upgrade();
            list.inspect(|list| note(&mut list.lock().unwrap_or_else(PoisonError::into_inner))).is_some()
        });
    }
}
