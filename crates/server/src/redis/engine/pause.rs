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
    pub(super) fn holds_back(&self, client: &mut Client, requests: &VecDeque<Args>) -> bool {
        let Some(pause) = self.pause.filter(|pause| pause.until > self.steady) else { return false };
        let Some(request) = requests.front() else { return false };
        // A request that is refused need not wait for that.
        let command = commands::resolve(request).filter(|spec| spec.takes(request.len()));
        let may_run = command.is_some_and(|spec| self.allowed(client, spec, request).is_ok());
        client.is_held_back = may_run && (!pause.writes_only || may_write(client, request));
        client.is_held_back
    }
}

/// Returns whether a request may change keys: EXEC does what was queued.
fn may_write(client: &Client, request: &[Bytes]) -> bool {
    let writes = |request: &[Bytes]| commands::resolve(request).is_some_and(|spec| spec.has(flags::WRITE));
    let is_exec = request.first().is_some_and(|name| name.eq_ignore_ascii_case(b"exec"));
    let queue = client.queue.as_ref().filter(|_| is_exec);
    writes(request) || queue.is_some_and(|queue| queue.requests.iter().any(|request| writes(request)))
}
