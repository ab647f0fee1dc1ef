//! Two hosts and a bucket: what the owner of a store acknowledged is there on the host that takes
//! the store over, whatever became of the owner.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use brooklet::Options;
use rustix::process::{Pid, Signal, kill_process};

use super::process::Client;
use crate::common::{Place, free_port, unlocked};

/// Most time until a host serves.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// A host of its own: a folder, and perhaps a process.
pub struct Host {
    pub(super) place: Place,
    child: Option<Child>,
}

impl Host {
    pub fn new() -> Self {
        Self { place: Place::new(), child: None }
    }

    pub fn socket(&self) -> PathBuf {
        self.place.dir.path().join("socket")
    }

    pub(super) fn start(&mut self, bucket: &Path, more: &[&str]) {
        self.start_at(bucket.to_str().unwrap(), more);
    }

    pub fn start_at(&mut self, log: &str, more: &[&str]) {
        let listen = format!("unix:{}", self.socket().display());
        let small = ["--ring-size", "4M", "--memory", "4M", "--max-value", "64K"];
        // A busy machine may keep a sound owner from its beats for seconds.
        let soon = ["--takeover-after", "6"];
        let often: &[&str] = if more.contains(&"--backup-every") { &[] } else { &["--backup-every", "1"] };
        let args = ["serve", "STORE", "--listen", &listen, "--replicate", log];
        let http: &[&str] = if more.contains(&"--http") { &[] } else { &["--http", ""] };
        let args = [&args[..], &small, &soon, often, http, more].concat();
        let mut command = self.place.command(&args);
        self.child = Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    }

    /// Waits until the host serves.
    pub fn wait_ready(&mut self) {
        let begin = Instant::now();
        let mut line = String::new();
        let stdout = self.child.as_mut().unwrap().stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert!(line.starts_with("Redis at unix:"), "{line:?}, and {}", self.end());
        assert!(begin.elapsed() < PATIENCE);
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.child.as_ref().unwrap());
        kill_process(pid, signal).unwrap();
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
            unlocked(&self.place.store);
        }
    }

    /// Waits for the end of the process; returns its code and its messages.
    pub(super) fn end(&mut self) -> String {
        let mut child = self.child.take().unwrap();
        let code = child.wait().unwrap().code();
        let mut messages = String::new();
        child.stderr.take().unwrap().read_to_string(&mut messages).unwrap();
        format!("{code:?} {messages}")
    }

    /// Returns the messages of the process from now on, line by line.
    fn messages(&mut self) -> mpsc::Receiver<String> {
        let (out, lines) = mpsc::channel();
        let messages = BufReader::new(self.child.as_mut().unwrap().stderr.take().unwrap());
        let read = move || messages.lines().map_while(Result::ok).for_each(|line| drop(out.send(line)));
        drop(thread::Builder::new().spawn(read).unwrap());
        lines
    }

    /// Pushes elements one after the other, until `count` are acknowledged; returns the number of
    /// the next element.
    pub fn push(&self, from: u64, count: u64) -> u64 {
        let mut client = Client::at(&self.socket());
        for n in from..from + count {
            assert_eq!(client.ask(&format!("RPUSH list {n}")), (n + 1).to_string());
        }
        from + count
    }
}

