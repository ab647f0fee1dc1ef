//! Followers: tails of some logs, tasks that wait until these logs have reached a number, and two
//! watches of all logs, as long as the store is open. Whenever everything is read, the followers
//! are read, too: their copies must be equal to the store, and the tasks must be done if, and only
//! if, their logs had the number.

mod waits;

use std::collections::BTreeMap;
use std::sync::Arc;

use brooklet::{Bounds, Bytes, Entry, Error, Tail, TailEvent, Watch, WatchEvent};

use crate::model::{Log, Logs, text};
use crate::oracle::{Oracle, Violation, violated};
use crate::world::World;
use crate::world::followers::waits::Wait;

/// Logs with a tail; the first ones have awkward keys.
const FOLLOWED: [&[u8]; 6] = [b"\0", b"log/\0", b"log/\0/x", b"log/3", b"log/4", b"log/5"];

/// Most changed logs that the small watch holds, so few that it misses some.
const MOST: usize = 12;

pub(super) struct Followers {
    tails: Vec<(Tail, Copy)>,
    waits: Vec<Wait>,
    small: Watch,
    /// A watch that holds every changed log.
    large: Watch,
    /// The bounds of each log, by the large watch.
    known: BTreeMap<Bytes, Bounds>,
}

/// The events of a watch since the last look.
#[derive(Default)]
struct Changed {
    /// Each changed log, with its bounds unless it was deleted.
    logs: BTreeMap<Bytes, Option<Bounds>>,
    missed: bool,
}

impl Changed {
    /// Takes all events of a watch.
    fn take(watch: &mut Watch) -> Result<Result<Self, String>, Error> {
        let mut changed = Self::default();
        while let Some(event) = watch.try_next()? {
            let (key, bounds) = match event {
                WatchEvent::Moved { key, bounds } => (key, Some(bounds)),
                WatchEvent::Deleted { key } => (key, None),
                _ => {
                    changed.missed = true;
                    continue;
                }
            };
            let key = Bytes::from(key);
            if changed.logs.insert(key.clone(), bounds).is_some() {
                return Ok(Err(format!("a watch returns {} twice", text(&key))));
            }
        }
        Ok(Ok(changed))
    }

    /// Compares the events of the small watch with those of the large watch.
    fn check_small(&self, large: &Self) -> Result<(), String> {
        let changed = large.logs.len();
        match self.missed {
            true if !large.missed && changed <= MOST => {
                Err(format!("a watch of {MOST} logs missed {changed}"))
            }
            false if changed > MOST => Err(format!("a watch of {MOST} logs holds {changed}")),
            false if large.missed || self.logs != large.logs => Err("two watches return other logs".into()),
            _ => Ok(()),
        }
    }
}

/// The copy of a log that a tail has made.
#[derive(Default)]
struct Copy {
    key: Bytes,
    next: u64,
    entries: BTreeMap<u64, Bytes>,
}

impl Copy {
    /// Applies an event of the tail.
    fn apply(&mut self, event: TailEvent) -> Result<(), String> {
        match event {
            TailEvent::Entry(Entry { seq, payload }) if seq == self.next => {
                self.entries.insert(seq, payload);
                self.next = seq + 1;
            }
            TailEvent::Trimmed(gap) if gap.start == self.next && gap.start < gap.end => {
                self.entries.clear();
                self.next = gap.end;
            }
            TailEvent::Truncated { next } if next < self.next => {
                drop(self.entries.split_off(&next));
                self.next = next;
            }
            TailEvent::Deleted => *self = Self { key: self.key.clone(), ..Self::default() },
            event => return Err(format!("a tail at {} returns {event:?}", self.next)),
        }
        Ok(())
    }

    /// Compares the copy with the log, after the tail has returned everything.
    fn check(&mut self, log: Option<&Arc<Log>>) -> Result<(), String> {
        let (first, next) = log.map_or((0, 0), |log| (log.first, log.next()));
        if self.next != next {
            return Err(format!("a tail ends at {}, and the log at {next}", self.next));
        }
        // The tail returned entries that the log has dropped since.
        self.entries = self.entries.split_off(&first);
        let entries = log.iter().flat_map(|log| &log.entries);
        let same = (first..).zip(entries).map(|(seq, payload)| (seq, payload.clone())).eq(self.copied());
        if same { Ok(()) } else { Err(format!("a tail returned other entries than {first}..{next}")) }
    }

    fn copied(&self) -> impl Iterator<Item = (u64, Bytes)> {
        self.entries.iter().map(|(seq, payload)| (*seq, payload.clone()))
    }
}

