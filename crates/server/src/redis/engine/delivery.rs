//! Messages and invalidations: the engine delivers them to clients that did not ask just then.
//!
//! A message waits for the epochs that its publisher's requests depended on, so that no subscriber
//! learns of a state that a crash could undo. It leaves from the end of the request that published
//! it on, with the commit of that request.
//!
//! A message to many leaves in portions. All clients get their messages in one order, and before
//! their next requests run. The publisher's next request runs once the message is delivered.
//!
//! An invalidation waits for the commit that changed its key. So a client that reads the key again
//! sees the change.

use bytes::Bytes;

use super::Engine;
use crate::redis::client::{Client, ClientId};
use crate::redis::commands::{Spec, flags};
use crate::redis::keys::names;
use crate::redis::pubsub::{Body, Kind, Post};
use crate::redis::reply::Version;

/// One of this many parts of the memory of all clients is the most that the messages of one request
/// take in the buffers of all receivers.
const PART: usize = 4;
/// Bytes that one portion of the deliveries writes, about: a millisecond.
const PORTION: usize = 1 << 20;
/// One of this many parts of the memory of all clients is the most that the table of the keys takes
/// that clients have read.
const TABLE_PART: usize = 8;

impl Engine {
    /// Publishes a message; returns the number of receivers.
    ///
    /// # Errors
    /// The messages of this request would take too much memory, or too long; or those of earlier
    /// requests that are not delivered yet take too much memory.
    pub fn publish(&mut self, kind: Kind, channel: &Bytes, message: &Bytes) -> Result<usize, String> {
        let posts = self.topics.posts(kind, channel, message, &mut self.steps)?;
        let cost = posts.iter().map(Post::cost).fold(self.outbox.cost(), usize::saturating_add);
        let most = self.settings.client_memory / PART;
        if cost > most {
            return Err(format!(
                "the messages of one request take {cost} bytes for all receivers, more than {most}: send shorter or fewer messages"
            ));
        }
        let held = self.outbox.held();
        if held > most && !posts.is_empty() {
            return Err(format!(
                "the messages that wait for their delivery take {held} bytes, more than {most}: send more messages later"
            ));
        }
        let receivers = posts.iter().map(|post| post.to.len()).sum();
        posts.into_iter().for_each(|post| self.outbox.push(post));
        Ok(receivers)
    }

    /// Delivers the invalidations of the current request, and a portion of the messages; the rest
    /// follows as time passes. The clients that do not take their messages must leave.
    pub(super) fn deliver(&mut self) {
        if self.outbox.is_empty() && !self.outbox.has_backlog() {
            return;
        }
        for post in self.outbox.end_request() {
            self.hand_out(&post);
        }
        let mut room = PORTION;
        while room > 0 {
            // A delivery wakes a client, which then takes as long as the copy of so many bytes.
            const WAKE: usize = 2 << 10;
            let size = self.outbox.next_size() + WAKE;
            let Some(post) = self.outbox.next((room / size).max(1)) else { break };
            room = room.saturating_sub(post.to.len() * size);
            self.hand_out(&post);
        }
        self.keep_budget();
    }

    /// Delivers the messages that a client has yet to get.
    fn deliver_to(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        for post in self.outbox.next_to(id, &mut client.posts_seen) {
            self.hand_out(&post);
        }
    }

    /// Delivers messages of earlier requests before a client goes on: those to the client, and a
    /// portion of the others if they are the client's own. Returns whether more of these are left.
    pub(super) fn posts_go_first(&mut self, id: ClientId) -> bool {
        self.deliver_to(id);
        if self.clients.get(&id).is_some_and(|client| client.has_posted) {
            self.deliver();
        }
        self.outbox.has_backlog() && self.clients.get(&id).is_some_and(|client| client.has_posted)
    }

    /// Delivers a post.
    fn hand_out(&mut self, post: &Post) {
        let mut encoded: [Option<Bytes>; 2] = [None, None];
        let (is_invalidation, epoch) = (matches!(post.body, Body::Invalid(_)), post.epoch.unwrap_or(0));
        for id in &post.to {
            let to = if is_invalidation { self.hearer(*id, epoch) } else { Some(*id) };
            let Some(client) = to.and_then(|id| self.clients.get(&id)) else { continue };
            let (id, version) = (client.id, client.reply.version);
            let bytes = encoded[usize::from(version == Version::Three)]
                .get_or_insert_with(|| post.body.encode(version));
            if !self.hand_over(id, bytes, epoch) {
                self.dismiss(id, "it does not take its messages");
            }
        }
    }

