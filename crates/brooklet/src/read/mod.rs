//! Reads of a log: a view of the log at one moment, streamed entry by entry from either end.
//!
//! The reader takes the view under the lock. The view shares the payloads of the memtable (without
//! copying) and pins the runs. Later appends, trims, checkpoints and compactions do not change the
//! view.

pub mod asked;
pub mod recent;
pub mod scan;

use std::iter::FusedIterator;
use std::ops::Range;
use std::sync::Arc;

use brooklet_io::Process;
use brooklet_io::seeded::bug;
use brooklet_wal::Wal;
use bytes::Bytes;

use crate::counters::ReadSource;
use crate::error::{Error, KeyText};
use crate::format::run_entry::{Chunk, Head};
use crate::memtable::payloads::Payloads;
use crate::model::retention_state::shown;
use crate::model::{Bounds, Piece, Resolved, resolve};
use crate::read::asked::Asked;
use crate::run::{Run, RunSet};
use crate::state::StoreState;
use crate::state::in_flight::InFlight;
use crate::state::lost::{Doubt, Lost};

/// An entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the entry in the log.
    pub seq: u64,
    /// Appended bytes; cheap to clone. A payload of less than 16 KiB has its own memory. A longer
    /// payload shares the memory of its block, up to 1 MiB, and keeps the block in memory as long
    /// as the payload exists.
    pub payload: Bytes,
}

/// An iterator over the entries of a log, as they were at the call of
/// [`Store::read`](crate::Store::read).
///
/// The iterator works from both ends: `.rev()` reads the newest entry first. An error ends the
/// iteration. After a [close](crate::Store::close) of the store, entries that are not in memory
/// return [`Error::Closed`]. If damage hides entries of the log, or may hide some, the iteration
/// ends with an error that names the damage and these entries; see
/// [`Options::read_only`](crate::Options::read_only).
pub struct Entries {
    process: Process,
    key: Vec<u8>,
    parts: Vec<Part>,
    rest: Range<u64>,
    /// The chunks that each end read last.
    state: Option<Chunk>,
    back: Option<Chunk>,
    stop: Option<Stop>,
}

/// Missing entries and the reason. Reading from either end stops at them.
struct Stop {
    gap: Range<u64>,
    error: Error,
}

struct Part {
    range: Range<u64>,
    source: Source,
}

enum Source {
    Recent(Payloads),
    Run(Arc<Run>, Chunk),
}

/// The part of a log in the memtables. The reader looks up the runs after it has released the lock.
pub(crate) struct ReadView {
    runs: Arc<RunSet>,
    bounds: Option<Option<Bounds>>,
    range: Range<u64>,
    recent: Vec<Part>,
    /// The first number that the memtables account for.
    upper: u64,
    /// The time at which the age of entries is judged.
    now: u64,
    pub read_source: ReadSource,
    /// The part of the log that damage hides. The view then shows the log as it was before the
    /// damage, whatever range was requested.
    doubt: Option<Doubt>,
}

impl ReadView {
    /// Takes the entries of `range` from the memtables. Leaves out entries that are too old at
    /// `now`.
    pub fn take(state: &StoreState, key: &[u8], asked: &Asked, now: u64) -> Result<Self, Error> {
        let view = Self::take_with(state, key, asked, now, None)?;
        Ok(view.expect("all payloads of visible entries are in memory"))
    }

    /// Takes the entries of `range` from the memtables, and those that are not durable yet. Returns
    /// `None` while a thread compresses a block of these entries: try again soon.
    pub fn take_appended(
        state: &StoreState,
        key: &[u8],
        asked: &Asked,
        now: u64,
        wal: &Wal,
    ) -> Result<Option<Self>, Error> {
        Self::take_with(state, key, asked, now, state.in_flight(key).map(|part| (part, wal)))
    }

    fn take_with(
        state: &StoreState,
        key: &[u8],
        asked: &Asked,
        now: u64,
        in_flight: Option<(InFlight, &Wal)>,
    ) -> Result<Option<Self>, Error> {
        let known = state.recent(key);
        let newest = in_flight.as_ref().map(|(part, _)| part.piece);
        let newer = usize::from(newest.is_some());
        let pieces = newest.into_iter().chain(known.iter().map(|(_, _, piece)| *piece));
        let Resolved { bounds, parts, upper } = resolve(pieces);
        let mut view = Self {
            runs: state.runs.clone(),
            bounds: (newer + known.len() > 0).then_some(bounds),
            range: 0..0,
            recent: Vec::new(),
            upper,
            now: state.seen_at(key, now),
            read_source: state.read_source(&known),
            doubt: state.doubt(key),
        };
        if let Some(bounds) = bounds {
            let terms = match newer {
                0 => known.first().and_then(|(_, log, _)| log.visible_terms().map(|terms| &**terms)),
                _ => state.terms_appended(key),
            };
            let bounds = shown(bounds, terms, view.now);
            view.bounds = Some(Some(bounds));
            view.range = match view.doubt {
                None => asked.within(key, bounds)?,
                Some(_) => bounds.first..bounds.next,
            };
            for (i, part) in parts {
                let wanted = part.start.max(view.range.start)..part.end.min(view.range.end);
                if wanted.is_empty() {
                    continue;
                }
                let payloads = match &in_flight {
                    Some((part, wal)) if i == 0 => part.payloads(wal, wanted.clone())?.map(Payloads::from),
                    _ => {
                        let (memtable, log, _) = known[i - newer];
                        Some(log.view(memtable, wanted.clone()))
                    }
                };
                let Some(payloads) = payloads else { return Ok(None) };
                view.recent.push(Part { range: wanted, source: Source::Recent(payloads) });
            }
        }
        Ok(Some(view))
    }

