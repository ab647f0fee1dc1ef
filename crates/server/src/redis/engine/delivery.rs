//! Messages: a client publishes them, and the engine delivers them to the subscribers.
//!
//! A message waits for the epochs that its publisher's requests depended on, so that no subscriber
//! learns of a state that a crash could undo. It leaves at the end of the request that published
//! it, with the commit of that request.

use bytes::Bytes;

use super::Engine;
use crate::redis::client::ClientId;
use crate::redis::pubsub::{Kind, Post};
use crate::redis::reply::Version;

/// One of this many parts of the memory of all clients is the most that the messages of one request
/// take in the buffers of all receivers.
const PART: usize = 4;

impl Engine {
    /// Publishes a message; returns the number of receivers.
    ///
    /// # Errors
    /// The messages of this request would take too much memory, or too long.
    pub fn publish(&mut self, kind: Kind, channel: &Bytes, message: &Bytes) -> Result<usize, String> {
        let posts = self.topics.posts(kind, channel, message)?;
        let cost = posts.iter().map(Post::cost).fold(self.outbox.cost(), usize::saturating_add);
        let most = self.settings.client_memory / PART;
        if cost > most {
            return Err(format!(
                "the messages of one request take {cost} bytes for all receivers, more than {most}: send shorter or fewer messages"
            ));
        }
        let receivers = posts.iter().map(|post| post.to.len()).sum();
        posts.into_iter().for_each(|post| self.outbox.push(post));
        Ok(receivers)
    }

    /// Delivers the posts. The clients that do not take their messages must leave.
    pub(super) fn deliver(&mut self) {
        if self.outbox.is_empty() {
            return;
        }
        let mut leaving = Vec::new();
        for post in self.outbox.take() {
            let mut encoded: [Option<Bytes>; 2] = [None, None];
            for id in &post.to {
                let Some(client) = self.clients.get(id) else { continue };
                let version = client.reply.version;
                let bytes = encoded[usize::from(version == Version::Three)]
                    .get_or_insert_with(|| post.body.encode(version));
                if !self.hand_over(*id, bytes, post.epoch.unwrap_or(0)) {
                    leaving.push(*id);
                }
            }
        }
        for id in leaving {
            self.dismiss(id, "it does not take its messages");
        }
        self.keep_budget();
    }

    /// Appends a push to the replies of a client, once an epoch is acknowledged. Returns whether
    /// there was room for it.
    fn hand_over(&mut self, id: ClientId, bytes: &[u8], epoch: u64) -> bool {
        let epoch = if epoch > self.keys.acknowledged() { epoch } else { 0 };
        let Some(client) = self.clients.get_mut(&id) else { return true };
        let pending = client.written() + client.outgoing + bytes.len();
        if pending > self.settings.hard_output {
            return false;
        }
        if pending > self.settings.soft_output {
            client.slow_since.get_or_insert(self.steady);
        }
        client.reply.bytes.extend_from_slice(bytes);
        if client.mark(epoch) {
            self.promised.push_back((epoch, id));
        }
        client.wake();
        let memory = client.memory();
        self.held = self.held + memory - client.charged;
        client.charged = memory;
        true
    }
}
