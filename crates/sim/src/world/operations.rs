//! The actions of users: write, wait, read at once, and read slowly while others write.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use brooklet::codex::Reader;
use brooklet::io::{Clock, ManualClock, MemVolume};
use brooklet::{Bytes, Commit, Durability, Entry, Error, Options};

use super::{Held, State, When, World};
use crate::model::{self, Change, Log, Logs, Refusal, text};
use crate::offload_store;
use crate::oracle::{Flight, Seen, Violation, violated};

/// Most steps that a store may take at one moment.
const TIMELY: usize = 1000;

impl World {
    pub(super) fn commit(&self, n: u64, deferred: Option<Duration>, may_wait: bool) -> Result<(), Violation> {
        let store = self.open_store();
        self.notice_import()?;
        let changes = self.draw_changes(n);
        let mut commit = model::commit(&changes);
        if let Some(bound) = deferred {
            commit.durability(Durability::Deferred(bound));
        }
        if may_wait && n >= self.plan.shape.long as u64 {
            self.prepare(&mut commit)?;
        }
        let outer = self.watch();
        let result = if may_wait { store.commit(&commit) } else { store.try_commit(&commit) };
        let durable = self.watched(outer)?;
        let (damaged, others) = (self.tolerance().damaged, !self.volume().was_undisturbed());
        self.tell(|| {
            let words: Vec<String> = changes.iter().map(|change| change.to_string()).collect();
            let bound = deferred.map_or("", |_| " (deferred)");
            let end = result.as_ref().err().map_or(String::new(), |error| format!(" -> {error}"));
            format!("{}{bound}{end}", words.join(", "))
        });
        let mut state = self.state();
        let mut after = state.oracle.appended.clone();
        // Other callers that came in between appended before this commit, and no time has passed
        // since.
        let now = self.now();
        let refuses = |state: &Logs, error: &Error| {
            model::apply(&mut state.clone(), &changes, now).is_err_and(|refusal| refusal.is(error))
        };
        let rests = |error: &Error| durable.iter().any(|state| refuses(state, error));
        match (result, model::apply(&mut after, &changes, now)) {
            (Ok(_), _) if state.oracle.stopped => violated("a store that has stopped accepts a commit"),
            (Ok(ticket), Ok(seqs)) if ticket.is_in_memory() && ticket.seqs() == seqs => {
                state.oracle.remember(&changes, now)
            }
            (Ok(ticket), Ok(seqs)) => {
                if ticket.seqs() != seqs {
                    return violated(format!("numbers {:?} were given, not {seqs:?}", ticket.seqs()));
                }
                state.oracle.appended = after;
                let deferred = ticket.is_done();
                let panics = self.plan.seed.is_multiple_of(4) && state.oracle.acknowledged % 16 == 15;
                let key = changes[0].key().clone();
                state.oracle.flying.push_back(Flight::new(changes, now, ticket, (deferred, panics)));
                drop(state);
                self.read_back(&key)
            }
            // While a refusal waits, other callers may commit; then the refusal is of an earlier
            // state.
            (Err(error), _) if others && rests(&error) => Ok(()),
            (Err(error), Err(refusal)) if refusal.is(&error) => {
                // A commit without operations does not depend on any log.
                if damaged || refusal == Refusal::Empty || rests(&error) {
                    return Ok(());
                }
                violated(format!("a refusal rests on what a power cut takes back: {error}"))
            }
            (Err(Error::CommitTooLarge { len, .. }), _) if len as u64 > self.plan.shape.ring / 5 => Ok(()),
            (Err(Error::InMemory { .. }), _) if deferred.is_some() => Ok(()),
            (Err(Error::MixedSpaces { .. }), _) if model::is_mixed(&changes) => Ok(()),
            // The store may refuse for lack of room before it checks the commit.
            (Err(Error::Busy { .. } | Error::Full { .. }), _) if !may_wait => Ok(()),
            (Err(error), Ok(_)) => {
                drop(state);
                self.excuse(Err::<(), _>(error))
            }
            (Ok(_), Err(refusal)) => violated(format!("accepted, where {refusal:?} was due")),
            (Err(error), Err(refusal)) => {
                drop(state);
                let excused = self.excuse(Err::<(), _>(error));
                excused.map_err(|Violation(what)| Violation(format!("{what}, where {refusal:?} was due")))
            }
        }
    }

    fn draw_changes(&self, n: u64) -> Arc<[Change]> {
        let State { rng, oracle, .. } = &mut *self.state();
        let changes: Arc<[Change]> = (0..n).map(|_| self.plan.habits.change(rng, &oracle.appended)).collect();
        let limits = changes.iter().filter(|change| matches!(change, Change::Retain(..)));
        oracle.limited.extend(limits.map(|change| change.key().clone()));
        changes
    }

