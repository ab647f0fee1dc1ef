//! `serve --replicate`: the log of the store is in a bucket, too. So another host can go on with
//! the store, and this host with that of another one.
//!
//! A store without its file is made anew from the bucket. A file that the log has left behind is
//! moved aside first.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brooklet::{MirrorOptions, Options, Store, Waits};
use brooklet_archive::{Archive, Bucket, Which};
use brooklet_replica::{BucketJournal, Error, Mark, Probe, Replica, ShipperOptions};
use brooklet_server::CancellationToken;

use super::settings::{Acknowledge, Given};
use crate::failure::{Failure, Kind};

/// Memory for reading a backup in the bucket, in bytes.
const READ_AHEAD: usize = 32 << 20;
/// Time between two looks at whether another host has taken over.
const LOOK: Duration = Duration::from_millis(200);

/// The replication of a server's store.
pub struct Replication {
    replica: Arc<Replica>,
    journal: BucketJournal,
    backups: Bucket,
    owner: String,
    path: PathBuf,
    waits: Waits,
    is_standby: bool,
    silence: Duration,
    backup_every: Duration,
    stop: CancellationToken,
}

/// A thread that backs the store up, and ends the server once another host has taken over.
pub struct Guard {
    thread: JoinHandle<()>,
    closing: CancellationToken,
    ended: Arc<Mutex<Option<Error>>>,
}

/// Opens the server's store, with some options.
type Open<'a> = &'a dyn Fn(Options) -> Result<Store, brooklet::Error>;

impl Replication {
    /// Prepares the replication that the settings ask for, if they do. Makes no request.
    pub fn of(given: &Given, path: &Path, stop: &CancellationToken) -> Result<Option<Self>, Failure> {
        let Some(address) = given.replicate.as_ref().filter(|address| !address.is_empty()) else {
            return Ok(None);
        };
        let owner = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let mut options = ShipperOptions::default();
        options.owner = owner.clone();
        options.address = given.clients_at();
        let journal = BucketJournal::new(&Bucket::open(address)?);
        let seconds = |given: Option<u64>, default| Duration::from_secs(given.unwrap_or(default));
        Ok(Some(Self {
            replica: Replica::new(journal.clone(), options),
            journal,
            backups: Bucket::open(&format!("{}/backups", address.trim_end_matches('/')))?,
            owner,
            path: path.into(),
            waits: match given.acknowledge {
                Some(Acknowledge::Local) => Waits::Local,
                _ => Waits::Kept,
            },
            is_standby: given.standby.unwrap_or_default(),
            silence: seconds(given.takeover_after, super::settings::TAKEOVER_AFTER),
            backup_every: seconds(given.backup_every, super::settings::BACKUP_EVERY),
            stop: stop.clone(),
        }))
    }

    /// Waits for its turn, if this is a standby, and opens the store, as the owner of its log.
    /// Returns `None` if a signal ended the wait.
    pub fn open(&self, options: &Options, open: Open<'_>) -> Result<Option<Store>, Failure> {
        // With a bucket that lets two hosts win, both would be owners.
        Probe::default().wait(&self.journal).map_err(refused)?;
        loop {
            if self.is_standby {
                tracing::info!("standing by: another host owns the store, or none yet");
                let goes_on = || !self.stop.is_cancelled();
                if !self.replica.stand_by(self.silence, goes_on).map_err(refused)? {
                    return Ok(None);
                }
                tracing::info!("the owner is silent or has left: taking the store over");
            }
            match self.claim(options, open) {
                Err(Error::Outbid { claim }) if self.is_standby => {
                    tracing::info!(owner = claim.owner, "another standby was first");
                }
                Err(Error::TooLate { .. }) if self.is_standby => tracing::info!("another standby was first"),
                opened => return opened.map(Some).map_err(refused),
            }
        }
    }

    fn claim(&self, options: &Options, open: Open<'_>) -> Result<Store, Error> {
        if !self.path.exists() {
            match self.make_anew(options) {
                // Nobody has written to the store yet: this host makes it.
                Err(Error::NoLog) if !self.is_standby => {}
                made => made?,
            }
        }
        match self.open_file(options, open) {
            Err(Error::Behind { .. }) => self.replace("the log has more", options, open),
            // With this mode, nobody was told of what the log lacks.
            Err(Error::Diverged { .. }) if self.waits == Waits::Kept => {
                let why = "its last commits, which were not acknowledged, are not in the log";
                self.replace(why, options, open)
            }
            opened => opened,
        }
    }

    fn open_file(&self, options: &Options, open: Open<'_>) -> Result<Store, Error> {
        let mirror = MirrorOptions::new(self.replica.clone()).waits(self.waits);
        open(options.clone().mirror(mirror)).map_err(|error| self.replica.explain(error))
    }

