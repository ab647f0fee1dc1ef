//! `export`: logs as they are at one moment, as lines of JSON or as a codex file.
//!
//! The first line marks an export. Each log has a line of its own, with its bounds and its
//! retention, as `list --json` prints it. The entries of the log follow, each with the log's key
//! and its number, and its payload as `read --json` prints it. The last line has the numbers of
//! logs and entries. An export that was cut, or that left out damage, lacks the last line.

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Seek, Write};
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use brooklet::{Entry, Store, View, WalkItem};
use indicatif::{HumanBytes, ProgressBar};
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::beside::{Reader, Stop};
use crate::failure::{Failure, Kind};
use crate::import::VERSION;
use crate::logs::LogRow;
use crate::output::{Octets, Output, buffered, counted, spinner};
use crate::prefix::Prefix;
use crate::signals;
use crate::store_args::StoreArgs;
use crate::target::may_be_replaced;

/// Number of bytes between two progress reports.
const AT_ONCE: u64 = 1 << 20;

/// Most moments at which an export begins.
const TRIES: u32 = 10;
const CANNOT_BEGIN_AGAIN: &str = "the process that writes the store has merged runs that were still to be exported, \
    and what was printed cannot be taken back; write the export to a file by --to, which begins again by itself";
const MERGED_TOO_OFTEN: &str = "the process that writes the store has merged runs during each of 10 exports; export a \
    part of the logs by --prefix, or export while the process writes less";

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
    /// Replace an existing file; devices, and files that the command reads, are refused even so
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
    if let Some(to) = target {
        may_be_replaced(to, iter::once(&*args.store).chain(store_args.ring.as_deref()))?;
        if !args.force && to.symlink_metadata().is_ok() {
            return Err(taken(to));
        }
    }
    signals::listen()?;
    let mut reader = Reader::open(&args.store, store_args)?;
    let bar = spinner();
    let chosen = match &args.log {
        Some(log) => Chosen::Log(log.as_bytes()),
        None => Chosen::Prefix(args.prefix.bytes()),
    };
    let job = Job { chosen, format: args.format, bar: &bar };
    reader.look(|store| job.check(&store.view()?))?;
    let Some(target) = target else {
        // What is exported is what is printed.
        let mut to = buffered();
        let (_, damage) =
            job.run(&mut reader, &mut to, |_| Err(Failure::new(Kind::Io, CANNOT_BEGIN_AGAIN)))?;
        to.flush()?;
        return damage.map_or(Ok(()), Err);
    };
    let doing = || format!("writing {}", target.display());
    let mut to = BufWriter::with_capacity(1 << 20, temporary(target).map_err(Failure::io(doing()))?);
    let written = job.run(&mut reader, &mut to, |to| empty(to).map_err(Failure::from));
    let (told, damage) = written.map_err(|failure| match failure.kind {
        Kind::Io => Failure::new(failure.kind, format!("{} failed: {}", doing(), failure.message)),
        _ => failure,
    })?;
    let file = to.into_inner().map_err(|error| Failure::io(doing())(error.into_error()))?;
    publish(file, target, args.force)?;
    bar.finish_and_clear();
    out.put(&told)?;
    damage.map_or(Ok(()), Err)
}

/// One export, as of one moment of the store.
struct Job<'a> {
    chosen: Chosen<'a>,
    format: Format,
    bar: &'a ProgressBar,
}

/// The exported data, and the damage that was left out.
type Written = (Exported, Option<Failure>);

impl Job<'_> {
    /// Refuses a log that is not there, before anything is written.
    fn check(&self, view: &View) -> Result<(), Stop> {
        let Chosen::Log(log) = self.chosen else { return Ok(()) };
        match view.bounds(log) {
            Err(brooklet::Error::Damaged { .. }) if self.format == Format::Ndjson => Ok(()),
            told => told.map(drop).map_err(Stop::from),
        }
    }

    /// Writes the export. If the writer of the store replaces data before it is read, the export
    /// begins again as of a later moment, behind `begin_again`: it never mixes two moments.
    fn run<W: Write>(
        &self,
        reader: &mut Reader<'_>,
        to: &mut W,
        begin_again: impl Fn(&mut W) -> Result<(), Failure>,
    ) -> Result<Written, Failure> {
        let mut tries = 1;
        loop {
            match self.write(reader.store(), to) {
                Err(Stop::Replaced(_)) if tries < TRIES => begin_again(to)?,
                Err(Stop::Replaced(_)) => return Err(Failure::new(Kind::Io, MERGED_TOO_OFTEN)),
                written => return Ok(written?),
            }
            reader.reopen()?;
            tries += 1;
        }
    }

    fn write(&self, store: &Store, to: &mut dyn Write) -> Result<Written, Stop> {
        let mut to = Watched { to, bytes: 0, bar: self.bar };
        let view = store.view()?;
        let told = match self.format {
            Format::Ndjson => lines(&view, self.chosen, &mut to),
            Format::Codex => codex(&view, self.chosen, &mut to).map(|told| (told, None)),
        };
        // Whoever stops it makes a write fail.
        signals::check()?;
        told
    }
}

/// Drops all bytes that were written to a file.
fn empty(to: &mut BufWriter<NamedTempFile>) -> io::Result<()> {
    to.rewind()?;
    to.get_ref().as_file().set_len(0)
}

