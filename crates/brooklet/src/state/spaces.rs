//! The table of spaces: lists the spaces, their configurations, and their totals. It is a state
//! machine that the append step drives under its lock. Only this module describes how the table is
//! stored.
//!
//! The table is the newest entry of the log with the empty key, which no caller can name. It is
//! therefore committed, replayed, checkpointed, viewed and backed up like all other entries.
//!
//! ```text
//! table = version (1 byte: 1), number that the next space gets (varint), number of spaces (varint), spaces by name
//! space = length of the name (1 byte), name, its own number (varint),
//!         class (1 byte: 0 durable, 1 deferred, 2 in memory), [bound in milliseconds (varint): deferred],
//!         [bytes of memory (varint), 1 byte: 0 refuses when that is full, 1 drops the oldest, milliseconds from one dump to the
//!         next (varint; 0: none): in memory],
//!         flags (1 byte: 1 most logs, 2 most bytes, 4 most entries of a log, 8 most bytes of a log, 16 age in a log,
//!         32 all of its logs are counted), a varint for each of the first five (the age in milliseconds),
//!         logs counted, bytes counted (varints)
//! ```
//!
//! Totals change with every commit, but the table is not committed every time. A committed table
//! holds correct totals for new spaces only; replay computes all other totals from the effects. But
//! each checkpoint writes a table with the totals of its cut into its run, whether or not the
//! spaces changed. The next opening begins to count from that table.
//!
//! Invariants:
//! 1. A log counts in the totals of a space if, and only if, its terms hold that space's number.
//!    The change of the totals therefore follows from the log's state before and after. A space
//!    that is removed and created again is a different space.
//! 2. Names ascend.

use std::time::Duration;

use brooklet_wal::{put_varint, take_varint};

use crate::error::Error;
use crate::model::Bounds;
use crate::model::commit::{Action, Durability, Op};
use crate::model::retention::Retention;
use crate::model::retention_state::RetentionState;
use crate::model::space_config::{
    Class, MAX_NAME, MAX_SPACES, MemoryConfig, SEPARATOR, SpaceConfig, SpaceInfo, WhenFull,
};

/// The key of the log that holds the table.
pub(crate) const TABLE: &[u8] = b"";
/// The smallest key of any other log.
pub(crate) const FIRST: &[u8] = b"\0";

const VERSION: u8 = 1;

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

#[derive(Clone, Debug)]
pub(crate) struct Space {
    name: Box<[u8]>,
    pub number: u64,
    pub config: SpaceConfig,
    /// Whether all logs of the space are counted, including logs that are older than the space.
    pub counted: bool,
    totals: Totals,
    done: Done,
}

/// The spaces of a store according to its runs, and the bounds of the log that holds them; `None`
/// if that log does not exist.
#[derive(Debug, Default)]
pub(crate) struct SpaceTable {
    pub spaces: Spaces,
    pub log: Option<Bounds>,
}

/// The spaces of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spaces {
    all: Vec<Space>,
    next: u64,
    /// Whether a space has ever existed, and with it the log that holds the table.
    kept: bool,
    /// The changes of totals by the current commit: the space, logs, bytes.
    growth: Vec<(usize, i64, i64)>,
}