    /// Moves the file aside, and makes the store anew.
    fn replace(&self, why: &str, options: &Options, open: Open<'_>) -> Result<Store, Error> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let aside = with_suffix(&self.path, &format!(".replaced-{seconds}"));
        std::fs::rename(&self.path, &aside).map_err(|cause| {
            let doing = format!("moving {} to {}", self.path.display(), aside.display());
            Error::Store(brooklet::Error::Io { doing, cause: Arc::new(cause) })
        })?;
        tracing::warn!(file = %aside.display(), "the file of the store was moved aside: {why}");
        self.make_anew(options)?;
        self.open_file(options, open)
    }

    fn make_anew(&self, options: &Options) -> Result<(), Error> {
        let begin = Instant::now();
        let backup = |number| Ok(self.backups.backup(Which::Number(number))?.view(READ_AHEAD)?);
        let kept = self.replica.kept(backup)?;
        let blocks = kept.blocks.len();
        let made = options.clone().succeed(&self.path, &kept).and_then(|store| store.close());
        made.map_err(Error::Store)?;
        tracing::info!(blocks, seconds = begin.elapsed().as_secs_f64(), "the store was made from the bucket");
        Ok(())
    }

    /// Guards the open store until the server ends.
    pub fn guard(self, store: Store) -> Result<Guard, Failure> {
        let ended = Arc::new(Mutex::new(None));
        let (closing, result) = (CancellationToken::new(), ended.clone());
        let token = closing.clone();
        let run = move || {
            if let Some(error) = self.watch(&store, &token) {
                tracing::error!(%error, "the server stops: it no longer owns the log");
                *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                self.stop.cancel();
            }
        };
        let thread = thread::Builder::new().name("brooklet-guard".into()).spawn(run);
        let thread = thread.map_err(Failure::io("starting a thread"))?;
        Ok(Guard { thread, closing, ended })
    }

    /// Makes backups until the server ends, or this host does not own the log any more. Returns the
    /// reason of the latter.
    fn watch(&self, store: &Store, closing: &CancellationToken) -> Option<Error> {
        let shipper = self.replica.shipper()?;
        let (mut last, mut recorded) = (Instant::now(), None);
        while !closing.is_cancelled() {
            if let Some(error) = shipper.error() {
                return Some(error);
            }
            if last.elapsed() >= self.backup_every {
                match self.back_up(store, shipper.status().recordable, recorded, closing) {
                    Ok(mark) => recorded = mark,
                    Err(error) => tracing::warn!(%error, "the backup failed; the next try follows later"),
                }
                last = Instant::now();
            }
            thread::sleep(LOOK);
        }
        None
    }

    /// Backs the store up, and lets the log begin behind that. Returns the begin of the log.
    fn back_up(
        &self,
        store: &Store,
        mark: Option<Mark>,
        recorded: Option<Mark>,
        closing: &CancellationToken,
    ) -> Result<Option<Mark>, brooklet_archive::Error> {
        // The backup that follows has everything before a mark that is known now.
        let Some(mark) = mark.filter(|mark| Some(*mark) != recorded) else { return Ok(recorded) };
        let note = with_suffix(&self.path, ".archive");
        let mut archive = Archive::new(self.backups.clone(), note, self.owner.clone())?.take_over();
        let progress =
            |_| if closing.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let archived = archive.backup(store, progress)?;
        if let Some(shipper) = self.replica.shipper() {
            shipper.record(mark, archived.number);
        }
        tracing::info!(backup = archived.number, bytes = archived.new_bytes, "the store was backed up");
        Ok(Some(mark))
    }
}

impl Guard {
    /// Ends the guard. Returns the error if another host has taken over.
    pub fn end(self) -> Result<(), Failure> {
        self.closing.cancel();
        if self.thread.join().is_err() {
            return Err(Failure::new(Kind::Io, "the thread that guards the replication panicked"));
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        ended.map_or(Ok(()), |error| Err(refused(error)))
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn refused(error: Error) -> Failure {
    match error {
        Error::Store(error) => error.into(),
        Error::Archive(error) => error.into(),
        error @ (Error::Damaged { .. } | Error::Diverged { .. }) => {
            Failure::new(Kind::Damaged, error.to_string())
        }
        error @ (Error::NeedsBackup
        | Error::OtherStore { .. }
        | Error::NotAtomic { .. }
        | Error::NewerFormat { .. }) => Failure::new(Kind::CannotOpen, error.to_string()),
        error => Failure::new(Kind::Io, error.to_string()),
    }
}
