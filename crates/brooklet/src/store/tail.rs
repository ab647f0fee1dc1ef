//! Tails: readers of one log that wait for its next entries.

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use brooklet_io::seeded::bug;
use futures_core::Stream;

use crate::error::{Error, KeyText};
use crate::model::key::check_key;
use crate::read::asked::Asked;
use crate::read::{Entries, Entry};
use crate::state::watchers::marks::LogMarks;
use crate::store::Store;
use crate::store::waiting::{Reader, Source, poll, wait};

/// One step of a [`Tail`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TailEvent {
    /// The next entry of the log.
    Entry(Entry),
    /// The log dropped these entries before the tail returned them: by a trim, a snapshot or its
    /// retention. The tail continues behind them.
    Trimmed(Range<u64>),
    /// Entries that the tail returned before, from `next` on, are no longer in the log: the log was
    /// truncated. The tail continues with entry `next`, which may be appended later.
    ///
    /// A tail that starts behind the end of the log returns this event first.
    Truncated {
        /// The number of the next entry that the tail returns.
        next: u64,
    },
    /// The log was deleted. The tail waits for a log of the same key, and continues with entry 0.
    Deleted,
}

/// A reader that follows a log: it returns every entry once, in order, as soon as the entry is on
/// stable media, and waits for the next; see [`Store::tail`].
///
/// A tail is an iterator that blocks the thread; [`try_next`](Self::try_next) and
/// [`next_timeout`](Self::next_timeout) do not block, or not for ever. In a task, await
/// [`next_async`](Self::next_async), or take the [stream](Self::into_stream).
///
/// A waiting tail uses no processor time, and some hundred bytes of memory. A tail that is not
/// read stores no entries: the entries stay in the log, as long as the log keeps them. Between two
/// events, a tail holds at most one view of the log, as [`Entries`] does; a tail that is not read
/// to its end for long so keeps disk space of replaced runs in use.
///
/// # Errors
///
/// An error ends the tail: [`Error::Closed`] once the store is closed and [`Error::Stopped`] once
/// it has stopped, after all entries that were on stable media; [`Error::Damaged`] if an entry
/// does not read back as it was written; [`Error::Forked`]. [`Error::WouldWait`] in a waker does
/// not end the tail. A tail does not keep its store open.
pub struct Tail {
    source: Source<LogMarks>,
    /// The view that the tail returns entries from.
    entries: Option<Box<Entries>>,
    /// The first number from which the view is outdated.
    outdated: u64,
    /// The number of the next entry.
    next: u64,
    /// Whether the log may have entries that the view does not have.
    look: bool,
}

impl Store {
    /// Follows a log from entry `from` on: the tail returns each entry that the log has, and then
    /// each entry as it becomes durable. Entries of a [memory space](crate::Class::Memory) count
    /// as soon as they are committed. The log need not exist yet.
    ///
    /// To continue where a former tail stopped, pass the number behind its last entry. To follow
    /// only new entries, pass the log's [next number](Self::get_bounds).
    ///
    /// ```
    /// use brooklet::TailEvent;
    ///
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let mut tail = store.tail("doc", 0)?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| store.append_many("doc", ["a", "b"]).unwrap().wait().unwrap());
    ///     for (seq, payload) in ["a", "b"].into_iter().enumerate() {
    ///         let Some(Ok(TailEvent::Entry(entry))) = tail.next() else { panic!("an entry follows") };
    ///         assert_eq!((entry.seq, &entry.payload[..]), (seq as u64, payload.as_bytes()));
    ///     }
    /// });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`]: nothing is appended to a store that is open read-only.
    /// [`Error::Closed`], [`Error::Stopped`].
    pub fn tail(&self, key: impl AsRef<[u8]>, from: u64) -> Result<Tail, Error> {
        let key = key.as_ref();
        check_key(key)?;
        let source = Source::new(&self.shared(), key, LogMarks::default())?;
        Ok(Tail { source, entries: None, outdated: u64::MAX, next: from, look: true })
    }
}

