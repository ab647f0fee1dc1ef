//! `brooklet codex`: builds sorted files without a store, and reads them.
//!
//! `input` parses the formats of entries.

pub mod input;

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::io;
use std::ops::{Bound, ControlFlow};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brooklet_codex::{BuilderOptions, Duplicates, FileBuilder, FileOptions, Map, Reader, Summary};
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use crate::colours::good;
use crate::failure::{Failure, Kind};
use crate::input_file::InputFile;
use crate::output::{Octets, Output, counted, progress, spinner};
use crate::prefix::Prefix;
use crate::signals;
use crate::size::size;
use crate::target::may_be_replaced;
use input::{Format, Wrong};

/// Arguments of `brooklet codex`.
#[derive(clap::Subcommand)]
pub enum Args {
    /// Build a file from entries in any order
    Build(Build),
    /// Print the value of a key
    Get(Get),
    /// Print entries in the order of their keys
    Scan(Scan),
    /// Show the structure of a file
    Stat(Of),
    /// Check every checksum of a file, and the order of its keys
    Verify(Of),
}

impl Args {
    /// Returns whether the command changes nothing.
    pub fn only_reads(&self) -> bool {
        !matches!(self, Self::Build(_))
    }
}

#[derive(clap::Args)]
pub struct Build {
    /// The file to build
    codex: PathBuf,
    /// The inputs; none or - for the standard input
    inputs: Vec<PathBuf>,
    /// Format of the inputs [default: by the extension: .tsv, .ndjson or .jsonl, .bin; else tsv]
    #[arg(long)]
    format: Option<Format>,
    /// Rule for entries with the same key
    #[arg(long, value_enum, default_value_t = Rule::Refuse)]
    duplicates: Rule,
    /// Replace an existing file; devices, and files that the command reads, are refused even so
    #[arg(long)]
    force: bool,
    /// Bytes of memory for sorting; more entries need a temporary file in the target's folder (K, M
    /// and G are understood)
    #[arg(long, default_value = "1G", value_parser = size)]
    memory: u64,
    /// Number of threads that sort and pack [default: the number of cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Size of a block in bytes: a look-up reads one block
    #[arg(long, default_value = "4K", value_parser = size)]
    block_size: u64,
    /// Bits of filter for each key: with 10, one in a hundred absent keys passes; 0 for no filter
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64))]
    filter_bits: u32,
    /// Store blocks uncompressed
    #[arg(long)]
    no_compress: bool,
}

/// The rule for entries with the same key.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Rule {
    /// Fail
    Refuse,
    /// Keep the first
    First,
    /// Keep the last
    Last,
}

#[derive(clap::Args)]
pub struct Get {
    /// The file
    codex: PathBuf,
    /// The key
    key: OsString,
    /// First byte of the value to print
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// Byte to stop before [default: the value's end]
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Print the value only, byte for byte, with nothing after it
    #[arg(long, conflicts_with = "json")]
    raw: bool,
}

#[derive(clap::Args)]
pub struct Scan {
    /// The file
    codex: PathBuf,
    #[command(flatten)]
    prefix: Prefix,
    /// First key to print
    #[arg(long, value_name = "KEY", conflicts_with = "by_prefix")]
    from: Option<OsString>,
    /// Key to stop before
    #[arg(long, value_name = "KEY", conflicts_with = "by_prefix")]
    to: Option<OsString>,
    /// Print the last keys first
    #[arg(long)]
    reverse: bool,
    /// Most entries to print
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print keys only
    #[arg(long)]
    keys: bool,
}

#[derive(clap::Args)]
pub struct Of {
    /// The file
    codex: PathBuf,
}

/// Runs a subcommand.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    match args {
        Args::Build(args) => build(&args, out),
        Args::Get(args) => get(&args, out),
        Args::Scan(args) => scan(args, out),
        Args::Stat(args) => stat(&args, out),
        Args::Verify(args) => verify(&args, out),
    }
}