    /// Prepares a long commit, in half of all cases. Then another commit may come before it.
    fn prepare(&self, commit: &mut Commit) -> Result<(), Violation> {
        let (prepares, others) = {
            let rng = &mut self.state().rng;
            (rng.percent(50), rng.percent(40))
        };
        if prepares {
            // An error is that of the commit, too.
            let prepared = self.open_store().prepare(commit);
            self.tell(|| format!("  prepared: {prepared:?}"));
        }
        if prepares && others { self.commit(1, None, false) } else { Ok(()) }
    }

    /// Reads a log of the last commit back, before the commit is durable.
    fn read_back(&self, key: &Bytes) -> Result<(), Violation> {
        let (log, when) = {
            let state = self.state();
            let log = state.oracle.appended.get(key).cloned();
            (log, When { from: state.oracle.moment(self.now()).of(key), to: self.now() })
        };
        let store = self.open_store();
        let read = store.read_appended(key, ..).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let entries = match read {
            Ok(entries) => entries,
            Err(error) => return self.excuse(Err::<(), _>(error)),
        };
        if log.as_ref().map_or(entries.is_empty(), |log| gives(&entries, log, when)) {
            return Ok(());
        }
        violated(format!("{} gives {} entries that were never appended", text(key), entries.len()))
    }

    /// Imports some logs that should be new.
    pub(super) fn import(&self, count: u64) -> Result<(), Violation> {
        let store = self.open_store();
        let (changes, seed): (Arc<[Change]>, u64) = {
            let State { rng, oracle, .. } = &mut *self.state();
            (self.plan.habits.new_logs(count, rng, &oracle.appended).into(), rng.next())
        };
        if changes.is_empty() {
            return Ok(());
        }
        let file = exported(&changes, seed);
        let file = file.or_else(|error| violated(format!("a store in memory fails: {error}")))?;
        self.state().oracle.import = Some((changes.clone(), self.now()));
        let stopped = self.state().oracle.stopped;
        let imported = store.import().export(&file, "");
        self.tell(|| format!("  {count} logs -> {imported:?}"));
        self.notice_import()?;
        let damaged = self.tolerance().damaged;
        let mut state = self.state();
        let came_in = state.oracle.import.is_none();
        let exists =
            |state: &State| changes.iter().any(|change| state.oracle.appended.contains_key(change.key()));
        match imported {
            Ok(_) if stopped => violated("a store that has stopped takes an import"),
            Ok(_) => {
                // If reads fail, the hook could not see the import.
                if !came_in && !state.faulty && !damaged {
                    return violated("an import was told to be there, and nobody sees it");
                }
                state.oracle.settle()?;
                state.oracle.adopt();
                Ok(())
            }
            Err(error) if came_in && !matches!(error, Error::Stopped { .. }) => {
                violated(format!("an import is there, and was refused: {error}"))
            }
            Err(Error::InMemory { .. }) => {
                state.oracle.import = None;
                Ok(())
            }
            Err(Error::LogExists { .. }) => {
                state.oracle.import = None;
                // Another caller that came in between may have made and deleted such a log.
                let others = !self.volume().was_undisturbed();
                if others || exists(&state) { Ok(()) } else { violated("an import is refused for nothing") }
            }
            Err(error) => {
                if !matches!(error, Error::Stopped { .. }) {
                    state.oracle.import = None;
                }
                drop(state);
                self.excuse(Err::<(), _>(error))
            }
        }
    }

    /// Records the import if it has come in by now. During an import, one of its logs can only
    /// exist by that import, unless a commit made the log.
    pub(super) fn notice_import(&self) -> Result<(), Violation> {
        let Some(store) = self.store() else { return Ok(()) };
        let own = {
            let mut state = self.state();
            state.oracle.settle()?;
            let oracle = &state.oracle;
            let Some((changes, _)) = &oracle.import else { return Ok(()) };
            let flying = |key: &Bytes| {
                oracle.flying.iter().any(|flight| flight.changes.iter().any(|it| it.key() == key))
            };
            let made = |key: &Bytes| oracle.durable.contains_key(key) || flying(key);
            changes.iter().map(Change::key).find(|key| !made(key)).cloned()
        };
        if own.is_some_and(|key| store.bounds(&key).is_ok()) {
            self.state().oracle.adopt();
        }
        Ok(())
    }

