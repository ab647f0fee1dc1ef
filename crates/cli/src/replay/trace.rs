//! Keystroke traces: a document's edits, and its text before and after them.
//!
//! The format: one JSON object, gzipped or not, with `startContent`, `endContent` and `txns`, a
//! list of `{patches: [[position, deleted, inserted], …]}`. Positions and counts are in Unicode
//! scalar values; patches apply one after another. Fields unknown here are ignored.
//!
//! A transaction is an entry of the document's log: its patches as compact JSON. A text that is
//! there before the first of them is an entry too, so that the log alone rebuilds the document.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::marker::PhantomData;
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _, Serialize};
use serde_json::value::RawValue;

use crate::failure::Failure;
use crate::lines::too_long;

/// A trace, ready to be appended.
#[derive(Debug)]
pub struct Trace {
    /// Name of the document.
    pub name: String,
    /// The log's entries.
    pub payloads: Vec<Box<[u8]>>,
    /// The text that they make; unknown where only some of the transactions were asked for.
    pub end: Option<String>,
}

/// The form of a trace. Lists are parsed by [`UpTo`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Form<'a> {
    #[serde(default)]
    start_content: String,
    end_content: String,
    #[serde(borrow)]
    txns: &'a RawValue,
}

#[derive(Deserialize)]
struct Transaction<'a> {
    #[serde(borrow)]
    patches: &'a RawValue,
}

/// Position, characters to delete there, text to insert there.
#[derive(Serialize, Deserialize)]
struct Patch(usize, usize, String);

impl Trace {
    /// Reads a trace file; of its transactions at most `limit`.
    pub fn load(path: &Path, limit: Option<usize>) -> Result<Self, Failure> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let name = name.strip_suffix(".json").unwrap_or(name);
        let text = read(path)?;
        Self::parse(name, &text, limit).map_err(|why| Failure::malformed(path, why))
    }

    /// Reads the text of a trace of the document `name`.
    pub fn parse(name: &str, text: &[u8], limit: Option<usize>) -> Result<Self, String> {
        Self::parse_up_to(MOST, name, text, limit)
    }

    /// Reads a trace of at most `most` transactions, with as many patches each.
    fn parse_up_to(most: usize, name: &str, text: &[u8], limit: Option<usize>) -> Result<Self, String> {
        let wrong = |error: serde_json::Error| format!("not a keystroke trace: {error}");
        let form: Form<'_> = serde_json::from_slice(text).map_err(wrong)?;
        let txns: Vec<Transaction<'_>> = list(form.txns, most).map_err(wrong)?;
        let count = limit.unwrap_or(usize::MAX).min(txns.len());
        let complete = count == txns.len();
        let payload = |patches: &[Patch]| serde_json::to_vec(patches).expect("plain data").into();
        let start = (!form.start_content.is_empty()).then(|| payload(&[Patch(0, 0, form.start_content)]));
        let edits = txns.iter().take(count).map(|txn| Ok(payload(&list(txn.patches, most)?)));
        let payloads = start.into_iter().map(Ok).chain(edits).collect::<Result<_, _>>().map_err(wrong)?;
        Ok(Self { name: name.to_owned(), payloads, end: complete.then_some(form.end_content) })
    }
}

/// Most entries of an input, and most patches of one of them: each takes some times the memory of
/// its shortest text.
pub const MOST: usize = 1 << 22;

/// Parses a list of at most `most` values.
fn list<'a, T: Deserialize<'a>>(text: &'a RawValue, most: usize) -> Result<Vec<T>, serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_str(text.get());
    parser.deserialize_seq(UpTo { most, values: PhantomData })
}

/// Takes the values of a list, up to a number.
struct UpTo<T> {
    most: usize,
    values: PhantomData<T>,
}

impl<'a, T: Deserialize<'a>> Visitor<'a> for UpTo<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            if values.len() == self.most {
                return Err(A::Error::custom(too_many(self.most)));
            }
            values.push(value);
        }
        Ok(values)
    }
}

/// Returns what is wrong with an input of more than `most` entries, or patches of one entry.
pub fn too_many(most: usize) -> String {
    format!("it has more than {most} entries, or patches of one entry: split it")
}

/// Most bytes of a file, and of the text that it unzips to: all of the text is held in memory.
const LARGEST: u64 = 1 << 30;

/// Reads a file, unzipping it if it is gzipped.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let doing = || format!("reading {}", path.display());
    let file = File::open(path).map_err(Failure::opening(path))?;
    let len = file.metadata().map_err(Failure::io(doing()))?.len();
    if len > LARGEST {
        return Err(Failure::malformed(path, too_long(LARGEST)));
    }
    unzip(BufReader::new(file), LARGEST).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
            Failure::malformed(path, format_args!("cannot be unzipped: {error}"))
        }
        ErrorKind::FileTooLarge => Failure::malformed(path, error),
        _ => Failure::io(doing())(error),
    })
}

/// Reads the text that an input stands for, gzipped or not. A few bytes may unzip to very many: no
/// more than `most` bytes are unzipped.
///
/// # Errors
/// `FileTooLarge` where the text is longer.
pub fn unzip(mut input: impl BufRead, most: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if input.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        MultiGzDecoder::new(input).take(most + 1).read_to_end(&mut text)?;
    } else {
        input.take(most + 1).read_to_end(&mut text)?;
    }
    if text.len() as u64 > most {
        return Err(io::Error::new(ErrorKind::FileTooLarge, too_long(most)));
    }
    Ok(text)
}

/// A text under edit, cut in two where the last edit was: edits cost what lies between them, not
/// what lies behind.
#[derive(Default)]
pub struct Text {
    left: Vec<char>,
    /// From the end backwards.
    right: Vec<char>,
}

