//! Merging: applies updates in an order in which none waits for a later one.
//!
//! yrs keeps an update that builds on missing ones until these come. yrs 0.28 sometimes keeps such
//! an update for ever, if others wait at the same time, and encodes such updates with wrong ids.
//! Here, each update waits by itself, as the bytes that were pushed, and is applied again once
//! others were applied.

use brooklet::Bytes;
use yrs::{IdSet, ReadTxn, TransactionMut, Update, WriteTxn};

use crate::error::{Error, Result};
use crate::format::Decoded;
use crate::update::decode;

/// The updates of a document that are not in its state yet.
#[derive(Default)]
pub(crate) struct Waiting(Vec<Late>);

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
        for Decoded { seq, bytes, update, .. } in updates {
            let ids = apply_ready(name, seq, txn, update)?;
            if ids > 0 {
                self.0.push(Late { seq, bytes, ids });
            }
        }
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            // Updates that came in the order opposite to the needed one take one round.
            self.0.reverse();
            for late in &mut self.0 {
                let ids = apply_ready(name, late.seq, txn, late.decode(name)?)?;
                goes_on |= ids < late.ids;
                late.ids = ids;
            }
            self.0.retain(|late| late.ids > 0);
        }
        Ok(())
    }

    /// Returns the updates that wait, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter().map(|late| &late.bytes)
    }

    /// Leaves the updates that wait to the document of the transaction.
    pub fn leave(&self, name: &[u8], txn: &mut TransactionMut<'_>) -> Result<()> {
        for late in &self.0 {
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

/// Applies an update as far as it builds on nothing that is missing. Returns the number of ids that
/// wait.
fn apply_ready(name: &[u8], seq: u64, txn: &mut TransactionMut<'_>, update: Update) -> Result<u64> {
    apply(name, seq, txn, update)?;
    if !txn.has_missing_updates() {
        return Ok(0);
    }
    let rest = txn.prune_pending();
    let ids = rest.map_or(0, |rest| count(&rest.insertions(true)) + count(rest.delete_set()));
    // Pending updates without an id wait for nothing.
    Ok(ids)
}

fn apply(name: &[u8], seq: u64, txn: &mut TransactionMut<'_>, update: Update) -> Result<()> {
    txn.apply_update(update).map_err(|error| Error::damaged(name, seq, error.to_string()))
}

fn count(ids: &IdSet) -> u64 {
    ids.iter().flat_map(|(_, ranges)| ranges).map(|range| u64::from(range.end - range.start)).sum()
}
