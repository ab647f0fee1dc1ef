//! `import`: whole logs enter a store at once, from lines of JSON or CSV, a codex file, or another
//! store.

mod lines;
mod table;

use std::fmt::{self, Display};
use std::io::BufReader;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use brooklet::{Create, Existing, ExportReport, Import, Unsorted};
use brooklet_codex::{Map, Reader};
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use serde::Serialize;

use crate::beside;
use crate::failure::{Failure, Kind};
use crate::input_file::InputFile;
use crate::output::{Output, counted, spinner};
use crate::prefix::Prefix;
use crate::signals;
use crate::size::size;
use crate::space;
use crate::store_args::StoreArgs;
pub use lines::{Line, Refused, Source, VERSION, each_line};

/// Arguments of `brooklet import`.
#[derive(clap::Args)]
pub struct Args {
    /// The store: a file or a block device; a missing file is created
    store: PathBuf,
    /// The input: a file or a store; - for the standard input
    #[arg(default_value = "-")]
    input: PathBuf,
    /// Format of the input [default: by the extension, .ndjson, .jsonl, .csv or .codex]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    prefix: Prefix,
    /// Leave out logs that exist in the store, instead of importing nothing
    #[arg(long)]
    skip_existing: bool,
    /// Import logs that lack entries at their end, and an export without its last line: the export
    /// was cut, or its store was damaged (format ndjson)
    #[arg(long)]
    incomplete: bool,
    /// The CSV column of the keys [default: key]
    #[arg(long, value_name = "NAME")]
    key_column: Option<String>,
    /// The CSV column of the payloads [default: payload]
    #[arg(long, value_name = "NAME")]
    payload_column: Option<String>,
    /// Bytes of memory for sorting, about (K, M and G are understood)
    #[arg(long, default_value = "256M", value_parser = size)]
    memory: u64,
    /// The folder for temporary files [default: the store's folder, or the system's for a device]
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
    /// The ring of the imported store, if the ring has a file or block device of its own
    #[arg(long, value_name = "PATH")]
    input_ring: Option<PathBuf>,
    /// The archive of the imported store, if runs of that store were offloaded
    #[arg(long, value_name = "BUCKET")]
    input_archive: Option<String>,
    /// Fail if the store is missing, instead of creating it
    #[arg(long)]
    no_create: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A JSON object per line, as `export` writes them: {"key": …, "text": …} is an entry; {"key":
    /// …, "first": …} is a log, with its first number and its limits; `key_base16` and `base16`
    /// hold bytes that are not text, and `json` holds a payload that is kept as written; {"export":
    /// 1} begins an export, and {"logs": …, "entries": …} ends it
    Ndjson,
    /// Comma-separated values; the first line names the columns
    Csv,
    /// A codex file: an export of a store, or any other; each key of another file becomes a log
    /// with the value as its entry
    Codex,
    /// Another store
    Store,
}

impl Format {
    fn of_name(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "ndjson" | "jsonl" => Some(Format::Ndjson),
            "csv" => Some(Format::Csv),
            "codex" => Some(Format::Codex),
            _ => None,
        }
    }
}

impl Args {
    /// Refuses options of another format than that of the input.
    fn check(&self, format: Format) -> Result<(), Failure> {
        let options = [
            ("--incomplete", self.incomplete, Format::Ndjson),
            ("--key-column", self.key_column.is_some(), Format::Csv),
            ("--payload-column", self.payload_column.is_some(), Format::Csv),
            ("--input-ring", self.input_ring.is_some(), Format::Store),
            ("--input-archive", self.input_archive.is_some(), Format::Store),
        ];
        let wrong = options.into_iter().find(|(_, is_set, of)| *is_set && *of != format);
        wrong.map_or(Ok(()), |(option, _, of)| {
            let of = clap::ValueEnum::to_possible_value(&of).expect("none is hidden");
            let what = format!("{option} is for inputs of format {}: leave it out", of.get_name());
            Err(Failure::new(Kind::Usage, what))
        })
    }
}

/// Brings in logs.
pub fn run(args: Args, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let format = args.format.or_else(|| Format::of_name(&args.input)).ok_or_else(|| {
        let what = format!(
            "{}: the name does not show the format; name the format by --format",
            args.input.display()
        );
        Failure::new(Kind::Usage, what)
    })?;
    args.check(format)?;
    signals::listen()?;
    // What cannot be read makes no store.
    let (ring, archive) = (args.input_ring.clone(), args.input_archive.clone());
    let input_args = StoreArgs { ring, archive, metrics: None, metrics_mode: None };
    let input = Input::open(&args, &input_args, format)?;
    let create = if args.no_create { Create::Never } else { Create::IfMissing };
    let store = store_args.options()?.create(create).open(&args.store)?;
    let bar = spinner();
    let existing = if args.skip_existing { Existing::Skip } else { Existing::Refuse };
    let begin = || {
        let told = bar.clone();
        // A log in two exports would have the entries of both, with other numbers.
        let import = store.import().existing(existing).logs_once().memory(args.memory as usize);
        import.on_progress(move |so_far| {
            told.set_message(format!("writing: {} entries", HumanCount(so_far.entries)));
            signals::go_on()
        })
    };
    let imported = input.take(&args, begin, &bar)?;
    bar.finish_and_clear();
    store.close()?;
    let brooklet::ImportReport { logs, entries, bytes, skipped, uncounted, .. } = imported;
    if uncounted {
        space::note_uncounted();
    }
    out.put(&Imported { logs, entries, bytes, skipped })
}

