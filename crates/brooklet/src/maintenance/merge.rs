//! The input of a new run: the pieces of a frozen memtable, or the merged pieces of several runs.
//!
//! Both inputs return the logs in key order, and a long log one chunk at a time, so that the work
//! can be done in slices. A compaction step may end between two logs of a merge. To continue, the
//! merge then needs only the runs and the next log.

use std::ops::Range;
use std::sync::Arc;

use brooklet_io::seeded::bug;

use crate::error::Error;
use crate::format::run_entry::{CHUNK, Chunk, Head, PieceWriter};
use crate::memtable::sort::IncrementalSort;
use crate::memtable::{LogState, Memtable, Slot};
use crate::model::retention_state::RetentionState;
use crate::model::{Bounds, Piece, Resolved, resolve};
use crate::read::scan::RunLogs;
use crate::run::cursor::RunCursor;
use crate::run::dead_entries::{DeadEntries, pieces_in};
use crate::run::table::Table;
use crate::run::writer::{BuildError, Pending};
use crate::run::{Run, RunSet, Wanted};

/// Approximate cost to copy a log besides its payload, in bytes of payload.
pub(crate) const LOG_COST: u64 = 64;
/// Approximate cost of a look at the older runs, in bytes of payload.
const LOOK_COST: u64 = 4096;

/// Approximate bytes of a run besides its logs.
const SLACK: u64 = 4096;

/// The logs of a new run, one after another.
pub(crate) struct Input {
    logs: Logs,
    /// The parts of the current log that are still to be copied; the next part is the last item.
    log: Option<Vec<Part>>,
}

/// The source of the pieces of a new run.
enum Logs {
    Memtable { memtable: Arc<Memtable>, order: Vec<Slot>, next: usize, dead_entries: DeadEntries },
    Runs { logs: Vec<RunLogs>, chunks: Vec<RunCursor>, bottom: bool, beside: Beside },
}

/// The runs outside the merge, which determine the entries and tombstones that need not be written.
struct Beside {
    /// The newer runs: they determine the irrelevant entries.
    newer: Vec<RunCursor>,
    /// The older runs: they determine the tombstones that are still needed.
    older: Vec<Arc<Run>>,
}

/// Entries of a log that have the same holder.
pub(crate) struct Part {
    pub range: Range<u64>,
    pub holder: Holder,
}

pub(crate) enum Holder {
    Memtable(Slot),
    /// The run at this position, with the chunk that was read last.
    Run(usize, Chunk),
}

impl Input {
    /// Creates an input from the logs of a memtable that [matter](matters), in order.
    /// `dead_entries` counts the entries that older runs lose.
    pub fn memtable(memtable: Arc<Memtable>, order: IncrementalSort, dead_entries: DeadEntries) -> Self {
        Self { logs: Logs::Memtable { memtable, order: order.end(), next: 0, dead_entries }, log: None }
    }

    /// Creates an input from the logs of some neighbouring runs, newest first. With `bottom`, no
    /// run was older than the last of them. The input leaves out the entries that the `newer` runs
    /// have made irrelevant, and the deleted logs that no `older` run knows.
    pub fn runs(
        runs: &[Arc<Run>],
        bottom: bool,
        newer: Vec<Arc<Run>>,
        older: Vec<Arc<Run>>,
    ) -> Result<Self, Error> {
        let beside = Beside { newer: newer.into_iter().map(RunCursor::new).collect(), older };
        Self::of_runs(runs, b"", bottom, beside)
    }

    /// Creates an input from the logs of all runs from `key` on.
    pub fn all(runs: &RunSet, key: &[u8]) -> Result<Self, Error> {
        let runs: Vec<_> = runs.iter().cloned().collect();
        Self::of_runs(&runs, key, true, Beside { newer: Vec::new(), older: Vec::new() })
    }

    fn of_runs(runs: &[Arc<Run>], key: &[u8], bottom: bool, beside: Beside) -> Result<Self, Error> {
        let logs = runs.iter().map(|run| RunLogs::new(run, key)).collect::<Result<_, _>>()?;
        let chunks = runs.iter().cloned().map(RunCursor::new).collect();
        Ok(Self { logs: Logs::Runs { logs, chunks, bottom, beside }, log: None })
    }

