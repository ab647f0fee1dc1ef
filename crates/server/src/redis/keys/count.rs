//! The numbers of keys of the databases.
//!
//! A number is counted once, over the keys as they were at one moment, in portions. From then on,
//! commits change it.

use std::collections::BTreeMap;

use brooklet::Error;

use super::scan::Keys;
use super::{Keyspace, names};

/// The number of keys of a database, and its changes.
#[derive(Default)]
pub struct Count {
    /// The number, if it was counted.
    known: Option<i64>,
    /// Sum of all changes.
    changes: i64,
    /// Number of times that changes were lost.
    losses: u64,
}

impl Count {
    /// Returns the number of a database.
    pub fn of<'a>(all: &'a mut BTreeMap<Vec<u8>, Self>, database: &[u8]) -> &'a mut Self {
        if !all.contains_key(database) {
            all.insert(database.to_vec(), Self::default());
        }
        all.get_mut(database).expect("it was inserted")
    }

    /// Records that keys came, or went.
    pub fn change(&mut self, by: i64) {
        self.changes += by;
        self.known = self.known.map(|known| known + by);
    }

    /// Records that changes were lost: the keys must be counted anew.
    pub fn forget(&mut self) {
        (self.known, self.losses) = (None, self.losses + 1);
    }
}

/// A count in progress: the keys of a database at its beginning.
pub struct Counting {
    keys: Keys,
    counted: i64,
    /// Changes at the beginning, with those of the command of that moment.
    changes: i64,
    losses: u64,
}

impl Counting {
    /// Counts up to `most` keys; returns whether all are counted.
    pub fn go_on(&mut self, most: usize) -> Result<bool, Error> {
        for _ in 0..most {
            let Some(key) = self.keys.next() else { return Ok(true) };
            key?;
            self.counted += 1;
        }
        Ok(false)
    }
}

impl Keyspace {
    /// Returns the change of a number by the current command. The command may be refused, so this
    /// change is not in the stored number.
    fn at_hand(&self, database: &[u8]) -> i64 {
        let own = self.touched.iter().map(|(id, was_there)| (self.slot(*id), *was_there));
        let own = own.filter(|(slot, _)| names::database(&slot.key) == database);
        own.map(|(slot, was_there)| i64::from(slot.value.is_there()) - i64::from(was_there)).sum()
    }

    /// Returns the number of keys of a database, if it is known.
    pub fn known_count(&mut self, database: &[u8]) -> Option<i64> {
        self.see_all();
        let known = self.counts.get(database)?.known?;
        Some(known + self.at_hand(database))
    }

    /// Begins to count the keys of a database.
    pub fn begin_count(&mut self, database: &[u8]) -> Result<Counting, Error> {
        let keys = self.keys_after(database, None)?;
        let at_hand = self.at_hand(database);
        let count = Count::of(&mut self.counts, database);
        Ok(Counting { keys, counted: 0, changes: count.changes + at_hand, losses: count.losses })
    }

    /// Returns the number of keys of a database now, from a count over all of them.
    pub fn end_count(&mut self, database: &[u8], counting: &Counting) -> i64 {
        self.see_all();
        let at_hand = self.at_hand(database);
        let count = Count::of(&mut self.counts, database);
        let committed = counting.counted + count.changes - counting.changes;
        if count.losses == counting.losses {
            count.known = Some(committed);
        }
        committed + at_hand
    }

    /// Returns the number of keys of a database, if it is known, or if the database has few keys.
    pub fn count_if_quick(&mut self, database: &[u8]) -> Result<Option<i64>, Error> {
        const FEW: usize = 10_000;
        self.prepare_scan(database, false)?;
        if let Some(known) = self.known_count(database) {
            return Ok(Some(known));
        }
        if self.large.contains(database) {
            return Ok(None);
        }
        let mut counting = self.begin_count(database)?;
        if counting.go_on(FEW)? {
            return Ok(Some(self.end_count(database, &counting)));
        }
        self.large.insert(database.to_vec());
        Ok(None)
    }
}
