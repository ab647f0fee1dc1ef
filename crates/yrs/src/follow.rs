//! Followers: return the updates of a document as they become durable.

use std::ops::Range;
use std::time::Duration;

use brooklet::{Bytes, Tail, TailEvent};

use crate::documents::Documents;
use crate::error::Result;
use crate::format::{Payload, payload};

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
    /// The document was cleared, or the number from which the follower started is behind the end of
    /// the document. Drop the document in memory, and [load](Documents::load_doc) it.
    Cleared,
}

/// A follower of a document, which returns each update once, in order, as soon as the update is
/// durable; see [`Documents::updates`].
///
/// It is an iterator that blocks the thread until the next event. An error ends it:
/// [`Error::Store`](crate::Error::Store) once the store is closed or has stopped, after all updates
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
    /// [`Error::NameTooLong`](crate::Error::NameTooLong); [`Error::Store`](crate::Error::Store).
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
    /// [`Error::Store`](crate::Error::Store); [`Error::Damaged`](crate::Error::Damaged).
    pub fn try_next(&mut self) -> Result<Option<DocEvent>> {
        let event = self.tail.try_next()?;
        event.map(|event| self.event(event)).transpose()
    }

    /// Returns the next event. Waits for it for `timeout` at most, and then returns `None`.
    ///
    /// # Errors
    /// Same errors as [`try_next`](Self::try_next).
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<DocEvent>> {
        let event = self.tail.next_timeout(timeout)?;
        event.map(|event| self.event(event)).transpose()
    }

    /// Waits for the next event in a task, in any runtime. To cancel the wait, drop the future: no
    /// event is lost.
    ///
    /// # Errors
    /// Same errors as [`try_next`](Self::try_next).
    pub async fn next_async(&mut self) -> Result<DocEvent> {
        let event = self.tail.next_async().await?;
        self.event(event)
    }

    fn event(&self, event: TailEvent) -> Result<DocEvent> {
        Ok(match event {
            TailEvent::Entry(entry) => match payload(&self.name, &entry)? {
                Payload::Update(update) => DocEvent::Update { seq: entry.seq, update },
                Payload::State(state) => DocEvent::State { seq: entry.seq, state },
            },
            TailEvent::Trimmed(range) => DocEvent::Missed(range),
            // Only a clear removes other entries than the oldest.
            _ => DocEvent::Cleared,
        })
    }
}

impl Iterator for Updates {
    type Item = Result<DocEvent>;

    /// Blocks until the next event. Returns `None` after an error of the store.
    fn next(&mut self) -> Option<Self::Item> {
        let event = self.tail.next()?;
        Some(event.map_err(Into::into).and_then(|event| self.event(event)))
    }
}
