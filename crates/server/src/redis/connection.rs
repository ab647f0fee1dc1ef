//! The connection of one client: reads requests, writes replies. It waits only for its socket and
//! its waker.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWrite;
use tokio_util::io::poll_read_buf;

use super::engine::{Buffers, Engine};
use super::proto::{Args, Invalid, Limits, Parser, size_of_args};
use super::serve::Seat;
use crate::net::Stream;

/// Size of one read, in bytes: as long as a client sends little, and then. An idle client keeps the
/// room of its last read.
const FIRST_CHUNK: usize = 1 << 10;
const CHUNK: usize = 16 << 10;
/// Size of a buffer, in bytes, that a connection does not keep once it is empty.
const LARGE: usize = 4 * CHUNK;
/// Most bytes that are reserved, or parsed, before some of them are used.
const AHEAD: usize = 1 << 20;

/// Time after which the requests of a client wait until other clients had a turn.
const SLICE: Duration = Duration::from_millis(2);

/// A client's connection.
pub struct Connection {
    seat: Seat,
    stream: Stream,
    input: BytesMut,
    /// Size of the next read, in bytes.
    chunk: usize,
    parser: Parser,
    requests: VecDeque<Args>,
    /// Memory of the requests, in bytes.
    parsed: usize,
    output: BytesMut,
    /// Bytes in front of the output that were written, and whose memory the output keeps.
    written: usize,
    /// Bytes that were read and written since the engine counted them.
    traffic: (u64, u64),
    /// Whether the client has closed its side.
    is_over: bool,
    /// Whether the client's input was invalid.
    is_refused: bool,
    /// Why it was, until the client is told.
    refusal: Option<Invalid>,
    /// Whether the read bytes may contain whole requests.
    has_more: bool,
    /// How to continue reading, if at all.
    reading: Option<Reading>,
    /// Whether a command of the client runs in portions, and is not at its end.
    works: bool,
}

/// The parameters of reading.
struct Reading {
    waits: bool,
    limits: Limits,
}

/// The state of the client, from the engine.
struct State {
    waits: bool,
    /// Whether requests are left because other clients have a turn first.
    yields: bool,
    /// Whether requests are left because the store takes a long commit first.
    is_behind: bool,
    leaves: bool,
    is_killed: bool,
    is_done: bool,
    /// Whether so many replies are pending that no more requests are accepted.
    is_slow: bool,
    limits: Limits,
}

impl Connection {
    /// Creates the connection of an admitted client.
    pub fn new(seat: Seat, stream: Stream) -> Self {
        let (input, output) = (BytesMut::new(), BytesMut::new());
        let (parser, requests) = (Parser::default(), VecDeque::new());
        Self {
            seat,
            stream,
            input,
            chunk: FIRST_CHUNK,
            parser,
            requests,
            parsed: 0,
            output,
            written: 0,
            traffic: (0, 0),
            is_over: false,
            is_refused: false,
            refusal: None,
            has_more: false,
            reading: None,
            works: false,
        }
    }

