//! Three hosts and a map: a shard moves under a writing client, whatever becomes of the hosts, and
//! each acknowledged element is found.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::process::Client;
use super::replication::ask_until;
use crate::common::{Place, free_port, unlocked};

const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster with one shard, and its hosts.
struct Cluster {
    bucket: tempfile::TempDir,
    hosts: Vec<Server>,
}

struct Server {
    name: &'static str,
    place: Place,
    port: u16,
    /// Another address for Redis clients than the socket.
    listen: Option<String>,
    child: Option<Child>,
}

impl Server {
    fn new(name: &'static str) -> Self {
        Self { name, place: Place::new(), port: free_port(), listen: None, child: None }
    }

    fn socket(&self) -> PathBuf {
        self.place.dir.path().join("socket")
    }

    fn start(&mut self, bucket: &Path) {
        let socket = format!("unix:{}", self.socket().display());
        let listens = self.listen.iter().fold(socket, |all, more| format!("{all},{more}"));
        let (http, url) = (format!("127.0.0.1:{}", self.port), format!("http://127.0.0.1:{}", self.port));
        let of = ["--cluster", bucket.to_str().unwrap(), "--shard", "a", "--host", self.name];
        let serve = ["serve", "STORE", "--listen", &listens, "--http", &http, "--advertise", &url];
        let small = ["--ring-size", "4M", "--memory", "4M", "--max-value", "64K"];
        // A busy machine may keep a sound owner from its beats for seconds.
        let often = ["--takeover-after", "8", "--backup-every", "2"];
        let mut command = self.place.command(&[&serve[..], &of, &small, &often].concat());
        let log = std::fs::File::create(self.place.dir.path().join("log")).unwrap();
        self.child = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
            unlocked(&self.place.store);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let log = std::fs::read_to_string(self.place.dir.path().join("log")).unwrap_or_default();
            eprintln!("host {}:\n{log}", self.name);
        }
    }
}

impl Cluster {
    fn start(names: &[&'static str]) -> Self {
        let bucket = tempfile::tempdir().unwrap();
        let mut cluster = Self { bucket, hosts: names.iter().map(|name| Server::new(name)).collect() };
        cluster.ok("init", &[]);
        cluster.ok("add-shard", &["a"]);
        cluster.ok("add-shard", &["b"]);
        for at in 0..names.len() {
            cluster.start_host(at);
            if at == 0 {
                cluster.wait_owner(0);
            }
            cluster.wait_registered(at);
        }
        cluster
    }

    /// Waits until a host is in the map.
    fn wait_registered(&self, at: usize) {
        let (begin, name) = (Instant::now(), self.hosts[at].name);
        while self.status()["hosts"].get(name).is_none() {
            assert!(begin.elapsed() < PATIENCE, "host {name} is not in the map");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn start_host(&mut self, at: usize) {
        self.hosts[at].start(self.bucket.path());
    }

    fn args<'a>(&'a self, command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["cluster", command, self.bucket.path().to_str().unwrap()], more].concat()
    }

    fn ok(&self, command: &str, more: &[&str]) -> String {
        Place::new().ok(&self.args(command, more))
    }

    fn fails(&self, code: i32, command: &str, more: &[&str]) -> String {
        Place::new().fails(code, &self.args(command, more))
    }

    fn status(&self) -> serde_json::Value {
        Place::new().json(&self.args("status", &[])).remove(0)
    }

    /// Waits until a host serves.
    fn wait_owner(&self, at: usize) {
        ask_until(self.hosts[at].port, "GET /readyz", "HTTP/1.1 200");
    }

    fn client(&self, at: usize) -> Client {
        self.wait_owner(at);
        Client::at(&self.hosts[at].socket())
    }
}

/// A client that adds elements to a list, one after the other, at whichever host serves.
struct Writer {
    acked: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<BTreeSet<u64>>,
}

impl Writer {
    fn start(cluster: &Cluster) -> Self {
        let sockets: Vec<PathBuf> = cluster.hosts.iter().map(Server::socket).collect();
        let (acked, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stopped) = (acked.clone(), stop.clone());
        let write = move || {
            let (mut told, mut longest, mut n) = (BTreeSet::new(), 0, 0);
            for socket in sockets.iter().cycle() {
                while let Some(len) = UnixStream::connect(socket).ok().and_then(|stream| push(stream, n)) {
                    // An owner that another one has replaced would count on an old list.
                    assert!(len > longest, "element {n} is number {len}, and number {longest} was told");
                    told.insert(n);
                    (longest, n) = (len, n + 1);
                    count.fetch_add(1, Ordering::Relaxed);
                    if stopped.load(Ordering::Relaxed) {
                        return told;
                    }
                }
                // Its fate is unknown: another element follows.
                n += 1;
                if stopped.load(Ordering::Relaxed) {
                    return told;
                }
                thread::sleep(Duration::from_millis(2));
            }
            told
        };
        Self { acked, stop, thread: thread::spawn(write) }
    }

