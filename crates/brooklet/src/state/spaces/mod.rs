//! The table of spaces: lists the spaces, their configurations, and their totals. It is a state
//! machine that the append step drives under its lock. Only this module describes how the table is
//! stored.
//!
//! The table is the newest entry of the log with the empty key, which no caller can name. It is
//! therefore committed, replayed, checkpointed, viewed and backed up like all other entries.
//!
//! Each change of spaces commits its own entry. A run holds the whole table instead: a checkpoint
//! replaces the last entry. `format.rs` describes both.
//!
//! Totals change with every commit, but they are not committed every time: replay computes them
//! from the effects. A checkpoint writes the table with the totals of its cut into its run, if the
//! spaces or their totals changed since the last such table. The next opening begins to count from
//! the newest table.
//!
//! Invariants:
//! 1. A log counts in the totals of a space if, and only if, its terms hold that space's number.
//!    The change of the totals therefore follows from the log's state before and after. A space
//!    that is removed and created again is a different space.
//! 2. A space keeps its totals and counters as long as it keeps its number.

mod format;
mod index;

use brooklet_io::seeded::bug;

use crate::error::Error;
use crate::model::Bounds;
use crate::model::commit::{Action, Durability, Op};
use crate::model::key::Key;
use crate::model::retention::Retention;
use crate::model::retention_state::RetentionState;
use crate::model::space_config::{
    Class, MAX_NAME, MAX_SPACES, MemoryConfig, SEPARATOR, SpaceConfig, SpaceInfo,
};
pub(crate) use crate::state::spaces::format::Change;
use crate::state::spaces::format::Decoded;
use crate::state::spaces::index::{Index, Place};

/// The key of the log that holds the table.
pub(crate) const TABLE: &[u8] = b"";
/// The smallest key of any other log.
pub(crate) const FIRST: &[u8] = b"\0";

/// The totals of the counted logs of a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub logs: u64,
    pub bytes: u64,
}

/// The share of a log in the totals of the space with number `space`; 0 is no space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    space: u64,
    bytes: u64,
}

impl Share {
    pub fn of(bounds: Option<Bounds>, terms: Option<&RetentionState>) -> Self {
        let counted = terms.filter(|terms| bounds.is_some() && terms.space > 0);
        counted.map_or_else(Self::default, |terms| Self { space: terms.space, bytes: terms.held })
    }

    fn totals(self, of: u64) -> Totals {
        if self.space == of { Totals { logs: 1, bytes: self.bytes } } else { Totals::default() }
    }
}

/// Counters of a space since the store was opened.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    entries: u64,
    bytes: u64,
    reads: u64,
    refused: u64,
}

/// Appends to logs of one space that the counters of the space do not have yet.
#[derive(Debug)]
struct Noted {
    space: Key,
    hash: u64,
    entries: u64,
    bytes: u64,
}

/// Number of notes that the counters get at once. The processor then fetches the counters of
/// several spaces at the same time, instead of one in each commit.
const NOTED: usize = 64;

/// The count of a space's logs. It is all that a commit on a counted log needs of the space, and
/// takes one line of the processor's cache.
#[derive(Debug)]
#[repr(align(64))]
struct Count {
    /// The number of the space.
    number: u64,
    totals: Totals,
    /// The quotas; the maximum if there is none.
    most: Totals,
    /// The changes of the totals by the current commit: logs, bytes.
    growth: Option<(i64, i64)>,
}

const _: () = assert!(size_of::<Count>() == 64);

#[derive(Debug)]
pub(crate) struct Space {
    count: Count,
    name: Key,
    pub config: SpaceConfig,
    /// Whether all logs of the space are counted, including logs that are older than the space.
    pub counted: bool,
}

impl Space {
    fn new(name: &[u8], number: u64, config: SpaceConfig, counted: bool, totals: Totals) -> Self {
        let most =
            Totals { logs: config.max_logs.unwrap_or(u64::MAX), bytes: config.max_bytes.unwrap_or(u64::MAX) };
        Self { count: Count { number, totals, most, growth: None }, name: name.into(), config, counted }
    }

