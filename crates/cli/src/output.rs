//! The output of a command: values that are printed for people, or as JSON for programs.
//!
//! Only values go to the standard output; progress goes to the standard error, and only where that
//! is a terminal. A reader that leaves early (`brooklet list … | head`) is no failure: it ends a
//! command that only reads (see [`Kind::PipeClosed`](crate::failure::Kind)), and a command that
//! writes goes on without it.

use std::fmt::{self, Display, Write as _};
use std::io::{self, BufWriter, Stdout, Write};

use indicatif::{ProgressBar, ProgressStyle};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::failure::{Failure, Kind};

/// The standard output, buffered.
pub struct Output {
    json: bool,
    to: BufWriter<Named>,
    /// Whether the command goes on once nobody reads its output.
    outlives: bool,
    /// Whether nobody reads it any more, and the command goes on.
    is_closed: bool,
}

impl Output {
    /// Prints JSON if `json`, text for people otherwise. A command that `outlives` its reader does
    /// its work to the end, and prints no more.
    pub fn new(json: bool, outlives: bool) -> Self {
        Self { json, to: buffered(), outlives, is_closed: false }
    }

    /// Whether programs read it.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a value on a line of its own.
    pub fn put(&mut self, value: &(impl Serialize + Display)) -> Result<(), Failure> {
        self.line(value)?;
        self.document(value)
    }

    /// Prints a line for people only.
    pub fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        if self.json { Ok(()) } else { self.print(|to| writeln!(to, "{line}")) }
    }

    /// Prints a document for programs only.
    pub fn document(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let written = |to: &mut BufWriter<Named>| {
            serde_json::to_writer(&mut *to, value).map_err(io::Error::from)?;
            writeln!(to)
        };
        if self.json { self.print(written) } else { Ok(()) }
    }

    /// Prints bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        // The parser of arguments sees only one order of the two.
        if self.json {
            return Err(Failure::new(Kind::Usage, "use only one of --json and --raw"));
        }
        self.script(bytes)
    }

    /// Prints a script. It is the same for people and for programs.
    pub fn script(&mut self, script: &[u8]) -> Result<(), Failure> {
        self.print(|to| to.write_all(script))
    }

    /// Tells people something at once.
    pub fn tell(&mut self, line: impl Display) -> Result<(), Failure> {
        self.line(line)?;
        self.flush()
    }

    /// Hands everything printed to the reader.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.print(Write::flush)
    }

    fn print(&mut self, how: impl FnOnce(&mut BufWriter<Named>) -> io::Result<()>) -> Result<(), Failure> {
        if self.is_closed {
            return Ok(());
        }
        match how(&mut self.to) {
            Err(error) if self.outlives && error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            printed => Ok(printed?),
        }
    }
}

/// The standard output, whose errors name it.
pub struct Named(Stdout);

/// Returns the standard output, buffered.
pub fn buffered() -> BufWriter<Named> {
    BufWriter::with_capacity(64 << 10, Named(io::stdout()))
}

impl Write for Named {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("writing the standard output failed: {error}"))
}

/// Returns a number with its noun, such as `1 entry` or `2 entries`.
pub fn counted(number: u64, noun: &str) -> String {
    match (number, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        (_, None) => format!("{number} {noun}s"),
    }
}

/// A progress bar on the standard error, where that is a terminal.
pub fn progress(len: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta}").expect("a fixed template");
    ProgressBar::new(len).with_style(style).with_message(what)
}

/// Returns a progress line for work of unknown length, on the standard error, if that is a
/// terminal.
pub fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("a fixed template");
    ProgressBar::new_spinner().with_style(style)
}

/// Bytes of a user. People see UTF-8 as it is and all else escaped. In JSON, the bytes are two
/// fields, of which one is null: the text, or digits of base 16 where the bytes are not UTF-8. Both
/// are null where there are no bytes.
pub struct Octets<'a> {
    bytes: Option<&'a [u8]>,
    names: [&'static str; 2],
}