impl World {
    /// Begins to follow the store; if that was done before, reads a little.
    pub(super) fn follow(&self) -> Result<(), Violation> {
        let Some(store) = self.store() else { return Ok(()) };
        if self.tolerance().damaged {
            return Ok(());
        }
        let followers = self.state().followers.take();
        if let Some(mut followers) = followers {
            return match followers.go_on() {
                Ok(Ok(())) => {
                    self.state().followers = Some(followers);
                    Ok(())
                }
                Ok(Err(what)) => violated(what),
                Err(error) => self.excuse(Err::<(), _>(error)),
            };
        }
        let tail =
            |key: &[u8]| Ok((store.tail(key, 0)?, Copy { key: key.to_vec().into(), ..Copy::default() }));
        let tails = FOLLOWED.iter().map(|key| tail(key)).collect::<Result<_, Error>>();
        let watch = || store.watch("");
        let followed = tails.and_then(|tails| Ok((tails, watch()?.with_limit(MOST), watch()?)));
        let (tails, small, large) = match followed {
            Ok(followed) => followed,
            Err(error) => return self.excuse(Err::<(), _>(error)),
        };
        let state = &mut *self.state();
        state.oracle.settle()?;
        let wait = |key: &&[u8]| Wait::begin(&store, key, &mut state.oracle, &mut state.rng);
        let waits = FOLLOWED.iter().map(wait).collect();
        let known = bounds(&state.oracle.durable);
        state.followers = Some(Followers { tails, waits, small, large, known });
        Ok(())
    }

    /// Reads the followers, and compares them with the logs that the store shows.
    pub(super) fn read_followers(&self, shown: &Logs) -> Result<(), Violation> {
        let Some(mut followers) = self.state().followers.take() else { return Ok(()) };
        if self.tolerance().damaged {
            return Ok(());
        }
        let read = followers.read(shown);
        let read = read.map(|read| read.and_then(|()| followers.check_waits(shown, &self.state().oracle)));
        match read {
            Ok(Ok(())) => {
                if let Some(store) = self.store() {
                    let state = &mut *self.state();
                    followers
                        .waits
                        .iter_mut()
                        .for_each(|it| it.renew(&store, &mut state.oracle, &mut state.rng));
                }
                self.state().followers = Some(followers);
                Ok(())
            }
            Ok(Err(what)) => violated(what),
            Err(error) => self.excuse(Err::<(), _>(error)),
        }
    }
}

impl Followers {
    /// Reads one event of each tail: the tails so hold views while the logs change. Runs the tasks
    /// that were woken.
    fn go_on(&mut self) -> Result<Result<(), String>, Error> {
        self.waits.iter_mut().try_for_each(Wait::run)?;
        for (tail, copy) in &mut self.tails {
            if let Some(Err(what)) = tail.try_next()?.map(|event| copy.apply(event)) {
                return Ok(Err(format!("{}: {what}", text(&copy.key))));
            }
        }
        Ok(Ok(()))
    }

    fn read(&mut self, shown: &Logs) -> Result<Result<(), String>, Error> {
        for (tail, copy) in &mut self.tails {
            let mut done = Ok(());
            while let (true, Some(event)) = (done.is_ok(), tail.try_next()?) {
                done = copy.apply(event);
            }
            if let Err(what) = done.and_then(|()| copy.check(shown.get(&copy.key))) {
                return Ok(Err(format!("{}: {what}", text(&copy.key))));
            }
        }
        let (large, small) = (Changed::take(&mut self.large)?, Changed::take(&mut self.small)?);
        self.waits.iter_mut().try_for_each(Wait::run)?;
        let checked = large.and_then(|large| {
            small?.check_small(&large)?;
            self.heed(large, shown)
        });
        Ok(checked)
    }

    /// Applies the events of the large watch, and compares its logs with the logs of the store.
    fn heed(&mut self, changed: Changed, shown: &Logs) -> Result<(), String> {
        for (key, bounds) in changed.logs {
            match bounds {
                Some(bounds) => drop(self.known.insert(key, bounds)),
                None => drop(self.known.remove(&key)),
            }
        }
        if changed.missed {
            self.known = bounds(shown);
        }
        if !self.known.keys().eq(shown.keys()) {
            return Err("the watch did not return each log that was created or deleted".into());
        }
        for ((key, known), log) in self.known.iter().zip(shown.values()) {
            // Entries that are too old leave without an event.
            let ages = log.retention.age.is_some() && known.first <= log.first;
            if known.next != log.next() || known.first != log.first && !ages {
                let shown = log.bounds();
                return Err(format!(
                    "{}: the watch returned {known:?}, and the log has {shown:?}",
                    text(key)
                ));
            }
        }
        Ok(())
    }

    fn check_waits(&self, shown: &Logs, oracle: &Oracle) -> Result<(), String> {
        self.waits.iter().try_for_each(|wait| wait.check(shown, oracle))
    }
}

/// Returns the bounds of all logs.
fn bounds(logs: &Logs) -> BTreeMap<Bytes, Bounds> {
    logs.iter().map(|(key, log)| (key.clone(), log.bounds())).collect()
}
