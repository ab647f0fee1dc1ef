//! Entries as people bring them: lines, JSON, or lengths before bytes.

use std::borrow::Cow;
use std::io::BufRead;
use std::ops::ControlFlow;

use brooklet_codex::{MAX_KEY, MAX_VALUE};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::lines::{not_json, read_line, without_mark};

/// The format of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One entry per line: the key, a tab, the value, unescaped; without a tab the value is empty
    Tsv,
    /// A JSON object per line: {"key": "…", "value": …}; a value that is no string is kept as
    /// written, and `key_base16` and `value_base16` hold bytes that are not text
    Ndjson,
    /// Length of the key (4 bytes, little endian), the key, length of the value (4 bytes), the
    /// value
    Lengths,
}

impl Format {
    /// That of a file, by its name.
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, suffix) = name.rsplit_once('.')?;
        match suffix {
            "tsv" | "txt" => Some(Format::Tsv),
            "ndjson" | "jsonl" => Some(Format::Ndjson),
            "bin" => Some(Format::Lengths),
            _ => None,
        }
    }
}

/// What is wrong with an input, and where: the line, or the entry where there are no lines, from 1
/// on.
#[derive(Debug)]
pub enum Wrong<E> {
    /// It does not say what it should.
    Input(String),
    /// It cannot be read.
    Io(std::io::Error),
    /// Whoever takes the entries refused one; where it was.
    Refused(String, E),
}

/// The most bytes of a line: what a codex can hold, written as base 16.
const LONGEST: u64 = 2 << 30;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
    key_base16: Option<String>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    value_base16: Option<String>,
}

/// Gives the entries of an input to `take`, until that breaks.
pub fn entries<E>(
    format: Format,
    mut input: impl BufRead,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, E>,
) -> Result<(), Wrong<E>> {
    let (mut line, mut value) = (Vec::new(), Vec::new());
    for number in 1u64.. {
        let at = || match format {
            Format::Lengths => format!("entry {number}"),
            _ => format!("line {number}"),
        };
        let wrong = |what: String| Wrong::Input(format!("{}: {what}", at()));
        let flow = match format {
            Format::Tsv => {
                if !read_line(&mut input, &mut line, LONGEST).map_err(Wrong::Io)?.map_err(wrong)? {
                    return Ok(());
                }
                let split = line.iter().position(|&byte| byte == b'\t');
                let (key, value) = split.map_or((&line[..], &[][..]), |at| (&line[..at], &line[at + 1..]));
                take(key, value)
            }
            Format::Ndjson => {
                if !read_line(&mut input, &mut line, LONGEST).map_err(Wrong::Io)?.map_err(wrong)? {
                    return Ok(());
                }
                let (key, value) = json(without_mark(&line, number)).map_err(wrong)?;
                take(&key, &value)
            }
            Format::Lengths => {
                if input.fill_buf().map_err(Wrong::Io)?.is_empty() {
                    return Ok(());
                }
                for (bytes, most) in [(&mut line, MAX_KEY), (&mut value, MAX_VALUE)] {
                    read_counted(&mut input, bytes, most as u64).map_err(Wrong::Io)?.map_err(wrong)?;
                }
                take(&line, &value)
            }
        };
        match flow {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(()),
            Err(error) => return Err(Wrong::Refused(at(), error)),
        }
    }
    Ok(())
}

/// Reads a length, and so many bytes.
fn read_counted(
    input: &mut impl BufRead,
    bytes: &mut Vec<u8>,
    most: u64,
) -> std::io::Result<Result<(), String>> {
    let mut len = [0; 4];
    let short = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Ok(Err("the input ends before the end of the entry".to_owned())),
        _ => Err(error),
    };
    if let Err(error) = input.read_exact(&mut len) {
        return short(error);
    }
    let len = u64::from(u32::from_le_bytes(len));
    if len > most {
        return Ok(Err(format!("a length of {len} bytes is too large: the most is {most}")));
    }
    bytes.clear();
    // What is claimed and not there is not worth an allocation.
    let read = std::io::Read::take(&mut *input, len);
    if std::io::Read::read_to_end(&mut { read }, bytes)? as u64 != len {
        return short(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Ok(()))
}

/// Bytes of a line, as they are there or made of what is there.
type Bytes<'a> = Cow<'a, [u8]>;

/// The key and value of a JSON line.
fn json(line: &[u8]) -> Result<(Bytes<'_>, Bytes<'_>), String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| not_json(&error))?;
    let key = key_of(line.key, line.key_base16)?;
    let value = match (line.value.map(RawValue::get), line.value_base16) {
        (Some(text), None) if text.starts_with('"') => {
            let text: String = serde_json::from_str(text).map_err(|error| error.to_string())?;
            Cow::Owned(text.into_bytes())
        }
        (Some(json), None) => Cow::Borrowed(json.as_bytes()),
        (None, Some(digits)) => Cow::Owned(base16(&digits)?),
        (None, None) => Cow::Borrowed(&[][..]),
        (Some(_), Some(_)) => return Err("use only one of value and value_base16".to_owned()),
    };
    Ok((key, value))
}

