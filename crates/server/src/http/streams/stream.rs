//! A stream in memory: what was committed to it, and what of that is durable.
//!
//! Writers take turns at [`Written`], which is ahead of the device: whoever writes next goes on
//! from it without waiting. What readers and replies go by is [`Seen`]: it follows as commits
//! become durable, and wakes those who wait for that. A commit is told by [`Stream::announce`],
//! while the turn lasts, so versions of the two are in the order of the store.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use brooklet::{Error, Retention, Store, Ticket};
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::about::{About, Change, Outline, read_notes};
use super::draft::Draft;
use super::headers::Expiry;
use super::name::Name;
use super::offset::Offset;
use super::reply::Refusal;
use super::time;

/// Readers that are woken by who has a commit become durable.
const FEW: usize = 32;

pub struct Stream {
    pub name: Name,
    written: Mutex<Written>,
    seen: watch::Sender<Seen>,
    /// Readers that wait at it: it does not fall idle.
    readers: AtomicUsize,
    /// When it was last used, and what of that is noted in the store.
    touched: AtomicU64,
    noted: AtomicU64,
}

/// A stream as of the last commit on it.
#[derive(Default)]
pub struct Written {
    /// Whether the rest is so. If not, it is looked up at the next turn.
    is_loaded: bool,
    /// How often it changed since it is in memory.
    version: u64,
    /// None: there is no such stream.
    pub about: Option<About>,
    /// The number of the next note, and the changes since the last whole one.
    notes: u64,
    changes: u64,
    /// Messages of its own.
    own: u64,
}

/// A stream as of what is durable.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    version: u64,
    /// None: there is no such stream.
    pub outline: Option<Arc<Outline>>,
    pub end: Offset,
    pub closed: bool,
    pub gone: bool,
    /// Why what was committed did not become durable.
    failed: Option<Error>,
}

