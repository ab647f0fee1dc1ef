//! The guard of a server's store: it ends the server once this host is not the owner any more. A
//! second thread backs the store up: its requests may hang.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use brooklet::{Activity, Progress, Store, Waits, WalStats};
use brooklet_archive::Archive;
use brooklet_replica::{Epoch, Error, Replica, Shipper};
use brooklet_server::{CancellationToken, Lease};

use super::member::Life;
use super::{LOOK, Replication, TELL, refused, with_suffix};
use crate::failure::{Failure, Kind};

/// Longest time of a write to the ring.
const STUCK: Duration = Duration::from_secs(30);
/// Time between two looks from which on the process has slept.
const SLEPT: Duration = Duration::from_secs(5);
/// Length of the log behind the last backup from which on a store is backed up before it moves: the
/// next owner reads it while nobody serves.
const SHORT: Length = Length { bytes: 8 << 20, objects: 2_000 };
/// Most backups before a move. A store that is written faster moves all the same.
const BEFORE_MOVE: u32 = 3;
/// Longest time that the end of the server waits for a request of a backup.
const LAST_REQUEST: Duration = Duration::from_secs(5);

/// The length of a log, or of its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Length {
    pub bytes: u64,
    /// Number of objects. A beat is one, and so is a small commit: each takes a request to read.
    pub objects: u64,
}

impl Length {
    /// Returns the length of a log since the backup with which its opening began.
    pub fn of(status: &brooklet_replica::ShipperStatus) -> Self {
        let objects = status.found_objects + status.kept.place.number;
        Self { bytes: status.found + status.bytes, objects }
    }

    /// Returns the length behind a shorter one.
    pub fn behind(self, other: Self) -> Self {
        Self { bytes: self.bytes - other.bytes, objects: self.objects - other.objects }
    }

    pub fn reaches(self, other: Self) -> bool {
        self.bytes >= other.bytes || self.objects >= other.objects
    }
}

/// The threads that guard the store until the server ends.
pub struct Guard {
    watching: JoinHandle<()>,
    backups: JoinHandle<()>,
    closing: CancellationToken,
    ended: Arc<Mutex<Option<Failure>>>,
    replica: Arc<Replica>,
    waits: Waits,
    time: Duration,
}

impl Replication {
    /// Guards the open store until the server ends.
    pub fn guard(self, store: Store) -> Result<Guard, Failure> {
        let shipper = self.replica.shipper().expect("the opening has claimed the log");
        if let Some(member) = &self.member {
            member.serve(
                shipper.status().kept.place.epoch,
                Life { stop: self.stop.clone(), hurry: self.server.hurry.clone() },
            );
        }
        let (replica, waits, time) = (self.replica.clone(), self.waits, self.leaving);
        let (stop, opened, owner) = (self.stop.clone(), store.clone(), shipper.clone());
        let mut ring = Ring::default();
        let must_end = move || {
            let activity = opened.activity();
            must_end(&activity, &owner).or_else(|| ring.stuck(&activity.wal, STUCK).map(stopped))
        };
        let work = move |closing: &CancellationToken| {
            thread::scope(|scope| {
                // Each may wait for the bucket.
                scope.spawn(|| self.recall(&store, closing));
                self.make_backups(&store, &shipper, closing);
            });
        };
        Guard::start(stop, replica, waits, time, must_end, work)
    }

    /// Makes backups until the server ends, or must end.
    fn make_backups(&self, store: &Store, shipper: &Shipper, closing: &CancellationToken) {
        let (mut last, mut backed_up, mut pause) = (Instant::now(), Length::default(), self.pause);
        let (mut before_move, mut is_known) = (0, self.member.is_none());
        // The other thread ends the server once this host is not the owner any more.
        let goes_on = || !closing.is_cancelled() && !self.stop.is_cancelled();
        while goes_on() {
            let status = shipper.status();
            let log = Length::of(&status);
            let behind = log.behind(backed_up);
            let is_long = behind.reaches(self.backup_at);
            let moves = self.member.as_ref().is_some_and(|member| {
                member.part(|part| {
                    let is_short = !behind.reaches(SHORT) || before_move >= BEFORE_MOVE;
                    part.note_log(is_short, status.kept.place, self.replica.trimmed())
                })
            });
            is_known = is_known || self.note_former(&goes_on);
            before_move = if moves { before_move } else { 0 };
            let is_for_move = moves && behind.reaches(SHORT) && before_move < BEFORE_MOVE;
            let wait = if is_long { pause.min(self.backup_every) } else { self.backup_every };
            if is_for_move || last.elapsed() >= wait {
                before_move += u32::from(is_for_move);
                match self.back_up(store, goes_on) {
                    Ok(true) => (backed_up, pause) = (log, self.pause),
                    Ok(false) => {}
                    Err(error) => {
                        tracing::error!(%error, "the backup failed, so the log stays long; the next try follows later");
                        pause = (2 * pause).min(self.backup_every);
                    }
                }
                last = Instant::now();
            }
            thread::sleep(LOOK);
        }
    }

