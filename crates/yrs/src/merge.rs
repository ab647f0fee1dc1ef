//! Merging: applies updates in an order in which none waits for a later one.
//!
//! yrs keeps an update that builds on missing ones until these come. yrs 0.28 sometimes keeps such
//! an update for ever, if others wait at the same time, and encodes such updates with wrong ids.
//! Here, each update waits by itself, as the bytes that were pushed, and is applied again once
//! an id on which it builds is there.

use std::collections::BTreeMap;

use brooklet::Bytes;
use yrs::{ID, IdSet, ReadTxn, TransactionMut, Update, WriteTxn};

use crate::error::{Error, Result};
use crate::format::Decoded;
use crate::update::{decode, needed};

/// The updates of a document that are not in its state yet.
#[derive(Default)]
pub(crate) struct Waiting {
    late: BTreeMap<u64, Late>,
    /// The updates that wait for each id.
    waits: BTreeMap<ID, Vec<u64>>,
    /// Number of updates that have waited.
    count: u64,
    /// Number of updates that were applied, also of those that were applied in vain.
    #[cfg(test)]
    pub applied: usize,
}

/// An update that builds on missing ones.
struct Late {
    seq: u64,
    bytes: Bytes,
    /// Number of ids that wait.
    ids: u64,
}

impl Waiting {
    /// Applies updates, and then the updates that waited for them. The transaction must have no
    /// pending updates, and gets none.
    pub fn apply(
        &mut self,
        name: &[u8],
        txn: &mut TransactionMut<'_>,
        mut updates: Vec<Decoded>,
    ) -> Result<()> {
        // Updates that were pushed during a flush may be before the state that they build on.
        updates.sort_by_key(|update| !update.is_state);
        let mut woken = Vec::new();
        for Decoded { seq, bytes, update, .. } in updates {
            let ids = self.apply_ready(name, seq, txn, update, &mut woken)?;
            if ids > 0 {
                self.wait(name, Late { seq, bytes, ids })?;
            }
        }
        loop {
            while let Some(at) = woken.pop() {
                self.again(name, at, txn, &mut woken)?;
            }
            // Deletions wait for ids, too, and nothing waits for them: they have one more try.
            let all: Vec<u64> = self.late.keys().copied().collect();
            let mut goes_on = false;
            for at in all {
                goes_on |= self.again(name, at, txn, &mut woken)?;
            }
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Notes an update that waits, under the ids on which it builds.
    fn wait(&mut self, name: &[u8], late: Late) -> Result<()> {
        let needed = needed(&late.bytes).map_err(|why| Error::damaged(name, late.seq, why))?;
        for id in needed {
            self.waits.entry(id).or_default().push(self.count);
        }
        self.late.insert(self.count, late);
        self.count += 1;
        Ok(())
    }

    /// Applies an update that waits. Returns whether fewer of its ids wait now.
    fn again(
        &mut self,
        name: &[u8],
        at: u64,
        txn: &mut TransactionMut<'_>,
        woken: &mut Vec<u64>,
    ) -> Result<bool> {
        // The update may have been woken by several ids.
        let Some(late) = self.late.get(&at) else { return Ok(false) };
        let (seq, before, update) = (late.seq, late.ids, late.decode(name)?);
        let ids = self.apply_ready(name, seq, txn, update, woken)?;
        match self.late.get_mut(&at) {
            Some(late) if ids > 0 => late.ids = ids,
            _ => drop(self.late.remove(&at)),
        }
        Ok(ids < before)
    }

    /// Applies an update as far as it builds on nothing that is missing, and wakes those that wait
    /// for its ids. Returns the number of ids that wait.
    fn apply_ready(
        &mut self,
        name: &[u8],
        seq: u64,
        txn: &mut TransactionMut<'_>,
        update: Update,
        woken: &mut Vec<u64>,
    ) -> Result<u64> {
        #[cfg(test)]
        {
            self.applied += 1;
        }
        let inserted = update.insertions(true);
        apply(name, seq, txn, update)?;
        let mut rest = Update::default();
        if txn.has_missing_updates() {
            rest = txn.prune_pending().unwrap_or_default();
        }
        let waits = rest.insertions(true);
        self.wake(&inserted.diff(&waits), woken);
        // Pending updates without an id wait for nothing.
        Ok(count(&waits) + count(rest.delete_set()))
    }

    fn wake(&mut self, ids: &IdSet, woken: &mut Vec<u64>) {
        for (client, ranges) in ids.iter() {
            for range in ranges {
                let (first, end) = (ID::new(*client, range.start), ID::new(*client, range.end));
                while let Some((id, waiting)) = self.waits.range(first..end).next() {
                    let id = *id;
                    woken.extend(waiting);
                    self.waits.remove(&id);
                }
            }
        }
    }

    /// Returns the updates that wait, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.late.values().map(|late| &late.bytes)
    }

    /// Leaves the updates that wait to the document of the transaction.
    pub fn leave(&self, name: &[u8], txn: &mut TransactionMut<'_>) -> Result<()> {
        for late in self.late.values() {
            apply(name, late.seq, txn, late.decode(name)?)?;
        }
        Ok(())
    }
}

impl Late {
    fn decode(&self, name: &[u8]) -> Result<Update> {
        decode(&self.bytes).map_err(|why| Error::damaged(name, self.seq, why))
    }
}

/// Applies all updates of a document to a transaction, which may have pending updates.
pub(crate) fn load(name: &[u8], txn: &mut TransactionMut<'_>, updates: Vec<Decoded>) -> Result<()> {
    let own = txn.prune_pending();
    let mut waiting = Waiting::default();
    waiting.apply(name, txn, updates)?;
    waiting.leave(name, txn)?;
    match own {
        Some(own) => apply(name, 0, txn, own),
        None => Ok(()),
    }
}

fn apply(name: &[u8], seq: u64, txn: &mut TransactionMut<'_>, update: Update) -> Result<()> {
    txn.apply_update(update).map_err(|error| Error::damaged(name, seq, error.to_string()))
}

fn count(ids: &IdSet) -> u64 {
    ids.iter().flat_map(|(_, ranges)| ranges).map(|range| u64::from(range.end - range.start)).sum()
}

#[cfg(test)]
mod tests {
    use yrs::updates::decoder::Decode;
    use yrs::{Doc, GetString, Text, Transact};

