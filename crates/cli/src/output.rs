//! What a command prints: values that know how to be read by people and by programs.
//!
//! Only values go to the standard output; progress goes to the standard error, and only where that
//! is a terminal. A reader that leaves early (`brooklet list … | head`) is no failure: see
//! [`Kind::PipeClosed`](crate::failure::Kind).

use std::fmt::{self, Display, Write as _};
use std::io::{self, BufWriter, Stdout, Write};

use indicatif::{ProgressBar, ProgressStyle};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::failure::Failure;

/// The standard output, buffered.
pub struct Output {
    json: bool,
    to: BufWriter<Stdout>,
}

impl Output {
    /// Prints JSON if `json`, text for people otherwise.
    pub fn new(json: bool) -> Self {
        Self { json, to: BufWriter::with_capacity(64 << 10, io::stdout()) }
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
        if !self.json {
            writeln!(self.to, "{line}")?;
        }
        Ok(())
    }

    /// Prints a document for programs only.
    pub fn document(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        if self.json {
            serde_json::to_writer(&mut self.to, value).map_err(io::Error::from)?;
            writeln!(self.to)?;
        }
        Ok(())
    }

    /// Prints bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.to.write_all(bytes)?)
    }

    /// Tells people something at once.
    pub fn tell(&mut self, line: impl Display) -> Result<(), Failure> {
        self.line(line)?;
        self.flush()
    }

    /// Hands everything printed to the reader.
    pub fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.to.flush()?)
    }
}

/// A progress bar on the standard error, where that is a terminal.
pub fn progress(len: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta}").expect("a fixed template");
    ProgressBar::new(len).with_style(style).with_message(what)
}

/// A line that tells how far something is whose end is not known, on the standard error, where that
/// is a terminal.
pub fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("a fixed template");
    ProgressBar::new_spinner().with_style(style)
}

/// Bytes of a user, printable: UTF-8 as it is, all else escaped; in JSON base 16 under another name
/// where not UTF-8.
pub struct Octets<'a> {
    bytes: &'a [u8],
    names: [&'static str; 2],
}

impl<'a> Octets<'a> {
    /// A payload: `text` or `base16`.
    pub fn payload(bytes: &'a [u8]) -> Self {
        Self { bytes, names: ["text", "base16"] }
    }

    /// The value of a key: `value` or `value_base16`.
    pub fn value(bytes: &'a [u8]) -> Self {
        Self { bytes, names: ["value", "value_base16"] }
    }

    /// The id of a record: `id` or `id_base16`.
    pub fn id(bytes: &'a [u8]) -> Self {
        Self { bytes, names: ["id", "id_base16"] }
    }

    /// A tag: `tag` or `tag_base16`.
    pub fn tag(bytes: &'a [u8]) -> Self {
        Self { bytes, names: ["tag", "tag_base16"] }
    }

    /// A key: `key` or `key_base16`.
    pub fn key(bytes: &'a [u8]) -> Self {
        Self { bytes, names: ["key", "key_base16"] }
    }
}

impl Display for Octets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
            }
            write!(f, "{}", chunk.invalid().escape_ascii())?;
        }
        Ok(())
    }
}

/// A map of one entry, to be flattened into a row.
impl Serialize for Octets<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match std::str::from_utf8(self.bytes) {
            Ok(text) => map.serialize_entry(self.names[0], text)?,
            Err(_) => {
                let digits = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
                map.serialize_entry(self.names[1], &digits)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_show_text_as_it_is_and_escape_the_rest() {
        let shown = |bytes: &[u8]| Octets::payload(bytes).to_string();
        assert_eq!(shown("grün 😀".as_bytes()), "grün 😀");
        assert_eq!(shown(b"a\n\x00b"), r"a\n\u{0}b");
        assert_eq!(shown(b"a\xff\xc3"), r"a\xff\xc3");
        let json = |octets: Octets<'_>| serde_json::to_string(&octets).unwrap();
        assert_eq!(json(Octets::payload(b"a\n")), r#"{"text":"a\n"}"#);
        assert_eq!(json(Octets::key(b"\x00\xff")), r#"{"key_base16":"00ff"}"#);
    }
}
