//! Clients of two hosts see one order of all commands, over Redis and over HTTP, whether the owner
//! of the store is killed, or sleeps and goes on after another host has taken the store over.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::documents;
use super::linear::{Heard, KEYS, any, check, take_the_rest, words};
use super::lines::{Asked, Given};
use super::process::{Chance, Client};
use super::replication::Host;

const CLIENTS: u64 = 4;
/// Commands of a client for each life of the owner.
const COMMANDS: u64 = 9;

fn http_socket(host: &Host) -> PathBuf {
    host.place.dir.path().join("http")
}

fn start(host: &mut Host, bucket: &std::path::Path, more: &[&str]) {
    let http = format!("unix:{}", http_socket(host).display());
    host.start(bucket, &[&["--http", &http], more].concat());
}

/// Sends a command, and returns what was heard of it. A client whose command got no reply must
/// connect anew: the command had its effect, or not.
fn send(client: &mut Client, asked: Asked, key: &str, begin: Instant) -> Given {
    let now = || begin.elapsed().as_nanos() as u64;
    let call = now();
    let is_sent = client.send(&[words(asked, key)]);
    // An owner that was replaced refuses commands, and it may have committed them before.
    let line = if is_sent { client.line() } else { None };
    let reply = line.filter(|line| !line.starts_with('-'));
    let value = reply.map(|line| match line.as_str() {
        "$-1" => 0,
        _ if line.starts_with('$') => client.line().expect("the whole reply").parse().unwrap(),
        _ => line[1..].parse().unwrap(),
    });
    Given { asked, call, end: now(), reply: value }
}

/// Gives commands to one host, until one gets no reply, or so many have got one.
fn give(socket: &std::path::Path, history: u64, seed: u64, begin: Instant, values: &AtomicU64) -> Heard {
    let (mut client, mut chance) = (Client::at(socket), Chance(seed));
    let mut heard = Heard::new();
    for _ in 0..COMMANDS {
        let (key, asked) = (chance.below(KEYS), any(&mut chance, values));
        let given = send(&mut client, asked, &format!("{history}:{key}"), begin);
        heard.push((key, given));
        if given.reply.is_none() {
            break;
        }
    }
    heard
}

/// Before replies waited for the lease of the owner, an owner that had slept answered reads from
/// before the takeover.
#[test]
fn an_owner_that_slept_answers_no_old_read() {
    let bucket = tempfile::tempdir().unwrap();
    let (mut owner, mut standby) = (Host::new(), Host::new());
    start(&mut owner, bucket.path(), &[]);
    owner.wait_ready();
    assert_eq!(owner.push(0, 1), 1);
    let put = "PUT /v1/documents/d HTTP/1.1\r\nIf-None-Match: *\r\n";
    assert_eq!(documents::ask(&http_socket(&owner), put, "{}").unwrap().status, 201);
    start(&mut standby, bucket.path(), &["--standby"]);
    let mut readers: Vec<Client> = (0..20).map(|_| Client::at(&owner.socket())).collect();
    readers.iter_mut().for_each(|reader| assert_eq!(reader.ask("LLEN list"), "1"));
    owner.signal(Signal::STOP);
    standby.wait_ready();
    standby.push(1, 1);
    let patch = "PATCH /v1/documents/d HTTP/1.1\r\nIf-Match: \"1\"\r\nIdempotency-Key: a\r\n\
                 Content-Type: application/merge-patch+json\r\n";
    assert_eq!(documents::ask(&http_socket(&standby), patch, "{\"a\":1}").unwrap().status, 200);
    for reader in &mut readers {
        reader.send(&["LLEN list".to_owned()]);
    }
    let http = http_socket(&owner);
    let documents = thread::spawn(move || {
        let read = |_| documents::ask(&http, "GET /v1/documents/d HTTP/1.1\r\n", "");
        (0..20).filter_map(read).filter(|reply| reply.status == 200).count()
    });
    owner.signal(Signal::CONT);
    for mut reader in readers {
        let line = reader.line();
        assert!(line.as_ref().is_none_or(|line| line.starts_with('-')), "an old read: {line:?}");
    }
    assert_eq!(documents.join().unwrap(), 0, "an old document");
    assert!(owner.end().starts_with("Some(7)"));
}

