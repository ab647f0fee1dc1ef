//! Logs and their entries as people bring them: lines of JSON, or comma-separated values.

use std::borrow::Cow;
use std::io::{self, BufRead};
use std::time::Duration;

use brooklet::Retention;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::codex::input::{base16, bytes, key_of};
use crate::import::table::{Fault, Table};
use crate::lines::{LONGEST, read_line};

/// How lines are written.
pub enum Source {
    /// A JSON object each.
    Ndjson,
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
        Source::Ndjson => json_lines(input, take),
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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    entries: Option<u64>,
    bytes: Option<u64>,
    age_ms: Option<u64>,
}

/// The log of the line before, and the number that its next entry has, where lines tell that.
#[derive(Default)]
struct Before {
    key: Vec<u8>,
    next: Option<u64>,
}

fn json_lines<E>(
    mut input: impl BufRead,
    mut take: impl FnMut(Line<'_>) -> Result<(), E>,
) -> Result<(), Refused<E>> {
    let (mut text, mut before) = (Vec::new(), Before::default());
    for number in 1u64.. {
        let wrong = |what: String| Refused::Input(format!("line {number}: {what}"));
        if !read_line(&mut input, &mut text, LONGEST).map_err(Refused::Io)?.map_err(wrong)? {
            break;
        }
        let line: Json<'_> = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        let line = before.follow(line).map_err(wrong)?;
        take(line).map_err(|error| Refused::Taker(format!("line {number}"), error))?;
    }
    Ok(())
}

impl Before {
    /// What a line says, after the ones before it.
    fn follow<'a>(&mut self, line: Json<'a>) -> Result<Line<'a>, String> {
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
            *self = Self { key: key.to_vec(), next: None };
        }
        let Some(payload) = payload else {
            let Some(first) = line.first.filter(|_| line.seq.is_none()) else {
                return Err("the payload is missing: add text, base16 or json, or first for a log".to_owned());
            };
            // What else is said of a log follows from its entries.
            let _ = (line.next, line.entries);
            self.next = Some(first);
            return Ok(Line::Log {
                key,
                first,
                retention: line.retention.map_or(Retention::new(), Kept::retention),
            });
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
            (_, seq) => self.next = seq.and_then(|seq| seq.checked_add(1)),
        }
        Ok(Line::Entry { key, payload })
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
                let columns = names.len();
                let why = format!("it has {values} values, and the first line names {columns} columns");
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
        assert_eq!(read(&Source::Ndjson, input), Ok([log].into_iter().chain(entries).collect()));
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
        ] {
            let wrong = read(&Source::Ndjson, input.as_bytes()).unwrap_err();
            assert!(wrong.starts_with(says), "{wrong}");
        }
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
        assert_eq!(wrong, "line 3: it has 1 values, and the first line names 2 columns");
        let wrong = read(&csv("key", "payload"), b"key,payload\na,b\n\na,b,c\n").unwrap_err();
        assert_eq!(wrong, "line 3: it has more than 2 values");
        assert_eq!(
            read(&csv("key", "key"), b"key\na\n\"\"").unwrap(),
            vec![entry("a", b"a"), entry("", b"")]
        );
        let wrong = read(&csv("key", "payload"), b"").unwrap_err();
        assert!(wrong.starts_with("there is no column key, only ;"), "{wrong}");
        assert_eq!(
            read(&csv("key", "payload"), &b",".repeat(1 << 20)).unwrap_err(),
            "line 1: it has more than 4096 values"
        );
    }
}
