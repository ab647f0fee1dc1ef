//! `serve --replicate`: the log of the store is in a bucket, too. So another host can go on with
//! the store, and this host with that of another one.
//!
//! A store without its file is made anew from the bucket. A file that the log has left behind
//! catches up; if it cannot, it is moved aside first. The file of a standby follows the log.

mod guard;
mod lives;
mod member;
mod reads;
#[cfg(test)]
mod tests;
mod tries;
mod turn;
mod warm;

use std::cell::Cell;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brooklet::{CaughtUp, Kept, MirrorOptions, Options, Progress, SealedBlock, Store, View, Waits};
use brooklet_archive::{Bucket, Parts, Which};
use brooklet_replica::{AnyJournal, Error, Probe, Replica, Shipper, ShipperOptions};
use brooklet_server::standby::{Standby, base_url};
use brooklet_server::{CancellationToken, Config};
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;

use super::settings::{Acknowledge, BACKUP_EVERY, Given, KEEP_BACKUPS, TAKEOVER_AFTER};
use crate::failure::{Failure, Kind};
use guard::{Guard, Length};
pub use lives::Lives;
use member::Member;
pub use member::{refusal, refused_at};
pub use reads::Reads;
use tries::Tries;
use turn::InTurn;
use warm::Warm;

/// Memory for reading a backup in the bucket, in bytes.
const READ_AHEAD: usize = 32 << 20;
/// Most bytes of looked-up data of offloaded runs that the disk caches.
const CACHE: u64 = 1 << 30;
/// Time between two looks at a signal, and at the owner of the log.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two probes of a bucket that does not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// Time between two reports on the making of a file.
const TELL: Duration = Duration::from_secs(5);
/// See [`Replication::backup_at`].
const LONG: Length = Length { bytes: 256 << 20, objects: 20_000 };

/// Why a file is moved aside that ends before the log begins.
const OUTDATED: &str =
    "it is from before the begin of the log, which does not show whether it has all of the file";

/// Why a file is moved aside that has commits which the log lacks.
const APART: &str = "its last commits are not in the log: nobody was told of them, unless they are from a life without --acknowledge kept";
/// Why a file is moved aside that cannot be opened.
const UNREADABLE: &str = "it cannot be opened";

/// The replication of a server's store.
pub struct Replication {
    replica: Arc<Replica>,
    journal: AnyJournal,
    backups: Bucket,
    owner: String,
    path: PathBuf,
    waits: Waits,
    is_standby: bool,
    /// This host in the map of a cluster.
    member: Option<Arc<Member>>,
    /// URL of this host for clients.
    url: Option<String>,
    /// The configuration of the server, for the ports of a standby.
    server: Config,
    silence: Duration,
    backup_every: Duration,
    /// Length of the log behind the last backup that calls for the next one: a takeover reads it.
    backup_at: Length,
    /// Least time between two backups of a log that is long.
    pause: Duration,
    keep_backups: Duration,
    /// Most time that the end of the server waits for the bucket.
    leaving: Duration,
    stop: CancellationToken,
}

/// Opens the server's store, with some options.
type Open<'a> = &'a dyn Fn(Options) -> Result<Store, brooklet::Error>;

impl Replication {
    /// Prepares the replication that the settings ask for. Makes no request.
    pub fn of(
        given: &Given,
        server: &Config,
        path: &Path,
        stop: &CancellationToken,
        member: Option<Arc<Member>>,
    ) -> Result<Self, Failure> {
        let address = given.log().unwrap_or_default();
        let owner = member.as_ref().map_or_else(host_name, |member| member.host.clone());
        let mut options = ShipperOptions::default();
        options.owner = owner.clone();
        options.address = given.advertise.clone().unwrap_or_default();
        let (journal, backups) = places(given, &address)?;
        options.cuts = journal.cuts();
        Ok(Self {
            replica: Replica::new(journal.clone(), options),
            journal,
            backups,
            owner,
            path: path.into(),
            waits: match given.acknowledge {
                Some(Acknowledge::Local) => Waits::Local,
                _ => Waits::Kept,
            },
            is_standby: given.standby.unwrap_or_default() || member.is_some(),
            member,
            url: given.advertise.as_ref().and_then(|url| base_url(url).ok()),
            server: server.clone(),
            silence: given.takeover_after.unwrap_or(TAKEOVER_AFTER).time(),
            backup_every: given.backup_every.unwrap_or(BACKUP_EVERY).time(),
            backup_at: LONG,
            pause: Duration::from_secs(10),
            keep_backups: given.keep_backups.unwrap_or(KEEP_BACKUPS).time(),
            leaving: Duration::from_secs(30),
            stop: stop.clone(),
        })
    }

