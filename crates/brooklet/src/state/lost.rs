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

/// Maximum number of logs that a message names.
const NAMED: usize = 5;
/// Maximum number of touched logs that are stored.
const MOST: usize = 10_000;

/// The missing part of a ring, and the content behind it.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    first: Hole,
    /// The number of the first block behind the last hole, if there is one.
    next: Option<u64>,
    /// Logs that missing blocks are known to have changed, and logs that the readable part of a
    /// damaged block names.
    touched: BTreeSet<Vec<u8>>,
    /// The content of the blocks behind the last hole.
    pub behind: Arc<Memtable>,
}

/// The unknown part of a log.
#[derive(Debug)]
pub(crate) struct Doubt {
    lost: Arc<Lost>,
    /// The content of the log behind the hole: its bounds as far as they are known, the number of
    /// its first known entry, and the payloads from that number on.
    behind: Option<(Bounds, u64, Vec<Bytes>)>,
}

impl Lost {
    pub fn new(hole: &Hole, seed: u64) -> Self {
        let (first, next) = (Hole { remains: None, ..hole.clone() }, hole.next);
        let mut lost = Self { first, next, touched: BTreeSet::new(), behind: Arc::new(Memtable::new(seed)) };
        lost.name(hole);
        lost
    }

    /// Adds another hole. The blocks between the holes are ignored.
    pub fn again(&mut self, hole: &Hole, seed: u64) {
        self.next = hole.next;
        self.behind = Arc::new(Memtable::new(seed));
        self.name(hole);
    }

    /// Records the logs that a damaged block names.
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

    /// Replays a block behind the hole; `before` is the content before the hole. Returns `None` if
    /// the block is malformed.
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

    /// Returns the state of a log before its first effect behind the hole; `None` if the effect
    /// does not determine the state.
    fn begin(&mut self, before: &Memtable, entry: &Entry<'_>) -> Option<State> {
        let known = before.find(entry.key).map(|slot| before.log(slot).appended);
        let told = entry.before.bounds;
        // An effect without bounds is not the log's first one since the last checkpoint, or the log
        // did not exist.
        let at = |next| Some(Bounds { first: 0, next });
        let bounds = match entry.effect {
            _ if told.is_some() => told,
            Effect::Append(0) => return Some(State::default()),
            Effect::Append(next) | Effect::Truncate(next) => at(next),
            Effect::Delete => at(0),
            // The effect determines the log: it is empty, whatever it was.
            Effect::Begin(_) => at(0),
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

    /// Returns the state of a log behind the hole if the log is proven.
    pub fn proven(&self, key: &[u8]) -> Option<&LogState> {
        let log = self.behind.log(self.behind.find(key)?);
        is_proven(log).then_some(log)
    }

    /// Returns the unknown part of a log; `None` if the log is proven.
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

    /// Returns the place of the damage.
    pub fn place(&self) -> String {
        let brooklet_wal::Cursor { seq, position, lsn, .. } = self.first.from;
        let at = format!("position {position} (LSN {lsn})");
        match self.next {
            Some(next) if next == seq + 1 => format!("the ring, block {seq} at {at}"),
            Some(next) => format!("the ring, blocks {seq} to {} from {at} on", next - 1),
            None => format!("the ring, block {seq} at {at} and all later blocks"),
        }
    }

    /// Describes the damage, and names logs that it touches.
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

    /// Returns the logs that the damage is known to touch, or that a damaged block names.
    pub fn touched(&self) -> impl Iterator<Item = &[u8]> {
        self.touched.iter().map(Vec::as_slice)
    }

    /// Returns the error that ends a listing, or a read of many logs.
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

/// Returns whether the blocks behind the hole determine the whole content of a log.
pub(crate) fn is_proven(log: &LogState) -> bool {
    log.piece().is_some_and(|piece| piece.bounds.is_none_or(|bounds| bounds.first >= piece.base))
}

impl Doubt {
    /// Returns the unknown entries of a log whose next number was `next` before the hole. These
    /// entries are missing, or their numbers may have been used again.
    pub fn gap(&self, next: u64) -> Range<u64> {
        match &self.behind {
            Some((_, base, _)) => next.min(*base)..*base,
            None => next..u64::MAX,
        }
    }

    /// Returns the log's bounds as far as they are known; `before` is the bounds before the hole.
    pub fn bounds(&self, before: Option<Bounds>) -> Option<Bounds> {
        let Some((behind, base, _)) = &self.behind else { return before };
        // Entries from `base` on are proven. A lost commit may have begun the log again below its
        // earlier first number.
        let before = before.map_or(0, |before| before.first);
        let first = if bug("earlier-trims-hold") { before } else { before.min(*base) }.max(behind.first);
        Some(Bounds { first: first.min(behind.next), next: behind.next })
    }

    /// Returns the payloads of the known entries behind the hole, from the end of the
    /// [gap](Self::gap) on.
    pub fn into_payloads(self) -> Vec<Bytes> {
        self.behind.map_or_else(Vec::new, |(.., payloads)| payloads)
    }

    /// Returns the error for a caller that asks for the log; `next` is the log's next number before
    /// the hole.
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

/// Returns the lost part of the ring, if any.
pub(crate) fn of(lost: &Option<Arc<Lost>>) -> Option<&Arc<Lost>> {
    lost.as_ref().filter(|_| !bug("a-hole-is-kept-quiet"))
}
