//! Clients that have not logged in: they have little memory, little time, and a part of the places.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use brooklet::Store;
use brooklet_server::Config;

use crate::redis::client::{Client, Server};

/// Seconds that no test takes: nobody leaves because of them.
const NEVER: u64 = 3600;

fn server(change: impl FnOnce(&mut Config)) -> Server {
    let mut config = Config { password: Some("pw".into()), ..Config::default() };
    change(&mut config);
    Server::with(Store::in_memory(1).unwrap(), config)
}

fn user(server: &Server) -> Client {
    let mut client = server.client();
    assert_eq!(client.say("AUTH pw"), "OK");
    client
}

/// Sends until the server takes no more; returns the number of bytes that left.
fn send_all(stream: &TcpStream, chunk: &[u8], most: usize) -> usize {
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut sent = 0;
    while sent < most {
        match (&mut &*stream).write(chunk) {
            Ok(n) => sent += n,
            Err(_) => break,
        }
    }
    sent
}

/// The memory of the other client, as CLIENT LIST reports it.
fn memory_of_the_other(client: &mut Client) -> Option<u64> {
    let list = client.say("CLIENT LIST");
    let line = list.split("\\n").find(|line| line.contains("user=(none)"))?;
    line.split("tot-mem=").nth(1)?.split(' ').next()?.parse().ok()
}

#[test]
fn a_stranger_that_sends_and_does_not_read_is_held_back_and_then_disconnected() {
    let server = server(|config| config.settings.auth_timeout = NEVER);
    let mut other = user(&server);
    for bytes in [&b"x\n"[..], b"*1\r\n$1\r\nx\r\n"] {
        let stranger = TcpStream::connect(&server.address).unwrap();
        // The system's buffers on both sides take some megabytes.
        let sent = send_all(&stranger, &bytes.repeat(64 << 10), 200 << 20);
        assert!(sent < 64 << 20, "{sent} bytes were taken of a stranger that does not read");
        let memory = memory_of_the_other(&mut other).expect("it is there still");
        assert!(memory < 128 << 10, "{memory} bytes are kept for a stranger");
        assert_eq!(other.say("CONFIG SET auth-timeout 1"), "OK");
        other.wait_for("connected_clients:1");
        assert_eq!(other.say(&format!("CONFIG SET auth-timeout {NEVER}")), "OK");
    }
}

#[test]
fn a_stranger_has_a_deadline_and_a_user_has_none() {
    let server = server(|config| config.settings.auth_timeout = NEVER);
    let (mut known, mut leaves) = (user(&server), user(&server));
    let mut stranger = server.client();
    assert_eq!(stranger.say("PING"), "-NOAUTH Authentication required.");
    // Who gives the login up is a stranger again.
    assert_eq!(leaves.say("RESET"), "RESET");
    assert_eq!(known.say("CONFIG SET auth-timeout 1"), "OK");
    assert!(stranger.is_over() && leaves.is_over());
    assert_eq!(known.say("PING"), "PONG");
}

#[test]
fn silent_strangers_do_not_take_the_places_of_users() {
    let server = server(|config| {
        config.settings.max_clients = 16;
        config.settings.auth_timeout = NEVER;
    });
    let mut users = vec![user(&server)];
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    users.extend((0..11).map(|_| user(&server)));
    users[0].wait_for("connected_clients:15");
    // Strangers make room for each other and for users; users make room for nobody.
    users.extend((0..4).map(|_| user(&server)));
    let mut late = server.client();
    assert_eq!(late.reply(), "-ERR max number of clients reached");
    for mut stranger in silent {
        stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(matches!(stranger.read(&mut [0]), Ok(0) | Err(_)));
    }
    for user in &mut users {
        assert_eq!(user.say("PING"), "PONG");
    }
}

#[test]
fn a_stranger_sends_no_large_request() {
    let server = server(|_| {});
    let arg = "x".repeat(9_000);
    let mut stranger = server.client();
    assert_eq!(stranger.ask(&["AUTH", &arg, &arg]), "-ERR Protocol error: unauthenticated bulk length");
    assert!(stranger.is_over());
}
