//! Admission: what boards must find room in the heap when its tier is checkpointed.
//!
//! The naive way is to ask the heap at every commit. But the heap is the keeper's, and nobody waits for that under the
//! front's lock. So the keeper tells, with every slice of its work, how much a checkpoint can write for certain
//! ([`Told`]); and what has boarded and is in no run yet claims the most that it may take there ([`Front::claims`]).
//!
//! Who finds no room *asks*, and waits. The keeper then does what may make some: it grows the volume, checkpoints, merges.
//! Once there is nothing left to do it *answers*, and who asked before that and still finds no room is refused. So nobody
//! waits for nothing, and nobody is refused while waiting helps.
//!
//! Invariants:
//! 1. What boards leaves the reserve free, out of which merging and the next manifest take their room; what only frees may
//!    take three quarters of it. So claims never exceed what a checkpoint can write.
//! 2. `answered <= asked`; both only grow.

use brooklet_io::seeded::bug;

use super::{Front, Refused};
use crate::commit::{Action, Op};
use crate::error::Error;
use crate::model::Effect;
use crate::pressure::Gauge;

/// What the keeper tells of the heap, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// What checkpoints can write for certain, the one going on included, as long as no entry of a run is larger than `largest`.
    pub usable: u64,
    pub largest: usize,
    /// The part of that which is kept for merging.
    pub reserve: u64,
    /// What the heap could have at most; the largest number there is where the volume sets no bound.
    pub most: u64,
    /// With claims beyond this the keeper wants to look, so as to make space before it is needed.
    pub look_at: u64,
    /// Where merging may free something: appends are slowed down while less than this is left to them.
    pub slope: u64,
}

/// What a commit that found no room needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub cost: u64,
    pub largest: usize,
    pub freeing: bool,
}

/// What the keeper must see to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// What is in memory only, and may take so much in runs.
    pub claims: u64,
    /// The part of it that still boards, and nobody writes yet.
    pub active: u64,
    /// The largest entry of a run, of what boarded and what wishes to.
    pub largest: usize,
    /// Whoever waits, and the number of asking.
    pub wish: Option<Wish>,
    pub asked: u64,
}

/// Somebody waits, and finds no room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Press {
    /// With a commit that only frees: then whatever makes room is worth it.
    pub frees: bool,
}

/// The front's side of it.
#[derive(Debug, Default)]
pub(crate) struct Room {
    told: Told,
    wish: Option<Wish>,
    /// Whether one of those who wait only frees.
    frees: bool,
    asked: u64,
    answered: u64,
    /// How many of those who asked have not gone on yet. As long as there are any, what they wish counts.
    waiting: u64,
    /// Why the volume does not grow.
    why: String,
}

impl Room {
    /// Takes note of what the keeper tells.
    pub fn tell(&mut self, told: Told) {
        self.told = told;
    }

    /// Whether a commit finds room beside these claims.
    fn admits(&self, claims: u64, wish: Wish) -> bool {
        let Told { usable, largest, reserve, .. } = self.told;
        let kept = match wish.freeing {
            _ if bug("reserve-not-kept") => 0,
            true => reserve / 4,
            false => reserve,
        };
        wish.largest <= largest && claims.saturating_add(wish.cost).saturating_add(kept) <= usable
    }

    /// Asks for room; `asked` is the number of an earlier asking. `Err` where that one was answered.
    pub fn ask(&mut self, asked: Option<u64>, wish: Wish) -> Result<u64, Error> {
        if asked.is_some_and(|asked| asked <= self.answered) {
            return Err(self.full(wish));
        }
        let all = self.wish.get_or_insert(Wish { freeing: true, ..wish });
        all.cost = all.cost.max(wish.cost);
        all.largest = all.largest.max(wish.largest);
        all.freeing &= wish.freeing;
        self.frees |= wish.freeing;
        Ok(asked.unwrap_or_else(|| {
            self.waiting += 1;
            self.asked += 1;
            self.asked
        }))
    }

    /// Nothing more can be done for those who have asked; `why` the volume does not grow.
    pub fn answer(&mut self, why: &str) {
        self.answered = self.asked;
        why.clone_into(&mut self.why);
    }

    /// Somebody who asked goes on, on board or refused.
    pub fn leave(&mut self) {
        self.waiting -= 1;
        if self.waiting == 0 {
            (self.wish, self.frees, self.answered) = (None, false, self.asked);
        }
    }

    /// Whether somebody waits for an answer.
    pub fn is_asked(&self) -> bool {
        self.answered < self.asked
    }