fn build(args: &Build, out: &mut Output) -> Result<(), Failure> {
    signals::listen()?;
    let blocks = BuilderOptions {
        block_size: args.block_size as usize,
        compress: !args.no_compress,
        bits_per_item: args.filter_bits,
        ..BuilderOptions::default()
    };
    let duplicates = match args.duplicates {
        Rule::Refuse => Duplicates::Refuse,
        Rule::First => Duplicates::First,
        Rule::Last => Duplicates::Last,
    };
    let (memory, threads) = (args.memory as usize, args.threads);
    let options = FileOptions { blocks, memory, threads, duplicates, replace: args.force };
    may_be_replaced(&args.codex, args.inputs.iter().map(PathBuf::as_path))?;
    let begun = Instant::now();
    let mut builder = FileBuilder::new(&args.codex, options)?;
    let bar = spinner();
    let told = bar.clone();
    builder.on_progress(move |progress| {
        match progress.to_merge {
            0 => told.set_message(format!("taking in: {} entries", HumanCount(progress.entries))),
            all => told.set_message(format!("merging: {} of {all} ranges", progress.merged)),
        }
        signals::go_on()
    });
    let standard = [PathBuf::from("-")];
    for input in if args.inputs.is_empty() { &standard[..] } else { &args.inputs } {
        let format = args.format.or_else(|| Format::of_name(&input.to_string_lossy())).unwrap_or(Format::Tsv);
        take_in(input, format, &mut builder)?;
    }
    let summary = builder.finish().map_err(|error| named(&args.codex, error))?;
    bar.finish_and_clear();
    out.put(&Built::new(&summary, begun.elapsed()))
}

fn take_in(input: &Path, format: Format, builder: &mut FileBuilder) -> Result<(), Failure> {
    let opened = InputFile::open(input, 1 << 20);
    let reader = opened.map_err(Failure::opening(input))?;
    let mut stopped = 0u32;
    let took = input::entries(format, reader, |key, value| {
        stopped += 1;
        if stopped.is_multiple_of(1024) && signals::asked() {
            return Err(brooklet_codex::Error::Cancelled);
        }
        builder.add(key, value).map(ControlFlow::Continue)
    });
    match took {
        Ok(()) => Ok(()),
        Err(Wrong::Input(what)) => Err(Failure::malformed(input, what)),
        Err(Wrong::Io(error)) => {
            signals::check()?;
            Err(Failure::reading(input)(error))
        }
        Err(Wrong::Refused(at, error @ brooklet_codex::Error::TooLarge { .. })) => {
            Err(Failure::malformed(input, format!("{at}: {error}")))
        }
        Err(Wrong::Refused(_, error)) => Err(error.into()),
    }
}

pub fn open(path: &Path) -> Result<Reader<Map>, Failure> {
    let failure = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Failure::opening(path)(error),
        _ => Failure::io(format!("opening {}", path.display()))(error),
    };
    let map = Map::open(path).map_err(failure)?;
    let len = map.len();
    Reader::open(map, len, None).map_err(|error| named(path, error))
}

/// An error with the file it is about.
fn named(path: &Path, error: brooklet_codex::Error) -> Failure {
    let failure = Failure::from(error);
    match failure.kind {
        Kind::Interrupted => failure,
        kind => Failure::new(kind, format!("{}: {}", path.display(), failure.message)),
    }
}

fn get(args: &Get, out: &mut Output) -> Result<(), Failure> {
    let (reader, key) = (open(&args.codex)?, args.key.as_bytes());
    let part = args.from..args.to.unwrap_or(u64::MAX);
    let value = reader.get_part(key, part).map_err(|error| named(&args.codex, error))?;
    let Some(value) = value else {
        let key = Octets::key(key);
        return Err(Failure::new(Kind::NotFound, format!("{}: there is no key {key}", args.codex.display())));
    };
    if args.raw { out.raw(&value) } else { out.put(&Entry::new(key, Some(&value))) }
}

fn scan(args: Scan, out: &mut Output) -> Result<(), Failure> {
    let reader = open(&args.codex)?;
    let own = |key: Option<OsString>| key.map(OsString::into_vec);
    let range = match args.prefix.get() {
        Some(prefix) => reader.prefix(prefix),
        None => {
            let from = own(args.from).map_or(Bound::Unbounded, Bound::Included);
            reader.range((from, own(args.to).map_or(Bound::Unbounded, Bound::Excluded)))
        }
    };
    let entries: Box<dyn Iterator<Item = _>> =
        if args.reverse { Box::new(range.rev()) } else { Box::new(range) };
    for entry in entries.take(args.limit.unwrap_or(usize::MAX)) {
        let (key, value) = entry.map_err(|error| named(&args.codex, error))?;
        out.put(&Entry::new(&key, (!args.keys).then_some(&value[..])))?;
    }
    Ok(())
}

