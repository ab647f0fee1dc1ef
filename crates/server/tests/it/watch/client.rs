//! Asks a server, one question for each connection.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Clone, Copy)]
pub struct Client(pub SocketAddr);

/// What a server answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Client {
    pub async fn ask(&self, method: &str, address: &str) -> Answer {
        let mut stream = TcpStream::connect(self.0).await.unwrap();
        // Of that version, so that an answer comes in one piece.
        let request = format!("{method} {address} HTTP/1.0\r\nhost: {}\r\n\r\n", self.0);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.into(), body: body.into() }
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        let headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    pub fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), "application/json", "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }
}