impl Host {
    /// Kills the host while it acknowledges elements; returns the number after the last of these.
    pub fn push_until_killed(&mut self, from: u64) -> u64 {
        // A thread that begins late would find nobody to connect to.
        let mut client = Client::at(&self.socket());
        let pushing = thread::spawn(move || {
            let mut next = from;
            while let Some(len) = client.try_ask(&format!("RPUSH list {next}")) {
                next += 1;
                assert_eq!(len, next.to_string());
            }
            next
        });
        thread::sleep(Duration::from_millis(300));
        self.kill();
        pushing.join().unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns whether a message with a text comes.
fn has(messages: &mpsc::Receiver<String>, text: &str) -> bool {
    let begin = Instant::now();
    let next = || messages.recv_timeout(PATIENCE.saturating_sub(begin.elapsed())).ok();
    std::iter::from_fn(next).any(|line| line.contains(text))
}

pub fn elements(count: u64) -> Vec<String> {
    (0..count).map(|n| n.to_string()).collect()
}

pub(super) fn objects(bucket: &Path, under: &str) -> usize {
    let Ok(entries) = std::fs::read_dir(bucket.join(under)) else { return 0 };
    entries
        .map(|entry| entry.unwrap())
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => objects(bucket, &format!("{under}/{}", entry.file_name().to_str().unwrap())),
            false => 1,
        })
        .sum()
}

