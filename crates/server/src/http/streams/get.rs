//! GET and HEAD: read a stream, at once or as soon as it has more.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Query;
use axum::http::header::{self, HeaderMap};
use axum::http::{Response, StatusCode, Uri};
use bytes::Bytes;

use super::headers as names;
use super::json;
use super::metadata::{Change, Form, Identity};
use super::name::Name;
use super::offset::{Offset, Position, Start};
use super::read::Chunk;
use super::stream::{Seen, Stream};
use super::{Streams, time};
use crate::http::budget::hold;
use crate::http::reply::{Refusal, omitted, set};

/// Seconds that a reply may be given again by caches, and beyond that while they ask whether it
/// still holds.
const MAX_AGE: u64 = 60;
const STALE: u64 = 300;

/// Longest block of messages that a message keeps in memory, in bytes.
const BLOCK: usize = 1 << 20;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub start: Start,
    pub live: Option<Live>,
    pub cursor: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    LongPoll,
    Events,
}

impl Request {
    pub fn of(uri: &Uri) -> Result<Self, Refusal> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| Refusal::invalid(format!("the query cannot be read: {error}")))?;
        let one = |name: &str| {
            let mut values = pairs.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
            match (values.next(), values.next()) {
                (_, Some(_)) => {
                    Err(Refusal::invalid(format!("{name} is given more than once: send it once")))
                }
                (value, None) => Ok(value),
            }
        };
        let live = match one("live")? {
            None => None,
            Some("long-poll") => Some(Live::LongPoll),
            Some("sse") => Some(Live::Events),
            Some(other) => {
                return Err(Refusal::invalid(format!("live is {other:?}: use long-poll or sse, or omit it")));
            }
        };
        let start = match one("offset")? {
            Some(offset) => Start::parse(offset)?,
            None if live.is_none() => Start::Beginning,
            None => {
                return Err(Refusal::invalid("offset is missing: live reads need one, such as -1 or now"));
            }
        };
        // A cursor that this server did not give is as good as none.
        let cursor = one("cursor")?.and_then(|cursor| cursor.parse().ok());
        Ok(Self { start, live, cursor })
    }

    /// The number of the first message that is asked for.
    pub fn from(&self, seen: &Seen) -> Result<u64, Refusal> {
        match self.start {
            Start::Beginning => Ok(0),
            Start::Now => Ok(seen.end.0),
            Start::At(Position { offset, .. }) if offset <= seen.end => Ok(offset.0),
            Start::At(Position { offset, .. }) => {
                let why = format!("{offset} is past the end of the stream, {}", seen.end);
                Err(Refusal::invalid(format!("{why}: read again from the beginning, -1")))
            }
        }
    }
}

impl Streams {
    /// The number of the first message that is asked for.
    pub fn first_of(&self, request: &Request, seen: &Seen) -> Result<u64, Refusal> {
        match request.start {
            Start::At(Position { offset, .. }) if offset > seen.end && self.gate.is_some() => {
                let why = format!("this read replica has {}, and not yet {offset}: ask again", seen.end);
                Err(Refusal::busy(why))
            }
            _ => request.from(seen),
        }
    }

    /// Refuses an offset of another stream, which had the name before, or has it at the owner
    /// already.
    async fn expect_own(
        self: &Arc<Self>,
        name: &Name,
        identity: &Arc<Identity>,
        start: Start,
    ) -> Result<(), Refusal> {
        let Start::At(position) = start else { return Ok(()) };
        let mut is_own = position.is_of(identity.id);
        if !is_own && identity.fork.is_some() {
            let identity = identity.clone();
            is_own = self.blocking(&self.reads, move |streams| streams.has(&identity, position)).await?;
        }
        match position.stream {
            _ if is_own => Ok(()),
            // Numbers of streams are times.
            Some(later) if self.gate.is_some() && later > identity.id => {
                Err(Refusal::busy(format!("this read replica has an older stream {name}: ask again")))
            }
            _ => Err(Refusal::other(name, position)),
        }
    }

