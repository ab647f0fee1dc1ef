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
use crate::model::{Bounds, Piece, Resolved, resolve};
use crate::read::scan::RunLogs;
use crate::run::cursor::RunCursor;
use crate::run::dead_entries::{DeadEntries, pieces_in};
use crate::run::table::Table;
use crate::run::writer::{BuildError, Pending};
use crate::run::{Run, RunSet, Wanted};

/// What a log costs to copy, besides its payload, in bytes of payload: roughly.
pub(crate) const LOG_COST: u64 = 64;
/// What a look at the older runs costs, in bytes of payload: roughly.
const LOOK_COST: u64 = 4096;

/// What a run takes besides its logs, in bytes: roughly.
const SLACK: u64 = 4096;

/// The logs of a new run, one after another.
pub(crate) struct Input {
    logs: Logs,
    /// What is still to be copied of the log at hand, the next part last.
    log: Option<Vec<Part>>,
}

/// Where the pieces of a new run come from.
enum Logs {
    Memtable { memtable: Arc<Memtable>, order: Vec<Slot>, next: usize, dead_entries: DeadEntries },
    Runs { logs: Vec<RunLogs>, chunks: Vec<RunCursor>, bottom: bool, beside: Beside },
}

/// The runs outside the merge, which determine the entries and tombstones that need not be written.
struct Beside {
    /// The newer ones: what they have made irrelevant.
    newer: Vec<RunCursor>,
    /// The older ones: the logs of which it matters that they are gone.
    older: Vec<Arc<Run>>,
}

/// Entries of a log that lie in one place.
struct Part {
    range: Range<u64>,
    holder: Holder,
}

enum Holder {
    Memtable(Slot),
    /// The run at this place, with the chunk that was read last.
    Run(usize, Chunk),
}

impl Input {
    /// The logs of a memtable that [matter](matters), in order. `dead_entries` takes down what
    /// older runs lose.
    pub fn memtable(memtable: Arc<Memtable>, order: IncrementalSort, dead_entries: DeadEntries) -> Self {
        Self { logs: Logs::Memtable { memtable, order: order.end(), next: 0, dead_entries }, log: None }
    }

    /// The logs of some neighbouring runs, newest first. With `bottom`, the last of them was the
    /// oldest of all. Entries that the `newer` runs have made irrelevant are left out, and so are
    /// logs that are gone, where no `older` run knows them.
    pub fn runs(
        runs: &[Arc<Run>],
        bottom: bool,
        newer: Vec<Arc<Run>>,
        older: Vec<Arc<Run>>,
    ) -> Result<Self, Error> {
        let beside = Beside { newer: newer.into_iter().map(RunCursor::new).collect(), older };
        Self::of_runs(runs, b"", bottom, beside)
    }

    /// The logs of all runs from `key` on.
    pub fn all(runs: &RunSet, key: &[u8]) -> Result<Self, Error> {
        let runs: Vec<_> = runs.iter().cloned().collect();
        Self::of_runs(&runs, key, true, Beside { newer: Vec::new(), older: Vec::new() })
    }

    fn of_runs(runs: &[Arc<Run>], key: &[u8], bottom: bool, beside: Beside) -> Result<Self, Error> {
        let logs = runs.iter().map(|run| RunLogs::new(run, key)).collect::<Result<_, _>>()?;
        let chunks = runs.iter().cloned().map(RunCursor::new).collect();
        Ok(Self { logs: Logs::Runs { logs, chunks, bottom, beside }, log: None })
    }

    /// Bytes that the new run may take: of a memtable the most that it can be, of runs about what
    /// they take themselves.
    pub fn expected(&self) -> u64 {
        match &self.logs {
            Logs::Memtable { memtable, .. } => memtable.claim(),
            Logs::Runs { logs, .. } => {
                let left = |logs: &RunLogs| logs.run().bytes() - bytes_of(logs.passed());
                logs.iter().map(left).fold(SLACK, u64::saturating_add)
            }
        }
    }

    /// Bytes that the log which comes next may take, where it does not lie in one table of each
    /// run.
    pub fn next_log_bytes(&self) -> u64 {
        let Logs::Runs { logs, .. } = &self.logs else { return 0 };
        let next = self.next_log();
        let holds = |logs: &&RunLogs| logs.current.as_ref().map(|(key, _)| &key[..]) == next;
        logs.iter().filter(holds).map(RunLogs::log_bytes).sum()
    }

    /// So many of those bytes that newer runs leave alive, if entries are as long as each other.
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

    /// Whether all that was begun of a log is written.
    pub fn is_between_logs(&self) -> bool {
        self.log.is_none()
    }

    /// The log of the runs that comes next, where there is another.
    pub fn next_log(&self) -> Option<&[u8]> {
        match &self.logs {
            Logs::Memtable { .. } => None,
            Logs::Runs { logs, .. } => {
                logs.iter().filter_map(|log| log.current.as_ref().map(|(key, _)| &key[..])).min()
            }
        }
    }

    /// Tables of each of the runs that hold nothing of what is still to come.
    pub fn passed(&self) -> Vec<usize> {
        match &self.logs {
            Logs::Memtable { .. } => Vec::new(),
            Logs::Runs { logs, .. } => logs.iter().map(|log| log.passed().len()).collect(),
        }
    }

    /// Bytes of all those tables.
    pub fn passed_bytes(&self) -> u64 {
        match &self.logs {
            Logs::Memtable { .. } => 0,
            Logs::Runs { logs, .. } => logs.iter().map(|log| bytes_of(log.passed())).sum(),
        }
    }

