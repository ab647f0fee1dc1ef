//! Metadata of documents: small values by key.

use brooklet::{Bytes, Commit, ErrorKind, Logs, Store};

use crate::documents::Documents;
use crate::error::Result;

impl Documents {
    /// Sets a value of a document's metadata, and waits until the value is durable. Replaces the
    /// value that the key has. The document need not exist.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet_yrs::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// # let documents = brooklet_yrs::Documents::new(&store, "docs/");
    /// documents.insert_meta("notes", "owner", b"Ada")?;
    /// assert_eq!(documents.get_meta("notes", "owner")?.as_deref(), Some(&b"Ada"[..]));
    /// documents.remove_meta("notes", "owner")?;
    /// assert_eq!(documents.get_meta("notes", "owner")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::MetaKeyTooLong`](crate::Error::MetaKeyTooLong);
    /// [`Error::Store`](crate::Error::Store).
    pub fn insert_meta(&self, name: impl AsRef<[u8]>, key: impl AsRef<[u8]>, value: &[u8]) -> Result<()> {
        let key = self.keys.meta(name.as_ref(), key.as_ref())?;
        self.store.snapshot(key, value)?.wait()?;
        Ok(())
    }

    /// Returns a value of a document's metadata; `None` if there is none.
    ///
    /// # Errors
    /// Same errors as [`insert_meta`](Self::insert_meta).
    pub fn get_meta(&self, name: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let key = self.keys.meta(name.as_ref(), key.as_ref())?;
        Ok(self.store.last(key)?.map(|entry| entry.payload))
    }

    /// Removes a value of a document's metadata, and waits until the removal is durable. A value
    /// that does not exist is not an error.
    ///
    /// # Errors
    /// Same errors as [`insert_meta`](Self::insert_meta).
    pub fn remove_meta(&self, name: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<()> {
        self.remove(&self.keys.meta(name.as_ref(), key.as_ref())?)
    }

    /// Removes the log of a value.
    fn remove(&self, key: &[u8]) -> Result<()> {
        match self.store.delete(key) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => Ok(removed?.wait()?),
        }
    }

    /// Removes the logs of values, by as few commits as these have room for.
    pub(crate) fn remove_all(&self, keys: &[Vec<u8>]) -> Result<()> {
        let mut commit = Commit::new();
        for key in keys {
            // The store deletes only what exists.
            commit.append(key, "").delete(key);
        }
        match self.store.commit(&commit) {
            Err(brooklet::Error::CommitTooLarge { .. }) if keys.len() > 1 => {
                let (some, others) = keys.split_at(keys.len() / 2);
                self.remove_all(some)?;
                self.remove_all(others)
            }
            // A full store takes a deletion alone.
            Err(error) if error.kind() == ErrorKind::Full => keys.iter().try_for_each(|key| self.remove(key)),
            removed => Ok(removed?.wait()?),
        }
    }

    /// Lists the metadata of a document: keys and values, in the order of the keys.
    ///
    /// # Errors
    /// Same errors as [`insert_meta`](Self::insert_meta).
    pub fn iter_meta(&self, name: impl AsRef<[u8]>) -> Result<MetaEntries> {
        let prefix = self.keys.meta(name.as_ref(), b"")?;
        let logs = self.store.scan(&prefix)?;
        Ok(MetaEntries { store: self.store.clone(), logs, skip: prefix.len() })
    }
}

/// An iterator over keys and values of metadata; see [`Documents::iter_meta`].
pub struct MetaEntries {
    store: Store,
    logs: Logs,
    /// Length of the part of a key of the store before the key of the metadata.
    skip: usize,
}

impl MetaEntries {
    fn step(&mut self) -> Result<Option<(Vec<u8>, Bytes)>> {
        for log in self.logs.by_ref() {
            let mut key = log?.key;
            // A value that was removed since the listing began is left out.
            if let Some(entry) = self.store.last(&key)? {
                return Ok(Some((key.split_off(self.skip), entry.payload)));
            }
        }
        Ok(None)
    }
}

impl Iterator for MetaEntries {
    type Item = Result<(Vec<u8>, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}