    /// Returns whether this host begins a log where there is none.
    fn begins(&self) -> bool {
        !self.is_standby || self.member.as_ref().is_some_and(|member| member.part(|part| part.begins()))
    }

    /// Waits for its turn, if this is a standby, and opens the store, as the owner of its log.
    /// Returns `None` if a signal ended the wait.
    pub fn open(&self, options: &Options, open: Open<'_>) -> Result<Option<Store>, Failure> {
        let done = CancellationToken::new();
        let ports = self.ports()?;
        if self.is_standby {
            // It may wait for months: a service manager would end it, and start it again.
            super::tell_ready();
        }
        let opened = thread::scope(|scope| {
            let _done = done.clone().drop_guard();
            let (stop, replica) = (&self.stop, &self.replica);
            scope.spawn(|| give_up_at_a_signal(stop, replica, &done));
            self.open_in_turn(options, open, ports.as_ref())
        });
        drop(ports);
        match opened {
            // The wait for the signal came after it.
            Err(error @ Error::Diverged { .. }) => Err(refused(error)),
            Err(error) if self.stop.is_cancelled() => {
                tracing::info!(%error, "stopped before the store was open");
                Ok(None)
            }
            opened => opened.map_err(refused),
        }
    }

    /// Serves at the HTTP ports while this host stands by.
    fn ports(&self) -> Result<Option<Standby>, Failure> {
        if !self.is_standby || self.server.http.is_empty() {
            return Ok(None);
        }
        match Standby::start(&self.server) {
            Ok(ports) => {
                tracing::info!(http = ?ports.addresses(), "standing by; HTTP clients are sent to the owner");
                Ok(Some(ports))
            }
            // The owner may be on the same machine, and leave the port with its end.
            Err(error @ brooklet_server::Error::Listen { .. }) => {
                tracing::warn!(%error, "this standby answers no probes");
                Ok(None)
            }
            Err(error) => Err(super::refused(error)),
        }
    }

