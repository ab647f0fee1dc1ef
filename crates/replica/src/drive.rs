//! Plays machines over a journal: sends their requests, and brings the replies.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::claim::Claim;
use crate::error::Error;
use crate::journal::{Created, Journal, Key};
use crate::machine::follower::{Follower, FollowerState};
use crate::machine::takeover::{Found, Opened, Takeover, TakeoverEnd};
use crate::machine::{Reply, Request};
use crate::object::Object;
use crate::place::{Epoch, Place, StoreId};
use crate::record::Record;

/// Number of objects that a takeover reads at a time, and most of their bytes, as far as the last
/// ones show how long the next ones are.
const READ_AHEAD: u64 = 64;
const BYTES_AHEAD: u64 = 8 << 20;
/// Failed tries of one request after which a takeover ends.
const TRIES: u32 = 8;
/// Pause before a request with an unknown fate is sent again; it doubles up to the longest one.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Returns the pause before a request that failed `failures` times is sent again.
pub(crate) fn pause(failures: u32) -> Duration {
    PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE)
}

/// Number of requests that fail one after the other, from which on the bucket counts as silent. One
/// that fails now and then is no reason for a message.
const SILENT: u32 = 3;

/// The requests of a host that failed one after the other.
pub(crate) struct Failures {
    /// The host, for messages.
    host: &'static str,
    count: u32,
}

