//! Causes every error through public calls, and checks its message.
//!
//! The table creates a match without a wildcard. A new variant that is not listed here does not
//! compile.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::*;
use crate::{Builder, BuilderOptions, FileBuilder, FileOptions, Reader, Source};

macro_rules! errors {
    ($($variant:ident, $provoke:expr, $says:expr;)*) => {
        fn variant(error: &Error) -> &'static str {
            match error { $(Error::$variant { .. } => stringify!($variant),)* }
        }
        const CASES: &[(&str, fn() -> Error, &[&str])] = &[$((stringify!($variant), $provoke, &$says),)*];
    };
}

errors! {
    Io, unreadable, ["I/O failed: permission denied"];
    Damaged, damaged, ["damaged at byte 0", "checksum", "restore the file"];
    Newer, newer, ["version 5", "newer than 4", "use a newer release"];
    NotACodex, || Reader::open(Bytes::from(vec![7; 500]), 500, None).map(drop).unwrap_err(),
        ["not a codex", "footer", "check the path"];
    OutOfOrder, || builder().add(b"k", b"").unwrap_err(), ["entry 1", "not greater", "add keys in order"];
    TooLarge, || builder().add(&[0; 70_000], b"").unwrap_err(), ["the key of 70000 bytes", "65536", "split it"];
    Duplicate, || finish(&[b"oak", b"elm", b"oak"], "new", false), ["key \"oak\"", "added twice", "the first or the last"];
    Exists, || finish(&[], "there", false), ["there exists already", "choose another name"];
    Cancelled, || finish(&[b"oak", b"elm", b"ash"], "new", true), ["cancelled", "nothing was left behind"];
    Lost, lost, ["lost its position", "seek before the next move"];
}

/// Builds a file of these keys in a folder that already has a file.
fn finish(keys: &[&[u8]], name: &str, cancel: bool) -> Error {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("there"), "").unwrap();
    let build = || {
        let mut builder = FileBuilder::new(dir.path().join(name), FileOptions::default())?;
        if cancel {
            builder.on_progress(|_| ControlFlow::Break(()));
        }
        // The entries exceed a segment.
        keys.iter().try_for_each(|key| builder.add(key, &[7; 20_000]))?;
        builder.finish()
    };
    build().unwrap_err()
}

fn builder() -> Builder<Vec<u8>> {
    let mut builder = Builder::new(Vec::new(), BuilderOptions::default());
    builder.add(b"k", b"value").unwrap();
    builder
}

fn file() -> Vec<u8> {
    builder().finish().unwrap().1
}

fn open(file: Vec<u8>) -> Result<Reader<Bytes>> {
    let len = file.len() as u64;
    Reader::open(Bytes::from(file), len, None)
}

fn unreadable() -> Error {
    struct Refused;
    impl Source for Refused {
        fn read(&self, _: u64, _: usize) -> io::Result<Bytes> {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
    Reader::open(Refused, 1000, None).map(drop).unwrap_err()
}

fn with_damage() -> Reader<Bytes> {
    let mut bad = file();
    bad[6] ^= 1;
    open(bad).unwrap()
}

fn damaged() -> Error {
    with_damage().get(b"k").unwrap_err()
}

fn newer() -> Error {
    let mut bad = file();
    let footer = bad.len() - 128;
    bad[footer + 8] = crate::VERSION as u8 + 1;
    let sum = crate::format::sum(&bad[footer..footer + 120]);
    bad[footer + 120..].copy_from_slice(&sum.to_le_bytes());
    open(bad).map(drop).unwrap_err()
}

/// A cursor with a lost position moves in neither direction.
fn lost() -> Error {
    let reader = with_damage();
    let mut cursor = reader.cursor();
    assert!(cursor.next().is_err());
    assert!(matches!(cursor.prev(), Err(Error::Lost)));
    cursor.next().unwrap_err()
}

#[test]
fn every_error_is_met_and_says_what_happened_and_what_to_do() {
    for (name, provoke, says) in CASES {
        let error = provoke();
        let message = error.to_string();
        assert_eq!(variant(&error), *name, "{message}");
        for words in *says {
            assert!(message.contains(words), "{name}: {message:?} does not hold {words:?}");
        }
    }
}
