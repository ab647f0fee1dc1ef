//! Clients that wait for an element of a key, in the order of their requests, and clients that wait
//! for commits to be on stable media.
//!
//! An element goes to the first client that waits to take it, before any other request runs. Those
//! who only read a stream all get a copy. They get it in portions, between the turns of others.

use std::collections::{BTreeSet, VecDeque};

use brooklet::Error;
use bytes::Bytes;

use super::Engine;
use crate::redis::client::{Client, ClientId};
use crate::redis::commands::{self, Spec, flags};
use crate::redis::fail::{Fail, TimeoutReply, Wait};
use crate::redis::keys::Value;

/// Memory of a key that a client waits for, besides its name, in bytes.
const WAIT: usize = 192;
/// Bytes of the replies that one portion writes to waiting readers, about: a millisecond.
const PORTION: usize = 1 << 20;
/// A retry takes as long as the copy of so many bytes, and so does each key that the client waits
/// for.
const RETRY: usize = 1 << 10;
const KEY: usize = 32;

/// Clients that wait to read a key that has changed, and are not asked again yet, in order.
#[derive(Debug, Default)]
pub struct Readers {
    queue: VecDeque<(ClientId, Bytes)>,
    queued: BTreeSet<(ClientId, Bytes)>,
}

impl Readers {
    /// Returns whether no client waits for its turn.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether a client waits for its turn.
    pub fn has(&self, id: ClientId) -> bool {
        self.queued.range((id, Bytes::new())..).next().is_some_and(|(first, _)| *first == id)
    }

    fn push(&mut self, id: ClientId, key: &Bytes) {
        if self.queued.insert((id, key.clone())) {
            self.queue.push_back((id, key.clone()));
        }
    }

    fn pop(&mut self) -> Option<(ClientId, Bytes)> {
        let next = self.queue.pop_front()?;
        self.queued.remove(&next);
        Some(next)
    }
}

impl Engine {
    /// Registers a waiting client.
    pub(super) fn wait(&mut self, client: &mut Client, mut wait: Wait) {
        let size = |all: &[Bytes], more: usize| all.iter().map(|bytes| bytes.len() + more).sum::<usize>();
        wait.bytes = size(&wait.keys, WAIT) + size(&wait.request, size_of::<Bytes>());
        // Copied, so that the rest of the packet does not stay in memory with the wait.
        wait.request.iter_mut().for_each(|word| *word = Bytes::copy_from_slice(word));
        for key in &wait.keys {
            let queue = self.waiting.entry(key.clone()).or_default();
            if !queue.contains(&client.id) {
                queue.push_back(client.id);
            }
        }
        if let Some(until) = wait.until {
            self.deadlines.insert((until, client.id));
            self.has_deadline = true;
        }
        if let TimeoutReply::Copies { .. } | TimeoutReply::Media { .. } = wait.timeout_reply {
            self.waiting_durable.push(client.id);
            // Nothing reports what is kept elsewhere.
            self.has_deadline |= self.keys.has_copy();
        }
        client.wait = Some(wait);
    }

    pub(super) fn forget_wait(&mut self, client: &mut Client) -> Option<Wait> {
        let wait = client.wait.take()?;
        for key in &wait.keys {
            if let Some(queue) = self.waiting.get_mut(key) {
                queue.retain(|id| *id != client.id);
                if queue.is_empty() {
                    self.waiting.remove(key);
                }
            }
        }
        if let Some(until) = wait.until {
            self.deadlines.remove(&(until, client.id));
        }
        self.waiting_durable.retain(|id| *id != client.id);
        Some(wait)
    }

    /// Retries the requests of clients that wait for changed keys, in the order of their requests.
    pub(super) fn serve_waiting(&mut self) {
        self.serve_takers();
        self.serve_readers();
        // A retry may have changed a key: one that has expired is deleted.
        self.serve_takers();
        // The driver learns of it once; after that it knows by the next event that is due.
        self.has_deadline |= !self.readers.is_empty();
    }

    /// Retries the requests of clients that wait to take something from changed keys. Those that
    /// only read get their turns.
    pub(super) fn serve_takers(&mut self) {
        if self.long.is_handing() {
            // They have their turns after the commit.
            return;
        }
        while let Some(key) = self.changed.pop_front() {
            self.is_changed.remove(&key);
            let queue: Vec<ClientId> =
                self.waiting.get(&key).map_or_else(Vec::new, |all| all.iter().copied().collect());
            for id in queue {
                if self.only_reads(id) {
                    self.readers.push(id, &key);
                } else {
                    self.ask_again(id, &key);
                }
            }
        }
        self.keep_budget();
    }

    /// Returns whether a client waits only to read: what it gets is still there for others.
    fn only_reads(&self, id: ClientId) -> bool {
        let wait = self.clients.get(&id).and_then(|client| client.wait.as_ref());
        let spec = wait.and_then(|wait| commands::resolve(&wait.request));
        spec.is_some_and(|spec| !spec.has(flags::WRITE))
    }

    /// Retries the requests of a portion of the waiting readers; the rest follows as time passes.
    pub(super) fn serve_readers(&mut self) {
        let mut room = if self.long.is_handing() { 0 } else { PORTION };
        while room > 0 {
            let Some((id, key)) = self.readers.pop() else { return };
            let wait = self.clients.get(&id).and_then(|client| client.wait.as_ref());
            let cost = RETRY + wait.map_or(0, |wait| KEY * wait.keys.len());
            room = room.saturating_sub(self.ask_again(id, &key) + cost);
            self.end_late_wait(id);
            self.keep_budget();
        }
    }

