//! Logs and their entries as people bring them: lines of JSON, or comma-separated values.

use std::borrow::Cow;
use std::io::{self, BufRead};
use std::time::Duration;

use brooklet::Retention;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::codex::input::{base16, bytes, key_of};
use crate::import::table::{Fault, Table};
use crate::lines::{LONGEST, not_json, read_line, without_mark};
use crate::output::{Octets, counted};

/// How lines are written.
pub enum Source {
    /// A JSON object each; whether logs and exports may be incomplete.
    Ndjson { incomplete: bool },
    /// Comma-separated values, with the columns that count.
    Csv { key: String, payload: String },
}

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// An entry of a log.
    Entry { key: Cow<'a, [u8]>, payload: Cow<'a, [u8]> },
    /// Where a log begins, and what it keeps.
    Log { key: Cow<'a, [u8]>, first: u64, retention: Retention },
}

impl Line<'_> {
    /// Returns the key of the log.
    pub fn key(&self) -> &[u8] {
        match self {
            Line::Entry { key, .. } | Line::Log { key, .. } => key,
        }
    }
}

/// Why not all lines were taken.
#[derive(Debug)]
pub enum Refused<E> {
    /// A line does not say what it should: which, and why.
    Input(String),
    /// It cannot be read.
    Io(io::Error),
    /// Whoever takes the lines refused this one.
    Taker(String, E),
}

