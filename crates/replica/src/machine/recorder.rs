//! Records up to which point a backup has everything, and trims the log below.
//!
//! A record has the next number, and is created only if there is none: so an owner that was asleep
//! meets the records of later owners before it can trim anything. A record of an earlier owner that
//! comes late is below the end of its epoch, and is passed.
//!
//! The log is trimmed only below a record that is known to exist. The fence that ends an epoch
//! stays for ever: without it, an owner that was asleep would find its next place free.

use std::collections::{BTreeMap, BTreeSet};

use brooklet::io::seeded::bug;

use crate::machine::takeover::Opened;
use crate::machine::{Reply, Request};
use crate::object::Payload;
use crate::place::{Epoch, Mark, Place, Writer};
use crate::record::Record;

/// Records and trims; see the head of the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recorder {
    writer: Writer,
    /// The newest known record.
    known: Option<u64>,
    /// The place below which nothing is left but fences.
    trimmed: Place,
    ends: BTreeMap<Epoch, u64>,
    step: Step,
    asked: bool,
    /// The next place to remove; the goal if there is none.
    next: Place,
    /// Places whose removal failed, and those whose removal is under way.
    failed: BTreeSet<Place>,
    removing: BTreeSet<Place>,
    /// The place at which the trim ends.
    goal: Place,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    Create(Record),
    Look(Record),
    Fenced(Epoch),
}

/// Most removals under way.
const REMOVALS: usize = 64;

impl Recorder {
    /// Returns the recorder of an owner, from what its takeover found.
    pub fn new(opened: &Opened) -> Self {
        let Opened { writer, record, trimmed, ends, .. } = opened.clone();
        Self {
            writer,
            known: record,
            trimmed,
            ends,
            step: Step::Idle,
            asked: false,
            next: trimmed,
            failed: BTreeSet::new(),
            removing: BTreeSet::new(),
            goal: trimmed,
        }
    }

    /// Begins to record that the durable backup `backup` has everything before `mark`, a point that
    /// the [owner has kept](crate::Owner::kept). The trim behind an earlier record may still be
    /// under way. Returns `false` if the last record is not done, another owner has come, or the
    /// log begins behind the mark already.
    pub fn record(&mut self, mark: Mark, backup: u64) -> bool {
        // Two backups may end in another order than they began. A record of a point that is trimmed
        // would be damage.
        let begins = self.may_record() && mark.place >= self.goal;
        if begins {
            debug_assert_eq!(mark.place.epoch, self.writer.epoch, "an owner records its own epoch");
            let record = Record {
                number: self.known.map_or(0, |known| known + 1),
                drawn: self.writer.drawn,
                mark,
                backup,
                trimmed: self.trimmed,
                ends: self.ends.clone(),
            };
            if bug("trims-before-the-record") {
                self.trim(mark.place);
            }
            self.step = Step::Create(record);
        }
        begins
    }

    /// Returns whether the last record is done, and no other owner has come. The trim behind it may
    /// take long: the bucket may refuse to remove an object.
    pub fn may_record(&self) -> bool {
        self.step == Step::Idle
    }

    /// Returns whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.may_record() && self.has_removed_all()
    }

    fn has_removed_all(&self) -> bool {
        self.next == self.goal && self.failed.is_empty() && self.removing.is_empty()
    }

    /// Returns the epoch of a later owner, if its record was met.
    pub fn fenced_by(&self) -> Option<Epoch> {
        if let Step::Fenced(by) = self.step { Some(by) } else { None }
    }

    /// Returns the number of the newest known record.
    pub fn newest(&self) -> Option<u64> {
        self.known
    }

    /// Returns the requests that are to be sent now.
    pub fn poll<P: Payload>(&mut self) -> Vec<Request<P>> {
        let mut requests = Vec::new();
        match &self.step {
            Step::Create(record) if !self.asked => requests.push(Request::Record(record.clone())),
            Step::Look(record) if !self.asked => requests.push(Request::ReadRecord(record.number)),
            _ => {}
        }
        self.asked = matches!(self.step, Step::Create(_) | Step::Look(_));
        while self.removing.len() < REMOVALS
            && let Some(place) = self.take_place()
        {
            self.removing.insert(place);
            requests.push(Request::Remove(place));
        }
        requests
    }

    /// Takes the reply to a request.
    pub fn answer<P: Payload>(&mut self, request: &Request<P>, reply: Reply<P>) {
        if let Request::Remove(place) = request {
            if self.removing.remove(place) && reply != Reply::Done {
                self.failed.insert(*place);
            }
            self.note_trim();
            return;
        }
        self.asked = false;
        match (std::mem::replace(&mut self.step, Step::Idle), reply) {
            (Step::Create(record), Reply::Done) => self.recorded(&record),
            (Step::Create(record), Reply::Exists) => self.step = Step::Look(record),
            (Step::Look(record), Reply::Record(Some(found))) => self.looked(record, &found),
            (Step::Look(record), Reply::Record(None)) => self.step = Step::Create(record),
            (step, _) => self.step = step,
        }
    }

    fn looked(&mut self, mut record: Record, found: &Record) {
        let owner = found.mark.place.epoch;
        if *found == record {
            self.recorded(&record);
        } else if owner >= self.writer.epoch && !bug("record-is-unconditional") {
            self.step = Step::Fenced(owner);
        } else {
            self.known = Some(found.number);
            record.number = found.number + 1;
            self.step = Step::Create(record);
        }
    }

    /// The record exists: all that is before its mark may go.
    fn recorded(&mut self, record: &Record) {
        self.known = Some(record.number);
        self.trim(record.mark.place);
    }

    /// Begins to remove the places before `to`. Their number has no bound, so that they are found
    /// one after the other.
    fn trim(&mut self, to: Place) {
        self.goal = to;
        self.find_next();
        self.note_trim();
    }

    /// Moves on from a place without an object to remove: past the end of an epoch, whose fence
    /// stays.
    fn find_next(&mut self) {
        while self.next.epoch < self.goal.epoch {
            let fence = self.ends.get(&self.next.epoch).copied().unwrap_or(0);
            if self.next.number < fence + u64::from(bug("fences-are-trimmed")) {
                return;
            }
            self.next = Place::first_of(self.next.epoch.next());
        }
        self.next = self.next.min(self.goal);
    }

    /// Takes the next place to remove.
    fn take_place(&mut self) -> Option<Place> {
        let place = self.failed.pop_first();
        if place.is_some() || self.next == self.goal {
            return place;
        }
        let place = self.next;
        self.next = place.next();
        self.find_next();
        Some(place)
    }

    /// Moves the trimmed place on to the first one that is not removed. A slow bucket has removals
    /// outstanding at nearly all times, so that waiting for the last one could take for ever.
    fn note_trim(&mut self) {
        let before = self.trimmed.epoch;
        let left = self.failed.first().into_iter().chain(self.removing.first());
        self.trimmed = left.copied().fold(self.next, Place::min);
        if self.trimmed.epoch > before {
            self.ends.retain(|epoch, _| *epoch >= self.trimmed.epoch);
        }
    }
}
