//! Listing logs in the order of their keys, merged from all memtables.

use std::collections::{BTreeMap, VecDeque};
use std::iter::FusedIterator;
use std::sync::Arc;

use brooklet_io::Process;
use brooklet_io::seeded::bug;

use crate::error::{Error, KeyText};
use crate::format::run_entry::{Head, escape, key_after, split_key, unescape};
use crate::memtable::LogState;
use crate::model::Bounds;
use crate::model::retention::Retention;
use crate::model::retention_state::{State, retention};
use crate::run::cursor::RunCursor;
use crate::run::table::Table;
use crate::run::{Run, RunSet, Wanted};
use crate::state::StoreState;
use crate::state::lost::{self, is_proven};
use crate::state::spaces::{FIRST, TABLE};

/// A log in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogInfo {
    /// Its key.
    pub key: Vec<u8>,
    /// Its bounds.
    pub bounds: Bounds,
    /// What it keeps.
    pub retention: Retention,
}

/// Which logs are listed: those whose keys start with a prefix and do not come before a place.
pub(crate) struct Listed {
    prefix: Vec<u8>,
    /// No listed key is less, and the prefix is not greater.
    from: Vec<u8>,
}

impl Listed {
    pub fn new(prefix: &[u8], from: &[u8]) -> Self {
        Self { prefix: prefix.to_vec(), from: prefix.max(from).to_vec() }
    }

    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    pub fn has(&self, key: &[u8]) -> bool {
        key >= &self.from[..] && key.starts_with(&self.prefix)
    }
}

/// The logs whose keys start with a prefix, in the order of their keys; see
/// [`Store::scan`](crate::Store::scan).
///
/// Where something is damaged, it gives all logs that are certain; an error at the end says which
/// may be missing.
pub struct Logs {
    process: Process,
    listed: Listed,
    /// Bytes of each key that are not listed.
    hidden: usize,
    recent: VecDeque<(Vec<u8>, State)>,
    runs: Vec<Around>,
    /// When the age of entries is looked at; earlier for these logs.
    now: u64,
    earlier: BTreeMap<Vec<u8>, u64>,
    /// What ends the listing, where damage hides logs, or may hide some.
    end: Option<Error>,
    over: bool,
}

/// The logs of one run, head by head.
pub(crate) struct RunLogs {
    cursor: RunCursor,
    /// The log it stands at.
    pub current: Option<(Vec<u8>, Head)>,
}

impl RunLogs {
    /// Stands at the first log that counts and whose key is at or after `prefix`.
    pub fn new(run: &Arc<Run>, prefix: &[u8]) -> Result<Self, Error> {
        let mut logs = Self { cursor: RunCursor::new(run.clone()), current: None };
        let mut from = Vec::new();
        escape(prefix.max(&run.from), &mut from);
        logs.cursor.seek(&from)?;
        logs.read()?;
        Ok(logs)
    }

    pub fn run(&self) -> &Arc<Run> {
        self.cursor.run()
    }

    /// Tables that hold nothing of the log it stands at and of those that follow.
    pub fn passed(&self) -> &[Arc<Table>] {
        if self.current.is_some() { self.cursor.passed() } else { &self.run().tables }
    }

    /// Bytes of the tables that the log it stands at lies in, from its beginning on, if they are
    /// several; else 0.
    pub fn log_bytes(&self) -> u64 {
        // It stands at the log's head, whose key differs in its last byte only from those of the
        // chunks.
        let Some((_, log)) = self.cursor.key().split_last() else { return 0 };
        let more = self.cursor.coming().iter().take_while(|table| table.meta.first.starts_with(log));
        let more: u64 = more.map(|table| table.meta.extent).sum();
        if more == 0 { 0 } else { more + self.cursor.left() }
    }