    /// Returns the bytes that the new run may take: for a memtable, the maximum; for runs, about
    /// the bytes that the rest of the runs takes.
    pub fn expected(&self) -> u64 {
        match &self.logs {
            Logs::Memtable { memtable, .. } => memtable.claim(),
            Logs::Runs { logs, .. } => {
                let left = |logs: &RunLogs| logs.run().bytes() - bytes_of(logs.passed());
                logs.iter().map(left).fold(SLACK, u64::saturating_add)
            }
        }
    }

    /// Returns the bytes that the next log may take. A run counts only if several of its tables
    /// hold the log.
    pub fn next_log_bytes(&self) -> u64 {
        let Logs::Runs { logs, .. } = &self.logs else { return 0 };
        let next = self.next_log();
        let holds = |logs: &&RunLogs| logs.current.as_ref().map(|(key, _)| &key[..]) == next;
        logs.iter().filter(holds).map(RunLogs::log_bytes).sum()
    }

    /// Returns the part of [`next_log_bytes`](Self::next_log_bytes) that newer runs leave alive, if
    /// all entries have the same length.
    pub fn next_log_alive(&mut self) -> Result<u64, Error> {
        let next = self.next_log().map(<[u8]>::to_vec);
        let (Some(next), Logs::Runs { logs, beside, .. }) = (next, &mut self.logs) else { return Ok(0) };
        let live = live_below(&mut beside.newer, &next)?.unwrap_or(0..u64::MAX);
        let alive = |logs: &RunLogs| {
            let (_, head) = logs.current.as_ref().filter(|(key, _)| *key == next)?;
            let held = head.piece.held();
            let alive = clipped(&held, &live);
            let [held, alive] = [held, alive].map(|range| u128::from(range.end.saturating_sub(range.start)));
            Some((u128::from(logs.log_bytes()) * alive / held.max(1)) as u64)
        };
        Ok(logs.iter().filter_map(alive).sum())
    }

    /// Returns whether no log is begun and unfinished.
    pub fn is_between_logs(&self) -> bool {
        self.log.is_none()
    }

    /// Returns the key of the next log of the runs; `None` after the last log, and for a memtable.
    pub fn next_log(&self) -> Option<&[u8]> {
        match &self.logs {
            Logs::Memtable { .. } => None,
            Logs::Runs { logs, .. } => {
                logs.iter().filter_map(|log| log.current.as_ref().map(|(key, _)| &key[..])).min()
            }
        }
    }

    /// Returns, for each run, the number of tables that hold none of the remaining logs.
    pub fn passed(&self) -> Vec<usize> {
        match &self.logs {
            Logs::Memtable { .. } => Vec::new(),
            Logs::Runs { logs, .. } => logs.iter().map(|log| log.passed().len()).collect(),
        }
    }

    /// Returns the bytes of all [passed](Self::passed) tables.
    pub fn passed_bytes(&self) -> u64 {
        match &self.logs {
            Logs::Memtable { .. } => 0,
            Logs::Runs { logs, .. } => logs.iter().map(|log| bytes_of(log.passed())).sum(),
        }
    }

    /// Writes the next part: a log's beginning, some of its entries, or its end. Returns the work
    /// done, in bytes of payload; `None` after the last log.
    pub fn step(&mut self, out: &mut PieceWriter<Pending>) -> Result<Option<u64>, BuildError> {
        let Some(parts) = &mut self.log else {
            return match &mut self.logs {
                Logs::Memtable { memtable, order, next, dead_entries, .. } => {
                    let Some(&slot) = order.get(*next) else { return Ok(None) };
                    *next += 1;
                    let (parts, looked) = begin_recent(memtable, slot, dead_entries, out);
                    self.log = Some(parts);
                    Ok(Some(LOG_COST + LOOK_COST * u64::from(looked)))
                }
                Logs::Runs { logs, bottom, beside, .. } => {
                    let Some(Merged { key, pieces, log }) = next_merged(logs, *bottom, beside)? else {
                        return Ok(None);
                    };
                    self.log = log.map(|MergedLog { piece, terms, parts }| {
                        out.begin(&key, piece, terms);
                        parts
                    });
                    Ok(Some(LOG_COST * pieces))
                }
            };
        };
        let Some(part) = parts.last_mut() else {
            self.log = None;
            let Ok(()) = out.end();
            return Ok(Some(0));
        };
        let copied = match (&mut part.holder, &mut self.logs) {
            (Holder::Memtable(slot), Logs::Memtable { memtable, .. }) => {
                copy_recent(memtable, *slot, &mut part.range, out)
            }
            (Holder::Run(run, chunk), Logs::Runs { chunks, .. }) => {
                if !chunk.range().contains(&part.range.start) {
                    *chunk = chunks[*run].chunk(out.key(), part.range.start)?;
                }
                copy_chunk(chunk, &mut part.range, out)
            }
            _ => unreachable!("parts come from the source"),
        };
        if part.range.is_empty() {
            parts.pop();
        }
        Ok(Some(copied))
    }