fn stat(args: &Of, out: &mut Output) -> Result<(), Failure> {
    let reader = open(&args.codex)?;
    let ends = [reader.range::<&[u8]>(..).next(), reader.range::<&[u8]>(..).next_back()];
    let [first, last] = ends.map(|end| end.transpose().map(|end| end.map(|(key, _)| key)));
    let named = |error| named(&args.codex, error);
    let (first, last, metadata) =
        (first.map_err(named)?, last.map_err(named)?, reader.metadata().map_err(named)?);
    out.put(&Stat {
        version: reader.version(),
        file_id: reader.id(),
        bytes: reader.len(),
        entries: reader.entries(),
        blocks: reader.blocks(),
        raw_bytes: reader.raw_bytes(),
        metadata_bytes: metadata.map_or(0, |metadata| metadata.len()),
        first: Octets::or_null(Octets::first, first.as_deref()),
        last: Octets::or_null(Octets::last, last.as_deref()),
    })
}

fn verify(args: &Of, out: &mut Output) -> Result<(), Failure> {
    let reader = open(&args.codex)?;
    let bar = progress(reader.len(), "verifying");
    let found = reader.verify(|done| {
        bar.set_position(done.bytes);
        signals::go_on()
    });
    let found = found.map_err(|error| named(&args.codex, error))?;
    bar.finish_and_clear();
    out.put(&Verified {
        sound: true,
        bytes: found.bytes,
        entries: found.entries,
        blocks: found.blocks,
        index_blocks: found.index_blocks,
        filter_items: found.filter_items,
    })
}

#[derive(Serialize)]
struct Built {
    entries: u64,
    bytes: u64,
    blocks: u64,
    seconds: f64,
}

impl Built {
    fn new(summary: &Summary, took: Duration) -> Self {
        let Summary { len, entries, blocks, .. } = *summary;
        Self { entries, bytes: len, blocks, seconds: took.as_secs_f64() }
    }
}

impl Display for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, bytes, blocks, seconds } = self;
        let (entries, blocks) = (counted(*entries, "entry"), counted(*blocks, "block"));
        write!(f, "{entries} in {blocks}, {}, in {seconds:.2} s", HumanBytes(*bytes))
    }
}

/// An entry, in the way in which `build --format ndjson` reads it.
#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    key: Octets<'a>,
    #[serde(flatten)]
    value: Octets<'a>,
}

impl<'a> Entry<'a> {
    fn new(key: &'a [u8], value: Option<&'a [u8]>) -> Self {
        Self { key: Octets::key(key), value: Octets::or_null(Octets::value, value) }
    }
}

impl Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        if self.value.is_null() { Ok(()) } else { write!(f, "\t{}", self.value.dumped()) }
    }
}

#[derive(Serialize)]
struct Stat<'a> {
    version: u32,
    file_id: u64,
    bytes: u64,
    entries: u64,
    blocks: u64,
    raw_bytes: u64,
    metadata_bytes: usize,
    #[serde(flatten)]
    first: Octets<'a>,
    #[serde(flatten)]
    last: Octets<'a>,
}

impl Display for Stat<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, file_id, bytes, entries, blocks, raw_bytes, metadata_bytes, .. } = self;
        let (entries, blocks) = (counted(*entries, "entry"), counted(*blocks, "block"));
        writeln!(f, "{entries} in {blocks}, {}", HumanBytes(*bytes))?;
        writeln!(f, "blocks before compressing: {}", HumanBytes(*raw_bytes))?;
        let metadata = counted(*metadata_bytes as u64, "byte");
        write!(f, "format version {version}, id {file_id}, {metadata} of metadata")?;
        if self.first.is_null() { Ok(()) } else { write!(f, "\nfrom {} to {}", self.first, self.last) }
    }
}

#[derive(Serialize)]
struct Verified {
    sound: bool,
    bytes: u64,
    entries: u64,
    blocks: u64,
    index_blocks: u64,
    filter_items: u64,
}

impl Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, entries, blocks, index_blocks, filter_items, .. } = self;
        let (entries, blocks) = (counted(*entries, "entry"), counted(*blocks, "block"));
        write!(f, "{}: {entries} in {blocks}, {index_blocks} of the index, ", good("sound"))?;
        write!(f, "{}, {}", counted(*filter_items, "filter item"), HumanBytes(*bytes))
    }
}
