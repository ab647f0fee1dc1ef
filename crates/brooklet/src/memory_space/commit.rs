//! Commits on the logs of a memory space: each commit takes effect as a whole or not at all, within
//! the memory and the quotas of the space.
//!
//! A commit needs its logs in memory, with one exception: of a log that it deletes, or of which it
//! expects a state, it needs the bounds alone. So a full space loads no log to delete it.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use crate::error::{Error, Expected, Found, KeyText};
use crate::memory_space::log::{CHUNK, Frozen, Log};
use crate::memory_space::slots::COST;
use crate::memory_space::{Logs, Lookup, Phase, Rejected, cost_of, tombstone_cost};
use crate::memtable::seqs::Seqs;
use crate::model::Bounds;
use crate::model::commit::{Action, Op};
use crate::model::space_config::WhenFull;

/// The data to undo a commit on one log: the key, and the log's previous state.
struct Saved<'a> {
    key: &'a [u8],
    log: Option<(Frozen, u32)>,
    /// Whether only the runs have the log.
    is_below: bool,
}

/// Returns the logs of which a commit needs the entries. A deletion needs none, and after it, the
/// log is another one.
pub(crate) fn need_entries<'a>(ops: &[Op<'a>]) -> BTreeSet<&'a [u8]> {
    let (mut needed, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    for op in ops {
        match op.action {
            Action::Expect(_) => {}
            Action::Delete => _ = deleted.insert(op.key),
            _ if deleted.contains(op.key) => {}
            _ => _ = needed.insert(op.key),
        }
    }
    needed
}