    use super::*;

    /// Two clients write in turns, each behind the last word of the other.
    fn zigzag(count: u64) -> (Vec<Decoded>, String) {
        let clients = [1, 2].map(Doc::with_client_id);
        let texts = clients.each_ref().map(|doc| doc.get_or_insert_text("text"));
        let mut updates = Vec::new();
        for seq in 0..count {
            let turn = (seq % 2) as usize;
            let bytes = {
                let mut txn = clients[turn].transact_mut();
                texts[turn].push(&mut txn, "a");
                txn.encode_update_v1()
            };
            let other = Update::decode_v1(&bytes).unwrap();
            clients[1 - turn].transact_mut().apply_update(other).unwrap();
            let update = decode(&bytes).unwrap();
            updates.push(Decoded { seq, is_state: false, bytes: bytes.into(), update });
        }
        let text = texts[0].get_string(&clients[0].transact());
        (updates, text)
    }

    #[test]
    fn updates_that_wait_are_applied_a_few_times_each() {
        let count = 2_000;
        // Of one client the last update comes first, and of the other one the first.
        let (updates, expected) = zigzag(count);
        let (one, mut two): (Vec<_>, Vec<_>) = updates.into_iter().partition(|update| update.seq % 2 == 0);
        two.reverse();
        let order = one.into_iter().zip(two).flat_map(|(one, two)| [two, one]).collect();
        let doc = Doc::new();
        let text = doc.get_or_insert_text("text");
        let mut waiting = Waiting::default();
        waiting.apply(b"doc", &mut doc.transact_mut(), order).unwrap();
        assert_eq!(text.get_string(&doc.transact()), expected);
        assert!(waiting.late.is_empty() && waiting.waits.is_empty());
        assert!(waiting.applied <= 4 * count as usize, "{} times", waiting.applied);
    }
}