    /// Serves the client until one side ends the connection.
    pub async fn run(mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Most polls are for received bytes: their requests run in the same turn.
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
            let taken = self.output.len();
            while !self.output.is_empty() {
                match Pin::new(&mut self.stream).poll_write(cx, &self.output)? {
                    Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(n) => {
                        self.traffic.1 += n as u64;
                        self.written += n;
                        self.output.advance(n);
                    }
                    Poll::Pending => break,
                }
            }
            if self.output.is_empty() {
                if self.written > LARGE {
                    self.output = BytesMut::new();
                }
                self.written = 0;
            }
            if taken > CHUNK || !self.output.is_empty() {
                self.note_memory(&mut self.seat.shared.lock(), self.output.len());
            }
            let is_flushed = Pin::new(&mut self.stream).poll_flush(cx)?.is_ready() && self.output.is_empty();
            if state.yields {
                // A plain wake-up would not let the runtime look at sockets first.
                return pin!(tokio::task::yield_now()).poll(cx).map(Ok);
            }
            // Replies of later requests are taken only once the output has room for them.
            let has_rest = state.is_slow || !self.requests.is_empty() || !state.is_done;
            if had_output && self.output.is_empty() && has_rest && !state.leaves {
                // Requests or replies may have been held back for lack of room; no other event
                // reports the new room.
                continue;
            }
            if state.is_behind {
                return Poll::Pending;
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
                // The client waited, and has disconnected.
                return Poll::Ready(Ok(()));
            }
            // Bytes that cannot be parsed yet are enough, except from a client that waits: only a
            // read of all that it sent reports that it has left.
            let has_enough = self.has_more && !state.waits;
            let holds_back = state.leaves || state.is_slow || has_enough;
            if self.is_over || holds_back || self.output.len() > CHUNK {
                return Poll::Pending;
            }
            self.reading = Some(Reading { waits: state.waits, limits: state.limits });
        }
    }

    /// Reads the available bytes.
    fn read(&mut self, cx: &mut Context<'_>, reading: &Reading) -> Poll<io::Result<()>> {
        self.input.reserve(self.chunk.max(self.parser.wanted(&self.input).min(AHEAD)));
        let room = self.input.capacity() - self.input.len();
        match ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.input))? {
            0 => self.is_over = true,
            n => {
                self.traffic.0 += n as u64;
                self.has_more = true;
                if n == room {
                    self.chunk = CHUNK;
                }
            }
        }
        // The input of a waiting client stays unparsed, and limited.
        if !reading.waits {
            self.parse(reading.limits);
        }
        Poll::Ready(Ok(()))
    }

    /// Parses whole requests from the read bytes.
    fn parse(&mut self, limits: Limits) {
        self.has_more = false;
        while !self.is_refused {
            match self.parser.next(&mut self.input, limits) {
                Ok(Some(request)) => {
                    self.parsed += size_of_args(&request);
                    self.requests.push_back(request);
                    // This request may be the login; the limits of later requests are then larger.
                    // And small requests take more memory than their bytes.
                    if !limits.is_known || self.parsed > AHEAD {
                        self.has_more = true;
                        break;
                    }
                }
                Ok(None) => break,
                Err(why) => {
                    self.is_refused = true;
                    self.is_over = true;
                    self.refusal = Some(why);
                }
            }
        }
    }

    /// Reports the memory of this connection; see [`Engine::note_memory`].
    fn note_memory(&self, engine: &mut Engine, outgoing: usize) -> Option<bool> {
        let unread = self.input.len() + self.parsed + self.parser.memory();
        // The room of one read does not count.
        let room = (self.input.capacity() - self.input.len()).saturating_sub(CHUNK);
        let spare = room + self.written;
        engine.note_memory(self.seat.id, Buffers { unread, outgoing, spare })
    }

    /// Runs the requests in the engine, and takes the replies that may be sent.
    fn turn(&mut self, cx: &Context<'_>) -> State {
        let mut engine = self.seat.shared.lock();
        let (read, written) = std::mem::take(&mut self.traffic);
        engine.stats.traffic.0 += read;
        engine.stats.traffic.1 += written;
        if !self.requests.is_empty() || self.works {
            if let Some(client) = engine.client(self.seat.id) {
                client.outgoing = self.output.len();
            }
            let began = Instant::now();
            engine.run(self.seat.id, &mut self.requests, || began.elapsed() < SLICE);
            self.seat.shared.tell(&mut engine);
        }
        if self.requests.is_empty() {
            if self.parsed > LARGE && self.input.len() + self.parser.memory() <= self.parsed {
                // Otherwise the memory of a large request would stay with an idle client.
                self.parser.release(&mut self.input);
            }
            self.parsed = 0;
            // A command in portions is not over before its reply.
            let works = engine.client(self.seat.id).is_some_and(|client| client.work.is_some());
            if !works && let Some(why) = self.refusal.take() {
                engine.refuse(self.seat.id, &why);
            }
        }
        if self.output.is_empty() {
            self.output = engine.take_ready(self.seat.id);
            // Replies may wait for the lease, at which the task of the time looks.
            self.seat.shared.tell(&mut engine);
        }
        // Most replies are small, and leave at once.
        let outgoing = if self.output.len() > CHUNK { self.output.len() } else { 0 };
        let slow = self.note_memory(&mut engine, outgoing);
        let limits =
            Limits { bulk: engine.settings.max_bulk, request: engine.settings.max_request, is_known: true };
        let is_handing = engine.is_handing(self.seat.id);
        let (Some(is_slow), Some(client)) = (slow, engine.client(self.seat.id)) else {
            return State {
                waits: false,
                yields: false,
                is_behind: false,
                leaves: true,
                is_killed: true,
                is_done: true,
                is_slow: false,
                limits,
            };
        };
        // The reply of a commit that is on its way comes once the commit has ended.
        let is_done = client.is_done() && client.handed.is_none() && !is_handing;
        if client.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            client.waker = Some(cx.waker().clone());
        }
        self.works = client.work.is_some();
        let has_more = !self.requests.is_empty() || self.works;
        State {
            waits: client.waits(),
            yields: has_more && !client.is_behind && !client.waits() && !client.is_leaving && !is_slow,
            is_behind: client.is_behind && !client.is_leaving,
            leaves: client.is_leaving,
            is_killed: client.is_killed,
            is_done,
            is_slow,
            limits: Limits { is_known: client.user.is_some(), ..limits },
        }
    }
}
