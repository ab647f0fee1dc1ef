//! Calls for a reader beside the process that writes the store.

use crate::engine::beside::Cut;
use crate::error::Error;
use crate::store::Store;

impl Store {
    /// Returns whether the process that writes the store has recorded anything newer than this
    /// store shows. Only for a store that is open [beside its
    /// writer](crate::Options::beside_writer): open the store again to see it. Other stores are
    /// never outdated.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn is_outdated(&self) -> Result<bool, Error> {
        self.inner().here()?;
        self.inner().is_outdated()
    }

    /// Returns which entries a log lost at its end, by a truncation or a deletion, between the
    /// moment of `earlier` and the moment of this store. Both are open [beside the
    /// writer](crate::Options::beside_writer) of the same store. For a reader that opens the store
    /// again and again, and follows a log.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), brooklet::Error> {
    /// use brooklet::Cut;
    ///
    /// let open = || brooklet::Options::new().beside_writer(true).open("documents.brooklet");
    /// let (earlier, mut next) = (open()?, 12);
    /// let now = open()?;
    /// next = match now.cut_since(&earlier, "doc/7")? {
    ///     Cut::Nothing => next,
    ///     Cut::From(cut) => cut.min(next),
    ///     // The log may be another one by now: read all of it.
    ///     Cut::Unknown => 0,
    /// };
    /// println!("{:?}", now.read_available("doc/7", next..)?.next());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn cut_since(&self, earlier: &Self, key: impl AsRef<[u8]>) -> Result<Cut, Error> {
        self.inner().here()?;
        self.inner().cut_since(earlier.inner(), key.as_ref())
    }
}
