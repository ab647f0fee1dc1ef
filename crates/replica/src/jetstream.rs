//! The journal in NATS JetStream: a stream keeps the log of a store, and its servers agree on each
//! object.
//!
//! An object is a message, under a subject of its own, and is published on the condition that the
//! subject has none. So the leader of the stream lets one creator win, and its servers agree on the
//! winner before it hears of it.
//!
//! ```text
//! brooklet.STREAM.<kind>.<numbers>.0  an object, or its first part; header Brooklet-Parts: their number
//! brooklet.STREAM.<kind>.<numbers>.N  part N of an object that is larger than a message may be
//! brooklet.STREAM.look                proof that an object was missing
//! ```
//!
//! The parts of an object are one atomic batch: all are there, or none is. A removal purges all of
//! them at once. The subject is free then, as a name in a bucket is. So the protocol treats both
//! alike: a late request of an owner may create an object again that was trimmed, below the fence
//! of its epoch.

mod address;
#[cfg(test)]
mod away;
mod stream;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{GetStreamErrorKind, PublishErrorKind};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, ConnectErrorKind, HeaderMap};
use brooklet::io::system_seed;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

use crate::cutter::Cuts;
use crate::error::Error;
use crate::journal::{Created, Journal, Key, time_for};
use address::Address;

/// Time after which a request counts as unanswered. A leader that was lost answers none.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a message that its headers may need.
const HEADERS: usize = 1024;
/// Most bytes of a part, where the servers would take more.
const PART: usize = 1 << 20;
/// Most parts of an object, as the servers limit a batch.
const PARTS: usize = 1000;
/// Number of looks at an object, of which each finds another request under way.
const LOOKS: u32 = 20;
/// Pause between two looks at an object that is under way.
const BLINK: Duration = Duration::from_millis(1);
/// Pause between two looks whether there is a connection again.
const AWAY: Duration = Duration::from_millis(10);

const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
const EXPECTED_OF: &str = "Nats-Expected-Last-Subject-Sequence-Subject";
const PART_COUNT: &str = "Brooklet-Parts";

/// A journal in a stream of NATS JetStream; see [`Journal`]. The handle is cheap to clone.
#[derive(Clone)]
pub struct JetStream {
    shared: Arc<Shared>,
    patience: Duration,
}

struct Shared {
    address: Address,
    /// The connection lives here: the runtimes of callers come and go. `Some` until this is
    /// dropped.
    runtime: Option<Runtime>,
    ready: OnceCell<Ready>,
}

/// A connection, and the stream.
struct Ready {
    client: Client,
    context: Context,
    stream: Stream<()>,
}

impl JetStream {
    /// Opens the journal that an address names:
    /// `nats://[USER:PASSWORD@|TOKEN@]HOST:PORT[,HOST:PORT…]/STREAM[?SETTING=VALUE&…]`. `tls://`
    /// asks for TLS. The settings are `replicas`, the copies of a new stream, 3 by default, and
    /// `ca`, a file with root certificates. Makes no request: the first request connects, and makes
    /// the stream if it is missing.
    ///
    /// # Errors
    /// [`Error::Address`], [`Error::Thread`].
    pub fn open(address: &str) -> Result<Self, Error> {
        let address = Address::parse(address)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("brooklet-nats")
            .enable_all()
            .build()
            .map_err(Error::Thread)?;
        let shared = Shared { address, runtime: Some(runtime), ready: OnceCell::new() };
        Ok(Self { shared: Arc::new(shared), patience: PATIENCE })
    }

    /// Returns whether a text is meant as an address of [`open`](Self::open).
    pub fn is_address(text: &str) -> bool {
        Address::is_one(text)
    }

    /// Sets the time after which a request counts as unanswered; by default 2 seconds.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Returns the cuts that suit a stream: a message costs no money, so that each is sent sooner
    /// than an object of a bucket.
    pub fn cuts() -> Cuts {
        Cuts { time: Duration::from_millis(1), ..Cuts::default() }
    }

    async fn ready(&self) -> Result<&Ready, Error> {
        let connect = async || {
            let (address, runtime) = (self.shared.address.clone(), self.shared.runtime.as_ref());
            let runtime = runtime.expect("it is there until this is dropped");
            runtime.spawn(connect(address, self.patience)).await.map_err(|_| Error::TaskEnded)?
        };
        self.shared.ready.get_or_try_init(connect).await
    }

