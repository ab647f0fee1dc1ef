//! Clients that wait for an element of a key, in the order of their requests, and clients that wait
//! for commits to be on stable media.
//!
//! An element goes to the first client that waits to take it, before any other request runs. Those
//! who only read a stream all get a copy. They get it in portions, between the turns of others.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use brooklet::Error;
use bytes::Bytes;

use super::Engine;
use crate::redis::client::{Client, ClientId, Replies};
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
        let places = 1 + usize::from(wait.of_group);
        let keys = wait.keys.iter().map(|(key, _)| key.len() + places * WAIT);
        let words = wait.request.iter().map(|word| word.len() + size_of::<Bytes>());
        wait.bytes = keys.chain(words).sum();
        // Copied, so that the rest of the packet does not stay in memory with the wait.
        wait.request.iter_mut().for_each(|word| *word = Bytes::copy_from_slice(word));
        wait.keys.sort_unstable();
        self.turns += 1;
        (wait.turn, wait.user) = (self.turns, client.user.clone());
        for key in wait.each_key() {
            self.waiting.entry(key.clone()).or_default().insert(wait.turn, client.id);
            if wait.of_group {
                self.members.entry(key.clone()).or_default().insert(wait.turn, client.id);
            }
        }
        if let Some(until) = wait.until {
            self.deadlines.insert((until, client.id));
            self.has_deadline = true;
        }
        if let TimeoutReply::Copies { .. } | TimeoutReply::Media { .. } = wait.timeout_reply {
            self.waiting_durable.insert(client.id);
            // Nothing reports what is kept elsewhere.
            self.has_deadline |= self.keys.has_copy();
        }
        client.wait = Some(wait);
    }

    pub(super) fn forget_wait(&mut self, client: &mut Client) -> Option<Wait> {
        let wait = client.wait.take()?;
        for key in wait.each_key() {
            for queues in [&mut self.waiting, &mut self.members] {
                if let Some(queue) = queues.get_mut(key) {
                    queue.remove(&wait.turn);
                    if queue.is_empty() {
                        queues.remove(key);
                    }
                }
            }
        }
        if let Some(until) = wait.until {
            self.deadlines.remove(&(until, client.id));
        }
        self.waiting_durable.remove(&client.id);
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
            if !self.waiting.contains_key(&key) {
                continue;
            }
            let (mut is_waited_for, mut last) = (self.is_waited_for(&key), 0);
            // Thousands may wait for one key, and nothing is left for them.
            while let Some((turn, id)) = self.next_waiting(&key, last, !is_waited_for) {
                last = turn;
                if self.only_reads(id) {
                    self.readers.push(id, &key);
                } else {
                    self.ask_again(id, &key);
                    is_waited_for = is_waited_for && self.is_waited_for(&key);
                }
            }
        }
        self.keep_budget();
    }

    /// Returns the next client that waits for a key, with its turn, after a turn: of all clients,
    /// or of those that wait as members of a group, which hear of its end.
    pub(super) fn next_waiting(
        &self,
        key: &Bytes,
        after: u64,
        only_members: bool,
    ) -> Option<(u64, ClientId)> {
        let queues = if only_members { &self.members } else { &self.waiting };
        let mut rest = queues.get(key)?.range(after + 1..);
        rest.next().map(|(turn, id)| (*turn, *id))
    }

    /// Returns whether a key has something that clients may wait for. A string, such as one of many
    /// that a command sets, is nothing to most of them.
    fn is_waited_for(&mut self, key: &Bytes) -> bool {
        self.kind_of(key).is_none_or(|kind| matches!(kind, "list" | "stream"))
    }

    /// Returns the type of a key; `None` if that is not known.
    fn kind_of(&mut self, key: &Bytes) -> Option<&'static str> {
        let id = self.keys.open_plain(key).ok()?;
        let kind = self.keys.value(id).kind();
        if self.keys.is_changed() {
            // The key has expired meanwhile, and perhaps nobody is asked about it.
            self.commit_expired();
        }
        Some(kind)
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

    /// Retries the request of a client, if it waits for a key. Returns the bytes of the reply, also
    /// of one that the client does not want.
    fn ask_again(&mut self, id: ClientId, key: &Bytes) -> usize {
        let Some(mut client) = self.clients.remove(&id) else { return 0 };
        // A client that leaves takes nothing with it.
        let stays = !client.is_killed && !client.is_leaving;
        let written = match client.wait.take_if(|_| stays) {
            Some(wait) => self.retry(&mut client, wait, key),
            None => 0,
        };
        self.clients.insert(id, client);
        if self.keys.is_changed() {
            // The key has expired meanwhile, and the client waits on.
            self.commit_expired();
        }
        written
    }

    /// Retries the request of a client that waits, if it waits for a key. Returns the bytes of the
    /// reply.
    fn retry(&mut self, client: &mut Client, wait: Wait, key: &Bytes) -> usize {
        let spec = commands::resolve(&wait.request).expect("it was asked before");
        let (start, places) = (client.written(), wait.places(key));
        let fits = if places.is_empty() { Ok(false) } else { self.fits(spec, key) };
        if matches!(fits, Ok(false)) && (places.is_empty() || !wait.of_group) {
            client.wait = Some(wait);
            return 0;
        }
        let again = match (self.may_go_on(client, spec, &wait), fits) {
            (Err(error), _) => Err(Fail::Reply(error.into())),
            (Ok(()), Ok(true)) => self.answer(client, spec, &wait.request, true, Some(places)),
            (Ok(()), Ok(false)) => Err(Fail::Reply("UNBLOCKED the stream key no longer exists".into())),
            (Ok(()), Err(error)) => Err(Fail::Store(error)),
        };
        client.wait = Some(wait);
        if let Err(Fail::Wait(_)) = again {
            // The client keeps its place in the queues. Its retry may have changed something: an
            // expired key was deleted, or a consumer was created.
            client.cut(start);
            self.keys.take_seen();
            self.commit_aside();
            return 0;
        }
        self.forget_wait(client);
        match &again {
            Err(Fail::Reply(error)) => self.tell_refusal(client, spec, start, error),
            Err(fail) => self.undo(client, start, fail),
            Ok(()) => {}
        }
        self.commit(client, start);
        let epoch = self.keys.take_seen().max(client.take_epoch());
        let written = client.written() - start;
        self.finish(client, start, epoch);
        written
    }

    /// Returns an error if a client that waits may no longer run its command. Its rights are
    /// checked again only if its user has changed meanwhile: the check looks at all keys.
    fn may_go_on(&mut self, client: &Client, spec: &Spec, wait: &Wait) -> Result<(), String> {
        if let (Some(now), Some(then)) = (&client.user, &wait.user)
            && Arc::ptr_eq(now, then)
        {
            return self.may_change(spec).map_err(str::to_owned);
        }
        let allowed = self.allowed(client, spec, &wait.request);
        if allowed.is_err() {
            self.note_lack(client, spec, &wait.request);
        }
        allowed
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
            TimeoutReply::NullArray => {
                self.note_wait_in_vain(client);
                client.reply.null_array();
            }
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
            TimeoutReply::NullArray => false,
        }
    }

    /// Sends a reply outside a request's turn, once an epoch is acknowledged, if the client wants
    /// the reply.
    pub(super) fn finish(&mut self, client: &mut Client, start: usize, epoch: u64) {
        if client.replies != Replies::On {
            client.cut(start);
        }
        if client.replies == Replies::Skip {
            client.replies = Replies::On;
        }
        client.depends_on = client.depends_on.max(epoch);
        self.outbox.stamp(client.depends_on);
        if client.written() > start && client.mark(epoch) {
            self.promised.push_back((epoch, client.id));
        }
        self.charge(client);
        client.wake();
    }
}
