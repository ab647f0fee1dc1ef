//! Documents over HTTP under kills of the server: concurrent clients see one order of all requests,
//! and each request is applied exactly once.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brooklet_documents::{Json, JsonChange, Model};
use serde_json::{Value, json};

use crate::serve::process::{Chance, Process};

const CLIENTS: u64 = 5;
const DOCUMENTS: u64 = 2;
/// Longest time that a client waits for a server to be there again.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Reply {
    pub status: u16,
    version: u64,
    is_replayed: bool,
    body: Value,
}

/// Asks once; `None` if the server goes before the whole reply is there.
pub fn ask(socket: &Path, head: &str, body: &str) -> Option<Reply> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let len = body.len();
    write!(stream, "{head}Host: localhost\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n{body}")
        .ok()?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).ok()?;
    let text = String::from_utf8(reply).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let header = |name: &str| {
        let of = |line: &str| line.split_once(": ").map(|(a, b)| (a.to_ascii_lowercase(), b.to_owned()));
        head.lines().filter_map(of).find_map(|(of, value)| (of == name).then_some(value))
    };
    (header("content-length")?.parse() == Ok(body.len())).then_some(())?;
    Some(Reply {
        status: head.split(' ').nth(1)?.parse().ok()?,
        version: header("etag").map_or(0, |tag| tag.trim_matches('"').parse().unwrap()),
        is_replayed: header("idempotency-replayed").is_some(),
        body: serde_json::from_str(body).unwrap_or_default(),
    })
}

/// What a client was told.
#[derive(Clone, Debug)]
pub struct Told {
    pub document: u64,
    /// When the request was sent first, and when its reply was there.
    call: u64,
    end: u64,
    /// The version that the reply names.
    version: u64,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A change with this id made the version.
    Made(String),
    /// A change with this id was refused: the document is at the version.
    Refused(String),
    /// The state at the version.
    Read(Value),
}

pub struct Client {
    /// The servers, one of which owns the store.
    sockets: Vec<PathBuf>,
    name: String,
    begin: Instant,
    chance: Chance,
    pub told: Vec<Told>,
    pub retries: u64,
    replays: u64,
}

impl Client {
    pub fn new(sockets: Vec<PathBuf>, n: u64, begin: Instant) -> Self {
        let (name, chance) = (format!("c{n}"), Chance(n + 1));
        Self { sockets, name, begin, chance, told: Vec::new(), retries: 0, replays: 0 }
    }