#[test]
fn takeovers_do_not_change_the_order_over_redis() {
    let bucket = tempfile::tempdir().unwrap();
    let (mut owner, mut standby) = (Host::new(), Host::new());
    start(&mut owner, bucket.path(), &[]);
    owner.wait_ready();
    let (begin, values, mut chance) = (Instant::now(), AtomicU64::new(1), Chance(5));
    for history in 0..takeovers() {
        start(&mut standby, bucket.path(), &["--standby"]);
        let (sleeps, old, new) = (history % 2 == 1, owner.socket(), standby.socket());
        let values = &values;
        let mut heard: Heard = thread::scope(|scope| {
            let clients = |socket: &PathBuf, life: u64| -> Vec<_> {
                let client = |n| {
                    let (socket, seed) = (socket.clone(), history * 1000 + life * 100 + n);
                    scope.spawn(move || give(&socket, history, seed, begin, values))
                };
                (0..CLIENTS).map(client).collect()
            };
            // Some get their replies before, some after, and some none.
            let mut all = clients(&old, 0);
            thread::sleep(Duration::from_millis(chance.below(60)));
            if sleeps {
                owner.signal(Signal::STOP);
                // These wait for an owner that sleeps.
                all.extend(clients(&old, 1));
            } else {
                owner.kill();
            }
            standby.wait_ready();
            all.extend(clients(&new, 2));
            if sleeps {
                thread::sleep(Duration::from_millis(chance.below(100)));
                owner.signal(Signal::CONT);
            }
            all.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        if sleeps {
            assert!(owner.end().starts_with("Some(7)"));
        }
        take_the_rest(&mut Client::at(&new), history, begin, &mut heard);
        check(history, &heard);
        std::mem::swap(&mut owner, &mut standby);
    }
}

#[test]
fn takeovers_do_not_change_the_order_over_http() {
    let bucket = tempfile::tempdir().unwrap();
    let (mut owner, mut standby) = (Host::new(), Host::new());
    start(&mut owner, bucket.path(), &[]);
    owner.wait_ready();
    let (begin, mut chance, first) = (Instant::now(), Chance(6), json!({"list": []}));
    let both = [http_socket(&owner), http_socket(&standby)];
    for document in 0..takeovers() {
        let put = format!("PUT /v1/documents/d{document} HTTP/1.1\r\nIf-None-Match: *\r\n");
        let put = documents::ask(&http_socket(&owner), &put, &first.to_string());
        assert_eq!(put.unwrap().status, 201);
        start(&mut standby, bucket.path(), &["--standby"]);
        let (stop, both) = (&AtomicBool::new(false), &both);
        let told: Vec<documents::Told> = thread::scope(|scope| {
            let client = |n: u64| {
                scope.spawn(move || {
                    let name = document * CLIENTS + n;
                    let mut client = documents::Client::new(both.to_vec(), name, begin);
                    let mut version = 1;
                    for n in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                        // The history has all of the changes below 100.
                        if version >= 80 {
                            break;
                        }
                        version = client.work(document, version, n);
                        // The document lives through the takeover.
                        thread::sleep(Duration::from_millis(20));
                    }
                    client.told
                })
            };
            let clients: Vec<_> = (0..CLIENTS).map(client).collect();
            thread::sleep(Duration::from_millis(100 + chance.below(60)));
            let sleeps = document % 2 == 1;
            if sleeps {
                owner.signal(Signal::STOP)
            } else {
                owner.kill()
            }
            standby.wait_ready();
            thread::sleep(Duration::from_millis(chance.below(100)));
            if sleeps {
                owner.signal(Signal::CONT);
                assert!(owner.end().starts_with("Some(7)"));
            }
            thread::sleep(Duration::from_millis(200));
            stop.store(true, Ordering::Relaxed);
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        let told: Vec<&documents::Told> = told.iter().collect();
        assert!(told.iter().any(|told| matches!(told.what, documents::What::Made(_))));
        documents::check(&http_socket(&standby), document, &first, &told);
        std::mem::swap(&mut owner, &mut standby);
    }
}

/// Takeovers of each test. `TAKEOVERS` sets another number.
fn takeovers() -> u64 {
    std::env::var("TAKEOVERS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}
