//! Maintenance: when the keeper works, and how fast; and the thread that lets it.

use std::cell::Cell;
use std::time::Duration;

use brooklet_wal::Wal;

use super::Inner;
use crate::error::Error;
use crate::front::Front;
use crate::keeper::{Context, backlog};
use crate::pace::{self, IDLE, Load};
use crate::pressure::{self, Gauge};
use crate::sync::atomic::Ordering;
use crate::sync::thread;

/// The least time that the maintenance thread sleeps for idleness to come.
const LEAST_NAP: Duration = Duration::from_millis(10);

impl Inner {
    /// What the keeper works on. Taken before the keeper's lock is, so that it outlives that.
    pub fn context(&self) -> Result<Context<'_>, Error> {
        let wal = self.wal()?;
        let (quiet, untold) = (self.quiet(wal), Cell::default());
        Ok(Context { front: &self.front.0, wal, seed: self.options.seed, quiet, untold })
    }

    /// Time without a commit.
    fn quiet(&self, wal: &Wal) -> Duration {
        let commits = wal.stats().records;
        self.quiet.lock().expect("no panics").observe(self.options.clock.now(), commits)
    }

    /// How long nobody must have committed for the recent tier to be checkpointed; `None` where there is nothing in it.
    fn patience(&self, wal: &Wal) -> Option<Duration> {
        let used = wal.stats().used;
        let front = self.front();
        let memory = (front.active.bytes() as u64, self.options.memory_budget as u64);
        front.active.is_changed().then(|| pace::patience([(used, self.ring_size), memory]))
    }

    /// Does a slice of maintenance. `false` where there is nothing to do.
    pub fn maintain(&self) -> Result<bool, Error> {
        let context = self.context()?;
        let Some(mut keeper) = self.free_keeper() else { return Ok(false) };
        if self.patience(context.wal).is_some_and(|patience| context.quiet >= patience) {
            self.wanted.store(true, Ordering::Relaxed);
        }
        self.told.store(false, Ordering::Relaxed);
        let wanted = self.wanted.load(Ordering::Relaxed);
        let checkpointing = keeper.is_checkpointing();
        let worked = keeper.step(&context, wanted);
        if wanted && (keeper.is_checkpointing() || matches!(worked, Ok(false))) {
            self.wanted.store(false, Ordering::Relaxed);
        }
        // A compaction that finds no room holds nobody back.
        let stalled = worked.as_ref().err().filter(|_| keeper.was_checkpointing()).cloned();
        *self.stalled.lock().expect("no panics") = stalled;
        if checkpointing && !keeper.is_checkpointing() {
            // What came meanwhile may be enough for the next one, and no commit need come to notice.
            self.weigh(&self.front(), context.wal.stats().used);
        }
        worked
    }

    /// Asks for a checkpoint when the ring or the memory is part full.
    pub(super) fn weigh(&self, front: &Front, used: u64) {
        let full = used > self.ring_size / 2 || front.active.bytes() > self.options.memory_budget / 2;
        let wanted = full && front.frozen.is_none() && !self.wanted.swap(true, Ordering::Relaxed);
        let wanted = wanted || front.wants_room() && !self.told.swap(true, Ordering::Relaxed);
        // The front's lock orders this with the look that the maintenance thread takes before it sleeps.
        let woken = self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed);
        if wanted || woken {
            self.nudge();
        }
    }

    /// The maintenance thread: steps at the pace that the load asks for, and sleeps until there is something to do.
    pub(super) fn keep(&self) {
        while !self.closing.load(Ordering::Acquire) {
            let begun = self.options.clock.now();
            match self.maintain() {
                Ok(true) => {
                    let rest = pace::rest(self.options.clock.now().saturating_sub(begun), self.load());
                    if !rest.is_zero() {
                        thread::park_timeout(rest);
                    }
                }
                Ok(false) if self.keeper().is_checkpointing() => {
                    // The frozen tier's last block is on its way; push it, since nobody may be waiting for it. Waiting for
                    // it may have taken the wake-up of whoever closes the store.
                    if self.flush().is_err() && !self.closing.load(Ordering::Acquire) {
                        thread::park();
                    }
                }
                Ok(false) => self.sleep(),
                Err(Error::Stopped { .. } | Error::Closed) => thread::park(),
                Err(error) => {
                    tracing::warn!(%error, "a checkpoint or compaction was given up for now");
                    thread::park_timeout(Duration::from_millis(100));
                }
            }
        }
    }

    /// What the pace of maintenance depends on.
    fn load(&self) -> Load {
        let Ok(wal) = self.wal() else { return Load::default() };
        let quiet = self.quiet(wal);
        let short_of_room = self.keeper().is_short_of_room();
        let used = wal.stats().used;
        let front = self.front();
        // A checkpoint starts when either is half full, and holds writers back when the other half is, too.
        let second_half = |used: u64, size: u64| used.saturating_sub(size / 2) * 200 / size.max(1);
        let memory = second_half(front.memory() as u64, self.options.memory_budget as u64);
        let fill = if front.frozen.is_some() { memory.max(second_half(used, self.ring_size)) } else { 0 };
        let fill = fill.max(front.gauge().percent());
        Load { idle: quiet >= IDLE, short_of_room, fill, backlog: backlog(&front.runs) }
    }

    /// How long whoever has just appended is to wait, so that the keeper keeps up; `used` is what the ring has in use.
    pub(super) fn pressure(&self, front: &Front, used: u64) -> Duration {
        // Without threads nothing would come in time.
        if !self.options.threads {
            return Duration::ZERO;
        }
        let ring = Gauge::last_quarter(used, self.ring_size / 8 * 7);
        let memory = Gauge::last_quarter(front.memory() as u64, self.options.memory_budget as u64);
        let checkpoint = if front.frozen.is_some() { [ring, memory] } else { [Gauge::default(); 2] };
        pressure::delay(&[checkpoint[0], checkpoint[1], front.gauge()])
    }

    /// Sleeps until there may be something to do: because somebody says so, or because nobody commits any more.
    fn sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        match self.next_look() {
            Some(wait) => {
                self.asleep.store(false, Ordering::Relaxed);
                thread::park_timeout(wait);
            }
            None => thread::park(),
        }
    }

    /// How long to wait for idleness to give the keeper something to do, if it will.
    fn next_look(&self) -> Option<Duration> {
        let wal = self.wal().ok()?;
        let runs = self.front().runs.clone();
        let merge = self.keeper().due(&runs, true).map(|_| IDLE);
        let patience = self.patience(wal).into_iter().chain(merge).min();
        let wait = patience.map(|patience| patience.saturating_sub(self.quiet(wal)).max(LEAST_NAP));
        // What boarded and is not durable yet will be.
        wait.or_else(|| (!self.front().is_settled()).then_some(IDLE))
    }
}
