//! Servers that the system gives little: descriptors, and address space.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::Place;

/// A server under limits of the shell.
pub struct Strained {
    child: Child,
    pub redis: String,
    pub http: String,
}

impl Strained {
    /// Starts a server after `limits`, such as `ulimit -n 100`; its log goes to the file `log`.
    pub fn start(place: &Place, limits: &str, args: &[&str]) -> Self {
        let log = std::fs::File::create(place.dir.path().join("log")).unwrap();
        let script = format!("{limits}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_brooklet"), "--json", "serve"]).arg(&place.store);
        command.args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ring-size", "64M"]);
        command.args(["--memory", "16M"]).args(args).env_remove("RUST_LOG");
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = |of: &str| told[of][0].as_str().unwrap().to_owned();
        Self { child, redis: address("redis"), http: address("http") }
    }

    /// Whether the process is there still.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Returns the resident memory of the process, in bytes.
    pub fn resident(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    /// Connects to an address of the server.
    pub fn connect(address: &str) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }
}

impl Drop for Strained {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Sends an inline request and returns the reply, of one line.
pub fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
    line(stream)
}

/// Returns the first line of the reply to a request over HTTP.
pub fn get(address: &str, path: &str) -> String {
    let mut stream = Strained::connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("the server replies");
    line.trim_end().to_owned()
}

#[test]
fn the_soft_limit_of_descriptors_is_raised() {
    let place = Place::new();
    let server = Strained::start(&place, "ulimit -Sn 128", &["--max-clients", "300"]);
    let mut clients: Vec<TcpStream> = (0..300).map(|_| Strained::connect(&server.redis)).collect();
    for client in &mut clients {
        assert_eq!(ask(client, "PING"), "+PONG");
    }
    let log = std::fs::read_to_string(place.dir.path().join("log")).unwrap();
    assert!(!log.contains("max-clients"), "{log}");
}

/// More silent connections than there are descriptors: users and the store have some all the same.
#[test]
fn silent_connections_leave_descriptors_for_users_and_the_store() {
    let place = Place::new();
    let mut server = Strained::start(&place, "ulimit -n 228", &["--password", "pw"]);
    // A thread of its own writes the log.
    let log = || std::fs::read_to_string(place.dir.path().join("log")).unwrap();
    for looks in 0.. {
        if log().contains("fewer descriptors than max-clients needs") {
            break;
        }
        assert!(looks < 600, "{}", log());
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut user = Strained::connect(&server.redis);
    assert_eq!(ask(&mut user, "AUTH pw"), "+OK");
    let silent: Vec<TcpStream> = (0..300).map(|_| Strained::connect(&server.redis)).collect();
    assert_eq!(ask(&mut user, "RPUSH l x"), ":1");
    let mut late = Strained::connect(&server.redis);
    assert_eq!(ask(&mut late, "AUTH pw"), "+OK");
    assert_eq!(ask(&mut late, "RPUSH l x"), ":2");
    assert_eq!(get(&server.http, "/healthz"), "HTTP/1.1 200 OK");
    drop(silent);
    assert!(server.is_alive());
}

/// Sends a request in the bytes of the protocol.
pub fn send(stream: &mut TcpStream, words: &[&[u8]]) {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    stream.write_all(&bytes).unwrap();
}

/// Reads a reply of one line.
pub fn line(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the server replies");
        line.extend(byte);
    }
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

/// Replies of gigabytes, to a server with less address space than that: each is an error, and what
/// they and large requests needed is free again though their clients stay.
#[test]
fn large_replies_end_no_server_and_leave_no_memory_behind() {
    let place = Place::new();
    let args = ["--max-reply", "64M"];
    let mut server = Strained::start(&place, "ulimit -v 2097152", &args);
    let large = vec![b'x'; 4 << 20];
    let mut clients: Vec<TcpStream> = (0..8).map(|_| Strained::connect(&server.redis)).collect();
    let before = server.resident();
    for client in &mut clients {
        send(client, &[b"SET", b"k", &large]);
        assert_eq!(line(client), "+OK");
        send(client, &[b"HSET", b"h", b"f", &large]);
        assert!(line(client).starts_with(':'));
    }
    let many = [&[&b"MGET"[..]], &[&b"k"[..]; 1000][..]].concat();
    let random: [&[u8]; 4] = [b"HRANDFIELD", b"h", b"-4194304", b"WITHVALUES"];
    for client in &mut clients {
        for request in [&many[..], &random] {
            send(client, request);
            assert!(line(client).starts_with("-ERR the reply is over 67108864 bytes"));
        }
        send(client, &[b"GET", b"k"]);
        assert_eq!(line(client), "$4194304");
        client.read_exact(&mut vec![0; (4 << 20) + 2]).unwrap();
    }
    let grown = server.resident().saturating_sub(before) >> 20;
    assert!(server.is_alive() && grown < 160, "{grown} MB stay");
}