    /// Returns the number of the space.
    pub fn number(&self) -> u64 {
        self.count.number
    }
}

/// The spaces of a store according to its runs, and the bounds of the log that holds them; `None`
/// if that log does not exist.
#[derive(Debug)]
pub(crate) struct SpaceTable {
    pub spaces: Spaces,
    pub log: Option<Bounds>,
}

impl SpaceTable {
    /// Returns the table of a store that never had a space. `seed` is for the hashes of names.
    pub fn empty(seed: u64) -> Self {
        Self { spaces: Spaces { all: Index::new(seed, Vec::new()), ..Spaces::default() }, log: None }
    }

    /// Returns the table of a store that opens for reading although `error` keeps its table from
    /// being read.
    pub fn unread(seed: u64, error: Error) -> Self {
        let mut table = Self::empty(seed);
        table.spaces.unread = Some(error);
        table
    }
}

/// What all spaces have together.
#[derive(Debug, Default)]
struct Sums {
    /// Bytes of all spaces in the table, without their totals.
    fixed: usize,
    /// Number of spaces in memory, of spaces with deferred commits, and of spaces that may limit or
    /// count their logs. Without any, no look-up is needed.
    in_memory: usize,
    deferred: usize,
    giving: usize,
}

impl Sums {
    fn add(&mut self, space: &Space) {
        self.fixed += format::fixed_len(space);
        self.in_memory += usize::from(space.config.class.memory().is_some());
        self.deferred += usize::from(matches!(space.config.class, Class::Deferred(_)));
        self.giving += usize::from(gives(&space.config));
    }

    fn subtract(&mut self, space: &Space) {
        self.fixed -= format::fixed_len(space);
        self.in_memory -= usize::from(space.config.class.memory().is_some());
        self.deferred -= usize::from(matches!(space.config.class, Class::Deferred(_)));
        self.giving -= usize::from(gives(&space.config));
    }
}

/// Returns whether a space may limit or count its logs.
fn gives(config: &SpaceConfig) -> bool {
    config.limits_logs() || config.has_quota()
}

/// Changes to the table of spaces that are not committed yet.
#[derive(Debug)]
pub(crate) struct Changes {
    next: u64,
    changes: Vec<Change>,
}

impl Changes {
    pub fn encode(&self) -> Vec<u8> {
        format::encode_changes(self.next, &self.changes)
    }
}

/// The spaces of a store.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    all: Index,
    next: u64,
    /// Whether a space has ever existed, and with it the log that holds the table.
    kept: bool,
    /// Whether the spaces or their totals changed since the newest table in a run.
    changed: bool,
    sums: Sums,
    /// The spaces whose totals the current commit changes.
    grown: Vec<Place>,
    noted: Vec<Noted>,
    /// The error that kept the table from being read: there may be other spaces.
    unread: Option<Error>,
}

impl Spaces {
    /// Returns whether a checkpoint may write the table into its run.
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// Returns whether the spaces or their totals changed since the newest table in a run.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// Returns the error that kept the table from being read, if one did.
    pub fn unread(&self) -> Option<Error> {
        self.unread.clone()
    }

    /// Returns the place of the space that a log belongs to.
    pub fn of(&self, key: &[u8]) -> Option<Place> {
        self.find(self.name_in(key)?)
    }

