//! Memory for what is shown: clients that take no reply hold a part of it, and no more.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use brooklet::Store;
use brooklet_server::{Config, http};

use crate::http_client::FOREVER;
use crate::redis::client::Server;

/// A Unix socket holds less than a reply. How much a TCP socket holds depends on the machine.
fn ask(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    let head = "GET /api/log?key=large&limit=500 HTTP/1.0\r\nHost: localhost\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn status(socket: &Path) -> u16 {
    let mut reply = Vec::new();
    ask(socket).read_to_end(&mut reply).unwrap();
    String::from_utf8_lossy(&reply[9..12]).parse().unwrap()
}

/// In the old state these replies had no budget: each is of megabytes, and there may be thousands.
#[test]
fn pages_that_nobody_takes_have_a_budget() {
    let store = Store::in_memory(1).unwrap();
    for _ in 0..20 {
        // Each of these bytes is six in JSON.
        drop(store.append("large", "\0".repeat(64 << 10)).unwrap());
    }
    store.flush().unwrap();
    let streams = http::Config { reply_budget: 16 << 20, patience: FOREVER, ..http::Config::default() };
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("http");
    let http = vec![format!("unix:{}", socket.display()).parse().unwrap()];
    let _server = Server::with(store, Config { http, streams, ..Config::default() });
    assert_eq!(status(&socket), 200);
    let stalled: Vec<UnixStream> = (0..12).map(|_| ask(&socket)).collect();
    assert!((0..20).any(|_| status(&socket) == 503), "there is memory for all");
    drop(stalled);
    assert!((0..20).any(|_| status(&socket) == 200), "the memory does not return");
}
