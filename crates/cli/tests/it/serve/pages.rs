//! Web pages at the port of Redis clients: they are logged, and cannot fill the log.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::Place;

#[test]
fn pages_at_the_redis_port_are_logged_and_counted() {
    let place = Place::new();
    let serve = ["--json", "serve", "STORE", "--listen", "127.0.0.1:0", "--http", "", "--log", "json"];
    let mut child = place.command(&serve).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    for _ in 0..50 {
        let mut page = TcpStream::connect(told["redis"][0].as_str().unwrap()).unwrap();
        page.write_all(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nFLUSHALL\r\n").unwrap();
        let mut reply = Vec::new();
        drop(page.read_to_end(&mut reply));
        assert_eq!(reply, b"");
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let log = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("spoke HTTP or TLS")).collect();
    assert!(told[0].contains("\"address\":\"127.0.0.1:"), "{log}");
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let left_out: u64 = lines.filter_map(|line| line["fields"]["left_out"].as_u64()).sum();
    assert_eq!(told.len() as u64 + left_out, 50, "{log}");
}
