//! Mutated requests in both protocols, before and after the password, to a server with little
//! address space: the server stays, and serves others.
//!
//! `BROOKLET_HOSTILE` sets the number of requests of each kind, and `BROOKLET_SILENT` the number of
//! idle clients.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::process::Chance;
use super::strain::{self, Strained, ask, get};
use crate::common::Place;

/// Address space of a server, in KiB.
const SPACE: &str = "ulimit -v 2097152";
const SETTINGS: [&str; 6] = ["--password", "pw", "--max-reply", "8M", "--client-memory", "64M"];
/// Requests of one connection.
const TOGETHER: u64 = 20;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// Requests that make sense.
const SEEDS: [&str; 164] = [
    "PING",
    "MGET big big big big",
    "HRANDFIELD bighash -9 WITHVALUES",
    "LRANGE biglist 0 -1",
    "ECHO x",
    "HELLO 3 AUTH default pw SETNAME me",
    "AUTH default wrong",
    "SELECT 1",
    "RESET",
    "TIME",
    "SET k v EX 100 NX GET",
    "GET k",
    "GETDEL k",
    "GETEX k PX 1",
    "MSET a 1 b 2 c 3",
    "MGET a b c",
    "INCRBY n 5",
    "INCRBYFLOAT n 0.5",
    "APPEND k xyz",
    "SETRANGE k 100 x",
    "GETRANGE k 0 -1",
    "DEL a b",
    "EXISTS a b",
    "TTL k",
    "EXPIRE k 100 GT",
    "PERSIST k",
    "COPY l m REPLACE",
    "RENAME l m",
    "TYPE k",
    "KEYS *a*",
    "SCAN 0 MATCH * COUNT 9",
    "RANDOMKEY",
    "DBSIZE",
    "RPUSH l a b c",
    "LPUSH l a b c",
    "LPOP l 2",
    "LMPOP 2 l m LEFT COUNT 2",
    "BLPOP l m 0.001",
    "BLMOVE l m LEFT RIGHT 0.001",
    "LRANGE l 0 -1",
    "LINSERT l BEFORE a b",
    "LSET l 0 x",
    "LREM l 0 a",
    "LTRIM l 0 100",
    "LPOS l a RANK -1 COUNT 0 MAXLEN 9",
    "HSET h f v g w",
    "HGETALL h",
    "HRANDFIELD h -5 WITHVALUES",
    "HSCAN h 0",
    "HDEL h f",
    "XADD s MAXLEN ~ 100 * f v",
    "XRANGE s - + COUNT 5",
    "XREAD COUNT 2 BLOCK 1 STREAMS s t 0 $",
    "XGROUP CREATE s g 0 MKSTREAM",
    "XREADGROUP GROUP g c COUNT 5 STREAMS s >",
    "XACK s g 1-1",
    "XAUTOCLAIM s g c 0 0 COUNT 3 JUSTID",
    "XPENDING s g - + 10",
    "XINFO STREAM s FULL COUNT 3",
    "MULTI",
    "EXEC",
    "WATCH a b",
    "CLIENT LIST",
    "SUBSCRIBE c d",
    "UNSUBSCRIBE c",
    "PSUBSCRIBE n*",
    "PUNSUBSCRIBE",
    "SSUBSCRIBE c",
    "SUNSUBSCRIBE",
    "PUBLISH c x",
    "SPUBLISH c x",
    "PUBSUB CHANNELS *",
    "PUBSUB NUMSUB c d",
    "PUBSUB NUMPAT",
    "PUBSUB SHARDCHANNELS",
    "CLIENT TRACKING ON BCAST PREFIX a PREFIX b NOLOOP",
    "CLIENT TRACKING ON OPTIN",
    "CLIENT TRACKING OFF",
    "CLIENT CACHING YES",
    "CLIENT TRACKINGINFO",
    "CLIENT GETREDIR",
    "EVAL return{KEYS[1],ARGV[1]} 1 k v",
    "EVAL_RO return(redis.call(\"GET\",KEYS[1])) 1 k",
    "EVAL redis.call(\"LPUSH\",KEYS[1],string.rep(\"x\",99))return(#KEYS) 2 l m",
    "EVAL while(true)do;end 0",
    "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff831 0",
    "SCRIPT LOAD return(1)",
    "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff831",
    "SCRIPT FLUSH ASYNC",
    "SCRIPT KILL",
    "SORT l BY w_* LIMIT 0 5 GET # GET w_* DESC ALPHA",
    "SORT l ALPHA STORE m",
    "SORT_RO l ALPHA",
    "CLIENT PAUSE 1 WRITE",
    "CLIENT UNPAUSE",
    "CLIENT KILL ID 999999",
    "CLIENT KILL TYPE pubsub",
    "CLIENT LIST TYPE normal",
    "CLIENT LIST ID 1 2",
    "CLIENT SETNAME me",
    "CLIENT GETNAME",
    "CLIENT ID",
    "CLIENT INFO",
    "CLIENT REPLY SKIP",
    "CLIENT NO-EVICT ON",
    "CLIENT SETINFO LIB-NAME x",
    "CLIENT UNBLOCK 999999 ERROR",
    "LATENCY HISTOGRAM get",
    "LATENCY LATEST",
    "LATENCY HISTORY command",
    "LATENCY RESET",
    "LATENCY DOCTOR",
    "MEMORY USAGE k SAMPLES 5",
    "MEMORY DOCTOR",
    "MEMORY STATS",
    "ACL WHOAMI",
    "ACL LIST",
    "ACL USERS",
    "ACL GETUSER default",
    "ACL CAT read",
    "ACL LOG 5",
    "ACL GENPASS 64",
    "ACL DRYRUN default GET k",
    "ACL SETUSER eve on >x ~k* +get",
    "ACL DELUSER eve",
    "CONFIG GET *",
    "CONFIG GET max* save",
    "COMMAND COUNT",
    "COMMAND INFO get set",
    "COMMAND DOCS get",
    "COMMAND GETKEYS MSET a 1 b 2",
    "COMMAND LIST FILTERBY PATTERN x*",
    "INFO all",
    "OBJECT ENCODING k",
    "OBJECT HELP",
    "XCLAIM s g c 0 1-1 2-2 IDLE 5 RETRYCOUNT 2 FORCE JUSTID",
    "XAUTOCLAIM s g c 0 0-0 COUNT 3",
    "XPENDING s g",
    "XPENDING s g IDLE 1 - + 10 c",
    "HSCAN h 0 MATCH f* COUNT 9",
    "XREAD BLOCK 1 STREAMS s $",
    "XREADGROUP GROUP g c BLOCK 1 STREAMS s >",
    "XSETID s 9-9",
    "XDEL s 1-1",
    "XTRIM s MINID ~ 5 LIMIT 9",
    "XREVRANGE s + - COUNT 2",
    "DISCARD",
    "UNWATCH",
    "SETEX k 9 v",
    "HINCRBY h n 5",
    "HMGET h f g",
    "LINDEX l -1",
    "LPOS l a",
    "RPOPLPUSH l m",
    "TOUCH a b",
    "UNLINK a b",
    "FLUSHDB",
    "SWAPDB 0 1",
    "MOVE k 1",
    "MSETNX a 1 b 2",
    "OBJECT FREQ k",
    "DUMP k",
    "WAIT 0 1",
    "SLOWLOG GET 5",
];
/// Words that are extreme.
const EXTREMES: [&str; 14] = [
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1e308",
    "nan",
    "4294967296",
    "-4194304",
    "",
    "*",
    "\0",
    "a\r\n*3\r\n$-1\r\n",
];

