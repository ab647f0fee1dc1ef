//! Files that the command creates belong to its user alone, whatever the umask.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::Place;

/// Returns the command in a shell that lets everybody read and write new files.
fn open_to_all(place: &Place, args: &[&str]) -> Command {
    let command = place.command(args);
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 000; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    shell.current_dir(place.dir.path()).env_remove("RUST_LOG").stdin(Stdio::null());
    shell
}

/// Asserts that no other user may do anything with the files in a folder.
#[track_caller]
fn assert_private(folder: &Path) {
    for found in fs::read_dir(folder).unwrap() {
        let path = found.unwrap().path();
        let mode = path.symlink_metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} has the mode {mode:o}", path.display());
        if path.is_dir() {
            assert_private(&path);
        }
    }
}

#[test]
fn new_files_are_for_their_user_alone() {
    let place = Place::new();
    for args in [
        &["append", "STORE", "log", "entry"][..],
        &["format", "formatted"],
        &["export", "STORE", "--to", "all.ndjson"],
        &["export", "STORE", "--format", "codex", "--to", "all.codex"],
        &["import", "imported", "all.codex"],
        &["codex", "build", "entries.codex", "all.ndjson", "--format", "tsv"],
        &["archive", "STORE", "archived"],
        &["restore", "archived", "restored"],
        &["tags", "put", "tagged", "id", "payload", "--tag", "tag"],
        &["replay", "trace.json", "--store", "replayed"],
    ] {
        if args[0] == "replay" {
            let path =
                place.file("trace.json", r#"{"endContent": "a", "txns": [{"patches": [[0, 0, "a"]]}]}"#);
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let done = open_to_all(&place, args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        assert_private(place.dir.path());
    }
}

#[test]
fn man_pages_are_for_everybody() {
    let place = Place::new();
    assert!(open_to_all(&place, &["man", "pages"]).output().unwrap().status.success());
    let page = place.dir.path().join("pages/brooklet.1");
    assert_eq!(page.metadata().unwrap().permissions().mode() & 0o044, 0o044);
}

#[test]
fn a_server_makes_private_files_and_those_of_the_asked_mode() {
    let place = Place::new();
    let at = |name: &str| place.dir.path().join(name);
    for flags in [&[][..], &["--unix-socket-mode", "660", "--metrics-mode", "644"]] {
        let serve =
            ["serve", "STORE", "--listen", "unix:redis", "--http", "unix:http", "--metrics", "metrics"];
        let mut child = open_to_all(&place, &[&serve[..], flags].concat());
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        match flags {
            [] => assert_private(place.dir.path()),
            _ => {
                let mode = |name| at(name).metadata().unwrap().permissions().mode() & 0o777;
                assert_eq!(["redis", "http", "metrics"].map(mode), [0o660, 0o660, 0o644]);
            }
        }
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
    }
}
