//! Requests that arrived together, run as one commit.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::SmallVec;

use super::Engine;
use crate::redis::client::{Client, Replies, Work};
use crate::redis::commands::{self, Spec};
use crate::redis::fail::Fail;
use crate::redis::proto::Args;
use crate::redis::pubsub::MAX_STEPS;

/// Most requests that run as one commit, and most bytes of them.
const TOGETHER: usize = 64;
const TOGETHER_BYTES: usize = 256 << 10;

/// Requests between two looks at the clock.
const CHECK: usize = 16;

/// The commands of one commit.
type Together = SmallVec<[&'static Spec; TOGETHER]>;

impl Engine {
    /// Returns the commands, from the first request on, that may run as one commit. No client can
    /// distinguish that from one commit each, because no client watches a key, or waits for a key.
    pub(super) fn together(&self, client: &Client, requests: &VecDeque<Args>) -> Together {
        let is_seen = client.queue.is_some() || client.replies != Replies::On || client.is_subscriber_only();
        if is_seen || requests.len() < 2 || !self.waiting.is_empty() || !self.watching.is_empty() {
            return Together::new();
        }
        let mut bytes = 0;
        let command = |request: &Args| {
            bytes += request.iter().map(Bytes::len).sum::<usize>();
            let spec = commands::resolve(request)?;
            let fits = bytes <= TOGETHER_BYTES && spec.is_plain() && spec.takes(request.len());
            (fits && self.allowed(client, spec, request).is_ok()).then_some(spec)
        };
        requests.iter().take(TOGETHER).map_while(command).collect()
    }

    /// Runs several requests as one commit, which costs less than one commit each; returns whether
    /// it did. If the commit is refused, it has no effect, and the requests run one by one.
    pub(super) fn batch(
        &mut self,
        client: &mut Client,
        requests: &mut VecDeque<Args>,
        goes_on: &impl Fn() -> bool,
    ) -> bool {
        let commands = self.together(client, requests);
        if commands.len() < 2 {
            return false;
        }
        let (start, mut count) = (client.written(), 0);
        // Equal commands in a row are measured together.
        let (mut began, mut equal, mut last) = ((self.clock)(), 0, commands[0]);
        for (request, spec) in requests.iter().zip(commands) {
            // What messages of the next request may take is what is left of the budget of one.
            let has_steps = self.steps > MAX_STEPS / 2;
            if !self.may_reply(client)
                || (count > 0 && !has_steps)
                || (count % CHECK == CHECK - 1 && !goes_on())
            {
                break;
            }
            count += 1;
            if !std::ptr::eq(spec, last) {
                began = self.note_time(last, equal, began);
                (equal, last) = (0, spec);
            }
            equal += 1;
            client.last_command = spec.name;
            let before = client.written();
            let called = self.call(client, spec, request, false);
            if client.is_tracking {
                self.end_caching(client);
            }
            match called {
                // A commit of a draft is one of its own.
                Ok(()) if self.keys.has_submitted() => break,
                Ok(()) => {}
                Err(Fail::Long(rest)) => {
                    client.work = Some(Box::new(Work { spec, request: request.to_vec(), rest }));
                    break;
                }
                Err(Fail::Reply(error)) => self.tell_refusal(client, spec, before, &error),
                Err(_) => {
                    self.keys.roll_back();
                    return self.one_by_one(client, requests, count, start);
                }
            }
        }
        if equal > 0 {
            self.note_time(last, equal, began);
        }
        match self.keys.commit() {
            Ok(committed) => self.note_committed(client, committed),
            Err(_) => return self.one_by_one(client, requests, count, start),
        }
        self.stats.commands += count as u64;
        requests.drain(..count);
        self.settle_reply(client, start);
        if client.work.is_some() {
            // The reply follows later, and waits for the same epochs.
            client.note_epoch(client.depends_on);
        }
        self.outbox.stamp(client.depends_on);
        true
    }

    pub(super) fn one_by_one(
        &mut self,
        client: &mut Client,
        requests: &mut VecDeque<Args>,
        count: usize,
        start: usize,
    ) -> bool {
        client.cut(start);
        (client.work, client.work_bytes) = (None, 0);
        self.keys.take_seen();
        self.outbox.undo();
        for _ in 0..count {
            if self.may_reply(client)
                && client.work.is_none()
                && let Some(request) = requests.pop_front()
            {
                self.one(client, &request);
            }
        }
        true
    }
}
