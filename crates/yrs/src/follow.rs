//! Followers: return the updates of a document as they become durable.

use std::ops::Range;
use std::time::Duration;

use brooklet::{Bytes, Tail, TailEvent};

use crate::documents::Documents;
use crate::error::{Error, Result};
use crate::format::{Payload, first_of, payload};

/// One step of [`Updates`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DocEvent {
    /// The next update of the document.
    Update {
        /// Number of the update.
        seq: u64,
        /// The update, in lib0 v1 encoding.
        update: Bytes,
    },
    /// A flush stored the merged state of updates before this entry. A reader that missed none of
    /// these needs nothing of the state. Updates that build on missing ones are not part of the
    /// state: the flush stored them again, and they come again behind the state.
    State {
        /// Number of the entry.
        seq: u64,
        /// The state, as an update in lib0 v1 encoding.
        state: Bytes,
    },
    /// A flush merged these updates before the follower returned them. A [`State`](Self::State)
    /// follows; with the updates behind it, it has all of them. Apply what follows, or
    /// [load](Documents::load_doc) the document.
    Missed(Range<u64>),
    /// The document was cleared, also before the follower started, or the number from which the
    /// follower started is behind the end of the document. Drop the document in memory, and
    /// [load](Documents::load_doc) it.
    Cleared,
}

/// A follower of a document, which returns each update once, in order, as soon as the update is
/// durable; see [`Documents::updates`].
///
/// It is an iterator that blocks the thread until the next event. An error ends it:
/// [`Error::Store`] once the store is closed or has stopped, after all updates
/// that were durable. A follower does not keep its store open.
#[derive(Debug)]
pub struct Updates {
    name: Box<[u8]>,
    tail: Tail,
}

impl Documents {
    /// Follows a document from update `from` on: the number that
    /// [`load_doc`](Documents::load_doc) returned, or the number behind the last event of a former
    /// follower. The document need not exist yet.
    ///
    /// ```
    /// use brooklet_yrs::{DocEvent, Documents};
    /// use yrs::{Doc, Text, Transact};
    ///
    /// # fn main() -> Result<(), brooklet_yrs::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// # let documents = Documents::new(&store, "docs/");
    /// let doc = Doc::new();
    /// let from = documents.load_doc("notes", &mut doc.transact_mut())?.unwrap_or(0);
    /// let mut updates = documents.updates("notes", from)?;
    ///
    /// let text = doc.get_or_insert_text("text");
    /// let mut txn = doc.transact_mut();
    /// text.push(&mut txn, "hello");
    /// documents.push_update("notes", &txn.encode_update_v1())?;
    /// match updates.next().transpose()? {
    ///     Some(DocEvent::Update { update, .. }) => println!("broadcast {} bytes", update.len()),
    ///     Some(DocEvent::State { .. }) => println!("a flush: nothing is new"),
    ///     _ => println!("load the document again"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NameTooLong`]; [`Error::Store`].
    pub fn updates(&self, name: impl AsRef<[u8]>, from: u64) -> Result<Updates> {
        let name = name.as_ref();
        let tail = self.store.tail(self.keys.updates(name)?, from)?;
        Ok(Updates { name: name.into(), tail })
    }
}

impl Updates {
    /// Returns the number of the next update, unless a flush drops that update before.
    pub fn position(&self) -> u64 {
        self.tail.position()
    }

    /// Returns the next event, or `None` if the call would wait for it.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::Damaged`].
    pub fn try_next(&mut self) -> Result<Option<DocEvent>> {
        while let Some(event) = self.tail.try_next()? {
            if let Some(event) = self.event(event)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Returns the next event. Waits for it for `timeout` at most, and then returns `None`.
    ///
    /// # Errors
    /// Same errors as [`try_next`](Self::try_next).
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<DocEvent>> {
        while let Some(event) = self.tail.next_timeout(timeout)? {
            if let Some(event) = self.event(event)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Waits for the next event in a task, in any runtime. To cancel the wait, drop the future: no
    /// event is lost.
    ///
    /// # Errors
    /// Same errors as [`try_next`](Self::try_next).
    pub async fn next_async(&mut self) -> Result<DocEvent> {
        loop {
            let event = self.tail.next_async().await?;
            if let Some(event) = self.event(event)? {
                return Ok(event);
            }
        }
    }

    /// Returns the event of the document that an event of its log is, if it is one.
    fn event(&self, event: TailEvent) -> Result<Option<DocEvent>> {
        Ok(Some(match event {
            TailEvent::Entry(entry) => match payload(&self.name, &entry)? {
                Payload::Update(update) => DocEvent::Update { seq: entry.seq, update },
                Payload::State(state) => DocEvent::State { seq: entry.seq, state },
            },
            TailEvent::Trimmed(gap) => return Ok(missed(gap)),
            // Only a clear removes other entries than the oldest.
            _ => DocEvent::Cleared,
        }))
    }
}

impl Iterator for Updates {
    type Item = Result<DocEvent>;

    /// Blocks until the next event. Returns `None` after an error of the store.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let event = self.tail.next()?;
            match event.map_err(Error::from).and_then(|event| self.event(event)) {
                Ok(Some(event)) => return Some(Ok(event)),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Returns the event of numbers that a log does not have. `None` if the document never had them.
fn missed(gap: Range<u64>) -> Option<DocEvent> {
    let first = first_of(gap.end);
    if gap.start >= first {
        return Some(DocEvent::Missed(gap));
    }
    // A follower that begins at 0 knows no document that could have been cleared.
    match gap.start > 0 {
        true => Some(DocEvent::Cleared),
        false => (first < gap.end).then_some(DocEvent::Missed(first..gap.end)),
    }
}
