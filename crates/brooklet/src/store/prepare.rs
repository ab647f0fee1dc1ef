//! The preparation of long commits.

use std::sync::Arc;

use crate::error::Error;
use crate::model::commit::Commit;
use crate::model::rehearsal::Rehearsal;
use crate::store::Store;

impl Store {
    /// Prepares a long commit, so that other commits hardly wait for it: brings its logs to memory,
    /// and waits for the room that it needs. [`commit`](Self::commit) then takes a short time: some
    /// tenths of a microsecond for each operation.
    ///
    /// [`commit`](Self::commit) prepares a long commit by itself. Call `prepare` if you need to do
    /// something in between that others wait for, such as to take a lock of your own.
    ///
    /// The call changes no log, and reserves no room. It puts the next checkpoint off until the
    /// commit comes, for a second at most. A commit of less than 4,000 operations is not
    /// a long one: then the call does nothing. If the store lacks room for the commit, or a log of
    /// the commit cannot be read, then [`commit`](Self::commit) returns the error.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # use brooklet::{Commit, Store};
    /// # let store = Store::in_memory(1)?;
    /// let mut commit = Commit::new();
    /// for n in 0..5_000 {
    ///     commit.append(format!("import/{n}"), "a first entry");
    /// }
    /// store.prepare(&mut commit)?;
    /// store.commit(&commit)?.wait()?;
    /// assert_eq!(store.bounds("import/4999")?.next, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of the first operation that [`commit`](Self::commit) always refuses, such as
    /// [`Error::PayloadTooLarge`]; [`Error::Forked`].
    pub fn prepare(&self, commit: &mut Commit) -> Result<(), Error> {
        commit.set_rehearsal(self.rehearse(commit)?);
        Ok(())
    }

    /// Prepares a commit, and returns its rehearsal.
    pub(super) fn rehearse(&self, commit: &Commit) -> Result<Arc<Rehearsal>, Error> {
        let inner = self.inner();
        inner.here()?;
        commit.with_ops(|ops| {
            ops.iter().try_for_each(|op| inner.check(op))?;
            Ok(inner.prepare(ops).into())
        })
    }
}
