//! The guard of a server's store: it backs the store up, and ends the server once this host is not
//! the owner any more.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use brooklet::{Store, Waits};
use brooklet_archive::Archive;
use brooklet_replica::{Error, Replica, Shipper};
use brooklet_server::CancellationToken;

use super::{LOOK, Replication, refused, with_suffix};
use crate::failure::{Failure, Kind};

/// A thread that guards the store until the server ends.
pub struct Guard {
    thread: JoinHandle<()>,
    /// A thread that ends the wait for a silent bucket.
    leaving: JoinHandle<()>,
    closing: CancellationToken,
    ended: Arc<Mutex<Option<Failure>>>,
    replica: Arc<Replica>,
    waits: Waits,
    time: Duration,
}

impl Replication {
    /// Guards the open store until the server ends.
    pub fn guard(self, store: Store) -> Result<Guard, Failure> {
        let (replica, waits, time) = (self.replica.clone(), self.waits, self.leaving);
        let stop = self.stop.clone();
        Guard::start(stop, replica, waits, time, move |closing| self.watch(&store, closing))
    }

    /// Makes backups until the server ends, or must end. Returns the reason of the latter.
    fn watch(&self, store: &Store, closing: &CancellationToken) -> Option<Failure> {
        let shipper = self.replica.shipper()?;
        let (mut last, mut backed_up, mut pause) = (Instant::now(), 0, self.pause);
        while !closing.is_cancelled() {
            if let Some(failure) = must_end(store, &shipper) {
                let is_leaving = closing.is_cancelled() || shipper.error().is_some_and(is_given_up);
                return (!is_leaving).then_some(failure);
            }
            let status = shipper.status();
            let log = status.found + status.bytes;
            let is_long = log - backed_up >= self.backup_at;
            if last.elapsed() >= if is_long { pause.min(self.backup_every) } else { self.backup_every } {
                match self.back_up(store, || !closing.is_cancelled() && must_end(store, &shipper).is_none()) {
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
        None
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
        let pruned = archive.prune(self.keep_backups, false)?;
        if pruned.backups > 0 {
            tracing::info!(backups = pruned.backups, bytes = pruned.bytes, "old backups were removed");
        }
        Ok(true)
    }
}

/// Returns the reason why the server must end, if there is one: another host is the owner, or the
/// store has stopped, and another host must be.
fn must_end(store: &Store, shipper: &Shipper) -> Option<Failure> {
    let stopped = |why| Failure::from(brooklet::Error::Stopped { why });
    let replaced = shipper.error().map(refused);
    // The server closes the store at its end.
    let closed = brooklet::Error::Closed.to_string();
    replaced.or_else(|| store.activity().stopped.filter(|why| *why != closed).map(stopped))
}

/// Returns whether this host has ended the shipping by itself, as at the end of the server.
fn is_given_up(error: Error) -> bool {
    matches!(&error, Error::Ended(cause) if matches!(**cause, Error::GivenUp))
}

impl Guard {
    /// Starts a thread that ends the server once `watch` returns, or panics.
    pub(super) fn start(
        stop: CancellationToken,
        replica: Arc<Replica>,
        waits: Waits,
        time: Duration,
        watch: impl FnOnce(&CancellationToken) -> Option<Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let ended = Arc::new(Mutex::new(None));
        let (closing, result) = (CancellationToken::new(), ended.clone());
        let (token, stopped) = (closing.clone(), stop.clone());
        let run = move || {
            let _stop = stopped.drop_guard();
            if let Some(failure) = watch(&token) {
                tracing::error!(?failure, "the server stops: this host is the owner of the log no more");
                *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            }
        };
        let (token, waiting) = (closing.clone(), replica.clone());
        let leave = move || end_the_wait(&stop, &token, &waiting, time);
        let start = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = thread::Builder::new().name(name.into()).spawn(run);
            thread.map_err(Failure::io("starting a thread"))
        };
        let leaving = start("brooklet-leaving", Box::new(leave))?;
        let thread = start("brooklet-guard", Box::new(run))?;
        Ok(Self { thread, leaving, closing, ended, replica, waits, time })
    }

    /// Ends the guard, after the server has closed the store. Returns the failure that ended the
    /// server, if there is one.
    pub fn end(self) -> Result<(), Failure> {
        self.closing.cancel();
        if self.waits == Waits::Local {
            self.leave();
        }
        // A backup may wait for the bucket.
        self.replica.give_up();
        if self.thread.join().is_err() || self.leaving.join().is_err() {
            return Err(Failure::new(Kind::Io, "the thread that guards the replication panicked"));
        }
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// Waits until the bucket has all commits, so that a standby loses none of them.
    fn leave(&self) {
        let Some(shipper) = self.replica.shipper() else { return };
        let begin = Instant::now();
        match shipper.drain(|| begin.elapsed() < self.time) {
            Ok(true) => {}
            Ok(false) => {
                let bytes = shipper.status().waiting;
                tracing::warn!(bytes, "the bucket does not have the last commits: start this host again");
            }
            Err(error) => tracing::warn!(%error, "the bucket does not have the last commits"),
        }
    }
}

/// Once the server is asked to stop, gives the bucket some time to take what the store waits for.
/// Nobody was told of the rest, and the next start ships it.
fn end_the_wait(stop: &CancellationToken, closing: &CancellationToken, replica: &Replica, time: Duration) {
    let mut asked = None;
    while !closing.is_cancelled() {
        if stop.is_cancelled() && asked.get_or_insert_with(Instant::now).elapsed() >= time {
            tracing::warn!("the bucket does not take the last commits: start this host again");
            return replica.give_up();
        }
        thread::sleep(LOOK);
    }
}
