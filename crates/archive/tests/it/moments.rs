//! Every moment that is restored is the store as it was then, or an error that names a hole which
//! really has it.
//!
//! A store is committed to every few milliseconds of a clock by hand, shipped and backed up at
//! random. Processes end, requests fail, logs come in by imports, and the clock is set: for a while
//! to a wrong time, or back for good. A plain model takes note of what the store is at each
//! millisecond that the clock shows.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use brooklet::io::{Clock, ManualClock, MemVolume, Rng};
use brooklet::{Options, Store};
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::{Archive, Bucket, Error, Which};
use tempfile::TempDir;

use crate::common::faulty::Faulty;
use crate::common::{Logs, archive, back_up, bucket, logs};

/// So far a wrong clock is off, in milliseconds.
const WRONG: u64 = 400_000;

/// What happens.
#[derive(Clone, Copy, Debug, Default)]
struct Kinds {
    /// The clock is set: to a wrong time and right again, or back for good.
    clock: bool,
    /// Commits are lost to shipping: by imports, and with processes.
    loss: bool,
    /// Nothing is shipped.
    alone: bool,
}

/// What the clock showed while the store was as it was.
struct Shown {
    version: usize,
    times: RangeInclusive<u64>,
    /// Whether it did, and was right: a time that only a wrong clock showed has not come yet, or is
    /// long gone, and around a moment at which the clock was set nobody can know how far it had
    /// come.
    sure: bool,
}

/// The backups that count, and what is known of the time before each.
#[derive(Clone, Copy)]
struct BackedUp {
    taken: u64,
    /// Whether something was lost since the one before.
    hole: bool,
}

struct World {
    clock: Arc<ManualClock>,
    store: Store,
    memory: Arc<InMemory>,
    faulty: Arc<Faulty>,
    dir: TempDir,
    archive: Archive,
    kinds: Kinds,
    rng: Rng,
    versions: Vec<Logs>,
    shown: Vec<Shown>,
    backups: Vec<BackedUp>,
    /// Whether something was lost to shipping since the last backup.
    lost: bool,
    /// The version that the archive has by now, and the one that it has if more came through than
    /// was heard of.
    archived: usize,
    maybe: usize,
    /// How far ahead the clock is, if it is wrong.
    wrong: i64,
    other: Store,
    imports: u64,
}

fn options(clock: &Arc<ManualClock>, seed: u64) -> Options {
    let options = Options::new().ring_size(256 << 10).memory_budget(64 << 10).max_payload(9 << 10);
    options.threads(false).clock(clock.clone()).rng_seed(seed)
}