    /// Returns the part of a log's key that would be the name of its space.
    fn name_in<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        if self.all.is_empty() {
            return None;
        }
        Some(&key[..key.iter().take(MAX_NAME + 1).position(|&byte| byte == SEPARATOR)?])
    }

    pub fn find(&self, name: &[u8]) -> Option<Place> {
        self.all.find(name)
    }

    /// Returns whether a log is in a memory space.
    pub fn is_in_memory(&self, key: &[u8]) -> bool {
        self.sums.in_memory > 0 && self.of(key).is_some_and(|at| self.get(at).config.class.memory().is_some())
    }

    /// Returns the memory configuration of a space; `None` if the space is not in memory.
    pub fn memory_of(&self, name: &[u8]) -> Option<MemoryConfig> {
        self.get(self.find(name)?).config.class.memory()
    }

    /// Returns the names and the configurations of the spaces in memory, by name.
    pub fn in_memory(&self) -> Vec<(String, SpaceConfig, MemoryConfig)> {
        if self.sums.in_memory == 0 {
            return Vec::new();
        }
        let with_memory = |space: &Space| {
            let memory = space.config.class.memory()?;
            Some((text(&space.name), space.config.clone(), memory))
        };
        self.all.iter().filter_map(with_memory).collect()
    }

    /// Returns the names and the configurations of all spaces, by name.
    pub fn configs(&self) -> impl Iterator<Item = (String, SpaceConfig)> {
        self.all.iter().map(|space| (text(&space.name), space.config.clone()))
    }

    pub fn get(&self, at: Place) -> &Space {
        self.all.get(at)
    }

    /// Returns the changes that add or change these spaces. A flag says whether all logs of the
    /// space are counted.
    pub fn put<'a>(
        &self,
        spaces: impl IntoIterator<Item = (&'a str, SpaceConfig, bool)>,
    ) -> Result<Changes, Error> {
        let (mut next, mut changes, mut len) = (self.next.max(1), Vec::new(), self.all.len());
        for (name, config, counted) in spaces {
            let known = self.find(name.as_bytes()).map(|at| self.get(at));
            let is_in_memory = config.class.memory().is_some();
            let number = match known {
                // A space that moves into memory or out of it counts anew.
                Some(known) if known.config.class.memory().is_some() == is_in_memory => known.number(),
                _ => next,
            };
            if number == next {
                let none_left = || Error::InvalidSpace("no number is left for another space".into());
                next = next.checked_add(1).ok_or_else(none_left)?;
            }
            len += usize::from(known.is_none());
            let space = Space::new(name.as_bytes(), number, config, counted, Totals::default());
            changes.push(Change::Put(space.into()));
        }
        if len > MAX_SPACES && len > self.all.len() {
            let why = format!("the store has {MAX_SPACES} spaces, the maximum: remove one first");
            return Err(Error::InvalidSpace(why));
        }
        Ok(Changes { next, changes })
    }

    /// Returns the change that removes a space.
    pub fn without(&self, name: &str) -> Result<Changes, Error> {
        self.find(name.as_bytes()).ok_or_else(|| Error::UnknownSpace { name: name.into() })?;
        Ok(Changes { next: self.next, changes: vec![Change::Remove(name.as_bytes().into())] })
    }

    /// Applies an entry of the table's log, which was committed or found: changes, or a whole table
    /// as older versions committed it. Spaces that keep their number keep their totals and
    /// counters. Returns `None` if the entry is malformed.
    pub fn apply(&mut self, entry: &[u8]) -> Option<()> {
        let (next, changes) = match format::decode(entry)? {
            Decoded::Changes(next, changes) => (next, changes),
            Decoded::Table(next, spaces) => {
                let is_listed =
                    |name: &[u8]| spaces.binary_search_by(|space| (*space.name).cmp(name)).is_ok();
                let gone = self.all.iter().filter(|space| !is_listed(&space.name));
                let gone: Vec<_> = gone.map(|space| Change::Remove((*space.name).into())).collect();
                let put = spaces.into_iter().map(|space| Change::Put(space.into()));
                (next, gone.into_iter().chain(put).collect())
            }
        };
        // A store never gives a number out again. With a smaller next number, the number of an
        // existing space would be malformed in later entries.
        if next < self.next {
            return None;
        }
        // Places of removed spaces must not stay in the list, and a new space of the same name
        // must not get their counts.
        self.begin();
        self.count_noted();
        for change in changes {
            match change {
                Change::Put(space) => self.put_one(*space),
                Change::Remove(name) => {
                    let known = self.all.remove(&name);
                    known.iter().for_each(|known| self.sums.subtract(known));
                }
            }
        }
        (self.next, self.kept, self.changed) = (next, true, true);
        Some(())
    }

    fn put_one(&mut self, mut space: Space) {
        self.sums.add(&space);
        let Some(place) = self.all.find(&space.name) else { return self.all.add(space) };
        let known = self.all.get_mut(place);
        self.sums.subtract(known);
        if known.number() == space.number() {
            space.count.totals = known.count.totals;
        } else if let Some(done) = self.all.done_mut(&space.name) {
            *done = Done::default();
        }
        *self.all.get_mut(place) = space;
    }

    /// Applies the change of a log's share to the totals.
    pub fn shift(&mut self, key: &[u8], before: Share, after: Share) {
        if before == after {
            return;
        }
        let Some(at) = self.of(key) else { return };
        let Count { number, totals, growth, .. } = &mut self.all.get_mut(at).count;
        let (old, new) = (before.totals(*number), after.totals(*number));
        let logs = new.logs as i64 - old.logs as i64;
        let bytes = new.bytes.wrapping_sub(old.bytes) as i64;
        totals.logs = totals.logs.saturating_add_signed(logs);
        totals.bytes = totals.bytes.saturating_add_signed(bytes);
        if growth.is_none() {
            self.grown.push(at);
        }
        let (all_logs, all_bytes) = growth.get_or_insert_default();
        (*all_logs, *all_bytes) = (*all_logs + logs, all_bytes.saturating_add(bytes));
        self.changed |= !bug("changed-totals-stay-out-of-runs");
    }

    /// Begins a commit.
    pub fn begin(&mut self) {
        for at in self.grown.drain(..) {
            self.all.get_mut(at).count.growth = None;
        }
    }

    /// Returns an error if the current commit takes a space beyond a quota.
    pub fn check_quotas(&self) -> Result<(), Error> {
        for &at in &self.grown {
            let space = self.all.get(at);
            let Count { totals, most, growth, .. } = &space.count;
            let (logs, bytes) = growth.unwrap_or_default();
            let (what, limit) = if logs > 0 && totals.logs > most.logs {
                ("logs", most.logs)
            } else if bytes > 0 && totals.bytes > most.bytes {
                ("bytes", most.bytes)
            } else {
                continue;
            };
            return Err(Error::QuotaReached { space: text(&space.name), what, limit });
        }
        Ok(())
    }

    /// Counts a commit that a quota of a space refused.
    pub fn note_refused(&mut self, space: &str) {
        if let Some(done) = self.all.done_mut(space.as_bytes()) {
            done.refused += 1;
        }
    }

    /// Returns the durability of a commit: the strictest of `asked` and of the classes of its logs'
    /// spaces.
    pub fn durability(&self, ops: &[Op<'_>], asked: Option<Durability>) -> Durability {
        if self.sums.deferred == 0 && asked.is_none_or(|asked| asked == Durability::Durable) {
            return Durability::Durable;
        }
        let of_log = |op: &Op<'_>| match (self.of(op.key).map(|at| self.get(at).config.class), asked) {
            (_, Some(Durability::Durable)) | (Some(Class::Durable | Class::Memory(_)), _) | (None, None) => {
                Durability::Durable
            }
            (None, Some(asked)) => asked,
            (Some(Class::Deferred(bound)), None) => Durability::Deferred(bound),
            (Some(Class::Deferred(bound)), Some(Durability::Deferred(asked))) => {
                Durability::Deferred(bound.min(asked))
            }
        };
        ops.iter().map(of_log).reduce(Durability::stricter).unwrap_or_default()
    }

    /// Returns the retention that a new log of this key gets, and the number of the space that
    /// counts the log; 0 if no space does.
    pub fn given(&self, key: &[u8]) -> Option<(Retention, u64)> {
        if self.sums.giving == 0 {
            return None;
        }
        let space = self.get(self.of(key)?);
        let counts = if space.config.has_quota() { space.number() } else { 0 };
        let retention = space.retention_of(key);
        (counts > 0 || retention.is_limited()).then_some((retention, counts))
    }

    /// Returns whether a space may limit or count its logs.
    pub fn any_gives(&self) -> bool {
        self.sums.giving > 0
    }

    /// Returns whether the space of a log limits or counts the log's bytes.
    pub fn sizes(&self, key: &[u8]) -> bool {
        self.any_gives()
            && self.of(key).is_some_and(|at| {
                let space = self.get(at);
                space.config.has_quota() || space.retention_of(key).bytes.is_some()
            })
    }

    /// Counts committed operations.
    pub fn note(&mut self, ops: &[Op<'_>]) {
        if self.all.is_empty() {
            return;
        }
        for op in ops {
            let (Action::Append(payload) | Action::Snapshot(payload)) = op.action else { continue };
            let bytes = payload.len() as u64;
            // The operations of a commit are often on logs of one space.
            if let Some(last) = self.noted.last_mut().filter(|last| is_below(op.key, &last.space)) {
                (last.entries, last.bytes) = (last.entries + 1, last.bytes + bytes);
            } else if let Some(name) = self.name_in(op.key) {
                let (space, hash) = (name.into(), self.all.hash(name));
                self.noted.push(Noted { space, hash, entries: 1, bytes });
            }
        }
        if self.noted.len() >= NOTED {
            self.count_noted();
        }
    }

    /// Gives the counters all appends that they do not have yet.
    fn count_noted(&mut self) {
        self.all.touch(self.noted.iter().map(|noted| noted.hash));
        for Noted { space, hash, entries, bytes } in self.noted.drain(..) {
            if let Some(done) = self.all.done_of(hash, &space) {
                (done.entries, done.bytes) = (done.entries + entries, done.bytes + bytes);
            }
        }
    }

    /// Counts a read of a log.
    pub fn note_read(&mut self, key: &[u8]) {
        if let Some(name) = self.name_in(key)
            && let Some(done) = self.all.done_mut(name)
        {
            done.reads += 1;
        }
    }

    /// Returns the configurations and the activity of the first `most` spaces, by name.
    pub fn infos(&mut self, most: usize) -> Vec<SpaceInfo> {
        self.count_noted();
        self.all.iter().take(most).map(|space| self.info_of(space)).collect()
    }

    /// Returns the configuration and the activity of a space.
    pub fn info(&mut self, name: &[u8]) -> Option<SpaceInfo> {
        self.count_noted();
        Some(self.info_of(self.get(self.find(name)?)))
    }

    /// Returns the maximum bytes of the table, for any totals.
    pub fn bound(&self) -> usize {
        format::bound(self.all.len(), self.sums.fixed)
    }

    /// Returns the table, as views have it.
    pub fn encode(&self) -> Vec<u8> {
        format::encode_table(self.next, self.all.iter())
    }

    /// Returns the table for a run, which is then the newest one.
    pub fn encode_for_run(&mut self) -> Vec<u8> {
        self.changed = false;
        self.encode()
    }

    /// Decodes the table of a run; `seed` is for the hashes of names. Returns `None` if the table
    /// is malformed.
    pub fn decode(table: &[u8], seed: u64) -> Option<Self> {
        let Decoded::Table(next, all) = format::decode(table)? else { return None };
        let mut numbers: Vec<u64> = all.iter().map(Space::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.len() < all.len() {
            return None;
        }
        let mut sums = Sums::default();
        all.iter().for_each(|space| sums.add(space));
        Some(Self { all: Index::new(seed, all), next, kept: true, sums, ..Self::default() })
    }

    fn info_of(&self, space: &Space) -> SpaceInfo {
        let Space { name, config, counted, count } = space;
        let done = self.all.done(name).unwrap_or_default();
        let totals = (*counted && config.has_quota()).then_some(count.totals);
        SpaceInfo {
            name: text(name),
            config: config.clone(),
            logs: totals.map(|totals| totals.logs),
            bytes: totals.map(|totals| totals.bytes),
            appended: done.entries,
            appended_bytes: done.bytes,
            reads: done.reads,
            refused: done.refused,
            memory: None,
        }
    }
}

impl Space {
    /// Returns the retention that the space sets on a log. `key` is the whole key.
    pub fn retention_of(&self, key: &[u8]) -> Retention {
        self.config.retention_of(&key[self.name.len() + 1..])
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Returns whether a log would be in the space with this name.
fn is_below(key: &[u8], space: &[u8]) -> bool {
    key.strip_prefix(space).and_then(<[u8]>::first) == Some(&SEPARATOR)
}

#[cfg(test)]
mod tests;
