//! Pushes: append an update to a document that is there, or create the document with it.
//!
//! A document is created at a number behind all numbers of the documents of its name that were
//! cleared, so that a follower from an old number notices the clear. A push takes for granted that
//! the document is there: its commit has an operation that fails where the log does not exist. Only
//! then, the push reads the count of clears, and creates the log.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use brooklet::{Commit, Committing};

use crate::documents::Documents;
use crate::error::Result;
use crate::format::first_number;

/// An update that is to be pushed.
#[derive(Debug)]
pub(crate) struct Push {
    pub name: Box<[u8]>,
    pub key: Vec<u8>,
    pub entry: Vec<u8>,
    /// Number of commits that another call was in the way of.
    pub conflicts: u32,
}

impl Push {
    /// Returns the commit that appends the update to a document that is there.
    pub fn commit(&self) -> Commit {
        let mut commit = Commit::new();
        // The trim drops nothing, and fails where the log does not exist.
        commit.trim(&self.key, 0).append(&self.key, &self.entry);
        commit
    }

    /// Returns the commit to try next, after the store refused one.
    pub fn next_try(&mut self, documents: &Documents, refused: brooklet::Error) -> Result<Commit> {
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
        let clears = documents.clears(&self.name)?;
        let mut commit = Commit::new();
        commit.expect_next(documents.keys.clears(&self.name), clears).expect_absent(&self.key);
        if clears > 0 {
            commit.begin_at(&self.key, first_number(clears));
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
    pub(crate) fn new(documents: &Documents, push: Result<Push>) -> Self {
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
