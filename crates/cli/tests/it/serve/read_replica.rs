//! `serve --read-replica`: a server that follows the log of another one shows what that one has,
//! also of keys, streams and documents that its memory had before they changed.

mod http;
mod lives;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::process::{Chance, Client};
use super::replication::{Host, PATIENCE};

/// Each backup shortens the log. A replica that a busy machine keeps from its reads would be
/// trimmed past, make its file anew, and disconnect its clients.
const RARELY: [&str; 2] = ["--backup-every", "1h"];

/// The number behind a name in `INFO replication`.
fn told(client: &mut Client, name: &str) -> u64 {
    let info = client.ask("INFO replication");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {info}")).parse().unwrap()
}

/// Waits until the replica shows all that the owner has acknowledged.
fn settle(owner: &mut Client, replica: &mut Client) {
    let (place, begin) = (told(owner, "master_repl_offset"), Instant::now());
    assert!(place > 0);
    while told(replica, "slave_repl_offset") < place {
        assert!(begin.elapsed() < PATIENCE, "{}", replica.ask("INFO replication"));
        thread::sleep(Duration::from_millis(5));
    }
}

/// The first line of the reply, which may be an error.
fn line(client: &mut Client, request: &str) -> String {
    assert!(client.send(&[request.to_owned()]));
    client.line().unwrap()
}

/// All that commands tell of all keys.
fn everything(client: &mut Client) -> Vec<String> {
    let mut keys: Vec<String> = client.ask("KEYS *").split_whitespace().map(str::to_owned).collect();
    keys.sort();
    let mut scanned: Vec<String> = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let reply = client.ask(&format!("SCAN {cursor} COUNT 50"));
        let mut words = reply.split_whitespace().map(str::to_owned);
        cursor = words.next().unwrap();
        scanned.extend(words);
        if cursor == "0" {
            break;
        }
    }
    scanned.sort();
    assert_eq!(keys, scanned);
    assert_eq!(client.ask("DBSIZE"), keys.len().to_string());
    let mut all = Vec::new();
    for key in &keys {
        let kind = client.ask(&format!("TYPE {key}"));
        let requests: &[&str] = match kind.as_str() {
            "string" => &["GET", "STRLEN"],
            "list" => &["LRANGE # 0 -1", "LLEN", "LINDEX # -1"],
            "hash" => &["HGETALL", "HLEN", "HKEYS"],
            "stream" => &["XRANGE # - +", "XLEN", "XREVRANGE # + - COUNT 1", "XINFO STREAM", "XINFO GROUPS"],
            other => panic!("{key} is a {other}"),
        };
        for request in requests.iter().chain(&["PEXPIRETIME", "EXISTS"]) {
            let request =
                if request.contains('#') { request.replace('#', key) } else { format!("{request} {key}") };
            all.push(format!("{request}: {}", client.ask(&request)));
        }
    }
    all
}

/// An owner, and a replica that follows it, with their clients.
struct Pair {
    bucket: TempDir,
    owner: Host,
    replica: Host,
    writes: Client,
    reads: Client,
}

impl Pair {
    fn new() -> Self {
        Self::with(&[], &[])
    }

    fn with(of_owner: &[&str], of_replica: &[&str]) -> Self {
        let bucket = tempfile::tempdir().unwrap();
        let (mut owner, mut replica) = (Host::new(), Host::new());
        owner.start(bucket.path(), &[&RARELY, of_owner].concat());
        owner.wait_ready();
        let mut writes = Client::at(&owner.socket());
        writes.ask("SET begin 1");
        start(&mut replica, bucket.path(), of_replica);
        let reads = Client::at(&replica.socket());
        Self { bucket, owner, replica, writes, reads }
    }

    fn settle(&mut self) {
        settle(&mut self.writes, &mut self.reads);
    }

    fn same(&mut self) -> Vec<String> {
        self.settle();
        let (there, here) = (everything(&mut self.writes), everything(&mut self.reads));
        assert_eq!(here, there);
        here
    }
}

fn start(replica: &mut Host, bucket: &Path, more: &[&str]) {
    replica.start(bucket, &[&["--read-replica"], more].concat());
    replica.wait_ready();
}

#[test]
fn keys_of_every_type_change_under_a_warm_replica() {
    let mut pair = Pair::new();
    let rounds: [&[&str]; 4] = [
        &["SET s one", "RPUSH l a b c", "HSET h f 1 g 2", "XADD x 1-1 f v", "SET t x EX 1000"],
        &["APPEND s two", "LPUSH l z", "HSET h f 9", "XADD x 2-1 f w", "XGROUP CREATE x grp 0", "PERSIST t"],
        &[
            "SET l text",
            "DEL s",
            "HDEL h f",
            "XREADGROUP GROUP grp me STREAMS x >",
            "RENAME t u",
            "XDEL x 1-1",
        ],
        &["SELECT 0", "DEL l h x u", "RPUSH s 1", "HSET x f 1"],
    ];
    for requests in rounds {
        for request in requests {
            pair.writes.ask(request);
        }
        // The second look is at what memory has.
        assert_eq!(pair.same(), pair.same());
    }
    pair.writes.ask("FLUSHALL");
    assert!(pair.same().is_empty());
}