/// What is imported, opened.
enum Input<'a> {
    Lines(Source, BufReader<InputFile>),
    Codex(Reader<Map>),
    Store(beside::Reader<'a>),
}

impl<'a> Input<'a> {
    fn open(args: &'a Args, input_args: &'a StoreArgs, format: Format) -> Result<Self, Failure> {
        let path = args.input.as_path();
        let source = match format {
            Format::Ndjson => Source::Ndjson { incomplete: args.incomplete },
            Format::Csv => {
                let [key, payload] = [(&args.key_column, "key"), (&args.payload_column, "payload")]
                    .map(|(column, other)| column.clone().unwrap_or_else(|| other.to_owned()));
                Source::Csv { key, payload }
            }
            Format::Codex => return Ok(Input::Codex(crate::codex::open(path)?)),
            Format::Store => return Ok(Input::Store(beside::Reader::open(path, input_args)?)),
        };
        let reader = InputFile::open(path, 1 << 20).map_err(Failure::opening(path))?;
        Ok(Input::Lines(source, reader))
    }

    fn take(
        self,
        args: &Args,
        begin: impl Fn() -> Import,
        bar: &ProgressBar,
    ) -> Result<brooklet::ImportReport, Failure> {
        let prefix = args.prefix.bytes();
        match self {
            Input::Store(mut other) => of_store(&mut other, prefix, begin),
            Input::Codex(reader) if ExportReport::of(&reader)?.is_some() => {
                Ok(begin().export(&reader, prefix)?)
            }
            Input::Codex(reader) => {
                let mut taking = Taking { import: begin().unsorted(scratch(args))?, bar, taken: 0 };
                for entry in reader.prefix(prefix) {
                    let (key, value) = entry?;
                    taking.line(&Line::Entry { key: key.into(), payload: value.to_vec().into() })?;
                }
                Ok(taking.import.finish()?)
            }
            Input::Lines(source, reader) => {
                let mut taking = Taking { import: begin().unsorted(scratch(args))?, bar, taken: 0 };
                let took = each_line(&source, reader, |line| match line.key().starts_with(prefix) {
                    true => taking.line(&line),
                    false => Ok(()),
                });
                took.map_err(|refused| match refused {
                    Refused::Input(what) => Failure::malformed(&args.input, what),
                    Refused::Io(error) => {
                        signals::check().err().unwrap_or_else(|| Failure::reading(&args.input)(error))
                    }
                    Refused::Taker(at, failure) if failure.kind == Kind::Usage => {
                        Failure::malformed(&args.input, format!("{at}: {}", failure.message))
                    }
                    Refused::Taker(_, failure) => failure,
                })?;
                Ok(taking.import.finish()?)
            }
        }
    }
}

/// Imports from another store. If the process that writes that store replaces data before it is
/// read, nothing came in, and the import begins again as of a later moment.
fn of_store(
    other: &mut beside::Reader<'_>,
    prefix: &[u8],
    begin: impl Fn() -> Import,
) -> Result<brooklet::ImportReport, Failure> {
    other.look(|store| Ok(begin().view(&store.view()?, prefix)?))
}

/// The folder for files at work: beside the store, or, where that is a device, the one for such
/// files.
fn scratch(args: &Args) -> PathBuf {
    let store_args = args.store.parent().filter(|parent| !parent.as_os_str().is_empty());
    let is_device = args.store.metadata().is_ok_and(|store| store.file_type().is_block_device());
    match &args.scratch {
        Some(folder) => folder.clone(),
        None if is_device => std::env::temp_dir(),
        None => store_args.unwrap_or(Path::new(".")).to_path_buf(),
    }
}

/// An import that takes in lines.
struct Taking<'a> {
    import: Unsorted,
    bar: &'a ProgressBar,
    taken: u64,
}

impl Taking<'_> {
    fn line(&mut self, line: &Line<'_>) -> Result<(), Failure> {
        self.taken += 1;
        if self.taken.is_multiple_of(1024) {
            signals::check()?;
            self.bar.set_message(format!("taking in: {} lines", HumanCount(self.taken)));
        }
        match line {
            Line::Entry { key, payload } => Ok(self.import.append(key, payload)?),
            Line::Log { key, first, retention } => Ok(self.import.log(key, *first, *retention)?),
        }
    }
}

#[derive(Serialize)]
struct Imported {
    logs: u64,
    entries: u64,
    bytes: u64,
    skipped: u64,
}

impl Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { logs, entries, bytes, skipped } = self;
        let (logs, entries) = (counted(*logs, "log"), counted(*entries, "entry"));
        write!(f, "{logs} with {entries}, which take {}", HumanBytes(*bytes))?;
        match skipped {
            0 => Ok(()),
            _ => write!(f, "; left out {} that existed already", counted(*skipped, "log")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ALONE, Place};

    #[test]
    fn an_import_from_a_store_whose_data_is_replaced_begins_again() {
        let place = Place::new();
        place.append("log", 40, 1);
        let mut other = beside::Reader::open_beside(&place.path, &ALONE).unwrap();
        let opened = other.store().info().unwrap().generation;
        place.merge();
        let store = brooklet::Store::in_memory(1).unwrap();
        let imported = of_store(&mut other, b"log", || store.import()).unwrap();
        assert_eq!((imported.logs, imported.entries), (1, 40));
        assert_ne!(other.store().info().unwrap().generation, opened, "nothing was replaced");
    }
}