    /// Returns how many of a memtable's logs are written or begun, per mille.
    pub fn progress(&self) -> u64 {
        match &self.logs {
            Logs::Memtable { order, next, .. } => *next as u64 * 1000 / (order.len() as u64).max(1),
            Logs::Runs { .. } => 0,
        }
    }

    /// Returns the number of entries that each older run is known to have lost to the memtable, by
    /// the number of the run.
    pub fn dead_entries(&self) -> &[(u64, u64)] {
        match &self.logs {
            Logs::Memtable { dead_entries, .. } => dead_entries.known(),
            Logs::Runs { .. } => &[],
        }
    }
}

/// Returns whether a log of a memtable goes into a run. With `bottom`, no run is older, so a
/// deleted log needs no tombstone.
pub(crate) fn matters(log: &LogState, bottom: bool) -> bool {
    log.piece().is_some_and(|piece| !bottom || piece.bounds.is_some())
}

fn bytes_of(tables: &[Arc<Table>]) -> u64 {
    tables.iter().map(|table| table.meta.extent).sum()
}

/// Begins a log of a memtable. Also returns whether older runs were looked at.
fn begin_recent(
    memtable: &Memtable,
    slot: Slot,
    dead_entries: &mut DeadEntries,
    out: &mut PieceWriter<Pending>,
) -> (Vec<Part>, bool) {
    let log = memtable.log(slot);
    let piece = log.piece().expect("only visible pieces were chosen");
    let looked = dead_entries.count(&log.key, log.origin(), piece);
    out.begin(&log.key, piece, log.visible_terms().cloned());
    let range = piece.held();
    let part = Part { range: range.clone(), holder: Holder::Memtable(slot) };
    (if range.is_empty() { Vec::new() } else { vec![part] }, looked)
}

/// The next log of some runs.
pub(crate) struct Merged {
    pub key: Vec<u8>,
    /// Number of pieces that the runs have of the log.
    pieces: u64,
    /// The merged log; `None` if nothing of the log is left.
    pub log: Option<MergedLog>,
}

/// A log as the merge of its pieces.
pub(crate) struct MergedLog {
    pub piece: Piece,
    pub terms: Option<Arc<RetentionState>>,
    /// The parts to copy; the first part to copy is the last item.
    pub parts: Vec<Part>,
}

/// Merges the next log of some runs, newest first. Returns `None` after the last log.
fn next_merged(logs: &mut [RunLogs], bottom: bool, beside: &mut Beside) -> Result<Option<Merged>, Error> {
    let keys = logs.iter().filter_map(|log| log.current.as_ref().map(|(key, _)| key));
    let Some(key) = keys.min().cloned() else { return Ok(None) };
    let mut heads: Vec<(usize, Head)> = Vec::new();
    for (run, log) in logs.iter_mut().enumerate() {
        if log.current.as_ref().is_some_and(|(k, _)| *k == key) {
            heads.extend(log.take()?.map(|(_, head)| (run, head)));
        }
    }
    let pieces = heads.len() as u64;
    let Resolved { bounds, parts, upper } = resolve(heads.iter().map(|(_, head)| head.piece));
    if bounds.is_none() && (bottom || !is_known(&beside.older, &key)) {
        return Ok(Some(Merged { key, pieces, log: None }));
    }
    // `upper` is the first number that these runs do not account for. The merged piece begins
    // there.
    let piece = Piece { bounds, base: upper };
    let live = live_below(&mut beside.newer, &key)?;
    let alive = |range: &Range<u64>| live.as_ref().map_or(range.clone(), |live| clipped(range, live));
    // If newer runs need nothing of this piece, the piece is dropped: the newer runs also determine
    // the older entries that count.
    if live.as_ref().is_some_and(|live| clipped(&piece.held(), live).is_empty()) {
        return Ok(Some(Merged { key, pieces, log: None }));
    }
    let parts = parts.into_iter().map(|(i, part)| (i, alive(&part)));
    let parts: Vec<_> = parts.filter(|(_, part)| !part.is_empty()).collect();
    let piece = live.as_ref().map_or(piece, |live| within(piece, live));
    // Older runs may have been cleaned of entries that newer runs have made irrelevant. Only the
    // live entries must be present.
    let held = piece.held();
    let starts_right = !bottom || bounds.is_none_or(|b| held.start <= alive(&(b.first..b.next)).start);
    let end = parts.iter().rev().try_fold(held.start, |at, (_, part)| (part.start == at).then_some(part.end));
    if !starts_right || end != Some(held.end) {
        return Err(logs[heads[0].0].run().malformed(&key));
    }
    let terms = heads[0].1.terms.clone();
    let mut chunks: Vec<_> = heads.into_iter().map(|(run, head)| Some((run, head.chunk))).collect();
    let mut part = |(i, range): (usize, Range<u64>)| {
        let (run, chunk) = chunks[i].take().expect("a piece has one part");
        Part { range, holder: Holder::Run(run, chunk) }
    };
    let parts = parts.into_iter().map(&mut part).collect();
    Ok(Some(Merged { key, pieces, log: Some(MergedLog { piece, terms, parts }) }))
}

