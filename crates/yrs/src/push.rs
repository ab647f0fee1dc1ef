//! Pushes: append an update to a document that is there, or create the document with it.
//!
//! A document is created at a number behind all numbers of the documents of its name that were
//! cleared, so that a follower from an old number notices the clear. A push takes for granted that
//! the document is there: its commit has an operation that fails where the log does not exist. Only
//! then, the push reads the count of clears, and creates the log.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use brooklet::{Commit, Committing, Ticket};

use crate::documents::Documents;
use crate::error::{Error, Result};
use crate::format::{count_to_begin_with, first_number, update_entry};
use crate::update::decode;

impl Documents {
    /// Appends an update to a document, and waits until the update is durable, or as its
    /// [space](brooklet::Space) requires. Returns the number of the update. Creates the document if
    /// it does not exist.
    ///
    /// The update is in lib0 v1 encoding. The call decodes the update, and refuses bytes that do
    /// not decode. It does not apply the update: an update that names other updates which the
    /// document lacks is stored, and becomes visible once the others are stored.
    ///
    /// A server that has the document in memory applies an update of a client there first, and
    /// pushes it if yrs accepts it.
    ///
    /// # Errors
    /// [`Error::InvalidUpdate`], [`Error::NameTooLong`]; [`Error::Store`].
    pub fn push_update(&self, name: impl AsRef<[u8]>, update: &[u8]) -> Result<u64> {
        let name = name.as_ref();
        let ticket = self.submit_update(name, update)?;
        ticket.wait()?;
        // Numbers have no gaps: exactly one of `flush_every` pushes flushes.
        let seq = ticket.seq();
        if self.flush_every > 0
            && (seq + 1).is_multiple_of(self.flush_every)
            && let Err(error) = self.flush_doc(name)
        {
            // The update is durable all the same.
            tracing::warn!(document = %name.escape_ascii(), %error, "a document was not flushed");
        }
        Ok(seq)
    }

    /// Appends an update to a document, and returns a ticket with the number of the update.
    /// [`Ticket::wait`] waits until the update is durable. For callers that have many updates in
    /// flight.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet_yrs::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// # let documents = brooklet_yrs::Documents::new(&store, "docs/");
    /// let empty = [0, 0];
    /// let first = documents.submit_update("notes", &empty)?;
    /// let second = documents.submit_update("notes", &empty)?;
    /// assert_eq!((first.seq(), second.seq()), (0, 1));
    /// second.wait()?;   // so is the first
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same errors as [`push_update`](Self::push_update).
    pub fn submit_update(&self, name: impl AsRef<[u8]>, update: &[u8]) -> Result<Ticket> {
        let mut push = self.accept(name.as_ref(), update)?;
        let mut commit = push.commit();
        loop {
            match self.store.commit(&commit) {
                Ok(ticket) => return Ok(ticket),
                Err(refused) => commit = push.next_try(self, refused)?,
            }
        }
    }

    /// Appends an update to a document in a task, in any runtime. The future returns the number of
    /// the update once the update is durable, and borrows nothing. The call decodes the update at
    /// once. The first update of a document may read the store on the task's thread.
    ///
    /// ```
    /// use brooklet_yrs::{Documents, Error};
    ///
    /// async fn receive(documents: &Documents, update: Vec<u8>) -> Result<(), Error> {
    ///     let seq = documents.push_update_async("notes", &update).await?;
    ///     println!("update {seq} is durable: broadcast it");
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// The future returns the errors of [`push_update`](Self::push_update).
    pub fn push_update_async(&self, name: impl AsRef<[u8]>, update: &[u8]) -> Pushing {
        Pushing::new(self, self.accept(name.as_ref(), update))
    }

    /// Checks an update.
    fn accept(&self, name: &[u8], update: &[u8]) -> Result<Push> {
        let key = self.keys.updates(name)?;
        decode(update).map_err(|why| Error::InvalidUpdate { why })?;
        Ok(Push { name: name.into(), key, entry: update_entry(update), conflicts: 0 })
    }
}

/// An update that is to be pushed.
#[derive(Debug)]
struct Push {
    name: Box<[u8]>,
    key: Vec<u8>,
    entry: Vec<u8>,
    /// Number of commits that another call was in the way of.
    conflicts: u32,
}

impl Push {
    /// Returns the commit that appends the update to a document that is there.
    fn commit(&self) -> Commit {
        let mut commit = Commit::new();
        // The trim drops nothing, and fails where the log does not exist.
        commit.trim(&self.key, 0).append(&self.key, &self.entry);
        commit
    }

    /// Returns the commit to try next, after the store refused one.
    fn next_try(&mut self, documents: &Documents, refused: brooklet::Error) -> Result<Commit> {
        match refused {
            brooklet::Error::UnknownLog { .. } => self.creation(documents),
            // Another push has created the document, or a clear was counted.
            brooklet::Error::Conflict { .. } => {
                if self.conflicts > 0 {
                    // Reads show durable entries only.
                    documents.store.flush()?;
                }
                self.conflicts += 1;
                Ok(self.commit())
            }
            other => Err(other.into()),
        }
    }

    /// Returns the commit that creates the document.
    fn creation(&self, documents: &Documents) -> Result<Commit> {
        let (clears, key) = (documents.clears(&self.name)?, documents.keys.clears(&self.name));
        let mut commit = Commit::new();
        commit.expect_next(&key, clears).expect_absent(&self.key);
        let count = count_to_begin_with(clears);
        if count > clears {
            commit.begin_at(&key, count);
        }
        if count > 0 {
            commit.begin_at(&self.key, first_number(count));
        }
        commit.append(&self.key, &self.entry);
        Ok(commit)
    }
}

/// A push of a task; see [`Documents::push_update_async`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Pushing(Result<Running>);

#[derive(Debug)]
struct Running {
    documents: Documents,
    push: Push,
    committing: Committing,
}

impl Pushing {
    fn new(documents: &Documents, push: Result<Push>) -> Self {
        Self(push.map(|push| {
            let committing = documents.store.commit_async(push.commit());
            Running { documents: documents.clone(), push, committing }
        }))
    }
}

impl Future for Pushing {
    type Output = Result<u64>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Running { documents, push, committing } = match &mut self.0 {
            Ok(running) => running,
            Err(error) => return Poll::Ready(Err(error.clone())),
        };
        loop {
            let refused = match Pin::new(&mut *committing).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(seqs)) => return Poll::Ready(Ok(seqs[0])),
                Poll::Ready(Err(error)) => error,
            };
            match push.next_try(documents, refused) {
                Ok(commit) => *committing = documents.store.commit_async(commit),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