    /// Why a commit is refused.
    pub fn full(&self, wish: Wish) -> Error {
        let Told { usable, reserve, .. } = self.told;
        let reason = if self.why.is_empty() { "" } else { ", and " };
        let why = format!(
            "it may take {} bytes, the heap has {usable} left, {reserve} of them kept for making room{reason}{}",
            wish.cost, self.why
        );
        Error::Full { what: "the commit in the heap", why }
    }
}

impl Front {
    /// What is in memory only may take so many bytes in runs.
    pub fn claims(&self) -> u64 {
        self.tiers().map(|tier| tier.bound()).sum()
    }

    /// How near appends are to finding no room.
    pub fn gauge(&self) -> Gauge {
        let Told { usable, reserve, slope, .. } = self.room.told;
        Gauge { left: usable.saturating_sub(reserve).saturating_sub(self.claims()), slope }
    }

    /// Whether the keeper should look after room: there will soon be too little, or somebody waits for it.
    pub fn wants_room(&self) -> bool {
        self.claims() > self.room.told.look_at || self.room.is_asked()
    }

    pub fn need(&self) -> Need {
        let wish = self.room.wish;
        let largest = self.tiers().map(|tier| tier.largest()).max().unwrap_or_default();
        Need {
            claims: self.claims(),
            active: self.active.bound(),
            largest: largest.max(wish.map_or(0, |wish| wish.largest)),
            wish,
            asked: self.room.asked,
        }
    }

    /// Whether somebody waits who finds no room.
    pub fn is_pressed(&self) -> Option<Press> {
        let wish = self.need().wish.filter(|_| self.room.is_asked())?;
        (!self.room.admits(self.claims(), wish)).then_some(Press { frees: self.room.frees })
    }

    /// Whether the commit that was planned finds room.
    pub(super) fn admit(&self, ops: &[Op<'_>], freeing: bool) -> Result<(), Refused> {
        let mut wish = Wish { cost: 0, largest: 0, freeing };
        for (planned, &(slot, ..)) in self.plan.iter().zip(&self.undo) {
            let payload = match (planned.effect, ops[planned.op].action) {
                (Effect::Append(_), Action::Append(payload) | Action::Snapshot(payload)) => payload.len(),
                _ => 0,
            };
            wish.cost += self.active.cost(slot, planned.effect, payload);
            wish.largest = wish.largest.max(self.active.largest_with(slot, payload));
        }
        if self.room.admits(self.claims(), wish) {
            return Ok(());
        }
        let Told { reserve, most, .. } = self.room.told;
        if most > 0 && wish.cost.saturating_add(reserve) > most {
            let why = format!("it may take {} bytes, and the whole heap holds {most} of entries", wish.cost);
            return Err(Error::Full { what: "the commit in the heap", why }.into());
        }
        Err(Refused::Short(wish))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: Told = Told { usable: 1000, largest: 50, reserve: 200, most: 1000, look_at: 500, slope: 100 };

    fn wish(cost: u64, freeing: bool) -> Wish {
        Wish { cost, largest: 10, freeing }
    }

    #[test]
    fn the_reserve_is_kept_from_appends_and_a_quarter_of_it_from_what_frees() {
        let mut room = Room::default();
        assert!(!room.admits(0, wish(1, true)), "nothing is known yet");
        room.tell(TOLD);
        assert!(room.admits(700, wish(100, false)) && !room.admits(700, wish(101, false)));
        assert!(room.admits(700, wish(250, true)) && !room.admits(700, wish(251, true)));
        assert!(!room.admits(0, Wish { largest: 51, ..wish(1, false) }));
        assert!(!room.admits(u64::MAX, wish(u64::MAX, false)));
    }

    #[test]
    fn who_was_answered_is_refused_and_who_asks_anew_is_not() {
        let mut room = Room::default();
        let first = room.ask(None, wish(5, true)).unwrap();
        let second = room.ask(None, wish(7, false)).unwrap();
        assert!(room.is_asked() && first < second);
        assert_eq!(room.wish, Some(Wish { cost: 7, largest: 10, freeing: false }), "the most that is wished");
        assert_eq!(room.ask(Some(first), wish(5, true)).unwrap(), first);
        room.answer("too small");
        assert!(!room.is_asked());
        assert!(matches!(room.ask(Some(first), wish(5, true)), Err(Error::Full { .. })));
        let third = room.ask(None, wish(1, false)).unwrap();
        assert!(room.is_asked() && third > second);
        assert!(room.ask(Some(second), wish(7, false)).is_err());
    }
}
