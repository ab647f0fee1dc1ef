//! The driver of appends that no thread waits for: tasks, callbacks, backlogs and deadlines.
//!
//! [`Committer::step`] does all work that needs no waiting, and returns the event to wait for;
//! [`run`](Committer::run) is the thread around it. A simulator calls `step` itself.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use brooklet_io::panics::caught;
use brooklet_io::seeded::bug;
use brooklet_io::{Completion, Op, Persist, Queue, exact_timers, write_all_at};

use crate::alarm::Alarm;
use crate::core::{CommitterWait, Taken, Write, WriteReason};
use crate::shared::CommitterHandle;
use crate::sync::thread;
use crate::wal::Wal;

/// Idle rounds after which the committer writes the acknowledged number and sleeps until it is
/// woken.
const IDLE_ROUNDS: u32 = 20;

/// Shortest and longest sleep of a committer that expects more work.
const LEAST_NAP: Duration = Duration::from_micros(100);
const MOST_NAP: Duration = Duration::from_millis(10);

/// A driver of a log, on one thread with several writes in flight.
pub struct Committer {
    wal: Wal,
    queue: Box<dyn Queue>,
    writes: BTreeMap<u64, Write>,
    finished: Vec<Completion>,
    idle_rounds: u32,
    last_durable: u64,
    alarm: Alarm,
    /// Whether the current rest ends when a write is due.
    exact: bool,
    /// Whether the committer panicked: its state is not used any more.
    broken: bool,
}

/// The event that a committer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// No event: more work is pending.
    None,
    /// The end of a write in flight, the given time, or a wake-up.
    Write(Duration),
    /// The given time, or a wake-up.
    Sleep(Duration),
    /// The log was closed or stopped: do not call `step` again.
    Ended,
}

impl Committer {
    /// Creates a committer for `wal`. A log needs one, unless a thread waits for every append.
    pub fn new(wal: &Wal) -> io::Result<Self> {
        let shared = &wal.shared;
        let queue = shared.volume.queue(shared.config.depth)?;
        Ok(Self {
            wal: wal.clone(),
            queue,
            writes: BTreeMap::new(),
            finished: Vec::new(),
            idle_rounds: 0,
            last_durable: 0,
            alarm: Alarm::new(),
            exact: false,
            broken: false,
        })
    }

    /// Does the work that can be done now. Without a [running](Self::run) thread, the step calls
    /// callbacks at its end; they must not wait for this log, because the next step may be needed
    /// to end that wait.
    ///
    /// A panic, for example of the volume, stops the log.
    pub fn step(&mut self) -> Pause {
        if self.broken {
            return Pause::Ended;
        }
        let shared = self.wal.shared.clone();
        let _hush = shared.calls.hush();
        self.watched(Self::advance).unwrap_or(Pause::Ended)
    }

    /// Steps until no work is pending and no write is in flight; sleeps while one is in flight.
    /// Returns whether there was any work. Does not wait for a stopped log: its writes may never
    /// end.
    pub fn drain(&mut self) -> bool {
        let mut worked = false;
        loop {
            match self.step() {
                Pause::None => {}
                Pause::Write(time) if self.wal.shared.lock().check().is_ok() => {
                    self.watched(|committer| committer.queue.wait(time));
                }
                Pause::Write(_) | Pause::Sleep(_) | Pause::Ended => return worked,
            }
            worked = true;
        }
    }

