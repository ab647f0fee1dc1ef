//! `export`: logs as they are at one moment, as lines of JSON or as a codex file.
//!
//! Of the lines, each log has a line of its own, with its bounds and what it keeps, as
//! `list --json` prints it; its entries follow, each with the log's key and its number, and its
//! payload as `read --json` prints it.

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write, stdout};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use brooklet::{Entry, View, WalkItem};
use indicatif::{HumanBytes, ProgressBar};
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::failure::{Failure, Kind};
use crate::logs::LogRow;
use crate::output::{Octets, Output, spinner};
use crate::prefix::Prefix;
use crate::signals;
use crate::store_args::StoreArgs;

/// So many bytes are written before more is told of them.
const AT_ONCE: u64 = 1 << 20;

/// Arguments of `brooklet export`.
#[derive(clap::Args)]
pub struct Args {
    /// The store: a file or a block device
    store: PathBuf,
    #[command(flatten)]
    prefix: Prefix,
    /// The key of the one log to export
    #[arg(long, value_name = "KEY", conflicts_with = "by_prefix")]
    log: Option<OsString>,
    /// Format of the export
    #[arg(long, value_enum, default_value_t = Format::Ndjson)]
    format: Format,
    /// The file to write [default: the standard output]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "to")]
    force: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Lines of JSON: for each log its bounds, then its entries
    Ndjson,
    /// A codex file with the layout of the store's own runs
    Codex,
}

/// Writes logs and their entries.
pub fn run(args: Args, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let target = args.to.as_deref().filter(|to| *to != Path::new("-"));
    if let Some(to) = target.filter(|to| !args.force && to.symlink_metadata().is_ok()) {
        return Err(taken(to));
    }
    signals::listen()?;
    let store = store_args.open_to_read(&args.store)?;
    let view = store.view()?;
    let bar = spinner();
    let chosen = match &args.log {
        Some(log) => Chosen::Log(log.as_bytes()),
        None => Chosen::Prefix(args.prefix.bytes()),
    };
    if let Chosen::Log(log) = chosen {
        // Told before anything is written.
        match view.bounds(log) {
            Err(brooklet::Error::Damaged { .. }) if args.format == Format::Ndjson => {}
            told => drop(told?),
        }
    }
    let write = |to: &mut dyn Write| {
        let mut to = Watched { to, bytes: 0, bar: &bar };
        let told = match args.format {
            Format::Ndjson => lines(&view, chosen, &mut to),
            Format::Codex => codex(&view, chosen, &mut to).map(|told| (told, None)),
        };
        // Whoever stops it makes a write fail.
        signals::check().and(told)
    };
    let Some(target) = target else {
        // What is exported is what is printed.
        let mut to = BufWriter::with_capacity(64 << 10, stdout().lock());
        let (_, damage) = write(&mut to)?;
        to.flush()?;
        return damage.map_or(Ok(()), Err);
    };
    let doing = || format!("writing {}", target.display());
    let mut to = BufWriter::with_capacity(1 << 20, temporary(target).map_err(Failure::io(doing()))?);
    let (told, damage) = write(&mut to).map_err(|failure| match failure.kind {
        Kind::Io => Failure::new(failure.kind, format!("{} failed: {}", doing(), failure.message)),
        _ => failure,
    })?;
    let file = to.into_inner().map_err(|error| Failure::io(doing())(error.into_error()))?;
    publish(file, target, args.force)?;
    bar.finish_and_clear();
    out.put(&told)?;
    damage.map_or(Ok(()), Err)
}

