//! Followers: tails of some logs, and a watch of all logs, as long as the store is open. Whenever
//! everything is read, the followers are read, too: their copies must be equal to the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use brooklet::{Bytes, Entry, Error, Tail, TailEvent, Watch, WatchEvent};

use crate::model::{Log, Logs, text};
use crate::oracle::{Violation, violated};
use crate::world::World;

/// Logs with a tail; the first ones have awkward keys.
const FOLLOWED: [&[u8]; 6] = [b"\0", b"log/\0", b"log/\0/x", b"log/3", b"log/4", b"log/5"];

/// Most changed logs that the watch holds, so few that it misses some.
const MOST: usize = 12;

pub(super) struct Followers {
    tails: Vec<(Tail, Copy)>,
    watch: Watch,
    /// The next number of each log, by the watch.
    known: BTreeMap<Bytes, u64>,
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
        let followed = tails.and_then(|tails| Ok((tails, store.watch("")?.with_limit(MOST))));
        let (tails, watch) = match followed {
            Ok(followed) => followed,
            Err(error) => return self.excuse(Err::<(), _>(error)),
        };
        let mut state = self.state();
        state.oracle.settle()?;
        let known = state.oracle.durable.iter().map(|(key, log)| (key.clone(), log.next())).collect();
        state.followers = Some(Followers { tails, watch, known });
        Ok(())
    }

    /// Reads the followers, and compares them with the logs that the store shows.
    pub(super) fn read_followers(&self, shown: &Logs) -> Result<(), Violation> {
        let Some(mut followers) = self.state().followers.take() else { return Ok(()) };
        if self.tolerance().damaged {
            return Ok(());
        }
        match followers.read(shown) {
            Ok(Ok(())) => {
                self.state().followers = Some(followers);
                Ok(())
            }
            Ok(Err(what)) => violated(what),
            Err(error) => self.excuse(Err::<(), _>(error)),
        }
    }
}

impl Followers {
    /// Reads one event of each tail: the tails so hold views while the logs change.
    fn go_on(&mut self) -> Result<Result<(), String>, Error> {
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
        let mut missed = false;
        while let Some(event) = self.watch.try_next()? {
            match event {
                WatchEvent::Moved { key, bounds } => drop(self.known.insert(key.into(), bounds.next)),
                WatchEvent::Deleted { key } => drop(self.known.remove(&Bytes::from(key))),
                _ => missed = true,
            }
        }
        let known = shown.iter().map(|(key, log)| (key.clone(), log.next())).collect();
        if missed {
            self.known = known;
        } else if self.known != known {
            return Ok(Err("the watch did not return each changed log".into()));
        }
        Ok(Ok(()))
    }
}
