//! Events without a request: commits become durable, keys expire, waits end, idle clients are
//! disconnected.

use std::time::Duration;

use brooklet::Error;

use super::Engine;
use crate::redis::client::ClientId;
use crate::redis::notices::Notice;
use crate::redis::now::Now;
use crate::redis::pubsub::MAX_STEPS;

/// Expired keys that are deleted at once.
const EXPIRED: usize = 100;
/// Keys of a long change that are moved to the cache at once.
const MERGED: usize = 2_000;
/// Fields that nobody needs any more, and whose memory is freed at once.
const FREED: usize = 4_000;
/// Time between two looks at what is kept elsewhere, or at the lease, while clients wait for that,
/// in milliseconds.
const LOOK: u64 = 5;

impl Engine {
    /// Sets the time.
    pub fn set_time(&mut self, now: Now) {
        (self.keys.now, self.steady) = (now.wall, now.steady);
    }

    /// Handles the events that are due now: keys expire, and waits end.
    pub fn tick(&mut self, now: Now) {
        self.set_time(now);
        self.steps = MAX_STEPS;
        while let Some((until, id)) = self.deadlines.first().copied() {
            if until > now.steady {
                break;
            }
            self.deadlines.pop_first();
            // What a reader waits for may be there, and its turn comes soon.
            if !self.readers.has(id) {
                self.unblock(id, None);
            }
        }
        self.end_pause(now.steady);
        if self.pause.is_none() && !self.long.is_handing() {
            self.expire_keys();
            self.clear_keys();
        }
        self.keys.merge_some(MERGED);
        self.keys.free_some(FREED);
        self.serve_readers();
        self.serve_takers();
        self.deliver();
        self.note_durable();
        self.look_for_lease();
        self.check_clients(now.steady);
        self.stats.sample(now.steady);
    }

    pub(super) fn expire_keys(&mut self) {
        if self.stopped.is_some() {
            return;
        }
        // Each database has a commit of its own. Keys must not come faster than they go, also if
        // those of several databases expire in turn.
        let mut left = EXPIRED;
        loop {
            self.begin_events();
            let (before, done) = (self.keys.epoch(), self.keys.expire_due(None, left));
            match done {
                Ok(count) => left -= count,
                Err(error) => {
                    self.keys.roll_back();
                    let what = "the server could not remove expired keys; the keys stay for now";
                    return self.note_trouble(what, &error);
                }
            }
            self.commit_expired();
            // A commit that the store refused comes again at another time.
            if left == 0 || self.keys.epoch() == before {
                break;
            }
        }
        self.serve_takers();
        self.deliver();
    }

    /// Goes on to delete the keys of a database whose client may have gone.
    fn clear_keys(&mut self) {
        const PORTION: usize = 200;
        if self.stopped.is_some() || !self.keys.is_clearing_any() {
            return;
        }
        if let Err(error) = self.keys.clear_some(0, PORTION) {
            self.keys.roll_back();
            return self.note_trouble("the server could not delete all keys of a database", &error);
        }
        self.commit_aside();
        self.serve_takers();
        self.deliver();
    }

    /// Commits the deletion of the expired keys that the current command has met so far.
    pub fn commit_expired(&mut self) {
        self.commit_aside();
        self.stats.expired += std::mem::take(&mut self.keys.expired);
    }

    /// Commits changes that no reply depends on.
    pub(super) fn commit_aside(&mut self) {
        self.note_expired_aside();
        match self.keys.commit() {
            Ok(committed) if committed.keys > 0 => {
                self.has_news = true;
                self.outbox.stamp(committed.epoch);
                self.note_changed(None, committed.epoch);
            }
            Ok(_) => {}
            Err(error) => {
                self.outbox.undo();
                self.note_trouble("the server could not commit automatic changes for now", &error);
            }
        }
    }

