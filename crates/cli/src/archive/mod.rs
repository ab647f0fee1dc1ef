//! `archive`, `backups` and `restore`: stores in object storage.

mod backups;
mod restore;

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use brooklet::OffloadReport;
use brooklet_archive::{Archive, Archived, Bucket, Pruned};
use indicatif::HumanBytes;
use serde::Serialize;

use crate::failure::{Failure, Kind};
use crate::output::{Output, counted, spinner};
use crate::prefix::Prefix;
use crate::signals;
use crate::size::size;
use crate::store_args::StoreArgs;
use crate::time::{Moment, age, moment};
pub use backups::{Args as BackupsArgs, run as backups};
pub use restore::{Args as RestoreArgs, run as restore};

pub const BUCKETS: &str = "\
BUCKET is s3://bucket/path, gs://bucket/path, az://container/path, or a folder. Keys and settings come from the environment
(AWS_…, GOOGLE_…, AZURE_…), and for s3 from the profile that AWS_PROFILE names; AWS_ENDPOINT_URL leads to other services that
speak S3.";

/// Arguments of `brooklet archive`.
#[derive(clap::Args)]
#[command(after_help = BUCKETS)]
pub struct Args {
    /// The store: a file or a block device
    store: PathBuf,
    /// The place of the store's backups; each store needs its own
    bucket: String,
    /// Age at which backups are removed; the newest older backup stays (ms, s, m, h, d and w are
    /// understood)
    #[arg(long, value_name = "TIME", value_parser = age)]
    keep: Option<Duration>,
    /// Go on from the backups of another host, which must stop writing
    #[arg(long)]
    take_over: bool,
    /// The file that notes this host's backups [default: the store's name and .archive]
    #[arg(long, value_name = "FILE")]
    note: Option<PathBuf>,
    /// The name of this host for other hosts [default: its host name]
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Most bytes of runs in the store's file or device; older runs are removed there and read from
    /// the bucket; later commands on the store then need --archive BUCKET (K, M and G are
    /// understood)
    #[arg(long, value_name = "BYTES", value_parser = size, conflicts_with = "dry_run")]
    offload: Option<u64>,
    /// Print what would be uploaded and removed, without doing it
    #[arg(long)]
    dry_run: bool,
}

/// Backs up a store, and offloads some of it.
pub fn run(args: Args, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    signals::listen_quietly()?;
    let note = note_of(args.note, &args.store)?;
    let bucket = Bucket::open(&args.bucket)?;
    let store = store_args.options_with(&bucket)?.open(&args.store)?;
    let owner =
        args.owner.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    let mut archive = Archive::new(bucket.clone(), note, owner)?;
    if args.take_over {
        archive = archive.take_over();
    }
    let bar = spinner();
    let archived = if args.dry_run {
        archive.plan(&store)?
    } else {
        archive.backup(&store, |progress| {
            let (done, of) =
                (HumanBytes(progress.bytes), HumanBytes(progress.total_bytes.unwrap_or_default()));
            bar.set_message(format!("uploading: {done} of {of}"));
            signals::go_on()
        })?
    };
    // Old runs leave the disk even if no old backup can be removed.
    let prune = |keep| archive.prune_while(keep, args.dry_run, &signals::go_on);
    let pruned = args.keep.map(prune).transpose();
    let offload = |most| {
        archive.offload(&store, most, |done| {
            bar.set_message(format!("offloading: {}", HumanBytes(done.bytes)));
            signals::go_on()
        })
    };
    let offloaded = args.offload.filter(|_| !signals::asked()).map(offload).transpose();
    bar.finish_and_clear();
    let closed = store.close();
    // The backup is there, even if the other work failed.
    out.put(&Report {
        offloaded: offloaded.as_ref().ok().copied().flatten().map(Away::from),
        ..Report::new(args.dry_run, archived, pruned.as_ref().ok().copied().flatten(), &bucket)
    })?;
    let offloaded = offloaded?;
    pruned?;
    closed?;
    // An offload that is stopped returns the runs that it offloaded.
    if args.offload.is_some_and(|most| offloaded.is_none_or(|done| done.left > most)) {
        signals::check_done()?;
    }
    if archived.damaged_parts == 0 {
        return Ok(());
    }
    let what = format!(
        "{} of {} parts of the store are damaged: the backup has their readable data, marked as damaged; `brooklet check` \
         reports the damage",
        archived.damaged_parts, archived.parts
    );
    Err(Failure::new(Kind::Damaged, what))
}

/// Returns the file of the note. Refuses a store that is not there: no folder of a bucket is made
/// for it.
fn note_of(note: Option<PathBuf>, store: &Path) -> Result<PathBuf, Failure> {
    let found = store.metadata().map_err(Failure::opening(store))?;
    match (note, found.file_type().is_block_device()) {
        (Some(note), _) => Ok(note),
        (None, false) => {
            let mut name = store.to_path_buf().into_os_string();
            name.push(".archive");
            Ok(name.into())
        }
        (None, true) => {
            let what = "a device has no folder for the note: name a file by --note";
            Err(Failure::new(Kind::Usage, what))
        }
    }
}

