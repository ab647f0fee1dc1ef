//! A changer: it brings one change into the map of a cluster, beside others that change it.
//!
//! 1. Find the newest map, and apply the change to it.
//! 2. Create the result under the next number, unless that number is taken.
//! 3. "Exists", or no answer: look whose map has the number. The own one: done. None: create the
//!    same bytes again. Another's: go back to 1, because the change may not fit that map.

use brooklet::io::seeded::bug;

use crate::cluster::change::Change;
use crate::map::Map;
use crate::place::Drawn;
use crate::refusal::Refusal;

/// A request of a changer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// Find the newest map, from this known one on. Maps have all numbers from 1 on.
    Newest(Option<Map>),
    /// Create a map, unless one of its number exists.
    Create(Map),
    /// Read the map of a number.
    Read(u64),
}

/// The reply to a request of a changer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// The map was created.
    Done,
    /// The map was not created. One may exist, or the service was busy with another request.
    Exists,
    /// The request failed, or nobody answered in time. It may have had its effect, and may have it
    /// later.
    Unknown,
    /// The map, if there is one.
    Map(Option<Map>),
}

/// How a change ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Changed {
    /// The newest map that is known has the change.
    Done(Map),
    /// The change does not fit the newest map.
    Refused(Refusal),
}

/// A changer; see the head of the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Changer {
    change: Change,
    drawn: Drawn,
    step: Step,
    asked: bool,
    known: Option<Map>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Find,
    Create(Map),
    Look(Map),
    Ended(Changed),
}

impl Changer {
    /// Returns a changer. `drawn` is a random number that nobody else draws; `known` is a map that
    /// exists.
    pub fn new(change: Change, drawn: Drawn, known: Option<Map>) -> Self {
        Self { change, drawn, step: Step::Find, asked: false, known }
    }

    /// Returns how it ended, or `None` while it goes on.
    pub fn end(&self) -> Option<&Changed> {
        if let Step::Ended(end) = &self.step { Some(end) } else { None }
    }

    /// Returns the request that is to be sent now, if any.
    pub fn poll(&mut self) -> Option<Asked> {
        if self.asked {
            return None;
        }
        self.asked = true;
        Some(match &self.step {
            Step::Find => Asked::Newest(self.known.clone()),
            Step::Create(map) => Asked::Create(map.clone()),
            Step::Look(map) => Asked::Read(map.number),
            Step::Ended(_) => return None,
        })
    }

    /// Takes the reply to the last request.
    pub fn answer(&mut self, heard: Heard) {
        self.asked = false;
        match (self.step.clone(), heard) {
            (Step::Find, Heard::Map(newest)) => self.found(newest),
            (Step::Create(map), Heard::Done) => self.step = Step::Ended(Changed::Done(map)),
            (Step::Create(map), Heard::Exists) if bug("a-map-that-exists-is-mine") => {
                self.step = Step::Ended(Changed::Done(map));
            }
            (Step::Create(_), Heard::Unknown) if bug("an-unheard-map-is-made-anew") => self.step = Step::Find,
            (Step::Create(map), _) => self.step = Step::Look(map),
            (Step::Look(map), Heard::Map(None)) => self.step = Step::Create(map),
            (Step::Look(map), Heard::Map(Some(found))) if found == map => {
                self.step = Step::Ended(Changed::Done(map));
            }
            (Step::Look(map), Heard::Map(Some(found))) if bug("a-loser-forgets-the-winner") => {
                self.step = Step::Create(Map { number: found.number + 1, ..map });
            }
            (Step::Look(_), Heard::Map(Some(found))) => {
                (self.known, self.step) = (Some(found), Step::Find);
            }
            _ => {}
        }
    }

    fn found(&mut self, newest: Option<Map>) {
        let changed = match (&newest, &self.change) {
            (None, Change::Begin) => Ok(Some(Map::first(self.drawn))),
            _ => self.change.apply(newest.as_ref()),
        };
        self.step = match changed {
            Ok(Some(map)) => {
                let number = newest.as_ref().map_or(1, |newest| newest.number + 1);
                Step::Create(Map { number, drawn: self.drawn, ..map })
            }
            Ok(None) => Step::Ended(Changed::Done(newest.clone().expect("a map that is as it must be"))),
            Err(refusal) => Step::Ended(Changed::Refused(refusal)),
        };
        self.known = newest;
    }
}