/// The selection of logs to export.
#[derive(Clone, Copy)]
enum Chosen<'a> {
    Prefix(&'a [u8]),
    Log(&'a [u8]),
}

fn codex(view: &View, chosen: Chosen<'_>, to: &mut impl Write) -> Result<Exported, Stop> {
    let written = match chosen {
        Chosen::Prefix(prefix) => view.export(prefix, to),
        Chosen::Log(log) => view.export_log(log, to),
    };
    let brooklet::ExportReport { logs, entries, bytes, .. } = written.map_err(|error| match &error {
        // The reader of the export has left.
        brooklet::Error::Io { cause, .. } if cause.kind() == io::ErrorKind::BrokenPipe => {
            Stop::from(io::Error::from(io::ErrorKind::BrokenPipe))
        }
        _ => error.into(),
    })?;
    Ok(Exported { logs, entries, bytes })
}

/// Writes all readable logs; also returns the damage that it left out.
fn lines(view: &View, chosen: Chosen<'_>, to: &mut Watched<'_>) -> Result<Written, Stop> {
    let (walk, only) = match chosen {
        Chosen::Prefix(prefix) => (view.salvage(prefix)?, None),
        Chosen::Log(log) => (view.salvage(log)?, Some(log)),
    };
    let (mut told, mut key, mut damage) = (Exported::default(), Vec::new(), None);
    line(to, &Begin { export: VERSION })?;
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
    if let Some(error @ brooklet::Error::Replaced { .. }) = damage {
        return Err(error.into());
    }
    if damage.is_none() {
        line(to, &End { logs: told.logs, entries: told.entries })?;
    }
    let left_out = |error: brooklet::Error| {
        let Failure { kind, message } = error.into();
        Failure::new(kind, format!("the readable data was exported; {message}"))
    };
    Ok((Exported { bytes: to.bytes, ..told }, damage.map(left_out)))
}

fn line(to: &mut impl Write, row: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, row).map_err(io::Error::from)?;
    to.write_all(b"\n")
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

/// Makes a file durable, and renames it to its final name.
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

/// Counts and reports the written bytes, and fails once the command is asked to stop.
struct Watched<'a> {
    to: &'a mut dyn Write,
    bytes: u64,
    bar: &'a ProgressBar,
}

impl Write for Watched<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if signals::asked() {
            // `write_all` tries again after an error of the kind `Interrupted`.
            return Err(io::Error::other("stopped on request"));
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

/// The first line.
#[derive(Serialize)]
struct Begin {
    export: u32,
}

/// The last line.
#[derive(Serialize)]
struct End {
    logs: u64,
    entries: u64,
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

#[derive(Debug, Default, Serialize)]
struct Exported {
    logs: u64,
    entries: u64,
    bytes: u64,
}

impl Display for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { logs, entries, bytes } = self;
        let (logs, entries) = (counted(*logs, "log"), counted(*entries, "entry"));
        write!(f, "{logs} with {entries}, {}", HumanBytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ALONE, Place};

    /// Replaces the runs of a store at its first writes.
    struct Merging<'a> {
        place: &'a Place,
        times: u32,
        written: Vec<u8>,
    }

    impl Write for Merging<'_> {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            if self.times > 0 && self.written.is_empty() {
                self.times -= 1;
                self.place.store.delete("a").unwrap().wait().unwrap();
                self.place.append("a", 1, 2);
                self.place.merge();
            }
            self.written.write(data)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_export_whose_data_is_replaced_begins_again() {
        for (format, times, fine) in
            [(Format::Ndjson, 1, true), (Format::Codex, 2, true), (Format::Ndjson, TRIES, false)]
        {
            let place = Place::new();
            place.append("a", 20, 1);
            place.append("b", 20, 1);
            let mut reader = Reader::open_beside(&place.path, &ALONE).unwrap();
            let job = Job { chosen: Chosen::Prefix(b""), format, bar: &spinner() };
            let mut to = Merging { place: &place, times, written: Vec::new() };
            let done = job.run(&mut reader, &mut to, |to| {
                to.written.clear();
                Ok(())
            });
            if !fine {
                assert_eq!(done.unwrap_err().message, MERGED_TOO_OFTEN);
                continue;
            }
            let (told, damage) = done.unwrap();
            assert!((told.logs, damage.is_none()) == (3, true) && told.entries == 21 + 2 * u64::from(times));
            // As an export of the store at rest.
            let (mut alone, mut written) = (Reader::open_beside(&place.path, &ALONE).unwrap(), Vec::new());
            job.run(&mut alone, &mut written, |_| unreachable!()).unwrap();
            assert!(to.written == written);
        }
    }

    #[test]
    fn a_printed_export_whose_data_is_replaced_ends() {
        let place = Place::new();
        place.append("a", 20, 1);
        let mut reader = Reader::open_beside(&place.path, &ALONE).unwrap();
        let job = Job { chosen: Chosen::Log(b"a"), format: Format::Ndjson, bar: &spinner() };
        let mut to = Merging { place: &place, times: 1, written: Vec::new() };
        let refuse = |_: &mut Merging<'_>| Err(Failure::no("no"));
        assert_eq!(job.run(&mut reader, &mut to, refuse).unwrap_err().message, "no");
    }
}