    /// Writes what comes next: a log's beginning, some of its entries, or its end. Tells the work
    /// that took, in bytes of payload; `None` where there is nothing left.
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
                    begin_merged(logs, *bottom, beside, out).map(|begun| {
                        let (parts, pieces) = begun?;
                        self.log = parts;
                        Some(LOG_COST * pieces)
                    })
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

    /// How many of a memtable's logs are written, or begun, per mille.
    pub fn progress(&self) -> u64 {
        match &self.logs {
            Logs::Memtable { order, next, .. } => *next as u64 * 1000 / (order.len() as u64).max(1),
            Logs::Runs { .. } => 0,
        }
    }

    /// Entries that each of the older runs, by its number, is now known to have lost to the
    /// memtable.
    pub fn dead_entries(&self) -> &[(u64, u64)] {
        match &self.logs {
            Logs::Memtable { dead_entries, .. } => dead_entries.known(),
            Logs::Runs { .. } => &[],
        }
    }
}

/// Whether a log of a memtable goes into a run. With `bottom`, no run is older: what does not exist
/// needs no mention.
pub(crate) fn matters(log: &LogState, bottom: bool) -> bool {
    log.piece().is_some_and(|piece| !bottom || piece.bounds.is_some())
}

fn bytes_of(tables: &[Arc<Table>]) -> u64 {
    tables.iter().map(|table| table.meta.extent).sum()
}

/// Begins a log of a memtable; also tells whether older runs were looked at.
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

/// What is to be copied of a log, and how many pieces it had; no parts where the log goes.
type Begun = (Option<Vec<Part>>, u64);

/// Begins the next log of some runs. `None` where there is none.
fn begin_merged(
    logs: &mut [RunLogs],
    bottom: bool,
    beside: &mut Beside,
    out: &mut PieceWriter<Pending>,
) -> Result<Option<Begun>, BuildError> {
    let keys = logs.iter().filter_map(|l| l.current.as_ref().map(|(key, _)| key));
    let Some(key) = keys.min().cloned() else { return Ok(None) };
    let mut heads: Vec<(usize, Head)> = Vec::new();
    for (run, log) in logs.iter_mut().enumerate() {
        if let Some((_, head)) = log.current.as_ref().filter(|(k, _)| *k == key) {
            heads.push((run, head.clone()));
            log.advance()?;
        }
    }
    let pieces = heads.len() as u64;
    let Resolved { bounds, parts, upper } = resolve(heads.iter().map(|(_, head)| head.piece));
    if bounds.is_none() && (bottom || !is_known(&beside.older, &key)) {
        return Ok(Some((None, pieces)));
    }
    // `resolve` names the first number that these runs do not account for, which is where the
    // merged piece begins.
    let piece = Piece { bounds, base: upper };
    let live = live_below(&mut beside.newer, &key)?;
    let alive = |range: &Range<u64>| live.as_ref().map_or(range.clone(), |live| clipped(range, live));
    // Where newer runs need nothing of this piece, it goes: they tell of what is older, too.
    if live.as_ref().is_some_and(|live| clipped(&piece.held(), live).is_empty()) {
        return Ok(Some((None, pieces)));
    }
    let parts = parts.into_iter().map(|(i, part)| (i, alive(&part)));
    let parts: Vec<_> = parts.filter(|(_, part)| !part.is_empty()).collect();
    let piece = live.as_ref().map_or(piece, |live| within(piece, live));
    // Older runs may have been cleaned of what newer ones have made irrelevant: only what is alive
    // must be there.
    let held = piece.held();
    let starts_right = !bottom || bounds.is_none_or(|b| held.start <= alive(&(b.first..b.next)).start);
    let end = parts.iter().rev().try_fold(held.start, |at, (_, part)| (part.start == at).then_some(part.end));
    if !starts_right || end != Some(held.end) {
        return Err(logs[heads[0].0].run().malformed(&key).into());
    }
    out.begin(&key, piece, heads[0].1.terms.clone());
    let part = |(i, range)| {
        let (run, head): &(usize, Head) = &heads[i];
        Part { range, holder: Holder::Run(*run, head.chunk.clone()) }
    };
    Ok(Some((Some(parts.into_iter().map(part).collect()), pieces)))
}

/// Whether some of the runs may know a log, for all that is known: what lies elsewhere, maybe out
/// of reach, is not asked, and a filter may be one that cannot be read.
fn is_known(older: &[Arc<Run>], key: &[u8]) -> bool {
    let mut wanted = Wanted::new(key);
    older.iter().any(|run| run.is_offloaded() || !matches!(run.may_know(&mut wanted), Ok(Some(false))))
}

/// The entries of a log that newer runs leave alive in older ones; `None` where they do not know
/// it.
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

/// A piece without the entries outside of `live`. The newer runs that say so tell the log's bounds,
/// too; all that is left for this piece to tell is what it holds, and that older ones count only
/// below its base.
fn within(piece: Piece, live: &Range<u64>) -> Piece {
    let Some(Bounds { first, next }) = piece.bounds else { return piece };
    let next = next.min(live.end);
    let first = first.max(live.start).min(next);
    Piece { bounds: Some(Bounds { first, next }), base: piece.base.min(next) }
}

/// Copies about a chunk's bytes of entries of a memtable, and takes them off `range`.
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

/// Copies those entries of `range` that a chunk holds, and takes them off.
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
