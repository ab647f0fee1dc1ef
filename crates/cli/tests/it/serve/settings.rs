//! Where settings come from, what is refused, and how a server is told to stop.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Place, text};

/// What `--print-config` prints with these flags, this file and these variables.
fn printed(flags: &[&str], file: &str, variables: &[(&str, &str)]) -> Result<String, String> {
    let place = Place::new();
    let path = place.file("settings.toml", file);
    let mut args = vec!["serve", "STORE", "--print-config", "--config", path.to_str().unwrap()];
    args.extend(flags);
    let done = place.command(&args).envs(variables.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
}

#[test]
fn a_flag_counts_before_a_variable_and_that_before_the_file() {
    let file =
        "timeout = 1\nmax-clients = 1\nlisten = [\"unix:/x\"]\n[users]\nada = \"on nopass ~* +@all\"\n";
    let variables = [("BROOKLET_TIMEOUT", "2"), ("BROOKLET_MAX_CLIENTS", "2")];
    let found = printed(&["--timeout", "3"], file, &variables).unwrap();
    for line in [
        "timeout = 3",
        "max-clients = 2",
        "listen = [\"unix:/x\"]",
        "ada = \"on nopass ~* +@all\"",
        "threads = 1",
    ] {
        assert!(found.lines().any(|found| found == line), "{line} is not in\n{found}");
    }
    let flags = ["--allow-origin", "https://a.example", "--allow-origin", "https://b.example"];
    let both = "allow-origin = [\"https://a.example\", \"https://b.example\"]";
    assert!(printed(&flags, "allow-origin = [\"*\"]", &[]).unwrap().contains(both));
    assert!(
        printed(&[], "", &[("BROOKLET_ALLOW_ORIGIN", "https://a.example,https://b.example")])
            .unwrap()
            .contains(both)
    );
    let flags = ["--http-body-memory", "8M", "--http-reply-memory", "9M", "--notify-keyspace-events", "KEA"];
    let found_too = printed(&flags, "", &[("BROOKLET_HTTP_BODY_MEMORY", "7M")]).unwrap();
    for line in
        ["http-body-memory = 8388608", "http-reply-memory = 9437184", "notify-keyspace-events = \"KEA\""]
    {
        assert!(found_too.lines().any(|found| found == line), "{line} is not in\n{found_too}");
    }
    // What is printed is a file of the same settings.
    assert_eq!(printed(&[], &found, &[]).unwrap(), found);
}

/// The standard input, and any pipe, has its text once.
#[cfg(target_os = "linux")]
#[test]
fn a_file_of_settings_is_read_once_and_not_without_end() {
    let place = Place::new();
    let args = ["serve", "STORE", "--print-config", "--config", "/dev/stdin"];
    let done = place.fed(&args, b"timeout = 77\nlog = \"json\"\n");
    let printed = text(&done.stdout);
    assert!(printed.lines().any(|line| line == "timeout = 77"), "{printed}{}", text(&done.stderr));
    let done = place.fed(&args, "# settings\n".repeat(200_000).as_bytes());
    assert_eq!(done.status.code(), Some(2), "{}", text(&done.stderr));
    assert!(
        text(&done.stderr).contains("/dev/stdin: it is longer than 1048576 bytes"),
        "{}",
        text(&done.stderr)
    );
}

/// A number alone is what it was before times had units.
#[test]
fn times_have_units() {
    let flags =
        ["--timeout", "5m", "--takeover-after", "2500ms", "--keep-backups", "36h", "--replicate", "/b"];
    let variables = [("BROOKLET_AUTH_TIMEOUT", "1m 30s"), ("BROOKLET_SCRIPT_TIME", "2s")];
    let found = printed(&flags, "backup-every = \"2h\"", &variables).unwrap();
    for line in [
        "timeout = 300",
        "auth-timeout = 90",
        "script-time = 2000",
        "takeover-after = \"2s 500ms\"",
        "backup-every = 7200",
        "keep-backups = \"1d 12h\"",
    ] {
        assert!(found.lines().any(|found| found == line), "{line} is not in\n{found}");
    }
    assert_eq!(printed(&[], &found, &[]).unwrap(), found);
    let bare = ["--timeout", "7", "--script-time", "8", "--keep-backups", "9"];
    let found = printed(&bare, "auth-timeout = 6", &[("BROOKLET_BACKUP_EVERY", "5")]).unwrap();
    for line in ["timeout = 7", "script-time = 8", "keep-backups = 9", "auth-timeout = 6", "backup-every = 5"]
    {
        assert!(found.lines().any(|found| found == line), "{line} is not in\n{found}");
    }
    assert!(printed(&["--timeout", "5x"], "", &[]).unwrap_err().contains("ms, s, m, h, d or w"));
    assert!(printed(&[], "timeout = \"5x\"", &[]).unwrap_err().contains("ms, s, m, h, d or w"));
}

#[test]
fn what_makes_no_sense_is_told_before_anything_is_served() {
    assert!(printed(&[], "nonsense = 1", &[]).unwrap_err().contains("nonsense"));
    let refused = [
        (&["--listen", "0.0.0.0:0"][..], "no password is set"),
        (&["--http", "0.0.0.0:0"], "no password is set"),
        (&["--listen", "6379"], "is not an address"),
        (&["--listen", "unix:socket", "--http", "unix:socket"], "the address unix:socket is named twice"),
        (&["--tls-cert", "/x"], "TLS needs both"),
        (&["--tls-client-ca", "/x"], "TLS needs both"),
        (&["--allow-origin", "https://app.example/"], "is not an origin"),
        (&["--timeout", "1500ms"], "--timeout is no whole number of seconds"),
        (&["--notify-keyspace-events", "Ky"], "no classes of keyspace notifications"),
    ];
    for (flags, why) in refused {
        let place = Place::new();
        let mut args = vec!["serve", "STORE"];
        for (flag, quiet) in [("--listen", "127.0.0.1:0"), ("--http", "")] {
            if !flags.contains(&flag) {
                args.extend([flag, quiet]);
            }
        }
        args.extend(flags);
        let done = place.command(&args).output().unwrap();
        let told = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(2) && told.contains(why), "{flags:?}: {told}");
        assert!(!place.store.exists(), "{flags:?}: a refused start leaves a store behind");
    }
}

