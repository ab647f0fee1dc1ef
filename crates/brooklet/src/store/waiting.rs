//! Waiting for the marks of a watcher: by a thread, and by a task.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use brooklet_io::{Clock, Process};

use crate::engine::Inner;
use crate::error::Error;
use crate::state::watchers::marks::Marks;
use crate::state::watchers::{Listening, Waiter, Watcher, Watchers};
use crate::sync::thread;

/// The longest pause between two looks in a store without threads, in which the waiting thread does
/// the store's work.
const PAUSE: Duration = Duration::from_millis(1);

/// The logs that a reader waits for.
pub(crate) struct Source<M: Marks> {
    inner: Weak<Inner>,
    watchers: Arc<Watchers>,
    watcher: Arc<Watcher<M>>,
    clock: Arc<dyn Clock>,
    process: Process,
    /// The key of the log, or the prefix of the keys.
    pub key: Box<[u8]>,
    /// The error that ended the reader.
    pub failed: Option<Error>,
}

impl<M: Marks> Source<M> {
    pub fn new(inner: &Arc<Inner>, key: &[u8], marks: M) -> Result<Self, Error> {
        if let Some(why) = inner.wal()?.failure() {
            return Err(why.into());
        }
        let watchers = inner.watchers().clone();
        let (watcher, clock) = (watchers.add(key, marks), inner.options.clock.clone());
        let (process, key, failed) = (inner.process, key.into(), None);
        Ok(Self { inner: Arc::downgrade(inner), watchers, watcher, clock, process, key, failed })
    }

    /// Takes the marks since the last call.
    pub fn take(&self) -> M {
        self.watcher.take()
    }

    /// Changes the marks.
    pub fn change(&self, how: impl FnOnce(&mut M)) {
        self.watcher.change(how);
    }

    /// Returns the store, unless all its handles are gone.
    pub fn store(&self) -> Result<Arc<Inner>, Error> {
        self.inner.upgrade().ok_or(Error::Closed)
    }

    pub fn deadline(&self, timeout: Duration) -> Option<Deadline> {
        let at = self.clock.now().saturating_add(timeout);
        Some(Deadline { at, clock: self.clock.clone() })
    }

    /// Returns the reason why the reader gets nothing more.
    fn why_stopped(&self) -> Error {
        self.inner.upgrade().and_then(|inner| inner.ended()).unwrap_or(Error::Closed)
    }

    /// Waits once, for `left` at most. Returns `false` on a thread that may not wait.
    fn pause(&self, mut left: Option<Duration>) -> Result<bool, Error> {
        let inner = self.store()?;
        if inner.may_wait().is_err() {
            return Ok(false);
        }
        if !inner.options.threads {
            // Nobody else does the store's work.
            inner.step()?;
            inner.flush()?;
            left = Some(left.unwrap_or(PAUSE).min(PAUSE));
        }
        drop(inner);
        match self.watcher.listen(&self.watchers, Waiter::Thread(thread::current())) {
            Listening::Marked => {}
            Listening::Stopped => return Err(self.why_stopped()),
            Listening::Waits => {
                left.map_or_else(thread::park, thread::park_timeout);
                self.watcher.leave();
            }
        }
        Ok(true)
    }
}

impl<M: Marks> Drop for Source<M> {
    fn drop(&mut self) {
        if self.process.is_here() {
            self.watchers.remove(&self.key, &self.watcher);
        }
    }
}

/// A reader that waits for changes of logs.
pub(crate) trait Reader {
    type Event;
    type Marks: Marks;

    /// Returns the next event; `None` if the reader has to wait for it.
    fn advance(&mut self) -> Result<Option<Self::Event>, Error>;

    fn source(&mut self) -> &mut Source<Self::Marks>;

    /// Returns the next event like [`advance`](Self::advance). An error ends the reader: later
    /// calls return it again.
    fn step(&mut self) -> Result<Option<Self::Event>, Error> {
        let source = self.source();
        if let Some(failed) = &source.failed {
            return Err(failed.clone());
        }
        let done = if source.process.is_here() { self.advance() } else { Err(Error::Forked) };
        done.map_err(|error| self.fail(error))
    }

    fn fail(&mut self, error: Error) -> Error {
        self.source().failed.insert(error).clone()
    }
}

/// The moment when a wait ends.
pub(crate) struct Deadline {
    clock: Arc<dyn Clock>,
    at: Duration,
}

impl Deadline {
    fn left(&self) -> Duration {
        self.at.saturating_sub(self.clock.now())
    }
}

/// Blocks the thread until the next event. Returns `None` after the deadline.
pub(crate) fn wait<R: Reader>(reader: &mut R, deadline: Option<Deadline>) -> Result<Option<R::Event>, Error> {
    loop {
        if let Some(event) = reader.step()? {
            return Ok(Some(event));
        }
        let left = deadline.as_ref().map(Deadline::left);
        if left == Some(Duration::ZERO) {
            return Ok(None);
        }
        let may_wait = reader.source().pause(left);
        if !may_wait.map_err(|error| reader.fail(error))? {
            return Err(Error::WouldWait);
        }
    }
}

/// Waits for the next event in a task.
pub(crate) fn poll<R: Reader>(reader: &mut R, context: &mut Context<'_>) -> Poll<Result<R::Event, Error>> {
    loop {
        if let Some(event) = reader.step()? {
            return Poll::Ready(Ok(event));
        }
        let source = reader.source();
        match source.watcher.listen(&source.watchers, Waiter::Task(context.waker().clone())) {
            Listening::Waits => return Poll::Pending,
            Listening::Marked => {}
            Listening::Stopped => {
                let error = source.why_stopped();
                return Poll::Ready(Err(reader.fail(error)));
            }
        }
    }
}