/// Asks a host over HTTP, until the reply has a text.
pub(super) fn ask_until(port: u16, request: &str, has: &str) -> String {
    let begin = Instant::now();
    loop {
        let mut reply = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            let text = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            // A server that leaves its port meanwhile resets the connection.
            drop(stream.write_all(text.as_bytes()).and_then(|()| stream.read_to_string(&mut reply)));
        }
        if reply.contains(has) {
            return reply;
        }
        assert!(begin.elapsed() < PATIENCE, "{request}: {reply}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_standby_sends_http_clients_to_the_owner_and_is_ready_once_it_serves() {
    let bucket = tempfile::tempdir().unwrap();
    let (mut owner, mut standby) = (Host::new(), Host::new());
    owner.start(bucket.path(), &["--advertise", "http://owner.example:8379/"]);
    owner.wait_ready();
    let port = free_port();
    let http = format!("127.0.0.1:{port}");
    standby.start(bucket.path(), &["--standby", "--http", &http]);
    let sent = ask_until(port, "PUT /v1/stream/a", "HTTP/1.1 307");
    assert!(sent.contains("location: http://owner.example:8379/v1/stream/a\r\n"), "{sent}");
    let ready = ask_until(port, "GET /readyz", "HTTP/1.1 503");
    assert!(
        ready.contains("\"owner\":\"http://owner.example:8379\"") && ready.contains("stands by"),
        "{ready}"
    );
    ask_until(port, "GET /healthz", "HTTP/1.1 200");
    owner.kill();
    standby.wait_ready();
    ask_until(port, "GET /readyz", "HTTP/1.1 200");
    ask_until(port, "PUT /v1/stream/a", "HTTP/1.1 201");
}

#[test]
fn a_standby_takes_over_with_all_that_was_acknowledged() {
    let bucket = tempfile::tempdir().unwrap();
    let (mut owner, mut standby) = (Host::new(), Host::new());
    owner.start(bucket.path(), &[]);
    owner.wait_ready();
    let mut next = 0;
    for round in 0..4 {
        standby.start(bucket.path(), &["--standby"]);
        // The third host lives so long that its log begins behind a backup.
        next = owner.push(next, 60);
        let begin = Instant::now();
        while round == 2 && objects(bucket.path(), "records") == 0 {
            assert!(begin.elapsed() < PATIENCE, "no backup is recorded");
            next = owner.push(next, 20);
        }
        let told = owner.push_until_killed(next);
        if round % 2 == 0 {
            // The host is lost with its disk.
            owner = Host::new();
        }
        standby.wait_ready();
        let found = Client::at(&standby.socket()).list("list");
        assert!(found.iter().eq(&elements(found.len() as u64)), "round {round}: {found:?}");
        // The last push may have had its effect without a reply.
        assert!((told..told + 2).contains(&(found.len() as u64)), "round {round}: {told} {}", found.len());
        next = found.len() as u64;
        std::mem::swap(&mut owner, &mut standby);
    }
    assert!(objects(bucket.path(), "backups") > 0);
}

#[test]
fn an_owner_that_slept_ends_and_comes_back_as_a_standby() {
    let bucket = tempfile::tempdir().unwrap();
    let (mut owner, mut standby) = (Host::new(), Host::new());
    owner.start(bucket.path(), &[]);
    owner.wait_ready();
    let mut next = owner.push(0, 50);
    standby.start(bucket.path(), &["--standby"]);
    let mut late = Client::at(&owner.socket());
    owner.signal(Signal::STOP);
    standby.wait_ready();
    next = standby.push(next, 50);
    let is_sent = late.send(&["RPUSH list late".to_owned()]);
    owner.signal(Signal::CONT);
    // The owner finds out with this commit that it is none, or knows it before.
    let answer = if is_sent { late.line() } else { None };
    assert!(answer.as_ref().is_none_or(|line| line.starts_with("-MISCONF")), "{answer:?}");
    let message = owner.end();
    assert!(message.starts_with("Some(7)") && message.contains("has taken the store over"), "{message}");
    // Its file may have a commit that the log lacks. Nobody was told of it.
    owner.start(bucket.path(), &["--standby"]);
    next = standby.push(next, 50);
    standby.kill();
    owner.wait_ready();
    assert_eq!(Client::at(&owner.socket()).list("list"), elements(next));
    let names = std::fs::read_dir(owner.place.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let aside = names.filter(|name| name.to_str().unwrap().contains(".replaced-")).count();
    assert!(aside <= 1, "the old file is kept if it has that commit");
    owner.signal(Signal::TERM);
    assert!(owner.end().starts_with("Some(0)"));
}

/// In an earlier state such a host took the log over first, so that the owner ended.
#[test]
fn a_host_that_cannot_serve_takes_nothing_over() {
    let bucket = tempfile::tempdir().unwrap();
    let mut owner = Host::new();
    owner.start(bucket.path(), &[]);
    owner.wait_ready();
    let place = Place::new();
    let _listening = UnixListener::bind(place.dir.path().join("socket")).unwrap();
    let address = bucket.path().to_str().unwrap();
    let refused = |code, store: &str, why: &str| {
        let serve = ["serve", store, "--listen", "unix:socket", "--http", "", "--replicate", address];
        let message = place.fails(code, &serve);
        assert!(message.contains(why), "{message}");
    };
    refused(7, "STORE", "listening at unix:socket failed");
    owner.push(0, 1);
    refused(4, "none/s.brooklet", "opening none failed");
    owner.push(1, 1);
    assert!(!place.store.exists());
}

/// In an earlier state it took the store over, and ended: nobody served.
#[test]
fn a_standby_whose_address_is_taken_waits() {
    let bucket = tempfile::tempdir().unwrap();
    let (mut owner, mut standby) = (Host::new(), Host::new());
    owner.start(bucket.path(), &[]);
    owner.wait_ready();
    owner.push(0, 1);
    let listening = UnixListener::bind(standby.socket()).unwrap();
    standby.start(bucket.path(), &["--standby"]);
    let messages = standby.messages();
    assert!(has(&messages, "was made from the bucket"));
    owner.kill();
    assert!(has(&messages, "this host cannot serve"));
    drop(listening);
    standby.wait_ready();
    standby.push(1, 1);
}

/// Commits and reads wait meanwhile. In the old state the log of the server did not show why.
#[test]
fn an_owner_reports_a_bucket_that_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (bucket, away) = (folder.path().join("bucket"), folder.path().join("away"));
    let mut owner = Host::new();
    owner.start(&bucket, &[]);
    owner.wait_ready();
    owner.push(0, 1);
    let messages = owner.messages();
    // It makes no folder in between.
    owner.signal(Signal::STOP);
    std::fs::rename(&bucket, &away).unwrap();
    std::fs::write(&bucket, "no folder").unwrap();
    owner.signal(Signal::CONT);
    assert!(has(&messages, "does not answer the owner of the log"));
    owner.signal(Signal::STOP);
    std::fs::remove_file(&bucket).unwrap();
    std::fs::rename(&away, &bucket).unwrap();
    owner.signal(Signal::CONT);
    assert!(has(&messages, "answers the owner of the log again"));
    owner.push(1, 1);
}

/// It could not take the store over, and its file falls behind.
#[test]
fn a_standby_reports_a_bucket_that_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (bucket, away) = (folder.path().join("bucket"), folder.path().join("away"));
    let (mut owner, mut standby) = (Host::new(), Host::new());
    owner.start(&bucket, &[]);
    owner.wait_ready();
    owner.push(0, 1);
    standby.start(&bucket, &["--standby"]);
    let messages = standby.messages();
    assert!(has(&messages, "was made from the bucket"));
    owner.kill();
    std::fs::rename(&bucket, &away).unwrap();
    std::fs::write(&bucket, "no folder").unwrap();
    assert!(has(&messages, "does not answer a host that follows the log"));
    std::fs::remove_file(&bucket).unwrap();
    std::fs::rename(&away, &bucket).unwrap();
    assert!(has(&messages, "answers a host that follows the log again"));
    standby.wait_ready();
}