    /// Waits for the last commit, as long as the store makes progress.
    pub(super) fn wait(&self) -> Result<(), Violation> {
        let store = self.open_store();
        for _ in 0..500 {
            {
                let mut state = self.state();
                state.oracle.settle()?;
                if state.oracle.flying.is_empty() {
                    return Ok(());
                }
            }
            self.clock.advance(Duration::from_millis(200));
            if let Err(error) = store.step() {
                return self.excuse(Err::<(), _>(error));
            }
        }
        if self.state().faulty || self.volume().is_entered() {
            return Ok(());
        }
        violated("a commit never becomes durable")
    }

    /// Defers a commit, and lets the store work on time: a commit that is acknowledged immediately
    /// must be durable when its bound has passed.
    pub(super) fn punctual(&self, ms: u64) -> Result<(), Violation> {
        let bound = Duration::from_millis(ms);
        let last = |state: &State| state.oracle.flying.back().map(|flight| flight.changes.clone());
        let before = last(&self.state());
        self.commit(1, Some(bound), true)?;
        let deferred = self.state().oracle.flying.back().is_some_and(|flight| flight.deferred);
        let own = last(&self.state()).filter(|own| before.is_none_or(|before| !Arc::ptr_eq(own, &before)));
        let over = self.clock.now() + bound;
        let store = self.open_store();
        while self.clock.now() < over {
            self.clock.advance(Duration::from_millis(1));
            for _ in 0..TIMELY {
                match store.step() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => return self.excuse(Err::<(), _>(error)),
                }
            }
        }
        let mut state = self.state();
        state.oracle.settle()?;
        let is_own = |flight: &Flight| own.as_ref().is_some_and(|own| Arc::ptr_eq(own, &flight.changes));
        if deferred && !state.faulty && state.oracle.flying.iter().any(is_own) {
            return violated(format!(
                "a commit was acknowledged, and is not durable {ms} ms later, as it was promised"
            ));
        }
        Ok(())
    }

    pub(super) fn work(&self) -> Result<(), Violation> {
        let store = self.open_store();
        let times = 1 + self.state().rng.below(6);
        for _ in 0..times {
            match store.step() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return self.excuse(Err::<(), _>(error)),
            }
        }
        Ok(())
    }

    pub(super) fn write_meanwhile(&self, n: u64, in_ring: bool) -> Result<(), Violation> {
        for _ in 0..n {
            let size = 1 + self.state().rng.below(2);
            self.commit(size, None, false)?;
            // Either waits once at the end, or after each commit: one block or several.
            if !in_ring && self.state().rng.percent(60) {
                self.wait()?;
            }
        }
        if in_ring { Ok(()) } else { self.wait() }
    }

    /// Reads a log while others may write: the result must have existed at some moment of the read.
    pub(super) fn read(&self) -> Result<(), Violation> {
        let store = self.open_store();
        let key = {
            let state = &mut *self.state();
            self.plan.habits.key(&mut state.rng)
        };
        let (outer, from) = (self.watch(), self.looked_at(&key));
        let read = store.read(&key, ..).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let states = self.watched(outer)?;
        let when = When { from, to: self.now() };
        match read {
            Ok(entries) => {
                let fits = |log: &Arc<Log>| gives(&entries, log, when);
                if states.iter().any(|state| state.get(&key).is_some_and(fits)) {
                    return Ok(());
                }
                violated(format!("{} gives {} entries that were never there", text(&key), entries.len()))
            }
            Err(error) if Refusal::Unknown.is(&error) => {
                if states.iter().any(|state| !state.contains_key(&key)) {
                    return Ok(());
                }
                violated(format!("{} is not found, and was there all the time", text(&key)))
            }
            Err(error) => self.excuse(Err::<(), _>(error)),
        }
    }

    /// Returns the time at which a reader applies the age limit of a log.
    fn looked_at(&self, key: &Bytes) -> u64 {
        self.state().oracle.moment(self.now()).of(key)
    }

    /// Begins to record every durable state; returns the outer record, if one was in progress.
    pub(super) fn watch(&self) -> Option<Vec<Logs>> {
        let mut state = self.state();
        let now = state.oracle.durable.clone();
        state.oracle.watched.replace(vec![now])
    }

    /// Returns the recorded states; continues the outer record, to which these states belong as
    /// well.
    pub(super) fn watched(&self, outer: Option<Vec<Logs>>) -> Result<Vec<Logs>, Violation> {
        let mut state = self.state();
        state.oracle.settle()?;
        let states = state.oracle.watched.take().expect("the watch was begun");
        state.oracle.watched = outer.map(|mut outer| {
            outer.extend(states.iter().cloned());
            outer
        });
        Ok(states)
    }

    pub(super) fn read_all(&self) -> Result<(), Violation> {
        let damaged = self.tolerance().damaged;
        let seen = match Seen::of(&self.open_store(), damaged, true)? {
            Ok(seen) => seen,
            Err(error) => return self.excuse(Err::<(), _>(error)),
        };
        let mut state = self.state();
        state.oracle.settle()?;
        let difference = seen.at(state.oracle.moment(self.now())).difference(&state.oracle.durable);
        let unseen = state.oracle.flying.iter().any(|flight| flight.deferred);
        if unseen && !state.faulty && !state.damaged && !state.oracle.stopped {
            return violated("a deferred commit is acknowledged at once, and readers do not see it");
        }
        if !difference.is_empty() {
            return violated(format!("readers see what they should not:\n{difference}"));
        }
        let shown = model::shown(&state.oracle.durable, &state.oracle.moment(self.now()));
        drop(state);
        self.read_followers(&shown)
    }

    pub(super) fn hold(&self) -> Result<(), Violation> {
        let key = {
            let state = &mut *self.state();
            self.plan.habits.key(&mut state.rng)
        };
        let (outer, from) = (self.watch(), self.looked_at(&key));
        let entries = self.open_store().read(&key, ..);
        let states = self.watched(outer)?;
        let when = When { from, to: self.now() };
        match entries {
            Ok(entries) => {
                let may_give = states.iter().map(|state| state.get(&key).cloned()).collect();
                self.state().held.push_back(Held { key, entries, may_give, when });
                Ok(())
            }
            Err(error) if Refusal::Unknown.is(&error) => {
                if states.iter().any(|state| !state.contains_key(&key)) {
                    return Ok(());
                }
                violated(format!("{} is not found, and was there all the time", text(&key)))
            }
            Err(error) => self.excuse(Err::<(), _>(error)),
        }
    }

    /// Stores all runs elsewhere, and offloads some of them.
    pub(super) fn offload(&self) -> Result<(), Violation> {
        let store = self.open_store();
        // Every other time, offloads all runs.
        let most = {
            let rng = &mut self.state().rng;
            rng.below(2) * rng.below(60_000)
        };
        let all = |_| ControlFlow::Continue(());
        let offloaded =
            offload_store::keep(&store).and_then(|()| store.offload(most, offload_store::find, all));
        self.tell(|| format!("  {most} bytes are to stay -> {offloaded:?}"));
        self.excuse(offloaded.map(drop))
    }

    /// Checks that a stopped store accepts nothing more, and shows only safe data.
    pub(super) fn use_stopped(&self) -> Result<(), Violation> {
        {
            let mut state = self.state();
            state.oracle.settle()?;
            state.oracle.stopped = true;
            // The store may have stopped while it was being closed.
            state.closing = true;
        }
        self.commit(1, None, true)?;
        self.read_all()?;
        let mut state = self.state();
        state.closing = false;
        state.oracle.settle()
    }

    pub(super) fn release(&self) -> Result<(), Violation> {
        let Some(Held { key, entries, may_give, when }) = self.state().held.pop_front() else {
            return Ok(());
        };
        match entries.collect::<Result<Vec<_>, _>>() {
            Ok(entries) => {
                if may_give.iter().flatten().any(|log| gives(&entries, log, when)) {
                    return Ok(());
                }
                violated(format!("a reader of {} gives what was not there when it began", text(&key)))
            }
            Err(error) => self.excuse(Err::<(), _>(error)),
        }
    }
}