/// Merges the next log of all runs of a store, newest first. Returns `None` after the last log.
pub(crate) fn next_of_all(logs: &mut [RunLogs]) -> Result<Option<Merged>, Error> {
    next_merged(logs, true, &mut Beside { newer: Vec::new(), older: Vec::new() })
}

/// Returns whether some of the runs may know a log. An offloaded run may be out of reach and is not
/// asked: it may know the log. A run with an unreadable filter may know the log, too.
fn is_known(older: &[Arc<Run>], key: &[u8]) -> bool {
    let mut wanted = Wanted::new(key);
    older.iter().any(|run| run.is_offloaded() || !matches!(run.may_know(&mut wanted), Ok(Some(false))))
}

/// Returns the entries of a log that newer runs leave alive in older runs; `None` if the newer runs
/// do not know the log.
fn live_below(newer: &mut [RunCursor], key: &[u8]) -> Result<Option<Range<u64>>, Error> {
    let found = pieces_in(newer, key)?;
    if found.is_empty() {
        return Ok(None);
    }
    let Resolved { bounds, upper, .. } = resolve(found.into_iter().map(|(_, piece)| piece));
    let hidden = u64::from(bug("newer-run-hides-too-much"));
    Ok(Some(bounds.map_or(0..0, |bounds| bounds.first + hidden..upper)))
}

fn clipped(range: &Range<u64>, live: &Range<u64>) -> Range<u64> {
    range.start.max(live.start)..range.end.min(live.end)
}

/// Returns a piece without the entries outside of `live`. The newer runs, which determine `live`,
/// also determine the log's bounds. The piece only has to name its own entries, and the base below
/// which older entries count.
fn within(piece: Piece, live: &Range<u64>) -> Piece {
    let Some(Bounds { first, next }) = piece.bounds else { return piece };
    let next = next.min(live.end);
    let first = first.max(live.start).min(next);
    Piece { bounds: Some(Bounds { first, next }), base: piece.base.min(next) }
}

/// Copies about a chunk's bytes of entries of a memtable, and removes them from `range`.
fn copy_recent(
    memtable: &Memtable,
    slot: Slot,
    range: &mut Range<u64>,
    out: &mut PieceWriter<Pending>,
) -> u64 {
    let mut copied = 0;
    for payload in memtable.log(slot).payloads(memtable, range.clone()) {
        let Ok(()) = out.entry(&payload);
        range.start += 1;
        copied += payload.len() as u64 + 1;
        if copied >= CHUNK as u64 {
            break;
        }
    }
    copied
}

/// Copies the entries of `range` that a chunk holds, and removes them from `range`.
fn copy_chunk(chunk: &Chunk, range: &mut Range<u64>, out: &mut PieceWriter<Pending>) -> u64 {
    let mut copied = 0;
    let end = range.end.min(chunk.range().end);
    for seq in range.start..end {
        let payload = chunk.payload_bytes(seq);
        let Ok(()) = out.entry(payload);
        copied += payload.len() as u64 + 1;
    }
    range.start = end;
    copied
}
