//! A server whose store follows the log of another server: it shows the commits of that one, and
//! refuses to write.
//!
//! A block of commits is shown while no command runs, and is a commit of somebody else to clients.
//! So each command, and each transaction, sees a commit as a whole or not at all. A long command in
//! portions sees later commits between two portions, as it sees those of other clients on the
//! owner.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::Engine;
use crate::redis::commands::{Spec, flags};
use crate::redis::keys::names::{self, LogKey};

/// What Redis says.
const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
/// One of this many parts of the clients' memory is for the invalidations of a block.
const PART: usize = 4;

impl Engine {
    /// Refuses a command that may change keys, on a replica.
    pub fn may_change(&self, spec: &Spec) -> Result<(), &'static str> {
        if self.upstream.is_some() && spec.has(flags::WRITE) { Err(READ_ONLY) } else { Ok(()) }
    }

    /// Takes that the store shows new commits, which changed these logs: wakes the clients that
    /// wait for their keys, and notifies those that watch or track them.
    pub fn note_shown(&mut self, logs: &[Bytes]) {
        let keys = self.keys.note_shown(logs);
        self.invalidate_shown(&keys);
        for key in &keys {
            for id in self.watching.get(&key[..]).into_iter().flatten() {
                if let Some(client) = self.clients.get_mut(id) {
                    client.is_stale = true;
                }
            }
            if let Some((key, _)) = self.waiting.get_key_value(&key[..])
                && self.is_changed.insert(key.clone())
            {
                self.changed.push_back(key.clone());
            }
        }
        self.serve_waiting();
        self.deliver();
    }

    fn invalidate_shown(&mut self, keys: &BTreeSet<LogKey>) {
        if self.tracker.is_idle() {
            return;
        }
        let names = keys.iter().map(|key| Bytes::copy_from_slice(names::name(key))).collect();
        for mut post in self.tracker.changed(names, None, self.settings.client_memory / PART) {
            post.epoch = Some(0);
            self.outbox.push(post);
        }
    }
}
