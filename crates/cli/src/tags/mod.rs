//! Commands on tagged records: putting them, finding them by their tags, counting, and importing
//! lines.

mod words;

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use brooklet::{Create, Store};
use brooklet_tags::{Found, Options, Query, Record, Tags};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::HumanCount;
use serde::Serialize;

use crate::beside::{Reader, Stop};
use crate::failure::{Failure, Kind};
use crate::input_file::InputFile;
use crate::lines::{LONGEST, read_line, without_mark};
use crate::output::{Octets, Output, counted, spinner};
use crate::payload;
use crate::prefix::Prefix;
use crate::signals;
use crate::store_args::StoreArgs;
use words::Fields;

#[derive(Subcommand)]
pub enum Command {
    /// Put a record; replace the one with the same id, if any
    Put {
        #[command(flatten)]
        place: Place,
        /// The record's id
        id: OsString,
        #[command(flatten)]
        payload: Payload,
        /// A tag of the record; may be given again
        #[arg(long = "tag", short, value_name = "TAG")]
        tags: Vec<OsString>,
    },
    /// Print a record
    Get {
        #[command(flatten)]
        place: Place,
        /// The record's id
        id: OsString,
        /// Print the record's bytes only, unchanged
        #[arg(long)]
        raw: bool,
    },
    /// Print the records with the given tags, the newest first
    Find {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        wanted: Wanted,
        /// Most records to print
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
        /// Cursor of a record, as --json prints it, to print only older records
        #[arg(long, value_name = "CURSOR")]
        before: Option<u64>,
        /// Print the records' bytes only, unchanged, each on a line
        #[arg(long)]
        raw: bool,
    },
    /// Print the number of records with the given tags
    Count {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        wanted: Wanted,
    },
    /// List the tags, each with its number of records
    List {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        prefix: Prefix,
    },
    /// Remove a record
    Remove {
        #[command(flatten)]
        place: Place,
        /// The record's id
        id: OsString,
    },
    /// Put each line of a file as a record, with its words or its JSON fields as tags
    Import(Import),
}

impl Command {
    /// Returns whether the command changes nothing.
    pub fn only_reads(&self) -> bool {
        !matches!(self, Self::Put { .. } | Self::Remove { .. } | Self::Import(_))
    }
}

#[derive(Args)]
pub struct Place {
    /// The store: a file or a block device
    store: PathBuf,
    /// The name of the records; a store has any number of names
    #[arg(long, default_value = "tags")]
    name: String,
}

/// The bytes of a record.
#[derive(Args)]
pub struct Payload {
    /// The record's bytes; `-` is the whole standard input, and bytes `-` come from --file or the
    /// standard input [default: the standard input]
    payload: Option<OsString>,
    /// Put the contents of FILE; `-` is the standard input
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    file: Option<PathBuf>,
    /// Put the whole standard input, byte for byte
    #[arg(long, conflicts_with_all = ["payload", "file"])]
    raw: bool,
}

impl Payload {
    fn bytes(&self) -> Result<Cow<'_, [u8]>, Failure> {
        match (&self.payload, &self.file) {
            (Some(payload), _) => payload::argument(payload),
            (None, Some(file)) => payload::file(file).map(Cow::Owned),
            (None, None) => payload::standard_input().map(Cow::Owned),
        }
    }
}

#[derive(Args)]
pub struct Wanted {
    /// Tags that a record must all have
    tags: Vec<OsString>,
    /// Tags of which a record must have at least one
    #[arg(long, value_name = "TAG")]
    any: Vec<OsString>,
    /// Tags that a record must not have
    #[arg(long, value_name = "TAG")]
    none: Vec<OsString>,
    /// Prefix of a tag that a record must have; may be given again
    #[arg(long, value_name = "TEXT")]
    prefix: Vec<OsString>,
}

#[derive(Args)]
pub struct Import {
    #[command(flatten)]
    place: Place,
    /// The input file; - for the standard input
    #[arg(default_value = "-")]
    input: PathBuf,
    /// Format of the lines [default: by the extension, ndjson for .ndjson and .jsonl, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// A JSON field that becomes a tag; may be given again (format ndjson) [default: all fields]
    #[arg(long = "field", value_name = "NAME")]
    fields: Vec<String>,
    /// The JSON field of the id, a string or a whole number (format ndjson) [default: the id is the
    /// name of the lines, a colon and the number of the line]
    #[arg(long, value_name = "NAME")]
    id_field: Option<String>,
    /// The name of the lines for their ids; an import with the name of an earlier one replaces the
    /// records of that import [default: the file's name; - for the standard input, if no records
    /// have this name]
    #[arg(long, value_name = "NAME", conflicts_with = "id_field")]
    source: Option<String>,
    /// Turn words into lower case
    #[arg(long)]
    lower: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Text: each word, of letters, digits and underscores, is a tag
    Text,
    /// JSON objects: each field with a value is a tag, as name=value; a nested field is
    /// name.other=value
    Ndjson,
}

