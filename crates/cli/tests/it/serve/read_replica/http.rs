//! Streams and documents of a replica, over HTTP, and what its pages tell.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::*;
use crate::common::free_port;
use crate::serve::replication::ask_until;

fn send(port: u16, head: &str, body: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let len = body.len();
    write!(stream, "{head}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n{body}")
        .unwrap();
    BufReader::new(stream)
}

fn ask(port: u16, head: &str, body: &str) -> String {
    let mut reply = String::new();
    send(port, head, body).read_to_string(&mut reply).unwrap();
    reply
}

/// Reads lines until one has a text.
fn read_until(events: &mut BufReader<TcpStream>, has: &str) {
    loop {
        let mut line = String::new();
        assert!(events.read_line(&mut line).unwrap() > 0, "no line with {has}");
        if line.contains(has) {
            return;
        }
    }
}

const TEXT: &str = "Content-Type: text/plain";
const JSON: &str = "Content-Type: application/json\r\nIf-None-Match: *";
const PATCH: &str = "Content-Type: application/merge-patch+json\r\nIf-Match: *";

#[test]
fn streams_and_documents_change_under_a_warm_replica() {
    let (there, here) = (free_port(), free_port());
    let address = |port: u16| format!("127.0.0.1:{port}");
    let url = format!("http://{}", address(there));
    let mut pair = Pair::with(&["--http", &address(there), "--advertise", &url], &["--http", &address(here)]);
    let made = |reply: String| assert!(reply.starts_with("HTTP/1.1 20"), "{reply}");
    assert!(ask(here, "GET /v1/stream/s HTTP/1.1", "").starts_with("HTTP/1.1 404"));
    assert!(ask(here, "GET /v1/documents/d HTTP/1.1", "").starts_with("HTTP/1.1 404"));
    made(ask(there, &format!("PUT /v1/stream/s HTTP/1.1\r\n{TEXT}"), "one,"));
    made(ask(there, &format!("PUT /v1/documents/d HTTP/1.1\r\n{JSON}"), r#"{"n":1}"#));
    pair.settle();
    assert!(ask(here, "GET /v1/stream/s HTTP/1.1", "").ends_with("one,"));
    assert!(ask(here, "GET /v1/documents/d HTTP/1.1", "").contains(r#""n":1"#));
    // Readers that wait hear of it.
    let mut tail = send(here, "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1", "");
    read_until(&mut tail, "one,");
    let mut events = send(here, "GET /v1/documents/d?since=1 HTTP/1.1\r\nAccept: text/event-stream", "");
    read_until(&mut events, "retry");
    let appended = ask(there, &format!("POST /v1/stream/s HTTP/1.1\r\n{TEXT}"), "two");
    made(appended.clone());
    made(ask(there, &format!("PATCH /v1/documents/d HTTP/1.1\r\n{PATCH}"), r#"{"n":2}"#));
    read_until(&mut tail, "two");
    read_until(&mut events, r#""n":2"#);
    pair.settle();
    assert!(ask(here, "GET /v1/stream/s HTTP/1.1", "").ends_with("one,two"));
    assert!(ask(here, "GET /v1/documents/d HTTP/1.1", "").contains(r#""n":2"#));
    // A client that asks from the offset of its own append waits for it.
    let next = appended.lines().find_map(|line| line.strip_prefix("stream-next-offset: ")).unwrap();
    let at_end = ask(here, &format!("GET /v1/stream/s?offset={next} HTTP/1.1"), "");
    assert!(at_end.starts_with("HTTP/1.1 200"), "{at_end}");
    let later = next.replacen('2', "3", 1);
    let early = ask(here, &format!("GET /v1/stream/s?offset={later} HTTP/1.1"), "");
    assert!(early.starts_with("HTTP/1.1 503") && early.contains("retry-after"), "{early}");
    // Another stream of the same name, and no document any more.
    made(ask(there, "DELETE /v1/stream/s HTTP/1.1", ""));
    made(ask(there, &format!("PUT /v1/stream/s HTTP/1.1\r\n{TEXT}"), "new"));
    made(ask(there, "DELETE /v1/documents/d HTTP/1.1\r\nIf-Match: *", ""));
    pair.settle();
    assert!(ask(here, "GET /v1/stream/s HTTP/1.1", "").ends_with("new"));
    assert!(ask(here, "GET /v1/documents/d HTTP/1.1", "").starts_with("HTTP/1.1 404"));
    let mut rest = String::new();
    tail.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("new"), "the events are those of the stream that was deleted");
}

#[test]
fn a_replica_sends_writes_on_and_tells_its_lag() {
    let here = free_port();
    let http = format!("127.0.0.1:{here}");
    let mut pair = Pair::with(&["--advertise", "http://owner.example:8379"], &["--http", &http]);
    for path in ["/v1/stream/a?x=1", "/v1/documents/a"] {
        for method in ["PUT", "POST", "PATCH", "DELETE"] {
            let sent = ask(here, &format!("{method} {path} HTTP/1.1"), "x");
            assert!(sent.starts_with("HTTP/1.1 307"), "{sent}");
            assert!(sent.contains(&format!("location: http://owner.example:8379{path}\r\n")), "{sent}");
        }
    }
    // In an earlier state the connection broke off while a client sent a long body.
    let sent = ask(here, "PUT /v1/documents/a HTTP/1.1", &"1".repeat(32 << 20));
    assert!(sent.starts_with("HTTP/1.1 307"), "{sent}");
    pair.settle();
    let ready = ask(here, "GET /readyz HTTP/1.1", "");
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    for member in [r#""replica":true"#, r#""owner_url":"http://owner.example:8379""#, r#""lag_bytes":0"#] {
        assert!(ready.contains(member), "{ready}");
    }
    let metrics = ask(here, "GET /metrics HTTP/1.1", "");
    for name in ["lag_bytes 0", "made_anew_total 0", "age_seconds ", "silence_seconds ", "place "] {
        assert!(metrics.contains(&format!("\nbrooklet_replica_{name}")), "{name} in {metrics}");
    }
    assert_eq!(line(&mut pair.reads, "ROLE"), "*5");
    let role: Vec<String> = (0..5).map(|_| pair.reads.reply().unwrap()).collect();
    assert_eq!(role[..4], ["slave", "owner.example", "8379", "connected"]);
    assert_eq!(pair.writes.ask("ROLE").split(' ').next(), Some("master"));
    for (client, role) in [(&mut pair.reads, "replica"), (&mut pair.writes, "master")] {
        let told = client.ask("HELLO 2");
        assert!(told.contains(&format!("role {role}")), "{told}");
    }
    // The lag grows while the owner is silent.
    let info = pair.reads.ask("INFO replication");
    for text in ["role:slave\r\n", "master_host:owner.example\r\n", "master_link_status:up\r\n"] {
        assert!(info.contains(text), "{info}");
    }
    pair.owner.kill();
    let begin = Instant::now();
    while told(&mut pair.reads, "master_last_io_seconds_ago") < 11 {
        assert!(begin.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(200));
    }
    assert!(pair.reads.ask("INFO replication").contains("master_link_status:down\r\n"));
    ask_until(here, "GET /readyz", "HTTP/1.1 200");
    assert_eq!(pair.reads.ask("GET begin"), "1");
}
