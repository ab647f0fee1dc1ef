//! What the fuzz targets need of the private parts: everything that parses what people hand in.

use std::convert::Infallible;
use std::ffi::OsString;
use std::ops::ControlFlow;

use clap::Parser;
use serde::Serialize;

use crate::codex::input::{self, Format, Wrong};
use crate::import::{Line, Refused, Source, each_line};
use crate::output::Octets;
use crate::replay::history::History;
use crate::replay::trace::{self, Text, Trace};
use crate::{Cli, Command};

/// Parses a command line. What was understood, or clap's answer as it is printed, and whether that
/// is an error.
pub fn arguments(args: impl IntoIterator<Item = OsString>) -> Result<Call, (String, bool)> {
    let cli = Cli::try_parse_from(args).map_err(|e| (e.render().to_string(), e.use_stderr()))?;
    Ok(Call { json: cli.json, raw: matches!(&cli.command, Command::Read(args) if args.raw) })
}

/// What a command line asks for, as far as rules span several arguments.
#[derive(Debug)]
pub struct Call {
    /// JSON is to be printed.
    pub json: bool,
    /// Raw payloads are to be printed.
    pub raw: bool,
}

/// Reads a number of bytes.
pub fn size(text: &str) -> Result<u64, String> {
    crate::size::size(text)
}

/// Unzips a file's bytes if they are gzipped.
pub fn unzip(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    trace::unzip(&bytes[..], 1 << 30).map_err(|e| e.to_string())
}

/// Parses a keystroke trace: the entries that it appends, and the text they should make.
pub fn trace(text: &[u8], limit: Option<usize>) -> Result<(Vec<Box<[u8]>>, Option<String>), String> {
    let trace = Trace::parse("fuzz", text, limit)?;
    Ok((trace.payloads, trace.end))
}

/// Rebuilds a text from the entries of its log.
pub fn rebuild(payloads: &[Box<[u8]>]) -> Result<String, String> {
    let mut text = Text::default();
    payloads.iter().try_for_each(|payload| text.apply(payload))?;
    Ok(text.to_string())
}

/// Parses a history: its logs with their entries, and the logs that each commit adds to.
#[expect(clippy::type_complexity, reason = "told once, and taken apart at once")]
pub fn history(
    text: &str,
    limit: Option<usize>,
) -> Result<(Vec<(String, Vec<Box<[u8]>>)>, Vec<Vec<usize>>), String> {
    let history = History::parse(text, limit)?;
    Ok((history.logs.into_iter().map(|log| (log.key, log.entries)).collect(), history.commits))
}

/// A key and a value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Reads what `codex build` reads: the entries up to what is wrong, if anything is. The formats are
/// numbered as `--help` lists them.
pub fn entries(format: u8, input: &[u8]) -> (Vec<Entry>, Option<String>) {
    let format = [Format::Tsv, Format::Ndjson, Format::Lengths][usize::from(format) % 3];
    let mut found = Vec::new();
    let read = input::entries(format, input, |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        Ok::<_, Infallible>(ControlFlow::Continue(()))
    });
    let wrong = read.err().map(|wrong| match wrong {
        Wrong::Input(what) => what,
        Wrong::Io(error) => panic!("{error}"),
        Wrong::Refused(_, never) => match never {},
    });
    (found, wrong)
}

/// Reads what `import` reads, CSV or lines of JSON: how many bytes of keys and payloads that gives,
/// up to what is wrong, if anything is.
pub fn import_lines(csv: bool, input: &[u8]) -> (usize, Option<String>) {
    let source = match csv {
        true => Source::Csv { key: "key".into(), payload: "payload".into() },
        false => Source::Ndjson { incomplete: false },
    };
    let mut bytes = 0;
    let read = each_line(&source, input, |line| {
        bytes += match line {
            Line::Entry { key, payload } => key.len() + payload.len(),
            Line::Log { key, .. } => key.len(),
        };
        Ok::<_, Infallible>(())
    });
    let wrong = read.err().map(|refused| match refused {
        Refused::Input(what) => what,
        Refused::Io(error) => panic!("{error}"),
        Refused::Taker(_, never) => match never {},
    });
    (bytes, wrong)
}

/// An entry as `codex scan --json` prints it.
pub fn json_of((key, value): &Entry) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        #[serde(flatten)]
        key: Octets<'a>,
        #[serde(flatten)]
        value: Octets<'a>,
    }
    let line = Line { key: Octets::key(key), value: Octets::value(value) };
    serde_json::to_string(&line).expect("an entry is plain data")
}