impl Failures {
    pub fn of(host: &'static str) -> Self {
        Self { host, count: 0 }
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// Counts a request, which may have failed. Reports the begin and the end of many failures: the
    /// requests are repeated, and nothing else shows why the host waits.
    pub fn note(&mut self, failure: Option<&str>) {
        let (before, host) = (self.count, self.host);
        self.count = if failure.is_some() { before.saturating_add(1) } else { 0 };
        match failure {
            Some(error) if self.count == SILENT => {
                tracing::warn!(%error, "the bucket does not answer {host}: requests are repeated until it does");
            }
            None if before >= SILENT => tracing::info!("the bucket answers {host} again"),
            _ => {}
        }
    }
}

/// A monotonic clock for machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch(Instant);

impl Watch {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// Sends one request, and returns its reply.
pub(crate) async fn send<J: Journal>(
    journal: &J,
    store: StoreId,
    request: &Request<Bytes>,
) -> Result<Reply<Bytes>, Error> {
    let claim = |epoch: Epoch, data: Option<Bytes>| {
        let decode = |data: Bytes| Claim::decode(store, epoch, &data);
        data.map(decode).transpose().map_err(|defect| Error::of(defect, Claim::name(epoch), store))
    };
    let record = |number: u64, data: Option<Bytes>| {
        let decode = |data: Bytes| Record::decode(store, number, &data);
        data.map(decode).transpose().map_err(|defect| Error::of(defect, Record::name(number), store))
    };
    Ok(match request {
        Request::NewestClaim => {
            let newest = journal.newest(|number| Key::Claim(Epoch(number)), 0).await?;
            let newest = newest.map(|(number, data)| claim(Epoch(number), Some(data))).transpose()?;
            Reply::Claim(newest.flatten())
        }
        Request::Claim(claim) => create(journal, Key::Claim(claim.writer.epoch), claim.encode()).await?,
        Request::ReadClaim(epoch) => Reply::Claim(claim(*epoch, journal.read(Key::Claim(*epoch)).await?)?),
        Request::NewestRecord(known) => {
            // Names after the known record alone are asked for; then the known one itself. Numbers
            // are shifted by one here, since the first record has number 0.
            let name = |number: u64| Key::Record(number - 1);
            let newest = journal.newest(name, known.map_or(0, |known| known + 1)).await?;
            match (newest, known) {
                (Some((number, data)), _) => Reply::Record(record(number - 1, Some(data))?),
                (None, Some(known)) => {
                    Reply::Record(record(*known, journal.read(Key::Record(*known)).await?)?)
                }
                (None, None) => Reply::Record(None),
            }
        }
        Request::Record(record) => create(journal, Key::Record(record.number), record.encode(store)).await?,
        Request::ReadRecord(number) => {
            Reply::Record(record(*number, journal.read(Key::Record(*number)).await?)?)
        }
        Request::Create(object) => create(journal, Key::Log(object.place), object.encode(store)).await?,
        Request::Read(place) => Reply::Object(object(journal, store, *place).await?),
        Request::Remove(place) => {
            journal.remove(Key::Log(*place)).await?;
            Reply::Done
        }
    })
}

async fn create<J: Journal>(journal: &J, key: Key, data: Bytes) -> Result<Reply<Bytes>, Error> {
    Ok(match journal.create(key, data).await? {
        Created::Done => Reply::Done,
        Created::Exists => Reply::Exists,
    })
}

async fn object<J: Journal>(
    journal: &J,
    store: StoreId,
    place: Place,
) -> Result<Option<Object<Bytes>>, Error> {
    let data = journal.read(Key::Log(place)).await?;
    let decode = |data| Object::decode(store, place, &data);
    data.map(decode).transpose().map_err(|defect| Error::of(defect, place.to_string(), store))
}

/// Sends a request until its reply is known, or it has failed too often.
async fn insist<J: Journal>(
    journal: &J,
    store: StoreId,
    request: &Request<Bytes>,
    failures: &mut u32,
) -> Result<Reply<Bytes>, Error> {
    match send(journal, store, request).await {
        Err(error) if error.is_temporary() && *failures + 1 < TRIES => {
            tracing::debug!(%error, "trying again");
            tokio::time::sleep(pause(*failures)).await;
            *failures += 1;
            Ok(Reply::Unknown)
        }
        result => {
            *failures = 0;
            result
        }
    }
}

/// Plays a takeover to its end, and hands over all that it finds. After a [`Found::Begin`], drop
/// all that was handed over before it.
///
/// # Errors
/// [`Error::Outbid`], [`Error::TooLate`]; [`Error::Damaged`], [`Error::OtherStore`],
/// [`Error::NewerFormat`]; [`Error::Bucket`] and [`Error::NoAnswer`] after several tries. After an
/// error the epoch may be claimed, and the owner before it fenced.
pub async fn take_over<J: Journal>(
    journal: &Arc<J>,
    store: StoreId,
    mut takeover: Takeover<Bytes>,
    mut found: impl FnMut(Found<Bytes>) -> Result<(), Error>,
) -> Result<Opened, Error> {
    let (mut ahead, mut failures, mut hole) = (Ahead::new(journal.clone(), store), 0, None);
    loop {
        takeover.take_found().into_iter().try_for_each(&mut found)?;
        if let Some(end) = takeover.end() {
            return match end.clone() {
                TakeoverEnd::Opened(opened) => Ok(opened),
                TakeoverEnd::Outbid(claim) => Err(Error::Outbid { claim }),
                TakeoverEnd::TooLate { owner } => Err(Error::TooLate { owner }),
                TakeoverEnd::Broken(place) => {
                    let what = "it does not follow the object before it";
                    Err(Error::Damaged { object: place.to_string(), what })
                }
            };
        }
        let request = takeover.poll().expect("a takeover has a request until it ends");
        let reply = match &request {
            Request::Read(place) => match ahead.read(*place).await {
                Some(object) => Reply::Object(Some(object)),
                None => insist(&**journal, store, &request, &mut failures).await?,
            },
            _ => insist(&**journal, store, &request, &mut failures).await?,
        };
        // The creation was refused because the object exists, and none is there: another request
        // for it is under way.
        let is_under_way = match (&request, &reply) {
            (Request::Read(place), Reply::Object(None)) => hole.replace(*place) == Some(*place),
            (Request::ReadClaim(_), Reply::Claim(None)) => true,
            _ => false,
        };
        if is_under_way {
            tokio::time::sleep(PAUSE).await;
        }
        takeover.answer(reply);
    }
}

/// The result of a read of a place.
type FoundObject = Result<Option<Object<Bytes>>, Error>;

/// Reads of the objects behind a place, begun before they are asked for. An object never changes,
/// so an early read of it is as good as a late one. An early read that finds nothing counts for
/// nothing.
struct Ahead<J> {
    journal: Arc<J>,
    store: StoreId,
    reads: VecDeque<(Place, JoinHandle<FoundObject>)>,
    last: Option<Place>,
    /// Number of objects to read ahead: it grows while objects are found.
    depth: u64,
    /// Bytes of a long one of the last objects.
    bytes: u64,
}

impl<J: Journal> Ahead<J> {
    fn new(journal: Arc<J>, store: StoreId) -> Self {
        Self { journal, store, reads: VecDeque::new(), last: None, depth: 1, bytes: 0 }
    }