impl Import {
    /// Refuses options of another format than that of the lines.
    fn check(&self, format: Format) -> Result<(), Failure> {
        let option = match (format, &self.fields[..], &self.id_field) {
            (Format::Text, [_, ..], _) => "--field",
            (Format::Text, [], Some(_)) => "--id-field",
            _ => return Ok(()),
        };
        let what = format!("{option} is for inputs of format ndjson: name the format by --format");
        Err(Failure::new(Kind::Usage, what))
    }

    /// Returns the name of the lines. Other lines of the standard input would have the same ids.
    fn name(&self, tags: &Tags) -> Result<String, Failure> {
        if let Some(source) = &self.source {
            return Ok(source.clone());
        }
        let name = self.input.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_nameless = payload::is_stdin(self.input.as_os_str()) && self.id_field.is_none();
        if is_nameless && tags.get(id_of_line(&name, 1))?.is_some() {
            let what = "there are records of an earlier import from the standard input: name these lines by \
                        --source, or replace the records by --source=-";
            return Err(Failure::no(what));
        }
        Ok(name)
    }
}

/// Returns the id of a line, from the name of the lines.
fn id_of_line(name: &str, number: u64) -> Vec<u8> {
    format!("{name}:{number:010}").into_bytes()
}

impl Place {
    fn tags(&self, store: &Store) -> Result<Tags, Stop> {
        Ok(Tags::open(store, &self.name, Options::new())?)
    }

    /// Looks something up in the records.
    fn look<T>(&self, store_args: &StoreArgs, look: impl Fn(&Tags) -> Result<T, Stop>) -> Result<T, Failure> {
        Reader::open(&self.store, store_args)?.look(|store| look(&self.tags(store)?))
    }
}

impl Wanted {
    fn of(&self, tags: &Tags) -> Query {
        let mut query = tags.find().all(bytes(&self.tags)).none(bytes(&self.none));
        if !self.any.is_empty() {
            query = query.any(bytes(&self.any));
        }
        query = bytes(&self.prefix).fold(query, Query::prefix);
        let is_any = self.tags.is_empty() && self.any.is_empty() && self.prefix.is_empty();
        if is_any { query.every() } else { query }
    }
}

/// The records that are still to be printed.
struct Page {
    left: u64,
    /// They are older than this cursor.
    before: u64,
    raw: bool,
}

impl Page {
    fn print(&mut self, query: Query, out: &mut Output) -> Result<(), Stop> {
        for found in query.limit(self.left).before(self.before).run()? {
            let Found { id, tags, payload, cursor, .. } = found?;
            if self.raw {
                out.raw(&payload)?;
                out.raw(b"\n")?;
            } else {
                out.put(&Row::of(&id, &tags, &payload, Some(cursor)))?;
            }
            (self.left, self.before) = (self.left - 1, cursor);
        }
        Ok(())
    }
}

fn bytes(tags: &[OsString]) -> impl Iterator<Item = &[u8]> {
    tags.iter().map(|tag| tag.as_bytes())
}

/// Runs the command.
pub fn run(command: Command, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    match command {
        Command::Put { place, id, payload, tags } => {
            let (id, payload) = (id.as_bytes(), payload.bytes()?);
            let store = store_args.options()?.create(Create::IfMissing).open(&place.store)?;
            place.tags(&store)?.put(id, bytes(&tags), payload)?.wait()?;
            store.close()?;
            out.put(&Put { id: Octets::id(id), put: true })
        }
        Command::Get { place, id, raw } => {
            let id = id.as_bytes();
            match place.look(store_args, |tags| Ok(tags.get(id)?))? {
                Some(Record { payload, .. }) if raw => out.raw(&payload),
                Some(Record { tags, payload, .. }) => out.put(&Row::of(id, &tags, &payload, None)),
                None => {
                    let what = format!("there is no record {}: put it first", Octets::id(id));
                    Err(Failure::new(Kind::NotFound, what))
                }
            }
        }
        Command::Find { place, wanted, limit, before, raw } => {
            let mut page = Page { left: limit.unwrap_or(u64::MAX), before: before.unwrap_or(u64::MAX), raw };
            let mut reader = Reader::open(&place.store, store_args)?;
            loop {
                match place.tags(reader.store()).and_then(|tags| page.print(wanted.of(&tags), out)) {
                    // Each record is as it is at the moment at which it is printed.
                    Err(Stop::Replaced(_)) => reader.reopen()?,
                    printed => return Ok(printed?),
                }
            }
        }
        Command::Count { place, wanted } => {
            let count = place.look(store_args, |tags| Ok(wanted.of(tags).count()?))?;
            out.put(&Count { count })
        }
        Command::List { place, prefix } => {
            let tags = place
                .look(store_args, |tags| Ok(tags.tags(prefix.bytes())?.collect::<Result<Vec<_>, _>>()?))?;
            tags.iter()
                .try_for_each(|(tag, records)| out.put(&Tag { tag: Octets::tag(tag), records: *records }))
        }
        Command::Remove { place, id } => {
            let store = store_args.options()?.open(&place.store)?;
            let id = id.as_bytes();
            let removed = place.tags(&store)?.remove(id)?;
            removed.as_ref().map_or(Ok(()), |written| written.wait())?;
            store.close()?;
            out.put(&Removed { id: Octets::id(id), removed: removed.is_some() })
        }
        Command::Import(args) => import(&args, store_args, out),
    }
}