/// What to export.
#[derive(Clone, Copy)]
enum Chosen<'a> {
    Prefix(&'a [u8]),
    Log(&'a [u8]),
}

fn codex(view: &View, chosen: Chosen<'_>, to: &mut impl Write) -> Result<Exported, Failure> {
    let brooklet::ExportReport { logs, entries, bytes, .. } = match chosen {
        Chosen::Prefix(prefix) => view.export(prefix, to)?,
        Chosen::Log(log) => view.export_log(log, to)?,
    };
    Ok(Exported { logs, entries, bytes })
}

/// Writes what there is; also returns the damage that it left out.
fn lines(
    view: &View,
    chosen: Chosen<'_>,
    to: &mut Watched<'_>,
) -> Result<(Exported, Option<Failure>), Failure> {
    let (walk, only) = match chosen {
        Chosen::Prefix(prefix) => (view.salvage(prefix)?, None),
        Chosen::Log(log) => (view.salvage(log)?, Some(log)),
    };
    let (mut told, mut key, mut damage) = (Exported::default(), Vec::new(), None);
    for walked in walk {
        match walked {
            Err(error @ brooklet::Error::Damaged { .. }) => damage = damage.or(Some(error)),
            Err(error) => return Err(error.into()),
            // The log itself comes before all whose keys begin with its own.
            Ok(WalkItem::Log(log)) if only.is_some_and(|only| only != log.key) => break,
            Ok(WalkItem::Log(log)) => {
                line(to, &LogRow::new(&log.key, log.bounds, log.retention))?;
                (key, told.logs) = (log.key, told.logs + 1);
            }
            Ok(WalkItem::Entry(Entry { seq, payload })) => {
                line(to, &Row { key: Octets::key(&key), seq, payload: Octets::payload(&payload) })?;
                told.entries += 1;
            }
        }
    }
    let damage = damage.or_else(|| only.and_then(|log| view.bounds(log).err()));
    let left_out = |error: brooklet::Error| {
        let Failure { kind, message } = error.into();
        Failure::new(kind, format!("the readable data was exported; {message}"))
    };
    Ok((Exported { bytes: to.bytes, ..told }, damage.map(left_out)))
}

fn line(to: &mut impl Write, row: &impl Serialize) -> Result<(), Failure> {
    serde_json::to_writer(&mut *to, row).map_err(io::Error::from)?;
    Ok(to.write_all(b"\n")?)
}

fn taken(target: &Path) -> Failure {
    let what = format!("{} exists already; choose another name, or use --force", target.display());
    Failure::new(Kind::Usage, what)
}

/// A file beside the target, which goes if it does not get that name.
fn temporary(target: &Path) -> io::Result<NamedTempFile> {
    let mut prefix = OsString::from(".");
    prefix.push(target.file_name().unwrap_or_default());
    prefix.push(".");
    let permissions = Permissions::from_mode(0o666);
    tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".part")
        .permissions(permissions)
        .tempfile_in(folder(target))
}

fn folder(target: &Path) -> &Path {
    target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Brings a file to the medium, and gives it its name.
fn publish(file: NamedTempFile, target: &Path, replace: bool) -> Result<(), Failure> {
    let doing = || format!("writing {}", target.display());
    file.as_file().sync_all().map_err(Failure::io(doing()))?;
    let named = if replace { file.persist(target) } else { file.persist_noclobber(target) };
    match named {
        Ok(_) => {}
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => return Err(taken(target)),
        Err(error) => return Err(Failure::io(doing())(error.error)),
    }
    File::open(folder(target)).and_then(|folder| folder.sync_all()).map_err(Failure::io(doing()))
}

/// Counts the bytes that are written, tells of them, and fails once it was asked to stop.
struct Watched<'a> {
    to: &'a mut dyn Write,
    bytes: u64,
    bar: &'a ProgressBar,
}

impl Write for Watched<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if signals::asked() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let written = self.to.write(data)?;
        let before = self.bytes / AT_ONCE;
        self.bytes += written as u64;
        if self.bytes / AT_ONCE > before {
            self.bar.set_message(format!("exporting: {}", HumanBytes(self.bytes)));
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// An entry, with the log that it is of.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    key: Octets<'a>,
    seq: u64,
    #[serde(flatten)]
    payload: Octets<'a>,
}

#[derive(Default, Serialize)]
struct Exported {
    logs: u64,
    entries: u64,
    bytes: u64,
}

impl Display for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { logs, entries, bytes } = self;
        write!(f, "{logs} logs with {entries} entries, {}", HumanBytes(*bytes))
    }
}
