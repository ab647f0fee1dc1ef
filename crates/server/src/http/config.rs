//! The settings of the HTTP frontend, and the reason for each default.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Origin;

/// The settings of the HTTP frontend: limits and times. Each doc states the default and its reason.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of the streams: the rest of a path names the stream. `/v1/stream/`, where clients
    /// expect streams. Begins and ends with a slash.
    pub prefix: String,
    /// Most bytes of a request's body. 8 MiB: half of the largest entry of a store by default.
    pub max_body: usize,
    /// Most messages of one request in a stream of JSON. 16,384: each is an entry of its own.
    pub max_messages: usize,
    /// Bytes of bodies that may be in memory at once, on their way in. 256 MiB. A request beyond
    /// this waits for some seconds, and then gets 503 with `Retry-After`.
    pub body_budget: usize,
    /// Bytes of replies that may be in memory at once, on their way out. 256 MiB. A request whose
    /// reply is beyond this waits, and then gets 503, in the same way.
    pub reply_budget: usize,
    /// Bytes of messages after which a reply ends, and the reader asks for the next. 1 MiB.
    pub chunk: usize,
    /// Most readers that wait for new messages, by long poll or events. 16,384; the next reader
    /// gets 503 with `Retry-After`.
    pub max_waiting: usize,
    /// Longest wait of a long poll. 30 s: shorter than proxies allow.
    pub long_poll: Duration,
    /// Time for which one connection sends events, before the reader must connect again. 60 s, as
    /// the protocol advises.
    pub events: Duration,
    /// Most connections at once. 16,384; further ones wait in the system's queue.
    pub max_connections: usize,
    /// Longest time until a request on a connection has the right password; if no password is
    /// required, until the first request. 10 s; zero is no limit.
    pub login: Duration,
    /// Longest time for a peer to send the head of a request, or its body, or to receive a reply.
    /// 30 s.
    pub patience: Duration,
    /// Longest time for requests under way to end, once the server is to stop. 10 s.
    pub grace: Duration,
    /// Cancelled before the server is to stop if another one waits for its clients: then `grace` is
    /// 0.3 s at most. By default never.
    pub hurry: CancellationToken,
    /// Streams whose state is kept in memory. 65,536; fewer if they remember more than a million
    /// producers together, and more if they are in use.
    pub cached: usize,
    /// Time between two searches for expired streams. 1 minute. A stream is gone from the moment at
    /// which it expires; a search frees its room.
    pub sweep: Duration,
    /// Whether caches that many readers share may keep replies. Yes; set it to false if a proxy
    /// before the server distinguishes readers.
    pub shared: bool,
    /// Origins whose web pages may use the server. None: browsers let only pages of the server's
    /// own origin. [`guard`](super::guard) applies them.
    pub allow_origins: Vec<Origin>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            prefix: "/v1/stream/".into(),
            max_body: 8 << 20,
            max_messages: 16_384,
            body_budget: 256 << 20,
            reply_budget: 256 << 20,
            chunk: 1 << 20,
            max_waiting: 16_384,
            long_poll: Duration::from_secs(30),
            events: Duration::from_secs(60),
            max_connections: 16_384,
            login: Duration::from_secs(10),
            patience: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            hurry: CancellationToken::new(),
            cached: 65_536,
            sweep: Duration::from_secs(60),
            shared: true,
            allow_origins: Vec::new(),
        }
    }
}