/// In an earlier state the store was made first.
#[test]
fn an_address_in_use_leaves_no_store_behind() {
    let place = Place::new();
    let _listening = UnixListener::bind(place.dir.path().join("socket")).unwrap();
    let told = place.fails(7, &["serve", "STORE", "--listen", "unix:socket", "--http", ""]);
    assert!(told.contains("listening at unix:socket failed"), "{told}");
    assert!(!place.store.exists());
}

/// A variable that a shell or a container left empty must not open the store to the network.
#[test]
fn an_empty_password_is_no_password() {
    let refused = |flags: &[&str], file: &str, variables: &[(&str, &str)]| {
        let place = Place::new();
        let path = place.file("settings.toml", file);
        let path = path.to_str().unwrap();
        let wide = ["serve", "STORE", "--listen", "0.0.0.0:0", "--http", "", "--config", path];
        let mut command = place.command(&[&wide[..], flags].concat());
        command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if !line.is_empty() {
            child.kill().unwrap();
        }
        let done = child.wait_with_output().unwrap();
        assert_eq!(line, "", "it serves: {flags:?} {file} {variables:?}");
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let user = "[users]\nada = \"on nopass ~* +@all\"";
    let rules = "[users]\ndefault = \"resetpass >\"";
    for (flags, file, variables, why) in [
        (&["--password", ""][..], "", &[][..], "no password is set"),
        (&[], "", &[("BROOKLET_PASSWORD", "")], "no password is set"),
        (&[], "password = \"\"", &[], "no password is set"),
        (&[], "[users]\ndefault = \"nopass\"", &[], "no password is set"),
        (&["--password", "pw"], user, &[], "user ada needs no password"),
        (&[], rules, &[], "An empty password is no password"),
    ] {
        let (code, told) = refused(flags, file, variables);
        assert!(code == Some(2) && told.contains(why), "{flags:?} {file}: {told}");
    }
    // An empty variable does not hide the password of the file.
    let shown = printed(&[], "password = \"pw\"", &[("BROOKLET_PASSWORD", "")]).unwrap();
    assert!(shown.contains("password = \"(hidden)\""), "{shown}");
}

#[test]
fn a_signal_stops_it_cleanly() {
    let place = Place::new();
    let args =
        ["--json", "serve", "STORE", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log", "json"];
    let mut child = place.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(told["redis"][0].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    assert!(told["http"][0].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(0));
    let log = String::from_utf8(done.stderr).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["fields"]["message"] == "ready"), "{log}");
}

#[test]
fn the_password_of_a_log_is_not_printed() {
    let file = "replicate = \"tls://me:s@sesame@a,b/logs\"\nbackups = \"s3://bucket/logs\"\n";
    let found = printed(&[], file, &[]).unwrap();
    assert!(found.contains("replicate = \"tls://(hidden)@a,b/logs\""), "{found}");
    assert!(found.contains("backups = \"s3://bucket/logs\"") && !found.contains("sesame"), "{found}");
    let found = printed(&["--replicate", "abfss://box@account/logs"], "", &[]).unwrap();
    assert!(found.contains("replicate = \"abfss://box@account/logs\""), "{found}");
}
