//! Clients that wait for an element of a key, in the order of their requests, and clients that wait
//! for commits to be on stable media.

use brooklet::Error;
use bytes::Bytes;

use super::Engine;
use crate::redis::client::{Client, ClientId};
use crate::redis::commands::{self, Spec};
use crate::redis::fail::{Fail, TimeoutReply, Wait};
use crate::redis::keys::Value;

/// Memory of a key that a client waits for, besides its name, in bytes.
const WAIT: usize = 192;

impl Engine {
    /// Registers a waiting client.
    pub(super) fn wait(&mut self, client: &mut Client, mut wait: Wait) {
        let size = |all: &[Bytes], more: usize| all.iter().map(|bytes| bytes.len() + more).sum::<usize>();
        wait.bytes = size(&wait.keys, WAIT) + size(&wait.request, size_of::<Bytes>());
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
        if let TimeoutReply::Media { is_all: true, .. } = wait.timeout_reply {
            self.waiting_durable.push(client.id);
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
        while let Some(key) = self.changed.pop_front() {
            self.is_changed.remove(&key);
            let queue: Vec<ClientId> =
                self.waiting.get(&key).map_or_else(Vec::new, |all| all.iter().copied().collect());
            for id in queue {
                self.ask_again(id, &key);
            }
        }
    }

    pub(super) fn ask_again(&mut self, id: ClientId, key: &Bytes) {
        let Some(mut client) = self.clients.remove(&id) else { return };
        if let Some(wait) = client.wait.take() {
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
                    return;
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
        self.clients.insert(id, client);
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

    pub(super) fn tell_in_vain(&mut self, client: &mut Client, timeout_reply: TimeoutReply) {
        match timeout_reply {
            TimeoutReply::NullArray => client.reply.null_array(),
            TimeoutReply::Null => client.reply.null(),
            TimeoutReply::Replicas => client.reply.int(0),
            TimeoutReply::Media { wrote, .. } => {
                client.reply.array(2);
                client.reply.flag(wrote <= self.keys.durable());
                client.reply.int(0);
            }
        }
    }

    /// Sends a reply outside a request's turn, once an epoch is acknowledged.
    pub(super) fn finish(&mut self, client: &mut Client, start: usize, epoch: u64) {
        client.depends_on = client.depends_on.max(epoch);
        self.outbox.stamp(client.depends_on);
        if client.written() > start && client.mark(epoch) {
            self.promised.push_back((epoch, client.id));
        }
        client.wake();
    }
}
