//! What goes into a new run: the pieces of a frozen tier, or those of several runs merged.
//!
//! Both give log after log in key order, a step at a time, so that the work can be done in slices.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;
use crate::model::{Piece, Resolved, resolve};
use crate::piece::{Head, PieceWriter};
use crate::recent::{Slot, Tier};
use crate::runs::{Run, RunBuilder};
use crate::scan::RunLogs;

/// Where the pieces of a new run come from.
pub(crate) enum Input {
    Tier { tier: Arc<Tier>, order: Vec<Slot>, next: usize },
    Runs { logs: Vec<RunLogs>, bottom: bool },
}

impl Input {
    /// The logs of a tier that something happened to, in key order. With `bottom`, no run is older: what does not
    /// exist needs no mention.
    pub fn tier(tier: Arc<Tier>, bottom: bool) -> Self {
        let matters = |piece: Piece| !bottom || piece.bounds.is_some();
        let slots = 0..tier.logs.len() as Slot;
        let mut order: Vec<Slot> = slots.filter(|&s| tier.log(s).piece().is_some_and(matters)).collect();
        order.sort_unstable_by(|&a, &b| tier.log(a).key.cmp(&tier.log(b).key));
        Input::Tier { tier, order, next: 0 }
    }

    /// The logs of some neighbouring runs, newest first. With `bottom`, the last of them is the oldest of all.
    pub fn runs(runs: &[Arc<Run>], bottom: bool) -> Result<Self, Error> {
        let logs = runs.iter().map(|run| RunLogs::new(run, b"")).collect::<Result<_, _>>()?;
        Ok(Input::Runs { logs, bottom })
    }

    /// The most bytes that the new run can take, before compression.
    pub fn bound(&self) -> u64 {
        match self {
            Input::Tier { tier, order, .. } => {
                let log = |&slot: &Slot| {
                    let log = tier.log(slot);
                    let entries = log.piece().map_or(0, |p| p.held().end - p.held().start);
                    // Keys are escaped, and stand in the head, in every chunk, and in the index.
                    log.payload_bytes() * 3 / 2 + entries * 10 + (log.key.len() as u64 * 2 + 64) * 4
                };
                order.iter().map(log).sum::<u64>() + (1 << 16)
            }
            // Merging drops entries; how well the rest compresses in other company cannot be known before.
            Input::Runs { logs, .. } => {
                logs.iter()
                    .map(|l| l.run().raw_bytes().saturating_add(l.run().meta.logs).saturating_mul(5) / 4)
                    .sum::<u64>()
                    + (1 << 16)
            }
        }
    }

    /// Writes the next log's piece. `false` where there is none.
    pub fn step(&mut self, out: &mut PieceWriter<RunBuilder>) -> Result<bool, Trouble> {
        match self {
            Input::Tier { tier, order, next } => {
                let Some(&slot) = order.get(*next) else { return Ok(false) };
                *next += 1;
                let log = tier.log(slot);
                let piece = log.piece().expect("only visible pieces were chosen");
                out.begin(&log.key, piece);
                for payload in log.payloads(tier, piece.held()) {
                    out.entry(&payload).map_err(write_error)?;
                }
                out.end().map_err(write_error)?;
                Ok(true)
            }
            Input::Runs { logs, bottom } => merge_log(logs, *bottom, out),
        }
    }
}

/// What can hinder a new run.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A write to the heap failed. Unless it was for want of room, the store must stop.
    Write(io::Error),
    /// A flush or the superblock failed: whatever the reason, the store must stop.
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

fn merge_log(logs: &mut [RunLogs], bottom: bool, out: &mut PieceWriter<RunBuilder>) -> Result<bool, Trouble> {
    let keys = logs.iter().filter_map(|l| l.current.as_ref().map(|(key, _)| key));
    let Some(key) = keys.min().cloned() else { return Ok(false) };
    let mut heads: Vec<(Arc<Run>, Head)> = Vec::new();
    for log in logs.iter_mut() {
        if let Some((_, head)) = log.current.as_ref().filter(|(k, _)| *k == key) {
            heads.push((log.run().clone(), head.clone()));
            log.advance()?;
        }
    }
    let Resolved { bounds, mut parts, upper } = resolve(heads.iter().map(|(_, head)| head.piece));
    if bounds.is_none() && bottom {
        return Ok(true);
    }
    // `resolve` names the first number that these runs do not account for, which is where the merged piece begins.
    let piece = Piece { bounds, base: upper };
    let held = piece.held();
    parts.reverse();
    let starts_right = !bottom || bounds.is_none_or(|b| held.start <= b.first);
    let end = parts.iter().try_fold(held.start, |at, (_, part)| (part.start == at).then_some(part.end));
    if !starts_right || end != Some(held.end) {
        return Err(heads[0].0.malformed(&key).into());
    }
    out.begin(&key, piece);
    for (i, range) in parts {
        let (run, head) = &heads[i];
        copy(run, head, &key, range, out)?;
    }
    out.end().map_err(write_error)?;
    Ok(true)
}

fn copy(
    run: &Run,
    head: &Head,
    key: &[u8],
    range: Range<u64>,
    out: &mut PieceWriter<RunBuilder>,
) -> Result<(), Trouble> {
    let mut chunk = head.chunk.clone();
    for seq in range {
        if !chunk.range().contains(&seq) {
            chunk = run.chunk(key, seq)?;
        }
        out.entry(&chunk.payload(seq)).map_err(write_error)?;
    }
    Ok(())
}