/// A request in the bytes of the protocol, with mistakes.
fn mutated(chance: &mut Chance) -> Vec<u8> {
    let seed = SEEDS[chance.below(SEEDS.len() as u64) as usize];
    let mut words: Vec<Vec<u8>> = seed.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    for _ in 0..chance.below(4) {
        let at = chance.below(words.len() as u64) as usize;
        let extreme = EXTREMES[chance.below(EXTREMES.len() as u64) as usize].as_bytes().to_vec();
        match chance.below(6) {
            0 if at > 0 => words[at] = extreme,
            1 => words.insert(at, extreme),
            2 if words.len() > 1 => drop(words.remove(at)),
            3 => {
                let (word, times) = (words[at].clone(), 1 << chance.below(14));
                words.splice(at..at, std::iter::repeat_n(word, times));
            }
            4 => words[at] = vec![b'x'; 1 << chance.below(19)],
            _ => words[at].push(chance.below(256) as u8),
        }
    }
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in &words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    if chance.below(8) == 0 {
        spoil(&mut bytes, chance);
    }
    bytes
}

/// Changes, removes or inserts a byte, or cuts the end off.
fn spoil(bytes: &mut Vec<u8>, chance: &mut Chance) {
    let at = chance.below(bytes.len() as u64) as usize;
    match chance.below(4) {
        0 => bytes[at] = chance.below(256) as u8,
        1 => drop(bytes.remove(at)),
        2 => bytes.insert(at, b'9'),
        _ => bytes.truncate(at),
    }
}

/// Sends bytes, and reads what comes until the server ends the connection, or for a while.
fn send(address: &str, bytes: &[u8], patience: Duration) {
    let stream = Strained::connect(address);
    let reader = stream.try_clone().unwrap();
    reader.set_read_timeout(Some(patience)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut reader, mut buffer) = (&reader, vec![0; 64 << 10]);
            while (&mut reader).read(&mut buffer).is_ok_and(|n| n > 0) {}
        });
        // The server may end the connection first.
        _ = (&stream).write_all(bytes);
        _ = stream.shutdown(Shutdown::Write);
    });
}