    fn open_in_turn(
        &self,
        options: &Options,
        open: Open<'_>,
        ports: Option<&Standby>,
    ) -> Result<Option<Store>, Error> {
        let options = &self.with_parts(options);
        let goes_on = || !self.stop.is_cancelled();
        let goes_on_after = |error: &Error| self.is_standby && is_of_a_moment(error) && goes_on();
        let mut tries = Tries::default();
        // With a bucket that lets two hosts win, both would be owners.
        loop {
            match Probe::default().wait(&self.journal, goes_on) {
                Ok(true) => break,
                Ok(false) => return Ok(None),
                Err(error) if goes_on_after(&error) => {
                    tries.report(&error, "the bucket did not answer");
                    thread::sleep(PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
        loop {
            if self.is_standby {
                tracing::info!("standing by: another host owns the store, or none yet");
                let begins_again = Cell::new(false);
                let waits = || goes_on() && !begins_again.get();
                let file = Warm::new(self, options, warm::PORTION);
                let mut turn = InTurn::new(self, file, ports, &begins_again);
                let is_silent = self.replica.stand_by_as(self.silence, waits, &mut turn)?;
                turn.set_owner(None);
                turn.file.finish();
                match is_silent {
                    true => {}
                    false if goes_on() => continue,
                    false => return Ok(None),
                }
                if !self.has_addresses(ports.is_some()) {
                    continue;
                }
                tracing::info!("the owner is silent or has left: taking the store over");
            }
            match self.claim(options, open) {
                Err(error) if self.is_standby && is_late(&error) => {
                    tracing::info!(%error, "another host was first");
                }
                Err(error) if goes_on_after(&error) => {
                    tracing::warn!(%error, "the bucket did not answer: the next try follows");
                }
                Err(error @ Error::Diverged { .. }) => {
                    tracing::error!(
                        %error,
                        "this host serves nothing: it waits to be stopped, because each restart would take the store from its owner"
                    );
                    if let Some(ports) = ports {
                        ports.close();
                    }
                    while goes_on() {
                        thread::sleep(LOOK);
                    }
                    return Err(error);
                }
                opened => {
                    let store = opened?;
                    self.let_the_lease_end();
                    return Ok(Some(store));
                }
            }
        }
    }

    /// Waits until this host could listen: the takeover of a host that cannot serve would leave the
    /// store without an owner. Returns `false` if it had to wait: another host may own the store by
    /// then. `has_http` is set if this host listens at its HTTP addresses already.
    fn has_addresses(&self, has_http: bool) -> bool {
        let http = if has_http { Vec::new() } else { self.server.http.clone() };
        let wanted = Config { http, ..self.server.clone() };
        let Err(error) = wanted.check_addresses() else { return true };
        tracing::warn!(%error, "the owner is silent or has left, and this host cannot serve");
        while !self.stop.is_cancelled() && wanted.check_addresses().is_err() {
            thread::sleep(LOOK);
        }
        false
    }

    /// Waits until no earlier owner answers reads any more.
    fn let_the_lease_end(&self) {
        let Some(shipper) = self.replica.shipper() else { return };
        while !self.stop.is_cancelled() && shipper.error().is_none() {
            let left = self.replica.former_lease();
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(LOOK / 4));
        }
    }

    fn claim(&self, options: &Options, open: Open<'_>) -> Result<Store, Error> {
        // It gives the sign of an owner until the file is open.
        let (mut _claim, mut is_first) = (None, false);
        if !self.path.exists() {
            match self.kept() {
                // Nobody has claimed the log yet: this host makes the store.
                Err(Error::NoLog) if self.begins() => is_first = true,
                kept => {
                    let (kept, claim) = kept?;
                    self.make_anew(options, &kept, &claim)?;
                    _claim = Some(claim);
                }
            }
        }
        let mut unreadable = None;
        let why = match self.open_file(options, open) {
            Err(Error::Behind { .. }) => None,
            Err(Error::Outdated { .. }) => Some(OUTDATED),
            Err(Error::Diverged { .. }) if self.waits == Waits::Kept => Some(APART),
            // The log has all that anybody was told of.
            Err(Error::Store(error)) if self.waits == Waits::Kept && is_unreadable(&error) => {
                tracing::warn!(%error, "the file of the store cannot be opened");
                unreadable = Some(error);
                Some(UNREADABLE)
            }
            Err(Error::OtherStore { .. }) if is_first => {
                Some("another host has made the store at the same moment")
            }
            opened => return opened,
        };
        let (kept, claim) = match (self.kept(), unreadable) {
            (Err(Error::NoLog), Some(error)) => return Err(Error::Store(error)),
            (kept, _) => kept?,
        };
        let why = match why {
            // The log has all of the file, so that a file which cannot be read is no loss.
            None => match self.catch_up(options, &kept) {
                _ if self.stop.is_cancelled() => return Err(Error::GivenUp),
                Ok(true) => return self.open_file(options, open),
                Ok(false) => "the log has more",
                Err(error @ (brooklet::Error::Locked { .. } | brooklet::Error::Full { .. })) => {
                    return Err(Error::Store(error));
                }
                // No other file would take these blocks.
                Err(error) if is_unreadable(&error) && !are_whole(&kept.blocks) => {
                    return Err(Error::Store(error));
                }
                Err(error) => {
                    tracing::warn!(%error, "the file of the store cannot catch up with the log");
                    "the log has more, and the file cannot catch up"
                }
            },
            Some(why) => why,
        };
        self.move_aside(why).map_err(Error::Store)?;
        self.make_anew(options, &kept, &claim)?;
        self.open_file(options, open)
    }

    /// Takes the log over, and reads it. The shipper owns the log.
    fn kept(&self) -> Result<(Kept, Shipper), Error> {
        self.replica.kept(|number| self.backup(number))
    }

    fn backup(&self, number: u64) -> Result<View, Error> {
        use brooklet_archive::Error::NoBackup;
        let backup = self.backups.backup(Which::Number(number)).map_err(|error| match error {
            // This host may look in another place than the owner that made it.
            NoBackup(what) => NoBackup(format!("{what}; all hosts of a store need the same --backups")),
            error => error,
        })?;
        Ok(backup.view(READ_AHEAD)?)
    }

    /// Lets the file catch up with the log. Returns `false` if it cannot.
    fn catch_up(&self, options: &Options, kept: &Kept) -> Result<bool, brooklet::Error> {
        let begin = Instant::now();
        let mut done = CaughtUp::Ahead;
        for blocks in portions(&kept.blocks, warm::PORTION) {
            if self.stop.is_cancelled() {
                break;
            }
            done = options.clone().catch_up(&self.path, kept.store, blocks, || false)?;
            if matches!(done, CaughtUp::Apart | CaughtUp::Outdated) {
                break;
            }
        }
        let is_done = done == CaughtUp::Done;
        if is_done {
            let seconds = begin.elapsed().as_secs_f64();
            tracing::info!(seconds, "the file of the store caught up with the log");
        }
        Ok(is_done)
    }

    fn open_file(&self, options: &Options, open: Open<'_>) -> Result<Store, Error> {
        let mirror = MirrorOptions::new(self.replica.clone()).waits(self.waits);
        open(options.clone().mirror(mirror)).map_err(|error| self.replica.explain(error))
    }

    /// Lets the store read offloaded runs from the backups: a store that was [made
    /// anew](Self::make_anew) begins with all runs of its backup offloaded.
    fn with_parts(&self, options: &Options) -> Options {
        let parts = Parts::new(&self.backups, READ_AHEAD);
        let parts = parts.clone().cache(folder(&self.path), CACHE).unwrap_or_else(|error| {
            tracing::warn!(%error, "reads of offloaded runs are not cached");
            parts
        });
        options.clone().offload_reader(move |name| parts.open(name))
    }

    /// Moves the file aside: it may have the only copy of a commit.
    fn move_aside(&self, why: &str) -> Result<(), brooklet::Error> {
        let path = self.real_path();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let mut names = (seconds..).map(|number| with_suffix(&path, &format!(".replaced-{number}")));
        let is_free = |name: &PathBuf| std::fs::symlink_metadata(name).is_err();
        self.move_to(&names.find(is_free).expect("some number is free"), why)
    }

    fn move_to(&self, aside: &Path, why: &str) -> Result<(), brooklet::Error> {
        let path = self.real_path();
        let doing = || format!("moving {} to {}", path.display(), aside.display());
        let failed = |cause| brooklet::Error::Io { doing: doing(), cause: Arc::new(cause) };
        std::fs::rename(&path, aside).map_err(failed)?;
        tracing::warn!(file = %aside.display(), "the file of the store was moved aside: {why}");
        Ok(())
    }

    /// Returns the path of the file itself: links to it stay.
    fn real_path(&self) -> PathBuf {
        self.path.canonicalize().unwrap_or_else(|_| self.path.clone())
    }

    /// Makes the file from the bucket, while `claim` owns the log. At first, the runs of the backup
    /// stay where they are, so that this host serves soon.
    fn make_anew(&self, options: &Options, kept: &Kept, claim: &Shipper) -> Result<(), Error> {
        let begin = Instant::now();
        let blocks = kept.blocks.len();
        let must_end = || if self.stop.is_cancelled() { Some(Error::GivenUp) } else { claim.error() };
        let mut told = Instant::now();
        let progress = |progress: Progress| {
            if told.elapsed() > TELL {
                told = Instant::now();
                let of = progress.total_bytes;
                tracing::info!(bytes = progress.bytes, of, "the store is being made from the bucket");
            }
            if must_end().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let options = options.clone().leave_offloaded(true);
        let made = options.succeed(&self.path, kept, progress).and_then(|store| store.close());
        made.map_err(|error| must_end().unwrap_or(Error::Store(error)))?;
        tracing::info!(blocks, seconds = begin.elapsed().as_secs_f64(), "the store was made from the bucket");
        must_end().map_or(Ok(()), Err)
    }
}

/// Returns whether a file is no store, or is so damaged that it cannot be opened.
fn is_unreadable(error: &brooklet::Error) -> bool {
    use brooklet::Error::{Damaged, NotAStore, Shrunk};
    matches!(error, Damaged { .. } | NotAStore { .. } | Shrunk { .. })
}

/// Returns whether blocks follow one another, and this build can read each.
fn are_whole(blocks: &[SealedBlock]) -> bool {
    let follows = |pair: &[SealedBlock]| (pair[1].begin, pair[1].previous) == (pair[0].end, pair[0].sum);
    blocks.windows(2).all(follows) && blocks.iter().all(|block| block.records().is_some())
}

/// Returns the name of this host, unless the settings have one.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Opens the places of the log at an address, and of its backups.
fn places(given: &Given, address: &str) -> Result<(AnyJournal, Bucket), Failure> {
    #[cfg(not(feature = "jetstream"))]
    if super::secrets::is_stream(address) {
        return Err(crate::missing::refuse("NATS JetStream", "jetstream"));
    }
    let below = || format!("{}/backups", address.trim_end_matches('/'));
    let backups = given.backups.clone().filter(|address| !address.is_empty());
    let backups = Bucket::open(&backups.unwrap_or_else(below))?;
    Ok((AnyJournal::open(address).map_err(refused)?, backups))
}

/// Divides blocks into portions of so many bytes, or a few more.
fn portions(mut blocks: &[SealedBlock], bytes: usize) -> impl Iterator<Item = &[SealedBlock]> {
    std::iter::from_fn(move || {
        let mut sum = 0;
        let len = blocks.iter().take_while(|block| {
            let is_within = sum < bytes;
            sum += block.bytes.len();
            is_within
        });
        let (portion, rest) = blocks.split_at(len.count());
        blocks = rest;
        (!portion.is_empty()).then_some(portion)
    })
}

/// Ends an opening that waits for the bucket.
fn give_up_at_a_signal(stop: &CancellationToken, replica: &Replica, done: &CancellationToken) {
    while !done.is_cancelled() {
        if stop.is_cancelled() {
            return replica.give_up();
        }
        thread::sleep(LOOK / 4);
    }
}

/// Returns the folder of a file.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses a file that is not there and cannot be made, and one that is no regular file: the host
/// would take the log from its owner, and end.
fn check_file(path: &Path, has_ring: bool) -> Result<(), Failure> {
    if has_ring {
        let what = "--replicate takes no --ring: a host that takes the store over makes one file of it";
        return Err(Failure::new(Kind::Usage, what));
    }
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => {
            let what = format!(
                "{} is not a regular file: --replicate moves a file aside that the log has left behind; name a file",
                path.display()
            );
            Err(Failure::new(Kind::Usage, what))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = folder(path);
            may_write(folder).map_err(|error| Failure::opening(folder)(error.into()))
        }
        Err(error) => Err(Failure::opening(path)(error)),
    }
}

/// Looks whether this process may make files in a folder: not its real user, which may have fewer
/// rights.
fn may_write(folder: &Path) -> Result<(), Errno> {
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    match rustix::fs::accessat(CWD, folder, wanted, AtFlags::EACCESS) {
        // An old system, or a filter of system calls.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::access(folder, wanted),
        looked => looked,
    }
}

/// Returns whether another host has taken the store over at the same time.
fn is_late(error: &Error) -> bool {
    match error {
        Error::Outbid { .. } | Error::TooLate { .. } | Error::Fenced { .. } | Error::Behind { .. } => true,
        Error::Ended(cause) => is_late(cause),
        _ => false,
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Returns whether the bucket may answer soon.
fn is_of_a_moment(error: &Error) -> bool {
    error.is_temporary() || matches!(error, Error::Archive(brooklet_archive::Error::Bucket { .. }))
}

/// Returns the failure with the exit code of an error.
pub fn refused(error: Error) -> Failure {
    match error {
        Error::Store(error) => error.into(),
        Error::Archive(error) => error.into(),
        Error::Map(why) => refusal(&why),
        // Two hosts whose service managers start them again would take the store from each other.
        Error::Fenced { by } => {
            let what = format!(
                "the owner of epoch {by} has taken the store over: start this host with --standby, so that it waits for its turn, as each host of a cluster does; any other start takes the store back"
            );
            Failure::new(Kind::Io, what)
        }
        error @ (Error::Damaged { .. }
        | Error::DamagedBackup { .. }
        | Error::LostBackup { .. }
        | Error::Diverged { .. }) => Failure::new(Kind::Damaged, error.to_string()),
        error @ (Error::NeedsBackup
        | Error::NoLog
        | Error::Outdated { .. }
        | Error::OtherStore { .. }
        | Error::NotAtomic { .. }
        | Error::NoList { .. }
        | Error::Stream { .. }
        | Error::NewerFormat { .. }) => Failure::new(Kind::CannotOpen, error.to_string()),
        error @ Error::Address { .. } => Failure::new(Kind::Usage, error.to_string()),
        error => Failure::new(Kind::Io, error.to_string()),
    }
}