/// A random command on some keys.
fn command(chance: &mut Chance) -> String {
    let (at, other, n) = (chance.below(300), chance.below(300), chance.below(1000));
    // Few keys change their type, so that most commands fit.
    let (s, l, h, x) = (format!("s{at}"), format!("l{at}"), format!("h{at}"), format!("x{}", at % 30));
    match chance.below(24) {
        0..=3 => format!("SET {s} {n}"),
        4 => format!("APPEND {s} {n}"),
        5 => format!("SET {s} {n} EX {}", 1000 + n),
        6..=7 => format!("RPUSH {l} {n} {at}"),
        8 => format!("LPUSH {l} {n}"),
        9 => format!("LPOP {l}"),
        10 => format!("LTRIM {l} 0 {}", n % 5),
        11 => format!("LSET {l} 0 {n}"),
        12..=13 => format!("HSET {h} f{} {n}", n % 7),
        14 => format!("HDEL {h} f{}", n % 7),
        15..=16 => format!("XADD {x} * f {n}"),
        17 => format!("XTRIM {x} MAXLEN {}", n % 20),
        18 => format!("DEL {s} {l}"),
        19 => format!("RENAME {s} s{other}"),
        20 => format!("COPY {l} l{other} REPLACE"),
        21 => format!("EXPIRE {h} {}", 2000 + n),
        22 => format!("SET {l} text"),
        _ => format!("MSET {s} {n} s{other} {n}"),
    }
}

/// Random commands at the owner, while clients of the replica keep all keys in its memory.
#[test]
fn random_commands_leave_the_same_keys_on_both() {
    let mut pair = Pair::new();
    let socket = pair.replica.socket();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, mut chance) = (Client::at(&socket), Chance(5));
            while !is_done.load(Ordering::Relaxed) {
                let at = chance.below(300);
                for request in [
                    format!("GET s{at}"),
                    format!("LRANGE l{at} 0 -1"),
                    format!("HGETALL h{at}"),
                    format!("XRANGE x{} - +", at % 30),
                    "DBSIZE".to_owned(),
                ] {
                    // The key may be of another type, and then the reply is an error.
                    client.any_of(&request);
                }
            }
        });
        let mut chance = Chance(7);
        for round in 0..12 {
            let requests: Vec<String> = (0..250).map(|_| command(&mut chance)).collect();
            assert!(pair.writes.send(&requests));
            for _ in &requests {
                pair.writes.any().unwrap();
            }
            if round == 7 {
                pair.writes.ask("FLUSHDB");
            }
            let keys = pair.same();
            assert_eq!(keys.is_empty(), round == 7, "round {round}");
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

/// Two keys that one commit writes have the same value in each reply.
#[test]
fn a_command_sees_each_commit_as_a_whole() {
    let mut pair = Pair::new();
    pair.writes.ask("MSET a 0 b 0");
    pair.settle();
    let socket = pair.owner.socket();
    let is_done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, mut n) = (Client::at(&socket), 0);
            while !is_done.load(Ordering::Relaxed) {
                n += 1;
                client.ask(&format!("MSET a {n} b {n}"));
            }
        });
        let (begin, mut seen) = (Instant::now(), std::collections::BTreeSet::new());
        while seen.len() < 40 && begin.elapsed() < PATIENCE {
            let both = pair.reads.ask("MGET a b");
            let (a, b) = both.split_once(' ').unwrap();
            assert_eq!(a, b);
            for request in ["MULTI", "GET a", "GET b"] {
                pair.reads.ask(request);
            }
            let both = pair.reads.ask("EXEC");
            let (a, b) = both.split_once(' ').unwrap();
            assert_eq!(a, b);
            seen.insert(a.to_owned());
        }
        is_done.store(true, Ordering::Relaxed);
        seen.len()
    });
    assert!(seen >= 40, "{seen}");
}

