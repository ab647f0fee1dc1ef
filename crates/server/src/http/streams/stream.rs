//! A stream in memory: its committed state, and its durable state.
//!
//! Writers take turns at [`Written`], which is ahead of the device: the next writer goes on from it
//! without waiting. Readers and replies use [`Seen`]: it follows as commits become durable, and
//! wakes the waiting readers. [`Stream::announce`] announces a commit during the writer's turn, so
//! versions of the two are in the order of the store.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brooklet::{Error, Retention, Store, Ticket};
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::draft::Draft;
use super::headers::Expiry;
use super::metadata::{Change, Identity, Metadata, read_notes};
use super::name::Name;
use super::offset::{Offset, Position};
use super::time;
use crate::http::reply::Refusal;

/// Readers that are woken by who has a commit become durable.
const FEW: usize = 32;

pub struct Stream {
    pub name: Name,
    written: Mutex<Written>,
    /// The stream of this name as of the last commit, for readers, who never wait for a turn.
    last: Mutex<Last>,
    seen: watch::Sender<Seen>,
    /// The version of the last commit.
    announced: AtomicU64,
    /// Readers that wait at it: it does not fall idle.
    readers: AtomicUsize,
    /// How long a reader waits at most, in milliseconds.
    longest_wait: u64,
    /// When it was last used, and what of that is noted in the store.
    touched: AtomicU64,
    noted: AtomicU64,
    /// Producers that it remembers, and those of all streams that count together.
    producers: AtomicUsize,
    all_producers: Arc<AtomicUsize>,
}

/// A stream as of the last commit on it.
#[derive(Default)]
pub struct Written {
    /// Whether the rest is so. If not, it is looked up at the next turn.
    is_loaded: bool,
    /// How often it changed since it is in memory.
    version: u64,
    /// None: there is no such stream.
    pub metadata: Option<Metadata>,
    /// The number of the next note, and the changes since the last whole one.
    notes: u64,
    changes: u64,
    /// Messages of its own.
    own: u64,
}

/// Which stream has the name.
#[derive(Clone, Copy, Default)]
enum Last {
    #[default]
    None,
    Gone,
    /// Number of the stream.
    There(u64),
}

/// A stream as of what is durable.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    version: u64,
    /// None: there is no such stream.
    pub identity: Option<Arc<Identity>>,
    pub end: Offset,
    pub closed: bool,
    pub gone: bool,
    /// Why what was committed did not become durable.
    failed: Option<Error>,
}

impl Stream {
    pub fn new(name: Name, longest_wait: u64, all_producers: Arc<AtomicUsize>) -> Self {
        let (seen, _) = watch::channel(Seen::default());
        let (touched, noted) = (AtomicU64::new(0), AtomicU64::new(0));
        let (written, last) = (Mutex::default(), Mutex::default());
        let (announced, readers, producers) = (AtomicU64::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        Self {
            name,
            written,
            last,
            seen,
            announced,
            readers,
            longest_wait,
            touched,
            noted,
            producers,
            all_producers,
        }
    }

    /// Takes the turn to write, and looks the stream up if that was not done yet. May read from the
    /// volume.
    pub fn turn(&self, store: &Store) -> Result<MutexGuard<'_, Written>, Refusal> {
        let mut written = self.written.lock().unwrap_or_else(|poisoned| {
            // Whoever panicked may have left half of a change.
            let mut written = poisoned.into_inner();
            written.is_loaded = false;
            self.written.clear_poison();
            written
        });
        if !written.is_loaded {
            self.load(store, &mut written)?;
        }
        Ok(written)
    }