    /// Records an error of a change that no client asked for.
    fn note_trouble(&mut self, what: &'static str, error: &Error) {
        self.keys.notices.push(Notice::Trouble { what, error: error.to_string() });
        self.note_failure(error);
    }

    /// Returns the time until the next event is due.
    pub fn next_due(&self) -> Option<Duration> {
        let waiting = self.deadlines.first().map(|(at, _)| at.saturating_sub(self.steady));
        let is_busy = self.outbox.has_backlog() || self.keys.is_busy() || !self.readers.is_empty();
        let waiting = if is_busy { Some(1) } else { waiting };
        let looks = self.keys.has_copy() && !self.waiting_durable.is_empty() || self.leased.is_waited_for();
        let waiting = if looks { Some(waiting.map_or(LOOK, |waiting| waiting.min(LOOK))) } else { waiting };
        if let Some(pause) = self.pause {
            // Nothing expires meanwhile.
            let over = pause.until.saturating_sub(self.steady);
            return Some(Duration::from_millis(waiting.map_or(over, |waiting| waiting.min(over))));
        }
        let expiring = self.keys.next_deadline().map(|at| at.saturating_sub(self.keys.now));
        let clearing = self.keys.is_clearing_any().then_some(1);
        // A store that has stopped deletes nothing.
        let deleting = expiring.into_iter().chain(clearing).filter(|_| self.stopped.is_none());
        waiting.into_iter().chain(deleting).min().map(Duration::from_millis)
    }

    /// Records the commits that have become durable, and wakes the clients whose replies may be
    /// sent.
    pub fn note_durable(&mut self) {
        self.keys.note_durable();
        let acknowledged = self.keys.acknowledged();
        while let Some((epoch, id)) = self.promised.front().copied() {
            if epoch > acknowledged {
                break;
            }
            self.promised.pop_front();
            if let Some(client) = self.client(id) {
                client.wake();
            }
        }
        let waits = self.waiting_durable.iter().copied();
        let is_met = |id: &ClientId| {
            let wait = self.clients.get(id).and_then(|client| client.wait.as_ref());
            wait.is_some_and(|wait| self.is_met(wait.timeout_reply))
        };
        let met: Vec<ClientId> = waits.filter(is_met).collect();
        for id in met {
            self.unblock(id, None);
        }
    }

    /// Records that the store has stopped: unacknowledged commits stay unacknowledged, and it is
    /// unknown whether they took effect. Disconnects the clients that wait for such replies,
    /// because only a lost connection expresses that.
    pub fn note_stopped(&mut self, why: &str) {
        self.stopped.get_or_insert_with(|| why.to_owned());
        self.note_durable();
        let acknowledged = self.keys.acknowledged();
        for (epoch, id) in std::mem::take(&mut self.promised) {
            if epoch > acknowledged
                && let Some(client) = self.client(id)
            {
                client.is_killed = true;
                client.wake();
            }
        }
        self.outbox.drop_after(acknowledged);
        // Some of these wait for a commit that was lost, and whose reply they did not want.
        for id in std::mem::take(&mut self.waiting_durable) {
            if let Some(client) = self.client(id) {
                client.is_killed = true;
                client.wake();
            }
        }
        // Their replies may tell of such commits.
        for client in self.clients.values_mut().filter(|client| client.work.is_some()) {
            client.is_killed = true;
            client.wake();
        }
        self.keys.note_stopped();
    }

    /// Ends all connections once their replies have been sent.
    pub fn say_goodbye(&mut self) {
        self.is_leaving = true;
        self.unpause();
        while self.outbox.has_backlog() || !self.readers.is_empty() && !self.long.is_handing() {
            self.serve_readers();
            self.deliver();
        }
        let ids: Vec<ClientId> = self.clients.keys().copied().collect();
        for id in ids {
            self.unblock(id, Some("UNBLOCKED the server is stopping"));
            if let Some(client) = self.client(id) {
                client.is_leaving = true;
                client.wake();
            }
        }
    }
}
