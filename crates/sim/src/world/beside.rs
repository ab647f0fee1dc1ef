//! A reader beside the store, on the same disk and without its lock. Between two reads of the disk,
//! the store goes on: it commits, checkpoints and merges.
//!
//! The disk may read otherwise for the reader: see `beside_damage.rs`.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};

use brooklet::io::{Layer, Volume};
use brooklet::{Error, Store};

use super::beside_damage::Hurt;
use crate::model::{Logs, Moment};
use crate::oracle::{Seen, Violation, violated};
use crate::world::World;

/// One read in this many lets the store go on.
const ONE_IN: u64 = 12;

/// The disk as the reader sees it.
#[derive(Clone)]
pub(super) struct Shared {
    below: Arc<dyn Volume>,
    world: Weak<World>,
    hurts: Arc<[Hurt]>,
}

impl Shared {
    pub fn new(below: Arc<dyn Volume>, world: Weak<World>, hurts: Arc<[Hurt]>) -> Self {
        Self { below, world, hurts }
    }
}

impl Layer for Shared {
    fn below(&self) -> &dyn Volume {
        &*self.below
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.below.read_at(offset, buf)?;
        self.hurts.iter().for_each(|hurt| hurt.befall(offset, &mut buf[..read]));
        // An opening that starts over need not pause.
        std::thread::current().unpark();
        if let Some(world) = self.world.upgrade()
            && let Err(violation) = world.go_on()
        {
            world.state().violation.get_or_insert(violation);
        }
        Ok(read)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.below)
    }
}

impl World {
    /// Now and then, reads everything beside the store: it must show a state of the store that
    /// was durable lately. So must a copy that is made of it.
    pub(super) fn read_beside(&self) -> Result<(), Violation> {
        if self.tolerance().damaged || self.state().rng.percent(80) {
            return Ok(());
        }
        let outer = self.watch();
        let recorded = self.record()?;
        let (seen, view) = match self.open_beside([].into()) {
            Ok(reader) => (Seen::of(&reader, false, true)?, reader.view().ok()),
            Err(error) => (Err(error), None),
        };
        let since = self.watched(outer)?;
        let seen = match seen {
            Ok(seen) => seen.at(Moment::at(self.now())),
            Err(error @ Error::Replaced { .. }) => {
                self.tell(|| format!("  a reader beside the store came too late: {error}"));
                return Ok(());
            }
            // The disk may have begun to fail meanwhile.
            Err(error) => return self.excuse(Err::<(), _>(error)),
        };
        let expectation = self.expectation()?;
        if self.tolerance().damaged {
            return Ok(());
        }
        let states = if recorded { since } else { self.state().oracle.recent.iter().cloned().collect() };
        let states = expectation.in_runs(&states);
        let same: Vec<&Logs> = states.iter().filter(|state| seen.difference(state).is_empty()).collect();
        let Some(state) = same.first() else {
            let nearest = seen.difference(states.last().expect("the durable state"));
            return violated(format!("a reader beside the store shows a state that never was:\n{nearest}"));
        };
        match view {
            // The newest commits of such a view come from the ring. States that look the same may
            // differ later, by the ages of their entries.
            Some(view) if same.iter().all(|other| other == state) => self.copy(&view, state, true),
            _ => Ok(()),
        }
    }

    /// Writes two more blocks: they record that everything before them is acknowledged. Returns
    /// `false` if the store did not take them.
    fn record(&self) -> Result<bool, Violation> {
        let mut recorded = true;
        for _ in 0..2 {
            self.commit(1, None, false)?;
            // Neither a refused commit nor one in memory is on its way.
            let on_its_way = !self.state().oracle.flying.is_empty();
            let flushed = self.open_store().flush();
            recorded &= flushed.is_ok() && on_its_way;
            self.excuse(flushed)?;
            self.state().oracle.settle()?;
        }
        Ok(recorded)
    }

    /// Opens a reader beside the store; `hurts` is the damage of the ring that it meets.
    pub(super) fn open_beside(&self, hurts: Arc<[Hurt]>) -> Result<Store, Error> {
        let seed = self.state().rng.next();
        let options = self.plan.shape.options(&self.clock, seed).beside_writer(true);
        let shared = |below, hurts| Arc::new(Shared::new(below, self.me.clone(), hurts));
        match self.volume().volumes() {
            (data, Some(ring)) => options.open_on_with_ring(shared(data, [].into()), shared(ring, hurts)),
            (data, None) => options.open_on(shared(data, hurts)),
        }
    }

    /// Lets the store do something, now and then.
    fn go_on(&self) -> Result<(), Violation> {
        // With a pace, commits wait, and time passes: entries could become too old between two
        // looks.
        let paced = !self.plan.shape.interval.is_zero();
        if self.store().is_none() || paced || self.state().rng.below(ONE_IN) > 0 {
            return Ok(());
        }
        let what = self.state().rng.below(4);
        match what {
            0 => self.excuse(self.open_store().checkpoint()),
            1 => self.excuse(self.open_store().compact()),
            2 => self.work(),
            // Time stands still: the reader applies the age limit once.
            _ => self.commit(2, None, false).and_then(|()| self.excuse(self.open_store().flush())),
        }
    }
}