    /// Does a part of the work; returns `None` if that part panicked, which stops the log.
    fn watched<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let done = caught("the committer", || work(self));
        done.inspect_err(|_| self.broken = true).map_err(|panic| drop(self.wal.shared.fail(panic))).ok()
    }

    fn advance(&mut self) -> Pause {
        self.reap();
        let shared = self.wal.shared.clone();
        let now = shared.clock.now();
        let mut core = shared.lock();
        if core.check().is_err() {
            let flying = self.queue.in_flight() > 0;
            return if flying { Pause::Write(Duration::MAX) } else { Pause::Ended };
        }
        if let Some(taken) = core.take(WriteReason::Due(now)) {
            drop(core);
            self.start(taken);
            return Pause::None;
        }
        let paced = core.is_paced();
        let linger = shared.config.linger;
        // Another driver delays a block that is due and cannot be taken; so check again soon.
        let soon = now.saturating_add((linger / 4).max(LEAST_NAP));
        if self.queue.in_flight() > 0 {
            // The next write may be due before a write in flight ends.
            let due = if paced && core.has_slot() { core.due() } else { None };
            self.exact = due.is_some_and(|due| due > now);
            let until = due.map_or(Duration::MAX, |due| if self.exact { due } else { soon });
            core.rest = Some(CommitterWait::Flying { until });
            return Pause::Write(until.saturating_sub(now));
        }
        let idle = core.is_at_rest() && core.durable() == self.last_durable;
        self.idle_rounds = if idle { self.idle_rounds + 1 } else { 0 };
        self.last_durable = core.durable();
        if self.idle_rounds >= IDLE_ROUNDS
            && let Some(taken) = core.take_quiet(now)
        {
            drop(core);
            self.start(taken);
            return Pause::None;
        }
        let due = core.due();
        self.exact = paced && due.is_some_and(|due| due > now);
        let until = match due {
            Some(due) if self.exact => due,
            Some(due) => due.max(soon),
            // A change that lets the empty block be written ends this rest.
            None if self.idle_rounds >= IDLE_ROUNDS && (core.has_told() || core.waits_for_change()) => {
                Duration::MAX
            }
            None => {
                // Once all is quiet, only the empty block is to be written. It keeps the pace, too.
                let quiet = self.idle_rounds >= IDLE_ROUNDS;
                let held_back = core.held_back(now).filter(|_| quiet).unwrap_or_default();
                now.saturating_add(linger.clamp(LEAST_NAP, MOST_NAP).max(held_back))
            }
        };
        core.rest = Some(CommitterWait::Parked { until });
        Pause::Sleep(until.saturating_sub(now))
    }

    /// Steps until the log is closed or stopped.
    ///
    /// # Panics
    /// If another committer of the log has run.
    pub fn run(mut self) {
        let shared = self.wal.shared.clone();
        let resting = CommitterHandle { thread: thread::current(), flying: self.queue.waker() };
        assert!(shared.committer.set(resting).is_ok(), "a log has one committer");
        if shared.lock().is_paced() {
            exact_timers();
        }
        loop {
            // This loop runs no callbacks: another thread does that.
            let rested = self.watched(|committer| match committer.advance() {
                Pause::None => true,
                Pause::Write(time) => committer.rest(time, |queue, time| queue.wait(time)),
                Pause::Sleep(time) => committer.rest(time, |_, time| thread::park_timeout(time)),
                Pause::Ended => false,
            });
            if rested != Some(true) {
                return;
            }
        }
    }

    /// Rests, and returns `true`: more work may be pending then.
    fn rest(&mut self, time: Duration, how: impl FnOnce(&mut dyn Queue, Duration)) -> bool {
        let Self { wal, queue, alarm, exact, .. } = self;
        if *exact {
            alarm.sleep(&*wal.shared.clock, time, |time| how(&mut **queue, time));
        } else {
            how(&mut **queue, time);
        }
        wal.shared.lock().rest = None;
        true
    }

    fn start(&mut self, taken: Taken) {
        let shared = &self.wal.shared;
        let Some(write) = shared.seal_and_place(taken) else { return };
        let op = Op::Write {
            offset: shared.zone + write.offset,
            data: write.data.clone(),
            persist: if bug("queued-write-is-cached") { Persist::Cached } else { Persist::Durable },
        };
        self.queue.submit(write.seq, op);
        self.writes.insert(write.seq, write);
    }

    fn reap(&mut self) {
        self.queue.reap(false, &mut self.finished);
        for completion in self.finished.drain(..) {
            let shared = &self.wal.shared;
            let write = self.writes.remove(&completion.token).expect("what completes was submitted");
            let result = completion.result.and_then(|done| {
                // The write restarts at the last whole sector.
                let done = done / brooklet_io::SECTOR * brooklet_io::SECTOR;
                let done = if bug("short-write-is-whole") { write.data.len() } else { done };
                let at = shared.zone + write.offset + done as u64;
                write_all_at(&*shared.volume, at, &write.data[done..], Persist::Durable)
            });
            shared.finish(write.seq, result);
        }
    }
}