    /// Returns the client that gets the invalidations of a client; `None` if nobody can get them.
    fn hearer(&mut self, id: ClientId, epoch: u64) -> Option<ClientId> {
        let knows_pushes = |client: &Client| client.reply.version == Version::Three;
        let own = self.clients.get(&id)?;
        let is_three = knows_pushes(own);
        let tracking = self.tracker.of_mut(id)?;
        let Some(other) = tracking.redirect else { return is_three.then_some(id) };
        let Some(client) = self.clients.get(&other) else {
            tracking.is_broken = true;
            if is_three {
                let bytes = Body::BrokenRedirect(other).encode(Version::Three);
                self.hand_over(id, &bytes, epoch);
            }
            return None;
        };
        (knows_pushes(client) || client.subscriptions.is_any()).then_some(other)
    }

    /// Records the keys that a client has read, if the client tracks keys.
    pub(super) fn note_read(&mut self, client: &Client, spec: &Spec, request: &[Bytes]) {
        if spec.has(flags::READ) {
            self.note_keys_read(client.id, spec.keys(request));
        }
    }

    /// Records keys that a client has read; the client tracks keys.
    pub fn note_keys_read<'a>(&mut self, id: ClientId, keys: impl IntoIterator<Item = &'a Bytes>) {
        self.tracker.read(id, keys.into_iter().cloned());
        self.trim_tracker();
    }

    /// Bounds the table of the keys that clients have read.
    pub fn trim_tracker(&mut self) {
        let most_keys = self.settings.tracking_keys;
        let most_bytes = self.settings.client_memory / TABLE_PART;
        for mut post in self.tracker.trim(most_keys, most_bytes) {
            post.epoch = Some(0);
            self.outbox.push(post);
        }
    }

    /// Ends the effect of `CLIENT CACHING` after the command that follows it, or after the
    /// transaction.
    pub(super) fn end_caching(&mut self, client: &Client) {
        if client.queue.is_none()
            && !client.last_command.starts_with("client")
            && let Some(tracking) = self.tracker.of_mut(client.id)
        {
            tracking.caching = false;
        }
    }

    /// Notifies the clients that track the keys of the last commit.
    pub(super) fn invalidate(&mut self, by: Option<ClientId>, epoch: u64) {
        // As in Redis, a key that expires changes by itself, whoever meets it.
        let (lapsed, own): (Vec<_>, Vec<_>) =
            self.keys.changed().filter(|one| one.is_modified).partition(|one| one.is_lapsed);
        for (changed, by) in [(lapsed, None), (own, by)] {
            let names = changed.iter().map(|one| Bytes::copy_from_slice(names::name(one.key))).collect();
            for mut post in self.tracker.changed(names, by, self.settings.client_memory / PART) {
                post.epoch = Some(epoch);
                self.outbox.push(post);
            }
        }
    }

    /// Appends a push to the replies of a client, once an epoch is acknowledged. Returns whether
    /// there was room for it.
    fn hand_over(&mut self, id: ClientId, bytes: &[u8], epoch: u64) -> bool {
        let epoch = if epoch > self.keys.acknowledged() { epoch } else { 0 };
        let Some(client) = self.clients.get_mut(&id) else { return true };
        let pending = client.written() + client.outgoing + client.late.0.len() + bytes.len();
        if pending > self.settings.hard_output {
            return false;
        }
        if pending > self.settings.soft_output {
            client.slow_since.get_or_insert(self.steady);
        }
        // The output of a command that changes subscriptions is whole between two portions, and its
        // end may let replies follow that a client of RESP2 does not tell from messages.
        if client.work.as_ref().is_some_and(|work| !work.spec.has(flags::PUSHES)) {
            client.late.0.extend_from_slice(bytes);
            client.late.1 = client.late.1.max(epoch);
        } else {
            client.reply.bytes.extend_from_slice(bytes);
            if client.mark(epoch) {
                self.promised.push_back((epoch, id));
            }
            client.wake();
        }
        let memory = client.memory();
        self.held = self.held + memory - client.charged;
        client.charged = memory;
        true
    }
}
