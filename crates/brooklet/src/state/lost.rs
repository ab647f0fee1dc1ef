//! Damage in the ring of a store that is open read-only: which logs it affects, and which logs are
//! proven despite it.
//!
//! Up to the first hole, the ring holds each log as it was at one moment. The effect of a missing
//! commit on a log is unknown: it may have appended entries, truncated the log and appended again,
//! or deleted it. So there are two kinds of logs:
//!
//! - A log is **proven** if the blocks after the last hole determine its whole content: the log was
//!   created there, or all its earlier entries were trimmed there, or it was deleted there. A
//!   proven log reads like any other log.
//! - All other logs are **in doubt**. Reading returns the entries from before the hole, and then an
//!   error that names the damage. Entries in blocks after the last hole are proven, and can be read
//!   by their numbers.
//!
//! Blocks between the first and the last hole are ignored.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_wal::{Block, Hole, Records};
use bytes::Bytes;

use crate::error::{Error, KeyText};
use crate::format::commit_record::{self, Entry};
use crate::memtable::{LogState, Memtable, Pending};
use crate::model::retention_state::State;
use crate::model::{Bounds, Effect};
use crate::state::spaces::Spaces;

/// A message names so many logs.
const NAMED: usize = 5;
/// So many are remembered.
const MOST: usize = 10_000;

/// What is missing of a ring, and what is behind that.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    first: Hole,
    /// Where the last hole ends, if it does.
    next: Option<u64>,
    /// Logs that missing blocks are known to have changed, or that such a block names as far as it
    /// can be made out.
    touched: BTreeSet<Vec<u8>>,
    /// What blocks behind the last hole tell.
    pub behind: Arc<Memtable>,
}

/// What is not known of a log.
#[derive(Debug)]
pub(crate) struct Doubt {
    lost: Arc<Lost>,
    /// The log's bounds behind the hole as far as they are known, the number from which on its
    /// entries are, and those.
    behind: Option<(Bounds, u64, Vec<Bytes>)>,
}

impl Lost {
    pub fn new(hole: &Hole, seed: u64) -> Self {
        let (first, next) = (Hole { remains: None, ..hole.clone() }, hole.next);
        let mut lost = Self { first, next, touched: BTreeSet::new(), behind: Arc::new(Memtable::new(seed)) };
        lost.name(hole);
        lost
    }

    /// Another hole: what is behind the one before is left out.
    pub fn again(&mut self, hole: &Hole, seed: u64) {
        self.next = hole.next;
        self.behind = Arc::new(Memtable::new(seed));
        self.name(hole);
    }

    /// Takes note of the logs that a damaged block names.
    fn name(&mut self, hole: &Hole) {
        let records = hole.remains.iter().flat_map(|data| Records::new(data).map_while(|record| record));
        for (_, mut rest) in records {
            let mut previous = None;
            while let Some(entry) =
                (!rest.is_empty()).then(|| commit_record::decode(&mut rest, previous)).flatten()
            {
                previous = Some(entry.key);
                self.touch(entry.key);
            }
        }
    }

    fn touch(&mut self, key: &[u8]) {
        if !key.is_empty() && self.touched.len() < MOST {
            self.touched.insert(key.to_vec());
        }
    }

    /// Brings back a block behind the hole; `before` is what was there up to it. `None` where the
    /// block makes no sense.
    pub fn replay(
        &mut self,
        block: &Block,
        before: &Memtable,
        effects: &mut Vec<Pending>,
        spaces: &mut Spaces,
    ) -> Option<()> {
        let mut behind = std::mem::take(&mut self.behind);
        let memtable = Arc::get_mut(&mut behind).expect("nobody reads while recovery goes on");
        let done = memtable.replay_with(block, effects, spaces, |entry| self.begin(before, entry));
        self.behind = behind;
        done
    }

    /// What a log was before its first effect behind the hole; `None` where the effect does not
    /// tell enough.
    fn begin(&mut self, before: &Memtable, entry: &Entry<'_>) -> Option<State> {
        let known = before.find(entry.key).map(|slot| before.log(slot).appended);
        let told = entry.before.bounds;
        // Without bounds it is not the first since the last checkpoint, or the log was not there.
        let at = |next| Some(Bounds { first: 0, next });
        let bounds = match entry.effect {
            _ if told.is_some() => told,
            Effect::Append(0) => return Some(State::default()),
            Effect::Append(next) | Effect::Truncate(next) => at(next),
            Effect::Delete => at(0),
            _ => None,
        };
        let (next, was) = (bounds.map(|bounds| bounds.next), known.flatten().map(|bounds| bounds.next));
        let moved = matches!(entry.effect, Effect::Append(_)) && known.is_some() && next != was;
        let unseen = told.is_none() && matches!(entry.effect, Effect::Append(_) | Effect::Trim(_));
        if moved || unseen && known.is_none() {
            self.touch(entry.key);
        }
        bounds.map(|_| State { bounds, terms: entry.before.terms.clone() })
    }

