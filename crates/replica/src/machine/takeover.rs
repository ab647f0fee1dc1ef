//! A takeover: it makes its caller the owner of a store's log, and finds all that earlier owners
//! released.
//!
//! 1. Create the claim of the next epoch.
//! 2. Find the newest record. If its epoch is later than the claimed one, a later owner has been
//!    here: stop.
//! 3. Read on from the record's place. Put a fence into the first hole. A live owner may be faster
//!    than the fence again and again, or even faster than the reading. So after a few objects put a
//!    second fence some places ahead of the owner, which bounds the race.
//! 4. At the fence, look for a newer record. If there is one, the hole may be a trimmed place: go
//!    back to 2.
//! 5. Go on with the next epoch, up to the claimed one.

use std::collections::BTreeMap;

use brooklet::io::seeded::bug;

use crate::claim::Claim;
use crate::machine::{Reply, Request};
use crate::object::{Object, Payload};
use crate::place::{Drawn, Epoch, Mark, Place, StoreId, Writer};
use crate::record::Record;

/// Bounds of a takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TakeoverLimits {
    /// Number of objects of an epoch that are read before a fence is put ahead of the owner.
    pub objects: u32,
    /// Distance of that fence from the place that was read last. It doubles while the owner is
    /// further.
    pub ahead: u64,
}

impl Default for TakeoverLimits {
    fn default() -> Self {
        Self { objects: 4, ahead: 64 }
    }
}

/// A finding of a takeover.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Found<P> {
    /// The log begins behind this record, or at its very beginning. All that was found before does
    /// not count.
    Begin(Option<Record>),
    /// The next object, which is no fence.
    Object(Object<P>),
}

/// How a takeover ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TakeoverEnd {
    /// The caller is the owner.
    Opened(Opened),
    /// Another host claimed the epoch at the same time.
    Outbid(Claim),
    /// A later owner has recorded a backup already.
    TooLate {
        /// The epoch of that owner.
        owner: Epoch,
    },
    /// The object at this place does not follow the one before it, or belongs to nobody.
    Broken(Place),
}

/// An opened log, from which [`Owner::new`](crate::Owner::new) and
/// [`Recorder::new`](crate::Recorder::new) go on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Opened {
    /// The identity of the new owner.
    pub writer: Writer,
    /// The end of the log.
    pub end: Mark,
    /// The number drawn by the last owner before, if objects of it were found.
    pub last_writer: Option<Drawn>,
    /// Number of the newest record.
    pub record: Option<u64>,
    /// The place up to which the log is trimmed at least.
    pub trimmed: Place,
    /// Numbers of the fences that end the epochs from `trimmed` on.
    pub ends: BTreeMap<Epoch, u64>,
}

/// A takeover; see the head of the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Takeover<P> {
    writer: Writer,
    owner: String,
    address: String,
    limits: TakeoverLimits,
    step: Step,
    /// Whether the request of this step is under way.
    asked: bool,
    record: Option<u64>,
    trimmed: Place,
    ends: BTreeMap<Epoch, u64>,
    at: Mark,
    last_writer: Option<Drawn>,
    /// Objects that were read in this epoch, and whether there is a fence ahead.
    objects: u32,
    is_bounded: bool,
    found: Vec<Found<P>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    FindClaim,
    Claim,
    LookAtClaim,
    FindRecord,
    Read,
    Fence,
    FenceAhead(u64),
    LookAhead(u64),
    /// A fence is at the place.
    LookAgain,
    /// The object at the place does not follow.
    LookWhy,
    Ended(TakeoverEnd),
}

impl<P: Payload> Takeover<P> {
    /// Returns a takeover of a store's log. `drawn` is a random number that nobody else draws. The
    /// claim reports `owner` and `address` to other hosts.
    pub fn new(store: StoreId, drawn: Drawn, owner: &str, address: &str, limits: TakeoverLimits) -> Self {
        Self {
            writer: Writer { store, epoch: Epoch::FIRST, drawn },
            owner: owner.into(),
            address: address.into(),
            limits,
            step: Step::FindClaim,
            asked: false,
            record: None,
            trimmed: Mark::BEGIN.place,
            ends: BTreeMap::new(),
            at: Mark::BEGIN,
            last_writer: None,
            objects: 0,
            is_bounded: false,
            found: Vec::new(),
        }
    }

    /// Returns how it ended, or `None` while it goes on.
    pub fn end(&self) -> Option<&TakeoverEnd> {
        if let Step::Ended(end) = &self.step { Some(end) } else { None }
    }

    /// Returns the findings since the last call, in order.
    pub fn take_found(&mut self) -> Vec<Found<P>> {
        std::mem::take(&mut self.found)
    }

