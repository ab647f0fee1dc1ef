//! Commands on one log, and the listing of all.

mod follow;
mod notes;
mod once;

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use brooklet::{Bounds, Entry, Logs, Retention, Store, Ticket};
use clap::Args;
use serde::Serialize;

use crate::beside::{Reader, Stop};
use crate::failure::Failure;
use crate::output::{Octets, Output, counted};
use crate::prefix::Prefix;
use crate::size::size;
use crate::store_args::StoreArgs;
use crate::time::{Span, age};

/// A log of a store.
#[derive(Args)]
pub struct Log {
    /// The store: a file or a block device
    pub store: PathBuf,
    /// The key of the log
    log: OsString,
}

#[derive(Args)]
pub struct Read {
    #[command(flatten)]
    log: Log,
    /// First entry to read [default: the log's first]; with --follow, it may be one to come
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// Entry to stop before [default: the log's end]
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Print the newest entries first
    #[arg(long)]
    reverse: bool,
    /// Most entries to print
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print payloads only, byte for byte, with nothing in between
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// Go on, and print entries that another process appends, until Ctrl-C or the limit
    #[arg(long, conflicts_with_all = ["to", "reverse"])]
    follow: bool,
}

#[derive(Args)]
pub struct Trim {
    #[command(flatten)]
    log: Log,
    #[command(flatten)]
    what: TrimWhat,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct TrimWhat {
    /// Number of the first entry to keep
    #[arg(long, value_name = "N")]
    before: Option<u64>,
    /// Number of the newest entries to keep
    #[arg(long, value_name = "N")]
    keep_last: Option<u64>,
    /// Number at which the log is to begin, also past its end; creates the log if there is none
    #[arg(long, value_name = "N")]
    begin_at: Option<u64>,
}

#[derive(Args)]
pub struct Truncate {
    #[command(flatten)]
    log: Log,
    /// First entry to drop; the next appended entry gets this number
    #[arg(long, value_name = "N")]
    from: u64,
}

#[derive(Args)]
pub struct Retain {
    #[command(flatten)]
    log: Log,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Args)]
#[group(required = true, multiple = true)]
struct Limits {
    /// Most entries to keep
    #[arg(long, value_name = "N")]
    entries: Option<u64>,
    /// Most bytes of payloads to keep; the newest entry always stays (K, M and G are understood)
    #[arg(long, value_name = "N", value_parser = size)]
    bytes: Option<u64>,
    /// Age at which entries are dropped (ms, s, m, h, d and w are understood)
    #[arg(long, value_name = "TIME", value_parser = age)]
    age: Option<Duration>,
    /// Keep all entries
    #[arg(long, conflicts_with_all = ["entries", "bytes", "age"])]
    none: bool,
}

