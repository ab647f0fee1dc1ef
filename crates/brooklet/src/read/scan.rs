//! Listings of logs in key order, merged from all memtables and runs.

use std::collections::BTreeMap;
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
use crate::read::recent::Recent;
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
    /// Key of the log.
    pub key: Vec<u8>,
    /// Bounds of the log.
    pub bounds: Bounds,
    /// Retention of the log.
    pub retention: Retention,
}

/// The logs to list: keys that start with a prefix and are not less than a place.
pub(crate) struct Listed {
    prefix: Vec<u8>,
    /// The least key to list; not less than the prefix.
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

/// An iterator over the logs whose keys start with a prefix, in key order; see
/// [`Store::scan`](crate::Store::scan).
///
/// If data is damaged, the iterator returns all certain logs. An error at the end names the logs
/// that may be missing. A caller that stops earlier does not get this error, and a listing that
/// resumes there does not have it: such a caller calls [`take_damage`](Self::take_damage).
pub struct Logs {
    process: Process,
    listed: Listed,
    /// The number of leading bytes of each key that the listing omits.
    hidden: usize,
    recent: Recent,
    runs: Vec<Around>,
    /// The time at which the age of entries is judged; earlier for the logs in `earlier`.
    now: u64,
    earlier: BTreeMap<Vec<u8>, u64>,
    /// The error that ends the listing, if damage hides logs or may hide some.
    end: Option<Error>,
    over: bool,
}

/// The logs of one run, head by head.
pub(crate) struct RunLogs {
    cursor: RunCursor,
    /// The current log.
    pub current: Option<(Vec<u8>, Head)>,
}

impl RunLogs {
    /// Creates the cursor at the first log that counts and whose key is `prefix` or greater.
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

    /// Returns the cursor, which is at the current log.
    pub fn cursor(&mut self) -> &mut RunCursor {
        &mut self.cursor
    }

    /// Returns the tables that hold nothing of the current log and of the logs after it.
    pub fn passed(&self) -> &[Arc<Table>] {
        if self.current.is_some() { self.cursor.passed() } else { &self.run().tables }
    }

    /// Returns the bytes of the tables that hold the current log, from the beginning of the log on,
    /// if several tables hold it; else 0.
    pub fn log_bytes(&self) -> u64 {
        // The cursor is at the head of the log. The key of the head differs from the keys of the
        // chunks in its last byte only.
        let Some((_, log)) = self.cursor.key().split_last() else { return 0 };
        let more = self.cursor.coming().iter().take_while(|table| table.meta.first.starts_with(log));
        let more: u64 = more.map(|table| table.meta.extent).sum();
        if more == 0 { 0 } else { more + self.cursor.left() }
    }

    /// Moves to the first readable log at or after `from`, a codex key. Returns the range of log
    /// keys of which nothing is known; `None` if the range holds no log.
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

    /// Moves to the log at the cursor, or to the next log if the cursor is within a log.
    fn stand_at_a_log(&mut self) -> Result<(), Error> {
        if let Some((key, Some(_))) = split_key(self.cursor.key()) {
            self.cursor.seek(&key_after(&key))?;
        }
        self.read()
    }

    /// Takes the current log, and moves to the next one.
    pub fn take(&mut self) -> Result<Option<(Vec<u8>, Head)>, Error> {
        let Some(log) = self.current.take() else { return Ok(None) };
        self.advance_from(&log.0)?;
        Ok(Some(log))
    }

    /// Moves to the next log.
    pub fn advance(&mut self) -> Result<(), Error> {
        match self.current.take() {
            Some((key, _)) => self.advance_from(&key),
            None => Ok(()),
        }
    }

