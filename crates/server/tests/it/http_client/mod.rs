//! A server on a loopback port, and a small client that talks to it.

#![expect(clippy::disallowed_methods, reason = "a slow disk takes real time")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{Layer, MemVolume, Op, Persist, Queue, Volume};
use brooklet::{Options, Store};
use brooklet_server::http::{Config, Http, serve};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than anything takes, however busy the machine is.
pub const FOREVER: Duration = Duration::from_secs(120);
/// Where streams begin.
pub const ZERO: &str = "0000000000000000_0000000000000000";

pub struct Server {
    pub address: SocketAddr,
    pub store: Store,
    pub stop: CancellationToken,
    served: JoinHandle<()>,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A store that is small, in memory.
pub fn options() -> Options {
    Options::new().ring_size(4 << 20).max_payload(512 << 10)
}

pub fn volume() -> Arc<dyn Volume> {
    Arc::new(MemVolume::new(7))
}

/// A disk whose writes take a while: what does not wait for them is seen to be early.
#[derive(Clone, Debug)]
pub struct Slow(pub MemVolume);

impl Layer for Slow {
    fn below(&self) -> &dyn Volume {
        &self.0
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_millis(20));
        self.0.write_at(offset, data, persist)
    }

    fn submit(&self, queue: &mut dyn Queue, token: u64, op: Op) {
        std::thread::sleep(Duration::from_millis(20));
        queue.submit(token, op);
    }
}

pub fn config() -> Config {
    Config { long_poll: Duration::from_millis(300), ..Config::default() }
}

impl Server {
    pub async fn new() -> Self {
        Self::with(options().create_on(volume()).unwrap(), config()).await
    }

    pub async fn with(store: Store, config: Config) -> Self {
        let stop = CancellationToken::new();
        let http = Http::new(store.clone(), config.clone(), stop.clone()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let until = stop.clone();
        let served = tokio::spawn(async move {
            let maintenance = tokio::spawn(http.clone().keep());
            serve(listener, http.router(), &config, until).await;
            maintenance.await.unwrap();
        });
        Self { address, store, stop, served }
    }

    /// Stops it politely, and gives the store back.
    pub async fn stop(self) -> Store {
        self.stop.cancel();
        tokio::time::timeout(FOREVER, self.served).await.unwrap().unwrap();
        self.store
    }

    /// The head of the reply, and its body as it comes. A path without a slash at its begin names a
    /// stream.
    pub async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<hyper::Response<Incoming>, hyper::Error> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(if path.starts_with('/') { path.to_owned() } else { format!("/v1/stream/{path}") })
            .header("host", self.address.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        sender.send_request(request.body(Full::new(body.into())).unwrap()).await
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let exchange = async {
            let (head, body) = self.open(method, path, headers, body).await.unwrap().into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Reply { status: head.status.as_u16(), headers: head.headers, body }
        };
        tokio::time::timeout(FOREVER, exchange).await.unwrap()
    }

    pub async fn patch(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        self.send("PATCH", path, headers, body).await
    }

    pub async fn put(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        self.send("PUT", path, headers, body).await
    }

    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        self.send("POST", path, headers, body).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "").await
    }

    pub async fn head(&self, path: &str) -> Reply {
        self.send("HEAD", path, &[], "").await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, &[], "").await
    }

    /// Makes a stream of text.
    pub async fn text(&self, path: &str, body: &'static str) -> Reply {
        let reply = self.put(path, &TEXT, body).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply
    }
}

pub const TEXT: [(&str, &str); 1] = [("content-type", "text/plain")];
pub const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

impl Reply {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn next(&self) -> &str {
        self.header("stream-next-offset")
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// The headers of a batch of text.
pub fn batch<'a>(id: &'a str, epoch: &'a str, seq: &'a str) -> [(&'a str, &'a str); 4] {
    [TEXT[0], ("producer-id", id), ("producer-epoch", epoch), ("producer-seq", seq)]
}

/// Reads events until what came holds `until`, or the connection ends.
pub async fn events(body: &mut Incoming, until: &str) -> String {
    let mut text = String::new();
    let read = async {
        while !text.contains(until) {
            let Some(frame) = body.frame().await else { return };
            let Ok(data) = frame.unwrap().into_data() else { continue };
            text.push_str(std::str::from_utf8(&data).unwrap());
        }
    };
    tokio::time::timeout(FOREVER, read).await.unwrap();
    text
}
