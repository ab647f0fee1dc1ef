//! Many clients, and clients of all manners: none of them keeps another from being served.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::thread::sleep;
use std::time::Duration;

use brooklet::Store;
use brooklet_server::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::redis::client::{Client, Server, encode};

fn server() -> Server {
    Server::of(Store::in_memory(1).unwrap())
}

#[test]
fn a_pipeline_is_the_same_wherever_it_is_cut() {
    let server = server();
    let requests: [&[&str]; 5] = [
        &["DEL", "l"],
        &["RPUSH", "l", "one", "two\r\n$3"],
        &["LRANGE", "l", "0", "-1"],
        &["PING"],
        &["LPOP", "l", "2"],
    ];
    let mut bytes: Vec<u8> = requests.iter().flat_map(|request| encode(request)).collect();
    bytes.extend(b"ECHO \"in line\"\r\n");
    let mut client = server.client();
    for at in 0..=bytes.len() {
        client.send(&bytes[..at]);
        if at % 7 == 0 {
            // So that the parts do come apart.
            sleep(Duration::from_millis(1));
        }
        client.send(&bytes[at..]);
        let replies: Vec<String> = (0..6).map(|_| client.reply()).collect();
        assert_eq!(
            replies[1..],
            [":2", "[one two\\r\\n$3]", "PONG", "[one two\\r\\n$3]", "in line"],
            "cut at {at}"
        );
    }
    for byte in &bytes {
        client.send(&[*byte]);
    }
    assert_eq!((0..6).map(|_| client.reply()).last().unwrap(), "in line");
}

/// A client that has gone while it waited takes nothing.
#[test]
fn who_vanishes_while_waiting_takes_no_element() {
    let server = server();
    let mut stays = server.client();
    for round in 0..20 {
        let stream = TcpStream::connect(&server.address).unwrap();
        (&stream).write_all(&encode(&["BLPOP", "l", "0"])).unwrap();
        stays.wait_for("blocked_clients:1");
        match round % 2 {
            0 => drop(stream),
            _ => stream.shutdown(Shutdown::Write).unwrap(),
        }
        stays.wait_for("blocked_clients:0");
        assert_eq!(stays.say("RPUSH l x"), ":1");
        assert_eq!(stays.say("LPOP l"), "x", "round {round}");
    }
}

/// However much it sent behind its wait, the server sees that it has gone.
#[test]
fn who_vanishes_behind_much_data_takes_no_element() {
    let server = server();
    let mut stays = server.client();
    let set = encode(&["SET", "k", &"x".repeat(32_000)]);
    for pop in [&["BLPOP", "l", "0"][..], &["BLMOVE", "l", "m", "LEFT", "LEFT", "0"]] {
        for megabytes in [0, 2, 12] {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream.write_all(&encode(pop)).unwrap();
            stays.wait_for("blocked_clients:1");
            stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            for _ in 0..megabytes * 32 {
                if stream.write_all(&set).is_err() {
                    break;
                }
            }
            drop(stream);
            stays.wait_for("blocked_clients:0");
            assert_eq!(stays.say("RPUSH l x"), ":1");
            assert_eq!(stays.say("LPOP l"), "x", "behind {megabytes} MB");
            assert_eq!(stays.say("EXISTS k m"), ":0");
        }
    }
}

#[test]
fn a_wait_ends_where_too_much_is_sent_behind_it_and_else_all_of_it_is_done() {
    let server = server();
    let mut stays = server.client();
    assert_eq!(stays.say("CONFIG SET client-query-buffer-limit 4mb"), "OK");
    let push = encode(&["RPUSH", "many", "x"]);
    let mut waits = server.client();
    waits.send(&encode(&["BLPOP", "l", "0"]));
    stays.wait_for("blocked_clients:1");
    // 3 MB of requests, which take more memory once they are parsed.
    waits.send(&push.repeat((3 << 20) / push.len()));
    assert_eq!(stays.say("RPUSH l x"), ":1");
    assert_eq!(waits.reply(), "[l x]");
    for n in 1..=(3 << 20) / push.len() {
        assert_eq!(waits.reply(), format!(":{n}"));
    }
    let mut stream = TcpStream::connect(&server.address).unwrap();
    // Longer than a server that stalls takes to read on.
    stream.set_write_timeout(Some(Duration::from_secs(120))).unwrap();
    stream.write_all(&encode(&["BLPOP", "l", "0"])).unwrap();
    stays.wait_for("blocked_clients:1");
    let refused = (0..1_000).any(|_| stream.write_all(&push.repeat(1_000)).is_err());
    assert!(refused, "it may send as much as it likes");
    stays.wait_for("blocked_clients:0");
}