    pub fn head(&self, stream: &Stream) -> Result<Response<Body>, Refusal> {
        let seen = stream.seen();
        let identity = seen.alive(&stream.name)?;
        let mut response = Response::new(omitted());
        let headers = response.headers_mut();
        set(headers, header::CONTENT_TYPE, &identity.content_type);
        set(headers, header::CACHE_CONTROL, "no-store");
        set(headers, names::NEXT_OFFSET, seen.end.of(identity.id));
        identity.ttl.inspect(|ttl| set(headers, names::TTL, ttl));
        identity.expires.inspect(|at| set(headers, names::EXPIRES_AT, time::format(*at)));
        if seen.closed {
            set(headers, names::CLOSED, "true");
        }
        Ok(response)
    }

    pub async fn get(
        self: &Arc<Self>,
        stream: Arc<Stream>,
        request: Request,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Refusal> {
        let seen = stream.seen();
        let identity = seen.alive(&stream.name)?;
        self.expect_own(&stream.name, &identity, request.start).await?;
        self.note_use(&stream, &identity);
        match request.live {
            Some(Live::Events) => self.events(stream, request, seen).await,
            Some(Live::LongPoll) => self.long_poll(&stream, request, seen).await,
            None => {
                let from = self.first_of(&request, &seen)?;
                let skips = request.start == Start::Beginning;
                let chunk = self.read(&stream, &identity, from, seen.end.0, skips).await?;
                let shared = self.config.shared;
                let reply = Reply { identity: &identity, chunk, seen: &seen, cursor: None, shared };
                match headers.get(header::IF_NONE_MATCH) {
                    Some(known) if request.start != Start::Now && matches(known.as_bytes(), &reply.tag()) => {
                        Ok(reply.unchanged())
                    }
                    _ => Ok(reply.whole(request.start)),
                }
            }
        }
    }

    /// Takes note that a stream is read, in the store if it should know of that. Nobody waits for
    /// it.
    fn note_use(self: &Arc<Self>, stream: &Arc<Stream>, identity: &Identity) {
        if self.gate.is_some() {
            return;
        }
        let Some(touched) = stream.touch(identity) else { return };
        let Ok(place) = self.uses.clone().try_acquire_owned() else { return stream.not_noted(touched) };
        let (streams, stream) = (self.clone(), stream.clone());
        tokio::spawn(async move {
            let _place = place;
            let noted = streams.write(&stream, move |streams, stream| {
                let mut written = stream.turn(&streams.store)?;
                stream.alive(&written)?;
                let change = Change { touched: Some(touched), ..Change::default() };
                streams.commit(stream, &mut written, &change, &[])
            });
            if let Err(refusal) = noted.await {
                tracing::debug!(?refusal, "the server could not record the use of a stream");
            }
        });
    }

    /// Reads from the store, on a thread that may wait for the volume.
    pub async fn read(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        identity: &Arc<Identity>,
        from: u64,
        end: u64,
        skips: bool,
    ) -> Result<Chunk, Refusal> {
        if from >= end {
            return Ok(Chunk { messages: Vec::new(), next: from, share: None });
        }
        let share = self.limits.replies.take(self.config.chunk).await?;
        let (of_read, outline) = (stream.clone(), identity.clone());
        // The share goes with the work, which goes on where the client leaves.
        let read = move |streams: &Self| {
            let chunk = streams.chunk(&of_read.name, &outline, from, end, skips);
            // The store was asked by the name alone: by now that may be another stream's.
            of_read.is_still(&outline)?;
            chunk.map(|chunk| (chunk, share))
        };
        let (chunk, mut share) = match self.blocking(&self.reads, read).await {
            Ok(read) => read,
            Err(refusal) => return Err(stream.once_seen(identity, refusal).await),
        };
        // The last message of a chunk may be much longer than the chunk.
        self.limits.replies.grow(&mut share, chunk.size()).await?;
        Ok(Chunk { share: Some(share), ..chunk })
    }

    async fn long_poll(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        request: Request,
        seen: Seen,
    ) -> Result<Response<Body>, Refusal> {
        let from = self.first_of(&request, &seen)?;
        let identity = seen.alive(&stream.name)?;
        let is_over = |seen: &Seen| seen.end.0 > from || seen.closed || !seen.is_of(&identity);
        let mut seen = seen;
        if !is_over(&seen) {
            let _place = self.limits.place()?;
            let _attendance = stream.hold_open();
            let mut watch = stream.watch();
            tokio::select! {
                now = watch.wait_for(is_over) => seen = now.expect("the stream is held").clone(),
                () = tokio::time::sleep(self.config.long_poll) => {}
                () = time::reached(identity.expires) => return Err(Refusal::unknown(&stream.name)),
                () = self.stop.cancelled() => {}
            }
        }
        if !seen.is_of(&identity) {
            return Err(seen.alive(&stream.name).err().unwrap_or_else(|| Refusal::unknown(&stream.name)));
        }
        let chunk = self.read(stream, &identity, from, seen.end.0, request.start == Start::Beginning).await?;
        let cursor = Some(time::cursor(request.cursor));
        let shared = self.config.shared;
        let reply = Reply { identity: &identity, chunk, seen: &seen, cursor, shared };
        if reply.chunk.messages.is_empty() { Ok(reply.nothing()) } else { Ok(reply.whole(request.start)) }
    }
}

impl Seen {
    /// Whether it is still the stream of this outline, and not one that was made after it under its
    /// name.
    pub fn is_of(&self, identity: &Identity) -> bool {
        !self.gone && self.identity.as_ref().is_some_and(|own| own.id == identity.id)
    }
}

/// Messages, and what is told with them.
struct Reply<'a> {
    identity: &'a Identity,
    chunk: Chunk,
    seen: &'a Seen,
    cursor: Option<u64>,
    /// Whether caches that many share may keep it.
    shared: bool,
}

