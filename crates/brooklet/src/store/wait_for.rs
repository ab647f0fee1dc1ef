//! Waiting until a log has reached a number: by a thread, and by a task.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error::{Error, KeyText};
use crate::model::key::check_key;
use crate::state::watchers::marks::LogMarks;
use crate::store::Store;
use crate::store::waiting::{Reader, Source, poll, wait};

/// A task's wait until a log has reached a number; see [`Store::wait_for_async`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct WaitingFor(Result<WaitFor, Error>);

impl Store {
    /// Blocks until the log's next number is at least `next`, for `timeout` at most. Returns
    /// whether the log has reached the number, also if the entries before it were trimmed,
    /// truncated or deleted before the call noticed. The log need not exist yet.
    ///
    /// Only durable entries count, and entries of a [memory space](crate::Class::Memory).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// assert!(!store.wait_for("doc", 1, Duration::from_millis(1))?);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| store.append("doc", "a").unwrap().wait().unwrap());
    ///     assert!(store.wait_for("doc", 1, Duration::MAX)?);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Closed`], [`Error::Stopped`], [`Error::WouldWait`] in a waker.
    pub fn wait_for(&self, key: impl AsRef<[u8]>, next: u64, timeout: Duration) -> Result<bool, Error> {
        let mut wait_for = WaitFor::new(self, key.as_ref(), next)?;
        let deadline = wait_for.source.deadline(timeout);
        Ok(wait(&mut wait_for, deadline)?.is_some())
    }

    /// Waits in a task until the log's next number is at least `next`, like
    /// [`wait_for`](Self::wait_for), and blocks no thread meanwhile. The wait begins with the call:
    /// it also ends if the log reaches the number before the first poll, and entries are trimmed,
    /// truncated or deleted before the task looks.
    ///
    /// To cancel the wait, or to limit its time, drop the future: nothing of it remains. The future
    /// does not keep the store open.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let reached = store.wait_for_async("doc", 2);
    /// store.append_async("doc", "a").await?;
    /// store.append_async("doc", "b").await?;
    /// reached.await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Closed`], [`Error::Stopped`].
    pub fn wait_for_async(&self, key: impl AsRef<[u8]>, next: u64) -> WaitingFor {
        WaitingFor(WaitFor::new(self, key.as_ref(), next))
    }
}

impl Future for WaitingFor {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(wait_for) => poll(wait_for, context),
            Err(error) => Poll::Ready(Err(error.clone())),
        }
    }
}

impl fmt::Debug for WaitingFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(WaitFor { source, next, .. }) => {
                write!(f, "WaitingFor({} at {next})", KeyText::of(&source.key))
            }
            Err(error) => write!(f, "WaitingFor({error})"),
        }
    }
}

/// A call that waits until a log has reached a number.
struct WaitFor {
    source: Source<LogMarks>,
    next: u64,
    /// Whether the log's bounds must be looked up.
    look: bool,
}

impl WaitFor {
    fn new(store: &Store, key: &[u8], next: u64) -> Result<Self, Error> {
        check_key(key)?;
        let source = Source::new(&store.shared(), key, LogMarks::default())?;
        Ok(Self { source, next, look: true })
    }
}

impl Reader for WaitFor {
    type Event = ();
    type Marks = LogMarks;

    fn advance(&mut self) -> Result<Option<()>, Error> {
        let marks = self.source.take();
        let mut reached = marks.reached;
        // Imported logs have no numbers in their marks.
        if self.look || marks.changed && reached < self.next {
            self.look = false;
            let inner = self.source.store()?;
            let bounds = inner.visible_bounds(&self.source.key)?;
            reached = reached.max(bounds.map_or(0, |bounds| bounds.next));
        }
        Ok((reached >= self.next).then_some(()))
    }

    fn source(&mut self) -> &mut Source<LogMarks> {
        &mut self.source
    }
}
