//! Passwords: the files that hold them, and where they are not shown.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::Place;

/// Serves at a socket; returns the reply to a login with `pw`, and the log.
fn log_in(place: &Place, flags: &[&str], variables: &[(&str, &str)]) -> (String, String) {
    let serve = ["serve", "STORE", "--listen", "unix:redis", "--http", ""];
    let mut command = place.command(&[&serve[..], flags].concat());
    command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let mut reply = String::new();
    if let Ok(mut client) = UnixStream::connect(place.dir.path().join("redis")) {
        client.write_all(b"AUTH pw\r\nQUIT\r\n").unwrap();
        client.read_to_string(&mut reply).unwrap();
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let done = child.wait_with_output().unwrap();
    (reply, String::from_utf8(done.stderr).unwrap())
}

#[test]
fn a_password_comes_from_a_file() {
    let place = Place::new();
    let path = place.file("password", "pw\n");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let path = path.to_str().unwrap();
    let settings = place.file("settings.toml", &format!("password-file = {path:?}"));
    let settings = settings.to_str().unwrap();
    let wrong = place.file("wrong.toml", "password = \"other\"");
    fs::set_permissions(&wrong, Permissions::from_mode(0o600)).unwrap();
    let wrong = wrong.to_str().unwrap();
    for (flags, variables) in [
        (&["--password-file", path][..], &[][..]),
        (&[], &[("BROOKLET_PASSWORD_FILE", path)]),
        (&["--config", settings], &[]),
        // A source hides the password of the next source, in whichever form.
        (&["--config", wrong, "--password-file", path], &[]),
        (&["--config", settings, "--password", "pw"], &[]),
        (&["--password-file", path], &[("BROOKLET_PASSWORD", "")]),
    ] {
        let (reply, log) = log_in(&place, flags, variables);
        assert_eq!(reply, "+OK\r\n+OK\r\n", "{flags:?} {variables:?}: {log}");
        assert!(!log.contains("WARN"), "{log}");
    }
}

#[test]
fn a_password_file_that_is_none_is_refused() {
    let place = Place::new();
    let long = "x".repeat(5000);
    for (content, why) in [
        ("", "its first line is empty"),
        ("\npw\n", "its first line is empty"),
        ("one\ntwo\n", "several lines"),
        (long.as_str(), "longer than 4096 bytes"),
    ] {
        let path = place.file("password", content);
        let told = place.fails(2, &["serve", "STORE", "--password-file", path.to_str().unwrap()]);
        assert!(told.contains(why), "{told}");
    }
    place.fails(4, &["serve", "STORE", "--password-file", "missing"]);
    let both = place.fails(2, &["serve", "STORE", "--password-file", "password", "--password", "pw"]);
    assert!(both.contains("give one of them"), "{both}");
    assert!(!place.store.exists());
}

#[test]
fn files_with_secrets_that_everybody_can_read_are_warned_of() {
    let place = Place::new();
    let password = place.file("password", "pw");
    let settings = place.file("settings.toml", "password = \"pw\"\n[users]\nada = \"on >secret ~* +@all\"");
    for (flag, path) in [("--password-file", &password), ("--config", &settings)] {
        for (mode, warns) in [(0o644, true), (0o640, false), (0o600, false)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            let (reply, log) = log_in(&place, &[flag, path.to_str().unwrap()], &[]);
            assert_eq!(reply, "+OK\r\n+OK\r\n");
            assert_eq!(
                log.contains("every user of this machine can read the password"),
                warns,
                "{mode:o}: {log}"
            );
        }
    }
    // Settings without secrets may be read by everybody.
    let plain = place.file("plain.toml", "timeout = 3");
    let (_, log) = log_in(&place, &["--config", plain.to_str().unwrap()], &[]);
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
fn secrets_are_not_shown() {
    let place = Place::new();
    let hash = "9".repeat(64);
    let users = format!("[users]\nada = \"on >hunter2 #{hash} <hunter3 ~a* +@all\"\n");
    let settings = place.file("settings.toml", &format!("password = \"hunter1\"\n{users}"));
    fs::set_permissions(&settings, Permissions::from_mode(0o600)).unwrap();
    let settings = settings.to_str().unwrap();
    for json in [&[][..], &["--json"]] {
        let shown = place.ok(&[&["serve", "STORE", "--print-config", "--config", settings], json].concat());
        assert!(!shown.contains("hunter") && !shown.contains(&hash), "{shown}");
        assert!(shown.contains("on >(hidden) #(hidden) <(hidden) ~a* +@all"), "{shown}");
    }
    let shown = place.ok(&["serve", "STORE", "--print-config", "--password", "hunter1"]);
    assert!(!shown.contains("hunter") && shown.contains("password = \"(hidden)\""), "{shown}");
    // Nobody is to serve with the password that stands for the secret.
    for incomplete in [shown, "[users]\nada = \"on >(hidden) ~* +@all\"".to_owned()] {
        let path = place.file("shown.toml", &incomplete);
        let told = place.fails(2, &["serve", "STORE", "--config", path.to_str().unwrap()]);
        assert!(told.contains("write the password itself"), "{told}");
    }
    // An error in the file does not show the line.
    let wrong = place.file("wrong.toml", "password = \"hunter1\" nonsense");
    let told = place.run(&["serve", "STORE", "--config", wrong.to_str().unwrap()]);
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(told.contains("wrong.toml: line 1: ") && !told.contains("hunter"), "{told}");
}