    /// Notes the host that claimed the log just before this host, for a move to that host. Returns
    /// whether it is known.
    fn note_former(&self, goes_on: &dyn Fn() -> bool) -> bool {
        let Some(Epoch(first)) = self.replica.first_claimed() else { return false };
        match self.replica.claim(Epoch(first - 1), goes_on) {
            Ok(claim) => {
                if let (Some(member), Some(claim)) = (&self.member, claim) {
                    member.part(|part| part.follows(&claim.owner));
                }
                true
            }
            Err(error) => {
                tracing::debug!(%error, "the former owner is not known yet");
                false
            }
        }
    }

    /// Brings the runs to the file that it was [made](Self::make_anew) without.
    pub(super) fn recall(&self, store: &Store, closing: &CancellationToken) {
        let goes_on = || !closing.is_cancelled() && !self.stop.is_cancelled();
        let (begin, mut told, mut pause) = (Instant::now(), Instant::now(), self.pause.max(LOOK));
        while goes_on() {
            let progress = |progress: Progress| {
                if told.elapsed() > TELL {
                    told = Instant::now();
                    let of = progress.total_bytes;
                    tracing::info!(bytes = progress.bytes, of, "runs of the backup are copied to the file");
                }
                if goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            match store.recall(u64::MAX, progress) {
                Ok(recalled) if recalled.left == 0 => {
                    if recalled.runs > 0 {
                        let seconds = begin.elapsed().as_secs_f64();
                        tracing::info!(bytes = recalled.bytes, seconds, "the file has all runs of the store");
                    }
                    return;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "runs of the backup stay in the bucket; the next try follows later");
                    let failed = Instant::now();
                    while goes_on() && failed.elapsed() < pause {
                        thread::sleep(LOOK);
                    }
                    pause = (2 * pause).min(self.backup_every);
                }
            }
        }
    }

    /// Backs the store up, and removes backups that are old. Returns `false` if the log has nothing
    /// new.
    pub(super) fn back_up(&self, store: &Store, goes_on: impl Fn() -> bool) -> Result<bool, Error> {
        let note = with_suffix(&self.path, ".archive");
        let mut archive = Archive::new(self.backups.clone(), note, self.owner.clone())?.take_over();
        let record = || self.replica.status().and_then(|status| status.record);
        let before = record();
        let Some(archived) = self.replica.back_up(store, &mut archive, &goes_on)? else { return Ok(false) };
        tracing::info!(backup = archived.number, bytes = archived.new_bytes, "the store was backed up");
        // Until the log names the new backup, a takeover reads an earlier one.
        while record() <= before {
            if !goes_on() {
                return Ok(true);
            }
            thread::sleep(LOOK);
        }
        let go_on = || if goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        match archive.prune_while(self.keep_backups, false, &go_on) {
            Ok(pruned) if pruned.backups > 0 => {
                tracing::info!(backups = pruned.backups, bytes = pruned.bytes, "old backups were removed");
            }
            Ok(_) => {}
            // The log is short again: another backup would gain nothing.
            Err(error) => tracing::warn!(%error, "old backups stay until the next backup"),
        }
        Ok(true)
    }
}

/// Returns the reason why the server must end, if there is one: another host is the owner, or the
/// store has stopped, and another host must be.
fn must_end(activity: &Activity, shipper: &Shipper) -> Option<Error> {
    // The server closes the store at its end.
    let closed = brooklet::Error::Closed.to_string();
    shipper.error().or_else(|| activity.stopped.clone().filter(|why| *why != closed).map(stopped))
}

fn stopped(why: String) -> Error {
    Error::Store(brooklet::Error::Stopped { why })
}

/// The writes to the ring, as of the last look. A disk that hangs reports no error.
#[derive(Default)]
pub(super) struct Ring {
    /// Number of blocks, writes in flight, and the time since which both are so.
    seen: Option<(u64, usize, Instant)>,
    /// When the last look was.
    looked: Option<Instant>,
}

impl Ring {
    /// Returns why the store is stuck, if writes are in flight and none of them has ended for
    /// `most`.
    pub fn stuck(&mut self, now: &WalStats, most: Duration) -> Option<String> {
        let looked = self.looked.replace(Instant::now());
        // The process itself may have slept: a write ends only once it goes on.
        self.seen = self.seen.filter(|_| looked.is_some_and(|at| at.elapsed() < SLEPT));
        let same = |(blocks, writes, _): &(u64, usize, Instant)| {
            *writes > 0 && (*blocks, *writes) == (now.blocks, now.in_flight)
        };
        let seen = self.seen.filter(same).unwrap_or_else(|| (now.blocks, now.in_flight, Instant::now()));
        let is_new = self.seen.replace(seen) != Some(seen);
        let why = || format!("the disk has ended no write to the ring for {} seconds", most.as_secs());
        (!is_new && seen.2.elapsed() >= most).then(why)
    }
}