impl Reply<'_> {
    fn is_at_end(&self) -> bool {
        self.chunk.next >= self.seen.end.0
    }

    /// The tag names the messages that are there: a retention may have dropped others where the
    /// reader began.
    fn tag(&self) -> String {
        let closed = if self.is_at_end() && self.seen.closed { ":c" } else { "" };
        let next = self.chunk.next;
        let (first, next) = (Offset(next - self.chunk.messages.len() as u64), Offset(next));
        format!("\"{:x}:{first}:{next}{closed}\"", self.identity.id)
    }

    fn headers(&self, status: StatusCode) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        set(headers, names::NEXT_OFFSET, Offset(self.chunk.next).of(self.identity.id));
        self.cursor.inspect(|cursor| set(headers, names::CURSOR, cursor));
        if self.is_at_end() {
            set(headers, names::UP_TO_DATE, "true");
            if self.seen.closed {
                set(headers, names::CLOSED, "true");
            }
        }
        response
    }

    /// How long caches may give it again: what is there does not change, but it may expire.
    fn caching(&self) -> String {
        let left = self.identity.expires.map(|at| at.saturating_sub(time::now()) / 1000);
        let most = left.or(self.identity.ttl).unwrap_or(u64::MAX);
        match MAX_AGE.min(most) {
            0 => "no-store".into(),
            age => {
                let who = if self.shared { "public" } else { "private" };
                format!("{who}, max-age={age}, stale-while-revalidate={}", STALE.min(most))
            }
        }
    }

    fn whole(self, start: Start) -> Response<Body> {
        let mut response = self.headers(StatusCode::OK);
        let headers = response.headers_mut();
        set(headers, header::CONTENT_TYPE, &self.identity.content_type);
        if start == Start::Now || self.chunk.messages.is_empty() {
            set(headers, header::CACHE_CONTROL, "no-store");
        } else {
            set(headers, header::CACHE_CONTROL, self.caching());
        }
        if start != Start::Now {
            set(headers, header::ETAG, self.tag());
        }
        let body = match self.identity.form() {
            Form::Json => json::array(&self.chunk.messages).into(),
            Form::Text | Form::Bytes => joined(self.chunk.messages),
        };
        *response.body_mut() = Body::from(hold(body, self.chunk.share));
        response
    }

    fn unchanged(&self) -> Response<Body> {
        let mut response = self.headers(StatusCode::NOT_MODIFIED);
        set(response.headers_mut(), header::ETAG, self.tag());
        set(response.headers_mut(), header::CACHE_CONTROL, self.caching());
        response
    }

    fn nothing(&self) -> Response<Body> {
        let mut response = self.headers(StatusCode::NO_CONTENT);
        set(response.headers_mut(), header::CACHE_CONTROL, "no-store");
        response
    }
}

