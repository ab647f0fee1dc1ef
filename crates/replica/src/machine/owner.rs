//! The owner of an epoch: it appends objects to the log.
//!
//! Invariants:
//! - An object is sent with the same bytes until its fate is known. So it does not matter which of
//!   several requests had the effect, nor when.
//! - An object is released only if it and all objects before it are kept, whatever the order of the
//!   replies. A takeover finds exactly such a prefix.
//! - "Exists" says nothing about whose object exists. The owner reads the object: its own is kept;
//!   any other means that the owner is fenced, and it stops for good.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use brooklet::io::seeded::bug;

use crate::machine::{Reply, Request};
use crate::object::{Kind, Object, Payload};
use crate::place::{Epoch, Mark, Place, Writer};

/// Bounds and times of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerLimits {
    /// Most objects that are sent and not released.
    pub window: usize,
    /// Most bytes of payloads that are sent and not kept. The owner begins with fewer, and sends
    /// fewer while objects take long. A larger object is sent alone.
    pub bytes: u64,
    /// Time after which an unanswered request is sent once more, and a second for each MiB.
    pub hedge: Duration,
    /// Time without a new object after which the owner appends a beat. `None`: never.
    pub beat: Option<Duration>,
    /// Time without a kept object after which the owner makes sure that nobody has claimed the next
    /// epoch, before it releases more.
    pub doubt: Duration,
    /// Time after the begin of the last successful request during which the owner may answer
    /// linearizable reads. Must be below the silence after which followers take over.
    pub lease: Duration,
}

impl Default for OwnerLimits {
    fn default() -> Self {
        Self {
            window: 8,
            bytes: 8 << 20,
            hedge: Duration::from_secs(2),
            beat: Some(Duration::from_secs(1)),
            doubt: Duration::from_secs(60),
            lease: Duration::from_millis(1750),
        }
    }
}

/// Bytes of payloads that are sent at first, and at least, if there are so many.
const FIRST: u64 = 1 << 20;
const LEAST: u64 = 256 << 10;
/// Time of an object after which fewer bytes are sent at once: on a slow link, all of them take
/// long, and followers would take that for a silence.
const LONG: Duration = Duration::from_millis(750);

/// What an owner may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnerState {
    /// It appends.
    Serving,
    /// It has appended a handover, and accepts nothing more.
    Leaving,
    /// Another owner has ended this epoch, or an object in this epoch is not this owner's. The
    /// owner releases nothing more.
    Fenced {
        /// The epoch of the other owner.
        by: Epoch,
    },
}

