//! POST: appends messages, and closes a stream. A repeated batch of a producer is appended once:
//! the producer's progress is committed with the messages.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::HeaderMap;
use axum::http::{Response, StatusCode};
use bytes::Bytes;

use super::draft::Draft;
use super::headers::{self as names, Batch};
use super::json;
use super::metadata::{Change, Closing, Form, Metadata, Producer};
use super::offset::Position;
use super::stream::{Stream, Written};
use super::{Streams, time};
use crate::http::reply::{Refusal, set};

/// What is asked for.
struct Request {
    content_type: Option<String>,
    closes: bool,
    batch: Option<Batch>,
    seq: Option<String>,
    body: Bytes,
}

/// What was done.
#[derive(Debug)]
struct Done {
    /// The version that must be durable before anyone is told.
    version: u64,
    end: Position,
    closed: bool,
    /// The producer's epoch, and how far it has come in that.
    producer: Option<(u64, u64)>,
    /// It was asked for before, or asked for nothing but to close.
    is_quiet: bool,
}

impl Streams {
    pub async fn post(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Body>, Refusal> {
        names::expect_no_encoding(headers)?;
        names::expect_no_condition(headers)?;
        let request = Request {
            // Who only closes need not name a type, and may name any.
            content_type: if body.is_empty() { None } else { names::content_type(headers)?.map(Into::into) },
            closes: names::closes(headers),
            batch: names::batch(headers)?,
            seq: names::stream_seq(headers)?.map(Into::into),
            body,
        };
        if request.body.is_empty() && !request.closes {
            return Err(Refusal::invalid(
                "the body is empty: send what to append, or Stream-Closed: true to close the stream",
            ));
        }
        if !request.body.is_empty() && request.content_type.is_none() {
            return Err(Refusal::invalid("Content-Type is missing: send the type of the stream"));
        }
        let done = self.write(stream, move |streams, stream| streams.append(stream, &request)).await?;
        stream.settled(done.version).await?;
        Ok(done.reply())
    }

    fn append(&self, stream: &Arc<Stream>, request: &Request) -> Result<Done, Refusal> {
        let mut written = stream.turn(&self.store)?;
        let metadata = stream.alive(&written)?;
        if let Some(closing) = &metadata.closed {
            return already_closed(stream, &written, closing, request);
        }
        let messages = self.messages(metadata, request)?;
        let now = time::now();
        let mut change = Change::default();
        if let Some(batch) = &request.batch {
            match next(metadata.producers.get(&batch.id), batch, now)? {
                Some(producer) => change.producer = Some((batch.id.clone(), producer)),
                None => return Ok(done(&written, metadata.producers.get(&batch.id), true)),
            }
        }
        if let Some(seq) = &request.seq {
            if metadata.seq.as_ref().is_some_and(|last| last >= seq) {
                let last = metadata.seq.as_deref().unwrap_or_default();
                let why = format!("Stream-Seq {seq:?} is not after the last one, {last:?}: send a later one");
                return Err(Refusal::conflict(why));
            }
            change.seq = Some(seq.clone());
        }
        change.closed = request.closes.then(|| Closing::by(request.batch.as_ref()));
        change.touched = stream.touch(&metadata.identity);
        let producer = change.producer.as_ref().map(|(_, producer)| *producer);
        self.commit(stream, &mut written, &change, &messages)?;
        Ok(done(&written, producer.as_ref(), messages.is_empty()))
    }

    /// Commits messages and a change of a stream as one; readers see them once they are durable.
    pub fn commit(
        &self,
        stream: &Arc<Stream>,
        written: &mut Written,
        change: &Change,
        messages: &[Bytes],
    ) -> Result<(), Refusal> {
        let mut draft = Draft::default();
        written.draft_change(&stream.name, change, &mut draft);
        let data: Arc<str> = stream.name.data().into();
        messages.iter().for_each(|message| draft.append(data.clone(), message.clone()));
        let ticket = draft.commit(&self.store).inspect_err(|refusal| {
            written.invalidate(refusal);
            change.touched.inspect(|touched| stream.not_noted(*touched));
        })?;
        written.changed(change);
        written.appended(messages, &ticket);
        self.note(&stream.name, messages);
        stream.announce(written, &ticket);
        Ok(())
    }

    /// The messages of a body, which must be of the stream's type.
    fn messages(&self, metadata: &Metadata, request: &Request) -> Result<Vec<Bytes>, Refusal> {
        if request.body.is_empty() {
            return Ok(Vec::new());
        }
        let content_type = request.content_type.as_deref().unwrap_or_default();
        if !metadata.identity.is_of_type(content_type) {
            let of = &metadata.identity.content_type;
            let why = format!("the stream is of type {of}, not {content_type}: send data of its type");
            return Err(Refusal::conflict(why));
        }
        let messages = self.split(metadata.identity.form(), &request.body)?;
        if messages.is_empty() {
            return Err(Refusal::invalid("the array is empty: send at least one message"));
        }
        Ok(messages)
    }

    /// The messages that a body makes in a stream of this form.
    pub fn split(&self, form: Form, body: &Bytes) -> Result<Vec<Bytes>, Refusal> {
        match form {
            _ if body.is_empty() => Ok(Vec::new()),
            Form::Json => json::messages(body, self.config.max_messages),
            Form::Text | Form::Bytes => Ok(vec![body.clone()]),
        }
    }
}

/// A closed stream takes only what closed it, again, or to be closed once more.
fn already_closed(
    stream: &Stream,
    written: &Written,
    closing: &Closing,
    request: &Request,
) -> Result<Done, Refusal> {
    let batch = request.batch.as_ref().filter(|batch| closing.is_by(batch));
    let closes_only = request.closes && request.body.is_empty();
    if batch.is_none() && !closes_only {
        return Err(Refusal::closed(&stream.name, written.position()));
    }
    let producer = batch.map(|batch| Producer { epoch: batch.epoch, seq: batch.seq, at: 0 });
    Ok(done(written, producer.as_ref(), true))
}

/// How far a producer has come with this batch; none, if it had come there before.
fn next(known: Option<&Producer>, batch: &Batch, now: u64) -> Result<Option<Producer>, Refusal> {
    let Batch { id, epoch, seq } = batch;
    let accepted = Producer { epoch: *epoch, seq: *seq, at: now };
    let gap = |expected: u64| {
        let why = format!(
            "batch {seq} of producer {id} arrived before batch {expected}: send batch {expected} first"
        );
        Err(Refusal::conflict(why)
            .with(names::PRODUCER_EXPECTED_SEQ, expected)
            .with(names::PRODUCER_RECEIVED_SEQ, seq))
    };
    match known {
        None if *seq > 0 => gap(0),
        Some(known) if *epoch < known.epoch => {
            let current = known.epoch;
            let why = format!(
                "producer {id} is in epoch {current}, and this batch is of epoch {epoch}: begin a later epoch, if this producer is the current one"
            );
            Err(Refusal::new(StatusCode::FORBIDDEN, why).with(names::PRODUCER_EPOCH, current))
        }
        Some(known) if *epoch > known.epoch && *seq > 0 => Err(Refusal::invalid(format!(
            "epoch {epoch} of producer {id} begins with batch {seq}: begin with batch 0"
        ))),
        Some(known) if *epoch == known.epoch && *seq <= known.seq => Ok(None),
        Some(known) if *epoch == known.epoch && *seq - known.seq > 1 => gap(known.seq + 1),
        _ => Ok(Some(accepted)),
    }
}

fn done(written: &Written, producer: Option<&Producer>, is_quiet: bool) -> Done {
    let closed = written.metadata.as_ref().is_some_and(|metadata| metadata.closed.is_some());
    let producer = producer.map(|producer| (producer.epoch, producer.seq));
    Done { version: written.version(), end: written.position(), closed, producer, is_quiet }
}

impl Done {
    fn reply(&self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        // What is new of a producer is told from what is not by the status.
        let is_news = self.producer.is_some() && !self.is_quiet;
        *response.status_mut() = if is_news { StatusCode::OK } else { StatusCode::NO_CONTENT };
        let headers = response.headers_mut();
        set(headers, names::NEXT_OFFSET, self.end);
        if self.closed {
            set(headers, names::CLOSED, "true");
        }
        if let Some((epoch, seq)) = self.producer {
            set(headers, names::PRODUCER_EPOCH, epoch);
            set(headers, names::PRODUCER_SEQ, seq);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use brooklet::io::{Fault, MemVolume};
    use brooklet::{Options, Store};

    use super::*;
    use crate::http::Config;
    use crate::http::limits::Limits;
    use crate::http::streams::name::Name;

    /// In the old state a client whose reply was lost, and which sent its messages again, was told
    /// that they are there already, before they were durable: a power cut took them all the same.
    #[tokio::test]
    async fn a_refusal_waits_until_what_it_tells_of_is_durable() {
        let disk = MemVolume::new(1);
        let options = Options::new().ring_size(4 << 20).max_payload(512 << 10);
        let store: Store = options.create_on(Arc::new(disk.clone())).unwrap();
        let config = Config::default();
        let limits = Limits::new(&config);
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let stream = streams.open(&Name::new("s").unwrap(), false).await.unwrap();
        let mut head = axum::http::Request::new(());
        for (name, value) in [("content-type", "text/plain"), ("stream-seq", "1")] {
            head.headers_mut().insert(name, value.parse().unwrap());
        }
        let (parts, ()) = head.into_parts();
        streams.put(&stream, &parts, Bytes::new()).await.unwrap();
        disk.fail(Fault::ErrorAfter { operations: 0, kind: ErrorKind::Other, sticky: true });
        let request = Request {
            content_type: Some("text/plain".into()),
            closes: true,
            batch: None,
            seq: Some("1".into()),
            body: Bytes::from_static(b"x"),
        };
        // It is taken, and does not become durable.
        streams.append(&stream, &request).unwrap();
        let refused = streams.post(&stream, &parts.headers, Bytes::from_static(b"x")).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{refused:?}");
        // So does the refusal of a fork wait for what it tells of the source.
        let fork = streams.open(&Name::new("f").unwrap(), false).await.unwrap();
        let mut head = axum::http::Request::new(());
        let beyond = "0000000000000009_0000000000000000";
        for (name, value) in [("stream-forked-from", "/v1/stream/s"), ("stream-fork-offset", beyond)] {
            head.headers_mut().insert(name, value.parse().unwrap());
        }
        let refused = streams.put(&fork, &head.into_parts().0, Bytes::new()).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{refused:?}");
    }

    #[test]
    fn a_producer_goes_on_batch_by_batch() {
        let batch = |epoch, seq| Batch { id: "p".into(), epoch, seq };
        let at = |epoch, seq| Producer { epoch, seq, at: 9 };
        let known = at(3, 5);
        let status = |known, batch| next(known, &batch, 9).unwrap_err().status.as_u16();
        assert_eq!(next(None, &batch(4, 0), 9).unwrap(), Some(at(4, 0)));
        assert_eq!(status(None, batch(0, 1)), 409);
        assert_eq!(next(Some(&known), &batch(3, 6), 9).unwrap(), Some(at(3, 6)));
        assert_eq!(next(Some(&known), &batch(3, 5), 9).unwrap(), None);
        assert_eq!(next(Some(&known), &batch(3, 0), 9).unwrap(), None);
        assert_eq!(status(Some(&known), batch(3, 7)), 409);
        assert_eq!(status(Some(&known), batch(2, 6)), 403);
        assert_eq!(status(Some(&known), batch(4, 1)), 400);
        assert_eq!(next(Some(&known), &batch(4, 0), 9).unwrap(), Some(at(4, 0)));
    }
}
