//! A follower: it reads the log behind its owner, and notices that the owner is silent, has left,
//! or has been replaced.
//!
//! All that a follower reads is in the log for good: a hole ends its reading, and so does a fence.
//! Before the follower trusts either, it looks whether the log was trimmed past its place.
//!
//! A host that takes the store over appends nothing while it reads the log. So a follower that
//! finds a new claim waits once more, and twice as long: hosts that wait equally long would else
//! claim the store from one another for ever.

use std::time::Duration;

use crate::machine::{Reply, Request};
use crate::object::{Kind, Object, Payload};
use crate::place::{Epoch, Mark, Place, StoreId};
use crate::record::Record;

/// The state of a follower.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FollowerState {
    /// It reads the objects that the owner appends.
    Following,
    /// No new object came during the time of silence: replace the owner. Reading goes on.
    Silent,
    /// The owner has left the store to another host, or to this one: see the last object.
    HandedOver,
    /// The log was trimmed past the follower's place. It must begin anew, behind a backup.
    Behind,
    /// The object at this place does not follow the one before it.
    Broken(Place),
}

/// A follower; see the head of the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Follower<P> {
    store: StoreId,
    at: Mark,
    /// The newest known record, and its place.
    record: Option<u64>,
    mark: Place,
    silence: Duration,
    /// The silence that counts now: it is longer while somebody takes the store over.
    patience: Duration,
    /// The newest claim for which it was made longer.
    claim: Epoch,
    state: FollowerState,
    step: Step,
    asked: bool,
    /// When the last new object was read.
    seen_at: Duration,
    found: Vec<Object<P>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Read,
    /// A fence is at the place, or a hole has been there for long.
    Look {
        fence: bool,
    },
    /// A hole has been there for long, and nothing was trimmed.
    LookForClaim,
}

/// The longest patience, in silences.
const MOST_PATIENCE: u32 = 16;

impl<P: Payload> Follower<P> {
    /// Returns a follower that goes on from a point of the log, and knows the record of number
    /// `record`. After `silence` without a new object, it takes the owner for gone: by default 3
    /// seconds, which must be well above the lease and the beat of owners.
    pub fn new(store: StoreId, at: Mark, record: Option<u64>, silence: Duration, now: Duration) -> Self {
        Self {
            store,
            at,
            record,
            mark: at.place,
            silence,
            patience: silence,
            claim: Epoch(0),
            state: FollowerState::Following,
            step: Step::Read,
            asked: false,
            seen_at: now,
            found: Vec::new(),
        }
    }

    /// Returns a follower that waits for the next owner, or for its silence, behind a handover.
    pub(crate) fn past_the_handover(self) -> Self {
        Self { state: FollowerState::Following, ..self }
    }

    /// Returns the state of the follower.
    pub fn state(&self) -> &FollowerState {
        &self.state
    }

    /// Returns the point up to which the follower has read.
    pub fn at(&self) -> Mark {
        self.at
    }

    /// Returns the reading of the clock when the last new object was read.
    pub fn seen(&self) -> Duration {
        self.seen_at
    }

    /// Begins the silence anew: the log was not looked at for a while.
    pub fn begin_again(&mut self, now: Duration) {
        self.seen_at = now;
    }

    /// Returns the number of the newest known record.
    pub(crate) fn record(&self) -> Option<u64> {
        self.record
    }

    /// Returns the number of a record without which the log was not trimmed past the place.
    pub(crate) fn doubted(&self) -> u64 {
        let is_past = self.mark > self.at.place;
        self.record.map_or(0, |record| if is_past { record } else { record + 1 })
    }

    /// Looks next whether the log was trimmed past the place.
    pub(crate) fn look(&mut self) {
        if self.step == Step::Read && !self.asked {
            self.step = Step::Look { fence: false };
        }
    }

    /// Returns the objects since the last call, in order.
    pub fn take_found(&mut self) -> Vec<Object<P>> {
        std::mem::take(&mut self.found)
    }

    /// Returns the request that is to be sent now, if any. The caller decides how often it asks.
    pub fn poll(&mut self) -> Option<Request<P>> {
        if self.asked || matches!(self.state, FollowerState::Behind | FollowerState::Broken(_)) {
            return None;
        }
        self.asked = true;
        Some(match self.step {
            Step::Read => Request::Read(self.at.place),
            Step::Look { .. } => Request::NewestRecord(self.record),
            Step::LookForClaim => Request::NewestClaim,
        })
    }

    /// Takes the reply to the last request, which was sent at `asked`. A reply that finds nothing
    /// speaks of that time: the follower itself may have slept since.
    pub fn answer(&mut self, reply: Reply<P>, asked: Duration, now: Duration) {
        self.asked = false;
        match (self.step, reply) {
            // The silence of the bucket is not that of the owner.
            (step, Reply::Unknown) => {
                self.seen_at = now;
                self.step = if step == (Step::Look { fence: true }) { step } else { Step::Read };
            }
            (Step::Read, Reply::Object(Some(object))) if object.is_fence() => {
                // The claimant for whom the follower was patient has gone on, or ends here.
                (self.seen_at, self.patience) = (now, self.silence);
                self.step = Step::Look { fence: true };
            }
            (Step::Read, Reply::Object(Some(object))) => self.read(object, now),
            // A library may have tried again for long, while the bucket was silent for all.
            (Step::Read, Reply::Object(None)) if now.saturating_sub(asked) >= self.silence / 2 => {
                self.seen_at = now;
            }
            (Step::Read, Reply::Object(None)) if asked >= self.seen_at.saturating_add(self.patience) => {
                self.step = Step::Look { fence: false };
            }
            (Step::Look { fence }, Reply::Record(newest)) => {
                self.record = newest.as_ref().map(|record| record.number);
                self.mark = newest.as_ref().map_or(self.mark, |record| record.mark.place);
                if newest.is_some_and(|record| self.is_behind(&record, fence)) {
                    (self.step, self.state) = (Step::Read, FollowerState::Behind);
                } else if fence {
                    self.at.place = Place::first_of(self.at.place.epoch.next());
                    (self.step, self.state) = (Step::Read, FollowerState::Following);
                } else {
                    self.step = Step::LookForClaim;
                }
            }
            (Step::LookForClaim, Reply::Claim(newest)) => {
                self.step = Step::Read;
                let newest = newest.map_or(Epoch(0), |claim| claim.writer.epoch);
                if newest > self.at.place.epoch.max(self.claim) {
                    (self.claim, self.seen_at) = (newest, now);
                    self.patience = (2 * self.patience).min(MOST_PATIENCE * self.silence);
                } else if self.state == FollowerState::Following {
                    self.state = FollowerState::Silent;
                }
            }
            _ => {}
        }
    }

    /// Returns whether the place may have been trimmed. A fence that ends its epoch is never
    /// trimmed.
    fn is_behind(&self, record: &Record, fence: bool) -> bool {
        let Place { epoch, number } = self.at.place;
        let ends_here = fence && record.ends.get(&epoch) == Some(&number);
        record.mark.place > self.at.place && !ends_here
    }

    fn read(&mut self, object: Object<P>, now: Duration) {
        if object.previous != self.at.chain {
            self.state = FollowerState::Broken(object.place);
            return;
        }
        (self.seen_at, self.patience) = (now, self.silence);
        self.at = Mark { place: object.place.next(), lsn: object.end, chain: object.sum(self.store) };
        let handed = object.kind == Kind::Handover;
        self.state = if handed { FollowerState::HandedOver } else { FollowerState::Following };
        self.found.push(object);
    }
}
