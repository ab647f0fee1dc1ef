//! Live reads as server-sent events: first the existing messages, then new ones. Events are made
//! when the connection takes them, so a slow reader costs one chunk of memory.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
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
use crate::http::reply::{self, Refusal, set};

/// A sign of life, which tells a peer that is gone from one that waits.
const ALIVE: Duration = Duration::from_secs(15);

/// The last words to a reader of bytes that are no text, or none that an event can have.
const NO_TEXT: &[u8] =
    b": the next bytes of the stream are no UTF-8 text, or no message of many ends with a whole character: \
    read them without live=sse\n\n";

/// A reader of events.
struct Events {
    streams: Arc<Streams>,
    stream: Arc<Stream>,
    identity: Arc<Identity>,
    watch: watch::Receiver<Seen>,
    /// The number of the next message.
    next: u64,
    /// The end of the stream when its last messages ended within a character: these wait for more.
    held: u64,
    /// The bytes of that character.
    begun: Vec<u8>,
    skips: bool,
    cursor: Option<u64>,
    /// The first event, until it is sent.
    first: Option<Bytes>,
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
    /// Answers with events, the first of which is made before: what cannot be read is refused. A
    /// reader whose events end early asks again, and the status says why.
    pub async fn events(
        self: &Arc<Self>,
        stream: Arc<Stream>,
        request: Request,
        seen: Seen,
    ) -> Result<Response<Body>, Refusal> {
        let identity = seen.alive(&stream.name)?;
        let is_binary = identity.form() == Form::Bytes;
        let mut events = Events {
            next: self.first_of(&request, &seen)?,
            held: 0,
            begun: Vec::new(),
            streams: self.clone(),
            identity,
            watch: stream.watch(),
            skips: request.start == Start::Beginning,
            cursor: request.cursor,
            first: None,
            is_over: false,
            until: Instant::now() + self.config.events,
            _place: self.limits.place()?,
            _attendance: stream.hold_open(),
            stream,
        };
        events.first = Some(events.make(&seen).await?);
        let body = stream::unfold(events, async |mut events| {
            let event = events.next().await?;
            Some((Ok::<_, Infallible>(event), events))
        });
        let mut response = reply::events(Body::from_stream(body));
        if is_binary {
            set(response.headers_mut(), names::SSE_DATA_ENCODING, "base64");
        }
        Ok(response)
    }
}

