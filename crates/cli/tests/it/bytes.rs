//! Every command that takes bytes in gives them out as they were.

use crate::common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use common::{Place, text};

/// 4 KiB by chance, with each of the 256 bytes.
fn bytes() -> Vec<u8> {
    let mut rng = brooklet::io::Rng::new(1);
    let bytes: Vec<u8> = (0..4096).map(|_| rng.next() as u8).collect();
    assert!((0..=255).all(|byte| bytes.contains(&byte)));
    bytes
}

/// A place with a file of these bytes, `bytes`.
fn place() -> (Place, Vec<u8>) {
    let (place, bytes) = (Place::new(), bytes());
    std::fs::write(place.dir.path().join("bytes"), &bytes).unwrap();
    (place, bytes)
}

/// What a command that must work prints.
#[track_caller]
fn printed(place: &Place, args: &[&str]) -> Vec<u8> {
    let output = place.run(args);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{args:?}");
    output.stdout
}

#[test]
fn entries_come_back_as_they_were_appended() {
    let (place, bytes) = place();
    for (key, args, input, seqs) in [
        ("raw", &["--raw"][..], &bytes[..], "0\n"),
        ("dash", &["-"], &bytes, "0\n"),
        ("file", &["--file", "bytes"], b"", "0\n"),
        ("file-dash", &["--file", "-"], &bytes, "0\n"),
        ("two", &["--file", "bytes", "--file", "bytes"], b"", "0\n1\n"),
    ] {
        let appended = place.fed(&[&["append", "STORE", key], args].concat(), input);
        assert_eq!((text(&appended.stderr), text(&appended.stdout)), ("", seqs), "{key}");
        for more in [&["--raw", "--limit", "1"][..], &["--raw", "--limit", "1", "--follow"]] {
            let read = printed(&place, &[&["read", "STORE", key], more].concat());
            assert!(read == bytes, "{key} {more:?}");
        }
    }
    // As JSON, from one log into another, in which the entries get other numbers.
    place.ok(&["append", "STORE", "copy", "first"]);
    let rows = printed(&place, &["read", "STORE", "two", "--json"]);
    let copied = place.fed(&["append", "STORE", "copy", "--json"], &rows);
    assert_eq!(text(&copied.stdout), "{\"key\":\"copy\",\"key_base16\":null,\"seqs\":[1,2]}\n");
    assert!(printed(&place, &["read", "STORE", "copy", "--raw", "--from", "2"]) == bytes);
    let empty = place.fed(&["append", "STORE", "empty", "--raw"], b"");
    assert_eq!((text(&empty.stdout), printed(&place, &["read", "STORE", "empty", "--raw"])), ("0\n", vec![]));
    // The byte that stands for the standard input.
    assert_eq!(text(&place.fed(&["append", "STORE", "sign", "--raw"], b"-").stdout), "0\n");
    assert_eq!(printed(&place, &["read", "STORE", "sign", "--raw"]), b"-");
}

#[test]
fn exported_entries_come_back_as_they_were() {
    let (place, bytes) = place();
    place.ok(&["append", "STORE", "k", "--file", "bytes", "--ring-size", "1M"]);
    let quoted: Vec<u8> =
        bytes.iter().flat_map(|&byte| std::iter::repeat_n(byte, 1 + usize::from(byte == b'"'))).collect();
    let csv = [b"key,payload\nk,\"", &quoted[..], b"\"\n"].concat();
    std::fs::write(place.dir.path().join("x.csv"), csv).unwrap();
    for (format, file) in [("ndjson", "x.ndjson"), ("codex", "x.codex"), ("csv", "x.csv"), ("store", "STORE")]
    {
        if ["ndjson", "codex"].contains(&format) {
            place.ok(&["export", "STORE", "--format", format, "--to", file]);
        }
        place.ok(&["import", format, file, "--format", format]);
        assert!(printed(&place, &["read", format, "k", "--raw"]) == bytes, "{format}");
    }
}

