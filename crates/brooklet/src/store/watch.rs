//! Watches: readers that wait for changes of many logs.

use std::collections::btree_map;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;

use crate::error::{Error, KeyText};
use crate::model::Bounds;
use crate::state::watchers::marks::PrefixMarks;
use crate::store::Store;
use crate::store::waiting::{Reader, Source, poll, wait};

/// Default for [`Watch::with_limit`].
const MOST: usize = 65_536;

/// One step of a [`Watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// A log changed. Later changes of the log, until the watch returned this event, are included.
    Moved {
        /// The key of the log.
        key: Vec<u8>,
        /// The bounds of the log after the last change.
        bounds: Bounds,
    },
    /// A log was deleted, and does not exist now.
    Deleted {
        /// The key of the log.
        key: Vec<u8>,
    },
    /// More logs changed than the watch holds, or logs were imported. The watch does not name these
    /// logs: [list](Store::scan) the logs, or read the logs of interest. Later changes are returned
    /// again.
    Missed,
}

/// A reader that returns the logs that changed, and where they end now; see [`Store::watch`].
///
/// A watch is an iterator that blocks the thread; [`try_next`](Self::try_next) and
/// [`next_timeout`](Self::next_timeout) do not block, or not for ever. In a task, await
/// [`next_async`](Self::next_async), or take the [stream](Self::into_stream).
///
/// The watch returns each changed log once, however often it changed since the last event of this
/// log. Until they are returned, it holds the keys of the changed logs, of at most [so
/// many](Self::with_limit). Changes become known in batches: within a batch, the events have the
/// order of the keys.
///
/// # Errors
///
/// The errors of a [`Tail`](crate::Tail), except [`Error::Damaged`].
pub struct Watch {
    source: Source<PrefixMarks>,
    batch: btree_map::IntoIter<Box<[u8]>, Option<Bounds>>,
    /// Bytes that the returned keys omit.
    omitted: usize,
}

impl Store {
    /// Watches all logs whose keys start with `prefix`: the watch returns each log that a commit
    /// changes from now on, once the commit is durable. Commits to a [memory
    /// space](crate::Class::Memory) count at once.
    ///
    /// Entries that expire by their age are no change; the store's removal of such entries is one.
    /// In a memory space, this removal is no change, and neither is a new retention of the space.
    ///
    /// ```
    /// use brooklet::{Bounds, WatchEvent};
    ///
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let mut watch = store.watch("doc/")?;
    /// store.append_many("doc/7", ["a", "b"])?.wait()?;
    /// store.append("user/1", "x")?.wait()?;
    /// let moved = WatchEvent::Moved { key: b"doc/7".into(), bounds: Bounds { first: 0, next: 2 } };
    /// assert_eq!(watch.try_next()?, Some(moved));
    /// assert_eq!(watch.try_next()?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`]: nothing changes in a store that is open read-only. [`Error::Closed`],
    /// [`Error::Stopped`].
    pub fn watch(&self, prefix: impl AsRef<[u8]>) -> Result<Watch, Error> {
        self.watch_below(prefix.as_ref(), 0)
    }

    pub(super) fn watch_below(&self, prefix: &[u8], omitted: usize) -> Result<Watch, Error> {
        let source = Source::new(&self.shared(), prefix, PrefixMarks::new(MOST))?;
        Ok(Watch { source, batch: btree_map::IntoIter::default(), omitted })
    }
}

impl Watch {
    /// Sets the maximum number of changed logs that the watch holds, at least 1; default: 65,536.
    /// When more logs have changed, the watch returns [`WatchEvent::Missed`] instead.
    pub fn with_limit(self, logs: usize) -> Self {
        self.source.change(|marks| marks.set_limit(logs.max(1)));
        self
    }

    /// Returns the next event, or `None` if the watch would wait for it.
    pub fn try_next(&mut self) -> Result<Option<WatchEvent>, Error> {
        self.step()
    }

    /// Returns the next event. Waits for it for `timeout` at most, and then returns `None`.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<WatchEvent>, Error> {
        let deadline = self.source.deadline(timeout);
        wait(self, deadline)
    }

    /// Waits for the next event in a task. To cancel the wait, drop the future: no event is lost.
    pub async fn next_async(&mut self) -> Result<WatchEvent, Error> {
        poll_fn(|context| poll(self, context)).await
    }

    /// Converts the watch to a stream, for tasks.
    pub fn into_stream(self) -> WatchStream {
        WatchStream(self)
    }
}

impl Reader for Watch {
    type Event = WatchEvent;
    type Marks = PrefixMarks;

    fn advance(&mut self) -> Result<Option<WatchEvent>, Error> {
        loop {
            if let Some((key, bounds)) = self.batch.next() {
                let key = key[self.omitted..].to_vec();
                return Ok(Some(match bounds {
                    Some(bounds) => WatchEvent::Moved { key, bounds },
                    None => WatchEvent::Deleted { key },
                }));
            }
            let marks = self.source.take();
            if marks.missed {
                return Ok(Some(WatchEvent::Missed));
            }
            if marks.logs.is_empty() {
                return Ok(None);
            }
            self.batch = marks.logs.into_iter();
        }
    }

    fn source(&mut self) -> &mut Source<PrefixMarks> {
        &mut self.source
    }
}

impl Iterator for Watch {
    type Item = Result<WatchEvent, Error>;

    /// Blocks until the next event. Returns `None` after an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.source.failed.is_some() {
            return None;
        }
        wait(self, None).transpose()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({})", KeyText::of(&self.source.key))
    }
}

/// A [`Watch`] as a stream, which ends after an error.
#[derive(Debug)]
pub struct WatchStream(Watch);

impl WatchStream {
    /// Converts the stream back to a watch.
    pub fn into_watch(self) -> Watch {
        self.0
    }
}

impl Stream for WatchStream {
    type Item = Result<WatchEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.0.source.failed.is_some() {
            return Poll::Ready(None);
        }
        poll(&mut self.0, context).map(Some)
    }
}
