//! `backups`: what an archive has.

use std::fmt::{self, Display};

use brooklet_archive::{Backup, BackupInfo, Bucket};
use indicatif::HumanBytes;
use serde::Serialize;

use super::{BUCKETS, Costs, WhichArgs};
use crate::bucket::open_to_read;
use crate::colours::{bad, good};
use crate::failure::{Failure, Kind};
use crate::output::{Output, counted, progress};
use crate::signals;
use crate::time::Moment;

/// Arguments of `brooklet backups`.
#[derive(clap::Args)]
#[command(after_help = BUCKETS)]
pub struct Args {
    /// The place of the backups
    bucket: String,
    #[command(flatten)]
    which: WhichArgs,
    /// Read all objects of one backup, and compare them with their checksums
    #[arg(long)]
    verify: bool,
}

/// Lists backups, or describes one.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    let bucket = open_to_read(&args.bucket)?;
    if args.verify || args.which.backup.is_some() || args.which.at.is_some() {
        let backup = bucket.backup(args.which.which())?;
        out.put(&One::new(&backup))?;
        return if args.verify { verify(&bucket, &backup, out) } else { Ok(()) };
    }
    let backups = bucket.backups()?;
    for BackupInfo { number, written_ms, .. } in &backups {
        out.put(&Row { backup: *number, written: Moment::millis(*written_ms) })?;
    }
    if backups.is_empty() {
        let what = format!("{bucket} holds no backups: check the address");
        return Err(Failure::new(Kind::NotFound, what));
    }
    Ok(())
}

fn verify(bucket: &Bucket, backup: &Backup, out: &mut Output) -> Result<(), Failure> {
    let bar = progress(backup.stored_bytes(), "reading");
    let verified = backup.verify(|done| {
        bar.set_position(done.bytes);
        signals::go_on()
    });
    bar.finish_and_clear();
    let defects: Vec<String> = verified.defects.iter().map(ToString::to_string).collect();
    for defect in &defects {
        out.line(defect)?;
    }
    let (objects, bytes) = (verified.objects, verified.bytes);
    out.put(&Verified { objects, bytes, defects: defects.clone(), costs: Costs::of(bucket) })?;
    match defects.len() {
        0 => Ok(()),
        n => {
            let defects = counted(n as u64, "defect");
            Err(Failure::no(format!("backup {} has {defects}", backup.number())))
        }
    }
}

#[derive(Serialize)]
struct Row {
    backup: u64,
    /// By the bucket's clock.
    written: Moment,
}

impl Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8}  {}", self.backup, self.written)
    }
}

#[derive(Serialize)]
struct One {
    backup: u64,
    taken: Moment,
    owner: String,
    store: String,
    bytes: u64,
    added: u64,
    parts: usize,
    damaged_parts: usize,
    objects: usize,
}

impl One {
    fn new(backup: &Backup) -> Self {
        Self {
            backup: backup.number(),
            taken: Moment::millis(backup.taken_ms()),
            owner: backup.owner().into(),
            store: format!("{:032x}", backup.store_id()),
            bytes: backup.bytes(),
            added: backup.added(),
            parts: backup.parts(),
            damaged_parts: backup.damaged_parts(),
            objects: backup.objects(),
        }
    }
}

impl Display for One {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backup, taken, owner, store, bytes, added, parts, damaged_parts, objects } = self;
        let (bytes, added) = (HumanBytes(*bytes), HumanBytes(*added));
        writeln!(f, "backup {backup}, taken {taken} by {owner}, of store {store}")?;
        let (parts, objects) = (counted(*parts as u64, "part"), counted(*objects as u64, "object"));
        write!(f, "{bytes} in {parts}, stored in {objects}; {added} were new")?;
        match damaged_parts {
            0 => Ok(()),
            n => {
                let parts = counted(*n as u64, "part");
                write!(f, "\ndamaged when the backup was made: {parts}; reads of damaged parts fail")
            }
        }
    }
}

#[derive(Serialize)]
struct Verified {
    objects: u64,
    bytes: u64,
    defects: Vec<String>,
    costs: Costs,
}

impl Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, bytes, defects, costs } = self;
        let found = if defects.is_empty() { good("sound") } else { bad("damaged") };
        write!(
            f,
            "{found}: {} with {}, {}\n{costs}",
            counted(*objects, "object"),
            HumanBytes(*bytes),
            counted(defects.len() as u64, "defect")
        )
    }
}
