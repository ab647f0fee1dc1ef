//! PUT: creates a stream, or a fork of a stream; or confirms that the same stream exists.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header;
use axum::http::request::Parts;
use axum::http::{Response, StatusCode};
use brooklet::Ticket;
use bytes::Bytes;

use super::draft::Draft;
use super::headers::{self as names, Expiry, ForkFrom};
use super::metadata::{Change, Closing, Fork, Form, Identity, Metadata};
use super::name::Name;
use super::offset::{Offset, Position};
use super::remove::Why;
use super::stream::{Stream, Written};
use super::{Streams, time};
use crate::http::OverTls;
use crate::http::reply::{Refusal, expect_whole, set};

const DEFAULT_TYPE: &str = "application/octet-stream";
/// Forks of forks: readers go through all of them.
const MAX_DEPTH: u32 = 64;

/// What is asked for.
struct Request {
    content_type: Option<String>,
    expiry: Option<Expiry>,
    closes: bool,
    fork: Option<ForkFrom>,
    source: Option<Name>,
    body: Bytes,
}

/// What there is now.
struct Made {
    is_new: bool,
    version: u64,
    identity: Arc<Identity>,
    end: Offset,
    closed: bool,
}

/// Where a fork goes on from its source.
struct Branch {
    fork: Fork,
    /// The beginning of the message that it was cut within.
    begun: Option<Bytes>,
}

impl Streams {
    pub async fn put(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        head: &Parts,
        body: Bytes,
    ) -> Result<Response<Body>, Refusal> {
        let headers = &head.headers;
        expect_whole(headers)?;
        names::expect_no_encoding(headers)?;
        names::expect_no_condition(headers)?;
        let fork = names::fork_from(headers)?;
        let source = fork.as_ref().map(|fork| Name::of_path(&fork.path, &self.config.prefix)).transpose()?;
        let request = Request {
            content_type: names::content_type(headers)?.map(Into::into),
            expiry: names::expiry(headers)?,
            closes: names::closes(headers),
            fork,
            source: source.clone(),
            body,
        };
        let made = match source {
            Some(source) if source != stream.name => {
                let source = self.open(&source, false).await?;
                let from = source.clone();
                let made = self.write(stream, move |streams, stream| {
                    streams.clear(stream)?;
                    streams.fork(stream, &from, &request)
                });
                match made.await {
                    Ok(made) => made,
                    Err(refusal) => return Err(source.once_durable(refusal).await),
                }
            }
            _ => {
                let made = self.write(stream, move |streams, stream| {
                    streams.clear(stream)?;
                    streams.create(stream, &request)
                });
                made.await?
            }
        };
        stream.settled(made.version).await?;
        Ok(made.reply(&url(head)))
    }

    /// Removes a stream that has expired since it was opened, so that a new one is made. The
    /// request may have waited for a while.
    fn clear(&self, stream: &Arc<Stream>) -> Result<(), Refusal> {
        let there = stream.turn(&self.store)?.metadata.as_ref().map(|metadata| metadata.identity.clone());
        if there.is_some_and(|identity| stream.is_expired(&identity)) {
            // The version of the new stream is later than those of the removal.
            self.remove(stream, Why::Expired)?;
        }
        Ok(())
    }

    fn create(&self, stream: &Arc<Stream>, request: &Request) -> Result<Made, Refusal> {
        let mut written = stream.turn(&self.store)?;
        if let Some(metadata) = existing(stream, &written)? {
            return confirm(stream, &written, metadata, request);
        }
        if let Some(source) = &request.source {
            // It would be a fork of itself.
            return Err(Refusal::unknown(source));
        }
        let content_type = request.content_type.as_deref().unwrap_or(DEFAULT_TYPE);
        let identity = identity(content_type, request.expiry.unwrap_or(Expiry::Never), None);
        let messages = self.split(identity.form(), &request.body)?;
        let mut draft = Draft::default();
        let metadata = prepare(stream, &written, identity, request.closes, &messages, &mut draft)?;
        let ticket = draft.commit(&self.store).inspect_err(|refusal| written.invalidate(refusal))?;
        self.note(&stream.name, &messages);
        Ok(finish(stream, &mut written, metadata, &messages, &ticket))
    }

