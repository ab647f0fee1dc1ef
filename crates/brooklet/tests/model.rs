//! Random operations, reopenings and power cuts on the in-memory volume, against a plain model.
//!
//! The check after a cut: what is recovered is the state after some number of commits, at least those that were
//! acknowledged and at most those that were submitted. Each case is one seed; a failure prints it, and
//! `BROOKLET_SEED=… cargo test -p brooklet --test model` runs that one alone. `BROOKLET_CASES` sets how many are run.

mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{Fault, ManualClock, MemVolume, Rng};
use brooklet::{Create, Durability, Error, Options, Store, Ticket};
use common::{Logs, Op};

struct World {
    seed: u64,
    rng: Rng,
    clock: Arc<ManualClock>,
    volume: MemVolume,
    store: Store,
    /// What readers may see: the state after all durable commits.
    durable: Logs,
    /// Commits that boarded and were not seen to be durable yet, in order.
    flying: VecDeque<(Vec<Op>, Ticket, bool)>,
    /// The state after all that boarded.
    boarded: Logs,
    /// The epoch of the last opening.
    epoch: u64,
}

fn options(clock: &Arc<ManualClock>, seed: u64) -> Options {
    common::tiny(clock, seed).create(Create::Never)
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::default());
        let volume = MemVolume::new(seed);
        let store = options(&clock, seed).create_on(Arc::new(volume.clone())).expect("an empty store");
        let rng = Rng::new(seed);
        let (durable, boarded) = (Logs::new(), Logs::new());
        Self { seed, rng, clock, volume, store, durable, flying: VecDeque::new(), boarded, epoch: 0 }
    }

    /// Each opening has an epoch of its own: what an earlier one left in the ring is never taken for something new.
    fn opened(&mut self) {
        let epoch = self.store.info().expect("it tells").epoch;
        assert!(epoch > self.epoch, "epoch {epoch} was there before");
        self.epoch = epoch;
    }

    /// Takes note of what has become durable.
    fn settle(&mut self) {
        while self.flying.front().is_some_and(|(_, ticket, _)| ticket.is_durable()) {
            let (ops, ..) = self.flying.pop_front().expect("just seen");
            common::apply(&mut self.durable, &ops).expect("it was accepted");
        }
    }

    fn write(&mut self) -> Result<(), Error> {
        let ops: Vec<Op> = match self.rng.below(4) {
            0 => (0..1 + self.rng.below(4)).map(|_| common::op(&mut self.rng, &self.boarded, 3000)).collect(),
            _ => vec![common::op(&mut self.rng, &self.boarded, 9000)],
        };
        let deferred = self.rng.percent(15);
        let mut commit = common::commit(&ops);
        if deferred {
            commit.durability(Durability::Deferred(Duration::from_millis(100)));
        }
        let mut after = self.boarded.clone();
        let expected = common::apply(&mut after, &ops);
        let only_expects = ops.iter().all(|op| matches!(op, Op::ExpectNext(..) | Op::ExpectAbsent(..)));
        match (self.store.commit(&commit), expected) {
            (Err(Error::EmptyCommit), Ok(_)) => assert!(only_expects),
            (Ok(ticket), Ok(seqs)) => {
                assert_eq!(ticket.seqs(), seqs, "{ops:?}");
                self.boarded = after;
                self.flying.push_back((ops, ticket, deferred));
            }
            (Err(error), Err(refusal)) if common::is_refusal(&error, &refusal) => {}
            (Err(error), Ok(_)) => return Err(error),
            (got, expected) => panic!("{ops:?} gave {got:?}, the model says {expected:?}"),
        }
        Ok(())
    }

    /// Compares what the store shows with what is durable.
    fn read(&mut self) -> Result<(), Error> {
        let contents = common::contents(&self.store)?;
        self.settle();
        let unseen = self.flying.iter().any(|(_, _, deferred)| *deferred);
        // A store that stopped shows what is safe; what it owed a deferred commit is lost with the power.
        let stopped = self.store.info()?.stopped.is_some();
        assert!(stopped || !unseen, "a deferred commit is acknowledged at once, so readers must see it");
        let difference = common::difference(&contents, &self.durable);
        assert!(difference.is_empty(), "readers see what they should not:\n{difference}");
        let key = common::key(&mut self.rng);
        let Some(log) = self.durable.get(&key) else {
            assert!(matches!(self.store.read(&key, ..), Err(Error::UnknownLog { .. })));
            return Ok(());
        };
        let from = log.first + self.rng.below(log.entries.len() as u64 + 1);
        let to = from + self.rng.below(log.next() - from + 1);
        for (seq, entry) in (from..to).zip(self.store.read(&key, from..to)?) {
            assert_eq!(entry?.payload, log.entries[(seq - log.first) as usize]);
        }
        assert!(matches!(self.store.read(&key, ..log.next() + 1), Err(Error::OutOfRange { .. })));
        Ok(())
    }

    fn act(&mut self) -> Result<(), Error> {
        match self.rng.below(100) {
            0..70 => self.write()?,
            70..80 => drop(self.store.step()?),
            80..85 => {
                // A thread that waits drives the log itself, unless writes of the committer are in flight.
                while self.flying.back().is_some_and(|(_, ticket, _)| !ticket.is_durable()) {
                    self.clock.advance(Duration::from_millis(200));
                    self.store.step()?;
                }
            }
            85..90 => self.clock.advance(Duration::from_millis(self.rng.below(150))),
            90..92 => self.store.flush()?,
            92..94 => self.store.checkpoint()?,
            94..95 => self.store.compact()?,
            _ => self.read()?,
        }
        self.settle();
        Ok(())
    }

    fn close_and_reopen(&mut self) {
        self.store.close().expect("closes");
        self.settle();
        assert!(self.flying.is_empty(), "a clean close makes everything durable");
        self.store = options(&self.clock, self.seed).open_on(Arc::new(self.volume.clone())).expect("opens");
        self.opened();
        let difference = common::difference(&common::contents(&self.store).expect("reads"), &self.durable);
        assert!(difference.is_empty(), "after a clean close:\n{difference}");
    }

    /// Kills the process: what it wrote is there, but maybe not on stable media yet.
    fn kill(&mut self) {
        self.settle();
        let spare =
            options(&self.clock, self.seed).create_on(Arc::new(MemVolume::new(0))).expect("a placeholder");
        std::mem::replace(&mut self.store, spare).abandon();
        self.recover();
    }

    /// Cuts the power, maybe again while recovering, and checks what is left.
    fn crash(&mut self) {
        self.settle();
        let mut image = self.volume.crash();
        for _ in 0..3 {
            self.volume = MemVolume::from_image(image.clone(), self.rng.next());
            if self.rng.percent(70) {
                break;
            }
            self.volume.fail(Fault::PowerOffAfter(self.rng.below(8)));
            if let Ok(store) = options(&self.clock, self.seed).open_on(Arc::new(self.volume.clone())) {
                store.abandon();
            }
            image = self.volume.crash();
            self.volume = MemVolume::from_image(image.clone(), self.rng.next());
        }
        self.recover();
    }

    fn recover(&mut self) {
        self.store = options(&self.clock, self.seed)
            .open_on(Arc::new(self.volume.clone()))
            .unwrap_or_else(|error| panic!("does not open after a cut: {error}"));
        self.opened();
        let contents = common::contents(&self.store).expect("reads");
        let mut state = self.durable.clone();
        let mut nearest = common::difference(&contents, &state);
        for (ops, ..) in self.flying.drain(..) {
            if nearest.is_empty() {
                break;
            }
            common::apply(&mut state, &ops).expect("it was accepted");
            nearest = common::difference(&contents, &state);
        }
        assert!(nearest.is_empty(), "not a prefix that holds every acknowledged commit:\n{nearest}");
        self.durable = state.clone();
        self.boarded = state;
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..1 + world.rng.below(4) {
        let fault = match world.rng.below(4) {
            0 => Some(Fault::PowerOffAfter(world.rng.below(60))),
            1 => Some(Fault::ShortWrites),
            _ => None,
        };
        let cut = matches!(fault, Some(Fault::PowerOffAfter(_)));
        if let Some(fault) = fault {
            world.volume.fail(fault);
        }
        for _ in 0..world.rng.below(80) {
            if let Err(error) = world.act() {
                assert!(cut, "an error without a fault: {error}");
                break;
            }
        }
        if cut || world.rng.percent(50) {
            world.crash();
        } else if world.rng.percent(50) {
            world.kill();
        } else {
            world.close_and_reopen();
        }
        if world.rng.percent(20) {
            let report = brooklet::check_volume(
                Arc::new(MemVolume::from_image(world.volume.image(), 0)),
                &mut |_, _| {},
            );
            let report = report.expect("the check goes through");
            assert!(report.is_sound(), "{:?}", report.findings);
        }
    }
}

#[test]
fn random_histories_agree_with_the_model() {
    if let Ok(seed) = std::env::var("BROOKLET_SEED") {
        return run(seed.parse().expect("BROOKLET_SEED is a number"));
    }
    let cases: u64 =
        std::env::var("BROOKLET_CASES").map_or(20_000, |n| n.parse().expect("BROOKLET_CASES is a number"));
    let threads = 2;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for seed in (thread..cases).step_by(threads as usize) {
                    let failed = std::panic::catch_unwind(|| run(seed));
                    if let Err(panic) = failed {
                        eprintln!("the failing seed: BROOKLET_SEED={seed}");
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
}