    /// Goes on to the first log that can be read, at or behind `from`, a codex key. Returns between
    /// which keys of logs nothing is known; `None` where that is no log.
    fn go_around(&mut self, from: &[u8]) -> Result<Option<Hole>, Error> {
        let (mut begin, mut next) = (None, from.to_vec());
        loop {
            match self.cursor.seek(&next).and_then(|_| self.stand_at_a_log()) {
                Ok(()) => {
                    let end = self.current.as_ref().map(|(key, _)| key.clone());
                    return Ok(begin.map(|begin| (begin, end)));
                }
                Err(Error::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
            self.current = None;
            let (first, end) = self.cursor.hole(&next);
            let begin = begin.get_or_insert_with(|| unescape(&first).0);
            match end {
                Some(end) => next = end,
                None => return Ok(Some((begin.clone(), None))),
            }
        }
    }

    /// Stands at the log that it is at, or, in the midst of one, at the next.
    fn stand_at_a_log(&mut self) -> Result<(), Error> {
        if let Some((key, Some(_))) = split_key(self.cursor.key()) {
            self.cursor.seek(&key_after(&key))?;
        }
        self.read()
    }

    /// Goes on to the next log.
    pub fn advance(&mut self) -> Result<(), Error> {
        let Some((key, _)) = self.current.take() else { return Ok(()) };
        let mut more = match self.cursor.next() {
            Err(Error::Damaged { .. }) if bug("what-is-damaged-is-passed-over") => false,
            more => more?,
        };
        // A small log is one entry; the chunks of a larger one are skipped.
        if more && split_key(self.cursor.key()).is_none_or(|(k, _)| k == key) {
            more = self.cursor.seek(&key_after(&key))?;
        }
        if more {
            self.read()?;
        }
        match &self.current {
            Some((next, _)) if *next <= key => Err(self.run().malformed(&key)),
            _ => Ok(()),
        }
    }

    fn read(&mut self) -> Result<(), Error> {
        self.current = None;
        if self.cursor.valid() {
            let Some((key, None)) = split_key(self.cursor.key()) else {
                return Err(self.run().malformed(self.cursor.key()));
            };
            let head = Head::decode(&self.cursor.value()?).ok_or_else(|| self.run().malformed(&key))?;
            self.current = Some((key, head));
        }
        Ok(())
    }
}

/// From this key of a log on, up to that one, or to the end.
type Hole = (Vec<u8>, Option<Vec<u8>>);

/// The logs of a run, around what cannot be read of it.
struct Around {
    logs: RunLogs,
    /// Between which keys nothing is known of the run's logs: the last such stretch that it has
    /// passed.
    hole: Option<Hole>,
    /// What it met there.
    damage: Option<Error>,
}

impl Around {
    fn new(run: &Arc<Run>, from: &[u8]) -> Result<Self, Error> {
        let (cursor, mut start) = (RunCursor::new(run.clone()), Vec::new());
        escape(from.max(&run.from), &mut start);
        let mut around = Self { logs: RunLogs { cursor, current: None }, hole: None, damage: None };
        let stands = around.logs.cursor.seek(&start).and_then(|_| around.logs.read());
        around.pass(stands, &start)?;
        Ok(around)
    }

    fn advance(&mut self) -> Result<(), Error> {
        let Some((key, _)) = &self.logs.current else { return Ok(()) };
        let from = key_after(key);
        let advanced = self.logs.advance();
        self.pass(advanced, &from)
    }

    /// Goes around damage that was met in a move on from there.
    fn pass(&mut self, moved: Result<(), Error>, from: &[u8]) -> Result<(), Error> {
        match moved {
            Err(error @ Error::Damaged { .. }) if !bug("what-is-damaged-is-passed-over") => {
                if let Some(hole) = self.logs.go_around(from)? {
                    (self.hole, self.damage) = (Some(hole), Some(error));
                }
                Ok(())
            }
            moved => moved,
        }
    }

    /// Whether the run cannot be asked for a log by moving through it.
    fn hides(&self, key: &[u8]) -> bool {
        let behind = |end: &Option<Vec<u8>>| end.as_ref().is_none_or(|end| key < end.as_slice());
        self.hole.as_ref().is_some_and(|(begin, end)| key >= begin.as_slice() && behind(end))
    }

    /// The error of a hole in which logs may be that are listed.
    fn take_damage(&mut self, listed: &Listed) -> Option<Error> {
        let (begin, end) = self.hole.as_ref()?;
        let first = begin.max(&listed.from);
        let is_before = |end: &Vec<u8>| end <= first;
        if !first.starts_with(&listed.prefix) || end.as_ref().is_some_and(is_before) {
            self.damage = None;
        }
        let error = self.damage.take()?;
        let to =
            end.as_ref().map_or("the last one".into(), |end| format!("{} (exclusive)", KeyText::of(end)));
        let hidden = format!("logs with keys from {} to {to} may be missing", KeyText::of(first));
        Some(match error {
            Error::Damaged { place, what } => Error::damaged(place, format!("{what}; {hidden}")),
            error => error,
        })
    }
}

impl Logs {
    /// Takes what the memtables in memory know of the logs that are listed; entries that are too
    /// old `now` are left out. What spaces `in_memory` say of theirs counts.
    pub(crate) fn take(
        state: &StoreState,
        listed: Listed,
        in_memory: Vec<(Vec<u8>, State)>,
        now: u64,
    ) -> (Self, Vec<Arc<Run>>) {
        let (mut recent, mut earlier) = (in_memory, BTreeMap::new());
        let lost = lost::of(&state.lost);
        for log in lost.iter().flat_map(|lost| &lost.behind.logs).filter(|log| is_proven(log)) {
            if let Some(piece) = log.piece().filter(|_| listed.has(&log.key) && *log.key != *TABLE) {
                let terms = log.visible_terms().cloned();
                recent.push((log.key.to_vec(), State { bounds: piece.bounds, terms }));
            }
        }
        let end = lost.map(|lost| lost.error());
        for memtable in [Some(&state.active), state.frozen.as_deref()].into_iter().flatten() {
            let wanted = |log: &&LogState| listed.has(&log.key) && *log.key != *TABLE;
            for log in memtable.logs.iter().filter(wanted) {
                if let Some(piece) = log.piece() {
                    let terms = log.visible_terms().cloned();
                    recent.push((log.key.to_vec(), State { bounds: piece.bounds, terms }));
                }
                if log.retained_at().is_some() {
                    earlier.insert(log.key.to_vec(), state.seen_at(&log.key, now));
                }
            }
        }
        // Whose word comes first counts.
        recent.sort_by(|a, b| a.0.cmp(&b.0));
        recent.dedup_by(|later, earlier| later.0 == earlier.0);
        let runs = state.runs.iter().cloned().collect();
        let (process, recent) = (Process::current(), recent.into());
        let logs =
            Self { process, listed, hidden: 0, recent, runs: Vec::new(), now, earlier, end, over: false };
        (logs, runs)
    }

    /// Those of the runs alone.
    pub(crate) fn of_runs(runs: &RunSet, listed: Listed, now: u64) -> Result<Self, Error> {
        let (recent, earlier) = (VecDeque::new(), BTreeMap::new());
        let logs = Self {
            process: Process::current(),
            listed,
            hidden: 0,
            recent,
            runs: Vec::new(),
            now,
            earlier,
            end: None,
            over: false,
        };
        logs.with_runs(&runs.iter().cloned().collect::<Vec<_>>())
    }

    /// Ends the listing with an error.
    pub(crate) fn ending(self, end: Option<Error>) -> Self {
        Self { end, ..self }
    }

    /// Adds the runs, newest first, outside the lock.
    pub(crate) fn with_runs(mut self, runs: &[Arc<Run>]) -> Result<Self, Error> {
        let from = self.listed.from.as_slice().max(FIRST);
        self.runs = runs.iter().map(|run| Around::new(run, from)).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Lists keys without so many bytes of theirs, which are part of the prefix.
    pub(crate) fn without(self, hidden: usize) -> Self {
        Self { hidden, ..self }
    }

    fn step(&mut self) -> Result<Option<LogInfo>, Error> {
        loop {
            for run in &mut self.runs {
                let damage = run.take_damage(&self.listed);
                self.end = self.end.take().or(damage);
            }
            let in_runs = self.runs.iter().filter_map(|r| r.logs.current.as_ref().map(|(key, _)| key));
            let Some(key) = in_runs.chain(self.recent.front().map(|(key, _)| key)).min().cloned() else {
                return Ok(None);
            };
            if !key.starts_with(&self.listed.prefix) {
                return Ok(None);
            }
            let (mut newest, mut hidden) = (None, false);
            if self.recent.front().is_some_and(|(k, _)| *k == key) {
                newest = self.recent.pop_front().map(|(_, state)| state);
            }
            for run in &mut self.runs {
                if newest.is_none() && run.hides(&key) {
                    // Its filter may know that the log is not there; else it may say something else
                    // of it than older ones.
                    match run.logs.run().state(&mut Wanted::new(&key)) {
                        Ok(state) => newest = state,
                        Err(Error::Damaged { .. }) => hidden = true,
                        Err(error) => return Err(error),
                    }
                }
                if let Some((_, head)) = run.logs.current.as_ref().filter(|(k, _)| *k == key) {
                    let state = || State { bounds: head.piece.bounds, terms: head.terms.clone() };
                    newest = newest.or_else(|| Some(state()));
                    run.advance()?;
                }
            }
            if hidden {
                continue;
            }
            let now = self.earlier.get(&key).copied().unwrap_or(self.now);
            let newest = newest.unwrap_or_default();
            if let Some(bounds) = newest.shown(now) {
                let key = key[self.hidden..].to_vec();
                return Ok(Some(LogInfo { key, bounds, retention: retention(newest.terms.as_deref()) }));
            }
        }
    }
}

impl Iterator for Logs {
    type Item = Result<LogInfo, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let here = if self.process.is_here() { Ok(()) } else { Err(Error::Forked) };
        let next = here.and_then(|()| self.step()).and_then(|log| match (log, self.end.take()) {
            (None, Some(end)) => Err(end),
            (log, end) => {
                self.end = end;
                Ok(log)
            }
        });
        let next = next.transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

impl FusedIterator for Logs {}

impl std::fmt::Debug for Logs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Logs(\"{}…\")", self.listed.prefix.escape_ascii())
    }
}