    fn fork(&self, stream: &Arc<Stream>, source: &Arc<Stream>, request: &Request) -> Result<Made, Refusal> {
        // Only who holds this takes a second turn while in one.
        let _family = self.family.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut written = stream.turn(&self.store)?;
        let asked = request.fork.as_ref().and_then(|fork| fork.offset);
        if let Some(metadata) = existing(stream, &written)? {
            if let Some(position) = asked
                && !self.has(&metadata.identity, position)?
            {
                return Err(not_of(source, position));
            }
            return confirm(stream, &written, metadata, request);
        }
        let mut source_written = source.turn(&self.store)?;
        let origin = source.alive(&source_written).map_err(|refusal| match refusal.status {
            StatusCode::GONE => {
                Refusal::conflict(format!("stream {} was deleted, and cannot be forked", source.name))
            }
            _ => refusal,
        })?;
        let of = &origin.identity.content_type;
        if let Some(asked) = request.content_type.as_ref().filter(|asked| !origin.identity.is_of_type(asked))
        {
            let why = format!("the source is of type {of}, not {asked}: send its type, or none");
            return Err(Refusal::conflict(why));
        }
        let Branch { fork, begun } = self.branch(source, &source_written, origin, request)?;
        let expiry = request.expiry.unwrap_or(origin.identity.expiry());
        let identity = identity(of, expiry, Some(fork));
        let mut messages = self.split(identity.form(), &request.body)?;
        begun.into_iter().for_each(|begun| messages.insert(0, begun));
        let change = Change { forks: Some(origin.forks.saturating_add(1)), ..Change::default() };
        let mut draft = Draft::default();
        source_written.draft_change(&source.name, &change, &mut draft);
        let metadata = prepare(stream, &written, identity, request.closes, &messages, &mut draft)?;
        let ticket = draft.commit(&self.store).inspect_err(|refusal| {
            written.invalidate(refusal);
            source_written.invalidate(refusal);
        })?;
        source_written.changed(&change);
        source.announce(&mut source_written, &ticket);
        self.note(&stream.name, &messages);
        Ok(finish(stream, &mut written, metadata, &messages, &ticket))
    }

    /// Works out where a fork begins.
    fn branch(
        &self,
        source: &Arc<Stream>,
        written: &Written,
        origin: &Metadata,
        request: &Request,
    ) -> Result<Branch, Refusal> {
        let end = written.end().0;
        let asked = request.fork.as_ref();
        let (offset, sub) = asked.map_or((None, 0), |fork| (fork.offset, fork.sub));
        let at = offset.map_or(end, |position| position.offset.0);
        let beyond = || {
            let why = format!("the fork would begin past the end of stream {}, {}", source.name, Offset(end));
            Refusal::invalid(format!("{why}: begin the fork before the end"))
        };
        if at > end {
            return Err(beyond());
        }
        if let Some(position) = offset
            && !self.has(&origin.identity, position)?
        {
            return Err(not_of(source, position));
        }
        let depth = origin.identity.depth().saturating_add(1);
        if depth > MAX_DEPTH {
            let why = format!(
                "stream {} is {MAX_DEPTH} forks deep, the maximum: fork one of its sources",
                source.name
            );
            return Err(Refusal::invalid(why));
        }
        let fork = |base| Fork { source: source.name.as_str().into(), base, offset: at, sub, depth };
        if origin.identity.form() == Form::Json || sub == 0 {
            let base = at.checked_add(sub).filter(|base| *base <= end).ok_or_else(beyond)?;
            return Ok(Branch { fork: fork(base), begun: None });
        }
        if at == end {
            return Err(beyond());
        }
        // Only what is durable can be read.
        self.store.flush()?;
        let message = self.message(&source.name, &origin.identity, at)?;
        let cut = usize::try_from(sub).ok().filter(|cut| *cut <= message.len()).ok_or_else(|| {
            let len = message.len();
            Refusal::invalid(format!(
                "Stream-Fork-Sub-Offset {sub} is past the {len} bytes that follow the offset"
            ))
        })?;
        match cut == message.len() {
            true => Ok(Branch { fork: fork(at + 1), begun: None }),
            false => Ok(Branch { fork: fork(at), begun: Some(message.slice(..cut)) }),
        }
    }
}

/// The fork is to begin at an offset of another stream, which had the name of the source before.
fn not_of(source: &Stream, position: Position) -> Refusal {
    let why = format!("{position} is an offset of another stream, and not of {}", source.name);
    Refusal::conflict(format!("{why}: send an offset of the source"))
}

/// Drafts a new stream with its first messages.
fn prepare(
    stream: &Stream,
    written: &Written,
    identity: Identity,
    closes: bool,
    messages: &[Bytes],
    draft: &mut Draft,
) -> Result<Metadata, Refusal> {
    let data = stream.name.data();
    if written.own() > 0 {
        let why =
            format!("log {data} exists already, and is not a stream: delete it, or choose another name");
        return Err(Refusal::conflict(why));
    }
    let now = time::now();
    stream.begin(now);
    let metadata = Metadata {
        due: stream.expires(&identity).map(super::sweep::minute_after),
        identity: Arc::new(identity),
        touched: now,
        closed: closes.then(|| Closing::by(None)),
        seq: None,
        producers: BTreeMap::new(),
        forks: 0,
        gone: false,
    };
    written.draft_new(&stream.name, &metadata, draft);
    let data: Arc<str> = data.into();
    messages.iter().for_each(|message| draft.append(data.clone(), message.clone()));
    Ok(metadata)
}

/// What was drafted is committed.
fn finish(
    stream: &Arc<Stream>,
    written: &mut Written,
    metadata: Metadata,
    messages: &[Bytes],
    ticket: &Ticket,
) -> Made {
    let (identity, closed) = (metadata.identity.clone(), metadata.closed.is_some());
    written.committed(metadata);
    written.appended(messages, ticket);
    let version = stream.announce(written, ticket);
    Made { is_new: true, version, identity, end: written.end(), closed }
}

