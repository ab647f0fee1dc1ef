//! The log: it holds nobody up, and strangers cannot flood it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::Place;

/// A server with a password; returns its process, its Redis socket and its HTTP address.
fn start(place: &Place, level: &str, log: Stdio) -> (Child, UnixStream, String) {
    let socket = place.dir.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    let args = [
        "--json",
        "serve",
        "STORE",
        "--listen",
        &listen,
        "--http",
        "127.0.0.1:0",
        "--ring-size",
        "4M",
        "--password",
        "pw",
        "--log",
        "json",
    ];
    let mut command = place.command(&args);
    let mut child = command.env("RUST_LOG", level).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    let client = UnixStream::connect(&socket).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    (child, client, told["http"][0].as_str().unwrap().to_owned())
}

/// Sends a request and reads a reply of one line.
fn ask(client: &mut UnixStream, request: &[&str]) -> String {
    let mut bytes = format!("*{}\r\n", request.len());
    request.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
    client.write_all(bytes.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::with_capacity(1, client).read_line(&mut line).expect("the server replies");
    line.trim_end().to_owned()
}

fn stop(mut child: Child) -> ExitStatus {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    for _ in 0..12_000 {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("the server does not end by SIGTERM");
}

#[test]
fn a_log_that_nobody_reads_holds_up_nobody() {
    let place = Place::new();
    let (mut child, mut client, http) = start(&place, "debug", Stdio::piped());
    let log = child.stderr.take().unwrap();
    // More than a pipe holds: each of these is a line of the log.
    for _ in 0..1500 {
        let mut stream = TcpStream::connect(&http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream.write_all(b"this is not HTTP\r\n\r\n").unwrap();
        let read = stream.read_to_end(&mut Vec::new());
        assert!(read.is_ok_and(|n| n > 0), "the server replies");
    }
    assert_eq!(ask(&mut client, &["AUTH", "pw"]), "+OK");
    for _ in 0..40 {
        assert!(ask(&mut client, &["AUTH", &"A".repeat(8_000), "x"]).starts_with("-WRONGPASS"));
    }
    assert_eq!(ask(&mut client, &["RPUSH", "l", "x"]), ":1");
    let mut stream = TcpStream::connect(&http).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(stop(child).success());
    drop(log);
}

#[test]
fn wrong_passwords_fill_no_log() {
    let place = Place::new();
    let path = place.file("log", "");
    let log = std::fs::File::create(&path).unwrap();
    let (child, mut client, _) = start(&place, "info", log.into());
    let name = format!("x\n{{\"level\":\"ERROR\"}}\u{1b}[2J{}", "A".repeat(8_000));
    let begin = Instant::now();
    for _ in 0..2000 {
        assert!(ask(&mut client, &["AUTH", &name, "x"]).starts_with("-WRONGPASS"));
    }
    assert!(stop(child).success());
    let log = std::fs::read_to_string(&path).unwrap();
    // A few lines of each second: a busy machine takes longer.
    let most = 50_000 + 10_000 * begin.elapsed().as_secs() as usize;
    assert!(log.len() < most, "{} bytes of log", log.len());
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let wrong: Vec<&serde_json::Value> =
        lines.iter().filter(|line| line["fields"]["message"] == "a wrong name or password").collect();
    let user = wrong[0]["fields"]["user"].as_str().unwrap();
    assert!(user.starts_with("x\\n{") && user.len() < 120 && !user.contains('\u{1b}'), "{user:?}");
    let left_out: u64 = lines.iter().filter_map(|line| line["fields"]["left_out"].as_u64()).sum();
    assert_eq!(left_out + wrong.len() as u64, 2000);
}