impl Events {
    /// What is to be sent next; nothing more, if the connection is to end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.is_over {
            return None;
        }
        loop {
            let seen = self.watch.borrow_and_update().clone();
            if !seen.is_of(&self.identity) {
                return None;
            }
            if seen.end.0 > self.next.max(self.held) || seen.closed {
                return match self.make(&seen).await {
                    Ok(event) => Some(event),
                    Err(refusal) => {
                        tracing::debug!(?refusal, stream = %self.stream.name, "events end early");
                        None
                    }
                };
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

    /// Reads on. Of a text, only messages that end with a character, since an event has characters.
    /// Returns `None` if what follows is no text, or no message of two chunks ends with a
    /// character.
    async fn read(&mut self, seen: &Seen) -> Result<Option<Chunk>, Refusal> {
        let (streams, stream, identity) = (&self.streams, &self.stream, &self.identity);
        if self.held > self.next && !seen.closed {
            // Those that are held are read again only if what is new may end them.
            let new = streams.read(stream, identity, self.held, seen.end.0, false).await?;
            let mut text = Text::after(self.begun.clone());
            text.add(&new.messages);
            if text.messages == 0 && text.may_go_on && new.next >= seen.end.0 {
                (self.held, self.begun) = (new.next, text.begun);
                return Ok(Some(Chunk { messages: Vec::new(), next: self.next, share: None }));
            }
        }
        let mut chunk = streams.read(stream, identity, self.next, seen.end.0, self.skips).await?;
        if identity.form() != Form::Text {
            return Ok(Some(chunk));
        }
        let mut text = Text::of(&chunk.messages);
        if text.messages == 0 && text.may_go_on && chunk.next < seen.end.0 {
            // A message that is longer than a chunk may end within a character.
            let more = streams.read(stream, identity, chunk.next, seen.end.0, false).await?;
            text.add(&more.messages);
            chunk.messages.extend(more.messages);
            chunk.next = more.next;
            if let (Some(share), Some(more)) = (&mut chunk.share, more.share) {
                share.merge(more);
            }
        }
        let may_go_on = text.may_go_on && chunk.next >= seen.end.0 && !seen.closed;
        let rest = chunk.messages.split_off(text.messages);
        if chunk.messages.is_empty() && !rest.is_empty() && !may_go_on {
            return Ok(None);
        }
        self.held = if chunk.messages.is_empty() { chunk.next } else { 0 };
        self.begun = text.begun;
        chunk.next -= rest.len() as u64;
        Ok(Some(chunk))
    }

    /// Makes the next event.
    async fn make(&mut self, seen: &Seen) -> Result<Bytes, Refusal> {
        let Some(mut chunk) = self.read(seen).await? else {
            self.is_over = true;
            return Ok(Bytes::from_static(NO_TEXT));
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
            stream_next_offset: Offset(self.next).of(self.identity.id).to_string(),
            stream_cursor: self.cursor.filter(|_| !stream_closed).map(|cursor| cursor.to_string()),
            up_to_date,
            stream_closed,
        };
        let mut share = chunk.share.take();
        let mut event = data(self.identity.form(), chunk);
        event.push_str("event: control\ndata:");
        event.push_str(&serde_json::to_string(&control).expect("it is made of text and truth values"));
        event.push_str("\n\n");
        if let Some(share) = &mut share {
            // An event is longer than its messages, by a third for bytes.
            self.streams.limits.replies.grow(share, event.len()).await?;
        }
        Ok(hold(event.into(), share))
    }
}

/// How far messages are UTF-8 text.
#[derive(Debug)]
struct Text {
    /// Number of the messages that end with a whole character, with all before it.
    messages: usize,
    /// Whether the others may be the begin of more text.
    may_go_on: bool,
    /// Number of all messages.
    all: usize,
    /// The bytes of a character that the last message has begun.
    begun: Vec<u8>,
}

impl Text {
    fn of(messages: &[Bytes]) -> Self {
        let mut text = Self::after(Vec::new());
        text.add(messages);
        text
    }

    /// Text that goes on after these bytes of a character.
    fn after(begun: Vec<u8>) -> Self {
        Self { messages: 0, may_go_on: true, all: 0, begun }
    }

    /// Takes in the messages that follow.
    fn add(&mut self, messages: &[Bytes]) {
        for message in messages {
            if !self.may_go_on {
                return;
            }
            self.all += 1;
            let joined = match self.begun.is_empty() {
                true => message.clone(),
                false => [&self.begun[..], message].concat().into(),
            };
            match std::str::from_utf8(&joined) {
                Ok(_) => {
                    self.messages = self.all;
                    self.begun.clear();
                }
                Err(error) if error.error_len().is_none() => {
                    self.begun = joined[error.valid_up_to()..].to_vec();
                }
                Err(_) => self.may_go_on = false,
            }
        }
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
    use axum::http::header;

    use super::*;

    #[test]
    fn text_ends_with_a_whole_character() {
        let of = |messages: &[&'static [u8]]| {
            let messages: Vec<Bytes> = messages.iter().map(|message| Bytes::from_static(message)).collect();
            let Text { messages, may_go_on, .. } = Text::of(&messages);
            (messages, may_go_on)
        };
        assert_eq!(of(&[]), (0, true));
        assert_eq!(of(&["a".as_bytes(), "\u{20ac}".as_bytes()]), (2, true));
        assert_eq!(of(&[b"a", b"\xe2\x82"]), (1, true));
        assert_eq!(of(&[b"a\xe2", b"\x82", b"\xac", b"\xe2"]), (3, true));
        assert_eq!(of(&[b"\xe2\x82", b"a"]), (0, false));
        assert_eq!(of(&[b"a", b"\xff", b"a"]), (1, false));
    }

    #[test]
    fn no_text_begins_an_event_of_its_own() {
        let mut event = String::new();
        push_lines(&mut event, "a\r\n\r\nevent: control\rdata: x\n b\n");
        assert_eq!(event, "data:a\ndata:\ndata:event: control\ndata:data: x\ndata:  b\ndata:\n");
    }

    /// The data of an event, as a reader understands it.
    async fn events(
        streams: &Arc<Streams>,
        stream: &Arc<Stream>,
    ) -> impl futures_util::Stream<Item = String> + Unpin {
        let request = Request { start: Start::Beginning, live: None, cursor: None };
        let response = streams.events(stream.clone(), request, stream.seen()).await.unwrap();
        let events = response.into_body().into_data_stream();
        let text = |event: Result<Bytes, _>| String::from_utf8(event.unwrap().to_vec()).unwrap();
        Box::pin(futures_util::StreamExt::map(events, text))
    }

    #[tokio::test]
    async fn characters_arrive_whole() {
        let config = crate::http::Config::default();
        let limits = crate::http::limits::Limits::new(&config);
        let store = brooklet::Store::in_memory(1).unwrap();
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let name = super::super::name::Name::new("s").unwrap();
        let stream = streams.open(&name, false).await.unwrap();
        let mut request = axum::http::Request::new(());
        request.headers_mut().insert(header::CONTENT_TYPE, "text/plain".parse().unwrap());
        let (parts, ()) = request.into_parts();
        let post = |bytes: &'static [u8]| {
            let (streams, stream, headers) = (streams.clone(), stream.clone(), parts.headers.clone());
            async move { streams.post(&stream, &headers, Bytes::from_static(bytes)).await.unwrap() }
        };
        streams.put(&stream, &parts, Bytes::from_static(b"1\xe2")).await.unwrap();
        let mut events = events(&streams, &stream).await;
        let mut next = async || futures_util::StreamExt::next(&mut events).await;
        let first = next().await.unwrap();
        assert!(!first.contains("event: data") && !first.contains("upToDate"), "{first}");
        let begin = Offset(0).of(stream.seen().identity.unwrap().id);
        assert!(first.contains(&format!("\"{begin}\"")), "the reader goes on from the begin: {first}");
        post(b"\x82").await;
        assert!(!next().await.unwrap().contains("event: data"));
        post(b"\xac 2").await;
        assert!(next().await.unwrap().starts_with("event: data\ndata:1\u{20ac} 2\n\n"));
        post(b"3").await;
        assert!(next().await.unwrap().starts_with("event: data\ndata:3\n\n"));
        // Bytes that are no text end the events; what comes before them arrives.
        post(b"\xff").await;
        assert_eq!(next().await.unwrap().as_bytes(), NO_TEXT);
        assert_eq!(next().await, None);
    }

    /// In the old state a reader read one message after the other, and looked at all of them again
    /// after each.
    #[tokio::test]
    async fn text_whose_messages_never_end_with_a_character_ends_the_events() {
        let config = crate::http::Config { chunk: 256, ..Default::default() };
        let limits = crate::http::limits::Limits::new(&config);
        let store = brooklet::Store::in_memory(1).unwrap();
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let name = super::super::name::Name::new("s").unwrap();
        let stream = streams.open(&name, false).await.unwrap();
        let mut request = axum::http::Request::new(());
        request.headers_mut().insert(header::CONTENT_TYPE, "text/plain".parse().unwrap());
        streams.put(&stream, &request.into_parts().0, Bytes::from_static(b"\xe2")).await.unwrap();
        // Each of these ends a character, and begins the next.
        let more = vec![&b"\x82\xac\xe2"[..]; 1000];
        streams.store.append_many(name.data(), more).unwrap().wait().unwrap();
        streams.registry.remove(&name);
        let stream = streams.open(&name, true).await.unwrap();
        assert_eq!(stream.seen().end, Offset(1001));
        let mut events = events(&streams, &stream).await;
        assert_eq!(futures_util::StreamExt::next(&mut events).await.unwrap().as_bytes(), NO_TEXT);
        assert_eq!(futures_util::StreamExt::next(&mut events).await, None);
    }
}
