//! Live reads as server-sent events: first the existing messages, then new ones. Events are made
//! when the connection takes them, so a slow reader costs one chunk of memory.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use axum::http::header;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::get::{Request, joined};
use super::headers as names;
use super::json;
use super::metadata::{Form, Identity};
use super::offset::{Offset, Start};
use super::read::Chunk;
use super::stream::{HeldOpen, Seen, Stream};
use super::{Streams, time};
use crate::http::budget::hold;
use crate::http::reply::{Refusal, set};

/// A sign of life, which tells a peer that is gone from one that waits.
const ALIVE: Duration = Duration::from_secs(15);

/// A reader of events.
struct Events {
    streams: Arc<Streams>,
    stream: Arc<Stream>,
    identity: Arc<Identity>,
    watch: watch::Receiver<Seen>,
    /// The number of the next message.
    next: u64,
    skips: bool,
    cursor: Option<u64>,
    is_first: bool,
    is_over: bool,
    until: Instant,
    _place: OwnedSemaphorePermit,
    _attendance: HeldOpen,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Control {
    stream_next_offset: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_cursor: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    up_to_date: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream_closed: bool,
}

impl Streams {
    pub fn events(
        self: &Arc<Self>,
        stream: Arc<Stream>,
        request: Request,
        seen: Seen,
    ) -> Result<Response<Body>, Refusal> {
        let identity = seen.alive(&stream.name)?;
        let is_binary = identity.form() == Form::Bytes;
        let events = Events {
            next: request.from(&seen)?,
            streams: self.clone(),
            identity,
            watch: stream.watch(),
            skips: request.start == Start::Beginning,
            cursor: request.cursor,
            is_first: true,
            is_over: false,
            until: Instant::now() + self.config.events,
            _place: self.limits.place()?,
            _attendance: stream.hold_open(),
            stream,
        };
        let body = stream::unfold(events, async |mut events| {
            let event = events.next().await?;
            Some((Ok::<_, Infallible>(event), events))
        });
        let mut response = Response::new(Body::from_stream(body));
        let headers = response.headers_mut();
        set(headers, header::CONTENT_TYPE, "text/event-stream");
        set(headers, header::CACHE_CONTROL, "no-cache");
        if is_binary {
            set(headers, names::SSE_DATA_ENCODING, "base64");
        }
        Ok(response)
    }
}

impl Events {
    /// What is to be sent next; nothing more, if the connection is to end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        loop {
            let seen = self.watch.borrow_and_update().clone();
            if !seen.is_of(&self.identity) {
                return None;
            }
            if std::mem::take(&mut self.is_first) || seen.end.0 > self.next || seen.closed {
                return self.tell(&seen).await;
            }
            tokio::select! {
                _ = self.watch.changed() => {}
                () = tokio::time::sleep(ALIVE) => return Some(Bytes::from_static(b":\n\n")),
                () = tokio::time::sleep_until(self.until) => return None,
                // The reader asks again, and is told that the stream is gone.
                () = time::reached(self.identity.expires) => return None,
                () = self.streams.stop.cancelled() => return None,
            }
        }
    }

    async fn tell(&mut self, seen: &Seen) -> Option<Bytes> {
        let chunk = self.streams.read(&self.stream, &self.identity, self.next, seen.end.0, self.skips).await;
        let mut chunk = match chunk {
            Ok(chunk) => chunk,
            Err(refusal) => {
                // The reader asks again, and is told why by the status.
                tracing::debug!(?refusal, stream = %self.stream.name, "events end early");
                return None;
            }
        };
        (self.next, self.skips) = (chunk.next, false);
        let up_to_date = self.next >= seen.end.0;
        let stream_closed = up_to_date && seen.closed;
        let is_late = Instant::now() >= self.until || self.streams.stop.is_cancelled();
        self.is_over = stream_closed || is_late;
        if !stream_closed {
            self.cursor = Some(time::cursor(self.cursor));
        }
        let control = Control {
            stream_next_offset: Offset(self.next).to_string(),
            stream_cursor: self.cursor.filter(|_| !stream_closed).map(|cursor| cursor.to_string()),
            up_to_date,
            stream_closed,
        };
        let share = chunk.share.take();
        let mut event = data(self.identity.form(), chunk);
        event.push_str("event: control\ndata:");
        event.push_str(&serde_json::to_string(&control).expect("it is made of text and truth values"));
        event.push_str("\n\n");
        Some(hold(event.into(), share))
    }
}

/// The event that bears messages, if there are any.
fn data(form: Form, chunk: Chunk) -> String {
    let mut event = String::new();
    if chunk.messages.is_empty() {
        return event;
    }
    event.push_str("event: data\n");
    match form {
        Form::Json => push_lines(&mut event, &String::from_utf8_lossy(&json::array(&chunk.messages))),
        Form::Text => push_lines(&mut event, &String::from_utf8_lossy(&joined(chunk.messages))),
        Form::Bytes => {
            event.push_str("data:");
            STANDARD.encode_string(joined(chunk.messages), &mut event);
            event.push('\n');
        }
    }
    event.push('\n');
    event
}

/// Each line on one of its own, whatever ends it: no text can begin another event.
fn push_lines(event: &mut String, text: &str) {
    let mut rest = text;
    loop {
        let end = rest.find(['\r', '\n']);
        let line = &rest[..end.unwrap_or(rest.len())];
        event.push_str("data:");
        // Readers take one space away.
        if line.starts_with(' ') {
            event.push(' ');
        }
        event.push_str(line);
        event.push('\n');
        let Some(end) = end else { return };
        let len = if rest[end..].starts_with("\r\n") { 2 } else { 1 };
        rest = &rest[end + len..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_begins_an_event_of_its_own() {
        let mut event = String::new();
        push_lines(&mut event, "a\r\n\r\nevent: control\rdata: x\n b\n");
        assert_eq!(event, "data:a\ndata:\ndata:event: control\ndata:data: x\ndata:  b\ndata:\n");
    }
}