    /// Creates a view of the runs alone.
    pub fn of_runs(runs: Arc<RunSet>, now: u64) -> Self {
        let read_source = ReadSource::Runs;
        let (recent, doubt) = (Vec::new(), None);
        Self { runs, bounds: None, range: 0..0, recent, upper: u64::MAX, now, read_source, doubt }
    }

    /// Creates a view of runs that hold the state of a store before damage, and the proven entries
    /// after the damage.
    pub fn of_runs_around(runs: Arc<RunSet>, lost: Option<&Arc<Lost>>, key: &[u8], now: u64) -> Self {
        Self { doubt: lost.and_then(|lost| lost.doubt(key)), ..Self::of_runs(runs, now) }
    }

    /// Returns whether the runs may hold requested entries, or the log itself.
    pub fn looks_below(&self) -> bool {
        self.bounds.is_none_or(|bounds| bounds.is_some() && self.upper > self.range.start)
    }

    /// Adds the entries of the runs.
    pub fn entries(mut self, key: &[u8], asked: &Asked) -> Result<Entries, Error> {
        if let Some(doubt) = self.doubt.take() {
            return self.entries_in_doubt(doubt, key, asked);
        }
        let (heads, bounds, upper, wanted) = match self.bounds {
            Some(bounds) => {
                let Some(bounds) = bounds else { return asked.of_no_log(key) };
                let heads = self.runs.log(key, Some(self.range.start), self.upper)?;
                (heads, bounds, self.upper, self.range)
            }
            None => {
                let heads = self.runs.log(key, None, u64::MAX)?;
                let newest = heads.first().map(|(_, head)| head);
                let Some(bounds) = newest.and_then(|head| head.piece.bounds) else {
                    return asked.of_no_log(key);
                };
                let bounds = shown(bounds, newest.and_then(|head| head.terms.as_deref()), self.now);
                (heads, bounds, bounds.next, asked.within(key, bounds)?)
            }
        };
        let mut parts = self.recent;
        parts.extend(run_parts(heads, bounds, upper, &wanted));
        parts.reverse();
        expect_all(key, &parts, &wanted)?;
        Ok(Entries::of(key, parts, wanted, None))
    }

    /// Returns the entries of a log of which damage hides a part: the entries before the damage,
    /// then an error, then the entries after the damage.
    fn entries_in_doubt(self, doubt: Doubt, key: &[u8], asked: &Asked) -> Result<Entries, Error> {
        let (heads, before, upper) = match self.bounds {
            Some(None) => (Vec::new(), None, 0),
            Some(Some(bounds)) => {
                (self.runs.log(key, Some(bounds.first), self.upper)?, Some(bounds), self.upper)
            }
            None => {
                let heads = self.runs.log(key, None, u64::MAX)?;
                let newest = heads.first().map(|(_, head)| head);
                let bounds = newest.and_then(|head| head.piece.bounds);
                let bounds =
                    bounds.map(|it| shown(it, newest.and_then(|head| head.terms.as_deref()), self.now));
                let upper = bounds.map_or(0, |bounds| bounds.next);
                (heads, bounds, upper)
            }
        };
        let error = doubt.error(key, before.map(|bounds| bounds.next));
        let Some(bounds) = doubt.bounds(before) else { return Err(error) };
        // Numbers outside of the known bounds may exist.
        let Ok(wanted) = asked.within(key, bounds) else { return Err(error) };
        let gap = doubt.gap(before.map_or(0, |bounds| bounds.next));
        let below = wanted.start..wanted.end.min(gap.start);
        let mut parts = Vec::new();
        if gap.end < bounds.next {
            let range = gap.end..bounds.next;
            parts.push(Part { range, source: Source::Recent(doubt.into_payloads().into()) });
        }
        parts.extend(self.recent.into_iter().filter_map(|part| {
            let range = part.range.start..part.range.end.min(below.end);
            (!range.is_empty()).then_some(Part { range, ..part })
        }));
        if let Some(before) = before.filter(|_| !below.is_empty()) {
            parts.extend(run_parts(heads, before, upper, &below));
        }
        parts.reverse();
        expect_all(key, &parts, &below)?;
        // A lost commit may have deleted the log, and begun it again at an earlier number.
        let least = if bug("trimmed-entries-stay-trimmed") { wanted.start } else { asked.least() };
        let doubted = least < gap.end && !(gap.is_empty() && bug("numbers-that-go-on-prove-a-log"));
        let stop = doubted.then_some(Stop { gap, error });
        Ok(Entries::of(key, parts, wanted, stop))
    }
}