    /// Waits until some more elements are acknowledged.
    fn goes_on(&self) {
        let (before, begin) = (self.acked.load(Ordering::Relaxed), Instant::now());
        while self.acked.load(Ordering::Relaxed) < before + 20 {
            assert!(begin.elapsed() < PATIENCE, "nothing is acknowledged any more");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(self) -> BTreeSet<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Pushes an element; returns the length of the list, or `None` if there was no acknowledgement.
fn push(stream: UnixStream, n: u64) -> Option<u64> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (number, mut stream) = (n.to_string(), BufReader::new(stream));
    let text = format!("*3\r\n$5\r\nRPUSH\r\n$4\r\nlist\r\n${}\r\n{number}\r\n", number.len());
    stream.get_mut().write_all(text.as_bytes()).ok()?;
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    line.strip_prefix(':')?.trim_end().parse().ok()
}

fn expect_all(cluster: &Cluster, at: usize, told: &BTreeSet<u64>) {
    let found: BTreeSet<u64> =
        cluster.client(at).list("list").iter().map(|element| element.parse().unwrap()).collect();
    let lost: Vec<_> = told.difference(&found).collect();
    assert!(lost.is_empty() && told.len() > 20, "{} elements, lost: {lost:?}", told.len());
}

#[test]
fn a_shard_moves_under_a_writing_client() {
    let cluster = Cluster::start(&["one", "two"]);
    let writer = Writer::start(&cluster);
    writer.goes_on();
    for (at, name) in [(1, "two"), (0, "one"), (1, "two")] {
        let told = cluster.ok("move", &["a", name]);
        assert!(told.ends_with(&format!("shard a is on {name}\n")), "{told}");
        cluster.wait_owner(at);
        writer.goes_on();
        let status = cluster.status();
        assert_eq!((&status["owner"], &status["wanted"]), (&name.into(), &name.into()), "{status}");
    }
    // The host that the shard has left stands by, and sends clients on.
    let sent = ask_until(cluster.hosts[0].port, "PUT /v1/stream/a", "HTTP/1.1 307");
    assert!(sent.contains(&format!("location: http://127.0.0.1:{}/", cluster.hosts[1].port)), "{sent}");
    let mut client = cluster.client(1);
    for space in ["tenant-7", "7"] {
        cluster.ok("assign", &[space, "b"]);
        let begin = Instant::now();
        loop {
            assert!(client.send(&[format!("SELECT {space}")]));
            let line = client.line().unwrap();
            if line == format!("-ELSEWHERE space {space} is in shard b, which has no host yet") {
                break;
            }
            // The host reads the map each second.
            assert!(begin.elapsed() < PATIENCE, "{line}");
            thread::sleep(Duration::from_millis(20));
        }
    }
    assert_eq!(client.ask("SELECT 6"), "OK");
    // A move to the owner is done at once.
    cluster.ok("move", &["a", "two"]);
    let told = writer.end();
    expect_all(&cluster, 1, &told);
    for host in &cluster.hosts {
        host.signal(Signal::TERM);
    }
    for mut host in cluster.hosts {
        let mut child = host.child.take().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{}", host.name);
    }
}

#[test]
fn a_move_survives_the_death_of_its_target_and_of_the_owner() {
    let mut cluster = Cluster::start(&["one", "two", "three"]);
    let writer = Writer::start(&cluster);
    writer.goes_on();
    cluster.fails(3, "move", &["a", "four"]);
    // The target sleeps: the owner goes on.
    let begin = Instant::now();
    while cluster.status()["hosts"].as_object().unwrap().len() < 3 {
        assert!(begin.elapsed() < PATIENCE);
    }
    cluster.hosts[2].signal(Signal::STOP);
    let message = cluster.fails(1, "move", &["a", "three", "--timeout", "1s"]);
    assert!(message.contains("has not moved after 1 seconds"), "{message}");
    writer.goes_on();
    cluster.hosts[2].signal(Signal::KILL);
    cluster.hosts[2].kill();
    cluster.ok("move", &["a", "--cancel"]);
    assert_eq!(cluster.status()["moves_to"], serde_json::Value::Null);
    // The target dies at some moment of a move; then the owner does.
    for (wait, victim, target) in [(60, "two", "two"), (250, "two", "two"), (150, "owner", "two")] {
        let owner = cluster.status()["owner"].as_str().unwrap().to_owned();
        let target = if owner == target { "one" } else { target };
        let victim = match victim {
            "owner" => owner.clone(),
            _ => target.to_owned(),
        };
        thread::scope(|scope| {
            scope.spawn(|| Place::new().run(&cluster.args("move", &["a", target, "--timeout", "5s"])));
            thread::sleep(Duration::from_millis(wait));
            let host = cluster.hosts.iter().find(|host| host.name == victim).unwrap();
            host.signal(Signal::KILL);
        });
        let at = cluster.hosts.iter().position(|host| host.name == victim).unwrap();
        cluster.hosts[at].kill();
        writer.goes_on();
        cluster.start_host(at);
        writer.goes_on();
        cluster.ok("move", &["a", "--cancel"]);
    }
    let told = writer.end();
    let owner = cluster.status()["owner"].as_str().unwrap().to_owned();
    expect_all(&cluster, cluster.hosts.iter().position(|host| host.name == owner).unwrap(), &told);
}

/// Another process has the port of the target. In the old state the target took the shard, ended,
/// and took it again, and the command reported success.
#[test]
fn a_shard_does_not_move_to_a_host_that_cannot_serve() {
    let mut cluster = Cluster::start(&["one"]);
    let writer = Writer::start(&cluster);
    writer.goes_on();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut second = Server::new("two");
    second.listen = Some(taken.local_addr().unwrap().to_string());
    cluster.hosts.push(second);
    cluster.start_host(1);
    cluster.wait_registered(1);
    let epoch = cluster.status()["epoch"].clone();
    let message = cluster.fails(1, "move", &["a", "two", "--timeout", "5s"]);
    assert!(message.contains("has not moved after 5 seconds"), "{message}");
    writer.goes_on();
    assert_eq!(cluster.status()["epoch"], epoch, "nobody else claimed the shard");
    drop(taken);
    cluster.ok("move", &["a", "two"]);
    cluster.ok("move", &["a", "one"]);
    let told = writer.end();
    expect_all(&cluster, 0, &told);
}

/// The target was wanted before, so that the map looks alike once the move is done and once it is
/// cancelled. In the old state the command reported success.
#[test]
fn a_move_to_the_wanted_host_that_is_cancelled_is_no_success() {
    use brooklet_replica::{AnyJournal, Change};
    let place = Place::new();
    let bucket = place.dir.path().join("bucket");
    std::fs::create_dir(&bucket).unwrap();
    let bucket = bucket.to_str().unwrap();
    place.ok(&["cluster", "init", bucket]);
    place.ok(&["cluster", "add-shard", bucket, "a"]);
    let register = Change::Register { shard: "a".into(), host: "one".into(), url: String::new() };
    let cluster = brooklet_replica::Cluster::new(AnyJournal::open(bucket).unwrap());
    cluster.change_now(register, None, &|| true).unwrap();
    let status = || place.json(&["cluster", "status", bucket]).remove(0);
    assert_eq!(status()["wanted"], "one");
    thread::scope(|scope| {
        let moves = scope.spawn(|| Place::new().fails(1, &["cluster", "move", bucket, "a", "one"]));
        let begin = Instant::now();
        while status()["moves_to"] != "one" {
            assert!(begin.elapsed() < PATIENCE, "nobody asks for the move");
            thread::sleep(Duration::from_millis(20));
        }
        place.ok(&["cluster", "move", bucket, "a", "--cancel"]);
        let message = moves.join().unwrap();
        assert!(message.contains("the move of shard a was cancelled"), "{message}");
    });
}

/// In the old state the first error hid all other findings.
#[test]
fn a_shard_that_cannot_be_looked_at_hides_no_other() {
    let place = Place::new();
    let bucket = place.dir.path().join("bucket");
    std::fs::create_dir(&bucket).unwrap();
    let address = bucket.to_str().unwrap();
    place.ok(&["cluster", "init", address]);
    for shard in ["a", "b"] {
        place.ok(&["cluster", "add-shard", address, shard]);
    }
    // The claim is a folder that cannot be read as an object.
    let claim = bucket.join("shards/a/claims").join(format!("{:020}", 1));
    std::fs::create_dir_all(claim.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("loop", claim.parent().unwrap().join("loop")).unwrap();
    std::os::unix::fs::symlink("loop", &claim).unwrap();
    let output = place.run(&["cluster", "doctor", address, "--json"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    let rows = printed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let kinds: Vec<(String, String)> = rows
        .map(|row| ["shard", "kind"].map(|field| row[field].as_str().unwrap_or_default().to_owned()).into())
        .collect();
    let found = |shard: &str, kind: &str| kinds.contains(&(shard.into(), kind.into()));
    assert!(found("a", "no-look") && found("b", "no-log"), "{kinds:?}");
    assert_eq!(output.status.code(), Some(1));
    let output = place.run(&["cluster", "status", address]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("shard a cannot be looked at") && printed.contains("\nb "), "{printed}");
    assert_ne!(output.status.code(), Some(0));
}

#[test]
fn what_is_no_cluster_is_refused() {
    let place = Place::new();
    let bucket = place.dir.path().join("bucket");
    std::fs::create_dir(&bucket).unwrap();
    let bucket = bucket.to_str().unwrap();
    let serve = ["serve", "STORE", "--listen", "unix:socket", "--http", ""];
    let refused = |code: i32, more: &[&str], why: &str| {
        let message = place.fails(code, &[&serve[..], more].concat());
        assert!(message.contains(why), "{message}");
    };
    refused(2, &["--cluster", bucket], "--cluster needs --shard");
    refused(2, &["--shard", "a"], "--shard needs --cluster");
    refused(2, &["--host", "a"], "--host needs --cluster");
    let both = ["--cluster", bucket, "--shard", "a"];
    refused(2, &[&both[..], &["--replicate", bucket]].concat(), "--cluster and --replicate");
    refused(2, &[&both[..], &["--read-replica"]].concat(), "--cluster and --read-replica");
    refused(2, &["--cluster", "nats://a/b", "--shard", "a"], "needs a bucket");
    refused(3, &both, &format!("{bucket} has no map of a cluster"));
    for command in [&["status"][..], &["doctor"], &["add-shard", "a"], &["move", "a", "b"]] {
        for named in [bucket, "none"] {
            let args = [&["cluster", command[0], named], &command[1..]].concat();
            let message = place.fails(3, &args);
            assert!(message.contains(&format!("{named} has no map of a cluster")), "{message}");
        }
        assert!(!place.dir.path().join("none").exists(), "{command:?} makes no folder");
    }
    place.ok(&["cluster", "init", bucket]);
    place.ok(&["cluster", "init", bucket]);
    refused(3, &both, "has no shard");
    place.ok(&["cluster", "add-shard", bucket, "a"]);
    assert!(place.fails(1, &["cluster", "add-shard", bucket, "a"]).contains("already"));
    assert!(place.fails(2, &["cluster", "add-shard", bucket, "../a"]).contains("is no name"));
    refused(2, &["--cluster", bucket, "--shard", "a", "--host", "a/b"], "is no name");
    place.ok(&["cluster", "assign", bucket, "tenant-7", "a"]);
    place.fails(3, &["cluster", "assign", bucket, "tenant-7", "b"]);
    let status = place.json(&["cluster", "status", bucket]).remove(0);
    assert_eq!((&status["spaces"][0], &status["owner"]), (&"tenant-7".into(), &serde_json::Value::Null));
    assert!(!place.store.exists(), "a refused start leaves nothing");
}

/// Nobody has served the shard yet. In the old state these commands made the folders of its log and
/// of its backups, and failed where they may write nothing.
#[test]
fn status_and_doctor_make_no_folder_of_a_shard() {
    let place = Place::new();
    let folder = place.dir.path().join("bucket");
    let bucket = folder.to_str().unwrap();
    place.ok(&["cluster", "init", bucket]);
    place.ok(&["cluster", "add-shard", bucket, "a"]);
    assert_eq!(place.json(&["cluster", "status", bucket])[0]["shard"], "a");
    assert!(!folder.join("shards").exists());
    let doctor = place.run(&["cluster", "doctor", bucket]);
    let printed = String::from_utf8(doctor.stdout).unwrap();
    assert!(printed.contains("nobody has served the shard yet"), "{printed}");
    assert!(doctor.status.code() == Some(1) && !folder.join("shards").exists());
}

#[test]
fn the_doctor_finds_what_was_removed() {
    let cluster = Cluster::start(&["one", "two"]);
    cluster.client(0).ask("RPUSH list a");
    cluster.ok("move", &["a", "two"]);
    cluster.client(1).ask("RPUSH list b");
    let log = cluster.bucket.path().join("shards/a");
    let begin = Instant::now();
    while std::fs::read_dir(log.join("records")).map_or(0, Iterator::count) == 0 {
        assert!(begin.elapsed() < PATIENCE, "no backup is recorded");
        cluster.client(1).ask("RPUSH list c");
        thread::sleep(Duration::from_millis(50));
    }
    let place = Place::new();
    let doctor = cluster.args("doctor", &["--json"]);
    let kinds = || {
        let output = place.run(&doctor);
        let printed = String::from_utf8(output.stdout).unwrap();
        let rows = printed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let kinds: Vec<String> = rows.map(|row| row["kind"].as_str().unwrap().to_owned()).collect();
        assert_eq!(output.status.code(), Some(i32::from(!kinds.is_empty())), "{kinds:?}");
        kinds
    };
    assert_eq!(kinds(), ["no-host", "no-log"], "of shard b");
    // A backup would make a folder anew that is aside.
    cluster.hosts.iter().for_each(|host| host.signal(Signal::KILL));
    let without = |path: PathBuf, kind: &str| {
        let aside = cluster.bucket.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        assert!(kinds().iter().any(|found| found == kind), "{kind} without {path:?}: {:?}", kinds());
        std::fs::rename(&aside, &path).unwrap();
    };
    without(log.join("claims").join(format!("{:020}", 1)), "claims-missing");
    without(log.join("log").join(format!("{:020}", 1)), "fences-missing");
    without(log.join("backups"), "no-backup");
    // Of hosts with --backups, they are there at all times.
    let elsewhere = cluster.bucket.path().join("elsewhere");
    std::fs::rename(log.join("backups"), &elsewhere).unwrap();
    let of_shard = format!("a={}", elsewhere.display());
    let output = place.run(&cluster.args("doctor", &["--json", "--backups", &of_shard]));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("no-host") && !printed.contains("no-backup"), "{printed}");
    assert_eq!(output.status.code(), Some(1));
    std::fs::rename(&elsewhere, log.join("backups")).unwrap();
    for (wrong, code) in [("elsewhere", 2), ("=elsewhere", 2), ("c=elsewhere", 3), ("a=elsewhere", 3)] {
        let output = place.run(&cluster.args("doctor", &["--backups", wrong]));
        assert_eq!(output.status.code(), Some(code), "{wrong}");
    }
    assert!(!place.dir.path().join("elsewhere").exists(), "the doctor makes no folder");
    without(cluster.bucket.path().join("map").join(format!("{:020}", 1)), "maps-missing");
    let map = cluster.bucket.path().join("map");
    let newest = std::fs::read_dir(&map).unwrap().count();
    std::fs::write(map.join(format!("{:020}", newest + 1)), "nothing").unwrap();
    assert_eq!(kinds(), ["map-damaged"]);
}