    /// Returns the request that is to be sent now, if any.
    pub fn poll(&mut self) -> Option<Request<P>> {
        if self.asked {
            return None;
        }
        self.asked = true;
        let ahead = |number| Place { number, ..self.at.place };
        Some(match &self.step {
            Step::FindClaim => Request::NewestClaim,
            Step::Claim => Request::Claim(self.claim()),
            Step::LookAtClaim => Request::ReadClaim(self.writer.epoch),
            Step::FindRecord | Step::LookAgain | Step::LookWhy => Request::NewestRecord(self.record),
            Step::Read => Request::Read(self.at.place),
            Step::Fence => Request::Create(Object::fence(&self.writer, self.at.place)),
            Step::FenceAhead(number) => Request::Create(Object::fence(&self.writer, ahead(*number))),
            Step::LookAhead(number) => Request::Read(ahead(*number)),
            Step::Ended(_) => return None,
        })
    }

    fn claim(&self) -> Claim {
        Claim { writer: self.writer, owner: self.owner.clone(), address: self.address.clone() }
    }

    /// Takes the reply to the request of this step. A request with an unknown fate is sent again.
    pub fn answer(&mut self, reply: Reply<P>) {
        self.asked = false;
        match (self.step.clone(), reply) {
            (Step::Ended(_), _) | (_, Reply::Unknown) => {}
            (Step::FindClaim, Reply::Claim(newest)) => {
                self.writer.epoch = newest.map_or(Epoch::FIRST, |claim| claim.writer.epoch.next());
                self.step = Step::Claim;
            }
            (Step::Claim, Reply::Done) => self.step = Step::FindRecord,
            (Step::Claim, _) => self.step = Step::LookAtClaim,
            (Step::LookAtClaim, Reply::Claim(Some(claim))) => {
                let mine = claim.writer == self.writer;
                self.step = if mine { Step::FindRecord } else { Step::Ended(TakeoverEnd::Outbid(claim)) };
            }
            (Step::LookAtClaim, _) => self.step = Step::Claim,
            (Step::FindRecord, Reply::Record(newest)) => self.begin(newest),
            (Step::Read, Reply::Object(Some(object))) => self.read(object),
            (Step::Read, _) => self.step = Step::Fence,
            (Step::Fence, Reply::Done) => self.step = Step::LookAgain,
            (Step::Fence, _) => self.step = Step::Read,
            (Step::FenceAhead(_), Reply::Done) => self.bounded(),
            (Step::FenceAhead(number), _) => self.step = Step::LookAhead(number),
            (Step::LookAhead(_), Reply::Object(Some(object))) if object.is_fence() => self.bounded(),
            (Step::LookAhead(number), Reply::Object(Some(_))) => {
                self.step = Step::FenceAhead(2 * number - self.at.place.number);
            }
            (Step::LookAhead(number), _) => self.step = Step::FenceAhead(number),
            (Step::LookAgain | Step::LookWhy, Reply::Record(newest)) => self.looked(newest),
            _ => {}
        }
    }

    /// Begins behind a record.
    fn begin(&mut self, record: Option<Record>) {
        if let Some(record) = &record {
            let owner = record.mark.place.epoch;
            if owner > self.writer.epoch && !bug("late-claimant") {
                self.step = Step::Ended(TakeoverEnd::TooLate { owner });
                return;
            }
            self.record = Some(record.number);
            (self.trimmed, self.ends, self.at) = (record.trimmed, record.ends.clone(), record.mark);
            self.last_writer = Some(record.drawn);
        }
        (self.objects, self.is_bounded) = (0, false);
        self.found = vec![Found::Begin(record)];
        self.read_on();
    }

    /// Reads the next place, or ends at the claimed epoch.
    fn read_on(&mut self) {
        self.step = Step::Read;
        if self.at.place.epoch >= self.writer.epoch {
            let Self { writer, at: end, last_writer, record, trimmed, .. } = *self;
            let ends = self.ends.clone();
            let opened = Opened { writer, end, last_writer, record, trimmed, ends };
            self.step = Step::Ended(TakeoverEnd::Opened(opened));
        }
    }

    fn read(&mut self, object: Object<P>) {
        if object.is_fence() {
            self.step = Step::LookAgain;
        } else if object.previous != self.at.chain || object.begin < self.at.lsn {
            self.step = Step::LookWhy;
        } else {
            let chain = object.sum(self.writer.store);
            self.at = Mark { place: object.place.next(), lsn: object.end, chain };
            self.last_writer = Some(object.drawn);
            self.found.push(Found::Object(object));
            self.objects += 1;
            if self.objects > self.limits.objects && !self.is_bounded {
                self.step = Step::FenceAhead(self.at.place.number + self.limits.ahead);
            }
        }
    }

    fn bounded(&mut self) {
        self.is_bounded = true;
        self.step = Step::Read;
    }

    /// Goes on after the second look.
    fn looked(&mut self, newest: Option<Record>) {
        let number = newest.as_ref().map(|record| record.number);
        if number != self.record && !bug("no-second-look") {
            self.begin(newest);
        } else if self.step == Step::LookWhy {
            self.step = Step::Ended(TakeoverEnd::Broken(self.at.place));
        } else {
            let Place { epoch, number } = self.at.place;
            self.ends.insert(epoch, number);
            self.at.place = Place::first_of(epoch.next());
            (self.objects, self.is_bounded) = (0, false);
            self.read_on();
        }
    }
}
