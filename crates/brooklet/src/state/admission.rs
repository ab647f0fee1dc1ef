//! Room in the heap, as boarding sees it: what boards can always be checkpointed.
//!
//! What has boarded and is in no run yet *claims* the most that it may take there. The heap is the keeper's, and nobody waits
//! for that under the front's lock; so the keeper tells up to where claims may go ([`SpaceBudget`]), and a commit boards only within
//! that.
//!
//! Who finds no room *asks*, and waits. The keeper then does what may make some: it grows the volume, checkpoints, merges.
//! Once there is nothing left to do it *answers*, and who asked before that and still finds no room is refused. So nobody
//! waits for nothing, and nobody is refused while waiting helps.
//!
//! Invariants:
//! 1. Claims never exceed what a checkpoint can write for certain, less what merging and the next manifest need. What only
//!    frees may claim more of it than what adds.
//! 2. `answered <= asked`; both only grow.

use crate::error::Error;
use crate::memtable::{Memtable, entry_bytes};
use crate::model::Effect;
use crate::model::commit::{Action, Op};
use crate::state::backpressure::Gauge;
use crate::state::{Retry, StoreState};

/// What the keeper tells of the heap, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceBudget {
    /// Up to where claims of commits that add may go, as long as no entry of a run takes more than `largest`.
    pub most: u64,
    /// The same of commits that only free.
    pub most_freeing: u64,
    pub largest: usize,
    /// What the whole heap could ever hold.
    pub whole: u64,
    /// With claims beyond this the keeper wants to look, so as to make space before it is needed.
    pub look_at: u64,
    /// Where merging may free something: appends are slowed down while less than this is left to them.
    pub slope: u64,
}

/// What a commit that found no room needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceRequest {
    pub claim: u64,
    pub largest: usize,
    pub freeing: bool,
}

/// What the keeper must see to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceDemand {
    /// What is in memory only may take so much in runs.
    pub claims: u64,
    /// The most bytes that an entry of a run takes, of that and of what wishes to board.
    pub largest: usize,
    /// What whoever waits wishes, and the number of asking.
    pub wish: Option<SpaceRequest>,
    pub asked: u64,
    /// How many were refused who would not wait.
    pub refusals: u64,
}

/// Somebody waits, and finds no room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpacePressure {
    /// With a commit that only frees: then whatever makes room is worth it.
    pub frees: bool,
}

/// The front's side of it.
#[derive(Debug, Default)]
pub(crate) struct Room {
    told: SpaceBudget,
    /// What those wished who would not wait, since the keeper told last.
    refused: Option<SpaceRequest>,
    /// How many of those there have been.
    refusals: u64,
    wish: Option<SpaceRequest>,
    /// Whether one of those who wait only frees.
    frees: bool,
    asked: u64,
    answered: u64,
    /// How many of those who asked have not gone on yet. As long as there are any, what they wish counts.
    waiting: u64,
    /// Why no room can be made.
    why: String,
}

impl Room {
    /// Takes note of what the keeper tells.
    pub fn tell(&mut self, told: SpaceBudget) {
        self.told = told;
        self.refused = None;
    }

    /// Somebody who would not wait was refused: the next may find room.
    pub fn refuse(&mut self, wish: SpaceRequest) -> Error {
        self.refused = Some(wish);
        self.refusals += 1;
        self.full(wish)
    }

    /// Whether a commit finds room beside these claims.
    fn admits(&self, claims: u64, wish: SpaceRequest) -> bool {
        let SpaceBudget { most, most_freeing, largest, .. } = self.told;
        let most = if wish.freeing { most_freeing } else { most };
        wish.largest <= largest && claims.saturating_add(wish.claim) <= most
    }

    /// Asks for room; `asked` is the number of an earlier asking. `Err` where that one was answered.
    pub fn ask(&mut self, asked: Option<u64>, wish: SpaceRequest) -> Result<u64, Error> {
        if asked.is_some_and(|asked| asked <= self.answered) {
            return Err(self.full(wish));
        }
        let all = self.wish.get_or_insert(wish);
        all.claim = all.claim.max(wish.claim);
        all.largest = all.largest.max(wish.largest);
        all.freeing &= wish.freeing;
        self.frees |= wish.freeing;
        Ok(asked.unwrap_or_else(|| {
            self.waiting += 1;
            self.asked += 1;
            self.asked
        }))
    }

    /// Nothing more can be done for those who have asked, and why.
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

    /// Up to where claims of commits that only free may go.
    pub fn most_freeing(&self) -> u64 {
        self.told.most_freeing
    }

    /// Why a commit is refused.
    pub fn full(&self, wish: SpaceRequest) -> Error {
        let SpaceBudget { most, most_freeing, .. } = self.told;
        let most = if wish.freeing { most_freeing } else { most };
        let and = if self.why.is_empty() { "" } else { "; " };
        let why = format!(
            "it may take {} bytes, and {most} are left to it and all that is not in runs yet{and}{}",
            wish.claim, self.why
        );
        Error::Full { what: "the commit in the heap", why }
    }
}

