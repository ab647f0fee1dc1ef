//! Room in the heap as seen by the append step: every appended commit can be checkpointed.
//!
//! Appended commits that are in no run yet *claim* the maximum space that they may take there.
//! Maintenance owns the heap, and a commit must not wait for maintenance under the state's lock.
//! Maintenance therefore reports a limit for claims ([`SpaceBudget`]), and a commit appends only
//! within that limit.
//!
//! A commit that finds no room sends a *request*, and waits. Maintenance then does all work that
//! may make room: it grows the volume, checkpoints, and merges. When no such work is left,
//! maintenance *resolves* the request. A commit with a resolved request that still finds no room is
//! refused. So no commit waits without use, and none is refused while waiting helps.
//!
//! Invariants:
//! 1. Claims never exceed the bytes that a checkpoint can certainly write, less the reserve for
//!    merging and the next manifest. Commits that only free space may claim more of these bytes
//!    than commits that add entries. Commits that free space and add little (`needs.rs`) are in
//!    between: without them, a caller that records each removal could not free space.
//! 2. `resolved <= requested`; both only grow.

use crate::error::Error;
use crate::memtable::Memtable;
use crate::model::commit::{Action, Op};
use crate::model::rehearsal::SpaceRequest;
use crate::state::StoreState;
use crate::state::append::Retry;
use crate::state::backpressure::Gauge;

/// The table of spaces may take one in this number of bytes of the heap.
const TABLE_SHARE: u64 = 8;

/// Bytes that a change of spaces adds to the table beyond its own bytes: the totals of new spaces.
const CHANGE: usize = 32;

/// The budget of the heap that maintenance reports, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceBudget {
    /// The limit for claims of commits that add entries, as long as no entry of a run takes more
    /// than `largest`.
    pub most: u64,
    /// The limit for claims of commits that free space and add little.
    pub most_little: u64,
    /// The limit for claims of commits that only free space.
    pub most_freeing: u64,
    pub largest: usize,
    /// The capacity of the whole heap.
    pub whole: u64,
    /// The claims beyond which maintenance wants to act, to make space before it is needed.
    pub look_at: u64,
    /// The room below which appends are slowed down, if merging can free space.
    pub slope: u64,
}

/// The demand for space that maintenance must satisfy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceDemand {
    /// The maximum bytes that entries in memory may take in runs.
    pub claims: u64,
    /// The maximum bytes of an entry of a run, of these entries and of waiting commits.
    pub largest: usize,
    /// The largest need of waiting commits, and the number of the last request.
    pub request: Option<SpaceRequest>,
    pub requested: u64,
    /// Number of refused commits that did not want to wait.
    pub refusals: u64,
}

/// Pressure: a commit waits and finds no room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpacePressure {
    /// Whether a waiting commit only frees space.
    pub frees: bool,
    /// Whether a waiting commit frees much: any work that makes room is then worthwhile.
    pub any: bool,
    /// The number of the last request that this pressure includes. A later look resolves a later
    /// request.
    pub requested: u64,
}

/// The state of requests for room in the heap.
#[derive(Debug, Default)]
pub(crate) struct Room {
    budget: SpaceBudget,
    /// The request of the last commit that was refused because it did not want to wait, since the
    /// last budget.
    refused: Option<SpaceRequest>,
    /// Number of refused commits that did not want to wait.
    refusals: u64,
    request: Option<SpaceRequest>,
    /// Whether one of the waiting commits only frees space, or frees much.
    frees: bool,
    any: bool,
    requested: u64,
    resolved: u64,
    /// Number of commits that requested room and still wait. `request` counts until this number is
    /// 0.
    waiting: u64,
    /// The reason why no room can be made.
    why: String,
}

impl Room {
    /// Records the budget that maintenance reports.
    pub fn set_budget(&mut self, budget: SpaceBudget) {
        self.budget = budget;
        self.refused = None;
    }

    /// Records the request of a commit that does not want to wait, so that the next commit may find
    /// room. Returns the error of this commit: only a commit that waits finds out whether
    /// maintenance can make room.
    pub fn refuse(&mut self, request: SpaceRequest) -> Error {
        self.refused = Some(request);
        self.refusals += 1;
        Error::Busy { why: self.shortage(request) }
    }

    /// Returns whether a commit finds room in addition to these claims.
    fn admits(&self, claims: u64, request: SpaceRequest) -> bool {
        let claims = claims.saturating_add(request.claim);
        request.largest <= self.budget.largest && claims <= self.limit(request)
    }