impl<'a> Octets<'a> {
    /// A payload: `text` and `base16`.
    pub fn payload(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), names: ["text", "base16"] }
    }

    /// The value of a key: `value` and `value_base16`.
    pub fn value(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), names: ["value", "value_base16"] }
    }

    /// The id of a record: `id` and `id_base16`.
    pub fn id(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), names: ["id", "id_base16"] }
    }

    /// A tag: `tag` and `tag_base16`.
    pub fn tag(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), names: ["tag", "tag_base16"] }
    }

    /// A key: `key` and `key_base16`.
    pub fn key(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), names: ["key", "key_base16"] }
    }

    /// The name of a document: `document` and `document_base16`.
    pub fn document(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), names: ["document", "document_base16"] }
    }

    /// The first bytes of the keys of documents: `below` and `below_base16`.
    pub fn below(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), names: ["below", "below_base16"] }
    }

    /// The author of an update: `author` and `author_base16`.
    pub fn author(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), names: ["author", "author_base16"] }
    }

    /// The id of a request: `request` and `request_base16`.
    pub fn request(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), names: ["request", "request_base16"] }
    }

    /// The first key of a file: `first` and `first_base16`.
    pub fn first(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), names: ["first", "first_base16"] }
    }

    /// The last key of a file: `last` and `last_base16`.
    pub fn last(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), names: ["last", "last_base16"] }
    }

    /// A pattern of keys: `pattern` and `pattern_base16`.
    pub fn pattern(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), names: ["pattern", "pattern_base16"] }
    }

    /// Returns the fields of `named`, both null if there are no bytes.
    pub fn or_null(named: fn(&'a [u8]) -> Self, bytes: Option<&'a [u8]>) -> Self {
        Self { bytes, ..named(&[]) }
    }

    /// Returns whether there are no bytes.
    pub fn is_null(&self) -> bool {
        self.bytes.is_none()
    }

    /// Returns the bytes for people, as a payload: text, or else hexadecimal digits beside it.
    pub fn dumped(&self) -> Dumped<'a> {
        Dumped(self.bytes.unwrap_or_default())
    }
}

impl Display for Octets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.bytes.unwrap_or_default().utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
            }
            write!(f, "{}", chunk.invalid().escape_ascii())?;
        }
        Ok(())
    }
}

/// A map of two entries, to be flattened into a row.
impl Serialize for Octets<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
        let others = self.bytes.filter(|_| text.is_none());
        let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry(self.names[0], &text)?;
        map.serialize_entry(self.names[1], &others.map(digits))?;
        map.end()
    }
}

/// A payload for people: text, or else hexadecimal digits beside the characters.
pub struct Dumped<'a>(&'a [u8]);

/// Number of bytes in a line of digits, and the indent of all lines after the first.
const DIGITS: usize = 16;
const INDENT: usize = 8;

impl Display for Dumped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_odd = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
        if std::str::from_utf8(self.0).is_ok_and(|text| !text.contains(is_odd)) {
            return Octets::payload(self.0).fmt(f);
        }
        for (line, bytes) in self.0.chunks(DIGITS).enumerate() {
            if line > 0 {
                write!(f, "\n{:INDENT$}", "")?;
            }
            let digits = bytes.iter().map(|byte| format!("{byte:02x} ")).collect::<String>();
            let shown = |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' };
            let text = bytes.iter().map(shown).collect::<String>();
            write!(f, "{digits:width$} |{text}|", width = 3 * DIGITS)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_kind_is_singular() {
        let counts = [(0, "log"), (1, "log"), (2, "log"), (1, "entry"), (2, "entry")];
        let shown = counts.map(|(number, noun)| counted(number, noun));
        assert_eq!(shown, ["0 logs", "1 log", "2 logs", "1 entry", "2 entries"]);
    }

    #[test]
    fn octets_show_text_as_it_is_and_escape_the_rest() {
        let escaped = |bytes: &[u8]| Octets::key(bytes).to_string();
        assert_eq!(escaped("grün 😀".as_bytes()), "grün 😀");
        assert_eq!(escaped(b"a\n\x00b"), r"a\n\u{0}b");
        assert_eq!(escaped(b"a\xff\xc3"), r"a\xff\xc3");
        let shown = |bytes: &[u8]| Dumped(bytes).to_string();
        assert_eq!(shown("grün\t😀\n".as_bytes()), r"grün\t😀\n");
        assert_eq!(shown(b"a\n\x00b"), format!("{:48} |a..b|", "61 0a 00 62"));
        let (first, second) = ("61 ".repeat(16), format!("{:48}", "ff"));
        assert_eq!(
            shown(b"aaaaaaaaaaaaaaaa\xff"),
            format!("{first} |aaaaaaaaaaaaaaaa|\n        {second} |.|")
        );
        let json = |octets: Octets<'_>| serde_json::to_string(&octets).unwrap();
        assert_eq!(json(Octets::payload(b"a\n")), r#"{"text":"a\n","base16":null}"#);
        assert_eq!(json(Octets::key(b"\x00\xff")), r#"{"key":null,"key_base16":"00ff"}"#);
        let none = Octets::or_null(Octets::value, None);
        assert_eq!(
            (json(none), Octets::or_null(Octets::value, None).is_null()),
            (r#"{"value":null,"value_base16":null}"#.into(), true)
        );
    }
}
