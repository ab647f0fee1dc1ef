//! What goes into a new run: the pieces of a frozen tier, or those of several runs merged.
//!
//! Both give log after log in key order, and a long log a chunk at a time, so that the work can be done in slices.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;
use crate::losses::Losses;
use crate::model::{Piece, Resolved, resolve};
use crate::piece::{CHUNK, Chunk, Head, PieceWriter};
use crate::recent::{Slot, Tier};
use crate::runs::{Run, RunBuilder};
use crate::scan::RunLogs;

/// What a log costs to copy, besides its payload, in bytes of payload: roughly.
pub(crate) const LOG_COST: u64 = 64;
/// What a look at the older runs costs, in bytes of payload: roughly.
const LOOK_COST: u64 = 4096;

/// The logs of a new run, one after another.
pub(crate) struct Input {
    logs: Logs,
    /// What is still to be copied of the log at hand, the next part last.
    log: Option<Vec<Part>>,
}

/// Where the pieces of a new run come from.
enum Logs {
    Tier { tier: Arc<Tier>, order: Vec<Slot>, next: usize, losses: Losses },
    Runs { logs: Vec<RunLogs>, bottom: bool },
}

/// Entries of a log that lie in one place.
struct Part {
    range: Range<u64>,
    holder: Holder,
}

enum Holder {
    Tier(Slot),
    /// With the chunk that was read last.
    Run(Arc<Run>, Chunk),
}

impl Input {
    /// The logs of a tier that something happened to, in key order. With `bottom`, no run is older: what does not
    /// exist needs no mention. `losses` takes down what older runs lose.
    pub fn tier(tier: Arc<Tier>, bottom: bool, losses: Losses) -> Self {
        let matters = |piece: Piece| !bottom || piece.bounds.is_some();
        let slots = 0..tier.logs.len() as Slot;
        let mut order: Vec<Slot> = slots.filter(|&s| tier.log(s).piece().is_some_and(matters)).collect();
        order.sort_unstable_by(|&a, &b| tier.log(a).key.cmp(&tier.log(b).key));
        Self { logs: Logs::Tier { tier, order, next: 0, losses }, log: None }
    }

    /// The logs of some neighbouring runs, newest first. With `bottom`, the last of them is the oldest of all.
    pub fn runs(runs: &[Arc<Run>], bottom: bool) -> Result<Self, Error> {
        let logs = runs.iter().map(|run| RunLogs::new(run, b"")).collect::<Result<_, _>>()?;
        Ok(Self { logs: Logs::Runs { logs, bottom }, log: None })
    }

    /// The most bytes that the new run can take, before compression.
    pub fn bound(&self) -> u64 {
        match &self.logs {
            Logs::Tier { tier, order, .. } => {
                let log = |&slot: &Slot| {
                    let log = tier.log(slot);
                    let entries = log.piece().map_or(0, |p| p.held().end - p.held().start);
                    // Keys are escaped, and stand in the head, in every chunk, and in the index.
                    log.payload_bytes() * 3 / 2
                        + entries * 10
                        + (log.key.len() as u64 * 2 + 64) * 4
                        + log.visible_terms().map_or(0, |terms| terms.bound() as u64)
                };
                order.iter().map(log).sum::<u64>() + (1 << 16)
            }
            // Merging drops entries; how well the rest compresses in other company cannot be known before.
            Logs::Runs { logs, .. } => {
                logs.iter()
                    .map(|l| l.run().raw_bytes().saturating_add(l.run().meta.logs).saturating_mul(5) / 4)
                    .sum::<u64>()
                    + (1 << 16)
            }
        }
    }

    /// Writes what comes next: a log's beginning, some of its entries, or its end. Tells the work that took, in bytes of
    /// payload; `None` where there is nothing left.
    pub fn step(&mut self, out: &mut PieceWriter<RunBuilder>) -> Result<Option<u64>, Trouble> {
        let Some(parts) = &mut self.log else {
            return match &mut self.logs {
                Logs::Tier { tier, order, next, losses } => {
                    let Some(&slot) = order.get(*next) else { return Ok(None) };
                    *next += 1;
                    let (parts, looked) = begin_recent(tier, slot, losses, out);
                    self.log = Some(parts);
                    Ok(Some(LOG_COST + LOOK_COST * u64::from(looked)))
                }
                Logs::Runs { logs, bottom } => begin_merged(logs, *bottom, out).map(|begun| {
                    let (parts, pieces) = begun?;
                    self.log = parts;
                    Some(LOG_COST * pieces)
                }),
            };
        };
        let Some(part) = parts.last_mut() else {
            self.log = None;
            return out.end().map(|()| Some(0)).map_err(write_error);
        };
        let copied = match (&mut part.holder, &self.logs) {
            (Holder::Tier(slot), Logs::Tier { tier, .. }) => {
                copy_recent(tier, *slot, &mut part.range, out).map_err(write_error)?
            }
            (Holder::Run(run, chunk), _) => {
                if !chunk.range().contains(&part.range.start) {
                    *chunk = run.chunk_once(out.key(), part.range.start)?;
                }
                copy_chunk(chunk, &mut part.range, out).map_err(write_error)?
            }
            (Holder::Tier(_), Logs::Runs { .. }) => unreachable!("parts come from the source"),
        };
        if part.range.is_empty() {
            parts.pop();
        }
        Ok(Some(copied))
    }