/// Whether a list of tags has this one.
fn matches(list: &[u8], tag: &str) -> bool {
    let mut tags = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    tags.any(|known| known == b"*" || known.strip_prefix(b"W/").unwrap_or(known) == tag.as_bytes())
}

/// All in one piece. A single message is copied if it is short: it would keep its block in memory,
/// for as long as a slow client takes, and only the message counts.
pub fn joined(messages: Vec<Bytes>) -> Bytes {
    match <[Bytes; 1]>::try_from(messages) {
        Ok([message]) if message.len() < BLOCK / 2 => Bytes::copy_from_slice(&message),
        Ok([message]) => message,
        Err(messages) => messages.concat().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use brooklet::io::{Fault, MemVolume};

    use super::*;
    use crate::http::Config;
    use crate::http::limits::Limits;
    use crate::http::streams::remove::Why;

    /// Makes a stream of text with these messages.
    async fn make(streams: &Arc<Streams>, messages: [&'static str; 2]) -> Arc<Stream> {
        let stream = streams.open(&Name::new("s").unwrap(), false).await.unwrap();
        let mut request = axum::http::Request::new(());
        request.headers_mut().insert(header::CONTENT_TYPE, "text/plain".parse().unwrap());
        let (parts, ()) = request.into_parts();
        streams.put(&stream, &parts, Bytes::from_static(messages[0].as_bytes())).await.unwrap();
        let rest = Bytes::from_static(messages[1].as_bytes());
        streams.post(&stream, &parts.headers, rest).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn a_reader_never_gets_messages_of_another_stream_of_its_name() {
        let config = Config::default();
        let limits = Limits::new(&config);
        let store = brooklet::Store::in_memory(1).unwrap();
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let stream = make(&streams, ["a", "b"]).await;
        let seen = stream.seen();
        let identity = seen.alive(&stream.name).unwrap();
        let read = |identity: Arc<Identity>| {
            let (streams, stream) = (streams.clone(), stream.clone());
            async move { streams.read(&stream, &identity, 0, 2, true).await.map(|chunk| chunk.messages) }
        };
        assert_eq!(read(identity.clone()).await.unwrap(), ["a", "b"]);
        // A reader has looked, and waits; meanwhile:
        streams.delete(&stream).await.unwrap();
        assert_eq!(read(identity.clone()).await.unwrap_err().status, StatusCode::NOT_FOUND);
        make(&streams, ["c", "d"]).await;
        assert_eq!(read(identity).await.unwrap_err().status, StatusCode::NOT_FOUND);
        let identity = stream.seen().alive(&stream.name).unwrap();
        assert_eq!(read(identity).await.unwrap(), ["c", "d"]);
    }

    /// In the old state a read waited for the writer of its stream, who may wait for room, and some
    /// such reads were all that may run at once.
    #[test]
    fn reads_do_not_wait_for_the_writer_of_their_stream() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let config = Config::default();
        let limits = Limits::new(&config);
        let store = brooklet::Store::in_memory(1).unwrap();
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let stream = runtime.block_on(make(&streams, ["a", "b"]));
        let identity = stream.seen().identity.unwrap();
        let turn = stream.turn(&streams.store).unwrap();
        let read = streams.read(&stream, &identity, 0, 2, true);
        // Longer than that takes, however busy the machine is.
        let forever = std::time::Duration::from_secs(120);
        let read = runtime.block_on(async { tokio::time::timeout(forever, read).await });
        drop(turn);
        assert_eq!(read.expect("it does not wait").unwrap().messages, ["a", "b"]);
    }

    /// In the old state a reader was told of a removal that was not durable yet, and that a power
    /// cut undid.
    #[tokio::test]
    async fn a_reader_hears_of_a_removal_once_it_is_durable() {
        let disk = MemVolume::new(1);
        let options = brooklet::Options::new().ring_size(4 << 20).max_payload(512 << 10);
        let store: brooklet::Store = options.create_on(Arc::new(disk.clone())).unwrap();
        let config = Config::default();
        let limits = Limits::new(&config);
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let stream = make(&streams, ["a", "b"]).await;
        let identity = stream.seen().identity.unwrap();
        disk.fail(Fault::ErrorAfter { operations: 0, kind: ErrorKind::Other, sticky: true });
        drop(streams.remove(&stream, Why::Asked).unwrap());
        let refused = streams.read(&stream, &identity, 0, 2, true).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{refused:?}");
    }

    /// In the old state each stream that was read had one more task every now and then, for as long
    /// as the store had no room.
    #[tokio::test]
    async fn notes_of_uses_do_not_pile_up() {
        let config = Config::default();
        let limits = Limits::new(&config);
        let store = brooklet::Store::in_memory(1).unwrap();
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let stream = streams.open(&Name::new("s").unwrap(), false).await.unwrap();
        let mut request = axum::http::Request::new(());
        request.headers_mut().insert("stream-ttl", "800".parse().unwrap());
        streams.put(&stream, &request.into_parts().0, Bytes::from_static(b"x")).await.unwrap();
        let identity = stream.seen().identity.unwrap();
        // No writer has a turn meanwhile.
        for _ in 0..40_000 {
            stream.begin(time::now() - 200_000);
            streams.note_use(&stream, &identity);
        }
        let held = Arc::strong_count(&stream);
        assert!((1_000..20_000).contains(&held), "{held}");
    }

    /// In the old state a short message that nobody took kept its block in memory, which is up to
    /// 64 times as long as what was counted.
    #[test]
    fn a_short_message_keeps_no_block_in_memory() {
        let block = Bytes::from(vec![b'x'; 1 << 20]);
        for (len, is_copied) in [(16 << 10, true), (1 << 20, false)] {
            let message = block.slice(..len);
            let reply = joined(vec![message.clone()]);
            assert_eq!(reply, message);
            assert_eq!(reply.as_ptr() != message.as_ptr(), is_copied, "{len}");
        }
        assert_eq!(joined(vec![block.slice(..2), block.slice(..3)]), "xxxxx");
    }

    #[tokio::test]
    async fn a_use_that_could_not_be_noted_is_noted_by_the_next() {
        let config = Config::default();
        let limits = Limits::new(&config);
        let store = brooklet::Store::in_memory(1).unwrap();
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let stream = streams.open(&Name::new("s").unwrap(), false).await.unwrap();
        let mut request = axum::http::Request::new(());
        request.headers_mut().insert("stream-ttl", "800".parse().unwrap());
        streams.put(&stream, &request.into_parts().0, Bytes::from_static(b"x")).await.unwrap();
        let identity = stream.seen().identity.unwrap();
        stream.begin(time::now() - 200_000);
        let touched = stream.touch(&identity).expect("an eighth of the time has passed");
        assert_eq!(stream.touch(&identity), None, "it is on its way");
        // Somebody changed the log of notes, so that the commit is refused.
        streams.store.append(stream.name.metadata(), "").unwrap().wait().unwrap();
        let mut written = stream.turn(&streams.store).unwrap();
        let change = Change { touched: Some(touched), ..Change::default() };
        assert!(streams.commit(&stream, &mut written, &change, &[]).is_err());
        assert!(stream.touch(&identity).is_some());
    }
}