#[test]
fn thousands_of_idle_clients_are_no_burden() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = setrlimit(Resource::Nofile, raised);
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // Both ends of each are in this process.
    let many = (files.saturating_sub(500) / 2).min(10_000) as usize;
    if many < 10_000 {
        eprintln!("{many} clients instead of 10,000: this process may open {files} files");
    }
    let mut config = Config::default();
    config.settings.max_clients = many + 1;
    let server = Server::with(Store::in_memory(1).unwrap(), config);
    let mut works = server.client();
    let mut idle: Vec<TcpStream> = Vec::new();
    for n in 0..many {
        idle.push(TcpStream::connect(&server.address).unwrap());
        if n % 500 == 0 {
            assert_eq!(works.say("RPUSH l x"), format!(":{}", n / 500 + 1));
        }
    }
    works.wait_for(&format!("connected_clients:{}", many + 1));
    // One more is told that it is one too many.
    let mut refused = server.client();
    assert_eq!(refused.reply(), "-ERR max number of clients reached");
    assert!(refused.is_over());
    // Any of them can begin to work.
    let mut last = Client::over(idle.pop().unwrap());
    assert_eq!(last.say("LLEN l"), format!(":{}", many.div_ceil(500)));
    drop((last, idle));
    works.wait_for("connected_clients:1");
    assert_eq!(server.client().say("PING"), "PONG");
}

#[test]
fn who_waits_is_served_in_the_order_of_coming() {
    let server = server();
    let mut stays = server.client();
    let mut waiting: Vec<Client> = Vec::new();
    for n in 0..20 {
        let mut client = server.client();
        client.send(&encode(&["BLPOP", "other", "l", "0"]));
        stays.wait_for(&format!("blocked_clients:{}", n + 1));
        waiting.push(client);
    }
    let elements: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let elements: Vec<&str> = elements.iter().map(String::as_str).collect();
    stays.ask(&[&["RPUSH", "l"], &elements[..]].concat());
    for (n, mut client) in waiting.into_iter().enumerate() {
        assert_eq!(client.reply(), format!("[l {n}]"));
    }
    assert_eq!(stays.say("EXISTS l"), ":0");
}

#[test]
fn replies_are_left_out_where_they_are_not_wanted() {
    let server = server();
    let mut client = server.client();
    for request in
        ["CLIENT REPLY SKIP", "RPUSH l a", "CLIENT REPLY OFF", "RPUSH l b", "NONSENSE", "RPUSH l c"]
    {
        client.send(&encode(&request.split(' ').collect::<Vec<_>>()));
    }
    assert_eq!(client.say("CLIENT REPLY ON"), "OK");
    assert_eq!(client.say("LRANGE l 0 -1"), "[a b c]");
}

#[test]
fn clients_are_killed_by_others() {
    let server = server();
    let (mut one, mut other) = (server.client(), server.client());
    let id = other.say("CLIENT ID").replace(':', "");
    other.send(&encode(&["BLPOP", "l", "0"]));
    one.wait_for("blocked_clients:1");
    assert_eq!(one.say(&format!("CLIENT KILL ID {id}")), ":1");
    assert!(other.is_over());
    one.wait_for("connected_clients:1");
    assert_eq!(one.say(&format!("CLIENT KILL ID {id}")), ":0");
    assert_eq!(one.say("RPUSH l x"), ":1");
    assert_eq!(one.say("LPOP l"), "x");
}

/// Whoever is there gets all replies to what it asked before, and is told if it waits in vain.
#[test]
fn a_clean_stop_leaves_nobody_without_a_reply() {
    for round in 0..10 {
        let server = server();
        let mut waits = server.client();
        waits.send(&encode(&["BLPOP", "none", "0"]));
        let mut stays = server.client();
        stays.wait_for("blocked_clients:1");
        let mut many = server.client();
        for n in 0..500 {
            many.send(&encode(&["RPUSH", "l", &n.to_string()]));
        }
        assert_eq!(many.reply(), ":1");
        let late = TcpStream::connect(&server.address).unwrap();
        server.begin_to_stop();
        assert_eq!(waits.reply(), "-UNBLOCKED the server is stopping", "round {round}");
        assert!(waits.is_over());
        // Those that were read are done; what was on the way then is not, and none of it is told.
        let told: BTreeSet<String> = std::iter::from_fn(|| many.try_reply()).collect();
        assert!(told.iter().all(|reply| reply.starts_with(':')), "{told:?}");
        server.stop().unwrap();
        drop(late);
    }
}
