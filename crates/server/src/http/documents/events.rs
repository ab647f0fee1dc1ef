//! Events of a document (server-sent events): each update once, as soon as it is durable. An event
//! is made when the connection takes it, so a slow client costs one chunk of memory.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use brooklet_documents::{Error, Event, Json, JsonChange, JsonState, Watch};
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::Face;
use super::asked::{Asked, Part};
use super::problem::{Kind, Problem};
use super::shown::{Shown, text};
use crate::http::budget::hold;
use crate::http::reply;

/// Time between two signs of life, by which a server notices that a client has left.
const ALIVE: Duration = Duration::from_secs(15);
/// The first lines: how soon a client connects again after the end of the reply, in milliseconds.
const RETRY: &str = "retry: 100\n\n";

/// The last lines for a client that connects again a second later: it is ahead of a read replica,
/// or its events have failed.
const LATER: &str = "retry: 1000\n\n";

/// A connection that takes events later than this has a slow client.
const LATE: Duration = Duration::from_secs(1);

type DocumentEvent = Event<JsonState, JsonChange>;

/// A client that follows a document.
struct Follower {
    face: Arc<Face>,
    /// `None` after the end, and while another thread has it.
    watch: Option<Watch<Json>>,
    /// What is to be sent first, the last part first.
    begin: Vec<Bytes>,
    /// When the connection last got bytes, and there was nothing more to send.
    returned: Option<Instant>,
    until: Instant,
    _place: OwnedSemaphorePermit,
}

impl Face {
    /// Answers with the events after a version, the first of which are read before: what cannot be
    /// read is refused. A client whose events end early asks again, and the status says why.
    pub async fn events(self: &Arc<Self>, name: Vec<u8>, asked: &Asked) -> Result<Response<Body>, Problem> {
        let from = match (asked.last_event, asked.part) {
            // A client that connects again keeps the query of its first request.
            (Some(version), Part::Since(_) | Part::Now) | (None, Part::Since(version)) => version,
            (None, Part::Now) => 0,
            _ => {
                let why = "events begin after a version: use ?since=VERSION, or omit the query";
                return Err(Problem::new(Kind::BadRequest, why));
            }
        };
        let place = self.limits.place()?;
        let was_here = asked.last_event.is_some();
        let document = name.clone();
        let watch = move |face: &Self| match face.documents.watch(&name, from) {
            // The store has gone back behind the version that the client had, as by a takeover. A
            // read replica may be behind instead.
            Err(Error::NoSuchVersion { .. }) if was_here && face.gate.is_none() => {
                Ok((face.documents.watch(&name, 0)?, true))
            }
            watch => Ok((watch?, false)),
        };
        let (watch, begins_anew) = self.reading(&document, watch).await?;
        let mut follower = Follower {
            face: self.clone(),
            watch: Some(watch.without_undo()),
            begin: Vec::new(),
            returned: None,
            until: Instant::now() + self.config.events,
            _place: place,
        };
        match follower.there().await {
            Ok(Some(events)) => follower.begin.push(events),
            Ok(None) => follower.returned = Some(Instant::now()),
            // Other replies have the memory for a while.
            Err(problem) if problem.kind() == Kind::Busy => return Ok(later()),
            Err(problem) => return Err(problem),
        }
        if begins_anew {
            follower.begin.push(line(&Event::Deleted).into());
        }
        follower.begin.push(Bytes::from_static(RETRY.as_bytes()));
        let body = stream::unfold(follower, async |mut follower| {
            let events = follower.next().await?;
            Some((Ok::<_, Infallible>(events), follower))
        });
        Ok(reply::events(Body::from_stream(body)))
    }
}

/// Answers that events will come later. A browser connects again after the end of a reply, and
/// never after a refusal.
pub fn later() -> Response<Body> {
    reply::events(Body::from(LATER))
}