    /// Entries that each of the older runs, by its number, is now known to have lost to the tier.
    pub fn losses(&self) -> &[(u64, u64)] {
        match &self.logs {
            Logs::Tier { losses, .. } => losses.known(),
            Logs::Runs { .. } => &[],
        }
    }
}

/// What can hinder a new run.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A write to the heap failed. Unless it was for want of room, the store must stop.
    Write(io::Error),
    /// A flush or the superblock failed, as is told in the error, with the volume: whatever the reason, the store must stop.
    Fatal(io::Error),
    /// Anything else, such as damage in what was read; the store goes on without the new run.
    Other(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Other(error)
    }
}

/// Errors of a builder are errors of the volume below it, or defects.
pub(crate) fn write_error(error: brooklet_codex::Error) -> Trouble {
    match error {
        brooklet_codex::Error::Io(source) => Trouble::Write(source),
        other => Trouble::Other(Error::damaged("a run being written", other.to_string())),
    }
}

/// Begins a log of a tier; also tells whether older runs were looked at.
fn begin_recent(
    tier: &Tier,
    slot: Slot,
    losses: &mut Losses,
    out: &mut PieceWriter<RunBuilder>,
) -> (Vec<Part>, bool) {
    let log = tier.log(slot);
    let piece = log.piece().expect("only visible pieces were chosen");
    let looked = losses.count(&log.key, log.origin(), piece);
    out.begin(&log.key, piece, log.visible_terms().cloned());
    let range = piece.held();
    let part = Part { range: range.clone(), holder: Holder::Tier(slot) };
    (if range.is_empty() { Vec::new() } else { vec![part] }, looked)
}

/// What is to be copied of a log, and how many pieces it had; no parts where the log goes.
type Begun = (Option<Vec<Part>>, u64);

/// Begins the next log of some runs. `None` where there is none.
fn begin_merged(
    logs: &mut [RunLogs],
    bottom: bool,
    out: &mut PieceWriter<RunBuilder>,
) -> Result<Option<Begun>, Trouble> {
    let keys = logs.iter().filter_map(|l| l.current.as_ref().map(|(key, _)| key));
    let Some(key) = keys.min().cloned() else { return Ok(None) };
    let mut heads: Vec<(Arc<Run>, Head)> = Vec::new();
    for log in logs.iter_mut() {
        if let Some((_, head)) = log.current.as_ref().filter(|(k, _)| *k == key) {
            heads.push((log.run().clone(), head.clone()));
            log.advance()?;
        }
    }
    let pieces = heads.len() as u64;
    let Resolved { bounds, parts, upper } = resolve(heads.iter().map(|(_, head)| head.piece));
    if bounds.is_none() && bottom {
        return Ok(Some((None, pieces)));
    }
    // `resolve` names the first number that these runs do not account for, which is where the merged piece begins.
    let piece = Piece { bounds, base: upper };
    let held = piece.held();
    let starts_right = !bottom || bounds.is_none_or(|b| held.start <= b.first);
    let end = parts.iter().rev().try_fold(held.start, |at, (_, part)| (part.start == at).then_some(part.end));
    if !starts_right || end != Some(held.end) {
        return Err(heads[0].0.malformed(&key).into());
    }
    out.begin(&key, piece, heads[0].1.terms.clone());
    let part = |(i, range)| {
        let (run, head): &(Arc<Run>, Head) = &heads[i];
        Part { range, holder: Holder::Run(run.clone(), head.chunk.clone()) }
    };
    Ok(Some((Some(parts.into_iter().map(part).collect()), pieces)))
}

/// Copies about a chunk's bytes of entries of a tier, and takes them off `range`.
fn copy_recent(
    tier: &Tier,
    slot: Slot,
    range: &mut Range<u64>,
    out: &mut PieceWriter<RunBuilder>,
) -> Result<u64, brooklet_codex::Error> {
    let mut copied = 0;
    for payload in tier.log(slot).payloads(tier, range.clone()) {
        out.entry(&payload)?;
        range.start += 1;
        copied += payload.len() as u64 + 1;
        if copied >= CHUNK as u64 {
            break;
        }
    }
    Ok(copied)
}

/// Copies those entries of `range` that a chunk holds, and takes them off.
fn copy_chunk(
    chunk: &Chunk,
    range: &mut Range<u64>,
    out: &mut PieceWriter<RunBuilder>,
) -> Result<u64, brooklet_codex::Error> {
    let mut copied = 0;
    let end = range.end.min(chunk.range().end);
    for seq in range.start..end {
        let payload = chunk.payload_bytes(seq);
        out.entry(payload)?;
        copied += payload.len() as u64 + 1;
    }
    range.start = end;
    Ok(copied)
}