/// Where the client finds the stream: as it wrote it, and by the scheme that it used, here or as a
/// proxy before the server reports. Of several proxies, the first one knows.
fn url(head: &Parts) -> String {
    let path = head.uri.path();
    let is_secure = match head.headers.get("x-forwarded-proto") {
        Some(schemes) => {
            let first = schemes.as_bytes().split(|byte| *byte == b',').next().unwrap_or_default();
            first.trim_ascii().eq_ignore_ascii_case(b"https")
        }
        None => head.extensions.get::<OverTls>().is_some(),
    };
    let scheme = if is_secure { "https" } else { "http" };
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    host.map_or(path.into(), |host| format!("{scheme}://{host}{path}"))
}

fn identity(content_type: &str, expiry: Expiry, fork: Option<Fork>) -> Identity {
    let (ttl, expires) = match expiry {
        Expiry::Never => (None, None),
        Expiry::Idle(seconds) => (Some(seconds), None),
        Expiry::At(at) => (None, Some(at)),
    };
    Identity { id: time::nanos(), content_type: content_type.into(), ttl, expires, fork }
}

/// The stream that is there already, if there is one.
fn existing<'a>(stream: &Stream, written: &'a Written) -> Result<Option<&'a Metadata>, Refusal> {
    match &written.metadata {
        None => Ok(None),
        Some(metadata) if metadata.gone => Err(Refusal::conflict(format!(
            "stream {} was deleted, and is kept for its forks: choose another name, or delete the forks first",
            stream.name
        ))),
        Some(metadata) => Ok(Some(metadata)),
    }
}

/// Makes sure that a stream that is there is what was asked for.
fn confirm(
    stream: &Stream,
    written: &Written,
    metadata: &Metadata,
    request: &Request,
) -> Result<Made, Refusal> {
    let identity = &metadata.identity;
    let is_fork = request.fork.is_some();
    let asked_type = request.content_type.as_deref().or((!is_fork).then_some(DEFAULT_TYPE));
    let asked_expiry = request.expiry.or((!is_fork).then_some(Expiry::Never));
    let same_fork = match (&identity.fork, &request.fork) {
        (None, None) => true,
        (Some(fork), Some(asked)) => {
            let is_there = |at: Position| (at.offset.0, asked.sub) == (fork.offset, fork.sub);
            request.source.as_ref().is_some_and(|source| source.as_str() == fork.source)
                && asked.offset.is_none_or(is_there)
        }
        _ => false,
    };
    let difference = if asked_type.is_some_and(|asked| !identity.is_of_type(asked)) {
        format!("its type is {}", identity.content_type)
    } else if asked_expiry.is_some_and(|asked| asked != identity.expiry()) {
        "its expiry differs".into()
    } else if request.closes != metadata.closed.is_some() {
        format!("it is {}", if request.closes { "open" } else { "closed" })
    } else if !same_fork {
        "its fork differs".into()
    } else {
        let (end, closed) = (written.end(), request.closes);
        return Ok(Made {
            is_new: false,
            version: written.version(),
            identity: identity.clone(),
            end,
            closed,
        });
    };
    let name = &stream.name;
    Err(Refusal::conflict(format!("stream {name} exists already, and {difference}: choose another name")))
}

impl Made {
    fn reply(&self, url: &str) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = if self.is_new { StatusCode::CREATED } else { StatusCode::OK };
        let headers = response.headers_mut();
        set(headers, header::CONTENT_TYPE, &self.identity.content_type);
        set(headers, names::NEXT_OFFSET, self.end.of(self.identity.id));
        if self.is_new {
            set(headers, header::LOCATION, url);
        }
        if self.closed {
            set(headers, names::CLOSED, "true");
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Config;
    use crate::http::limits::Limits;

    /// In the old state the reply was that there is such a stream, and the next request found none.
    #[tokio::test]
    async fn a_stream_that_expires_while_a_client_puts_it_is_made_anew() {
        let config = Config::default();
        let limits = Limits::new(&config);
        let store = brooklet::Store::in_memory(1).unwrap();
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let stream = streams.open(&Name::new("s").unwrap(), false).await.unwrap();
        let mut request = axum::http::Request::new(());
        request.headers_mut().insert(names::TTL, "60".parse().unwrap());
        let (parts, ()) = request.into_parts();
        let put = async || {
            let response = streams.put(&stream, &parts, Bytes::from_static(b"x")).await.unwrap();
            (response.status(), stream.seen().identity.unwrap().id)
        };
        let (status, first) = put().await;
        assert_eq!(status, StatusCode::CREATED);
        assert_eq!(put().await, (StatusCode::OK, first));
        // It was opened before, and was used last in 1970.
        stream.begin(0);
        let (status, second) = put().await;
        assert_eq!(status, StatusCode::CREATED);
        assert_ne!(first, second);
        assert_eq!(put().await, (StatusCode::OK, second));
        assert_eq!(stream.seen().end.0, 1);
    }
}