/// Gives what each line says to `take`.
pub fn each_line<E>(
    source: &Source,
    input: impl BufRead,
    take: impl FnMut(Line<'_>) -> Result<(), E>,
) -> Result<(), Refused<E>> {
    match source {
        Source::Ndjson { incomplete } => json_lines(*incomplete, input, take),
        Source::Csv { key, payload } => csv_lines(input, [key, payload], take),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json<'a> {
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
    key_base16: Option<String>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    base16: Option<String>,
    #[serde(borrow)]
    json: Option<&'a RawValue>,
    seq: Option<u64>,
    first: Option<u64>,
    next: Option<u64>,
    entries: Option<u64>,
    retention: Option<Kept>,
    export: Option<u32>,
    logs: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    entries: Option<u64>,
    bytes: Option<u64>,
    age_ms: Option<u64>,
}

/// The version of the lines of an export, which its first line says.
pub const VERSION: u32 = 1;
const INCOMPLETE: &str = "the export is incomplete; --incomplete imports what is there";

/// What the lines before say of the ones that follow.
#[derive(Default)]
struct Before {
    incomplete: bool,
    key: Vec<u8>,
    /// The number that the next entry of the log has, where lines tell that.
    next: Option<u64>,
    /// The number after the last entry of the log, where its line tells that.
    end: Option<u64>,
    /// Whether the last line of an export is still to come.
    in_export: bool,
    /// Numbers of logs and entries of this export.
    logs: u64,
    entries: u64,
}

fn json_lines<E>(
    incomplete: bool,
    mut input: impl BufRead,
    mut take: impl FnMut(Line<'_>) -> Result<(), E>,
) -> Result<(), Refused<E>> {
    let (mut text, mut before) = (Vec::new(), Before { incomplete, ..Before::default() });
    for number in 1u64.. {
        let wrong = |what: String| Refused::Input(format!("line {number}: {what}"));
        if !read_line(&mut input, &mut text, LONGEST).map_err(Refused::Io)?.map_err(wrong)? {
            before.end(false).map_err(|what| Refused::Input(format!("line {}: {what}", number - 1)))?;
            break;
        }
        let line: Json<'_> = match serde_json::from_slice(without_mark(&text, number)) {
            Ok(line) => line,
            // The rest of the line, and all lines behind it, were cut off.
            Err(error)
                if incomplete && error.is_eof() && input.fill_buf().map_err(Refused::Io)?.is_empty() =>
            {
                break;
            }
            Err(error) => return Err(wrong(not_json(&error))),
        };
        if let Some(line) = before.follow(line).map_err(wrong)? {
            take(line).map_err(|error| Refused::Taker(format!("line {number}"), error))?;
        }
    }
    Ok(())
}

impl Before {
    /// What a line says, after the ones before it; `None` if it says nothing of a log.
    fn follow<'a>(&mut self, line: Json<'a>) -> Result<Option<Line<'a>>, String> {
        if line.export.is_some() || line.logs.is_some() {
            return self.frame(&line).map(|()| None);
        }
        let key = key_of(line.key, line.key_base16)?;
        let payload = match (line.text, line.base16, line.json) {
            (Some(text), None, None) => Some(bytes(text)),
            (None, Some(digits), None) => Some(Cow::Owned(base16(&digits)?)),
            (None, None, Some(json)) => Some(Cow::Borrowed(json.get().as_bytes())),
            (None, None, None) => None,
            _ => return Err("exactly one of text, base16 and json is required".to_owned()),
        };
        let same = self.key == *key;
        if !same {
            self.end_log()?;
            self.key = key.to_vec();
        }
        let Some(payload) = payload else {
            let Some(first) = line.first.filter(|_| line.seq.is_none()) else {
                return Err("the payload is missing: add text, base16 or json, or first for a log".to_owned());
            };
            self.end_log()?;
            self.begin_log(first, line.next, line.entries)?;
            let retention = line.retention.map_or(Retention::new(), Kept::retention);
            return Ok(Some(Line::Log { key, first, retention }));
        };
        if line.first.is_some() || line.next.is_some() || line.entries.is_some() || line.retention.is_some() {
            return Err("it has a payload and the fields of a log: write two lines".to_owned());
        }
        match (self.next, line.seq) {
            (Some(next), Some(seq)) if next != seq => {
                return Err(format!("the next entry of its log is {next}, and this is entry {seq}"));
            }
            (None, Some(seq)) if !same && seq != 0 => {
                return Err(format!(
                    "its log begins with entry {seq}: add a line with first before this line"
                ));
            }
            // The store refuses an empty key.
            (None, Some(_)) if same && !key.is_empty() => {
                let what = "an entry without a number came before: number each entry of the log, or none";
                return Err(what.to_owned());
            }
            // Entries behind a known number are counted, with and without their numbers.
            (next, seq) => self.next = seq.or(next).and_then(|seq| seq.checked_add(1)),
        }
        if let Some(end) = self.end.filter(|end| self.next.is_none_or(|next| next > *end)) {
            return Err(format!("its log ends before entry {end}, and this is one more"));
        }
        self.entries += 1;
        Ok(Some(Line::Entry { key, payload }))
    }

    /// The first or the last line of an export.
    fn frame(&mut self, line: &Json<'_>) -> Result<(), String> {
        let of_log =
            [line.key.is_some(), line.key_base16.is_some(), line.first.is_some(), line.next.is_some()];
        let of_entry = [line.seq.is_some(), line.text.is_some(), line.base16.is_some(), line.json.is_some()];
        if of_log.contains(&true) || of_entry.contains(&true) || line.retention.is_some() {
            return Err("it has the fields of an export and of a log: write two lines".to_owned());
        }
        let found = (self.logs, self.entries);
        self.end(line.export.is_none())?;
        match (line.export, line.logs, line.entries) {
            (Some(VERSION), None, None) => self.in_export = true,
            (Some(version), None, None) => {
                return Err(format!("it begins an export of version {version}: use a newer program"));
            }
            (None, Some(logs), Some(entries)) if (logs, entries) == found || self.incomplete => {}
            (None, Some(logs), Some(entries)) => {
                let shown = |(logs, entries): (u64, u64)| {
                    format!("{} with {}", counted(logs, "log"), counted(entries, "entry"))
                };
                let (of, found) = (shown((logs, entries)), shown(found));
                return Err(format!("it ends an export of {of}, and {found} came: {INCOMPLETE}"));
            }
            _ => return Err("use export alone to begin an export, logs and entries to end it".to_owned()),
        }
        Ok(())
    }

    fn begin_log(&mut self, first: u64, next: Option<u64>, entries: Option<u64>) -> Result<(), String> {
        let counted = entries.map(|entries| first.checked_add(entries));
        let end = match (next, counted) {
            (None, None) => None,
            (Some(next), None) if next >= first => Some(next),
            (next, Some(Some(counted))) if next.is_none_or(|next| next == counted) => Some(counted),
            _ => return Err("next is not first and entries together".to_owned()),
        };
        (self.next, self.end) = (Some(first), end);
        self.logs += 1;
        Ok(())
    }

    /// Ends the log of the line before.
    fn end_log(&mut self) -> Result<(), String> {
        match (self.next.take(), self.end.take()) {
            (Some(next), Some(end)) if next < end && !self.incomplete => {
                let key = Octets::key(&self.key);
                Err(format!(
                    "log \"{key}\" ends before entry {next}, and its line says next {end}: {INCOMPLETE}"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Ends all logs before the first line of an export, its last line, or the end of the input.
    fn end(&mut self, is_last_line: bool) -> Result<(), String> {
        self.end_log()?;
        self.key.clear();
        (self.logs, self.entries) = (0, 0);
        if std::mem::take(&mut self.in_export) && !is_last_line && !self.incomplete {
            return Err(format!(
                "the last line, with the numbers of logs and entries, is missing: {INCOMPLETE}"
            ));
        }
        Ok(())
    }
}

impl Kept {
    fn retention(self) -> Retention {
        let mut retention = Retention::new();
        (retention.entries, retention.bytes) = (self.entries, self.bytes);
        retention.age = self.age_ms.map(Duration::from_millis);
        retention
    }
}

/// Most columns of a table.
const COLUMNS: usize = 4096;

fn csv_lines<E>(
    input: impl BufRead,
    columns: [&str; 2],
    mut take: impl FnMut(Line<'_>) -> Result<(), E>,
) -> Result<(), Refused<E>> {
    let refused = |line: u64, fault: Fault| match fault {
        Fault::Io(error) => Refused::Io(error),
        Fault::Record(why) => Refused::Input(format!("line {line}: {why}")),
    };
    let mut table = Table::new(input);
    let names = column_names(&mut table).map_err(|fault| refused(1, fault))?;
    if names.iter().all(Vec::is_empty) {
        return Err(Refused::Input("its first line is empty: name the columns there".to_owned()));
    }
    let place = |name: &str| {
        names.iter().position(|column| column == name.as_bytes()).ok_or_else(|| {
            let known =
                names.iter().map(|name| name.escape_ascii().to_string()).collect::<Vec<_>>().join(", ");
            Refused::Input(format!(
                "there is no column {name}, only {known}; name the column by --key-column or --payload-column"
            ))
        })
    };
    let places = [place(columns[0])?, place(columns[1])?];
    let mut kept = [Vec::new(), Vec::new()];
    loop {
        let line = table.line().map_err(Refused::Io)?;
        kept.iter_mut().for_each(Vec::clear);
        let read = table.read(names.len(), |at, part| {
            for (kept, _) in kept.iter_mut().zip(places).filter(|(_, place)| *place == at) {
                kept.extend_from_slice(part);
            }
        });
        match read.map_err(|fault| refused(line, fault))? {
            None => return Ok(()),
            Some(values) if values < names.len() => {
                let [values, columns] = [(values, "value"), (names.len(), "column")]
                    .map(|(number, noun)| counted(number as u64, noun));
                let why = format!("it has {values}, and the first line names {columns}");
                return Err(refused(line, Fault::Record(why)));
            }
            Some(_) => {}
        }
        let [key, payload] = kept.each_ref().map(|kept| Cow::Borrowed(&kept[..]));
        take(Line::Entry { key, payload }).map_err(|error| Refused::Taker(format!("line {line}"), error))?;
    }
}

fn column_names(table: &mut Table<impl BufRead>) -> Result<Vec<Vec<u8>>, Fault> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let values = table.read(COLUMNS, |at, part| {
        names.resize(at + 1, Vec::new());
        names[at].extend_from_slice(part);
    })?;
    names.truncate(values.unwrap_or(0));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &Source, input: &[u8]) -> Result<Vec<Line<'static>>, String> {
        let own = |bytes: Cow<'_, [u8]>| Cow::Owned(bytes.into_owned());
        let mut found = Vec::new();
        let done = each_line(source, input, |line| {
            found.push(match line {
                Line::Entry { key, payload } => Line::Entry { key: own(key), payload: own(payload) },
                Line::Log { key, first, retention } => Line::Log { key: own(key), first, retention },
            });
            Ok::<_, ()>(())
        });
        match done {
            Ok(()) => Ok(found),
            Err(Refused::Input(what)) => Err(what),
            Err(other) => panic!("{other:?}"),
        }
    }

    const NDJSON: Source = Source::Ndjson { incomplete: false };

    fn entry(key: &'static str, payload: &'static [u8]) -> Line<'static> {
        Line::Entry { key: key.as_bytes().into(), payload: payload.into() }
    }

    #[test]
    fn json_says_logs_and_entries() {
        let input = br#"{"key": "a", "first": 3, "next": 5, "entries": 2, "retention": {"entries": 9, "age_ms": 2000}}
            {"key": "a", "seq": 3, "text": "x\n"}
            {"key": "a", "seq": 4, "base16": "00ff"}
            {"key_base16": "62", "json": {"n": [1,  2]}}
            {"key": "a", "text": ""}"#;
        let retention = Retention::new().entries(9).age(Duration::from_secs(2));
        let log = Line::Log { key: b"a"[..].into(), first: 3, retention };
        let entries =
            [entry("a", b"x\n"), entry("a", b"\0\xff"), entry("b", br#"{"n": [1,  2]}"#), entry("a", b"")];
        assert_eq!(read(&NDJSON, input), Ok([log].into_iter().chain(entries).collect()));
        for (input, says) in [
            (r#"{"text": "x"}"#, "line 1: exactly one of key"),
            (r#"{"key": "a"}"#, "line 1: the payload is missing"),
            (r#"{"key": "a", "seq": 0}"#, "line 1: the payload is missing"),
            (r#"{"key": "a", "text": "x", "base16": ""}"#, "line 1: exactly one of text"),
            (r#"{"key": "a", "text": "x", "first": 0}"#, "line 1: it has a payload"),
            (r#"{"key": "a", "text": "x", "seq": 7}"#, "line 1: its log begins with entry 7"),
            (r#"{"key": "a", "txt": "x"}"#, "line 1: unknown field `txt`"),
            (
                "{\"key\": \"a\", \"first\": 2}\n{\"key\": \"a\", \"seq\": 3, \"text\": \"\"}",
                "line 2: the next entry of its log is 2",
            ),
            (
                "{\"key\": \"a\", \"seq\": 0, \"text\": \"\"}\n{\"key\": \"a\", \"seq\": 2, \"text\": \"\"}",
                "line 2: the next entry of its log is 1",
            ),
            (r#"{"key": "a", "first": 1, "next": 3, "entries": 1}"#, "line 1: next is not first and entries"),
            (r#"{"key": "a", "first": 4, "next": 3}"#, "line 1: next is not first and entries"),
            (r#"{"key": "a", "first": 1, "entries": 2}"#, "line 1: log \"a\" ends before entry 1"),
            (
                "{\"key\": \"a\", \"first\": 1, \"next\": 1}\n{\"key\": \"a\", \"text\": \"\"}",
                "line 2: its log ends before entry 1",
            ),
            (
                "{\"key\": \"a\", \"first\": 0, \"next\": 1}\n{\"key\": \"b\", \"text\": \"\"}",
                "line 2: log \"a\" ends before entry 0, and its line says next 1",
            ),
            (
                "{\"key\": \"a\", \"text\": \"\"}\n{\"key\": \"a\", \"seq\": 7, \"text\": \"\"}",
                "line 2: an entry without a number came before",
            ),
            (
                "{\"key\":\"a\",\"first\":2}\n{\"key\":\"a\",\"text\":\"\"}\n{\"key\":\"a\",\"seq\":7,\"text\":\"\"}",
                "line 3: the next entry of its log is 3",
            ),
            (r#"{"export": 1}"#, "line 1: the last line, with the numbers"),
            (r#"{"export": 2}"#, "line 1: it begins an export of version 2"),
            (r#"{"export": 1, "key": "a"}"#, "line 1: it has the fields of an export and of a log"),
            (r#"{"logs": 0}"#, "line 1: use export alone"),
            (r#"{"logs": 1, "entries": 0}"#, "line 1: it ends an export of 1 log with 0 entries"),
            ("{\"export\": 1}\n{\"export\": 1}", "line 2: the last line, with the numbers"),
        ] {
            let wrong = read(&NDJSON, input.as_bytes()).unwrap_err();
            assert!(wrong.starts_with(says), "{wrong}");
        }
    }

    /// In an earlier state a file with this mark, with which some editors begin one, was refused.
    #[test]
    fn a_mark_of_utf_8_is_no_part_of_the_first_line() {
        let line = "{\"key\": \"a\", \"text\": \"x\"}\n";
        let marked = format!("\u{feff}{line}");
        assert_eq!(read(&NDJSON, marked.as_bytes()), Ok(vec![entry("a", b"x")]));
        let wrong = read(&NDJSON, format!("{line}{marked}").as_bytes()).unwrap_err();
        assert!(wrong.starts_with("line 2: expected value"), "{wrong}");
        let wrong = read(&NDJSON, format!("{line}\n").as_bytes()).unwrap_err();
        assert_eq!(wrong, "line 2: it is empty: remove it");
    }

    /// A full disk or a kill cuts an export at any byte.
    #[test]
    fn what_is_left_of_an_export_is_read() {
        let whole = r#"{"export": 1}
{"key": "grün", "first": 3, "next": 5, "entries": 2, "retention": null}
{"key": "grün", "key_base16": null, "seq": 3, "text": "\u0000\"ü", "base16": null}
{"key": "grün", "key_base16": null, "seq": 4, "text": null, "base16": "00ff"}
{"logs": 1, "entries": 2}
"#;
        for cut in 0..=whole.len() {
            let left = &whole.as_bytes()[..cut];
            let is_whole = cut == 0 || cut + 1 >= whole.len();
            assert_eq!(read(&NDJSON, left).is_ok(), is_whole, "cut at byte {cut}");
            // Each line ends with the only such byte; the first and the last are of no log.
            let lines = left.iter().filter(|byte| **byte == b'}').count().saturating_sub(1).min(3);
            let found = read(&Source::Ndjson { incomplete: true }, left);
            assert_eq!(found.map(|found| found.len()), Ok(lines), "cut at byte {cut}");
        }
        let wrong = read(&Source::Ndjson { incomplete: true }, b"{\"export\": 1}\n{\"key\n{}\n").unwrap_err();
        assert!(wrong.starts_with("line 2: EOF"), "{wrong}");
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let csv = |key: &str, payload: &str| Source::Csv { key: key.into(), payload: payload.into() };
        let input = b"id,payload,key\n1,\"x, \"\"y\"\"\n\",a\n2,,b\n3,\xff,a\n";
        let found = read(&csv("key", "payload"), input);
        assert_eq!(found, Ok(vec![entry("a", b"x, \"y\"\n"), entry("b", b""), entry("a", b"\xff")]));
        assert_eq!(read(&csv("id", "key"), input).unwrap().len(), 3);
        let wrong = read(&csv("log", "payload"), input).unwrap_err();
        assert!(wrong.starts_with("there is no column log, only id, payload, key"), "{wrong}");
        let wrong = read(&csv("key", "payload"), b"key,payload\na,b\nc\n").unwrap_err();
        assert_eq!(wrong, "line 3: it has 1 value, and the first line names 2 columns");
        let wrong = read(&csv("key", "payload"), b"key,payload\na,b\n\na,b,c\n").unwrap_err();
        assert_eq!(wrong, "line 3: it has more than 2 values");
        // The file was cut, or a quote is missing: the rest of the file would be one payload.
        for input in ["a,\"b", "a,\"b\nc,d\n", "a,b\n\"c", "a,\"b\"\"", "a,\""] {
            let input = format!("key,payload\nx,y\n{input}");
            let wrong = read(&csv("key", "payload"), input.as_bytes()).unwrap_err();
            assert!(wrong.ends_with("the input ends within quotes"), "{input}: {wrong}");
        }
        for input in ["a,\"b\"", "a,\"b\"\r\n", "a,5\"\n", "a,b\r", "a,"] {
            let found = read(&csv("key", "payload"), format!("key,payload\nx,y\n{input}").as_bytes());
            assert_eq!(found.map(|lines| lines.len()), Ok(2), "{input}");
        }
        assert_eq!(
            read(&csv("key", "key"), b"key\na\n\"\"").unwrap(),
            vec![entry("a", b"a"), entry("", b"")]
        );
        let wrong = read(&csv("key", "payload"), b"").unwrap_err();
        assert_eq!(wrong, "its first line is empty: name the columns there");
        assert_eq!(
            read(&csv("key", "payload"), &b",".repeat(1 << 20)).unwrap_err(),
            "line 1: it has more than 4096 values"
        );
    }
}