impl Follower {
    /// Returns what is to be sent next; `None` at the end of the reply.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(bytes) = self.begin.pop() {
            return Some(bytes);
        }
        // New entries are in memory. Older ones are in files, which another thread reads.
        if self.returned.is_none_or(|returned| returned.elapsed() > LATE) {
            if Instant::now() >= self.until || self.face.stop.is_cancelled() {
                return None;
            }
            match self.there().await {
                Ok(Some(events)) => return Some(events),
                Ok(None) => {}
                Err(problem) => {
                    tracing::debug!(?problem, "events of a document end early");
                    return Some(self.end());
                }
            }
        }
        let face = self.face.clone();
        loop {
            let watch = self.watch.as_mut()?;
            let waited = tokio::select! {
                waited = watch.wait_async() => waited,
                () = tokio::time::sleep(ALIVE) => return Some(self.returning(Bytes::from_static(b":\n\n"))),
                () = tokio::time::sleep_until(self.until) => return None,
                () = face.stop.cancelled() => return None,
            };
            let event = match waited {
                // The memory comes before the event: many followers get the same one at once.
                Ok(len) => match face.limits.replies.take(len).await {
                    Ok(share) => watch.try_next().map(|event| (share, event)),
                    Err(_) => return Some(self.end()),
                },
                Err(error) => Err(error),
            };
            match event {
                Ok((mut share, Some(event))) => {
                    let line = line(&event);
                    drop(event);
                    if face.limits.replies.grow(&mut share, line.len()).await.is_err() {
                        return Some(self.end());
                    }
                    return Some(self.returning(hold(line.into(), Some(share))));
                }
                // A snapshot is no event.
                Ok((_, None)) => {}
                Err(error) => {
                    tracing::debug!(%error, "events of a document end early");
                    return Some(self.end());
                }
            }
        }
    }

    /// Ends the reply early. What has failed may fail again for a while, so the client comes later.
    fn end(&mut self) -> Bytes {
        self.watch = None;
        Bytes::from_static(LATER.as_bytes())
    }

    /// Notes that the connection gets bytes that end all events that are there.
    fn returning(&mut self, bytes: Bytes) -> Bytes {
        self.returned = Some(Instant::now());
        bytes
    }

    /// Returns the events that are there, up to a chunk, if there are any: they may be in files,
    /// which another thread reads.
    async fn there(&mut self) -> Result<Option<Bytes>, Problem> {
        let Some(mut watch) = self.watch.take() else { return Ok(None) };
        let chunk = self.face.config.chunk;
        let share = self.face.limits.replies.take(chunk).await?;
        // The share goes with the work, which goes on where the client leaves.
        let work = move |_: &Face| {
            let mut events = String::new();
            while events.len() < chunk
                && let Some(event) = watch.try_next()?
            {
                events.push_str(&line(&event));
            }
            Ok((watch, events, share))
        };
        let (watch, events, mut share) = self.face.blocking(&self.face.reads, work).await?;
        self.watch = Some(watch);
        self.face.limits.replies.grow(&mut share, events.len()).await?;
        Ok((!events.is_empty()).then(|| hold(events.into(), Some(share))))
    }
}

/// Returns an event as the lines of a reply. Its id is the version from which a client goes on.
/// JSON has no line ends.
fn line(event: &DocumentEvent) -> String {
    let (id, name, data) = match event {
        Event::Update(update) => {
            (update.version, "update", text(&Shown::new(update, (&update.change).into())).get().to_owned())
        }
        Event::Created { version, state, author } => {
            let author = String::from_utf8_lossy(author);
            let data = json!({"version": version, "author": author, "state": state.value()});
            (*version, "created", data.to_string())
        }
        Event::Missed { from, to } => (*to, "missed", json!({"from": from, "to": to}).to_string()),
        // A client that goes on after the deletion has no document.
        _ => (0, "deleted", "{}".to_owned()),
    };
    let mut line = String::with_capacity(data.len() + 40);
    _ = write!(line, "id: {id}\nevent: {name}\ndata: {data}\n\n");
    line
}

#[cfg(test)]
mod tests {
    use brooklet::Store;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::http::Config;
    use crate::http::limits::Limits;