/// An owner that restarts goes on with its own file, and its standby waits on.
#[test]
fn an_owner_restarts_without_its_standby() {
    let bucket = tempfile::tempdir().unwrap();
    let mut owner = Host::new();
    owner.start(bucket.path(), &["--acknowledge", "local"]);
    owner.wait_ready();
    let next = owner.push(0, 50);
    owner.signal(Signal::TERM);
    assert!(owner.end().starts_with("Some(0)"));
    owner.start(bucket.path(), &["--acknowledge", "local"]);
    owner.wait_ready();
    owner.push(next, 10);
    owner.kill();
    owner.start(bucket.path(), &[]);
    owner.wait_ready();
    assert_eq!(Client::at(&owner.socket()).list("list").len(), 60);
}

#[test]
fn what_cannot_be_replicated_is_refused() {
    let bucket = tempfile::tempdir().unwrap();
    let address = bucket.path().to_str().unwrap();
    let place = Place::new();
    let message = place.fails(2, &["serve", "STORE", "--standby"]);
    assert!(message.contains("--standby needs --replicate"), "{message}");
    let message = place.fails(2, &["serve", "STORE", "--replicate", address, "--takeover-after", "1"]);
    assert!(message.contains("--takeover-after"), "{message}");
    let message = place.fails(2, &["serve", "STORE", "--replicate", address, "--backup-every", "0"]);
    assert!(message.contains("--backup-every"), "{message}");
    let message = place.fails(2, &["serve", "STORE", "--backups", address]);
    assert!(message.contains("--backups needs --replicate"), "{message}");
    let serve = ["serve", "STORE", "--listen", "unix:socket", "--http", "", "--replicate"];
    let stream = [&serve[..], &["nats://me:sesame@127.0.0.1:1/logs"]].concat();
    let message = place.fails(2, &stream);
    assert!(message.contains("it needs --backups BUCKET"), "{message}");
    let message = place.fails(7, &[&stream[..], &["--backups", address]].concat());
    assert!(message.contains("nats://127.0.0.1:1/logs") && !message.contains("sesame"), "{message}");
    let wrong = [&serve[..], &["nats://me:sesame@a", "--backups", address]].concat();
    let message = place.fails(2, &wrong);
    assert!(message.contains("it names no stream") && !message.contains("sesame"), "{message}");
    let hidden = ["serve", "STORE", "--replicate", "nats://(hidden)@a/logs", "--backups", address];
    assert!(place.fails(2, &hidden).contains("write the password itself"));
    let message = place.fails(2, &["serve", "STORE", "--replicate", address, "--keep-backups", "0"]);
    assert!(message.contains("--keep-backups"), "{message}");
    let message = place
        .fails(2, &["serve", "STORE", "--replicate", address, "--ring", "ring", "--listen", "unix:socket"]);
    assert!(message.contains("--replicate takes no --ring"), "{message}");
    let message = place.fails(2, &["serve", "/dev/null", "--replicate", address, "--listen", "unix:socket"]);
    assert!(message.contains("not a regular file"), "{message}");
    assert!(!place.store.exists() && objects(bucket.path(), "") == 0, "a refused start leaves nothing");
    // A store that has had a life before.
    let store = Options::new().ring_size(1 << 20).open(&place.store).unwrap();
    store.append("log", "entry").unwrap().wait().unwrap();
    store.compact().unwrap();
    store.close().unwrap();
    drop(store);
    let serve = ["serve", "STORE", "--listen", "unix:socket", "--http", "", "--replicate", address];
    let message = place.fails(4, &serve);
    assert!(message.contains("only a new store"), "{message}");
    // A place that another store has.
    let mut owner = Host::new();
    let bucket = tempfile::tempdir().unwrap();
    owner.start(bucket.path(), &[]);
    owner.wait_ready();
    owner.push(0, 1);
    owner.kill();
    let other = Place::new();
    Options::new().ring_size(1 << 20).open(&other.store).unwrap().close().unwrap();
    let serve = [&serve[..7], &[bucket.path().to_str().unwrap()]].concat();
    let message = other.fails(4, &serve);
    assert!(message.contains("choose another place"), "{message}");
    // The usual reason is a file that a start without the log has made on this host.
    assert!(message.contains("move the file of this store aside"), "{message}");
}