/// Returns whether `entries` are the entries of a log with their numbers, without the entries that
/// were too old at some time within `when`.
fn gives(entries: &[Entry], log: &Log, when: When) -> bool {
    let all: Vec<_> = (log.first..).zip(&log.entries).collect();
    (log.old(when.from)..=log.old(when.to)).any(|old| {
        let expected = &all[old..];
        let same = |(entry, (seq, payload)): (&Entry, &(u64, &Bytes))| {
            entry.seq == *seq && entry.payload == **payload
        };
        entries.len() == expected.len() && entries.iter().zip(expected).all(same)
    })
}

/// Makes an export with the entries of some changes.
fn exported(changes: &[Change], seed: u64) -> Result<Reader<Bytes>, Error> {
    let options = Options::new().ring_size(256 << 10).max_payload(9 << 10).threads(false);
    let store = options
        .clock(Arc::new(ManualClock::default()))
        .rng_seed(seed)
        .create_on(Arc::new(MemVolume::new(seed)))?;
    for change in changes {
        store.commit(&model::commit(std::slice::from_ref(change)))?.wait()?;
    }
    let mut file = Vec::new();
    let exported = store.view()?.export("", &mut file)?;
    Ok(Reader::open(file.into(), exported.bytes, None).expect("it was just made"))
}