    /// Asks until there is a reply: the same request again after each kill, of each server in turn.
    fn insist(&mut self, head: &str, body: &str) -> Reply {
        let begin = Instant::now();
        loop {
            // One of several servers may not be the owner of the store, or no more.
            let is_other = |reply: &Reply| self.sockets.len() > 1 && matches!(reply.status, 307 | 500 | 503);
            if let Some(reply) = ask(&self.sockets[0], head, body).filter(|reply| !is_other(reply)) {
                self.replays += u64::from(reply.is_replayed);
                return reply;
            }
            assert!(begin.elapsed() < PATIENCE, "no server");
            self.sockets.rotate_left(1);
            self.retries += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Makes one request on a document whose version was last seen as `version`.
    pub fn work(&mut self, document: u64, version: u64, n: u64) -> u64 {
        let path = format!("/v1/documents/d{document}");
        let id = format!("{}-{n}", self.name);
        let writes = format!("If-Match: \"{version}\"\r\nIdempotency-Key: {id}\r\n");
        let call = self.now();
        let (reply, is_change) = match self.chance.below(8) {
            0..3 => (self.insist(&format!("GET {path} HTTP/1.1\r\n"), ""), false),
            3 if version > 1 => {
                let to = version - 1;
                (self.insist(&format!("POST {path}?rewind={to} HTTP/1.1\r\n{writes}"), ""), true)
            }
            4 => {
                let patch = json!([{"op": "add", "path": "/list/-", "value": id}]).to_string();
                let kind = "Content-Type: application/json-patch+json\r\n";
                (self.insist(&format!("PATCH {path} HTTP/1.1\r\n{kind}{writes}"), &patch), true)
            }
            _ => {
                let patch = json!({self.name.as_str(): n}).to_string();
                let kind = "Content-Type: application/merge-patch+json\r\n";
                (self.insist(&format!("PATCH {path} HTTP/1.1\r\n{kind}{writes}"), &patch), true)
            }
        };
        let what = match (reply.status, is_change) {
            (200, true) => What::Made(id),
            (412, true) => What::Refused(id),
            (200, false) => What::Read(reply.body),
            (status, _) => panic!("{status}: {}", reply.body),
        };
        self.told.push(Told { document, call, end: self.now(), version: reply.version, what });
        reply.version
    }
}

/// Checks what all clients were told of a document against its history.
pub fn check(socket: &Path, document: u64, first: &Value, told: &[&Told]) {
    let head = format!("GET /v1/documents/d{document}?history HTTP/1.1\r\n");
    let history = ask(socket, &head, "").expect("the server is there").body;
    assert_eq!(history["head"], history["version"], "the history is whole");
    // The states and the requests, by versions.
    let (mut states, mut made) = (vec![Value::Null, first.clone()], BTreeMap::new());
    let mut state = first.clone().into();
    for update in history["updates"].as_array().unwrap() {
        let text = update["change"]["patch"].to_string();
        let change = match update["change"]["type"].as_str().unwrap() {
            "application/merge-patch+json" => JsonChange::parse_merge(text.as_bytes()),
            _ => JsonChange::parse_patch(text.as_bytes()),
        };
        Json::new().apply(&mut state, &change.unwrap()).unwrap();
        assert_eq!(update["version"], states.len());
        let twice = made.insert(update["request"].as_str().unwrap().to_owned(), states.len() as u64);
        assert_eq!(twice, None, "{update} happened twice");
        states.push(state.value().clone());
    }
    for told in told {
        match &told.what {
            What::Made(id) => assert_eq!(made.get(id), Some(&told.version), "{told:?}"),
            What::Refused(id) => assert_eq!(made.get(id), None, "{told:?}"),
            What::Read(state) => assert_eq!(state, &states[told.version as usize], "{told:?}"),
        }
    }
    let acknowledged = told.iter().filter(|told| matches!(told.what, What::Made(_))).count();
    assert_eq!(acknowledged, made.len(), "all requests have their reply by now");
    // The order by versions is an order of all requests if it agrees with the clock: what ended
    // before another began has no later place.
    let place = |told: &Told| 2 * told.version + u64::from(!matches!(told.what, What::Made(_)));
    for before in told {
        for after in told {
            let fits = before.end >= after.call || place(before) <= place(after);
            assert!(fits, "no order has {before:?} before {after:?}");
        }
    }
}

#[test]
fn each_request_happens_once_in_one_order_whatever_is_killed() {
    let mut process = Process::with_http();
    let socket = process.http_socket();
    let (begin, mut chance) = (Instant::now(), Chance(11));
    let first = json!({"list": []});
    for document in 0..DOCUMENTS {
        let head = format!("PUT /v1/documents/d{document} HTTP/1.1\r\nIf-None-Match: *\r\n");
        assert_eq!(ask(&socket, &head, &first.to_string()).unwrap().status, 201);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let (socket, stop, done) = (socket.clone(), stop.clone(), done.clone());
            std::thread::spawn(move || {
                let mut client = Client::new(vec![socket], n, begin);
                let mut versions = [1; DOCUMENTS as usize];
                // The history has all of the changes below 100.
                for n in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let document = client.chance.below(DOCUMENTS);
                    let version = &mut versions[document as usize];
                    if *version < 80 {
                        *version = client.work(document, *version, n);
                        done.fetch_add(1, Ordering::Relaxed);
                    } else if versions.iter().all(|version| *version >= 80) {
                        break;
                    }
                }
                client
            })
        })
        .collect();
    for _ in 0..40 {
        // Some requests are through, and others are on their way.
        let next = done.load(Ordering::Relaxed) + 1 + chance.below(12);
        let is_over = || clients.iter().all(|client| client.is_finished());
        while done.load(Ordering::Relaxed) < next && !is_over() {
            std::thread::sleep(Duration::from_micros(100));
        }
        if is_over() {
            break;
        }
        std::thread::sleep(Duration::from_micros(chance.below(3_000)));
        process.kill();
        process.start();
    }
    stop.store(true, Ordering::Relaxed);
    let clients: Vec<Client> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let told: Vec<&Told> = clients.iter().flat_map(|client| &client.told).collect();
    for document in 0..DOCUMENTS {
        let told: Vec<&Told> = told.iter().copied().filter(|told| told.document == document).collect();
        assert!(told.iter().any(|told| matches!(told.what, What::Made(_))));
        check(&socket, document, &first, &told);
    }
    let sum = |of: fn(&Client) -> u64| clients.iter().map(of).sum::<u64>();
    let (retries, replays) = (sum(|client| client.retries), sum(|client| client.replays));
    eprintln!(
        "{} requests, {retries} without a reply at first, {replays} with a first reply again",
        told.len()
    );
}