    /// What blocks behind the hole tell of a log, where that is all that it holds.
    pub fn proven(&self, key: &[u8]) -> Option<&LogState> {
        let log = self.behind.log(self.behind.find(key)?);
        is_proven(log).then_some(log)
    }

    /// What is not known of a log, unless it is proven.
    pub fn doubt(self: &Arc<Self>, key: &[u8]) -> Option<Doubt> {
        let behind = match self.behind.find(key).map(|slot| self.behind.log(slot)) {
            Some(log) if is_proven(log) => return None,
            Some(log) => log.piece().and_then(|piece| Some((piece.bounds?, piece.base, log))),
            None => None,
        };
        let behind = behind.map(|(bounds, base, log)| {
            (bounds, base, log.payloads(&self.behind, base..bounds.next).collect())
        });
        Some(Doubt { lost: self.clone(), behind })
    }

    /// Where the damage is.
    pub fn place(&self) -> String {
        let brooklet_wal::Cursor { seq, position, lsn, .. } = self.first.from;
        let at = format!("position {position} (LSN {lsn})");
        match self.next {
            Some(next) if next == seq + 1 => format!("the ring, block {seq} at {at}"),
            Some(next) => format!("the ring, blocks {seq} to {} from {at} on", next - 1),
            None => format!("the ring, block {seq} at {at} and all later blocks"),
        }
    }

    /// What is wrong there, and which logs it touches.
    pub fn what(&self) -> String {
        let mut what = self.first.what.clone();
        if self.touched.is_empty() {
            what.push_str("; the affected logs are not known");
        } else {
            what.push_str("; affected logs: ");
            for (i, key) in self.touched.iter().take(NAMED).enumerate() {
                let comma = if i == 0 { "" } else { ", " };
                let _ = write!(what, "{comma}{}", KeyText::of(key));
            }
            let more = self.touched.len().saturating_sub(NAMED);
            let _ = if more > 0 { write!(what, " and {more} more") } else { Ok(()) };
            what.push_str(", and maybe other logs");
        }
        what
    }

    /// Logs that it is known to touch, or that a damaged block names.
    pub fn touched(&self) -> impl Iterator<Item = &[u8]> {
        self.touched.iter().map(Vec::as_slice)
    }

    /// The error that ends what lists or reads many logs.
    pub fn error(&self) -> Error {
        let what = self.what();
        Error::damaged(
            self.place(),
            format!(
                "{what}; logs that the lost commits created are missing, and other logs lack these commits"
            ),
        )
    }
}

/// Whether blocks behind the hole tell all of a log.
pub(crate) fn is_proven(log: &LogState) -> bool {
    log.piece().is_some_and(|piece| piece.bounds.is_none_or(|bounds| bounds.first >= piece.base))
}

impl Doubt {
    /// The entries that are not known of a log that went on at `next` before the hole: those that
    /// are missing, or that stand for others.
    pub fn gap(&self, next: u64) -> Range<u64> {
        match &self.behind {
            Some((_, base, _)) => next.min(*base)..*base,
            None => next..u64::MAX,
        }
    }

    /// The log's bounds, as far as they are known, by what they were before the hole.
    pub fn bounds(&self, before: Option<Bounds>) -> Option<Bounds> {
        let Some((behind, ..)) = &self.behind else { return before };
        let first = before.map_or(0, |before| before.first).max(behind.first);
        Some(Bounds { first: first.min(behind.next), next: behind.next })
    }

    /// The entries behind the hole that are known, from the end of the [gap](Self::gap) on.
    pub fn into_payloads(self) -> Vec<Bytes> {
        self.behind.map_or_else(Vec::new, |(.., payloads)| payloads)
    }

    /// What who asks for the log is told, where it went on at `next` before the hole.
    pub fn error(&self, key: &[u8], next: Option<u64>) -> Error {
        let (key, why) = (KeyText::of(key), &self.lost.first.what);
        let known = match (next, &self.behind) {
            (None, None) => format!("a lost commit may have created log {key}"),
            (Some(next), None) => format!("entries of log {key} from {next} on may be missing"),
            (next, Some((_, base, _))) if next.is_none_or(|next| next < *base) => {
                let next = next.unwrap_or_default();
                format!(
                    "entries {next} to {base} (exclusive) of log {key} are missing; continue to read at entry {base}"
                )
            }
            (_, Some((_, base, _))) => {
                format!(
                    "entries of log {key} before {base} may be outdated; continue to read at entry {base}"
                )
            }
        };
        Error::damaged(self.lost.place(), format!("{why}; {known}"))
    }
}

/// What is lost, unless nobody is to know.
pub(crate) fn of(lost: &Option<Arc<Lost>>) -> Option<&Arc<Lost>> {
    lost.as_ref().filter(|_| !bug("a-hole-is-kept-quiet"))
}
