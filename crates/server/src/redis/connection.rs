//! The connection of one client: reads requests, writes replies. It waits only for its socket and
//! its waker.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWrite;
use tokio_util::io::poll_read_buf;

use super::client::ClientId;
use super::proto::{Args, Limits, Parser};
use super::serve::Shared;
use crate::net::Stream;

/// Bytes that are read at once.
const CHUNK: usize = 16 << 10;
/// Bytes that are read of a client that waits, before it is left alone until it has what it waits
/// for.
const AHEAD: usize = 1 << 20;

/// A client's connection.
pub struct Connection {
    shared: Shared,
    id: ClientId,
    stream: Stream,
    input: BytesMut,
    parser: Parser,
    requests: VecDeque<Args>,
    output: BytesMut,
    /// Whether the other side has said its last.
    is_over: bool,
    /// Whether what it said made no sense.
    is_refused: bool,
    /// Whether whole requests may be left in what was read.
    has_more: bool,
    /// How more is read, if it is to be.
    reading: Option<Reading>,
}

/// What matters to how bytes are read.
struct Reading {
    waits: bool,
    limits: Limits,
}

/// What the engine says of the client.
struct State {
    waits: bool,
    leaves: bool,
    is_killed: bool,
    is_done: bool,
    /// Whether so many replies wait that no more requests are taken.
    is_slow: bool,
    limits: Limits,
}

impl Connection {
    /// Of a client that was let in.
    pub fn new(shared: Shared, id: ClientId, stream: Stream) -> Self {
        let (input, output) = (BytesMut::new(), BytesMut::new());
        let (parser, requests) = (Parser::default(), VecDeque::new());
        Self {
            shared,
            id,
            stream,
            input,
            parser,
            requests,
            output,
            is_over: false,
            is_refused: false,
            has_more: false,
            reading: None,
        }
    }

    /// Serves the client until one of the two leaves.
    pub async fn run(mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Most polls are for bytes that came: what they ask for is done in the same turn.
        let mut is_first = true;
        loop {
            if let Some(reading) = self.reading.take()
                && self.read(cx, &reading)?.is_pending()
                && !is_first
            {
                self.reading = Some(reading);
                return Poll::Pending;
            }
            is_first = false;
            let state = self.turn(cx);
            if state.is_killed {
                return Poll::Ready(Ok(()));
            }
            let had_output = !self.output.is_empty();
            while !self.output.is_empty() {
                match Pin::new(&mut self.stream).poll_write(cx, &self.output)? {
                    Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(n) => self.output.advance(n),
                    Poll::Pending => break,
                }
            }
            let is_flushed = Pin::new(&mut self.stream).poll_flush(cx)?.is_ready() && self.output.is_empty();
            let has_room = self.output.is_empty() && (state.is_slow || !self.requests.is_empty());
            if had_output && has_room && !state.leaves {
                // Requests or replies were held back for the room that this made, and nobody else
                // will say so.
                continue;
            }
            if self.has_more && !state.waits && self.requests.is_empty() && is_flushed {
                self.parse(state.limits);
                continue;
            }
            let has_no_more = self.is_over && self.requests.is_empty() && !state.waits;
            if (state.leaves || has_no_more) && state.is_done && is_flushed {
                return Pin::new(&mut self.stream).poll_shutdown(cx);
            }
            if self.is_over && state.waits {
                // It waits for something, and has gone.
                return Poll::Ready(Ok(()));
            }
            let holds_back = state.leaves || state.is_slow || (state.waits && self.input.len() > AHEAD);
            if self.is_over || holds_back || self.output.len() > CHUNK {
                return Poll::Pending;
            }
            self.reading = Some(Reading { waits: state.waits, limits: state.limits });
        }
    }

    /// Reads what has come.
    fn read(&mut self, cx: &mut Context<'_>, reading: &Reading) -> Poll<io::Result<()>> {
        self.input.reserve(CHUNK.max(self.parser.wanted(&self.input).min(AHEAD)));
        match ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.input))? {
            0 => self.is_over = true,
            _ => self.has_more = true,
        }
        // What comes while it waits stays bytes, of which no more are taken than some.
        if !reading.waits {
            self.parse(reading.limits);
        }
        Poll::Ready(Ok(()))
    }

    /// Takes whole requests out of what was read.
    fn parse(&mut self, limits: Limits) {
        self.has_more = false;
        while !self.is_refused {
            match self.parser.next(&mut self.input, limits) {
                Ok(Some(request)) => {
                    self.requests.push_back(request);
                    if !limits.is_known {
                        // It may be the one that says who the client is, and what follows may be
                        // larger.
                        self.has_more = true;
                        break;
                    }
                }
                Ok(None) => break,
                Err(why) => {
                    self.is_refused = true;
                    self.is_over = true;
                    let mut engine = self.shared.lock();
                    engine.run(self.id, &mut self.requests);
                    engine.refuse(self.id, &why);
                    self.shared.tell(&mut engine);
                }
            }
        }
    }

    /// Has the engine do what was asked for, and takes the replies that may leave.
    fn turn(&mut self, cx: &Context<'_>) -> State {
        let mut engine = self.shared.lock();
        if !self.requests.is_empty() {
            engine.run(self.id, &mut self.requests);
            self.shared.tell(&mut engine);
        }
        let (bulk, request, slow) =
            (engine.settings.max_bulk, engine.settings.max_request, engine.settings.soft_output);
        if self.output.is_empty() {
            self.output = engine.take_ready(self.id);
        }
        let unread = self.input.len() + self.requests.len() * size_of::<Args>();
        let limits = Limits { bulk, request, is_known: true };
        let Some(client) = engine.client(self.id) else {
            return State {
                waits: false,
                leaves: true,
                is_killed: true,
                is_done: true,
                is_slow: false,
                limits,
            };
        };
        client.unread = unread;
        client.outgoing = self.output.len();
        if client.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            client.waker = Some(cx.waker().clone());
        }
        State {
            waits: client.wait.is_some(),
            leaves: client.is_leaving,
            is_killed: client.is_killed,
            is_done: client.is_done(),
            is_slow: client.written() + self.output.len() > slow,
            limits: Limits { is_known: client.user.is_some(), ..limits },
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.lock().disconnect(self.id);
    }
}
