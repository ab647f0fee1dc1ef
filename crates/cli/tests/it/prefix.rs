//! Prefixes: each command that takes one takes it as an argument and by `--prefix`.

use crate::common;

use common::Place;

const LINES: &str = r#"{"key":"a/1","text":"one"}
{"key":"a/2","text":"two"}
{"key":"b","text":"three"}
"#;

/// Returns the commands that read by a prefix, without the prefix, and the prefix.
fn readers() -> [(Vec<&'static str>, &'static str); 4] {
    [
        (vec!["list", "STORE"], "a/"),
        (vec!["export", "STORE"], "a/"),
        (vec!["tags", "list", "STORE"], "ur"),
        (vec!["codex", "scan", "t.codex"], "a/"),
    ]
}

/// Returns a folder with a store, its records, and files of the same logs in all formats.
fn place() -> Place {
    let place = Place::new();
    place.file("x.ndjson", LINES);
    place.file("x.csv", "key,payload\na/1,one\nb,three\na/2,two\n");
    place.file("t.tsv", "a/1\tone\na/2\ttwo\nb\tthree\n");
    place.ok(&["codex", "build", "t.codex", "t.tsv"]);
    place.ok(&["import", "STORE", "x.ndjson"]);
    place.ok(&["export", "STORE", "--format", "codex", "--to", "x.codex"]);
    place
}

#[test]
fn readers_take_a_prefix_in_both_forms() {
    let place = place();
    place.ok(&["tags", "put", "STORE", "1", "call Ada", "-t", "work", "-t", "urgent"]);
    for (command, prefix) in readers() {
        let all = place.ok(&command);
        let argument = place.ok(&[&command[..], &[prefix]].concat());
        let option = place.ok(&[&command[..], &["--prefix", prefix]].concat());
        assert_eq!(argument, option, "{command:?}");
        assert!(argument.len() < all.len() && !argument.is_empty(), "{command:?}: {argument}");
        let both = place.run(&[&command[..], &[prefix, "--prefix", prefix]].concat());
        assert_eq!(both.status.code(), Some(2), "{command:?}");
    }
    for args in
        [&["export", "STORE", "a/", "--log", "b"][..], &["codex", "scan", "t.codex", "a", "--from", "a"]]
    {
        assert_eq!(place.run(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn imports_take_a_prefix_in_both_forms_from_each_format() {
    let place = place();
    for input in [&["x.ndjson"][..], &["x.csv"], &["x.codex"], &["t.codex"], &["STORE", "--format", "store"]]
    {
        for prefix in [&["a/"][..], &["--prefix", "a/"]] {
            place.ok(&[&["import", "new"], input, prefix].concat());
            assert_eq!(
                place.ok(&["list", "new"]),
                "a/1  first 0  next 1  1 entry\na/2  first 0  next 1  1 entry\n",
                "{input:?} {prefix:?}"
            );
            std::fs::remove_file(place.dir.path().join("new")).unwrap();
        }
        let both = place.run(&[&["import", "new"], input, &["a/", "--prefix", "a/"]].concat());
        assert_eq!(both.status.code(), Some(2), "{input:?}");
    }
}

#[test]
fn a_restore_takes_a_prefix_in_both_forms() {
    let place = place();
    place.ok(&["archive", "STORE", "bucket"]);
    for prefix in [&["a/"][..], &["--prefix", "a/"]] {
        place.ok(&[&["restore", "bucket", "new"], prefix].concat());
        assert_eq!(place.ok(&["list", "new"]).lines().count(), 2, "{prefix:?}");
        std::fs::remove_file(place.dir.path().join("new")).unwrap();
    }
    for more in [["--prefix", "a/"], ["--log", "b"]] {
        let both = place.run(&[&["restore", "bucket", "new", "a/"], &more[..]].concat());
        assert_eq!(both.status.code(), Some(2), "{more:?}");
    }
}
