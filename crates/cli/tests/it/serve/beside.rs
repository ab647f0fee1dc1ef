//! Commands that look into a store while a server has it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::process::Process;
use crate::common::text;

#[test]
fn commands_look_into_the_store_of_a_server() {
    let process = Process::new();
    let (place, mut client) = (process.place(), process.client());
    assert_eq!(client.ask("RPUSH jobs a b c"), "3");
    assert_eq!(client.ask("HSET user name ada"), "1");
    // The server records an acknowledgement with its next block.
    let record = |client: &mut super::process::Client| {
        (0..2).for_each(|_| assert_eq!(client.ask("SET recorded 1"), "OK"));
    };
    record(&mut client);
    let beside = |args: &[&str]| {
        let output = place.run(args);
        let note = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {note}");
        assert!(note.starts_with("note: ") && note.contains("is open in another process"), "{note}");
        String::from_utf8(output.stdout).unwrap()
    };
    let listed = beside(&["list", "STORE"]);
    let row = "0/jobs  first 0  next 3  3 entries\n";
    assert!(listed.contains(row) && listed.contains("huser  first 0  next 1  1 entry\n"), "{listed}");
    assert_eq!(beside(&["inspect", "STORE", "0/jobs"]), row);
    assert!(beside(&["inspect", "STORE"]).contains("format"));
    let entries = beside(&["read", "STORE", "0/jobs"]);
    assert_eq!(entries, "     0  a\n     1  b\n     2  c\n");
    assert_eq!(beside(&["read", "STORE", "0/jobs", "--raw", "--reverse", "--limit", "2"]), "cb");

    let follow = ["read", "STORE", "0/jobs", "--follow", "--from", "2", "--limit", "2"];
    let mut child = place.command(&follow).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "     2  c");
    assert_eq!(client.ask("RPUSH jobs d"), "4");
    record(&mut client);
    assert_eq!(lines.next().unwrap().unwrap(), "     3  d");
    assert!(child.wait().unwrap().success());
    assert_eq!(client.list("jobs"), ["a", "b", "c", "d"]);
}