/// Returns an error if the parts, oldest first, do not hold all entries of a range.
fn expect_all(key: &[u8], parts: &[Part], wanted: &Range<u64>) -> Result<(), Error> {
    let mut at = wanted.start;
    for Part { range, .. } in parts {
        if range.start > at {
            break;
        }
        at = at.max(range.end);
    }
    if at >= wanted.end {
        return Ok(());
    }
    let place = format!("log {}", KeyText::of(key));
    Err(Error::damaged(place, format!("entry {at} is in no tier")))
}

/// Returns the parts of a log in the runs, newest first, below the numbers that newer memtables
/// hold.
fn run_parts(
    heads: Vec<(Arc<Run>, Head)>,
    bounds: Bounds,
    upper: u64,
    wanted: &Range<u64>,
) -> impl Iterator<Item = Part> {
    // One piece that holds nothing and begins at `upper` stands for the newer memtables.
    let newer = Piece { bounds: Some(bounds), base: upper };
    let pieces = std::iter::once(newer).chain(heads.iter().map(|(_, head)| head.piece));
    let parts = resolve(pieces).parts;
    let wanted = wanted.clone();
    let mut heads: Vec<_> = heads.into_iter().map(Some).collect();
    parts.into_iter().filter_map(move |(i, part)| {
        let (run, head) = heads[i.checked_sub(1)?].take()?;
        let range = part.start.max(wanted.start)..part.end.min(wanted.end);
        (!range.is_empty()).then_some(Part { range, source: Source::Run(run, head.chunk) })
    })
}

/// The store copies payloads of fewer bytes than this for users: a shared payload would keep its
/// block, of up to 1 MiB, in memory. Copying this number of bytes takes less time than reading
/// them.
const SHARED_FROM: usize = 16 << 10;

/// Returns a payload in the form that users get.
fn given(payload: &[u8], shared: impl FnOnce() -> Bytes) -> Bytes {
    if payload.len() < SHARED_FROM && !bug("payload-pins-its-block") {
        Bytes::copy_from_slice(payload)
    } else {
        shared()
    }
}

/// Returns the payload of an entry of a chunk in the form that users get.
pub(crate) fn given_of(chunk: &Chunk, seq: u64) -> Bytes {
    given(chunk.payload_bytes(seq), || chunk.payload(seq))
}

impl Entries {
    fn of(key: &[u8], parts: Vec<Part>, rest: Range<u64>, stop: Option<Stop>) -> Self {
        let process = Process::current();
        Self { process, key: key.to_vec(), parts, rest, state: None, back: None, stop }
    }

    /// Creates the iterator over a log in memory.
    pub(crate) fn of_memory(key: &[u8], range: Range<u64>, payloads: Vec<Bytes>) -> Self {
        let part = Part { range: range.clone(), source: Source::Recent(payloads.into()) };
        let parts = if range.is_empty() { Vec::new() } else { vec![part] };
        Self::of(key, parts, range, None)
    }

    /// Returns the numbers of the remaining entries.
    pub fn range(&self) -> Range<u64> {
        self.rest.clone()
    }

    /// Passes the payload of an entry to `give`, and how to share its memory.
    fn fetch<T, G>(&mut self, seq: u64, from_back: bool, give: G) -> Result<T, Error>
    where
        G: FnOnce(&[u8], &dyn Fn() -> Bytes) -> T,
    {
        let at = self.parts.partition_point(|part| part.range.end <= seq);
        let part = &self.parts[at];
        let payload_of = |chunk: &Chunk, give: G| give(chunk.payload_bytes(seq), &|| chunk.payload(seq));
        match &part.source {
            Source::Recent(payloads) => {
                let index = (seq - part.range.start) as usize;
                Ok(give(payloads.bytes(index), &|| payloads.shared(index)))
            }
            Source::Run(_, head) if head.range().contains(&seq) => Ok(payload_of(head, give)),
            Source::Run(run, _) => {
                let cached = if from_back { &mut self.back } else { &mut self.state };
                // Chunks of different runs may overlap below a truncation. The part names the run
                // that counts.
                let chunk = match cached {
                    Some(chunk) if chunk.range().contains(&seq) => chunk,
                    _ => cached.insert(run.chunk(&self.key, seq)?),
                };
                let given = payload_of(chunk, give);
                // A chunk must not serve the neighbouring part of another run.
                let edge = if from_back { seq == part.range.start } else { seq + 1 == part.range.end };
                if edge {
                    *cached = None;
                }
                Ok(given)
            }
        }
    }

