//! Connections over HTTP that have not given a password, or have not sent a request: they have a
//! part of the places and little time, and leave a trace.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use brooklet::Store;
use brooklet_server::{Config, http};

use crate::redis::client::Server;

const PASSWORD: &str = "Authorization: Bearer pw\r\n";
/// Longer than a test takes: nobody leaves because of it.
const NEVER: Duration = Duration::from_secs(3600);

/// A server with eight places: two of them are for strangers.
fn server(password: Option<&str>, login: u64) -> Server {
    let streams = http::Config { max_connections: 8, patience: NEVER, ..http::Config::default() };
    let http = vec!["127.0.0.1:0".parse().unwrap()];
    let mut config = Config { http, streams, password: password.map(str::to_owned), ..Config::default() };
    config.settings.auth_timeout = login;
    Server::with(Store::in_memory(1).unwrap(), config)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(&server.http).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream
}

/// Sends a request, and returns the status of its reply; 0 if the connection has ended.
fn ask(stream: &mut TcpStream, path: &str, headers: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    let mut reply = Vec::new();
    if stream.write_all(request.as_bytes()).is_err() {
        return 0;
    }
    // Each of these replies has a length.
    let is_whole = |reply: &[u8]| {
        let text = String::from_utf8_lossy(reply).to_lowercase();
        text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let len = head.split("content-length: ").nth(1).expect("a length");
            body.len() >= len.split("\r\n").next().unwrap().parse::<usize>().unwrap()
        })
    };
    while !is_whole(&reply) {
        let mut some = [0; 4096];
        match stream.read(&mut some) {
            Ok(0) => return 0,
            Ok(n) => reply.extend_from_slice(&some[..n]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return 0,
            Err(error) => panic!("the server neither replies nor ends the connection: {error}"),
        }
    }
    String::from_utf8_lossy(&reply[9..12]).parse().unwrap()
}

/// Returns six connections, each after a request.
fn clients(server: &Server, path: &str, headers: &str) -> Vec<TcpStream> {
    let client = |_| {
        let mut stream = connect(server);
        assert_eq!(ask(&mut stream, path, headers), 200);
        stream
    };
    (0..6).map(client).collect()
}

/// Waits until the server ends a connection.
fn wait_for_end(stream: &mut TcpStream) {
    match stream.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("the server does not end the connection: {other:?}"),
    }
}

#[test]
fn silent_connections_leave_places_for_clients_with_the_password() {
    let server = server(Some("pw"), 0);
    let mut known = clients(&server, "/api/live", PASSWORD);
    let mut silent: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
    let mut late = connect(&server);
    assert_eq!(ask(&mut late, "/api/live", PASSWORD), 200);
    silent.truncate(18);
    silent.iter_mut().for_each(wait_for_end);
    // Half of a head is no request.
    let mut halves: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
    for half in &mut halves {
        // It may have made room already.
        drop(half.write_all(b"GET / HTTP/1.1\r\nHost: local"));
    }
    let mut last = connect(&server);
    assert_eq!(ask(&mut last, "/api/live", PASSWORD), 200);
    for stream in known.iter_mut().chain([&mut late]) {
        assert_eq!(ask(stream, "/api/live", PASSWORD), 200, "who gave the password stays");
    }
}

#[test]
fn connections_that_are_refused_remain_strangers() {
    let server = server(Some("pw"), 0);
    let mut refused: Vec<TcpStream> = Vec::new();
    for n in 0..20 {
        let mut stream = connect(&server);
        let (path, headers, status) = match n % 3 {
            0 => ("/api/live", "", 401),
            1 => ("/api/live", "Authorization: Bearer wrong\r\n", 401),
            _ => ("/healthz", "", 200),
        };
        assert_eq!(ask(&mut stream, path, headers), status);
        refused.push(stream);
    }
    let mut known = connect(&server);
    assert_eq!(ask(&mut known, "/api/live", PASSWORD), 200);
    refused.truncate(18);
    refused.iter_mut().for_each(wait_for_end);
    assert_eq!(ask(&mut known, "/api/live", PASSWORD), 200);
}

#[test]
fn a_stranger_has_a_deadline_and_a_client_with_the_password_has_none() {
    // Where the machine stalls, the deadline may come before a first request.
    let is_shown = [3, 12, 48].into_iter().any(|login| {
        let server = server(Some("pw"), login);
        let mut known = connect(&server);
        let status = ask(&mut known, "/api/live", PASSWORD);
        if status == 0 {
            return false;
        }
        assert_eq!(status, 200);
        let (mut silent, mut refused) = (connect(&server), connect(&server));
        let status = ask(&mut refused, "/api/live", "");
        if status == 0 {
            return false;
        }
        assert_eq!(status, 401);
        wait_for_end(&mut silent);
        wait_for_end(&mut refused);
        assert_eq!(ask(&mut known, "/api/live", PASSWORD), 200);
        true
    });
    assert!(is_shown, "the deadline was first each time");
}

/// In an earlier state the connection broke off while the client sent its body. Many clients send
/// the password only once the server has asked for it.
#[test]
fn a_client_that_sends_a_long_body_hears_that_a_password_is_missing() {
    let server = server(Some("pw"), 0);
    let mut client = connect(&server);
    // More than the buffers of the system take.
    let (head, len) = ("PUT /v1/stream/s HTTP/1.1\r\nHost: localhost", 16 << 20);
    client.write_all(format!("{head}\r\nContent-Length: {len}\r\n\r\n").as_bytes()).unwrap();
    client.write_all(&vec![b'x'; len]).unwrap();
    let mut status = [0; 12];
    client.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 401");
}

#[test]
fn without_a_password_silent_connections_are_the_strangers() {
    let server = server(None, 0);
    let mut known = clients(&server, "/healthz", "");
    let mut silent: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
    let mut late = connect(&server);
    assert_eq!(ask(&mut late, "/healthz", ""), 200);
    silent.truncate(18);
    silent.iter_mut().for_each(wait_for_end);
    for stream in &mut known {
        assert_eq!(ask(stream, "/healthz", ""), 200);
    }
}

#[test]
fn wrong_passwords_are_in_the_log_of_refusals() {
    let server = server(Some("pw"), 0);
    let mut stream = connect(&server);
    // `eve:no`.
    assert_eq!(ask(&mut stream, "/api/live", "Authorization: Basic ZXZlOm5v\r\n"), 401);
    assert_eq!(ask(&mut stream, "/api/live", "Authorization: Bearer no\r\n"), 401);
    // Without a password at all, nobody guesses.
    assert_eq!(ask(&mut stream, "/api/live", ""), 401);
    let mut user = server.client();
    assert_eq!(user.say("AUTH pw"), "OK");
    let log = user.say("ACL LOG");
    let address = stream.local_addr().unwrap().to_string();
    assert_eq!(log.matches("reason auth").count(), 2, "{log}");
    for part in ["username eve", "username default", "object HTTP", &address] {
        assert!(log.contains(part), "{part}: {log}");
    }
}