    /// Looks the stream up again, after another server has changed it; its readers see that at
    /// once. If it cannot be read, they are let go of.
    pub fn refresh(&self, store: &Store) -> Result<(), Refusal> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if !written.is_loaded && written.version == 0 {
            // Nobody has looked it up yet.
            return Ok(());
        }
        written.is_loaded = false;
        let loaded = self.load(store, &mut written);
        if loaded.is_err() {
            written.version += 1;
            self.leave();
            self.publish(Seen { version: written.version, ..Seen::default() }, Ok(()));
        }
        loaded
    }

    fn load(&self, store: &Store, written: &mut Written) -> Result<(), Refusal> {
        if written.version > 0 {
            // What was committed meanwhile can be read only once it is durable; if it cannot become
            // that, it is not there.
            let _ = store.flush();
        }
        let key = self.name.metadata();
        let (mut notes, mut payloads) = (0, Vec::new());
        match store.read(&key, ..) {
            Ok(entries) => {
                notes = entries.range().end;
                payloads = entries.map(|entry| Ok(entry?.payload)).collect::<Result<_, Error>>()?;
            }
            Err(Error::UnknownLog { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let metadata = read_notes(&payloads);
        let metadata = metadata.map_err(|why| {
            let place = format!("log {key}");
            Refusal::from(Error::Damaged { place, what: why })
        })?;
        let own = match store.bounds(self.name.data()) {
            Ok(bounds) => bounds.next,
            Err(Error::UnknownLog { .. }) => 0,
            Err(error) => return Err(error.into()),
        };
        if let Some(metadata) = &metadata {
            // It may have been used since that was noted, last by a reader who then waited.
            let later = slack(&metadata.identity).saturating_add(self.longest_wait);
            self.touched.fetch_max(metadata.touched.saturating_add(later), Relaxed);
            self.noted.store(metadata.touched, Relaxed);
        }
        let (version, changes) = (written.version + 1, (payloads.len() as u64).saturating_sub(1));
        *written = Written { is_loaded: true, version, metadata, notes, changes, own };
        self.count(written);
        self.set_last(written.last());
        self.publish(written.seen(), Ok(()));
        Ok(())
    }

    /// Has what was written be seen once it is durable; gives the version to wait for.
    pub fn announce(self: &Arc<Self>, written: &mut Written, ticket: &Ticket) -> u64 {
        written.version += 1;
        self.count(written);
        self.set_last(written.last());
        let (stream, seen) = (self.clone(), written.seen());
        let runtime = Handle::try_current().ok().filter(|_| self.seen.receiver_count() > FEW);
        ticket.on_done(move |done| match runtime {
            // The thread that calls this drives the store, and has no time to wake so many.
            Some(runtime) => drop(runtime.spawn(async move { stream.publish(seen, done) })),
            None => stream.publish(seen, done),
        });
        self.announced.store(written.version, Relaxed);
        written.version
    }

    fn publish(&self, new: Seen, done: Result<(), Error>) {
        self.seen.send_if_modified(|seen| match done {
            Ok(()) if new.version > seen.version => {
                let failed = seen.failed.take();
                *seen = Seen { failed, ..new };
                true
            }
            Ok(()) => false,
            Err(error) => {
                seen.failed = Some(error);
                true
            }
        });
    }

    /// Waits until this version is durable.
    pub async fn settled(&self, version: u64) -> Result<(), Refusal> {
        let mut seen = self.seen.subscribe();
        let seen = seen.wait_for(|seen| seen.version >= version || seen.failed.is_some()).await;
        let seen = seen.expect("the sender is here");
        match &seen.failed {
            Some(error) if seen.version < version => Err(error.clone().into()),
            _ => Ok(()),
        }
    }

    /// Returns a refusal once all is durable that was committed before, or why it cannot become
    /// that. The refusal may tell of it, and a client whose reply was lost takes it for the answer.
    pub async fn once_durable(&self, refusal: Refusal) -> Refusal {
        self.settled(self.announced.load(Relaxed)).await.err().unwrap_or(refusal)
    }

    /// Returns the refusal of a read. If the reason is a removal, waits until that is durable, and
    /// readers see it.
    pub async fn once_seen(&self, identity: &Identity, refusal: Refusal) -> Refusal {
        if self.is_still(identity).is_ok() {
            return refusal;
        }
        let mut seen = self.seen.subscribe();
        let seen = seen.wait_for(|seen| seen.failed.is_some() || !seen.is_of(identity)).await;
        let seen = seen.expect("the sender is here");
        match &seen.failed {
            Some(error) if seen.is_of(identity) => error.clone().into(),
            _ => refusal,
        }
    }

    pub fn is_loaded(&self) -> bool {
        self.seen.borrow().version > 0
    }

    pub fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    pub fn watch(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// Takes note that it is used. Gives the time, if the store should know of it too.
    pub fn touch(&self, identity: &Identity) -> Option<u64> {
        identity.ttl?;
        let now = time::now();
        self.touched.fetch_max(now, Relaxed);
        let noted = self.noted.load(Relaxed);
        let is_due = now >= noted.saturating_add(slack(identity));
        (is_due && self.noted.compare_exchange(noted, now, Relaxed, Relaxed).is_ok()).then_some(now)
    }

    /// Takes back that its use at this time is noted in the store: so the next use is.
    pub fn not_noted(&self, touched: u64) {
        let _ = self.noted.compare_exchange(touched, 0, Relaxed, Relaxed);
    }

    /// It is made now, and has no past.
    pub fn begin(&self, now: u64) {
        self.touched.store(now, Relaxed);
        self.noted.store(now, Relaxed);
    }

    /// Keeps it from falling idle until the guard is dropped.
    pub fn hold_open(self: &Arc<Self>) -> HeldOpen {
        self.readers.fetch_add(1, Relaxed);
        HeldOpen(self.clone())
    }

    /// When it expires, if nothing happens till then.
    pub fn expires(&self, identity: &Identity) -> Option<u64> {
        match identity.expiry() {
            Expiry::Never => None,
            Expiry::At(at) => Some(at),
            Expiry::Idle(seconds) => {
                if self.readers.load(Relaxed) > 0 {
                    self.touched.fetch_max(time::now(), Relaxed);
                }
                Some(self.touched.load(Relaxed).saturating_add(seconds.saturating_mul(1000)))
            }
        }
    }

    pub fn is_expired(&self, identity: &Identity) -> bool {
        self.expires(identity).is_some_and(|at| at <= time::now())
    }

    /// Whether it is still the stream of this outline for those who write, who are ahead of what is
    /// [seen](Self::seen). After that, all that was read before was read of this stream. Does not
    /// wait for a writer, who may wait for room.
    pub fn is_still(&self, identity: &Identity) -> Result<(), Refusal> {
        match *self.last.lock().unwrap_or_else(PoisonError::into_inner) {
            Last::There(id) if id == identity.id => Ok(()),
            Last::Gone => Err(Refusal::gone(&self.name)),
            _ => Err(Refusal::unknown(&self.name)),
        }
    }

    /// Takes that its removal is committed. To be called during its turn and those of its sources:
    /// no other stream has one of these names before.
    pub fn leave(&self) {
        self.set_last(Last::None);
    }

    /// Counts the producers that it remembers, during its turn.
    fn count(&self, written: &Written) {
        let new = written.metadata.as_ref().map_or(0, |metadata| metadata.producers.len());
        let old = self.producers.swap(new, Relaxed);
        self.all_producers.fetch_add(new, Relaxed);
        self.all_producers.fetch_sub(old, Relaxed);
    }

    fn set_last(&self, last: Last) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    /// What is known of it, if it is there.
    pub fn alive<'a>(&self, written: &'a Written) -> Result<&'a Metadata, Refusal> {
        match &written.metadata {
            Some(metadata) if metadata.gone => Err(Refusal::gone(&self.name)),
            Some(metadata) if !self.is_expired(&metadata.identity) => Ok(metadata),
            _ => Err(Refusal::unknown(&self.name)),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.all_producers.fetch_sub(*self.producers.get_mut(), Relaxed);
    }
}

/// A reader that waits at a stream.
pub struct HeldOpen(Arc<Stream>);

impl Drop for HeldOpen {
    fn drop(&mut self) {
        self.0.touched.fetch_max(time::now(), Relaxed);
        self.0.readers.fetch_sub(1, Relaxed);
    }
}

/// How much later than it was noted a stream may have been used: an eighth of what it may be idle
/// for, so that readers make few commits. A stream that is looked up counts as used that much
/// later, and by a reader who then waited for as long as one may, rather than expire too early.
fn slack(identity: &Identity) -> u64 {
    identity.ttl.map_or(0, |seconds| seconds.saturating_mul(125).clamp(1_000, 1 << 40))
}

impl Seen {
    /// The outline, if the stream is there.
    pub fn alive(&self, name: &Name) -> Result<Arc<Identity>, Refusal> {
        match &self.identity {
            Some(_) if self.gone => Err(Refusal::gone(name)),
            Some(identity) => Ok(identity.clone()),
            None => Err(Refusal::unknown(name)),
        }
    }
}

impl Written {
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn own(&self) -> u64 {
        self.own
    }

    pub fn end(&self) -> Offset {
        let base = self.metadata.as_ref().map_or(0, |metadata| metadata.identity.base());
        Offset(base.saturating_add(self.own))
    }

    /// The end as clients get it.
    pub fn position(&self) -> Position {
        let stream = self.metadata.as_ref().map(|metadata| metadata.identity.id);
        Position { offset: self.end(), stream }
    }

    fn last(&self) -> Last {
        match &self.metadata {
            Some(metadata) if metadata.gone => Last::Gone,
            Some(metadata) => Last::There(metadata.identity.id),
            None => Last::None,
        }
    }

    fn seen(&self) -> Seen {
        let metadata = self.metadata.as_ref();
        Seen {
            version: self.version,
            identity: metadata.map(|metadata| metadata.identity.clone()),
            end: self.end(),
            closed: metadata.is_some_and(|metadata| metadata.closed.is_some()),
            gone: metadata.is_some_and(|metadata| metadata.gone),
            failed: None,
        }
    }

    /// A commit was refused. If it turned out not to be what it was thought to be, it is looked up
    /// at the next turn.
    pub fn invalidate(&mut self, refusal: &Refusal) {
        self.is_loaded &= !refusal.is_stale;
    }

    /// Adds a new stream to a draft.
    pub fn draft_new(&self, name: &Name, metadata: &Metadata, draft: &mut Draft) {
        let key: Arc<str> = name.metadata().into();
        draft.expect_next(key.clone(), self.notes);
        draft.snapshot(key.clone(), metadata.encode());
        // It keeps what it must, whatever the space has its logs keep.
        draft.retain(key, Retention::new());
        if let Some(due) = metadata.due {
            draft.append(name.due(due), Bytes::new());
        }
    }

    /// What was drafted is committed.
    pub fn committed(&mut self, metadata: Metadata) {
        (self.metadata, self.changes) = (Some(metadata), 0);
        self.notes += 1;
    }

    /// Adds a change to a draft; none, and it still has the stream be what it was thought to be.
    pub fn draft_change(&self, name: &Name, change: &Change, draft: &mut Draft) {
        let key: Arc<str> = name.metadata().into();
        draft.expect_next(key.clone(), self.notes);
        let Some(metadata) = self.metadata.as_ref().filter(|_| !change.is_empty()) else { return };
        if metadata.is_outgrown(self.changes) {
            let mut whole = metadata.clone();
            whole.apply(change);
            draft.snapshot(key, whole.encode());
        } else {
            draft.append(key, change.encode());
        }
        if let Some(due) = change.due {
            metadata.due.inspect(|old| draft.delete(name.due(*old)));
            draft.append(name.due(due), Bytes::new());
        }
    }

    /// What was drafted is committed.
    pub fn changed(&mut self, change: &Change) {
        let Some(metadata) = self.metadata.as_mut().filter(|_| !change.is_empty()) else { return };
        self.changes = if metadata.is_outgrown(self.changes) { 0 } else { self.changes + 1 };
        metadata.apply(change);
        self.notes += 1;
    }

    /// Messages were committed, as the last of that commit.
    pub fn appended(&mut self, messages: &[Bytes], ticket: &Ticket) {
        if let (false, Some(last)) = (messages.is_empty(), ticket.seqs().last()) {
            self.own = last + 1;
        }
    }

    /// Adds the stream's end to a draft.
    pub fn draft_removal(&self, name: &Name, draft: &mut Draft) {
        draft.expect_next(name.metadata(), self.notes);
        draft.delete(name.metadata());
        if self.own > 0 {
            draft.delete(name.data());
        }
        if let Some(due) = self.metadata.as_ref().and_then(|metadata| metadata.due) {
            draft.delete(name.due(due));
        }
    }

    /// What was drafted is committed.
    pub fn removed(&mut self) {
        *self = Self { is_loaded: true, version: self.version, ..Self::default() };
    }
}