/// The owner of an epoch; see the head of the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner<P> {
    writer: Writer,
    limits: OwnerLimits,
    state: OwnerState,
    /// The end of the objects that have a number.
    cut: Mark,
    /// The end of the released objects.
    kept: Mark,
    /// Payloads without a number.
    waiting: VecDeque<Waiting<P>>,
    /// The objects from `kept` to `cut`.
    flights: BTreeMap<u64, Flight<P>>,
    /// Most bytes that are under way now.
    room: u64,
    /// Released objects that the caller has not taken.
    released: Vec<Object<P>>,
    /// Whether the owner must look for a later claim before it releases more.
    doubt: Doubt,
    /// When the last number was given, and the last object was found to be kept.
    cut_at: Duration,
    kept_at: Duration,
    /// When the first request of the newest released object was sent.
    confirmed: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting<P> {
    kind: Kind,
    begin: u64,
    end: u64,
    payload: P,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Flight<P> {
    object: Object<P>,
    stage: Stage,
    first_at: Duration,
    last_at: Duration,
    /// Requests since the last reply.
    under_way: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    ToSend,
    Sent,
    /// An object exists at the place: whose?
    ToLook,
    Looking,
    Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doubt {
    None,
    ToLook,
    Looking,
}

impl<P: Payload> Owner<P> {
    /// Returns the owner of an epoch that a takeover has opened. `end` is the end of the log as the
    /// takeover found it; the owner's first object follows it.
    pub fn new(writer: Writer, end: Mark, limits: OwnerLimits, now: Duration) -> Self {
        let begin = Mark { place: Place::first_of(writer.epoch), ..end };
        Self {
            writer,
            limits,
            state: OwnerState::Serving,
            cut: begin,
            kept: begin,
            waiting: VecDeque::new(),
            flights: BTreeMap::new(),
            room: FIRST.min(limits.bytes),
            released: Vec::new(),
            doubt: Doubt::None,
            cut_at: now,
            kept_at: now,
            confirmed: None,
        }
    }

    /// Returns the state of the owner.
    pub fn state(&self) -> OwnerState {
        self.state
    }

    /// Returns the end of the released objects.
    pub fn kept(&self) -> Mark {
        self.kept
    }

    /// Returns whether a short payload that is offered would get a number at once.
    pub fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.fits(1)
    }

    /// Returns the bytes of payloads that are sent and not kept.
    fn under_way(&self) -> u64 {
        let flights = self.flights.values().filter(|flight| flight.stage != Stage::Kept);
        flights.map(|flight| flight.object.payload.len()).sum()
    }

    /// Returns whether a payload of so many bytes may be sent now.
    fn fits(&self, bytes: u64) -> bool {
        let sent = self.under_way();
        self.flights.len() < self.limits.window && (sent == 0 || sent + bytes <= self.room)
    }

    /// Returns the released objects since the last call, in their order.
    pub fn take_released(&mut self) -> Vec<Object<P>> {
        std::mem::take(&mut self.released)
    }

    /// Returns the end of the lease: a read that ended before is linearizable. No other owner can
    /// have acknowledged a write before the read began, except one that took over without waiting
    /// for this owner's silence. Returns `None` if there is no lease.
    pub fn lease(&self) -> Option<Duration> {
        // After a doubt, the newest object may have the place of a fence that was deleted. After a
        // handover, nobody waits for a silence.
        let serves = self.state == OwnerState::Serving && self.doubt == Doubt::None;
        self.confirmed.filter(|_| serves).map(|began| began + self.limits.lease)
    }

    /// Appends blocks from `begin` to `end` of the store's log. Returns `false`, and appends
    /// nothing, if the owner serves no longer.
    pub fn offer(&mut self, begin: u64, end: u64, payload: P) -> bool {
        self.push(Waiting { kind: Kind::Blocks, begin, end, payload })
    }

    /// Appends a handover, and then nothing more. Returns `false` if the owner serves no longer.
    pub fn hand_over(&mut self, to: P) -> bool {
        let end = self.end();
        let pushed = self.push(Waiting { kind: Kind::Handover, begin: end, end, payload: to });
        if pushed {
            self.state = OwnerState::Leaving;
        }
        pushed
    }

    fn push(&mut self, waiting: Waiting<P>) -> bool {
        debug_assert!(self.end() <= waiting.begin && waiting.begin <= waiting.end, "blocks have an order");
        let serves = self.state == OwnerState::Serving;
        if serves {
            self.waiting.push_back(waiting);
        }
        serves
    }

    /// Returns the end of all offered blocks.
    fn end(&self) -> u64 {
        self.waiting.back().map_or(self.cut.lsn, |last| last.end)
    }

    /// Returns the requests that are to be sent now. To be called after each other call, and at
    /// least a few times a second.
    pub fn poll(&mut self, now: Duration) -> Vec<Request<P>> {
        if matches!(self.state, OwnerState::Fenced { .. }) {
            return Vec::new();
        }
        self.beat(now);
        while self.waiting.front().is_some_and(|next| self.fits(next.payload.len()))
            && let Some(waiting) = self.waiting.pop_front()
        {
            self.number(waiting, now);
        }
        let mut requests = Vec::new();
        for flight in self.flights.values_mut() {
            // Sent twice, a long object takes twice as long on a slow link.
            let longer = Duration::from_secs(flight.object.payload.len() >> 20);
            let hedge = self.limits.hedge.saturating_add(longer);
            let hedged = flight.stage == Stage::Sent
                && flight.under_way == 1
                && now >= flight.last_at.saturating_add(hedge);
            match flight.stage {
                Stage::ToSend => flight.under_way = 1,
                Stage::Sent if hedged => flight.under_way = 2,
                Stage::ToLook => {
                    flight.stage = Stage::Looking;
                    requests.push(Request::Read(flight.object.place));
                    continue;
                }
                _ => continue,
            }
            flight.stage = Stage::Sent;
            flight.last_at = now;
            requests.push(Request::Create(flight.object.clone()));
        }
        if self.doubt == Doubt::ToLook {
            self.doubt = Doubt::Looking;
            requests.push(Request::ReadClaim(self.writer.epoch.next()));
        }
        requests
    }

    /// Appends a beat if nothing else shows that the owner lives, or begins its lease.
    fn beat(&mut self, now: Duration) {
        let idle = self.waiting.is_empty() && self.flights.is_empty();
        let is_first = self.confirmed.is_none();
        let due = self.limits.beat.is_some_and(|beat| is_first || now >= self.cut_at + beat);
        if idle && due && self.state == OwnerState::Serving {
            let end = self.cut.lsn;
            self.waiting.push_back(Waiting { kind: Kind::Beat, begin: end, end, payload: P::empty() });
        }
    }

    /// Gives the next number to a payload.
    fn number(&mut self, waiting: Waiting<P>, now: Duration) {
        let Writer { store, epoch, drawn } = self.writer;
        let Waiting { kind, begin, end, payload } = waiting;
        if kind == Kind::Beat {
            // The link may be another one after a pause.
            self.room = self.room.min(FIRST);
        }
        let (place, previous) = (self.cut.place, self.cut.chain);
        let object = Object { place, by: epoch, drawn, kind, begin, end, previous, payload };
        self.cut = Mark { place: place.next(), lsn: end, chain: object.sum(store) };
        self.cut_at = now;
        let flight = Flight { object, stage: Stage::ToSend, first_at: now, last_at: now, under_way: 0 };
        self.flights.insert(place.number, flight);
    }

    /// Takes the reply to a request.
    pub fn answer(&mut self, request: &Request<P>, reply: Reply<P>, now: Duration) {
        match (request, reply) {
            _ if matches!(self.state, OwnerState::Fenced { .. }) => {}
            (Request::Create(object), reply) => self.created(object.place.number, &reply, now),
            (Request::Read(place), Reply::Object(found)) => self.looked(place.number, found, now),
            (Request::Read(place), _) => self.turn(place.number, Stage::Looking, Stage::ToLook),
            (Request::ReadClaim(_), Reply::Claim(None)) => {
                self.doubt = Doubt::None;
                self.release();
            }
            (Request::ReadClaim(_), Reply::Claim(Some(claim))) => self.fence(claim.writer.epoch),
            (Request::ReadClaim(_), _) => self.doubt = Doubt::ToLook,
            _ => {}
        }
    }

    fn created(&mut self, number: u64, reply: &Reply<P>, now: Duration) {
        match reply {
            Reply::Done => {
                self.pace(number, now);
                self.keep(number, now);
            }
            Reply::Exists if bug("exists-is-mine") => self.keep(number, now),
            Reply::Exists => self.turn(number, Stage::Sent, Stage::ToLook),
            _ => {
                if bug("other-bytes-on-retry") {
                    self.swap(number);
                }
                self.turn(number, Stage::Sent, Stage::ToSend);
            }
        }
    }

    fn looked(&mut self, number: u64, found: Option<Object<P>>, now: Duration) {
        match found {
            Some(found) if self.flights.get(&number).is_some_and(|flight| flight.object == found) => {
                self.pace(number, now);
                self.keep(number, now);
            }
            // A reply that comes late: the object is known to be kept, and may be trimmed since.
            _ if self.flights.get(&number).is_none_or(|flight| flight.stage == Stage::Kept) => {}
            Some(other) => self.fence(other.by),
            None => self.turn(number, Stage::Looking, Stage::ToSend),
        }
    }

    /// Learns by the time that an object took how many bytes may be under way.
    fn pace(&mut self, number: u64, now: Duration) {
        let is_new = |flight: &&Flight<P>| flight.stage != Stage::Kept;
        let Some(flight) = self.flights.get(&number).filter(is_new) else { return };
        if now.saturating_sub(flight.first_at) > LONG {
            self.room = (self.room / 2).max(LEAST.min(self.limits.bytes));
        } else if 2 * self.under_way() >= self.room {
            // Only much that was quick shows that more would be.
            self.room = (self.room + flight.object.payload.len()).min(self.limits.bytes);
        }
    }

    /// Moves a flight on, unless another reply has done so.
    fn turn(&mut self, number: u64, from: Stage, to: Stage) {
        if let Some(flight) = self.flights.get_mut(&number).filter(|flight| flight.stage == from) {
            flight.stage = to;
            flight.under_way = 0;
        }
    }

    fn keep(&mut self, number: u64, now: Duration) {
        let Some(flight) = self.flights.get_mut(&number).filter(|flight| flight.stage != Stage::Kept) else {
            return;
        };
        flight.stage = Stage::Kept;
        if bug("acks-out-of-order") {
            self.released.push(flight.object.clone());
        }
        if now >= self.kept_at.saturating_add(self.limits.doubt) && self.doubt == Doubt::None {
            self.doubt = Doubt::ToLook;
        }
        self.kept_at = now;
        self.release();
    }

    /// Releases the kept objects that follow the released ones.
    fn release(&mut self) {
        while self.doubt == Doubt::None
            && let Some(first) = self.flights.first_entry().filter(|first| first.get().stage == Stage::Kept)
        {
            let Flight { object, first_at, .. } = first.remove();
            // Followers see no object behind a hole, so such an object is no sign of this owner.
            self.confirmed = self.confirmed.max(Some(first_at));
            let chain = object.sum(self.writer.store);
            self.kept = Mark { place: object.place.next(), lsn: object.end, chain };
            if !bug("acks-out-of-order") {
                self.released.push(object);
            }
        }
    }

    fn fence(&mut self, by: Epoch) {
        self.state = OwnerState::Fenced { by };
    }

    /// A deliberate defect: the cut is made anew, with what waits by now.
    fn swap(&mut self, number: u64) {
        if let (Some(flight), Some(next)) = (self.flights.get_mut(&number), self.waiting.front_mut())
            && self.cut.place.number == number + 1
        {
            std::mem::swap(&mut flight.object.payload, &mut next.payload);
            self.cut.chain = flight.object.sum(self.writer.store);
        }
    }
}