    fn subject(&self, name: &str) -> String {
        format!("{}.{}", stream::prefix(&self.shared.address.stream), name.replace('/', "."))
    }

    /// Returns the subject of an object's part.
    fn part(&self, key: Key, part: usize) -> String {
        self.subject(&format!("{key}/{part}"))
    }

    /// Waits until there is a connection. Without one, the library keeps each request, with its
    /// bytes and also after the caller gave it up, and sends all of them at the end.
    async fn connected(&self) {
        let is_away = || {
            let ready = self.shared.ready.get();
            ready.is_some_and(|ready| ready.client.connection_state() != State::Connected)
        };
        while is_away() {
            sleep(AWAY).await;
        }
    }

    async fn timely<T, E: fmt::Display>(
        &self,
        doing: &str,
        key: Key,
        bytes: usize,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Error> {
        let doing = || format!("{doing} {self}/{key}");
        let patience = self.patience + time_for(bytes as u64);
        let work = async {
            self.connected().await;
            work.await
        };
        match timeout(patience, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(why)) => Err(Error::Servers { doing: doing(), why: why.to_string() }),
            Err(_) => Err(Error::NoAnswer { doing: doing(), seconds: patience.as_secs() }),
        }
    }

    /// Publishes a message, if its condition holds. It ends an object of so many bytes.
    async fn publish(
        &self,
        key: Key,
        subject: String,
        headers: HeaderMap,
        data: Bytes,
        bytes: usize,
    ) -> Result<Created, Error> {
        let context = &self.ready().await?.context;
        let publish = async {
            match async { context.publish_with_headers(subject, headers, data).await?.await }.await {
                Ok(_) => Ok(Created::Done),
                Err(error) if is_taken(&error) => Ok(Created::Exists),
                Err(error) => Err(error),
            }
        };
        self.timely("creating", key, bytes, publish).await
    }

    /// Creates an object of several parts, in one step.
    async fn create_parts(&self, key: Key, parts: Vec<Bytes>) -> Result<Created, Error> {
        let client = &self.ready().await?.client;
        let batch = format!("{:016x}{:016x}", system_seed(), system_seed());
        let (count, bytes) = (parts.len(), parts.iter().map(Bytes::len).sum());
        let headers = |place: usize| {
            let mut headers = free();
            headers.insert("Nats-Batch-Id", batch.as_str());
            headers.insert("Nats-Batch-Sequence", (place + 1).to_string());
            headers
        };
        // The first part comes last: who finds it finds all.
        for (number, part) in parts.iter().enumerate().skip(1) {
            let subject = self.part(key, number);
            let publish = client.publish_with_headers(subject, headers(number - 1), part.clone());
            self.timely("creating", key, bytes, publish).await?;
        }
        let mut headers = headers(count - 1);
        headers.insert("Nats-Batch-Commit", "1");
        headers.insert(PART_COUNT, count.to_string());
        self.publish(key, self.part(key, 0), headers, parts[0].clone(), bytes).await
    }