impl Tail {
    /// Returns the number of the next entry that the tail returns, unless the log drops that entry
    /// before.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Returns the next event, or `None` if the tail would wait for it.
    pub fn try_next(&mut self) -> Result<Option<TailEvent>, Error> {
        self.step()
    }

    /// Returns the next event. Waits for it for `timeout` at most, and then returns `None`.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<TailEvent>, Error> {
        let deadline = self.source.deadline(timeout);
        wait(self, deadline)
    }

    /// Waits for the next event in a task. To cancel the wait, drop the future: no event is lost.
    ///
    /// Entries that are in memory, as new entries are, are read at once. Older entries are read
    /// from the file on the task's thread, as by [`Store::read`].
    pub async fn next_async(&mut self) -> Result<TailEvent, Error> {
        poll_fn(|context| poll(self, context)).await
    }

    /// Converts the tail to a stream, for tasks; see [`next_async`](Self::next_async).
    pub fn into_stream(self) -> TailStream {
        TailStream(self)
    }

    /// Returns the event that the marks require, if any.
    fn heed(&mut self, marks: LogMarks) -> Option<TailEvent> {
        self.look |= marks.changed;
        let (next, event) = match marks {
            LogMarks { deleted: true, .. } => (0, TailEvent::Deleted),
            LogMarks { truncated: Some(next), .. } if next < self.next => {
                (next, TailEvent::Truncated { next })
            }
            _ => {
                // The entries of the view before this number are still in the log.
                let truncated = marks.truncated.filter(|_| !bug("tail-trusts-its-view"));
                self.outdated = self.outdated.min(truncated.unwrap_or(u64::MAX));
                return None;
            }
        };
        self.next = next;
        self.drop_view();
        Some(event)
    }

    fn drop_view(&mut self) {
        (self.entries, self.outdated) = (None, u64::MAX);
    }

    /// Returns the next event of the view; `None` at its end.
    fn next_of_view(&mut self) -> Result<Option<TailEvent>, Error> {
        if self.next >= self.outdated {
            return Ok(None);
        }
        let Some(entries) = &mut self.entries else { return Ok(None) };
        let first = entries.range().start;
        if first > self.next {
            let gap = self.next..first;
            self.next = first;
            return Ok(Some(TailEvent::Trimmed(gap)));
        }
        if first < self.next {
            self.next = first;
            return Ok(Some(TailEvent::Truncated { next: first }));
        }
        let Some(entry) = entries.next().transpose()? else { return Ok(None) };
        self.next = entry.seq + 1;
        Ok(Some(TailEvent::Entry(entry)))
    }
}

impl Reader for Tail {
    type Event = TailEvent;
    type Marks = LogMarks;

    fn advance(&mut self) -> Result<Option<TailEvent>, Error> {
        loop {
            // The marks are taken after the view: they include all changes that the view shows.
            let marks = self.source.take();
            if let Some(event) = self.heed(marks) {
                return Ok(Some(event));
            }
            if let Some(event) = self.next_of_view()? {
                return Ok(Some(event));
            }
            self.drop_view();
            if !std::mem::take(&mut self.look) {
                return Ok(None);
            }
            let inner = self.source.store()?;
            let asked = Asked::available(&(self.next..));
            self.entries = Some(Box::new(inner.read_visible(&self.source.key, &asked)?));
        }
    }

    fn source(&mut self) -> &mut Source<LogMarks> {
        &mut self.source
    }
}

impl Iterator for Tail {
    type Item = Result<TailEvent, Error>;

    /// Blocks until the next event. Returns `None` after an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.source.failed.is_some() {
            return None;
        }
        wait(self, None).transpose()
    }
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tail({} from {})", KeyText::of(&self.source.key), self.next)
    }
}

/// A [`Tail`] as a stream, which ends after an error.
#[derive(Debug)]
pub struct TailStream(Tail);

impl TailStream {
    /// Converts the stream back to a tail.
    pub fn into_tail(self) -> Tail {
        self.0
    }
}

impl Stream for TailStream {
    type Item = Result<TailEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.0.source.failed.is_some() {
            return Poll::Ready(None);
        }
        poll(&mut self.0, context).map(Some)
    }
}