impl Text {
    /// Applies an entry of a document's log.
    pub fn apply(&mut self, payload: &[u8]) -> Result<(), String> {
        let patches: Vec<Patch> = serde_json::from_slice(payload).map_err(|e| format!("no patches: {e}"))?;
        patches.iter().try_for_each(|patch| self.patch(patch))
    }

    fn patch(&mut self, Patch(position, deleted, inserted): &Patch) -> Result<(), String> {
        let len = self.left.len() + self.right.len();
        if position.checked_add(*deleted).is_none_or(|end| end > len) {
            return Err(format!("deletes {deleted} at {position} of a text of {len} characters"));
        }
        if *position < self.left.len() {
            self.right.extend(self.left.drain(position..).rev());
        } else {
            let stay = len - position;
            self.left.extend(self.right.drain(stay..).rev());
        }
        self.right.truncate(self.right.len() - deleted);
        self.left.extend(inserted.chars());
        Ok(())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.left.iter().chain(self.right.iter().rev()).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn rebuilt(trace: &Trace) -> Result<String, String> {
        let mut text = Text::default();
        trace.payloads.iter().try_for_each(|payload| text.apply(payload))?;
        Ok(text.to_string())
    }

    #[test]
    fn a_trace_rebuilds_its_text_counting_characters() {
        let json = r#"{"kind": "unknown fields are fine", "startContent": "größe", "endContent": "Gr😀ße!", "txns": [
            {"time": "", "patches": [[5, 0, "!"], [0, 1, "G"]]},
            {"patches": []},
            {"patches": [[2, 1, "😀"]], "agent": 7}
        ]}"#;
        let trace = Trace::parse("t", json.as_bytes(), None).unwrap();
        assert_eq!(trace.payloads.len(), 4);
        assert_eq!(&*trace.payloads[1], r#"[[5,0,"!"],[0,1,"G"]]"#.as_bytes());
        assert_eq!(rebuilt(&trace).as_ref().ok(), trace.end.as_ref());
        let cut = Trace::parse("t", json.as_bytes(), Some(1)).unwrap();
        assert_eq!((rebuilt(&cut).unwrap().as_str(), cut.end), ("Größe!", None));
    }

    #[test]
    fn edits_anywhere_match_a_plain_splice() {
        let mut rng = brooklet::io::Rng::new(7);
        let (mut text, mut plain) = (Text::default(), Vec::new());
        for i in 0..2_000 {
            let position = rng.below(plain.len() as u64 + 1) as usize;
            let deleted = rng.below(4).min((plain.len() - position) as u64) as usize;
            let inserted = ["", "a", "é😀", "xyz"][rng.below(4) as usize];
            plain.splice(position..position + deleted, inserted.chars());
            let payload = serde_json::to_vec(&[Patch(position, deleted, inserted.into())]).unwrap();
            text.apply(&payload).unwrap();
            assert_eq!(text.to_string(), plain.iter().collect::<String>(), "after edit {i}");
        }
    }

    #[test]
    fn little_that_unzips_to_much_is_not_held() {
        let mut zipped = GzEncoder::new(Vec::new(), Compression::best());
        io::copy(&mut io::repeat(b' ').take(10 << 20), &mut zipped).unwrap();
        let zipped = zipped.finish().unwrap();
        assert!(zipped.len() < 20_000);
        assert_eq!(unzip(&zipped[..], 10 << 20).unwrap().len(), 10 << 20);
        assert_eq!(unzip(&zipped[..], 1 << 20).unwrap_err().kind(), ErrorKind::FileTooLarge);
        // Several parts, one behind the other.
        assert!(unzip(&zipped.repeat(2)[..], 10 << 20).is_err());
        assert!(unzip(BufReader::new(io::repeat(b'x')), 1000).is_err());
        assert_eq!(unzip(&b"plain"[..], 5).unwrap(), b"plain");
        assert!(unzip(&zipped[..100], 10 << 20).is_err_and(|error| error.kind() == ErrorKind::UnexpectedEof));
    }

    #[test]
    fn more_transactions_or_patches_than_are_accepted_are_not_held() {
        let trace = |txns: &str| format!(r#"{{"endContent": "", "txns": [{txns}]}}"#);
        let parse = |txns: &str| Trace::parse_up_to(3, "t", trace(txns).as_bytes(), None);
        let empty = |many: usize| vec![r#"{"patches":[]}"#; many].join(",");
        let one = |many: usize| format!(r#"{{"patches":[{}]}}"#, vec![r#"[0,0,""]"#; many].join(","));
        assert_eq!(parse(&empty(3)).unwrap().payloads.len(), 3);
        assert_eq!(parse(&one(3)).unwrap().payloads.len(), 1);
        for txns in [empty(4), one(4)] {
            let wrong = parse(&txns).unwrap_err();
            assert!(wrong.starts_with("not a keystroke trace: it has more than 3 entries"), "{wrong}");
        }
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let fails = |json: &str| Trace::parse("t", json.as_bytes(), None).unwrap_err();
        assert!(fails("[").starts_with("not a keystroke trace"));
        assert!(fails(r#"{"txns": []}"#).contains("endContent"));
        assert!(fails(r#"{"endContent": "", "txns": [{"patches": [[0, -1, ""]]}]}"#).contains("-1"));
        assert!(fails(r#"{"endContent": "", "txns": [{}]}"#).contains("patches"));
        let mut text = Text::default();
        assert_eq!(text.apply(br#"[[0,1,""]]"#).unwrap_err(), "deletes 1 at 0 of a text of 0 characters");
        assert!(text.apply(br#"[[18446744073709551615,1,""]]"#).is_err());
        assert!(text.apply(b"{").is_err());
    }
}
