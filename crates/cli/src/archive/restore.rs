//! `restore`: logs of a backup enter a store.

use std::fmt::{self, Display};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use brooklet::{Create, Existing, View};
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use serde::{Serialize, Serializer};

use super::{BUCKETS, Chosen, Costs, WhichArgs};

use crate::bucket::{is_there, open_to_read};
use crate::failure::Failure;
use crate::output::{Output, counted, spinner};
use crate::signals;
use crate::size::size;
use crate::space;
use crate::store_args::StoreArgs;
use crate::time::Moment;

/// Arguments of `brooklet restore`.
#[derive(clap::Args)]
#[command(after_help = BUCKETS)]
pub struct Args {
    /// The place of the backups
    bucket: String,
    /// The store that receives the logs: a file or a block device; a missing file is created
    store: PathBuf,
    #[command(flatten)]
    which: WhichArgs,
    #[command(flatten)]
    chosen: Chosen,
    /// Leave out logs that exist in the store, instead of restoring nothing
    #[arg(long)]
    skip_existing: bool,
    /// Restore all logs as a new store even if the backup has damaged parts; reading those parts
    /// fails in the new store, too
    #[arg(long)]
    damaged: bool,
    /// Bytes of memory for reading ahead, about (K, M and G are understood)
    #[arg(long, default_value = "128M", value_parser = size)]
    memory: u64,
    /// Print what would be restored, without restoring it
    #[arg(long)]
    dry_run: bool,
}

/// Restores logs.
pub fn run(args: Args, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    signals::listen()?;
    let bucket = open_to_read(&args.bucket)?;
    let backup = bucket.backup(args.which.which())?;
    let mut report = Report {
        backup: backup.number(),
        taken: Moment::millis(backup.taken_ms()),
        backup_bytes: backup.bytes(),
        is_last: false,
        restored: None,
        costs: Costs::of(&bucket),
    };
    if args.dry_run && args.which.at.is_none() {
        return out.put(&report);
    }
    // Whether the archive knows a moment is told by what was shipped.
    let view = backup.view(args.memory as usize)?;
    report.taken = Moment::millis(view.taken_ms());
    report.is_last = args.which.at.is_some_and(|at| UNIX_EPOCH + Duration::from_millis(view.taken_ms()) < at);
    report.costs = Costs::of(&bucket);
    if args.dry_run {
        return out.put(&report);
    }
    let bar = spinner();
    let is_whole = args.chosen.prefix.get().is_none() && args.chosen.log.is_none();
    let restored = if is_whole && !is_there(&args.store)? {
        copy(&args, &view, store_args, &bar)?
    } else {
        import(&args, &view, store_args, &bar)?
    };
    bar.finish_and_clear();
    report.restored = Some(restored);
    report.costs = Costs::of(&bucket);
    out.put(&report)
}

/// Makes a new store of all of it.
fn copy(args: &Args, view: &View, store_args: &StoreArgs, bar: &ProgressBar) -> Result<Restored, Failure> {
    let store = store_args.options()?.copy_damaged(args.damaged).copy(&args.store, view, |done| {
        bar.set_message(format!("restoring: {}", HumanBytes(done.bytes)));
        signals::go_on()
    });
    let store = store.map_err(|error| match error {
        error @ brooklet::Error::Damaged { .. } => {
            let Failure { kind, message } = error.into();
            Failure::new(
                kind,
                format!(
                    "{message}; restore an older backup, which may be undamaged, or the readable data by `restore --damaged`"
                ),
            )
        }
        error => error.into(),
    })?;
    let bytes = store.info()?.runs.iter().map(|run| run.bytes).sum();
    let mut restored = Restored { bytes, ..Restored::default() };
    bar.set_message("counting");
    for log in store.scan("")? {
        match log {
            Ok(log) => {
                restored.logs += 1;
                restored.entries += log.bounds.len();
            }
            Err(brooklet::Error::Damaged { .. }) if args.damaged => restored.damaged = true,
            Err(error) => return Err(error.into()),
        }
    }
    store.close()?;
    Ok(restored)
}

/// Brings some of it, or all, into a store.
fn import(args: &Args, view: &View, store_args: &StoreArgs, bar: &ProgressBar) -> Result<Restored, Failure> {
    let prefix = args.chosen.prefix.bytes();
    let log = args.chosen.log.as_deref().map(OsStrExt::as_bytes);
    if let Some(log) = log {
        // A log that is not there makes no store.
        view.bounds(log)?;
    }
    let store = store_args.options()?.create(Create::IfMissing).open(&args.store)?;
    let bar = bar.clone();
    let existing = if args.skip_existing { Existing::Skip } else { Existing::Refuse };
    let import = store.import().existing(existing).on_progress(move |so_far| {
        let (entries, bytes) = (HumanCount(so_far.entries), HumanBytes(so_far.bytes));
        bar.set_message(format!("restoring: {entries} entries, {bytes}"));
        signals::go_on()
    });
    let imported = match log {
        Some(log) => import.log(view, log)?,
        None => import.view(view, prefix)?,
    };
    store.close()?;
    let brooklet::ImportReport { logs, entries, bytes, skipped, uncounted, .. } = imported;
    if uncounted {
        space::note_uncounted();
    }
    Ok(Restored { logs, entries, bytes, skipped, damaged: false })
}

#[derive(Serialize)]
struct Report {
    backup: u64,
    taken: Moment,
    backup_bytes: u64,
    /// Whether the time that was asked for is after all that the archive knows.
    is_last: bool,
    #[serde(flatten, serialize_with = "or_nulls")]
    restored: Option<Restored>,
    costs: Costs,
}

#[derive(Default, Serialize)]
struct Restored {
    logs: u64,
    entries: u64,
    bytes: u64,
    skipped: u64,
    /// Whether some of it is damaged, as it was in the backup.
    damaged: bool,
}

/// Writes the same fields for a dry run, all null.
fn or_nulls<S: Serializer>(restored: &Option<Restored>, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(restored) = restored else {
        return serializer
            .collect_map(["logs", "entries", "bytes", "skipped", "damaged"].map(|name| (name, ())));
    };
    restored.serialize(serializer)
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backup, taken, backup_bytes, is_last, restored, costs } = self;
        match restored {
            Some(Restored { logs, entries, bytes, skipped, damaged }) => {
                let (logs, entries) = (counted(*logs, "log"), counted(*entries, "entry"));
                write!(f, "{logs} with {entries}, which take {}", HumanBytes(*bytes))?;
                if *skipped > 0 {
                    write!(f, "; left out {} that existed already", counted(*skipped, "log"))?;
                }
                writeln!(f, "; as they were at {taken}, by backup {backup}")?;
                if *damaged {
                    writeln!(
                        f,
                        "some data is damaged, as in the backup, and is not counted: `brooklet check` reports the damage"
                    )?;
                }
            }
            None => {
                let bytes = HumanBytes(*backup_bytes);
                writeln!(f, "backup {backup}, taken {taken}, {bytes} in all, would be restored from")?;
            }
        }
        if *is_last {
            writeln!(f, "the archive has no state of the store after {taken}")?;
        }
        write!(f, "{costs}")
    }
}