impl World {
    fn new(seed: u64, kinds: Kinds) -> Self {
        let clock = Arc::new(ManualClock::default());
        clock.set_wall(Duration::from_secs(1000));
        let store = options(&clock, seed).create_on(Arc::new(MemVolume::new(seed))).unwrap();
        let other = options(&clock, 7).create_on(Arc::new(MemVolume::new(7))).unwrap();
        let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
        let faulty = Arc::new(Faulty::new(memory.clone(), seed, 0));
        let mut world = Self {
            archive: archive(&faulty, &dir.path().join("note")),
            clock,
            store,
            memory,
            faulty,
            dir,
            kinds,
            rng: Rng::new(seed),
            versions: vec![Logs::new()],
            shown: Vec::new(),
            backups: Vec::new(),
            lost: true,
            archived: 0,
            maybe: 0,
            wrong: 0,
            other,
            imports: 0,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.archive = archive(&self.faulty, &self.dir.path().join("note"));
        if !self.kinds.alone {
            self.archive.follow(&self.store).unwrap();
        }
        self.lost = true;
    }

    fn now(&self) -> u64 {
        self.clock.wall().as_millis() as u64
    }

    fn last(&self) -> usize {
        self.versions.len() - 1
    }

    /// The clock goes on, and the store is as it is.
    fn pass(&mut self, millis: u64) {
        let from = self.now();
        self.clock.advance(Duration::from_millis(millis));
        self.show(from..=self.now());
    }

    fn show(&mut self, times: RangeInclusive<u64>) {
        self.shown.push(Shown { version: self.last(), times, sure: self.wrong == 0 });
    }

    fn set_clock(&mut self, by: i64) {
        let (from, to) = (self.now(), self.now().saturating_add_signed(by));
        // Between what is committed before and after, it cannot be told when that was.
        let version = self.last();
        for times in [from..=from + 60, to - 60..=to, from.min(to)..=from.max(to)] {
            self.shown.push(Shown { version, times, sure: false });
        }
        self.clock.set_wall(Duration::from_millis(to));
        self.show(to..=to);
    }

    /// The store is something else from now on.
    fn becomes(&mut self, change: impl FnOnce(&mut Logs)) {
        let mut next = self.versions[self.last()].clone();
        change(&mut next);
        self.versions.push(next);
        let now = self.now();
        self.show(now..=now);
    }

    fn commit(&mut self) {
        let key = format!("log/{}", self.rng.below(6)).into_bytes();
        let log = self.versions[self.last()].get(&key).cloned();
        let (kind, number) = (self.rng.below(8), self.rng.next());
        match (kind, log) {
            (0, Some(_)) => {
                self.store.delete(&key).unwrap().wait().unwrap();
                self.becomes(|logs| drop(logs.remove(&key)));
            }
            (1, Some((first, entries))) if !entries.is_empty() => {
                self.store.trim(&key, first + 1).unwrap().wait().unwrap();
                self.becomes(|logs| drop(logs.insert(key, (first + 1, entries[1..].to_vec()))));
            }
            _ => {
                let payload = vec![number as u8; 1 + (number % 300) as usize];
                self.store.append(&key, &payload).unwrap().wait().unwrap();
                self.becomes(|logs| logs.entry(key).or_default().1.push(payload));
            }
        }
    }

    fn import(&mut self) {
        self.imports += 1;
        let key = format!("import/{:03}", self.imports);
        self.other.append(&key, "x").unwrap().wait().unwrap();
        self.store.import().log(&self.other.view().unwrap(), &key).unwrap();
        self.becomes(|logs| drop(logs.insert(key.into_bytes(), (0, vec![b"x".to_vec()]))));
        self.lost = true;
    }

    /// Requests may fail from some on, as where the network is gone.
    fn maybe_cut_off(&mut self) {
        self.maybe = self.last();
        if self.rng.percent(15) {
            let requests = self.rng.below(8);
            self.faulty.dies_unheard(self.rng.percent(50));
            self.faulty.live(Some(requests));
        }
    }

    fn ship(&mut self) {
        self.maybe_cut_off();
        match self.archive.ship() {
            Ok(Some(_)) => {
                assert!(!self.lost, "something is missing, and nobody says so");
                self.archived = self.last();
            }
            Ok(None) | Err(Error::Bucket { .. }) => {}
            Err(Error::Lost { .. }) => assert!(self.lost, "nothing was lost"),
            Err(error) => panic!("{error}"),
        }
        self.faulty.live(None);
    }

    fn back_up(&mut self) {
        let cancelled = self.rng.percent(10);
        let flow = if cancelled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        self.maybe_cut_off();
        let taken = self.now();
        let done = self.archive.backup(&self.store, |_| flow);
        self.faulty.live(None);
        match done {
            Ok(archived) => {
                assert_eq!((archived.taken_ms, archived.lsn > 0), (taken, true));
                self.archived = self.last();
                if archived.is_new {
                    assert!(archived.is_covered || self.lost || self.kinds.alone, "it is covered");
                    self.count(taken);
                }
            }
            // Whether it counts is told by the next one. It does where a record is there.
            Err(Error::Bucket { .. } | Error::Cancelled { .. }) => {
                if bucket(&self.memory).backups().unwrap().len() > self.backups.len() {
                    self.archived = self.last();
                    self.count(taken);
                    // What was on its way into the next chain is gone with the answer.
                    self.lost = true;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn count(&mut self, taken: u64) {
        let hole = self.lost || self.kinds.alone;
        self.backups.push(BackedUp { taken, hole });
        self.lost = false;
    }

    fn step(&mut self) {
        let millis = 1 + self.rng.below(5);
        self.pass(millis);
        match self.rng.below(100) {
            0..=11 => self.ship(),
            12..=17 => self.back_up(),
            18 if self.kinds.loss => self.import(),
            19 if self.kinds.loss => self.begin(),
            20..=22 if self.kinds.clock && self.wrong == 0 => {
                self.wrong = [WRONG as i64, -(WRONG as i64)][self.rng.below(2) as usize];
                self.set_clock(self.wrong);
            }
            23..=34 if self.wrong != 0 => {
                let by = -std::mem::take(&mut self.wrong);
                self.set_clock(by);
            }
            35 if self.kinds.clock && self.wrong == 0 => self.set_clock(-30),
            36 => self.store.compact().unwrap(),
            37 => self.store.checkpoint().unwrap(),
            38..=50 => {}
            _ => self.commit(),
        }
    }

    /// Compares what is restored to a moment with what the store was then.
    fn check(&self, bucket: &Bucket, at: u64, seen: &mut Seen) {
        let restored = bucket
            .backup(Which::At(UNIX_EPOCH + Duration::from_millis(at)))
            .and_then(|backup| backup.view(1 << 20));
        let showed: Vec<&Shown> = self.shown.iter().filter(|shown| shown.times.contains(&at)).collect();
        let view = match restored {
            Ok(view) => view,
            Err(Error::Hole { from_ms: from, to_ms: to }) => {
                assert!(from < at && at < to, "{at} is not between {from} and {to}");
                let real = self.backups.iter().any(|backup| backup.taken == to && backup.hole);
                assert!(real, "at {at}: nothing was lost between {from} and {to}");
                // The moments that the error names can be restored.
                for moment in [from, to] {
                    let again = bucket.backup(Which::At(UNIX_EPOCH + Duration::from_millis(moment))).unwrap();
                    assert!(again.view(1 << 20).is_ok() || self.kinds.clock, "{moment}, beside a hole");
                }
                return seen.holes += 1;
            }
            Err(Error::NoBackup(_)) => {
                assert!(self.backups.first().is_none_or(|first| at < first.taken), "{at} is hidden");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let found = logs(&view);
        seen.moments += 1;
        if showed.iter().any(|shown| self.versions[shown.version] == found) {
            return;
        }
        // After all that the archive knows it is the last that it knows, and is dated so.
        let last = &self.versions[self.archived..=self.maybe.max(self.archived)];
        assert!(last.contains(&found), "at {at} it was something else");
        assert!(view.taken_ms() <= at || self.kinds.clock, "at {at}: dated {}", view.taken_ms());
        if !showed.iter().any(|shown| shown.sure) {
            // The clock never showed it: it was set from before it to after it, and may show it
            // yet.
            return;
        }
        let known = self.shown.iter().filter(|shown| shown.version <= self.archived && shown.sure);
        let until = known.map(|shown| *shown.times.end()).max();
        assert!(until.is_none_or(|until| at + 30 >= until), "at {at} it was something else: not the last");
        seen.later += 1;
    }
}

/// How often there was what.
#[derive(Debug, Default)]
struct Seen {
    moments: u64,
    holes: u64,
    later: u64,
}

fn play(seed: u64, kinds: Kinds, moments: u64, seen: &mut Seen) {
    let mut world = World::new(seed, kinds);
    world.pass(3);
    world.commit();
    world.pass(1);
    world.lost = true;
    back_up(&mut world.archive, &world.store).unwrap();
    let taken = world.now();
    world.archived = world.last();
    world.count(taken);
    (0..120).for_each(|_| world.step());
    if world.rng.percent(50) {
        world.ship();
    }
    let bucket = bucket(&world.memory);
    for _ in 0..moments {
        // Anywhere that the clock was, the end included.
        let shown = &world.shown[world.rng.below(world.shown.len() as u64) as usize];
        if !shown.sure {
            continue;
        }
        let (first, last) = (*shown.times.start(), *shown.times.end());
        let at = first + world.rng.below(last - first + 2);
        world.check(&bucket, at, seen);
    }
}

/// The runs of a kind, as many as `seeds`.
fn runs(kinds: Kinds, seeds: u64) -> Seen {
    let mut seen = Seen::default();
    (0..seeds).for_each(|seed| play(seed, kinds, 60, &mut seen));
    seen
}

#[test]
pub fn every_moment_between_backups_is_restored() {
    let seen = runs(Kinds::default(), 12);
    assert!(seen.moments > 300 && seen.holes == 0 && seen.later > 0, "{seen:?}");
}

#[test]
pub fn what_was_lost_to_shipping_is_a_hole() {
    let seen = runs(Kinds { loss: true, ..Kinds::default() }, 16);
    assert!(seen.moments > 300 && seen.holes > 30, "{seen:?}");
}

#[test]
pub fn clocks_that_are_set_hide_nothing() {
    let seen = runs(Kinds { clock: true, ..Kinds::default() }, 16);
    assert!(seen.moments > 300 && seen.holes == 0, "{seen:?}");
    let seen = runs(Kinds { clock: true, loss: true, ..Kinds::default() }, 16);
    assert!(seen.moments > 200 && seen.holes > 20, "{seen:?}");
}

#[test]
pub fn backups_without_commits_between_leave_holes() {
    let seen = runs(Kinds { alone: true, ..Kinds::default() }, 6);
    assert!(seen.holes > 100, "{seen:?}");
}

/// The host itself made the backup: nobody else owns the archive.
#[test]
pub fn a_backup_whose_answer_is_lost_is_gone_on_from() {
    let mut met = 0;
    for requests in 0..16 {
        let mut world = World::new(1, Kinds::default());
        let back_up = |world: &mut World| world.archive.backup(&world.store, |_| ControlFlow::Continue(()));
        world.commit();
        back_up(&mut world).unwrap();
        world.commit();
        world.archive.ship().unwrap().unwrap();
        world.commit();
        world.faulty.dies_unheard(true);
        world.faulty.live(Some(requests));
        let done = back_up(&mut world);
        world.faulty.live(None);
        met += u64::from(done.is_err() && bucket(&world.memory).backups().unwrap().len() == 2);
        world.commit();
        world.archive.ship().unwrap();
        back_up(&mut world).unwrap();
        world.commit();
        assert!(world.archive.ship().unwrap().is_some(), "after {requests} requests");
    }
    assert!(met > 0, "no answer to the creation of a backup was lost");
}