impl StoreState {
    /// What is in memory only may take so many bytes in runs.
    pub fn claims(&self) -> u64 {
        self.tiers().map(|tier| tier.claim()).sum()
    }

    /// How near appends are to finding no room.
    pub fn gauge(&self) -> Gauge {
        let SpaceBudget { most, slope, .. } = self.room.told;
        Gauge { left: most.saturating_sub(self.claims()), slope }
    }

    /// Whether the keeper should look after room: there will soon be too little, or somebody waits for it.
    pub fn wants_room(&self) -> bool {
        self.claims() > self.room.told.look_at || self.room.is_asked() || self.room.refused.is_some()
    }

    pub fn need(&self) -> SpaceDemand {
        let wish = self.room.wish.or(self.room.refused);
        let largest = self.tiers().map(|tier| tier.largest()).max().unwrap_or_default();
        let largest = largest.max(wish.map_or(0, |wish| wish.largest));
        SpaceDemand {
            claims: self.claims(),
            largest,
            wish,
            asked: self.room.asked,
            refusals: self.room.refusals,
        }
    }

    /// Whether somebody waits who finds no room.
    pub fn press(&self) -> Option<SpacePressure> {
        let wish = self.room.wish.filter(|_| self.room.is_asked())?;
        (!self.room.admits(self.claims(), wish)).then_some(SpacePressure { frees: self.room.frees })
    }

    /// What the table of spaces claims that a checkpoint adds to its run, and how long an entry that takes.
    fn table_claim(&self) -> (u64, usize) {
        Memtable::claim_of_table(self.spaces.bound())
    }

    /// What was recovered claims the table, too.
    pub fn claim_table(&mut self) {
        if self.spaces.is_kept() && self.active.claim() > 0 {
            let (claim, largest) = self.table_claim();
            self.active.claims(claim, largest);
        }
    }

    /// What the commit that was planned claims; `Err` where it finds no room.
    pub(super) fn admit(&self, ops: &[Op<'_>], freeing: bool) -> Result<SpaceRequest, Retry> {
        let mut wish = SpaceRequest { claim: 0, largest: 0, freeing };
        let mut entries = 0;
        for (planned, undo) in self.plan.iter().zip(&self.undo) {
            let payload = match (planned.effect, ops[planned.op].action) {
                (Effect::Append(_), Action::Append(payload) | Action::Snapshot(payload)) => payload.len(),
                _ => 0,
            };
            wish.claim += self.active.claim_of(undo.slot, planned.effect, payload, !undo.touched);
            let entry = entry_bytes(planned.effect, payload);
            entries += entry;
            let largest = self.active.largest_with(undo.slot, entries, entry);
            wish.largest = wish.largest.max(largest);
        }
        let changes = ops.first().is_some_and(|op| op.key.is_empty());
        if changes || self.spaces.is_kept() && self.active.claim() == 0 {
            let (claim, largest) = self.table_claim();
            (wish.claim, wish.largest) = (wish.claim + claim, wish.largest.max(largest));
        }
        if self.room.admits(self.claims(), wish) {
            return Ok(wish);
        }
        let whole = self.room.told.whole;
        if whole > 0 && wish.claim > whole {
            let why = format!("it may take {} bytes, and the whole heap holds {whole}", wish.claim);
            return Err(Error::Full { what: "the commit in the heap", why }.into());
        }
        Err(Retry::Short(wish))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: SpaceBudget =
        SpaceBudget { most: 800, most_freeing: 950, largest: 50, whole: 1000, look_at: 500, slope: 100 };

    fn wish(claim: u64, freeing: bool) -> SpaceRequest {
        SpaceRequest { claim, largest: 10, freeing }
    }

    #[test]
    fn what_frees_may_claim_more_than_what_adds() {
        let mut room = Room::default();
        assert!(!room.admits(0, wish(1, true)), "nothing is known yet");
        room.tell(TOLD);
        assert!(room.admits(700, wish(100, false)) && !room.admits(700, wish(101, false)));
        assert!(room.admits(700, wish(250, true)) && !room.admits(700, wish(251, true)));
        assert!(!room.admits(0, SpaceRequest { largest: 51, ..wish(1, false) }));
        assert!(!room.admits(u64::MAX, wish(u64::MAX, false)));
    }

    #[test]
    fn who_was_answered_is_refused_and_who_asks_anew_is_not() {
        let mut room = Room::default();
        let first = room.ask(None, wish(5, true)).unwrap();
        let second = room.ask(None, wish(7, false)).unwrap();
        assert!(room.is_asked() && first < second);
        assert_eq!(
            room.wish,
            Some(SpaceRequest { claim: 7, largest: 10, freeing: false }),
            "the most that is wished"
        );
        assert_eq!(room.ask(Some(first), wish(5, true)).unwrap(), first);
        room.answer("too small");
        assert!(!room.is_asked());
        assert!(matches!(room.ask(Some(first), wish(5, true)), Err(Error::Full { .. })));
        let third = room.ask(None, wish(1, false)).unwrap();
        assert!(room.is_asked() && third > second);
        assert!(room.ask(Some(second), wish(7, false)).is_err());
    }
}
