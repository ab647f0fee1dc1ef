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

/// Most time that the end of a server waits for the bucket, with `--acknowledge local`.
const LEAVING: Duration = Duration::from_secs(10);

/// A thread that guards the store until the server ends.
pub struct Guard {
    thread: JoinHandle<()>,
    closing: CancellationToken,
    ended: Arc<Mutex<Option<Failure>>>,
    replica: Arc<Replica>,
    waits: Waits,
}

impl Replication {
    /// Guards the open store until the server ends.
    pub fn guard(self, store: Store) -> Result<Guard, Failure> {
        let (replica, waits) = (self.replica.clone(), self.waits);
        let stop = self.stop.clone();
        Guard::start(stop, replica, waits, move |closing| self.watch(&store, closing))
    }

    /// Makes backups until the server ends, or must end. Returns the reason of the latter.
    fn watch(&self, store: &Store, closing: &CancellationToken) -> Option<Failure> {
        let shipper = self.replica.shipper()?;
        let (mut last, mut backed_up) = (Instant::now(), 0);
        while !closing.is_cancelled() {
            if let Some(failure) = must_end(store, &shipper) {
                return Some(failure);
            }
            let status = shipper.status();
            let log = status.found + status.bytes;
            let is_long = log - backed_up >= self.backup_at;
            if last.elapsed() >= if is_long { self.pause.min(self.backup_every) } else { self.backup_every } {
                match self.back_up(store, || !closing.is_cancelled() && must_end(store, &shipper).is_none()) {
                    Ok(()) => backed_up = log,
                    Err(error @ Error::DamagedBackup { .. }) => tracing::error!(%error, "the log stays long"),
                    Err(error) => tracing::warn!(%error, "the backup failed; the next try follows later"),
                }
                last = Instant::now();
            }
            thread::sleep(LOOK);
        }
        None
    }

    /// Backs the store up, and removes backups that are old.
    pub(super) fn back_up(&self, store: &Store, goes_on: impl Fn() -> bool) -> Result<(), Error> {
        let note = with_suffix(&self.path, ".archive");
        let mut archive = Archive::new(self.backups.clone(), note, self.owner.clone())?.take_over();
        let Some(archived) = self.replica.back_up(store, &mut archive, &goes_on)? else { return Ok(()) };
        tracing::info!(backup = archived.number, bytes = archived.new_bytes, "the store was backed up");
        // Until the log names the new backup, a takeover reads an earlier one.
        while self.replica.status().is_some_and(|status| status.is_recording) {
            if !goes_on() {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        let pruned = archive.prune(self.keep_backups, false)?;
        if pruned.backups > 0 {
            tracing::info!(backups = pruned.backups, bytes = pruned.bytes, "old backups were removed");
        }
        Ok(())
    }
}

/// Returns the reason why the server must end, if there is one: another host is the owner, or the
/// store has stopped, and another host must be.
fn must_end(store: &Store, shipper: &Shipper) -> Option<Failure> {
    let stopped = |why| brooklet::Error::Stopped { why };
    let replaced = shipper.error().map(refused);
    replaced.or_else(|| store.activity().stopped.map(|why| Failure::from(stopped(why))))
}

impl Guard {
    /// Starts a thread that ends the server once `watch` returns, or panics.
    pub(super) fn start(
        stop: CancellationToken,
        replica: Arc<Replica>,
        waits: Waits,
        watch: impl FnOnce(&CancellationToken) -> Option<Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let ended = Arc::new(Mutex::new(None));
        let (closing, result) = (CancellationToken::new(), ended.clone());
        let token = closing.clone();
        let run = move || {
            let _stop = stop.drop_guard();
            if let Some(failure) = watch(&token) {
                tracing::error!(?failure, "the server stops: this host is the owner of the log no more");
                *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            }
        };
        let thread = thread::Builder::new().name("brooklet-guard".into()).spawn(run);
        let thread = thread.map_err(Failure::io("starting a thread"))?;
        Ok(Self { thread, closing, ended, replica, waits })
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
        if self.thread.join().is_err() {
            return Err(Failure::new(Kind::Io, "the thread that guards the replication panicked"));
        }
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// Waits until the bucket has all commits, so that a standby loses none of them.
    fn leave(&self) {
        let Some(shipper) = self.replica.shipper() else { return };
        let begin = Instant::now();
        match shipper.drain(|| begin.elapsed() < LEAVING) {
            Ok(true) => {}
            Ok(false) => {
                let bytes = shipper.status().waiting;
                tracing::warn!(bytes, "the bucket does not have the last commits: start this host again");
            }
            Err(error) => tracing::warn!(%error, "the bucket does not have the last commits"),
        }
    }
}