    /// Lends the entries to `take`, without copies of their payloads, until it returns `false`.
    /// That entry stays the next one. Returns whether all entries were taken. For bindings, which
    /// copy payloads into memory of their own.
    ///
    /// # Errors
    /// Those of the iterator; an error ends the iteration.
    #[doc(hidden)]
    pub fn lend_while(&mut self, mut take: impl FnMut(u64, &[u8]) -> bool) -> Result<bool, Error> {
        loop {
            if let Some(error) = self.stop(false) {
                return Err(error);
            }
            if self.rest.is_empty() {
                return Ok(true);
            }
            let lent = self.here().and_then(|()| self.lend_some(&mut take));
            match lent {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => {
                    self.rest = 0..0;
                    return Err(error);
                }
            }
        }
    }

    /// Lends the entries to `take`, newest first, without copies of their payloads, until `take`
    /// returns `false`. That entry stays the last one. Returns whether all entries were taken. For
    /// callers that look at many entries and keep parts of them.
    ///
    /// # Errors
    /// Those of the iterator; an error ends the iteration.
    #[doc(hidden)]
    pub fn lend_back_while(&mut self, mut take: impl FnMut(u64, &[u8]) -> bool) -> Result<bool, Error> {
        loop {
            if let Some(error) = self.stop(true) {
                return Err(error);
            }
            if self.rest.is_empty() {
                return Ok(true);
            }
            let seq = self.rest.end - 1;
            let lent = self.here().and_then(|()| self.fetch(seq, true, |payload, _| take(seq, payload)));
            match lent {
                Ok(true) => self.rest.end = seq,
                Ok(false) => return Ok(false),
                Err(error) => {
                    self.rest = 0..0;
                    return Err(error);
                }
            }
        }
    }

    /// Lends entries of one part, at least one, and returns whether `take` took them.
    fn lend_some(&mut self, take: &mut impl FnMut(u64, &[u8]) -> bool) -> Result<bool, Error> {
        let Range { start, end } = self.rest;
        let part = &self.parts[self.parts.partition_point(|part| part.range.end <= start)];
        let taken = match &part.source {
            Source::Recent(payloads) => {
                let seqs = start..end.min(part.range.end);
                let payload = |seq: u64| payloads.bytes((seq - part.range.start) as usize);
                let stop = seqs.clone().find(|&seq| !take(seq, payload(seq)));
                self.rest.start = stop.unwrap_or(seqs.end);
                stop.is_none()
            }
            Source::Run(..) => {
                let taken = self.fetch(start, false, |payload, _| take(start, payload))?;
                self.rest.start += u64::from(taken);
                taken
            }
        };
        Ok(taken)
    }

    fn here(&self) -> Result<(), Error> {
        if self.process.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Returns the error that replaces the next entry, if damage hides that entry.
    fn stop(&mut self, from_back: bool) -> Option<Error> {
        let Stop { gap, .. } = self.stop.as_ref()?;
        let reached = if from_back { self.rest.end <= gap.end } else { self.rest.start >= gap.start };
        if !reached && !self.rest.is_empty() {
            return None;
        }
        self.rest = 0..0;
        self.stop.take().map(|stop| stop.error)
    }

    fn give(&mut self, seq: u64, from_back: bool) -> Result<Entry, Error> {
        let payload =
            self.here().and_then(|()| self.fetch(seq, from_back, |bytes, shared| given(bytes, shared)));
        let entry = payload.map(|payload| Entry { seq, payload });
        if entry.is_err() {
            self.rest = 0..0;
        }
        entry
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.stop(false) {
            return Some(Err(error));
        }
        let seq = self.rest.start;
        (seq < self.rest.end).then(|| {
            self.rest.start += 1;
            self.give(seq, false)
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = usize::try_from(self.rest.end - self.rest.start).unwrap_or(usize::MAX);
        (0, Some(len.saturating_add(usize::from(self.stop.is_some()))))
    }
}

impl FusedIterator for Entries {}

impl DoubleEndedIterator for Entries {
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.stop(true) {
            return Some(Err(error));
        }
        (self.rest.start < self.rest.end).then(|| {
            self.rest.end -= 1;
            self.give(self.rest.end, true)
        })
    }
}

impl std::fmt::Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entries({} {:?})", KeyText::of(&self.key), self.rest)
    }
}