    /// Reads a message of an object from the leader of the stream. So many bytes are read at once.
    async fn read_part(
        &self,
        key: Key,
        part: usize,
        bytes: usize,
    ) -> Result<Option<(HeaderMap, Bytes)>, Error> {
        let (stream, subject) = (&self.ready().await?.stream, self.part(key, part));
        let read = async {
            match stream.get_last_raw_message_by_subject(&subject).await {
                Ok(message) => Ok(Some((message.headers, message.payload))),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.timely("reading", key, bytes, read).await
    }

    /// Reads an object that is there, as the leader of the stream believes.
    async fn read_now(&self, key: Key) -> Result<Option<Bytes>, Error> {
        let Some((headers, first)) = self.read_part(key, 0, 0).await? else { return Ok(None) };
        let count = headers.get(PART_COUNT).map_or(Some(1), |count| count.as_str().parse().ok());
        let damaged = |what| Error::Damaged { object: key.to_string(), what };
        let count = count.filter(|count| (1..=PARTS).contains(count));
        let count = count.ok_or_else(|| damaged("the number of its parts is wrong"))?;
        let rest = try_join_all((1..count).map(|part| self.read_part(key, part, count * PART))).await?;
        let mut data = BytesMut::from(first);
        for part in rest {
            match part {
                Some((_, part)) => data.extend_from_slice(&part),
                // It is removed as a whole.
                None if self.read_part(key, 0, 0).await?.is_none() => return Ok(None),
                None => return Err(damaged("a part of it is missing")),
            }
        }
        Ok(Some(data.freeze()))
    }

    /// Proves that an object was missing at some moment of the call: publishes a message on the
    /// condition that it is. A leader that was cut off, and does not know it, may overlook an
    /// object; but no such message of it is accepted by the other servers. Returns `false` if the
    /// object exists, or is under way.
    async fn is_missing(&self, key: Key) -> Result<bool, Error> {
        let mut headers = free();
        headers.insert(EXPECTED_OF, self.part(key, 0));
        headers.insert("Nats-Rollup", "sub");
        let looked = self.publish(key, self.subject("look"), headers, Bytes::new(), 0).await?;
        Ok(looked == Created::Done)
    }
}

impl Journal for JetStream {
    async fn create(&self, key: Key, data: Bytes) -> Result<Created, Error> {
        let most = self.ready().await?.client.max_payload().saturating_sub(HEADERS).clamp(HEADERS, PART);
        let parts = split(data, most);
        match &parts[..] {
            [data] => self.publish(key, self.part(key, 0), free(), data.clone(), data.len()).await,
            parts if parts.len() > PARTS => {
                let why = format!(
                    "{key} is larger than {PARTS} messages: let the servers take larger ones (max_payload)"
                );
                Err(Error::Stream { stream: self.to_string(), why })
            }
            _ => self.create_parts(key, parts).await,
        }
    }

    /// Nobody takes a hole in the log for the end of it without creating an object there. Other
    /// missing objects decide alone, so that they are proven to be missing.
    async fn read(&self, key: Key) -> Result<Option<Bytes>, Error> {
        for _ in 0..LOOKS {
            let found = self.read_now(key).await?;
            if found.is_some() || matches!(key, Key::Log(_)) || self.is_missing(key).await? {
                return Ok(found);
            }
            sleep(BLINK).await;
        }
        let why = "other requests for it are under way".into();
        Err(Error::Servers { doing: format!("reading {self}/{key}"), why })
    }

    async fn remove(&self, key: Key) -> Result<(), Error> {
        let stream = &self.ready().await?.stream;
        let purge = stream.purge().filter(self.subject(&format!("{key}/>")));
        self.timely("removing", key, 0, async { purge.await }).await.map(drop)
    }

    /// Servers pass a message on before they agree on it. So it is looked for until it is there.
    async fn wait(&self, key: Key, most: Duration) {
        let wait = async {
            let hints = match self.ready().await {
                Ok(ready) => {
                    self.connected().await;
                    ready.client.subscribe(self.part(key, 0)).await.ok()
                }
                Err(_) => None,
            };
            let Some(mut hints) = hints else { return std::future::pending().await };
            while !matches!(self.read_part(key, 0, 0).await, Ok(Some(_))) {
                if hints.next().await.is_none() {
                    // The subscription has ended.
                    return std::future::pending().await;
                }
                while matches!(self.read_part(key, 0, 0).await, Ok(None)) {
                    sleep(BLINK).await;
                }
            }
        };
        let _ = timeout(most, wait).await;
    }
}

/// Returns the headers of a message whose subject must have none.
fn free() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(EXPECTED, "0");
    headers
}

/// Splits an object into parts; an empty one has one part.
fn split(mut data: Bytes, most: usize) -> Vec<Bytes> {
    let mut parts = Vec::new();
    while data.len() > most {
        parts.push(data.split_to(most));
    }
    parts.push(data);
    parts
}

/// Returns whether a condition did not hold: an object exists, or another request for it is under
/// way.
fn is_taken(error: &jetstream::context::PublishError) -> bool {
    use std::error::Error;
    let source = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    let code = source.map(jetstream::Error::error_code);
    error.kind() == PublishErrorKind::WrongLastSequence
        || code == Some(ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
}

/// Connects, and makes the stream if it is missing.
async fn connect(address: Address, patience: Duration) -> Result<Ready, Error> {
    let name = address.to_string();
    let refused = |why: String| Error::Stream { stream: name.clone(), why };
    let failed = |why: String| Error::Servers { doing: format!("connecting to {name}"), why };
    let options = address
        .connection()
        .name("brooklet")
        .connection_timeout(patience)
        // A server that hangs is left for another one after some of these.
        .ping_interval(Duration::from_secs(1))
        .reconnect_delay_callback(|tries| Duration::from_millis(50).saturating_mul(tries.min(10) as u32));
    let client = options.connect(&address.servers).await.map_err(|error| match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            refused(format!("the servers refuse the login ({error})"))
        }
        ConnectErrorKind::Tls => refused(format!("there is no TLS ({error})")),
        // A server without TLS sends its greeting, which is no record of TLS.
        ConnectErrorKind::Io if address.needs_tls && error.to_string().contains("InvalidContentType") => {
            refused(format!("there is no TLS ({error})"))
        }
        _ => failed(error.to_string()),
    })?;
    let mut context = jetstream::new(client.clone());
    context.set_timeout(patience);
    let wanted = stream::settings(&address);
    let found = match context.get_stream(&address.stream).await {
        Ok(found) => Ok(found),
        Err(error) if is_code(&error.kind(), ErrorCode::STREAM_NOT_FOUND) => {
            match context.create_stream(&wanted).await {
                Ok(_) => context.get_stream(&address.stream).await,
                Err(error) => {
                    use jetstream::context::CreateStreamErrorKind::JetStream;
                    return Err(match error.kind() {
                        JetStream(why) if why.error_code() == ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED => {
                            refused(format!(
                                "it needs {} servers in a cluster ({why}); for a single server, whose loss is the loss of the log, add ?replicas=1",
                                address.replicas
                            ))
                        }
                        // Another host has made it at the same moment, or too few servers are
                        // there.
                        _ => failed(error.to_string()),
                    });
                }
            }
        }
        Err(error) => Err(error),
    };
    let found = found.map_err(|error| failed(error.to_string()))?;
    if let Some(defect) = stream::defect(&found.cached_info().config, &wanted) {
        return Err(refused(defect));
    }
    // From here on, each request is bounded by its length.
    context.set_timeout(patience + time_for((PARTS * PART) as u64));
    let stream = context.get_stream_no_info(&address.stream).await;
    let stream = stream.map_err(|error| failed(error.to_string()))?;
    Ok(Ready { client, context, stream })
}