fn import(args: &Import, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    signals::listen_quietly()?;
    let is_json = args.input.extension().is_some_and(|end| end == "ndjson" || end == "jsonl");
    let format = args.format.unwrap_or(if is_json { Format::Ndjson } else { Format::Text });
    args.check(format)?;
    let mut input = open(&args.input)?;
    let store = store_args.options()?.create(Create::IfMissing).open(&args.place.store)?;
    let tags = args.place.tags(&store)?;
    let name = args.name(&tags)?;
    let (bar, mut line, mut imported) = (spinner(), Vec::new(), Imported::default());
    for number in 1u64.. {
        let malformed = |what: String| Failure::malformed(&args.input, format!("line {number}: {what}"));
        let read = read_line(&mut input, &mut line, LONGEST).map_err(|error| {
            let failed = || Failure::reading(&args.input)(error);
            signals::check_done().err().unwrap_or_else(failed)
        });
        if !read?.map_err(malformed)? {
            break;
        }
        let mut content = line.strip_suffix(b"\r").unwrap_or(&line);
        let (mut of_field, mut found) = (None, Vec::new());
        match format {
            Format::Text => words::of_text(content, args.lower, &mut found),
            Format::Ndjson => {
                content = without_mark(content, number);
                let fields = Fields { only: &args.fields, id: args.id_field.as_deref(), lower: args.lower };
                of_field = fields.of_json(content, &mut found).map_err(malformed)?;
            }
        }
        let id = of_field.unwrap_or_else(|| id_of_line(&name, number));
        imported.records += 1;
        imported.tags += found.len() as u64;
        // Nobody waits for one alone: what comes last is waited for.
        drop(tags.put(id, found, content).map_err(|error| match Failure::from(error) {
            Failure { kind: Kind::Usage, message } => malformed(message),
            failure => failure,
        })?);
        if number.is_multiple_of(1024) {
            signals::check_done()?;
            bar.set_message(format!("{} records", HumanCount(number)));
        }
    }
    bar.set_message("bringing tags into their logs");
    store.flush()?;
    tags.settle()?;
    bar.finish_and_clear();
    drop(tags);
    store.close()?;
    out.put(&imported)
}

fn open(path: &Path) -> Result<BufReader<InputFile>, Failure> {
    InputFile::open(path, 1 << 20).map_err(Failure::opening(path))
}

#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    id: Octets<'a>,
    tags: Vec<Octets<'a>>,
    #[serde(flatten)]
    payload: Octets<'a>,
    cursor: Option<u64>,
}

impl<'a> Row<'a> {
    fn of(id: &'a [u8], tags: &'a [Vec<u8>], payload: &'a [u8], cursor: Option<u64>) -> Self {
        let tags = tags.iter().map(|tag| Octets::tag(tag)).collect();
        Self { id: Octets::id(id), tags, payload: Octets::payload(payload), cursor }
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags = self.tags.iter().map(Octets::to_string).collect::<Vec<_>>().join(" ");
        write!(f, "{}\t{tags}\t{}", self.id, self.payload.dumped())
    }
}

#[derive(Serialize)]
struct Put<'a> {
    #[serde(flatten)]
    id: Octets<'a>,
    put: bool,
}

impl fmt::Display for Put<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  put", self.id)
    }
}

#[derive(Serialize)]
struct Removed<'a> {
    #[serde(flatten)]
    id: Octets<'a>,
    /// Whether there was a record.
    removed: bool,
}

impl fmt::Display for Removed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.id, if self.removed { "removed" } else { "not there" })
    }
}

#[derive(Serialize)]
struct Count {
    count: u64,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)
    }
}

#[derive(Serialize)]
struct Tag<'a> {
    #[serde(flatten)]
    tag: Octets<'a>,
    records: u64,
}

impl fmt::Display for Tag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}", self.records, self.tag)
    }
}

#[derive(Default, Serialize)]
struct Imported {
    records: u64,
    tags: u64,
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", counted(self.records, "record"), counted(self.tags, "tag"))
    }
}