    /// Moves from the log `key`, which was current, to the next one.
    fn advance_from(&mut self, key: &[u8]) -> Result<(), Error> {
        let mut more = match self.cursor.next() {
            Err(Error::Damaged { .. }) if bug("what-is-damaged-is-passed-over") => false,
            more => more?,
        };
        // A small log is one entry. The cursor skips the chunks of a larger log.
        if more && split_key(self.cursor.key()).is_none_or(|(k, _)| k == key) {
            more = self.cursor.seek(&key_after(key))?;
        }
        if more {
            self.read()?;
        }
        match &self.current {
            Some((next, _)) if next.as_slice() <= key => Err(self.run().malformed(key)),
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

/// A range of log keys: from the first key up to the second, or to the end.
type Hole = (Vec<u8>, Option<Vec<u8>>);

/// The logs of a run, without its unreadable parts.
struct Around {
    logs: RunLogs,
    /// The last range of keys that the cursor has passed without knowing the logs of the run.
    hole: Option<Hole>,
    /// The damage in this range.
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

    /// Moves past damage that a move from `from` met.
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

    /// Returns whether moving through the run cannot show if the run has the log.
    fn hides(&self, key: &[u8]) -> bool {
        let behind = |end: &Option<Vec<u8>>| end.as_ref().is_none_or(|end| key < end.as_slice());
        self.hole.as_ref().is_some_and(|(begin, end)| key >= begin.as_slice() && behind(end))
    }

    /// Returns the error of a hole that may hold listed logs; with a key, only if the hole does not
    /// begin behind this key.
    fn take_damage(&mut self, listed: &Listed, at: Option<&[u8]>) -> Option<Error> {
        let (begin, end) = self.hole.as_ref()?;
        let first = begin.max(&listed.from);
        if at.is_some_and(|at| first.as_slice() > at) {
            return None;
        }
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
    /// Takes the listed logs from the memtables. Leaves out entries that are too old at `now`. Logs
    /// of spaces in memory come from `in_memory`.
    pub(crate) fn take(
        state: &StoreState,
        listed: Listed,
        in_memory: Vec<(Vec<u8>, State)>,
        now: u64,
    ) -> (Self, Vec<Arc<Run>>) {
        let (mut recent, mut earlier) = (Recent::default(), BTreeMap::new());
        in_memory.into_iter().for_each(|(key, state)| recent.add(&key, state));
        let lost = lost::of(&state.lost);
        for log in lost.iter().flat_map(|lost| lost.behind.logs.iter()).filter(|log| is_proven(log)) {
            if let Some(piece) = log.piece().filter(|_| listed.has(&log.key) && *log.key != *TABLE) {
                let terms = log.visible_terms().cloned();
                recent.add(&log.key, State { bounds: piece.bounds, terms });
            }
        }
        let end = lost.map(|lost| lost.error());
        for memtable in [Some(&state.active), state.frozen.as_deref()].into_iter().flatten() {
            let wanted = |log: &&LogState| listed.has(&log.key) && *log.key != *TABLE;
            for log in memtable.logs.iter().filter(wanted) {
                if let Some(piece) = log.piece() {
                    let terms = log.visible_terms().cloned();
                    recent.add(&log.key, State { bounds: piece.bounds, terms });
                }
                if log.retained_at().is_some() {
                    earlier.insert(log.key.to_vec(), state.seen_at(&log.key, now));
                }
            }
        }
        let runs = state.runs.iter().cloned().collect();
        let process = Process::current();
        let logs =
            Self { process, listed, hidden: 0, recent, runs: Vec::new(), now, earlier, end, over: false };
        (logs, runs)
    }

    /// Creates the listing of the runs alone.
    pub(crate) fn of_runs(runs: &RunSet, listed: Listed, now: u64) -> Result<Self, Error> {
        let (recent, earlier) = (Recent::default(), BTreeMap::new());
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

    /// Sets the error that ends the listing.
    pub(crate) fn ending(self, end: Option<Error>) -> Self {
        Self { end, ..self }
    }

    /// Returns the error of the damage that the listing has met so far; `None` if there is none, or
    /// if a call has returned it already. The error names the logs that may be missing. The end of
    /// the listing does not return it again.
    ///
    /// A caller that lists logs in pages calls this after each page. A page that begins behind the
    /// damage does not meet it.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// # store.append("a/1", "entry")?.wait()?;
    /// let mut logs = store.scan_from("a/", "a/1")?;
    /// let page: Vec<_> = logs.by_ref().take(100).collect::<Result<_, _>>()?;
    /// if let Some(damage) = logs.take_damage() {
    ///     eprintln!("the page may lack logs: {damage}");
    /// }
    /// # assert_eq!(page.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn take_damage(&mut self) -> Option<Error> {
        self.end.take()
    }

    /// Adds the runs, newest first, outside the lock.
    pub(crate) fn with_runs(mut self, runs: &[Arc<Run>]) -> Result<Self, Error> {
        let from = self.listed.from.as_slice().max(FIRST);
        self.runs = runs.iter().map(|run| Around::new(run, from)).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Omits the first `hidden` bytes of each key, which are part of the prefix.
    pub(crate) fn without(self, hidden: usize) -> Self {
        Self { hidden, ..self }
    }

    fn step(&mut self) -> Result<Option<LogInfo>, Error> {
        loop {
            let in_runs = self.runs.iter().filter_map(|r| r.logs.current.as_ref().map(|(key, _)| key));
            let least = in_runs.map(Vec::as_slice).chain(self.recent.first()).min();
            let key = least.filter(|key| key.starts_with(&self.listed.prefix)).map(<[u8]>::to_vec);
            // Damage behind this log belongs to the page that has the next one.
            for run in &mut self.runs {
                let damage = run.take_damage(&self.listed, key.as_deref());
                self.end = self.end.take().or(damage);
            }
            let Some(key) = key else { return Ok(None) };
            let (mut newest, mut hidden) = (None, false);
            if self.recent.first().is_some_and(|first| *first == key) {
                newest = self.recent.take_first();
            }
            for run in &mut self.runs {
                if newest.is_none() && run.hides(&key) {
                    // The filter of the run may show that the run does not have the log. Otherwise
                    // the run may hold a newer state of the log than older runs.
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