/// A wrong path, or an address in use. In the old state an empty folder was left.
#[test]
fn a_refused_start_makes_no_folder_of_a_bucket() {
    let place = Place::new();
    let bucket = place.dir.path().join("bucket");
    let _listening = UnixListener::bind(place.dir.path().join("socket")).unwrap();
    let address = bucket.to_str().unwrap();
    let serve = ["serve", "STORE", "--listen", "unix:socket", "--http", ""];
    let refused = |code, more: &[&str], why: &str| {
        let message = place.fails(code, &[&serve[..], more].concat());
        assert!(message.contains(why), "{message}");
        assert!(!bucket.exists(), "{more:?}");
    };
    refused(7, &["--replicate", address], "listening at unix:socket failed");
    let no_log = format!("{address} keeps no log of a store");
    refused(4, &["--replicate", address, "--read-replica"], &no_log);
    refused(3, &["--cluster", address, "--shard", "a"], "no map of a cluster");
}

/// The service manager starts each host with `--standby`, and nobody has begun the store. In the
/// old state the hosts waited for one another for ever, and no message said so.
#[test]
fn a_standby_of_a_place_without_a_log_says_who_begins_it() {
    let bucket = tempfile::tempdir().unwrap();
    let mut standby = Host::new();
    standby.start(bucket.path(), &["--standby"]);
    let messages = standby.messages();
    assert!(has(&messages, "start one host without --standby"));
    let mut owner = Host::new();
    owner.start(bucket.path(), &[]);
    owner.wait_ready();
    owner.push(0, 1);
    assert!(has(&messages, "was made from the bucket"));
    standby.kill();
    owner.kill();
}

/// Both hosts run without `--standby`, and their service managers start them again: each start
/// takes the store from the other host. In the old state the message said to go on like that.
#[test]
fn an_owner_that_was_replaced_says_how_it_would_wait_for_its_turn() {
    let bucket = tempfile::tempdir().unwrap();
    let (mut first, mut second) = (Host::new(), Host::new());
    first.start(bucket.path(), &[]);
    first.wait_ready();
    second.start(bucket.path(), &[]);
    second.wait_ready();
    let message = first.end();
    assert!(
        message.starts_with("Some(7)") && message.contains("start this host with --standby"),
        "{message}"
    );
    // Its log said to open the store again.
    let stops = message.lines().find(|line| line.contains("the server stops")).unwrap();
    assert!(stops.contains("--standby"), "{message}");
    second.push(0, 1);
    second.kill();
}

