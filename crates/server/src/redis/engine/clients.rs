//! The clients: who may come in, what memory each has, and who must leave.
//!
//! A *stranger* is a client that has to log in, and has not. Strangers get little memory, little
//! time, and a part of the places. All clients together have a budget of memory: if they exceed it,
//! the client with the most memory leaves.

use std::collections::BinaryHeap;
use std::collections::btree_map::Entry;

use bytes::Bytes;

use super::Engine;
use crate::redis::acl::{Denied, Entry as Refusal};
use crate::redis::client::{Client, ClientId};
use crate::redis::commands::{Spec, describe};
use crate::redis::notices::Notice;

/// Bytes of pending replies at which a stranger's requests are held back.
const STRANGER_OUTPUT: usize = 16 << 10;
/// One of this many places is for strangers.
const STRANGERS: usize = 4;
/// Bytes behind a wait beyond a request of the largest size: the parts around its arguments.
const BEHIND: usize = 1 << 20;
/// Memory of a watched key besides its name, in bytes.
const WATCH: usize = 160;
/// Time between two checks of all clients, in milliseconds.
const CHECK: u64 = 100;

/// The sizes of a connection's buffers, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Requests that are not run yet, whole or not.
    pub unread: usize,
    /// Replies that are not written to the socket yet.
    pub outgoing: usize,
    /// What the buffers take beyond that.
    pub spare: usize,
}

