//! Looking into a store that another process, here the test, has open for writing.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use brooklet::{Commit, SpaceConfig, Store};

use crate::common::{Place, text, unlocked};

/// Makes everything durable, and lets the store record so.
fn record(store: &Store) {
    for _ in 0..2 {
        store.snapshot("recorded", "").unwrap().wait().unwrap();
    }
}

#[test]
fn commands_look_into_a_store_that_is_in_use() {
    let (place, store) = Place::with_store();
    store.append_many("doc/1", ["a", "b", "c"]).unwrap().wait().unwrap();
    store.append("doc/2", [0u8, 255]).unwrap().wait().unwrap();
    store.create_space("games", SpaceConfig::new()).unwrap();
    record(&store);
    let beside = |args: &[&str]| {
        let output = place.run(args);
        let note = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {note}");
        assert!(note.starts_with("note: ") && note.contains("is open in another process"), "{note}");
        output.stdout
    };
    assert_eq!(beside(&["read", "STORE", "doc/1", "--raw"]), b"abc");
    assert_eq!(beside(&["read", "STORE", "doc/1", "--raw", "--reverse", "--limit", "2"]), b"cb");
    assert_eq!(beside(&["read", "STORE", "doc/2", "--raw"]), [0, 255]);
    let listed = String::from_utf8(beside(&["list", "STORE", "doc/"])).unwrap();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(text(&beside(&["inspect", "STORE"])).contains("format"));
    assert!(text(&beside(&["inspect", "STORE", "doc/1"])).contains("next 3"));
    assert_eq!(text(&beside(&["export", "STORE", "--prefix", "doc/1"])).lines().count(), 6);
    assert!(text(&beside(&["space", "list", "STORE"])).starts_with("games: durable"));
    assert!(place.fails(4, &["append", "STORE", "doc/1", "x"]).contains("in use"), "writing needs the lock");
    store.close().unwrap();
}

#[test]
fn a_followed_log_is_printed_as_it_grows() {
    let (place, store) = Place::with_store();
    store.append_many("log", ["a", "b"]).unwrap().wait().unwrap();
    let mut child = place
        .command(&["read", "STORE", "log", "--follow", "--from", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next().trim_start(), "1  b");
    store.append("log", "c").unwrap().wait().unwrap();
    assert_eq!(next().trim_start(), "2  c");
    for n in 0..50 {
        store.append("log", format!("entry {n}")).unwrap().wait().unwrap();
        store.checkpoint().unwrap();
    }
    store.compact().unwrap();
    for n in 0..50 {
        assert_eq!(next().trim_start(), format!("{}  entry {n}", n + 3));
    }
    store.truncate("log", 10).unwrap().wait().unwrap();
    record(&store);
    let mut notes = BufReader::new(child.stderr.take().unwrap());
    let mut note = String::new();
    notes.read_line(&mut note).unwrap();
    assert!(note.contains("was truncated") && note.contains("goes on at 10"), "{note}");
    store.append("log", "another").unwrap().wait().unwrap();
    assert_eq!(next().trim_start(), "10  another");
    // Whenever the reader looks, the log is longer than its place.
    let mut note = || {
        let mut note = String::new();
        notes.read_line(&mut note).unwrap();
        note
    };
    let mut commit = Commit::new();
    commit.truncate("log", 5);
    for n in 5..20 {
        commit.append("log", format!("anew {n}"));
    }
    store.commit(&commit).unwrap().wait().unwrap();
    record(&store);
    assert!(note().contains("goes on at 5"));
    for n in 5..20 {
        assert_eq!(next().trim_start(), format!("{n}  anew {n}"));
    }
    let mut commit = Commit::new();
    commit.append("log", "x").append("log", "y").append("log", "z").trim("log", 22);
    store.commit(&commit).unwrap().wait().unwrap();
    record(&store);
    assert_eq!(note(), "note: entries 20 to 22 (exclusive) were trimmed\n");
    assert_eq!(next().trim_start(), "22  z");
    let child_id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(child_id, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    notes.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    store.close().unwrap();
}

#[test]
fn a_followed_log_gives_back_random_bytes() {
    let (place, store) = Place::with_store();
    let mut rng = brooklet::io::Rng::new(1);
    let payload: Vec<u8> = (0..4096).map(|_| rng.next() as u8).collect();
    let child = place
        .command(&["read", "STORE", "log", "--follow", "--raw", "--limit", "3"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..3 {
        store.append("log", &payload).unwrap().wait().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout == payload.repeat(3));
    store.close().unwrap();
}

/// Three writers in turn, each killed after its third acknowledgement: the reader prints every
/// acknowledged entry once, in order.
#[test]
fn a_reader_goes_on_where_its_writer_is_killed() {
    let (place, store) = Place::with_store();
    store.close().unwrap();
    drop(store);
    let mut reader =
        place.command(&["read", "STORE", "log", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(reader.stdout.take().unwrap()).lines();
    for round in 0..3 {
        let mut command = place.command(&["append", "STORE", "log"]);
        let mut writer = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = writer.stdin.take().unwrap();
        let mut acked = BufReader::new(writer.stdout.take().unwrap()).lines();
        for n in 0..3 {
            writeln!(input, "{round} {n}").unwrap();
            assert_eq!(acked.next().unwrap().unwrap(), format!("{}", round * 3 + n));
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        unlocked(&place.store);
    }
    // The last entries show once another opening has recorded that they are acknowledged.
    place.ok(&["append", "STORE", "log", "end"]);
    for seq in 0..10 {
        let payload = if seq == 9 { "end".into() } else { format!("{} {}", seq / 3, seq % 3) };
        assert_eq!(printed.next().unwrap().unwrap().trim_start(), format!("{seq}  {payload}"));
    }
    reader.kill().unwrap();
    reader.wait().unwrap();
}