    /// Returns the object at a place, if a read that was begun before finds it.
    async fn read(&mut self, place: Place) -> Option<Object<Bytes>> {
        if self.reads.front().is_some_and(|(first, _)| *first != place) {
            self.stop();
        }
        // A place that is asked for again was a hole.
        let again = self.last.replace(place) == Some(place);
        let most = (BYTES_AHEAD / self.bytes.max(1)).clamp(1, READ_AHEAD);
        self.depth = if again { 0 } else { (2 * self.depth).clamp(1, most) };
        let last = self.reads.back().map_or(place, |(last, _)| *last);
        for number in last.number + 1..=place.number + self.depth {
            let (place, journal, store) = (Place { number, ..place }, self.journal.clone(), self.store);
            let read = tokio::spawn(async move { object(&*journal, store, place).await });
            self.reads.push_back((place, read));
        }
        if self.reads.front().is_none_or(|(first, _)| *first != place) {
            return None;
        }
        let (_, read) = self.reads.pop_front()?;
        let object = read.await.ok()?.ok()??;
        self.bytes = (object.payload.len() as u64).max(self.bytes / 2);
        Some(object)
    }

    fn stop(&mut self) {
        self.reads.drain(..).for_each(|(_, read)| read.abort());
    }
}

impl<J> Drop for Ahead<J> {
    fn drop(&mut self) {
        self.reads.drain(..).for_each(|(_, read)| read.abort());
    }
}

/// Follows a log: reads objects behind a follower's point, and asks every `pause` once there is
/// nothing new. Hands each new object over, and the claim of a new owner once all of the log was
/// read. Returns what ended the following: a silent owner, a handover, a point that was trimmed.
///
/// Reads several objects at a time, as an owner sends several: one after the other would not keep
/// up with a busy owner.
///
/// # Errors
/// [`Error::Damaged`], [`Error::OtherStore`], [`Error::NewerFormat`]; the errors of `found`. While
/// the bucket does not answer, the follower asks on: that the bucket is silent does not mean that
/// the owner is.
pub async fn follow<J: Journal>(
    journal: &Arc<J>,
    store: StoreId,
    follower: &mut Follower<Bytes>,
    pause: Duration,
    found: impl FnMut(Object<Bytes>) -> Result<(), Error>,
    claimed: impl FnMut(&Claim),
) -> Result<FollowerState, Error> {
    follow_with(journal, store, follower, &mut Steady { pause, found, claimed }).await
}

/// The receiver of all that a follower reads.
pub(crate) trait Listener {
    /// Takes a new object.
    fn found(&mut self, object: Object<Bytes>) -> Result<(), Error>;

    /// Takes the claim of a new owner.
    fn claimed(&mut self, claim: &Claim);

    /// Returns the time until the next request. At the time `none`, there was nothing behind the
    /// last read object; `None` if the bucket did not answer.
    fn pause(&mut self, none: Option<Instant>) -> Result<Duration, Error>;

    /// Returns a time at which nothing was behind the last read object, if the listener must know
    /// whether the log was trimmed past that place.
    fn doubt(&mut self) -> Option<Instant> {
        None
    }

    /// Takes that the log was not trimmed past that place before that time.
    fn sure(&mut self, _none: Instant) -> Result<(), Error> {
        Ok(())
    }
}

/// A listener that waits equally long each time.
struct Steady<F, C> {
    pause: Duration,
    found: F,
    claimed: C,
}

impl<F: FnMut(Object<Bytes>) -> Result<(), Error>, C: FnMut(&Claim)> Listener for Steady<F, C> {
    fn found(&mut self, object: Object<Bytes>) -> Result<(), Error> {
        (self.found)(object)
    }