    /// Returns the limit for claims that holds for a commit.
    fn limit(&self, request: SpaceRequest) -> u64 {
        let SpaceBudget { most, most_little, most_freeing, .. } = self.budget;
        match request {
            SpaceRequest { freeing: true, .. } => most_freeing,
            SpaceRequest { little: true, .. } => most_little,
            _ => most,
        }
    }

    /// Requests room, and returns the number of the request. `requested` is the number of the
    /// commit's earlier request. Returns an error if the earlier request is resolved.
    pub fn request_space(&mut self, requested: Option<u64>, request: SpaceRequest) -> Result<u64, Error> {
        if requested.is_some_and(|requested| requested <= self.resolved) {
            return Err(self.full(request));
        }
        let all = self.request.get_or_insert(request);
        all.claim = all.claim.max(request.claim);
        all.largest = all.largest.max(request.largest);
        all.freeing &= request.freeing;
        all.little &= request.little;
        self.frees |= request.freeing;
        self.any |= request.frees_much;
        Ok(requested.unwrap_or_else(|| {
            self.waiting += 1;
            self.requested += 1;
            self.requested
        }))
    }

    /// Resolves the requests up to number `last`: no more room can be made, for the reason `why`.
    pub fn resolve_request(&mut self, last: u64, why: &str) {
        self.resolved = self.resolved.max(last);
        why.clone_into(&mut self.why);
    }

    /// Ends the wait of a commit that requested room, after it appended or was refused.
    pub fn withdraw(&mut self) {
        self.waiting -= 1;
        if self.waiting == 0 {
            (self.request, self.resolved) = (None, self.requested);
            (self.frees, self.any) = (false, false);
        }
    }

    /// Returns whether a request is not resolved yet.
    pub fn is_requested(&self) -> bool {
        self.resolved < self.requested
    }

    /// Returns the limit for claims of commits that only free space.
    pub fn most_freeing(&self) -> u64 {
        self.budget.most_freeing
    }

    /// Returns the error of a refused commit.
    pub fn full(&self, request: SpaceRequest) -> Error {
        Error::Full { what: "the commit in the heap", why: self.shortage(request) }
    }

    /// Describes the lack of room for a commit.
    fn shortage(&self, request: SpaceRequest) -> String {
        let most = self.limit(request);
        let and = if self.why.is_empty() { "" } else { "; " };
        format!(
            "it may take {} bytes, and {most} bytes are left for it and all data that is not in runs yet{and}{}",
            request.claim, self.why
        )
    }
}

impl StoreState {
    /// Returns the maximum bytes that entries in memory may take in runs.
    pub fn claims(&self) -> u64 {
        self.memtables().map(|memtable| memtable.claim()).sum()
    }

    /// Returns how near appends are to finding no room.
    pub fn gauge(&self) -> Gauge {
        let SpaceBudget { most, slope, .. } = self.room.budget;
        Gauge { left: most.saturating_sub(self.claims()), slope }
    }

    /// Returns whether maintenance should make room: there will soon be too little, or a commit
    /// waits for room or was refused.
    pub fn wants_room(&self) -> bool {
        self.claims() > self.room.budget.look_at || self.room.is_requested() || self.room.refused.is_some()
    }

    pub fn need(&self) -> SpaceDemand {
        let request = self.room.request.or(self.room.refused);
        let largest = self.memtables().map(|memtable| memtable.largest()).max().unwrap_or_default();
        let largest = largest.max(request.map_or(0, |request| request.largest));
        SpaceDemand {
            claims: self.claims(),
            largest,
            request,
            requested: self.room.requested,
            refusals: self.room.refusals,
        }
    }

    /// Returns the pressure if a commit waits and finds no room.
    pub fn pressure(&self) -> Option<SpacePressure> {
        let request = self.room.request.filter(|_| self.room.is_requested())?;
        let Room { frees, any, requested, .. } = self.room;
        (!self.room.admits(self.claims(), request)).then_some(SpacePressure { frees, any, requested })
    }

    /// Returns the claim of the table of spaces, which a checkpoint adds to its run, and the bytes
    /// of the table's entry.
    fn table_claim(&self) -> (u64, usize) {
        self.table_claim_with(0)
    }

    /// Returns the claim of a table that may have `more` bytes. The bytes are rounded up, so that
    /// few changes of spaces need a larger claim, for which they would have to wait.
    fn table_claim_with(&self, more: usize) -> (u64, usize) {
        let bytes = self.spaces.bound() + more;
        let step = (bytes / 8).next_power_of_two().max(64);
        Memtable::claim_of_table(bytes.next_multiple_of(step))
    }

