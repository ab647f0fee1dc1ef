//! `append`: entries from the command line, from files, or from the standard input.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use brooklet::{Commit, Create, Store, Ticket};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::codex::input::{base16, bytes};
use crate::failure::{Failure, Kind};
use crate::input_file::InputFile;
use crate::lines::{self, read_line, without_mark};
use crate::logs::Log;
use crate::output::{Octets, Output};
use crate::payload;
use crate::signals;
use crate::size::size;
use crate::store_args::StoreArgs;

#[derive(Args)]
pub struct Append {
    #[command(flatten)]
    log: Log,
    /// Entries to append; `-` is the whole standard input, and an entry `-` comes from --file or
    /// the standard input. Without any, each line of the standard input is an entry; with --json,
    /// each line is a JSON object as `read --json` prints it
    payloads: Vec<OsString>,
    /// Append the contents of FILE as one entry; `-` is the standard input. Several files are
    /// several entries
    #[arg(long, value_name = "FILE", conflicts_with = "payloads")]
    file: Vec<PathBuf>,
    /// Append the whole standard input, byte for byte, as one entry
    #[arg(long, conflicts_with_all = ["payloads", "file"])]
    raw: bool,
    /// Drop all older entries in the same step in which the first of these is appended
    #[arg(long)]
    snapshot: bool,
    /// Fail if the store is missing, instead of creating it
    #[arg(long)]
    no_create: bool,
    /// Size of the ring of a new store, in bytes (K, M and G are understood)
    #[arg(long, value_parser = size, conflicts_with = "no_create")]
    ring_size: Option<u64>,
}

/// Appends entries, and prints their numbers once they are on stable media.
pub fn run(args: Append, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let payloads = args.payloads()?;
    let create = if args.no_create { Create::Never } else { Create::IfMissing };
    let mut options = store_args.options()?.create(create);
    if let Some(bytes) = args.ring_size {
        options = options.ring_size(bytes);
    }
    let store = options.open(&args.log.store)?;
    let key = args.log.key();
    let (json, mut seqs) = (out.is_json(), Vec::new());
    let mut done = |new: &[u64]| {
        // Only the document needs them at the end, which may be far.
        if json {
            seqs.extend(new);
        }
        new.iter().try_for_each(|seq| out.line(seq))?;
        out.flush()
    };
    let appended = match payloads {
        Some(payloads) => {
            done(&append_at_once(&store, key, &payloads, args.snapshot)?)?;
            store.close().map_err(Failure::from)
        }
        None => {
            let appended = append_lines(&store, key, args.snapshot, json, done);
            // What was appended to a space in memory before a failure stays, too.
            appended.and(store.close().map_err(Failure::from))
        }
    };
    // The lines before a refused one are in the log.
    let told = out.document(&Appended { key: Octets::key(key), seqs }).and_then(|()| out.flush());
    appended.and(told)
}

impl Append {
    /// Returns the entries to append in one step; `None` if each line of the standard input is one.
    fn payloads(&self) -> Result<Option<Vec<Cow<'_, [u8]>>>, Failure> {
        let payloads = self.payloads.iter();
        let names =
            payloads.clone().map(OsString::as_os_str).chain(self.file.iter().map(|file| file.as_os_str()));
        if names.filter(|name| payload::is_stdin(name)).count() > 1 {
            return Err(Failure::new(Kind::Usage, "the standard input can be only one entry: use `-` once"));
        }
        if self.raw {
            return Ok(Some(vec![payload::standard_input()?.into()]));
        }
        let files = self.file.iter().map(|file| payload::file(file).map(Cow::Owned));
        let payloads: Vec<_> = payloads.map(payload::argument).chain(files).collect::<Result<_, _>>()?;
        Ok((!payloads.is_empty()).then_some(payloads))
    }
}

fn append_at_once(
    store: &Store,
    key: &[u8],
    payloads: &[Cow<'_, [u8]>],
    snapshot: bool,
) -> Result<Vec<u64>, Failure> {
    let mut commit = Commit::new();
    for (i, payload) in payloads.iter().enumerate() {
        if snapshot && i == 0 {
            commit.snapshot(key, payload)
        } else {
            commit.append(key, payload)
        };
    }
    let ticket = store.commit(&commit)?;
    ticket.wait()?;
    Ok(ticket.seqs().to_vec())
}

/// Appends the lines of the standard input, and reports their numbers once they are durable. Whole
/// lines that came in one piece wait for their acknowledgements together.
fn append_lines(
    store: &Store,
    key: &[u8],
    mut snapshot: bool,
    json: bool,
    mut done: impl FnMut(&[u64]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    signals::listen_quietly()?;
    let reading = || Failure::io("reading the standard input");
    // The lines that are read at once have one wait: of a file, many of them.
    let mut input = InputFile::open(Path::new("-"), 1 << 20).map_err(reading())?;
    let (mut line, mut number) = (Vec::new(), 0_u64);
    let mut waiting: Vec<Ticket> = Vec::new();
    loop {
        let read = read_line(&mut input, &mut line, lines::LONGEST);
        number += 1;
        let added = match read {
            Ok(Ok(true)) => append_line(store, key, (&line, number), &mut snapshot, json).map(Some),
            Ok(Ok(false)) => Ok(None),
            Ok(Err(what)) => Err(wrong_line(number, &what)),
            Err(error) => Err(signals::check_done().err().unwrap_or_else(|| reading()(error))),
        };
        let more = !matches!(added, Ok(None));
        // A line that is refused does not keep those before it from being reported.
        let (ticket, refused) = added.map_or_else(|error| (None, Some(error)), |ticket| (ticket, None));
        // The rest of a line may come late, or never.
        let pause = ticket.is_none() || !input.buffer().contains(&b'\n');
        waiting.extend(ticket);
        if pause {
            let mut durable = Vec::new();
            let waited = waiting.drain(..).try_for_each(|ticket| {
                ticket.wait()?;
                durable.push(ticket.seq());
                Ok::<_, Failure>(())
            });
            done(&durable)?;
            waited?;
        }
        match refused {
            Some(error) => return Err(error),
            None if !more => return Ok(()),
            None => {}
        }
    }
}

fn wrong_line(number: u64, what: &str) -> Failure {
    Failure::new(Kind::Usage, format!("the standard input: line {number}: {what}"))
}

fn append_line(
    store: &Store,
    key: &[u8],
    (line, number): (&[u8], u64),
    snapshot: &mut bool,
    json: bool,
) -> Result<Ticket, Failure> {
    let payload = if json {
        payload_of(without_mark(line, number)).map_err(|what| wrong_line(number, &what))?
    } else {
        Cow::Borrowed(line)
    };
    Ok(match std::mem::take(snapshot) {
        true => store.snapshot(key, &payload)?,
        false => store.append(key, &payload)?,
    })
}

/// A line as `read --json` prints it. The store assigns a new number to the entry.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(default, rename = "seq")]
    _seq: Option<u64>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    base16: Option<String>,
}

/// Returns the payload that a line of JSON has.
fn payload_of(line: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| lines::not_json(&error))?;
    match (line.text, line.base16) {
        (Some(text), None) => Ok(bytes(text)),
        (None, Some(digits)) => base16(&digits).map(Cow::Owned),
        _ => Err("exactly one of text and base16 is required".to_owned()),
    }
}

#[derive(Serialize)]
struct Appended<'a> {
    #[serde(flatten)]
    key: Octets<'a>,
    seqs: Vec<u64>,
}
