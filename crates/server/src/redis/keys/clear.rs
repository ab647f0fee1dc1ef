//! The deletion of all keys of a database.
//!
//! All keys are gone from the beginning on, as clients see them; the server deletes them one by
//! one, in the order of their names. A key that a command opens before its turn is deleted then,
//! like a key that has expired. What clients write to it afterwards stays.
//!
//! If the server stops meanwhile, the keys whose deletion is not committed are there again.

use std::collections::BTreeSet;

use brooklet::Error;
use bytes::Bytes;

use super::super::notices::Notice;
use super::cache::SlotId;
use super::scan::Keys;
use super::{Keyspace, names};

/// The deletions in progress.
#[derive(Default)]
pub struct Clearings {
    /// Of each: the oldest first. A deletion that is done stays until its last commit.
    all: Vec<Clearing>,
    last: u64,
    /// Those that failed.
    failed: BTreeSet<u64>,
    /// Keys that the current command deleted so, each with the number of the deletion.
    deleted: Vec<(u64, Bytes)>,
    /// The last deletion whose beginning is committed.
    committed: u64,
}

/// The deletion of all keys of a database that existed at its beginning.
struct Clearing {
    number: u64,
    database: Vec<u8>,
    /// The keys, from the first turn on. Keys that came meanwhile are among those that were opened.
    keys: Option<Keys>,
    /// The last of them that had its turn.
    at: Option<Bytes>,
    /// Keys that were opened before their turn.
    opened: BTreeSet<Bytes>,
    /// Keys whose turn is over, and whose deletion was undone.
    again: BTreeSet<Bytes>,
    is_done: bool,
    /// Whether a key stays because even its logs cannot be found.
    leaves_some: bool,
}

impl Clearing {
    fn is_over(&self) -> bool {
        self.is_done && self.again.is_empty()
    }

    /// Returns whether a key is still there only because its turn has not come; gives the key its
    /// turn.
    fn takes(&mut self, database: &[u8], name: &[u8]) -> bool {
        if self.database != database {
            return false;
        }
        let is_ahead = !self.is_done && self.at.as_ref().is_none_or(|at| name > &at[..]);
        self.again.remove(name) || is_ahead && self.opened.insert(Bytes::copy_from_slice(name))
    }
}

impl Keyspace {
    /// Begins to delete all keys of a database; returns the number of this deletion.
    pub fn begin_clear(&mut self, database: &[u8]) -> u64 {
        self.see_all();
        self.followers.note_all();
        let number = self.clearings.last + 1;
        let (database, opened, again) = (database.to_vec(), BTreeSet::new(), BTreeSet::new());
        let (at, is_done, leaves_some) = (None, false, false);
        let clearing = Clearing { number, database, keys: None, at, opened, again, is_done, leaves_some };
        self.clearings.all.push(clearing);
        self.clearings.last = number;
        number
    }

    /// Returns whether keys of a database are still to be deleted.
    pub fn is_clearing(&self, database: &[u8]) -> bool {
        self.clearings.all.iter().any(|clearing| clearing.database == database && !clearing.is_over())
    }

    /// Returns whether any keys are still to be deleted.
    pub fn is_clearing_any(&self) -> bool {
        self.clearings.all.iter().any(|clearing| !clearing.is_over())
    }

    /// Deletes up to `most` keys; returns whether the deletion with this number is done.
    ///
    /// # Errors
    /// The error of the store; the other keys stay.
    pub fn clear_some(&mut self, number: u64, most: usize) -> Result<bool, Error> {
        if self.clearings.deleted.is_empty() {
            self.clearings.all.retain(|clearing| !clearing.is_over());
        }
        let mut plain = Vec::new();
        for _ in 0..most {
            let is_next = |clearing: &&mut Clearing| !clearing.is_over();
            let Some(clearing) = self.clearings.all.iter_mut().find(is_next) else { break };
            let (at, database) = (clearing.number, clearing.database.clone());
            if clearing.keys.is_none() {
                // To list the keys takes a while: this portion ends.
                let keys = self.keys_after(&database, None)?;
                let clearing = self.clearings.all.iter_mut().find(|all| all.number == at);
                clearing.expect("it was found").keys = Some(keys);
                break;
            }
            let next = match clearing.again.first() {
                Some(name) => Some(Ok(name.clone())),
                None => clearing.keys.as_mut().and_then(Iterator::next),
            };
            let deleted = match next {
                None => {
                    clearing.is_done = true;
                    if clearing.leaves_some {
                        self.clearings.failed.insert(at);
                    }
                    continue;
                }
                Some(name) => name.and_then(|name| {
                    names::write_plain(&database, &name, &mut plain);
                    self.is_replaced = true;
                    let opened = self.open_plain(&plain);
                    self.is_replaced = false;
                    match opened {
                        // The other keys must not stay because of this one.
                        Err(error @ Error::Damaged { .. }) => self.leave(at, &error),
                        opened => drop(opened?),
                    }
                    Ok(name)
                }),
            };
            match deleted {
                Ok(name) => self.pass(at, name),
                Err(error) => {
                    self.clearings.all.retain(|clearing| clearing.number != at);
                    self.clearings.failed.insert(at);
                    if number == at || number == 0 {
                        self.clearings.failed.remove(&at);
                        return Err(error);
                    }
                }
            }
        }
        if self.clearings.failed.remove(&number) {
            let (place, what) = ("the keys of a database".to_owned(), "not all are deleted".to_owned());
            return Err(Error::Damaged { place, what });
        }
        Ok(!self.clearings.all.iter().any(|clearing| clearing.number <= number && !clearing.is_over()))
    }