    /// Ends the wait of a client whose time was over before its turn came.
    fn end_late_wait(&mut self, id: ClientId) {
        let wait = self.clients.get(&id).and_then(|client| client.wait.as_ref());
        let is_late = wait.is_some_and(|wait| wait.until.is_some_and(|until| until <= self.steady));
        if is_late && !self.readers.has(id) {
            self.unblock(id, None);
        }
    }

    /// Retries the request of a client, if it waits for a key. Returns the bytes of the reply.
    fn ask_again(&mut self, id: ClientId, key: &Bytes) -> usize {
        let Some(mut client) = self.clients.remove(&id) else { return 0 };
        let before = client.written();
        if let Some(wait) = client.wait.take_if(|wait| wait.keys.contains(key)) {
            let spec = commands::resolve(&wait.request).expect("it was asked before");
            let start = client.written();
            // The user may have lost the right meanwhile.
            let allowed = self.allowed(&client, spec, &wait.request);
            if allowed.is_err() {
                self.note_lack(&client, spec, &wait.request);
            }
            let again = match self.fits(spec, key) {
                _ if allowed.is_err() => allowed.map_err(|error| Fail::Reply(error.into())),
                Ok(true) => self.answer(&mut client, spec, &wait.request, true, Some(key.clone())),
                Ok(false) if wait.of_group => {
                    Err(Fail::Reply("UNBLOCKED the stream key no longer exists".into()))
                }
                Ok(false) => {
                    client.wait = Some(wait);
                    self.clients.insert(id, client);
                    return 0;
                }
                Err(error) => Err(Fail::Store(error)),
            };
            if let Err(Fail::Wait(_)) = again {
                // The client keeps its place in the queues. Its retry may have changed something:
                // an expired key was deleted, or a consumer was created.
                client.cut(start);
                self.keys.take_seen();
                client.wait = Some(wait);
                self.commit_aside();
            } else {
                client.wait = Some(wait);
                self.forget_wait(&mut client);
                match &again {
                    Err(Fail::Reply(error)) => self.tell_refusal(&mut client, spec, start, error),
                    Err(fail) => self.undo(&mut client, start, fail),
                    Ok(()) => {}
                }
                self.commit(&mut client, start);
                let epoch = self.keys.take_seen().max(client.take_epoch());
                self.finish(&mut client, start, epoch);
            }
        }
        let written = client.written() - before;
        self.clients.insert(id, client);
        written
    }

    /// Returns whether a key has the type that a command waits for.
    pub(super) fn fits(&mut self, spec: &Spec, key: &Bytes) -> Result<bool, Error> {
        let id = self.keys.open_plain(key)?;
        Ok(match self.keys.value(id) {
            Value::List(_) => spec.is_of("list"),
            Value::Stream(_) => spec.is_of("stream"),
            _ => false,
        })
    }

    /// Ends a client's wait, with an error or as by its timeout. Returns whether the client waited
    /// for a key.
    pub fn unblock(&mut self, id: ClientId, error: Option<&str>) -> bool {
        let Some(mut client) = self.clients.remove(&id) else { return false };
        let is_waiting = client.wait.is_some();
        if is_waiting {
            let start = client.written();
            match (self.forget_wait(&mut client), error) {
                (_, Some(error)) => client.reply.error(error),
                (Some(wait), None) => self.tell_in_vain(&mut client, wait.timeout_reply),
                (None, None) => {}
            }
            self.finish(&mut client, start, 0);
        }
        self.clients.insert(id, client);
        is_waiting
    }

    /// Replies to a client whose wait ends without data.
    pub fn tell_in_vain(&self, client: &mut Client, timeout_reply: TimeoutReply) {
        match timeout_reply {
            TimeoutReply::NullArray => client.reply.null_array(),
            TimeoutReply::Null => client.reply.null(),
            TimeoutReply::Copies { wrote, .. } => client.reply.int(self.copies(wrote) as i64),
            TimeoutReply::Media { wrote, .. } => {
                client.reply.array(2);
                client.reply.flag(wrote <= self.keys.durable());
                client.reply.int(self.copies(wrote) as i64);
            }
        }
    }

    /// Returns the number of copies elsewhere that have all writes up to an epoch.
    fn copies(&self, wrote: u64) -> u64 {
        u64::from(self.keys.has_copy() && wrote <= self.keys.kept())
    }

    /// Returns whether as many have the writes as a wait needs.
    pub fn is_met(&self, wait: TimeoutReply) -> bool {
        match wait {
            TimeoutReply::Copies { wrote, wanted } => self.copies(wrote) >= wanted,
            TimeoutReply::Media { wrote, here, elsewhere } => {
                (!here || wrote <= self.keys.durable()) && self.copies(wrote) >= elsewhere
            }
            TimeoutReply::NullArray | TimeoutReply::Null => false,
        }
    }

    /// Sends a reply outside a request's turn, once an epoch is acknowledged.
    pub(super) fn finish(&mut self, client: &mut Client, start: usize, epoch: u64) {
        client.depends_on = client.depends_on.max(epoch);
        self.outbox.stamp(client.depends_on);
        if client.written() > start && client.mark(epoch) {
            self.promised.push_back((epoch, client.id));
        }
        self.charge(client);
        client.wake();
    }
}