#[derive(Serialize)]
struct Report {
    dry_run: bool,
    backup: u64,
    taken: Moment,
    /// Whether the store has changed since the backup before.
    new: bool,
    new_bytes: u64,
    new_objects: u64,
    bytes: u64,
    parts: usize,
    damaged_parts: usize,
    removed: Option<Removed>,
    offloaded: Option<Away>,
    costs: Costs,
}

#[derive(Serialize)]
struct Away {
    runs: usize,
    parts: usize,
    bytes: u64,
    /// Bytes of runs that are still here.
    left: u64,
}

impl From<OffloadReport> for Away {
    fn from(OffloadReport { runs, parts, bytes, left, .. }: OffloadReport) -> Self {
        Self { runs, parts, bytes, left }
    }
}

#[derive(Serialize)]
struct Removed {
    backups: u64,
    objects: u64,
    bytes: u64,
}

impl Report {
    fn new(dry_run: bool, archived: Archived, pruned: Option<Pruned>, bucket: &Bucket) -> Self {
        let removed = pruned.map(|pruned| Removed {
            backups: pruned.backups,
            objects: pruned.objects,
            bytes: pruned.bytes,
        });
        Self {
            dry_run,
            backup: archived.number,
            taken: Moment::millis(archived.taken_ms),
            new: archived.is_new,
            new_bytes: archived.new_bytes,
            new_objects: archived.new_objects,
            bytes: archived.bytes,
            parts: archived.parts,
            damaged_parts: archived.damaged_parts,
            removed,
            offloaded: None,
            costs: Costs::of(bucket),
        }
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backup, new_bytes, new_objects, bytes, .. } = self;
        let would = if self.dry_run { "would be " } else { "" };
        if self.new {
            let (new, all) = (HumanBytes(*new_bytes), HumanBytes(*bytes));
            let objects = counted(*new_objects, "object");
            write!(f, "backup {backup} {would}made: {new} of {all} in {objects}")?;
        } else {
            write!(f, "nothing has changed since backup {backup}, which has {}", HumanBytes(*bytes))?;
        }
        if let Some(Removed { backups, objects, bytes }) = &self.removed {
            let (backups, objects) = (counted(*backups, "backup"), counted(*objects, "object"));
            write!(f, "; {backups} and {objects} {would}removed, {}", HumanBytes(*bytes))?;
        }
        if let Some(Away { runs, bytes, left, .. }) = &self.offloaded {
            let runs = counted(*runs as u64, "run");
            write!(f, "; {runs} of {} offloaded, {} left here", HumanBytes(*bytes), HumanBytes(*left))?;
        }
        write!(f, "\n{}", self.costs)
    }
}

/// The requests to a bucket.
#[derive(Serialize)]
struct Costs {
    puts: u64,
    gets: u64,
    lists: u64,
    deletes: u64,
    sent: u64,
    received: u64,
}

impl Costs {
    fn of(bucket: &Bucket) -> Self {
        let brooklet_archive::Costs { puts, gets, lists, deletes, sent, received, .. } = bucket.costs();
        Self { puts, gets, lists, deletes, sent, received }
    }
}

impl Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { puts, gets, lists, deletes, sent, received } = self;
        let (sent, received) = (HumanBytes(*sent), HumanBytes(*received));
        write!(
            f,
            "requests: {puts} PUT, {gets} GET, {lists} LIST, {deletes} DELETE; {sent} sent, {received} received"
        )
    }
}

/// The choice of logs.
#[derive(clap::Args)]
struct Chosen {
    #[command(flatten)]
    prefix: Prefix,
    /// The key of the one chosen log
    #[arg(long, value_name = "KEY", conflicts_with = "by_prefix")]
    log: Option<OsString>,
}

/// The choice of a backup.
#[derive(clap::Args)]
#[group(multiple = false)]
pub struct WhichArgs {
    /// Number of the backup [default: the last one, with the commits shipped behind it]
    #[arg(long, value_name = "N")]
    backup: Option<u64>,
    /// Time of the logs' state, such as 2026-01-31T12:00:00Z or "2026-01-31 12:00:00 UTC": the last
    /// backup before it, with the commits shipped behind that backup. If commits of the time were
    /// not shipped, only times of backups work
    #[arg(long, value_name = "TIME", value_parser = moment)]
    at: Option<SystemTime>,
}

impl WhichArgs {
    pub fn which(&self) -> brooklet_archive::Which {
        use brooklet_archive::Which;
        let at = self.at.map_or(Which::Latest, Which::At);
        self.backup.map_or(at, Which::Number)
    }
}