    /// Returns an error if `what`, one more space or more rules of a space, would make the table of
    /// spaces too large for the heap: each checkpoint needs room for the table, and so does each
    /// commit.
    pub fn check_room_in_table(&self, what: &'static str) -> Result<(), Error> {
        let ((claim, _), whole) = (self.table_claim(), self.room.budget.whole);
        if whole == 0 || claim <= whole / TABLE_SHARE {
            return Ok(());
        }
        let why =
            format!("the table of spaces may take {claim} bytes, and the whole heap holds {whole} bytes");
        Err(Error::Full { what, why })
    }

    /// Adds the claim of the table of spaces to a recovered memtable.
    pub fn claim_table(&mut self) {
        if self.spaces.is_kept() && self.active.claim() > 0 {
            let (claim, largest) = self.table_claim();
            let more = claim.saturating_sub(self.active.table_claim());
            self.active.claims(more, largest);
            self.active.claims_for_table(claim);
        }
    }

    /// Returns the claim that the active memtable must have for the table of spaces once it has
    /// this commit, and the bytes of the table's entry. `None` if the commit does not change it.
    pub(super) fn table_request(&self, ops: &[Op<'_>]) -> Option<(u64, usize)> {
        match ops.first() {
            Some(Op { key: [], action: Action::Snapshot(changes) }) => {
                Some(self.table_claim_with(changes.len() + CHANGE))
            }
            _ if self.spaces.is_kept() && self.active.claim() == 0 => Some(self.table_claim()),
            _ => None,
        }
    }

    /// Returns whether a commit with this claim finds no room among commits that add entries.
    pub(super) fn is_short_of(&self, claim: u64) -> bool {
        self.claims().saturating_add(claim) > self.room.budget.most
    }

    /// Returns an error if a commit that needs this space finds no room.
    pub(super) fn admit(&self, request: SpaceRequest) -> Result<(), Retry> {
        if self.room.admits(self.claims(), request) {
            return Ok(());
        }
        let whole = self.room.budget.whole;
        if whole > 0 && request.claim > whole {
            let why = format!("it may take {} bytes, and the whole heap holds {whole} bytes", request.claim);
            return Err(Error::Full { what: "the commit in the heap", why }.into());
        }
        Err(Retry::Short(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: SpaceBudget = SpaceBudget {
        most: 800,
        most_little: 850,
        most_freeing: 950,
        largest: 50,
        whole: 1000,
        look_at: 500,
        slope: 100,
    };

    fn request(claim: u64, freeing: bool) -> SpaceRequest {
        SpaceRequest { claim, largest: 10, freeing, little: freeing, frees_much: freeing }
    }

    #[test]
    fn what_frees_may_claim_more_than_what_adds() {
        let mut room = Room::default();
        assert!(!room.admits(0, request(1, true)), "nothing is known yet");
        room.set_budget(TOLD);
        assert!(room.admits(700, request(100, false)) && !room.admits(700, request(101, false)));
        assert!(room.admits(700, request(250, true)) && !room.admits(700, request(251, true)));
        let little = |claim| SpaceRequest { little: true, ..request(claim, false) };
        assert!(room.admits(700, little(150)) && !room.admits(700, little(151)));
        assert!(!room.admits(0, SpaceRequest { largest: 51, ..request(1, false) }));
        assert!(!room.admits(u64::MAX, request(u64::MAX, false)));
    }

    #[test]
    fn who_was_answered_is_refused_and_who_asks_anew_is_not() {
        let mut room = Room::default();
        let first = room.request_space(None, request(5, true)).unwrap();
        let second = room.request_space(None, request(7, false)).unwrap();
        assert!(room.is_requested() && first < second);
        let most = room.request.map(|most| (most.claim, most.largest, most.freeing, most.little));
        assert_eq!(most, Some((7, 10, false, false)), "the most that is wished");
        assert_eq!(room.request_space(Some(first), request(5, true)).unwrap(), first);
        room.resolve_request(second, "too small");
        assert!(!room.is_requested());
        assert!(matches!(room.request_space(Some(first), request(5, true)), Err(Error::Full { .. })));
        let third = room.request_space(None, request(1, false)).unwrap();
        assert!(room.is_requested() && third > second);
        assert!(room.request_space(Some(second), request(7, false)).is_err());
    }

    /// Maintenance finds no room for the first request. Meanwhile other commits free some room, and
    /// the second request arrives.
    #[test]
    fn a_request_is_not_refused_by_a_look_that_was_before_it() {
        let mut room = Room::default();
        let first = room.request_space(None, request(5, false)).unwrap();
        let second = room.request_space(None, request(5, false)).unwrap();
        room.resolve_request(first, "too small");
        assert!(room.is_requested());
        assert!(room.request_space(Some(first), request(5, false)).is_err());
        assert_eq!(room.request_space(Some(second), request(5, false)).unwrap(), second);
    }
}