impl Engine {
    /// Admits a client. Returns an error if the server is stopping, or if too many clients are
    /// connected. The oldest stranger makes room for a new client.
    pub fn connect(&mut self, address: String, local: String) -> Result<ClientId, &'static str> {
        self.stats.connections += 1;
        if self.is_leaving {
            return Err("-ERR the server is stopping\r\n");
        }
        let user = self.users.default_user();
        let most = self.settings.max_clients;
        let is_crowded = user.is_none() && self.strangers.len() >= (most / STRANGERS).max(1);
        if (is_crowded || self.clients.len() >= most)
            && let Some(oldest) = self.strangers.first().copied()
        {
            self.dismiss(oldest, "clients that have not logged in have too many connections");
        }
        if self.clients.len() >= most {
            self.stats.rejected += 1;
            return Err("-ERR max number of clients reached\r\n");
        }
        self.next_client += 1;
        let id = self.next_client;
        let mut client = Box::new(Client::new(id, address, local, user, self.steady));
        if client.user.is_none() {
            self.strangers.insert(id);
        }
        self.charge(&mut client);
        self.clients.insert(id, client);
        Ok(id)
    }

    /// Returns a connected client.
    pub fn client(&mut self, id: ClientId) -> Option<&mut Client> {
        self.clients.get_mut(&id).map(|client| &mut **client)
    }

    /// Returns all clients except the client of the current command.
    pub fn clients(&mut self) -> impl Iterator<Item = &mut Client> {
        self.clients.values_mut().map(|client| &mut **client)
    }

    /// Returns the numbers and descriptions of the clients that are listed, except the client of
    /// the current command.
    pub fn describe_all(&self, is_listed: impl Fn(&Client) -> bool) -> Vec<(ClientId, String)> {
        let listed = self.clients.values().filter(|client| is_listed(client));
        listed.map(|client| (client.id, describe(client, &self.tracker, self.steady))).collect()
    }

    /// Returns the number of clients.
    pub fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// Returns the memory of all clients, in bytes.
    pub fn client_memory(&self) -> usize {
        self.held
    }

    /// Returns the number of clients that wait for a key, or for the end of a pause.
    pub fn waiting_count(&self) -> usize {
        self.clients.values().filter(|client| client.waits()).count()
    }

    /// Removes a client that has disconnected.
    pub fn disconnect(&mut self, id: ClientId) {
        if let Some(mut client) = self.clients.remove(&id) {
            self.held -= client.charged;
            self.strangers.remove(&id);
            self.unwatch(&mut client);
            self.topics.leave(id, &mut client.subscriptions);
            self.tracker.end(id);
            self.forget_wait(&mut client);
            self.leased.forget(id);
        }
    }

    /// Removes a client, and has its connection end. The client's memory is free at once.
    pub(super) fn dismiss(&mut self, id: ClientId, why: &'static str) {
        if let Some(client) = self.client(id) {
            client.wake();
            let address = client.address.clone();
            self.keys.notices.push(Notice::Dismissed { address, why });
            self.disconnect(id);
        }
    }

    /// Undoes what a command has left that did not come to its end, and disconnects all clients:
    /// the state of some of them is gone with the command.
    pub fn abandon(&mut self) {
        self.keys.abandon();
        let ids: Vec<ClientId> = self.clients.keys().copied().collect();
        for id in ids {
            self.dismiss(id, "a command of another client has failed: connect again");
        }
        (self.held, self.topics, self.tracker, self.outbox) = Default::default();
        self.strangers.clear();
        self.promised.clear();
        (self.waiting, self.members, self.watching, self.readers) = Default::default();
        self.deadlines.clear();
        self.waiting_durable.clear();
        self.changed.clear();
        self.is_changed.clear();
    }

    /// Registers a client that watches a key for changes. The key expires at a time, or never.
    pub fn watch(&mut self, client: &mut Client, key: Bytes, expire: Option<u64>) {
        // A second watch does not change what the first one found.
        if let Entry::Vacant(watch) = client.watched.entry(key.clone()) {
            watch.insert(expire);
            client.watched_bytes += key.len() + WATCH;
            self.watching.entry(key).or_default().push(client.id);
        }
    }

    /// Ends all watches of a client.
    pub fn unwatch(&mut self, client: &mut Client) {
        client.is_stale = false;
        client.watched_bytes = 0;
        for key in std::mem::take(&mut client.watched).into_keys() {
            if let Some(watchers) = self.watching.get_mut(&key) {
                watchers.retain(|id| *id != client.id);
                if watchers.is_empty() {
                    self.watching.remove(&key);
                }
            }
        }
    }

    /// Records that a client has logged in, or must log in again.
    pub fn note_login(&mut self, client: &mut Client) {
        if client.user.is_some() {
            self.strangers.remove(&client.id);
        } else if self.strangers.insert(client.id) {
            client.stranger_since = self.steady;
        }
    }

    /// Applies a change of a user to all clients of that user; disconnects them if the user is
    /// removed or off.
    pub fn note_users(&mut self, name: &str) {
        let user = self.users.get(name).filter(|user| user.is_on);
        for client in self.clients.values_mut() {
            if client.user.as_ref().is_some_and(|user| user.name == name) {
                client.user = user.clone();
                client.is_killed |= user.as_ref().is_none_or(|user| !user.may_keep(&client.subscriptions));
                client.wake();
            }
        }
    }

    /// Records for `ACL LOG` the right that a client lacks for a request.
    pub(super) fn note_lack(&mut self, client: &Client, spec: &Spec, request: &[Bytes]) {
        if let Some(Err(denied)) = client.user.as_ref().map(|user| user.check(spec, request)) {
            self.note_denied(client, spec, &denied);
        }
    }

    /// Records for `ACL LOG` that a client lacks a right.
    pub fn note_denied(&mut self, client: &Client, spec: &Spec, denied: &Denied) {
        let (reason, object) = denied.told(spec);
        let user = client.user.as_ref().map_or_else(String::new, |user| user.name.clone());
        self.note_refusal(client, user, reason, object);
    }

    /// Records for `ACL LOG` that a client is refused.
    pub fn note_refusal(&mut self, client: &Client, user: String, reason: &'static str, object: &[u8]) {
        let is_in_transaction = client.queue.is_some() || client.is_in_exec;
        let refusal = Refusal {
            count: 1,
            reason,
            context: match (client.is_in_script, is_in_transaction) {
                (true, _) => "lua",
                (false, true) => "multi",
                (false, false) => "toplevel",
            },
            object: object.to_vec(),
            user,
            client: describe(client, &self.tracker, self.steady),
            at: self.steady,
        };
        self.refusals.note(refusal, self.settings.acl_log);
    }

    /// Returns whether a client may get another reply. A client that does not take its replies gets
    /// no more of them until it has taken some.
    pub(super) fn may_reply(&self, client: &Client) -> bool {
        let limit = self.settings.soft_output;
        let limit = if client.user.is_none() { limit.min(STRANGER_OUTPUT) } else { limit };
        client.written() + client.outgoing <= limit
    }

    /// Updates the memory that the budget counts for a client.
    pub(super) fn charge(&mut self, client: &mut Client) {
        let memory = client.memory();
        self.held = self.held + memory - client.charged;
        client.charged = memory;
    }

    /// Records the memory of a client's connection; clients leave if all of them have too much.
    /// Returns whether the client's requests are held back; `None` if the client must leave.
    pub fn note_memory(&mut self, id: ClientId, buffers: Buffers) -> Option<bool> {
        let client = self.clients.get_mut(&id)?;
        let Buffers { unread, outgoing, spare } = buffers;
        (client.unread, client.outgoing, client.spare) = (unread, outgoing, spare);
        let memory = client.memory();
        self.held = self.held + memory - client.charged;
        client.charged = memory;
        let (pending, soft) = (client.written() + outgoing, self.settings.soft_output);
        if pending > soft {
            client.slow_since.get_or_insert(self.steady);
        } else if outgoing == 0 {
            client.slow_since = None;
        }
        if client.waits() && unread > self.settings.max_request.saturating_add(BEHIND) {
            self.dismiss(id, "it waits, and has sent more than client-query-buffer-limit meanwhile");
            return None;
        }
        let is_slow = !self.may_reply(&self.clients[&id]);
        self.keep_budget();
        self.clients.contains_key(&id).then_some(is_slow)
    }

    /// Disconnects the clients with the most memory while all clients together have too much.
    pub(super) fn keep_budget(&mut self) {
        if !self.has_too_much() {
            return;
        }
        let all = self.clients.values().map(|client| (!client.no_evict, client.charged, client.id));
        let mut largest: BinaryHeap<(bool, usize, ClientId)> = all.collect();
        while self.has_too_much()
            && let Some((.., id)) = largest.pop()
        {
            self.stats.evicted_clients += 1;
            self.dismiss(id, "all clients together have too much memory, and it has the most");
        }
    }

    /// Returns whether clients have to leave. Scripts and walks count, too, but half of the memory
    /// is for the clients: scripts keep their memory when clients leave, and only a client can
    /// remove them.
    fn has_too_much(&self) -> bool {
        let most = self.settings.client_memory;
        let beside = (self.scripts.memory() + self.scans.memory()).min(most / 2);
        self.held.saturating_add(beside) > most
    }

    /// Disconnects the clients that are idle, or late, or do not take their replies.
    pub(super) fn check_clients(&mut self, now: u64) {
        if now.abs_diff(self.checked_at) < CHECK {
            return;
        }
        self.checked_at = now;
        let mut leaving: Vec<(ClientId, &'static str)> = Vec::new();
        let settings = &self.settings;
        for client in self.clients.values_mut() {
            let buffered = client.written() + client.outgoing;
            let is_after =
                |since: u64, seconds: u64| now.saturating_sub(since) > seconds.saturating_mul(1000);
            let is_over = |since, seconds| seconds > 0 && is_after(since, seconds);
            let is_slow =
                client.slow_since.is_some_and(|since| is_after(since, settings.soft_output_seconds));
            let works = client.work.is_some() || client.is_behind;
            let waits = works || client.waits() || !client.is_done() || client.subscriptions.is_any();
            if buffered > settings.hard_output || is_slow {
                leaving.push((client.id, "it does not take its replies"));
            } else if client.user.is_none() && is_over(client.stranger_since, settings.auth_timeout) {
                leaving.push((client.id, "it has not logged in"));
            } else if is_over(client.last_seen, settings.timeout) && !waits && !client.no_evict {
                leaving.push((client.id, "it is idle"));
            }
        }
        for (id, why) in leaving {
            self.dismiss(id, why);
        }
    }
}