/// Checks that the server serves others, and has not grown beyond its bounds.
fn check(server: &mut Strained, user: &mut TcpStream, what: &str) {
    assert!(server.is_alive(), "{what}: the server has gone");
    assert!(ask(user, "RPUSH control x").starts_with(':'), "{what}");
    assert_eq!(get(&server.http, "/healthz"), "HTTP/1.1 200 OK", "{what}");
    let resident = server.resident() >> 20;
    assert!(resident < 800, "{what}: {resident} MB");
}

fn user(server: &Strained) -> TcpStream {
    // A hostile request may end the client with the number 1.
    drop(Strained::connect(&server.redis));
    let mut user = Strained::connect(&server.redis);
    assert_eq!(ask(&mut user, "AUTH pw"), "+OK");
    // A database that the hostile requests do not name.
    assert_eq!(ask(&mut user, "SELECT 9"), "+OK");
    user
}

#[test]
fn mutated_requests_of_redis_clients_harm_nobody_else() {
    let place = Place::new();
    let mut server = Strained::start(&place, SPACE, &SETTINGS);
    let mut user = user(&server);
    // Many replies with it are more than all the address space.
    let large = vec![b'x'; 1 << 20];
    assert_eq!(ask(&mut user, "SELECT 0"), "+OK");
    for request in [&[&b"SET"[..], b"big"][..], &[b"HSET", b"bighash", b"f"], &[b"RPUSH", b"biglist"]] {
        strain::send(&mut user, &[request, &[&large[..]]].concat());
        strain::line(&mut user);
    }
    assert_eq!(ask(&mut user, "SELECT 9"), "+OK");
    let mut chance = Chance(7);
    for password in [&b""[..], b"AUTH pw\r\n"] {
        let mut bytes = Vec::new();
        for n in 1..=number("BROOKLET_HOSTILE", 2_000) {
            if bytes.is_empty() {
                bytes.extend_from_slice(password);
            }
            bytes.extend(mutated(&mut chance));
            if n % TOGETHER == 0 {
                send(&server.redis, &bytes, Duration::from_secs(2));
                bytes.clear();
                // A user may pause the writes of all.
                assert_eq!(ask(&mut user, "CLIENT UNPAUSE"), "+OK", "request {n}");
            }
            if n % (TOGETHER * 20) == 0 {
                check(&mut server, &mut user, &format!("request {n}, password {}", password.len()));
            }
        }
    }
    check(&mut server, &mut user, "at the end");
}

const PATHS: [&str; 21] = [
    "/v1/documents/a",
    "/v1/documents/a/b?at=1",
    "/v1/documents/a?since=0",
    "/v1/documents/a?history",
    "/v1/documents/a?rewind=1",
    "/v1/documents/%00%ff",
    "/v1/problems/too-large",
    "/api/log?space=default&key=control&from=0&limit=5",
    "/api/log?space=streams&key=a&from=18446744073709551615&order=newest",
    "/api/logs?space=streams&prefix=a&after=b&limit=9",
    "/readyz",
    "/page/main.js",
    "/v1/stream/a",
    "/v1/stream/a?offset=-1",
    "/v1/stream/a?offset=now&live=long-poll",
    "/v1/stream/b/c",
    "/v1/stream/a?offset=-1&live=sse",
    "/metrics",
    "/healthz",
    "/api/live",
    "/v1/stream/%00%ff",
];
const HEADERS: [&str; 14] = [
    "Content-Type: application/merge-patch+json\r\nIf-Match: \"1\"",
    "Content-Type: application/json-patch+json\r\nIf-Match: *",
    "If-Match: \"1\", \"2\"\r\nIdempotency-Key: k",
    "Accept: text/event-stream\r\nLast-Event-ID: 1",
    "Content-Type: application/json\r\nIf-None-Match: *",
    "Content-Type: text/plain",
    "Content-Type: application/json",
    "Stream-TTL: 1",
    "Stream-Closed: true",
    "Stream-Forked-From: /v1/stream/a",
    "Producer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: 0",
    "Origin: x",
    "If-None-Match: *",
    "Expect: 100-continue",
];
const BODIES: [&str; 10] = [
    "Content-Length: 15\r\n\r\n{\"a\":[{},null]}",
    "Content-Length: 38\r\n\r\n[{\"op\":\"add\",\"path\":\"/a/-\",\"value\":1}]",
    "Content-Length: 14\r\n\r\n[[[[[[[[[[[[[[",
    "Content-Length: 5\r\n\r\nhello",
    "Content-Length: 99999999999999999999\r\n\r\n",
    "Content-Length: -1\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "Content-Length: 9\r\n\r\n[1,[2],3]",
    "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx\r\n",
    "\r\n",
];

