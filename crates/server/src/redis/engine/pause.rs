//! Pauses: for some time, the requests of clients are held back.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Engine;
use crate::redis::client::Client;
use crate::redis::commands::{self, flags};
use crate::redis::proto::Args;

/// A pause of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// End of the pause, by the steady clock, in milliseconds.
    pub until: u64,
    /// Whether only requests that may write are held back.
    pub writes_only: bool,
}

impl Engine {
    /// Begins a pause. A pause in progress becomes no shorter, and holds no less back.
    pub fn pause(&mut self, new: Pause) {
        let merged = |old: Pause| Pause {
            until: old.until.max(new.until),
            writes_only: old.writes_only && new.writes_only,
        };
        self.pause = Some(self.pause.map_or(new, merged));
        self.has_deadline = true;
    }

    /// Ends a pause: the requests that were held back run.
    pub fn unpause(&mut self) {
        self.pause = None;
        for client in self.clients.values_mut().filter(|client| client.is_held_back) {
            client.is_held_back = false;
            client.wake();
        }
    }

    /// Ends a pause whose time is over.
    pub(super) fn end_pause(&mut self, now: u64) {
        if self.pause.is_some_and(|pause| pause.until <= now) {
            self.unpause();
        }
    }

    /// Returns whether a pause holds back the next request, and if so, notes it of the client.
    pub(super) fn holds_back(&mut self, client: &mut Client, requests: &VecDeque<Args>) -> bool {
        let Some(pause) = self.pause.filter(|pause| pause.until > self.steady) else { return false };
        let Some(request) = requests.front() else { return false };
        // A request that is refused need not wait for that.
        let command = commands::resolve(request).filter(|spec| spec.takes(request.len()));
        let may_run = command.is_some_and(|spec| self.allowed(client, spec, request).is_ok());
        client.is_held_back = may_run && (!pause.writes_only || self.may_write(client, request));
        client.is_held_back
    }

    /// Returns whether a pause holds back the rest of a long command that may change keys, and if
    /// so, notes it of the client.
    pub(super) fn holds_back_rest(&self, client: &mut Client) -> bool {
        let is_paused = self.pause.is_some_and(|pause| pause.until > self.steady);
        // The work of a client with a queue is its EXEC.
        let is_write = client.work.as_ref().is_some_and(|work| work.spec.has(flags::WRITE));
        let may_write = is_write || client.queue.is_some();
        // A commit that has ended is not held back any more: only its reply is left.
        client.is_held_back = is_paused && may_write && client.handed.is_none();
        client.is_held_back
    }

    /// Returns whether a request may change keys: EXEC does what was queued. As in Redis, a message
    /// counts as a change.
    fn may_write(&mut self, client: &Client, request: &[Bytes]) -> bool {
        let is_exec = request.first().is_some_and(|name| name.eq_ignore_ascii_case(b"exec"));
        let queue = client.queue.as_ref().filter(|_| is_exec);
        let queued = queue.into_iter().flat_map(|queue| &queue.requests);
        let mut requests = std::iter::once(request).chain(queued.map(|request| &request[..]));
        requests.any(|request| match commands::resolve(request) {
            None => false,
            Some(spec) if matches!(spec.name, "publish" | "spublish") => true,
            Some(spec) if matches!(spec.name, "eval" | "evalsha") => {
                self.scripts.may_write(spec.name == "evalsha", &request[1])
            }
            Some(spec) => spec.has(flags::WRITE),
        })
    }
}
