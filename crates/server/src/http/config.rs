//! The settings of the HTTP frontend, and the reason for each default.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Origin;

/// Limits and habits of the HTTP frontend.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where streams lie: what follows this in a path names the stream. `/v1/stream/`, where
    /// clients expect them. Begins and ends with a slash.
    pub prefix: String,
    /// Most bytes of a request's body. 8 MiB: half of what a store takes as one entry by default.
    pub max_body: usize,
    /// Most messages of one request in a stream of JSON. 16,384: each is an entry of its own.
    pub max_messages: usize,
    /// Bytes of bodies that may be in memory at once, on their way in. 256 MiB; who comes later
    /// waits for some seconds, and is then told to come back.
    pub body_budget: usize,
    /// Bytes of replies that may be in memory at once, on their way out. 256 MiB; the same goes for
    /// who comes later.
    pub reply_budget: usize,
    /// Bytes of messages after which a reply ends, and the reader asks for the next. 1 MiB.
    pub chunk: usize,
    /// Most readers that wait for what is not there yet, by long poll or events. 16,384; the next
    /// is told to come back.
    pub max_waiting: usize,
    /// How long a long poll waits. 30 s: shorter than what proxies allow.
    pub long_poll: Duration,
    /// How long one connection gives events, before the reader is to connect anew. 60 s, as the
    /// protocol advises.
    pub events: Duration,
    /// Most connections at once. 16,384; further ones wait in the system's queue.
    pub max_connections: usize,
    /// How long a connection may take until a request on it gives the right password; where no
    /// password is asked, until its first request. 10 s; zero is no limit.
    pub login: Duration,
    /// How long a peer may take to send a request's head, or its body, or to take in what is sent
    /// to it. 30 s.
    pub patience: Duration,
    /// How long requests that go on may take to end once the server is to stop. 10 s.
    pub grace: Duration,
    /// Cancelled before the server is to stop if another one waits for its clients: then `grace` is
    /// 0.3 s at most. By default never.
    pub hurry: CancellationToken,
    /// Streams whose state is kept in memory. 65,536; those in use may be more.
    pub cached: usize,
    /// How often streams that have expired are looked for. 1 minute. They are not there from the
    /// moment on at which they expire; this gives back their room.
    pub sweep: Duration,
    /// Whether caches that many readers share may keep replies. Yes; no where something before the
    /// server tells readers apart.
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