/// The key of a line, which says it in one of two ways.
pub fn key_of<'a>(text: Option<Cow<'a, str>>, digits: Option<String>) -> Result<Bytes<'a>, String> {
    match (text, digits) {
        (Some(text), None) => Ok(bytes(text)),
        (None, Some(digits)) => Ok(Cow::Owned(base16(&digits)?)),
        _ => Err("exactly one of key and key_base16 is required".to_owned()),
    }
}

/// The bytes of a text.
pub fn bytes(text: Cow<'_, str>) -> Bytes<'_> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// Bytes of digits of base 16.
pub fn base16(digits: &str) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pairs = digits.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    bytes
        .collect::<Option<_>>()
        .ok_or_else(|| "base 16 needs pairs of the digits 0 to 9 and a to f".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: Format, input: &[u8]) -> Result<Vec<(String, String)>, String> {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let mut found = Vec::new();
        let done = entries(format, input, |key, value| {
            found.push((text(key), text(value)));
            Ok::<_, ()>(ControlFlow::Continue(()))
        });
        match done {
            Ok(()) => Ok(found),
            Err(Wrong::Input(what)) => Err(what),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn pairs(pairs: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        Ok(pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
    }

    #[test]
    fn lines_are_split_at_the_first_tab() {
        let input = b"a\tb\tc\n\n\tempty key\nno tab\r\nlast";
        let expected = [("a", r"b\tc"), ("", ""), ("", "empty key"), (r"no tab\r", ""), ("last", "")];
        assert_eq!(read(Format::Tsv, input), pairs(&expected));
        assert_eq!(read(Format::Tsv, b""), pairs(&[]));
    }

    #[test]
    fn json_says_text_bytes_and_json() {
        let input = br#"{"key": "a\n", "value": "b\u0041"}
            {"value": {"n": [1,  2.50]}, "key": "c"}
            {"key_base16": "00fF", "value_base16": ""}
            {"key": ""}"#;
        let expected = [(r"a\n", "bA"), ("c", r#"{\"n\": [1,  2.50]}"#), (r"\x00\xff", ""), ("", "")];
        assert_eq!(read(Format::Ndjson, input), pairs(&expected));
        let marked = "\u{feff}{\"key\": \"c\"}";
        assert_eq!(read(Format::Ndjson, marked.as_bytes()), pairs(&[("c", "")]));
        for (input, says) in [
            (&b"{}"[..], "line 1: exactly one of key and key_base16"),
            (b"{\"key\": \"a\"}\n{\"key\": 7}", "line 2: invalid type"),
            (b"{\"key\": \"a\", \"vale\": 1}", "line 1: unknown field `vale`"),
            (b"{\"key_base16\": \"abc\"}", "line 1: base 16"),
            (b"{\"key\": \"a\", \"value\": 1, \"value_base16\": \"00\"}", "line 1: use only one of value"),
            (b"\n", "line 1: it is empty"),
            (b"{\"key\": \"\xff\"}", "line 1: invalid unicode"),
        ] {
            let wrong = read(Format::Ndjson, input).unwrap_err();
            assert!(wrong.starts_with(says), "{wrong}");
        }
    }

    #[test]
    fn lengths_stand_before_bytes() {
        let input = b"\x01\0\0\0a\x02\0\0\0\n\t\0\0\0\0\0\0\0\0";
        assert_eq!(read(Format::Lengths, input), pairs(&[("a", r"\n\t"), ("", "")]));
        for cut in 1..11 {
            let wrong = read(Format::Lengths, &input[..cut]).unwrap_err();
            assert_eq!(wrong, "entry 1: the input ends before the end of the entry", "{cut}");
        }
        // What is claimed is refused before it is read.
        for (claimed, what) in [(u32::MAX, "4294967295"), (65_537, "65537")] {
            let wrong = read(Format::Lengths, &[&claimed.to_le_bytes()[..], &[0; 90]].concat()).unwrap_err();
            assert!(wrong.starts_with(&format!("entry 1: a length of {what} bytes is too large")), "{wrong}");
        }
        let value = [&b"\x01\0\0\0a"[..], &(1_u32 << 30).to_le_bytes(), &[0; 90]].concat();
        let wrong = read(Format::Lengths, &value).unwrap_err();
        assert!(wrong.starts_with("entry 1: a length of 1073741824 bytes is too large"), "{wrong}");
    }

    #[test]
    fn names_tell_formats() {
        assert_eq!(Format::of_name("a.b.tsv"), Some(Format::Tsv));
        assert_eq!(Format::of_name("x.jsonl"), Some(Format::Ndjson));
        assert_eq!(Format::of_name("x.bin"), Some(Format::Lengths));
        assert_eq!((Format::of_name("tsv"), Format::of_name("x.codex")), (None, None));
    }
}