#[derive(Args)]
pub struct List {
    /// The store: a file or a block device
    store: PathBuf,
    #[command(flatten)]
    prefix: Prefix,
    /// Most logs to list
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Prints entries.
pub fn read(args: Read, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    if args.follow {
        return follow::follow(&args, store_args, out);
    }
    let mut reader = Reader::open(&args.log.store, store_args)?;
    once::print(&args, &mut reader, |entry| args.print(entry, out))
}

impl Read {
    /// Prints one entry.
    fn print(&self, Entry { seq, payload }: &Entry, out: &mut Output) -> Result<(), Failure> {
        if self.raw {
            out.raw(payload)
        } else {
            out.put(&Row { seq: *seq, payload: Octets::payload(payload) })
        }
    }
}

/// Drops old entries.
pub fn trim(args: Trim, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    change(&args.log, store_args, out, |store, key| match args.what {
        TrimWhat { before: Some(before), .. } => store.trim(key, before),
        TrimWhat { keep_last: Some(n), .. } => store.keep_last(key, n),
        TrimWhat { begin_at, .. } => store.begin_at(key, begin_at.expect("one of the three is required")),
    })
}

/// Drops new entries.
pub fn truncate(args: Truncate, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    change(&args.log, store_args, out, |store, key| store.truncate(key, args.from))
}

/// Changes an existing log, and prints its new bounds.
fn change(
    log: &Log,
    store_args: &StoreArgs,
    out: &mut Output,
    act: impl FnOnce(&Store, &[u8]) -> Result<Ticket, brooklet::Error>,
) -> Result<(), Failure> {
    let store = store_args.open(&log.store)?;
    act(&store, log.key())?.wait()?;
    let (bounds, retention) = (store.bounds(log.key())?, store.retention(log.key())?);
    store.close()?;
    out.put(&LogRow::new(log.key(), bounds, retention))
}

/// Sets the retention of a log. Removes the limits that the arguments do not name.
pub fn retain(args: Retain, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let Limits { entries, bytes, age, none: _ } = args.limits;
    let mut retention = Retention::new();
    (retention.entries, retention.bytes, retention.age) = (entries, bytes, age);
    change(&args.log, store_args, out, |store, key| store.set_retention(key, retention))
}

/// Drops a log.
pub fn delete(log: Log, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let store = store_args.open(&log.store)?;
    store.delete(log.key())?.wait()?;
    store.close()?;
    out.put(&Deleted { key: Octets::key(log.key()), deleted: true })
}

/// Prints the logs and their bounds.
pub fn list(args: List, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let mut reader = Reader::open(&args.store, store_args)?;
    let (mut from, mut left, mut damage) = (Vec::new(), args.limit.unwrap_or(usize::MAX), None);
    loop {
        let mut logs = reader.look(|store| Ok(store.scan_from(args.prefix.bytes(), &from)?))?;
        let printed = print_logs(&mut logs, (&mut from, &mut left), out);
        // The listing has no end that reports it, because of the limit or of replaced data.
        damage = damage.or_else(|| logs.take_damage());
        match printed {
            // Each log is as it is at the moment at which it is printed.
            Err(Stop::Replaced(_)) => reader.reopen()?,
            printed => {
                printed?;
                return damage.map_or(Ok(()), |error| Err(error.into()));
            }
        }
    }
}

/// Prints logs, and counts them; `from` is the smallest key after the last one.
fn print_logs(
    logs: &mut Logs,
    (from, left): (&mut Vec<u8>, &mut usize),
    out: &mut Output,
) -> Result<(), Stop> {
    for log in logs.take(*left) {
        let log = log?;
        out.put(&LogRow::new(&log.key, log.bounds, log.retention))?;
        *from = [&log.key[..], b"\0"].concat();
        *left -= 1;
    }
    Ok(())
}

impl Log {
    /// Returns the bytes of the key.
    pub fn key(&self) -> &[u8] {
        self.log.as_bytes()
    }
}

#[derive(Serialize)]
struct Row<'a> {
    seq: u64,
    #[serde(flatten)]
    payload: Octets<'a>,
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6}  {}", self.seq, self.payload.dumped())
    }
}

#[derive(Serialize)]
struct Deleted<'a> {
    #[serde(flatten)]
    key: Octets<'a>,
    deleted: bool,
}

impl fmt::Display for Deleted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  deleted", self.key)
    }
}

/// A log, its bounds and its retention.
#[derive(Serialize)]
pub struct LogRow<'a> {
    #[serde(flatten)]
    key: Octets<'a>,
    first: u64,
    next: u64,
    entries: u64,
    retention: Option<Kept>,
}

/// The limits of a log, those that it has.
#[derive(Serialize)]
struct Kept {
    entries: Option<u64>,
    bytes: Option<u64>,
    age_ms: Option<u64>,
}

impl<'a> LogRow<'a> {
    /// The row of a log.
    pub fn new(key: &'a [u8], bounds: Bounds, retention: Retention) -> Self {
        let age_ms = retention.age.map(|age| age.as_millis() as u64);
        let kept = Kept { entries: retention.entries, bytes: retention.bytes, age_ms };
        Self {
            key: Octets::key(key),
            first: bounds.first,
            next: bounds.next,
            entries: bounds.len(),
            retention: retention.is_limited().then_some(kept),
        }
    }
}

impl fmt::Display for LogRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, first, next, entries, retention } = self;
        write!(f, "{key}  first {first}  next {next}  {}", counted(*entries, "entry"))?;
        let Some(Kept { entries, bytes, age_ms }) = retention else { return Ok(()) };
        entries.map_or(Ok(()), |n| write!(f, "  at most {}", counted(n, "entry")))?;
        bytes.map_or(Ok(()), |n| write!(f, "  at most {}", counted(n, "byte")))?;
        age_ms.map_or(Ok(()), |ms| write!(f, "  for {}", Span::millis(ms)))
    }
}