impl Spaces {
    /// Returns whether a checkpoint writes the table into its run.
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// Returns the position of the space that a log belongs to.
    pub fn of(&self, key: &[u8]) -> Option<usize> {
        if self.all.is_empty() {
            return None;
        }
        let name = &key[..key.iter().take(MAX_NAME + 1).position(|&byte| byte == SEPARATOR)?];
        self.find(name)
    }

    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.all.binary_search_by(|space| (*space.name).cmp(name)).ok()
    }

    /// Returns whether a log is in a memory space.
    pub fn is_in_memory(&self, key: &[u8]) -> bool {
        self.of(key).is_some_and(|at| self.all[at].config.class.memory().is_some())
    }

    /// Returns the memory configuration of a space; `None` if the space is not in memory.
    pub fn memory_of(&self, name: &[u8]) -> Option<MemoryConfig> {
        self.all[self.find(name)?].config.class.memory()
    }

    pub fn get(&self, at: usize) -> &Space {
        &self.all[at]
    }

    /// Returns a table in which this space is added or changed, or removed if `config` is `None`.
    /// Also returns the space's number.
    pub fn with(&self, name: &str, config: Option<(SpaceConfig, bool)>) -> Result<(Self, u64), Error> {
        let mut table = self.clone();
        let at = table.all.binary_search_by(|space| (*space.name).cmp(name.as_bytes()));
        let number = match (at, config) {
            (Ok(at), Some((config, counted))) => {
                let space = &mut table.all[at];
                if config.class.memory().is_some() != space.config.class.memory().is_some() {
                    // The logs counted so far do not count any more.
                    (space.number, space.totals) = (table.next, Totals::default());
                    table.next += 1;
                }
                (space.config, space.counted) = (config, counted);
                space.number
            }
            (Ok(at), None) => table.all.remove(at).number,
            (Err(_), None) => return Err(Error::UnknownSpace { name: name.into() }),
            (Err(_), Some(_)) if table.all.len() == MAX_SPACES => {
                let why = format!("the store has {MAX_SPACES} spaces, the maximum: remove one first");
                return Err(Error::InvalidSpace(why));
            }
            (Err(at), Some((config, counted))) => {
                table.next = table.next.max(1);
                let (number, name) = (table.next, name.as_bytes().into());
                table.next += 1;
                let (totals, done) = Default::default();
                table.all.insert(at, Space { name, number, config, counted, totals, done });
                number
            }
        };
        Ok((table, number))
    }

    /// Replaces the spaces by those of a table that was committed or found. Known spaces keep their
    /// totals and counters. Returns `None` if the table is malformed.
    pub fn take_on(&mut self, table: &[u8]) -> Option<()> {
        let mut new = Self::decode(table)?;
        for space in &mut new.all {
            if let Some(known) = self.all.iter().find(|known| known.number == space.number) {
                (space.totals, space.done) = (known.totals, known.done);
            }
        }
        *self = new;
        Some(())
    }

    /// Applies the change of a log's share to the totals.
    pub fn shift(&mut self, key: &[u8], before: Share, after: Share) {
        if before == after {
            return;
        }
        let Some(at) = self.of(key) else { return };
        let space = &mut self.all[at];
        let (old, new) = (before.totals(space.number), after.totals(space.number));
        let logs = new.logs as i64 - old.logs as i64;
        let bytes = new.bytes.wrapping_sub(old.bytes) as i64;
        space.totals.logs = space.totals.logs.saturating_add_signed(logs);
        space.totals.bytes = space.totals.bytes.saturating_add_signed(bytes);
        match self.growth.iter_mut().find(|(other, ..)| *other == at) {
            Some((_, all_logs, all_bytes)) => {
                (*all_logs, *all_bytes) = (*all_logs + logs, *all_bytes + bytes)
            }
            None => self.growth.push((at, logs, bytes)),
        }
    }

    /// Begins a commit.
    pub fn begin(&mut self) {
        self.growth.clear();
    }

    /// Returns an error if the current commit takes a space beyond a quota.
    pub fn check_quotas(&mut self) -> Result<(), Error> {
        for &(at, logs, bytes) in &self.growth {
            let Space { name, config, totals, done, .. } = &mut self.all[at];
            let over = |grows: i64, has: u64, most: Option<u64>| most.filter(|most| grows > 0 && has > *most);
            let (what, limit) = if let Some(most) = over(logs, totals.logs, config.max_logs) {
                ("logs", most)
            } else if let Some(most) = over(bytes, totals.bytes, config.max_bytes) {
                ("bytes", most)
            } else {
                continue;
            };
            done.refused += 1;
            return Err(Error::QuotaReached { space: text(name), what, limit });
        }
        Ok(())
    }

    /// Returns the durability of a commit: the strictest of `asked` and of the classes of its logs'
    /// spaces.
    pub fn durability(&self, ops: &[Op<'_>], asked: Option<Durability>) -> Durability {
        if self.all.is_empty() {
            return asked.unwrap_or_default();
        }
        let of_log = |op: &Op<'_>| match (self.of(op.key).map(|at| self.all[at].config.class), asked) {
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
        let space = &self.all[self.of(key)?];
        let counts = if space.config.has_quota() { space.number } else { 0 };
        let gives = counts > 0 || space.config.retention.is_limited();
        gives.then_some((space.config.retention, counts))
    }

    /// Returns whether the space of a log limits or counts the log's bytes.
    pub fn sizes(&self, key: &[u8]) -> bool {
        self.of(key).is_some_and(|at| {
            let config = &self.all[at].config;
            config.has_quota() || config.retention.bytes.is_some()
        })
    }

    /// Counts committed operations.
    pub fn note(&mut self, ops: &[Op<'_>]) {
        for op in ops {
            if let Action::Append(payload) | Action::Snapshot(payload) = op.action
                && let Some(at) = self.of(op.key)
            {
                let done = &mut self.all[at].done;
                (done.entries, done.bytes) = (done.entries + 1, done.bytes + payload.len() as u64);
            }
        }
    }

    /// Counts a read of a log.
    pub fn note_read(&mut self, key: &[u8]) {
        if let Some(at) = self.of(key) {
            self.all[at].done.reads += 1;
        }
    }

    pub fn infos(&self) -> Vec<SpaceInfo> {
        let info = |space: &Space| {
            let Space { name, config, counted, totals, done, .. } = space;
            let totals = (*counted && config.has_quota()).then_some(*totals);
            SpaceInfo {
                name: text(name),
                config: *config,
                logs: totals.map(|totals| totals.logs),
                bytes: totals.map(|totals| totals.bytes),
                appended: done.entries,
                appended_bytes: done.bytes,
                reads: done.reads,
                refused: done.refused,
                memory: None,
            }
        };
        self.all.iter().map(info).collect()
    }

    /// Returns the maximum bytes of the table, for any totals.
    pub fn bound(&self) -> usize {
        let space = |space: &Space| 1 + space.name.len() + 10 + 22 + 1 + 5 * 10 + 2 * 10;
        1 + 2 * 10 + self.all.iter().map(space).sum::<usize>()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        let put = |out: &mut Vec<u8>, n| put_varint(&mut |bytes| out.extend_from_slice(bytes), n);
        put(&mut out, self.next);
        put(&mut out, self.all.len() as u64);
        for Space { name, number, config, counted, totals, .. } in &self.all {
            out.push(name.len() as u8);
            out.extend_from_slice(name);
            put(&mut out, *number);
            match config.class {
                Class::Durable => out.push(0),
                Class::Deferred(bound) => {
                    out.push(1);
                    put(&mut out, bound.as_millis() as u64);
                }
                Class::Memory(MemoryConfig { bytes, when_full, dump_every }) => {
                    out.push(2);
                    put(&mut out, bytes);
                    out.push(u8::from(when_full == WhenFull::DropOldest));
                    put(&mut out, dump_every.map_or(0, |every| every.as_millis() as u64));
                }
            }
            let limits = limits(config);
            let flags =
                limits.iter().zip(0..).map(|(limit, bit)| u8::from(limit.is_some()) << bit).sum::<u8>();
            out.push(flags | u8::from(*counted) << 5);
            limits.into_iter().flatten().for_each(|limit| put(&mut out, limit));
            put(&mut out, totals.logs);
            put(&mut out, totals.bytes);
        }
        out
    }

    /// Decodes a table. Returns `None` if the table is malformed.
    pub fn decode(table: &[u8]) -> Option<Self> {
        let (&[VERSION], mut rest) = table.split_first_chunk()? else { return None };
        let mut spaces = Self { next: take_varint(&mut rest)?, kept: true, ..Self::default() };
        for _ in 0..take_varint(&mut rest)? {
            let space = Space::decode(&mut rest)?;
            let in_order = spaces.all.last().is_none_or(|last| last.name < space.name);
            let is_new = spaces.all.iter().all(|other| other.number != space.number);
            if !in_order || !is_new || !(1..spaces.next).contains(&space.number) {
                return None;
            }
            spaces.all.push(space);
        }
        rest.is_empty().then_some(spaces)
    }
}

fn limits(config: &SpaceConfig) -> [Option<u64>; 5] {
    let Retention { entries, bytes, age } = config.retention;
    [config.max_logs, config.max_bytes, entries, bytes, age.map(|age| age.as_millis() as u64)]
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl Space {
    fn decode(rest: &mut &[u8]) -> Option<Self> {
        let byte = |rest: &mut &[u8]| {
            let (&byte, after) = rest.split_first()?;
            *rest = after;
            Some(byte)
        };
        let len = byte(rest)?;
        let (name, after) = rest.split_at_checked(len.into())?;
        *rest = after;
        let number = take_varint(rest)?;
        let class = match byte(rest)? {
            0 => Class::Durable,
            1 => Class::Deferred(Duration::from_millis(take_varint(rest)?)),
            2 => {
                let bytes = take_varint(rest)?;
                let when_full =
                    [WhenFull::Refuse, WhenFull::DropOldest].get(usize::from(byte(rest)?)).copied()?;
                let every = Some(take_varint(rest)?).filter(|every| *every > 0).map(Duration::from_millis);
                Class::Memory(MemoryConfig { bytes, when_full, dump_every: every })
            }
            _ => return None,
        };
        let flags = byte(rest)?;
        let mut limit = |bit: u8| match flags >> bit & 1 {
            0 => Some(None),
            _ => take_varint(rest).map(Some),
        };
        let (max_logs, max_bytes) = (limit(0)?, limit(1)?);
        let (entries, bytes, age) = (limit(2)?, limit(3)?, limit(4)?);
        let retention = Retention { entries, bytes, age: age.map(Duration::from_millis) };
        let config = SpaceConfig { class, max_logs, max_bytes, retention };
        let totals = Totals { logs: take_varint(rest)?, bytes: take_varint(rest)? };
        let lawful = config.check(std::str::from_utf8(name).ok()?).is_ok() && flags < 64;
        let (name, counted, done) = (name.into(), flags & 32 != 0, Done::default());
        lawful.then_some(Self { name, number, config, counted, totals, done })
    }
}