#[test]
fn records_come_back_as_they_were_put() {
    let (place, bytes) = place();
    for (id, args, input) in [
        ("raw", &["--raw"][..], &bytes[..]),
        ("dash", &["-"], &bytes),
        ("default", &[], &bytes),
        ("file", &["--file", "bytes"], b""),
        ("file-dash", &["--file", "-"], &bytes),
    ] {
        let put = place.fed(&[&["tags", "put", "STORE", id, "-t", "all"], args].concat(), input);
        assert_eq!((put.status.code(), text(&put.stderr)), (Some(0), ""), "{id}");
        assert!(printed(&place, &["tags", "get", "STORE", id, "--raw"]) == bytes, "{id}");
    }
    let found = printed(&place, &["tags", "find", "STORE", "all", "--limit", "1", "--raw"]);
    assert!(found == [&bytes[..], b"\n"].concat());
    assert_eq!(place.run(&["tags", "put", "STORE", "x", "a", "--file", "bytes"]).status.code(), Some(2));
    assert_eq!(place.run(&["tags", "put", "STORE", "x", "a", "--raw"]).status.code(), Some(2));
    assert!(place.fails(4, &["tags", "put", "STORE", "x", "--file", "none"]).contains("opening none failed"));
    let json = place.run(&["--json", "tags", "get", "STORE", "raw", "--raw"]);
    assert!(json.status.code() == Some(2) && text(&json.stderr).contains("one of --json and --raw"));

    // Ids, tags and payloads of the command line; the system ends an argument at a zero byte.
    let argument: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
    let (id, tag) = (OsStr::from_bytes(b"\xff\xfe"), OsStr::from_bytes(b"\xfd"));
    let run = |args: &[&str], more: &[&OsStr]| {
        let output = place.command(args).args(more).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    run(&["tags", "put", "STORE", "--tag"], &[tag, id, OsStr::from_bytes(&argument)]);
    assert!(run(&["tags", "get", "STORE", "--raw"], &[id]) == argument);
    assert!(run(&["tags", "find", "STORE", "--raw"], &[tag]) == [&argument[..], b"\n"].concat());
    assert_eq!(run(&["tags", "count", "STORE", "--none"], &[tag]), b"5\n");
    assert_eq!(run(&["tags", "remove", "STORE"], &[id]), b"\\xff\\xfe  removed\n");
}

/// Lines of text keep all bytes but the end of the line; lines of JSON are text.
#[test]
fn imported_records_come_back_line_by_line() {
    let (place, bytes) = place();
    place.ok(&["tags", "import", "STORE", "bytes"]);
    for (n, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let id = format!("bytes:{:010}", n + 1);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        assert!(printed(&place, &["tags", "get", "STORE", &id, "--raw"]) == line, "{id}");
    }
    let refused = place.fails(2, &["tags", "import", "STORE", "bytes", "--format", "ndjson"]);
    assert!(refused.contains("bytes: line 1"), "{refused}");
}

#[test]
fn codex_values_come_back_as_they_were() {
    let (place, bytes) = place();
    let write = |name: &str, content: Vec<u8>| std::fs::write(place.dir.path().join(name), content).unwrap();
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let long = (bytes.len() as u32).to_le_bytes();
    write("x.ndjson", format!("{{\"key\":\"k\",\"value_base16\":\"{digits}\"}}\n").into());
    write("x.lengths", [&1_u32.to_le_bytes()[..], b"k", &long, &bytes].concat());
    // A line of TSV ends where its value has such a byte.
    let line: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != b'\n').collect();
    write("x.tsv", [b"k\t", &line[..], b"\n"].concat());
    for (format, value) in [("ndjson", &bytes), ("lengths", &bytes), ("tsv", &line)] {
        let (codex, input) = (format!("{format}.codex"), format!("x.{format}"));
        place.ok(&["codex", "build", &codex, &input, "--format", format]);
        assert!(printed(&place, &["codex", "get", &codex, "k", "--raw"]) == *value, "{format}");
    }
}