    /// An event takes more memory than its text, and many followers may wait for memory at once.
    #[tokio::test]
    async fn a_follower_waits_for_memory_before_it_decodes_an_event() {
        let store = Store::in_memory(1).unwrap();
        let config = Config::default();
        let limits = Limits::new(&config);
        let face = Face::new(&store, &config, limits, None, CancellationToken::new()).unwrap();
        face.documents.create("doc", "1", &json!({}).into()).unwrap();
        let mut follower = Follower {
            watch: Some(face.documents.watch("doc", 1).unwrap()),
            begin: Vec::new(),
            returned: Some(Instant::now()),
            until: Instant::now() + Duration::from_secs(60),
            _place: face.limits.place().unwrap(),
            face: face.clone(),
        };
        let all = face.limits.replies.take(face.limits.replies.bytes()).await.unwrap();
        let change = JsonChange::merge(json!({"a": "x".repeat(10_000)}));
        face.documents.patch("doc", 1, "2", &change).unwrap();
        let next = tokio::time::timeout(Duration::from_millis(50), follower.next()).await;
        assert!(next.is_err(), "{next:?}");
        assert_eq!(follower.watch.as_ref().unwrap().version(), Some(1));
        drop(all);
        let next = follower.next().await.unwrap();
        assert!(next.starts_with(b"id: 2\nevent: update\n"));
    }

    /// In an earlier state each client connected again ten times in a second.
    #[tokio::test]
    async fn followers_of_a_store_that_has_stopped_come_later() {
        let store = Store::in_memory(1).unwrap();
        let config = Config::default();
        let limits = Limits::new(&config);
        let face = Face::new(&store, &config, limits, None, CancellationToken::new()).unwrap();
        face.documents.create("doc", "1", &json!({}).into()).unwrap();
        let mut follower = Follower {
            watch: Some(face.documents.watch("doc", 1).unwrap()),
            begin: Vec::new(),
            returned: Some(Instant::now()),
            until: Instant::now() + Duration::from_secs(60),
            _place: face.limits.place().unwrap(),
            face: face.clone(),
        };
        store.close().unwrap();
        assert_eq!(follower.next().await, Some(Bytes::from_static(LATER.as_bytes())));
        assert_eq!(follower.next().await, None);
    }

    /// In an earlier state the status was 503, after which a browser asks no more.
    #[tokio::test]
    async fn events_without_memory_come_later() {
        let store = Store::in_memory(1).unwrap();
        let config = Config::default();
        let limits = Limits::new(&config);
        let face = Face::new(&store, &config, limits, None, CancellationToken::new()).unwrap();
        face.documents.create("doc", "1", &json!({}).into()).unwrap();
        let events = async || {
            let request = axum::http::Request::get("/v1/documents/doc").header("accept", "text/event-stream");
            face.answer(request.body(Body::empty()).unwrap()).await.unwrap()
        };
        assert_eq!(events().await.status().as_u16(), 200);
        let all = face.limits.replies.take(face.limits.replies.bytes()).await.unwrap();
        // A browser gives up after a refusal.
        let later = events().await;
        assert_eq!(later.status().as_u16(), 200);
        assert_eq!(axum::body::to_bytes(later.into_body(), 1000).await.unwrap(), LATER);
        drop(all);
    }

    /// In an earlier state the status was 404, after which a browser asks no more.
    #[tokio::test]
    async fn a_client_that_a_store_went_back_behind_begins_anew() {
        let store = Store::in_memory(1).unwrap();
        let config = Config { events: Duration::ZERO, ..Config::default() };
        let limits = Limits::new(&config);
        let face = Face::new(&store, &config, limits, None, CancellationToken::new()).unwrap();
        face.documents.create("doc", "1", &json!({}).into()).unwrap();
        let follow = async |query: &str, header: &str, value: &str| {
            let request = axum::http::Request::get(format!("/v1/documents/doc{query}"));
            let request = request.header("accept", "text/event-stream").header(header, value);
            face.answer(request.body(Body::empty()).unwrap()).await
        };
        // It had an event with this id.
        let response = follow("", "last-event-id", "7").await.unwrap();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let events = String::from_utf8(body.to_vec()).unwrap();
        let begin = format!("{RETRY}id: 0\nevent: deleted\ndata: {{}}\n\nid: 1\nevent: created\n");
        assert!(events.starts_with(&begin), "{events}");
        // Nobody had this version.
        let problem = follow("?since=7", "accept", "*/*").await.unwrap_err();
        assert_eq!(problem.kind(), Kind::NoSuchVersion);
    }
}