#[test]
fn a_key_that_has_expired_is_hidden_before_its_owner_deletes_it() {
    let mut pair = Pair::new();
    pair.writes.ask("SET gone x EX 1000");
    pair.settle();
    assert_eq!(pair.reads.ask("GET gone"), "x");
    // Together, so that the key does not expire between the two.
    assert!(pair.writes.send(&["SET stays x PX 1500".into(), "PERSIST stays".into()]));
    assert_eq!([pair.writes.reply().unwrap(), pair.writes.reply().unwrap()], ["OK", "1"]);
    for request in ["PEXPIRE gone 1500", "HSET cold f x", "PEXPIRE cold 1500"] {
        pair.writes.ask(request);
    }
    let begin = Instant::now();
    pair.settle();
    pair.owner.signal(Signal::STOP);
    while pair.reads.ask("EXISTS gone") == "1" {
        assert!(begin.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(20));
    }
    // Nobody asks for the other key before its time is over, too.
    thread::sleep(Duration::from_millis(1600).saturating_sub(begin.elapsed()));
    assert_eq!((pair.reads.ask("GET gone"), pair.reads.ask("PTTL gone")), ("nil".into(), "-2".into()));
    let mut keys: Vec<String> = pair.reads.ask("KEYS *").split(' ').map(str::to_owned).collect();
    keys.sort();
    assert_eq!(keys, ["begin", "stays"]);
    assert_eq!(pair.reads.ask("SCAN 0"), "0 begin stays");
    assert_eq!(pair.reads.ask("HGETALL cold"), "");
    pair.owner.signal(Signal::CONT);
    // The owner deletes them, or has a new value.
    pair.writes.ask("SET gone again");
    while pair.reads.ask("DBSIZE") != "3" {
        assert!(begin.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(pair.same().len(), 12);
    assert_eq!(pair.reads.ask("MGET gone stays"), "again x");
}

#[test]
fn clients_of_a_replica_wait_watch_and_track() {
    let mut pair = Pair::new();
    pair.writes.ask("XADD x 1-1 f v");
    pair.settle();
    let mut waits = Client::at(&pair.replica.socket());
    assert!(waits.send(&["XREAD BLOCK 60000 STREAMS x $".to_owned()]));
    while told_of(&mut pair.reads, "INFO clients", "blocked_clients") == 0 {
        thread::sleep(Duration::from_millis(5));
    }
    let mut copies = Client::at(&pair.replica.socket());
    for request in ["HELLO 3", "CLIENT TRACKING ON"] {
        copies.any_of(request);
    }
    pair.reads.ask("GET watched");
    copies.any_of("GET watched");
    for request in ["WATCH watched", "MULTI", "GET watched"] {
        pair.reads.ask(request);
    }
    let mut same = Client::at(&pair.replica.socket());
    for request in ["WATCH begin", "MULTI", "GET begin"] {
        same.ask(request);
    }
    pair.writes.ask("XADD x 2-1 f w");
    pair.writes.ask("SET watched 1");
    assert_eq!(waits.reply().unwrap(), "x 2-1 f w");
    let mut looks = Client::at(&pair.replica.socket());
    settle(&mut pair.writes, &mut looks);
    assert_eq!(pair.reads.ask("EXEC"), "nil");
    assert_eq!(same.ask("EXEC"), "1");
    assert_eq!(copies.line().unwrap(), ">2");
}

fn told_of(client: &mut Client, request: &str, name: &str) -> u64 {
    let info = client.ask(request);
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_replica_refuses_writes_in_the_words_of_redis() {
    let mut pair = Pair::new();
    let client = &mut pair.reads;
    let refused = "-READONLY You can't write against a read only replica.";
    for request in [
        "SET a 1",
        "DEL begin",
        "BLPOP l 0",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS x >",
        "SORT l",
        "GETEX begin",
        "FLUSHALL",
        "EXPIRE begin 1",
    ] {
        assert_eq!(line(client, request), refused);
    }
    // Requests that arrive together run as one commit elsewhere.
    assert!(client.send(&["GET begin".into(), "SET a 1".into(), "SET b 1".into(), "GET begin".into()]));
    assert_eq!(client.reply().unwrap(), "1");
    assert_eq!((client.line().unwrap(), client.line().unwrap()), (refused.into(), refused.into()));
    assert_eq!(client.reply().unwrap(), "1");
    assert_eq!(client.ask("MULTI"), "OK");
    assert_eq!(line(client, "SET a 1"), refused);
    assert!(line(client, "EXEC").starts_with("-EXECABORT"));
    let script = line(client, "EVAL return(redis.call('set',KEYS[1],'1')) 1 a");
    assert!(script.starts_with(refused) && script.contains("script: "), "{script}");
    assert_eq!(client.ask("EVAL return(redis.call('get',KEYS[1])) 1 begin"), "1");
    assert!(line(client, "WAIT 1 0").starts_with("-ERR WAIT cannot be used with replica instances."));
    assert!(line(client, "WAITAOF 1 0 0").starts_with("-ERR WAITAOF cannot be used"));
    assert_eq!(client.ask("CONFIG SET notify-keyspace-events KEA"), "OK");
    assert_eq!(client.ask("SAVE"), "OK");
    assert_eq!(client.ask("KEYS *"), "begin");
}
