//! The lease of a store that another host may take over: replies that depend on the store's data
//! wait until this host has the lease.
//!
//! The engine looks at the lease when a connection takes the replies, so after the reads. Replies
//! leave in order, so a reply that needs no lease waits for those before it.

use std::collections::BTreeSet;

use bytes::BytesMut;

use super::Engine;
use crate::lease::Lease;
use crate::redis::client::{Client, ClientId};
use crate::redis::commands::{Spec, flags};

/// The lease, if there is one, and the clients whose replies wait for it.
#[derive(Default)]
pub struct Leased {
    lease: Option<Lease>,
    waiting: BTreeSet<ClientId>,
}

impl Leased {
    fn is_held(&self) -> bool {
        self.lease.as_ref().is_none_or(Lease::is_held)
    }

    /// Returns whether a client waits.
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Forgets a client that has gone.
    pub fn forget(&mut self, id: ClientId) {
        self.waiting.remove(&id);
    }
}

impl Engine {
    /// Lets the replies of commands on keys wait for a lease.
    pub fn set_lease(&mut self, lease: Lease) {
        self.leased.lease = Some(lease);
    }

    /// Notes that the reply of a command depends on the data of the store.
    pub(super) fn note_data(&self, client: &mut Client, spec: &Spec) {
        // Scripts read and write, too: they name their keys.
        let is_of_data = spec.has(flags::READ | flags::WRITE) || spec.has_keys();
        client.needs_lease |= self.leased.lease.is_some() && is_of_data;
    }

    /// Notes that a client is to learn that no data came for it.
    pub(super) fn note_wait_in_vain(&self, client: &mut Client) {
        client.needs_lease |= self.leased.lease.is_some();
    }

    /// Takes the replies of a client that may be sent. If the lease does not come back because the
    /// server ends, the client's connection ends, too.
    pub fn take_ready(&mut self, id: ClientId) -> BytesMut {
        let acknowledged = self.keys.acknowledged();
        let ends = self.is_leaving || self.stopped.is_some();
        let Some(client) = self.clients.get_mut(&id) else { return BytesMut::new() };
        if client.needs_lease && !client.is_done() && !self.leased.is_held() {
            if ends {
                client.is_killed = true;
            } else {
                self.has_deadline |= self.leased.waiting.insert(id);
            }
            return BytesMut::new();
        }
        let ready = client.take_ready(acknowledged);
        client.needs_lease &= !client.is_done();
        ready
    }

    /// Wakes the clients whose replies wait for the lease, once the server has it, or ends.
    pub(super) fn look_for_lease(&mut self) {
        let ends = self.is_leaving || self.stopped.is_some();
        if !self.leased.is_waited_for() || !(ends || self.leased.is_held()) {
            return;
        }
        for id in std::mem::take(&mut self.leased.waiting) {
            if let Some(client) = self.client(id) {
                client.wake();
            }
        }
    }
}