impl Stream {
    pub fn new(name: Name) -> Self {
        let (seen, _) = watch::channel(Seen::default());
        let (touched, noted) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { name, written: Mutex::default(), seen, readers: AtomicUsize::new(0), touched, noted }
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

    fn load(&self, store: &Store, written: &mut Written) -> Result<(), Refusal> {
        if written.version > 0 {
            // What was committed meanwhile can be read only once it is durable; if it cannot become
            // that, it is not there.
            let _ = store.flush();
        }
        let key = self.name.about();
        let (mut notes, mut payloads) = (0, Vec::new());
        match store.read(&key, ..) {
            Ok(entries) => {
                notes = entries.range().end;
                payloads = entries.map(|entry| Ok(entry?.payload)).collect::<Result<_, Error>>()?;
            }
            Err(Error::UnknownLog { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let about = read_notes(&payloads);
        let about = about.map_err(|why| {
            let place = format!("log {key}");
            Refusal::from(Error::Damaged { place, what: why })
        })?;
        let own = match store.bounds(self.name.data()) {
            Ok(bounds) => bounds.next,
            Err(Error::UnknownLog { .. }) => 0,
            Err(error) => return Err(error.into()),
        };
        if let Some(about) = &about {
            // It may have been used since that was noted.
            self.touched.fetch_max(about.touched.saturating_add(slack(&about.outline)), Relaxed);
            self.noted.store(about.touched, Relaxed);
        }
        let (version, changes) = (written.version + 1, (payloads.len() as u64).saturating_sub(1));
        *written = Written { is_loaded: true, version, about, notes, changes, own };
        self.publish(written.seen(), Ok(()));
        Ok(())
    }

    /// Has what was written be seen once it is durable; gives the version to wait for.
    pub fn announce(self: &Arc<Self>, written: &mut Written, ticket: &Ticket) -> u64 {
        written.version += 1;
        let (stream, seen) = (self.clone(), written.seen());
        let runtime = Handle::try_current().ok().filter(|_| self.seen.receiver_count() > FEW);
        ticket.on_done(move |done| match runtime {
            // The thread that calls this drives the store, and has no time to wake so many.
            Some(runtime) => drop(runtime.spawn(async move { stream.publish(seen, done) })),
            None => stream.publish(seen, done),
        });
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
    pub fn touch(&self, outline: &Outline) -> Option<u64> {
        outline.ttl?;
        let now = time::now();
        self.touched.fetch_max(now, Relaxed);
        let noted = self.noted.load(Relaxed);
        let is_due = now >= noted.saturating_add(slack(outline));
        (is_due && self.noted.compare_exchange(noted, now, Relaxed, Relaxed).is_ok()).then_some(now)
    }

    /// It is made now, and has no past.
    pub fn begin(&self, now: u64) {
        self.touched.store(now, Relaxed);
        self.noted.store(now, Relaxed);
    }

    /// Keeps it from falling idle until the guard is dropped.
    pub fn attend(self: &Arc<Self>) -> Attendance {
        self.readers.fetch_add(1, Relaxed);
        Attendance(self.clone())
    }

    /// When it expires, if nothing happens till then.
    pub fn expires(&self, outline: &Outline) -> Option<u64> {
        match outline.expiry() {
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

    pub fn is_expired(&self, outline: &Outline) -> bool {
        self.expires(outline).is_some_and(|at| at <= time::now())
    }

    /// What is known of it, if it is there.
    pub fn alive<'a>(&self, written: &'a Written) -> Result<&'a About, Refusal> {
        match &written.about {
            Some(about) if about.gone => Err(Refusal::gone(&self.name)),
            Some(about) if !self.is_expired(&about.outline) => Ok(about),
            _ => Err(Refusal::unknown(&self.name)),
        }
    }
}

/// A reader that waits at a stream.
pub struct Attendance(Arc<Stream>);

impl Drop for Attendance {
    fn drop(&mut self) {
        self.0.touched.fetch_max(time::now(), Relaxed);
        self.0.readers.fetch_sub(1, Relaxed);
    }
}

/// How much later than it was noted a stream may have been used: an eighth of what it may be idle
/// for, so that readers make few commits. After a crash a stream counts as used that much later,
/// rather than expire too early.
fn slack(outline: &Outline) -> u64 {
    outline.ttl.map_or(0, |seconds| seconds.saturating_mul(125).clamp(1_000, 1 << 40))
}

impl Seen {
    /// The outline, if the stream is there.
    pub fn alive(&self, name: &Name) -> Result<Arc<Outline>, Refusal> {
        match &self.outline {
            Some(_) if self.gone => Err(Refusal::gone(name)),
            Some(outline) => Ok(outline.clone()),
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
        let base = self.about.as_ref().map_or(0, |about| about.outline.base());
        Offset(base.saturating_add(self.own))
    }

    fn seen(&self) -> Seen {
        let about = self.about.as_ref();
        Seen {
            version: self.version,
            outline: about.map(|about| about.outline.clone()),
            end: self.end(),
            closed: about.is_some_and(|about| about.closed.is_some()),
            gone: about.is_some_and(|about| about.gone),
            failed: None,
        }
    }

    /// A commit was refused. If it turned out not to be what it was thought to be, it is looked up
    /// at the next turn.
    pub fn doubt(&mut self, refusal: &Refusal) {
        self.is_loaded &= !refusal.is_stale;
    }

    /// Adds a new stream to a draft.
    pub fn draft_new(&self, name: &Name, about: &About, draft: &mut Draft) {
        let key: Arc<str> = name.about().into();
        draft.expect_next(key.clone(), self.notes);
        draft.snapshot(key.clone(), about.encode());
        // It keeps what it must, whatever the space has its logs keep.
        draft.retain(key, Retention::new());
        if let Some(due) = about.due {
            draft.append(name.due(due), Bytes::new());
        }
    }

    /// What was drafted is committed.
    pub fn became(&mut self, about: About) {
        (self.about, self.changes) = (Some(about), 0);
        self.notes += 1;
    }

    /// Adds a change to a draft; none, and it still has the stream be what it was thought to be.
    pub fn draft_change(&self, name: &Name, change: &Change, draft: &mut Draft) {
        let key: Arc<str> = name.about().into();
        draft.expect_next(key.clone(), self.notes);
        let Some(about) = self.about.as_ref().filter(|_| !change.is_empty()) else { return };
        if about.is_outgrown(self.changes) {
            let mut whole = about.clone();
            whole.apply(change);
            draft.snapshot(key, whole.encode());
        } else {
            draft.append(key, change.encode());
        }
        if let Some(due) = change.due {
            about.due.inspect(|old| draft.delete(name.due(*old)));
            draft.append(name.due(due), Bytes::new());
        }
    }

    /// What was drafted is committed.
    pub fn changed(&mut self, change: &Change) {
        let Some(about) = self.about.as_mut().filter(|_| !change.is_empty()) else { return };
        self.changes = if about.is_outgrown(self.changes) { 0 } else { self.changes + 1 };
        about.apply(change);
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
        draft.expect_next(name.about(), self.notes);
        draft.delete(name.about());
        if self.own > 0 {
            draft.delete(name.data());
        }
        if let Some(due) = self.about.as_ref().and_then(|about| about.due) {
            draft.delete(name.due(due));
        }
    }

    /// What was drafted is committed.
    pub fn removed(&mut self) {
        *self = Self { is_loaded: true, version: self.version, ..Self::default() };
    }
}