/// Returns whether this host has ended the shipping by itself, as at the end of the server.
fn is_given_up(error: &Error) -> bool {
    matches!(error, Error::Ended(cause) if matches!(**cause, Error::GivenUp))
}

impl Guard {
    /// Starts two threads: one ends the server once `must_end` returns a reason, the other one does
    /// some `work` until the server ends. A panic of either ends the server, too.
    pub(super) fn start(
        stop: CancellationToken,
        replica: Arc<Replica>,
        waits: Waits,
        time: Duration,
        must_end: impl FnMut() -> Option<Error> + Send + 'static,
        work: impl FnOnce(&CancellationToken) + Send + 'static,
    ) -> Result<Self, Failure> {
        let ended = Arc::new(Mutex::new(None));
        let closing = CancellationToken::new();
        let start = |name: &str, run: Box<dyn FnOnce(&CancellationToken) + Send>| {
            let (stop, closing) = (stop.clone(), closing.clone());
            let run = move || {
                let _stop = stop.drop_guard();
                run(&closing);
            };
            let thread = thread::Builder::new().name(name.into()).spawn(run);
            thread.map_err(Failure::io("starting a thread"))
        };
        let (stopped, waiting, result) = (stop.clone(), replica.clone(), ended.clone());
        let watch = move |closing: &CancellationToken| {
            let Some(why) = watch(must_end, &stopped, closing, &waiting, time) else { return };
            let failure = refused(why);
            tracing::error!(
                why = %failure.message,
                "the server stops: this host is the owner of the log no more"
            );
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        };
        let watching = start("brooklet-guard", Box::new(watch))?;
        let backups = start("brooklet-backups", Box::new(work))?;
        Ok(Self { watching, backups, closing, ended, replica, waits, time })
    }

    /// Returns the lease that the server's replies wait for. With [`Waits::Local`] a commit is
    /// acknowledged before the log has it, so that reads may be old, too.
    pub fn lease(&self) -> Option<Lease> {
        let shipper = self.replica.shipper().filter(|_| self.waits == Waits::Kept)?;
        Some(Lease::new(move || shipper.may_serve()))
    }

    /// Ends the guard, after the server has closed the store, and leaves the log to a host, if one
    /// is named. Returns the failure that ended the server, if there is one.
    pub fn end(self, to: Option<&str>) -> Result<(), Failure> {
        self.closing.cancel();
        if self.waits == Waits::Local || to.is_some() {
            self.leave(to);
        }
        // A backup may wait for the bucket.
        self.replica.give_up();
        let begin = Instant::now();
        while !self.backups.is_finished() && begin.elapsed() < LAST_REQUEST {
            thread::sleep(LOOK / 4);
        }
        let panicked = || Failure::new(Kind::Io, "a thread that guards the replication panicked");
        self.watching.join().map_err(|_| panicked())?;
        if self.backups.is_finished() {
            self.backups.join().map_err(|_| panicked())?;
        } else {
            tracing::warn!("a request of a backup has no answer; the next backup begins anew");
        }
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// Waits until the bucket has all commits, so that a standby loses none of them. Then leaves
    /// the log to a host, if one is named.
    fn leave(&self, to: Option<&str>) {
        let Some(shipper) = self.replica.shipper() else { return };
        let begin = Instant::now();
        match shipper.drain(|| begin.elapsed() < self.time) {
            Ok(true) => {
                let Some(to) = to else { return };
                shipper.hand_over(to);
                while shipper.error().is_none() && begin.elapsed() < self.time {
                    thread::sleep(Duration::from_millis(2));
                }
                match shipper.error() {
                    Some(Error::HandedOver { .. }) => tracing::info!(to, "the log was handed over"),
                    why => tracing::warn!(
                        ?why,
                        to,
                        "the log was not handed over: the other host takes it over later"
                    ),
                }
            }
            Ok(false) => {
                let bytes = shipper.status().waiting;
                tracing::warn!(bytes, "the bucket does not have the last commits: start this host again");
            }
            Err(error) => tracing::warn!(%error, "the bucket does not have the last commits"),
        }
    }
}

/// Looks until the server closes, or must end. Returns the reason of the latter.
///
/// Once the server is asked to stop, gives the bucket some time to take what the store waits for.
/// Nobody was told of the rest, and the next start ships it.
fn watch(
    mut must_end: impl FnMut() -> Option<Error>,
    stop: &CancellationToken,
    closing: &CancellationToken,
    replica: &Replica,
    time: Duration,
) -> Option<Error> {
    let mut asked = None;
    while !closing.is_cancelled() {
        if let Some(why) = must_end() {
            let is_leaving = closing.is_cancelled() || is_given_up(&why);
            // It gives no sign of an owner from now on, however long its end takes.
            if !is_leaving {
                replica.give_up();
            }
            return (!is_leaving).then_some(why);
        }
        if stop.is_cancelled() && asked.get_or_insert_with(Instant::now).elapsed() >= time {
            tracing::warn!("the bucket does not take the last commits: start this host again");
            replica.give_up();
            return None;
        }
        thread::sleep(LOOK);
    }
    None
}
