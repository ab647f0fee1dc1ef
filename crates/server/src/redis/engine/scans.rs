//! Walks over keys, a portion at a time.

use std::collections::{BTreeMap, BTreeSet};

use brooklet::Error;
use bytes::Bytes;

/// Most steps of walks that one user has. The step that rested longest is dropped first.
const MOST: usize = 4096;
/// Memory of a step besides its key and its database, in bytes.
const STEP: usize = 256;

/// The walks in progress: of each, the keys behind which its last two steps begin.
///
/// A step is kept until the walk goes on from its successor: so a client whose connection broke
/// before the reply asks for the step again. A step belongs to a user and a database; the steps of
/// one user drop no steps of another.
#[derive(Default)]
pub struct Scans {
    last: u64,
    steps: BTreeMap<u64, Step>,
    users: BTreeMap<String, OfUser>,
    bytes: usize,
}

/// A step of a walk.
struct Step {
    /// The key behind which the step begins.
    key: Bytes,
    database: Bytes,
    user: String,
    /// The cursor of the step before; 0: none.
    before: u64,
    /// The damage that the steps before met.
    damage: Option<Error>,
}

/// The steps of a user.
#[derive(Default)]
struct OfUser {
    cursors: BTreeSet<u64>,
    bytes: usize,
}

impl Step {
    fn memory(&self) -> usize {
        let damage = match &self.damage {
            Some(Error::Damaged { place, what }) => place.len() + what.len(),
            _ => 0,
        };
        STEP + self.key.len() + self.database.len() + self.user.len() + damage
    }
}

impl Scans {
    /// Returns the key behind which a step of a user's walk begins, and the damage that the steps
    /// before met; `None` if the step is not kept.
    pub fn find(&mut self, cursor: u64, database: &[u8], user: &str) -> Option<(Bytes, Option<Error>)> {
        let step = self.steps.get(&cursor)?;
        if step.database != database || step.user != user {
            return None;
        }
        let (key, before, damage) = (step.key.clone(), step.before, step.damage.clone());
        // The client has the reply of that step.
        self.remove(before);
        Some((key, damage))
    }

    /// Stores the last key of a step and the damage that the walk met, for the next step; returns
    /// the cursor of the next step. All steps of all users take at most `most` bytes.
    pub fn leave(
        &mut self,
        (key, damage): (&[u8], Option<Error>),
        database: &Bytes,
        user: &str,
        before: u64,
        most: usize,
    ) -> u64 {
        self.last += 1;
        let (key, database) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(database));
        let step = Step { key, database, user: user.to_owned(), before, damage };
        let bytes = step.memory();
        self.bytes += bytes;
        let own = self.users.entry(step.user.clone()).or_default();
        own.cursors.insert(self.last);
        own.bytes += bytes;
        let oldest = own.cursors.first().copied().filter(|_| own.cursors.len() > MOST);
        self.steps.insert(self.last, step);
        oldest.into_iter().for_each(|oldest| self.remove(oldest));
        while self.bytes > most
            && let Some(user) = self.users.values().max_by_key(|user| user.bytes)
            && let Some(oldest) = user.cursors.first().copied()
        {
            self.remove(oldest);
        }
        self.last
    }

    /// Returns the memory of all steps, in bytes.
    pub fn memory(&self) -> usize {
        self.bytes
    }

    fn remove(&mut self, cursor: u64) {
        let Some(step) = self.steps.remove(&cursor) else { return };
        self.bytes -= step.memory();
        if let Some(user) = self.users.get_mut(&step.user) {
            user.cursors.remove(&cursor);
            user.bytes -= step.memory();
            if user.cursors.is_empty() {
                self.users.remove(&step.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_with_the_most_steps_loses_the_oldest() {
        let (mut scans, database) = (Scans::default(), Bytes::from_static(b"0"));
        let key = [b'k'; 1000];
        let mut leave =
            |user: &str| (scans.leave((&key[..], None), &database, user, 0, 20_000), scans.memory());
        let (own, memory) = leave("ann");
        assert!((1000..2000).contains(&memory));
        let others: Vec<u64> = (0..100).map(|_| leave("bob").0).collect();
        let (mine, memory) = leave("ann");
        assert!((15_000..=20_000).contains(&memory), "{memory}");
        assert!(scans.find(own, b"0", "ann").is_some() && scans.find(mine, b"0", "ann").is_some());
        assert!(
            scans.find(others[0], b"0", "bob").is_none() && scans.find(others[99], b"0", "bob").is_some()
        );
        let all: Vec<u64> = scans.steps.keys().copied().collect();
        all.into_iter().for_each(|cursor| scans.remove(cursor));
        assert_eq!((scans.memory(), scans.users.len()), (0, 0));
    }
}