    /// Records that a key cannot be deleted.
    fn leave(&mut self, number: u64, error: &Error) {
        let what = "the server cannot delete a damaged key; the key stays";
        self.notices.push(Notice::Trouble { what, error: error.to_string() });
        let clearing = self.clearings.all.iter_mut().find(|all| all.number == number);
        clearing.into_iter().for_each(|clearing| clearing.leaves_some = true);
    }

    /// Records that a key has had its turn.
    fn pass(&mut self, number: u64, name: Bytes) {
        let Some(clearing) = self.clearings.all.iter_mut().find(|all| all.number == number) else { return };
        // A key that was opened is not among these. One that stays is tried once.
        clearing.again.remove(&name);
        if clearing.at.as_ref().is_none_or(|at| *at < name) {
            // Keys before this one are no longer ahead.
            clearing.opened = clearing.opened.split_off(&name);
            clearing.opened.remove(&name);
            clearing.at = Some(name);
        }
    }

    /// Deletes a key that is open, if the key is still to be deleted.
    pub(super) fn clear_opened(&mut self, id: SlotId) {
        let key = self.key(id).clone();
        let (database, name) = (names::database(&key), names::name(&key));
        let (mut is_gone, mut is_committed) = (false, false);
        for clearing in &mut self.clearings.all {
            if clearing.takes(database, name) {
                self.clearings.deleted.push((clearing.number, Bytes::copy_from_slice(name)));
                is_gone = true;
                is_committed |= clearing.number <= self.clearings.committed;
            }
        }
        if is_gone {
            // This is no event of the command that opened the key.
            let trace = self.trace.take();
            // Nor is it a part of the command: for clients, the key is gone already. A transaction
            // that opens many such keys would otherwise be too large for the ring.
            self.batch.is_early = is_committed && !self.slot(id).is_touched;
            if self.delete(id) && is_committed {
                self.cache.get_mut(id).is_lapsed = true;
            }
            self.batch.is_early = false;
            self.trace = trace;
        }
    }

    /// Records that the deletions of the current command are committed.
    pub(super) fn note_cleared(&mut self) {
        self.clearings.committed = self.clearings.last;
        self.clearings.deleted.clear();
    }

    /// Undoes the deletions of the current command.
    pub(super) fn undo_cleared(&mut self) {
        let committed = self.clearings.committed;
        self.clearings.all.retain(|clearing| clearing.number <= committed);
        for (number, name) in std::mem::take(&mut self.clearings.deleted) {
            if let Some(clearing) = self.clearings.all.iter_mut().find(|all| all.number == number) {
                clearing.again.insert(name);
            }
        }
    }
}

impl Clearings {
    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use brooklet::Store;

    use super::*;

    /// In the old state a key was tried for ever, in each portion of the deletion, if its deletion
    /// was undone and then even its logs could not be found.
    #[test]
    fn a_key_that_cannot_be_opened_has_one_more_turn() {
        let mut keys = Keyspace::new(Store::in_memory(1).unwrap(), 1 << 20, 1_000);
        let (number, name) = (keys.begin_clear(b"0"), Bytes::from_static(b"key"));
        keys.note_cleared();
        // A command opened the key before its turn, and was undone.
        keys.clearings.deleted.push((number, name.clone()));
        keys.undo_cleared();
        assert_eq!(keys.clearings.all[0].again.first(), Some(&name));
        // The turn of a key that cannot be opened, as the deletion goes on.
        let (place, what) = ("a log".to_owned(), "a test".to_owned());
        keys.leave(number, &Error::Damaged { place, what });
        keys.pass(number, name);
        assert!(keys.clearings.all[0].again.is_empty());
    }
}