fn mutated_http(chance: &mut Chance, password: &str) -> Vec<u8> {
    let mut one = |all: &[&str]| all[chance.below(all.len() as u64) as usize].to_owned();
    let method = one(&["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", ""]);
    let (path, header, body) = (one(&PATHS), one(&HEADERS), one(&BODIES));
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{password}{header}\r\n");
    for _ in 0..chance.below(3) * chance.below(60) {
        request += &format!("X-{}: {}\r\n", chance.below(100), "y".repeat(1 << chance.below(10)));
    }
    let mut bytes = (request + &body).into_bytes();
    for _ in 0..chance.below(3) {
        if !bytes.is_empty() {
            spoil(&mut bytes, chance);
        }
    }
    bytes
}

#[test]
fn mutated_requests_over_http_harm_nobody_else() {
    let place = Place::new();
    let mut server = Strained::start(&place, SPACE, &SETTINGS);
    let mut user = user(&server);
    let mut chance = Chance(11);
    for password in ["", "Authorization: Bearer pw\r\n"] {
        for n in 1..=number("BROOKLET_HOSTILE", 500) {
            let bytes = mutated_http(&mut chance, password);
            // Live reads go on, and a body may be missing: nobody waits for that here.
            send(&server.http, &bytes, Duration::from_millis(20));
            if n % 100 == 0 {
                check(&mut server, &mut user, &format!("request {n}, password {}", password.len()));
            }
        }
    }
    check(&mut server, &mut user, "at the end");
}

/// Connects `many` clients that send `greeting` and then are silent, and checks that each costs
/// less than `most` bytes.
fn idle_clients_cost_little(many: usize, places: usize, greeting: &[u8], most: u64) {
    let place = Place::new();
    let places_text = places.to_string();
    let settings = [&SETTINGS[..], &["--max-clients", &places_text, "--auth-timeout", "0"]].concat();
    let mut server = Strained::start(&place, SPACE, &settings);
    let mut user = user(&server);
    let before = server.resident();
    let mut idle: Vec<TcpStream> = (0..many).map(|_| Strained::connect(&server.redis)).collect();
    for client in &mut idle {
        client.write_all(greeting).unwrap();
    }
    // The replies to a greeting end with those to two commands.
    let end = if greeting.is_empty() { &b""[..] } else { b"+OK\r\n+OK\r\n" };
    for client in &mut idle {
        let (mut replies, mut part) = (Vec::new(), [0; 1024]);
        while !replies.ends_with(end) {
            let len = client.read(&mut part).unwrap();
            assert!(len > 0, "the server ends an idle client");
            replies.extend_from_slice(&part[..len]);
        }
    }
    let connected = (0..200_000).map(|_| clients(&mut user)).find(|(connected, places)| {
        let welcome = if greeting.is_empty() { places / 4 } else { places - 1 };
        *connected == 1 + (many as u64).min(welcome)
    });
    let (connected, _) = connected.expect("the idle clients have their places");
    let each = server.resident().saturating_sub(before) / connected;
    assert!(each < most, "{each} bytes for an idle client");
    let web: Vec<TcpStream> = (0..many / 2).map(|_| Strained::connect(&server.http)).collect();
    check(&mut server, &mut user, "beside idle clients");
    drop((idle, web));
    check(&mut server, &mut user, "after them");
}

/// Connections that never send anything have a quarter of the places.
#[test]
fn silent_connections_cost_little() {
    let many = number("BROOKLET_SILENT", 1_000) as usize;
    idle_clients_cost_little(many, (4 * many).max(10_000), b"", 8 << 10);
}

/// Clients log in and name themselves, as libraries do, and then are silent.
#[test]
fn idle_clients_that_have_greeted_cost_little() {
    let many = number("BROOKLET_SILENT", 1_000) as usize;
    let greeting = b"HELLO 3 AUTH default pw SETNAME worker\r\nCLIENT SETINFO LIB-NAME redis-py\r\nCLIENT SETINFO LIB-VER 5.2.1\r\n";
    idle_clients_cost_little(many, (2 * many).max(10_000), greeting, 8 << 10);
}

/// Returns the number of connected clients, and the most that may be.
fn clients(user: &mut TcpStream) -> (u64, u64) {
    let head = ask(user, "INFO clients");
    let mut text = vec![0; head.trim_start_matches('$').parse::<usize>().unwrap() + 2];
    user.read_exact(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let value = |name: &str| text.split(name).nth(1).unwrap().split("\r\n").next().unwrap().parse().unwrap();
    (value("connected_clients:"), value("maxclients:"))
}