/// The credentials of a standby may not write, or its bucket is away for hours. In the old state
/// its log had a line each second.
#[test]
fn a_standby_does_not_repeat_each_second_that_the_bucket_does_not_answer() {
    let bucket = tempfile::tempdir().unwrap();
    let in_the_way = bucket.path().join("probe");
    std::fs::write(&in_the_way, "no folder").unwrap();
    let mut standby = Host::new();
    standby.start(bucket.path(), &["--standby"]);
    let messages = standby.messages();
    assert!(has(&messages, "the next try follows"));
    thread::sleep(Duration::from_secs(4));
    std::fs::remove_file(&in_the_way).unwrap();
    let lines = std::iter::from_fn(|| messages.recv_timeout(PATIENCE).ok());
    let lines: Vec<String> = lines.take_while(|line| !line.contains("standing by: another host")).collect();
    assert!(!lines.iter().any(|line| line.contains("the next try follows")), "{lines:?}");
    standby.kill();
}

/// One host has `--backups`, and the other one has another place, or none. In the old state the
/// message said no more than that the backup had never existed, or was removed.
#[test]
fn a_host_that_looks_for_backups_elsewhere_says_so() {
    let (bucket, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut owner, mut other) = (Host::new(), Host::new());
    owner.start(bucket.path(), &[]);
    owner.wait_ready();
    let (begin, mut next) = (Instant::now(), 0);
    while objects(bucket.path(), "records") == 0 {
        assert!(begin.elapsed() < PATIENCE, "no backup is recorded");
        next = owner.push(next, 1);
        thread::sleep(Duration::from_millis(50));
    }
    owner.kill();
    other.start(bucket.path(), &["--backups", elsewhere.path().to_str().unwrap()]);
    let message = other.end();
    assert!(message.starts_with("Some(3)") && message.contains("the same --backups"), "{message}");
    owner.start(bucket.path(), &[]);
    owner.wait_ready();
    owner.push(next, 1);
    owner.kill();
}

/// A service may have more rights than its real user. In the old state those of the real user
/// counted for the folder in which the file is made. Only root can play that.
#[cfg(target_os = "linux")]
#[test]
fn the_rights_of_the_process_count_for_the_folder_of_its_file() {
    let (place, bucket) = (Place::new(), tempfile::tempdir().unwrap());
    let _listening = UnixListener::bind(place.dir.path().join("socket")).unwrap();
    let serve = ["serve", "s.brooklet", "--listen", "unix:socket", "--http", "", "--replicate"];
    let mut command = std::process::Command::new("setpriv");
    command.args(["--ruid", "65534", env!("CARGO_BIN_EXE_brooklet")]).args(serve).arg(bucket.path());
    let done = command.current_dir(place.dir.path()).output();
    let message = match done {
        Ok(done) => String::from_utf8(done.stderr).unwrap(),
        Err(error) => format!("setpriv: {error}"),
    };
    let is_played = !message.starts_with("setpriv: ");
    assert!(!is_played || message.contains("listening at unix:socket failed"), "{message}");
}

/// Systemd ends a service of the type `notify` that is not ready after 90 seconds. In the old state
/// it did so with each standby, again and again.
#[cfg(target_os = "linux")]
#[test]
fn a_standby_is_ready_for_its_service_manager() {
    let (place, bucket) = (Place::new(), tempfile::tempdir().unwrap());
    let socket = place.dir.path().join("notices");
    let notices = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    notices.set_read_timeout(Some(PATIENCE)).unwrap();
    let serve = ["serve", "STORE", "--listen", "unix:socket", "--http", "", "--standby", "--replicate"];
    let mut command = place.command(&[&serve[..], &[bucket.path().to_str().unwrap()]].concat());
    command.env("NOTIFY_SOCKET", &socket).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut notice = [0; 100];
    let heard = notices.recv(&mut notice);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(notice[..heard.unwrap()].starts_with(b"READY=1"), "{notice:?}");
}