fn is_code(kind: &GetStreamErrorKind, code: ErrorCode) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == code)
}

impl fmt::Debug for JetStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JetStream({})", self.shared.address)
    }
}

impl fmt::Display for JetStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.address.fmt(f)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // It may be dropped where blocking is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{Epoch, Place};

    #[test]
    fn each_object_has_subjects_of_its_own() {
        let log = JetStream::open("nats://a/logs").unwrap();
        assert_eq!(log.part(Key::Claim(Epoch(1)), 0), "brooklet.logs.claims.00000000000000000001.0");
        assert_eq!(
            log.part(Key::Log(Place { epoch: Epoch(2), number: 7 }), 3),
            "brooklet.logs.log.00000000000000000002.00000000000000000007.3"
        );
        assert_eq!(log.subject("look"), "brooklet.logs.look");
    }

    #[test]
    fn objects_are_split_into_parts() {
        let sizes = |len| split(vec![7; len].into(), 10).iter().map(Bytes::len).collect::<Vec<_>>();
        assert_eq!(sizes(0), [0]);
        assert_eq!(sizes(10), [10]);
        assert_eq!(sizes(11), [10, 1]);
        assert_eq!(sizes(30), [10, 10, 10]);
    }

    /// Nobody listens there.
    #[test]
    fn errors_name_servers_without_their_password() {
        let log = JetStream::open("nats://me:sesame@127.0.0.1:1/logs").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(log.read(Key::Record(0))).unwrap_err();
        let text = format!("{error} {log} {log:?}");
        assert!(matches!(error, Error::Servers { .. }) && error.is_temporary(), "{error:?}");
        assert!(text.contains("nats://127.0.0.1:1/logs") && !text.contains("sesame"), "{text}");
    }
}