    fn claimed(&mut self, claim: &Claim) {
        (self.claimed)(claim);
    }

    fn pause(&mut self, _none: Option<Instant>) -> Result<Duration, Error> {
        Ok(self.pause)
    }
}

/// Follows a log like [`follow`].
pub(crate) async fn follow_with<J: Journal>(
    journal: &Arc<J>,
    store: StoreId,
    follower: &mut Follower<Bytes>,
    listener: &mut impl Listener,
) -> Result<FollowerState, Error> {
    // The follower's own readings began earlier or later: only differences count.
    let (watch, begin) = (Watch::start(), follower.seen());
    let now = || begin + watch.now();
    let (mut ahead, mut owner, mut last) = (Ahead::new(journal.clone(), store), None, None);
    let mut failures = Failures::of("a host that follows the log");
    loop {
        let request = match follower.poll() {
            Some(request) => request,
            None => return Ok(follower.state().clone()),
        };
        let early = match request {
            Request::Read(place) => ahead.read(place).await,
            _ => None,
        };
        let (asked, sent) = (now(), Instant::now());
        let reply = match early {
            Some(object) => Reply::Object(Some(object)),
            None => match send(&**journal, store, &request).await {
                Err(error) if error.is_temporary() => {
                    failures.note(Some(&error.to_string()));
                    Reply::Unknown
                }
                reply => {
                    // An error that stays ends the following: the bucket may refuse all requests.
                    let reply = reply?;
                    failures.note(None);
                    reply
                }
            },
        };
        if let Reply::Claim(Some(claim)) = &reply {
            tracing::debug!(
                epoch = claim.writer.epoch.0,
                owner = claim.owner,
                "the log is silent behind this claim"
            );
        }
        let waits = matches!(reply, Reply::Object(None) | Reply::Unknown);
        let none = matches!(reply, Reply::Object(None)).then_some(sent);
        follower.answer(reply, asked, now());
        for object in follower.take_found() {
            last = Some(object.place.epoch);
            listener.found(object)?;
        }
        match follower.state() {
            FollowerState::Following if waits => {
                // Owners of long ago are not told of: all that there is was read.
                if let Some(epoch) = last.filter(|_| last != owner) {
                    match send(&**journal, store, &Request::ReadClaim(epoch)).await {
                        Err(error) if error.is_temporary() => {}
                        reply => {
                            owner = last;
                            if let Ok(Reply::Claim(Some(claim))) = reply {
                                listener.claimed(&claim);
                            }
                        }
                    }
                    // The owner was not looked at meanwhile.
                    follower.begin_again(now());
                }
                wait(journal, store, follower, listener, (&request, none)).await?;
            }
            FollowerState::Following => {}
            ended => return Ok(ended.clone()),
        }
    }
}

/// Waits until the next request, and looks meanwhile whether the log was trimmed, if the listener
/// must know. `asked` is the last request, and when it found nothing.
async fn wait<J: Journal>(
    journal: &Arc<J>,
    store: StoreId,
    follower: &mut Follower<Bytes>,
    listener: &mut impl Listener,
    asked: (&Request<Bytes>, Option<Instant>),
) -> Result<(), Error> {
    let (request, none) = asked;
    let pause = listener.pause(none)?;
    let wait = async {
        match request {
            Request::Read(place) => journal.wait(Key::Log(*place), pause).await,
            _ => tokio::time::sleep(pause).await,
        }
    };
    let Some(doubt) = listener.doubt() else {
        wait.await;
        return Ok(());
    };
    let look = Request::ReadRecord(follower.doubted());
    match join(send(&**journal, store, &look), wait).await.0 {
        Ok(Reply::Record(None)) => listener.sure(doubt)?,
        Err(error) if error.is_temporary() => {}
        // A newer record says whether.
        _ => follower.look(),
    }
    Ok(())
}