impl Logs {
    /// Applies a commit. Returns the numbers of the appended entries.
    pub fn commit(&mut self, ops: &[Op<'_>], now: &dyn Fn() -> u64) -> Result<Seqs, Rejected> {
        if self.phase != Phase::Open {
            return Err(Rejected::Phase(self.phase));
        }
        let done = self.try_commit(ops, now);
        // A commit that needs more look-ups comes again.
        if !matches!(done, Err(Rejected::Below(..))) {
            self.end_look_ups(ops);
        }
        done
    }

    fn try_commit(&mut self, ops: &[Op<'_>], now: &dyn Fn() -> u64) -> Result<Seqs, Rejected> {
        // A commit has one time: an entry that an operation was checked against must not become too
        // old before the operation takes effect.
        let time = OnceCell::new();
        let now: &dyn Fn() -> u64 = &|| *time.get_or_init(now);
        self.check(ops)?;
        if ops.iter().all(|op| matches!(op.action, Action::Expect(_))) {
            return Err(Error::EmptyCommit.into());
        }
        let may_pass = self.may_pass_the_budget(ops)?;
        // What is older than this may be dropped; the logs of the commit are newer.
        let before = self.places.stamp();
        for slot in
            ops.iter().filter(|_| may_pass).filter_map(|op| self.places.find(op.key)).collect::<Vec<_>>()
        {
            self.places.touch(slot);
        }
        let (bytes, logs) = (self.bytes, self.len());
        // These change nothing that a reader sees: the first other operation is the first to undo.
        let leading = |op: &&Op<'_>| matches!(op.action, Action::Expect(_) | Action::Trim(0));
        let undoes = ops.iter().skip_while(leading).count() > 1 || self.space.has_quota() || may_pass;
        let saved = if undoes { self.save(ops) } else { Vec::new() };
        let mut seqs = Seqs::default();
        let done = ops.iter().try_for_each(|op| {
            let seq = self.apply(op, now)?;
            seq.into_iter().for_each(|seq| seqs.push(seq));
            Ok::<_, Error>(())
        });
        let done = done.and_then(|()| self.check_quotas(logs, bytes));
        // Last, so that a commit that is refused drops nothing.
        let done = done.and_then(|()| if may_pass { self.make_room(before, now) } else { Ok(()) });
        if let Err(error) = done {
            saved.into_iter().for_each(|saved| self.restore(saved));
            return Err(error.into());
        }
        self.changed = true;
        for op in ops {
            if let Action::Append(payload) | Action::Snapshot(payload) = op.action {
                self.counts.appended += 1;
                self.counts.appended_bytes += payload.len() as u64;
            }
        }
        Ok(seqs)
    }

    /// Checks that all logs are known, as far as the commit needs them, and meet the expectations.
    fn check(&self, ops: &[Op<'_>]) -> Result<(), Rejected> {
        let unknown = |op: &Op<'_>| !self.complete && matches!(self.state(op.key), Lookup::Below);
        let mut below: Vec<usize> =
            ops.iter().enumerate().filter(|(_, op)| unknown(op)).map(|(i, _)| i).collect();
        if !below.is_empty() {
            let needed = need_entries(ops);
            below.retain(|&i| needed.contains(ops[i].key) || self.known_bounds(ops[i].key).is_none());
        }
        if !below.is_empty() {
            return Err(Rejected::Below(below, self.generation));
        }
        for op in ops {
            let Action::Expect(expected) = op.action else { continue };
            let bounds = self.known_bounds(op.key);
            let holds = match expected {
                Expected::Next(next) => bounds.map_or(0, |bounds| bounds.next) == next,
                Expected::Absent => bounds.is_none(),
            };
            if !holds {
                let found = bounds.map_or(Found::Absent, |bounds| Found::Next(bounds.next));
                return Err(Error::Conflict { key: KeyText::of(op.key), expected, found }.into());
            }
        }
        Ok(())
    }

    /// Returns the bounds of a log in memory, or of a log that only the runs have and that was
    /// looked up for a commit.
    fn known_bounds(&self, key: &[u8]) -> Option<Bounds> {
        match self.lookup(key) {
            Lookup::Here(log) => Some(log.bounds()),
            Lookup::Gone => None,
            Lookup::Below => {
                let known = self.below.get(key).filter(|(_, generation)| *generation == self.generation);
                known.map(|(bounds, _)| *bounds)
            }
        }
    }

    /// Records the bounds of a log that only the runs have, for a commit that needs nothing else of
    /// the log, unless another call has added the log. `None`: no run has the log.
    pub fn note_below(&mut self, key: &[u8], bounds: Option<Bounds>, generation: u32) {
        if generation != self.generation || !matches!(self.state(key), Lookup::Below) {
            return;
        }
        match bounds {
            Some(bounds) => _ = self.below.insert(key.to_vec(), (bounds, generation)),
            None => _ = self.absent.insert(key.to_vec()),
        }
    }

    fn check_quotas(&mut self, logs: usize, bytes: u64) -> Result<(), Error> {
        let over = |grew: bool, has: u64, most: Option<u64>| most.filter(|most| grew && has > *most);
        let grew = (self.len() > logs, self.bytes > bytes);
        let (what, limit) = if let Some(most) = over(grew.0, self.len() as u64, self.space.max_logs) {
            ("logs", most)
        } else if let Some(most) = over(grew.1, self.bytes, self.space.max_bytes) {
            ("bytes", most)
        } else {
            return Ok(());
        };
        self.counts.refused += 1;
        Err(Error::QuotaReached { space: self.name(), what, limit })
    }

    fn name(&self) -> String {
        String::from_utf8_lossy(&self.prefix[..self.prefix.len() - 1]).into_owned()
    }

    /// Returns whether memory may not suffice for a commit. Refuses a commit that is larger than
    /// all memory. A commit that adds nothing is never refused for its memory.
    fn may_pass_the_budget(&mut self, ops: &[Op<'_>]) -> Result<bool, Error> {
        let budget = self.config.bytes as usize;
        let brings = |op: &Op<'_>| match op.action {
            Action::Append(payload) | Action::Snapshot(payload) => payload.len() + 4,
            Action::Begin(_) if self.places.find(op.key).is_none() => COST,
            Action::Retain(to) if to.is_limited() && self.places.find(op.key).is_none() => COST,
            _ => 0,
        };
        let needed = ops.iter().map(brings).sum::<usize>();
        if needed > budget {
            return Err(self.memory_full());
        }
        // Each operation may create a log, or begin a chunk of a long one.
        let most = self.memory + needed + ops.len() * (COST + 1024 + CHUNK);
        // The lists of chunks that grow take a part of all memory, so that most commits need not
        // look for them.
        let grows = || most + self.memory > budget && most + self.growth_of_lists(ops) > budget;
        Ok(needed > 0 && (most > budget || grows()))
    }

    /// Returns the most bytes by which lists of chunks grow with a commit.
    fn growth_of_lists(&self, ops: &[Op<'_>]) -> usize {
        let growth = |op: &Op<'_>| {
            let slot = self.places.find(op.key).filter(|_| op.action.adds())?;
            Some(self.places.get(slot).log.growth_of_list())
        };
        ops.iter().filter_map(growth).sum()
    }

    /// Counts a commit that is refused for lack of memory, and returns its error.
    pub fn memory_full(&mut self) -> Error {
        self.counts.refused += 1;
        Error::MemoryFull { space: self.name(), limit: self.config.bytes }
    }

    /// Returns the bytes that the logs take beyond the memory of the space.
    pub(super) fn excess(&self) -> usize {
        self.memory.saturating_sub(self.config.bytes as usize)
    }

    /// Makes room in memory for a commit that was applied, or refuses it. Drops only logs that were
    /// last written at `before` or earlier, and only if that suffices.
    fn make_room(&mut self, before: u64, now: &dyn Fn() -> u64) -> Result<(), Error> {
        if self.excess() > 0 && self.config.when_full == WhenFull::Refuse {
            // While nothing dumps the space, nothing else frees these entries.
            self.expire_some(now);
        }
        let excess = self.excess();
        if excess == 0 || self.drop_older(before, excess) { Ok(()) } else { Err(self.memory_full()) }
    }

    /// Drops the oldest logs until they have freed `excess` bytes of memory. Drops only logs that
    /// were last written at `before` or earlier. If that does not suffice, or the space drops no
    /// logs, drops nothing and returns `false`.
    pub(super) fn drop_older(&mut self, before: u64, excess: usize) -> bool {
        if self.config.when_full != WhenFull::DropOldest || !self.would_free(before, excess) {
            return false;
        }
        let enough = self.memory.saturating_sub(excess);
        while self.memory > enough {
            let Some(slot) = self.places.oldest(before) else { break };
            self.dropped.push((*self.places.get(slot).key).into());
            self.remove(slot);
            self.counts.dropped += 1;
            self.changed = true;
        }
        true
    }

    /// Returns whether dropping all logs that were last written at `before` or earlier would free
    /// this memory.
    fn would_free(&self, before: u64, excess: usize) -> bool {
        let mut freed = 0;
        self.places.older(before).any(|place| {
            let tombstone = if place.created < self.generation && !self.tombstones.contains(&*place.key) {
                tombstone_cost(&place.key)
            } else {
                0
            };
            freed += cost_of(place).saturating_sub(tombstone);
            freed >= excess
        })
    }

    /// Saves the states of the logs of a commit, to undo the commit if it fails.
    fn save<'a>(&mut self, ops: &[Op<'a>]) -> Vec<Saved<'a>> {
        let mut keys: Vec<&[u8]> = ops.iter().map(|op| op.key).collect();
        keys.sort_unstable();
        keys.dedup();
        let save = |key: &'a [u8]| {
            let log = self.places.find(key).map(|slot| {
                self.keep_for_cut(slot);
                let place = self.places.get(slot);
                let Bounds { first, next } = place.log.bounds();
                (place.log.freeze(first..next), place.created)
            });
            let is_below = log.is_none() && !self.below.is_empty() && self.known_bounds(key).is_some();
            Saved { key, log, is_below }
        };
        keys.into_iter().map(save).collect()
    }

    fn restore(&mut self, Saved { key, log, is_below }: Saved<'_>) {
        if let Some(slot) = self.places.find(key) {
            self.take_out(slot);
        }
        // The commit deleted the log. A later deletion adds the tombstone again.
        let is_in_runs = is_below || log.as_ref().is_some_and(|(_, created)| *created < self.generation);
        if is_in_runs && self.tombstones.remove(key) {
            self.memory -= tombstone_cost(key);
        }
        if let Some((frozen, created)) = log {
            self.put(key, Log::thaw(frozen), created);
            self.moved.iter_mut().for_each(|moved| _ = moved.insert(key.to_vec()));
        }
    }

    /// Applies one operation. A failed operation changes nothing.
    fn apply(&mut self, op: &Op<'_>, now: &dyn Fn() -> u64) -> Result<Option<u64>, Error> {
        let unknown = || Error::UnknownLog { key: KeyText::of(op.key) };
        let found = self.places.find(op.key);
        if found.is_none() && matches!(op.action, Action::Delete) && self.known_bounds(op.key).is_some() {
            // Only the runs have the log.
            self.forget(op.key);
            return Ok(None);
        }
        let slot = match op.action {
            Action::Expect(_) | Action::Enroll(_) | Action::ExpiryPass => return Ok(None),
            Action::Append(_) | Action::Snapshot(_) | Action::Begin(_) => {
                found.unwrap_or_else(|| self.create(op.key, now))
            }
            Action::Retain(retention) if retention.is_limited() => {
                found.unwrap_or_else(|| self.create(op.key, now))
            }
            _ => found.ok_or_else(unknown)?,
        };
        if let Action::Delete = op.action {
            self.remove(slot);
            return Ok(None);
        }
        let bounds = self.places.get(slot).log.bounds();
        let outside = |asked, first| {
            let Bounds { next, .. } = bounds;
            Error::OutOfRange { key: KeyText::of(op.key), asked, first, next }
        };
        let lawful = |asked, first| {
            if (first..=bounds.next).contains(&asked) { Ok(asked) } else { Err(outside(asked, first)) }
        };
        if bounds.next == u64::MAX && matches!(op.action, Action::Append(_) | Action::Snapshot(_)) {
            return Err(outside(bounds.next, bounds.first));
        }
        let kept = self.places.get(slot).log.kept(now);
        let before = match op.action {
            Action::Trim(before) => lawful(before.max(kept), bounds.first)?,
            Action::KeepLast(n) => bounds.next.saturating_sub(n).max(kept),
            Action::Begin(first) => first.max(kept),
            Action::Truncate(from) => lawful(from, kept)?,
            _ => 0,
        };
        let mut seq = None;
        self.places.touch(slot);
        self.change(slot, |log| match op.action {
            Action::Append(payload) | Action::Snapshot(payload) => {
                seq = Some(bounds.next);
                log.append(payload, now);
                let is_snapshot = matches!(op.action, Action::Snapshot(_));
                let tombstones = if is_snapshot { log.cut_before(bounds.next) } else { 0 };
                payload.len() as i64 - (tombstones + log.limit(now)) as i64
            }
            Action::Trim(_) | Action::KeepLast(_) => -(log.cut_before(before) as i64),
            Action::Begin(_) => -(log.begin_at(before) as i64),
            Action::Truncate(_) => -((log.limit(now) + log.cut_from(before)) as i64),
            Action::Retain(retention) => -(log.retain(retention, now) as i64),
            _ => 0,
        });
        Ok(seq)
    }
}
