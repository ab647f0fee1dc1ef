//! The objects in a bucket: writes, reads, lists and deletes them.

use std::ops::Range;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error as Refusal, ObjectStoreExt, PutMode};

use crate::bucket::Bucket;
use crate::error::Error;
use crate::record::{TOMBSTONE, number_of};
use crate::request::{Pending, again, count};

/// Most names in one answer to a list request, at most services.
const LISTED_AT_ONCE: u64 = 1000;

impl Bucket {
    /// Writes an object under a name that no other upload uses.
    pub(crate) fn put(&self, name: &str, data: Bytes) -> Pending<()> {
        let request = self.request(name);
        self.begin(async move {
            let put = || {
                count(&request.costs.puts, 1);
                count(&request.costs.sent, data.len() as u64);
                request.store.put(&request.path, data.clone().into())
            };
            again(put).await.map(drop).map_err(request.failed("writing"))
        })
    }

    /// Creates an object, unless one of that name exists. Tries once: the caller must find out
    /// whether a failed try had an effect.
    pub(crate) fn create(&self, name: &str, data: Bytes) -> Result<Created, Error> {
        let request = self.request(name);
        let create = self.begin(async move {
            count(&request.costs.puts, 1);
            count(&request.costs.sent, data.len() as u64);
            match request.store.put_opts(&request.path, data.into(), PutMode::Create.into()).await {
                Ok(_) => Ok(Created::Done),
                // Services report a failed condition by one of two errors; both mean that the
                // object exists.
                Err(refusal @ (Refusal::AlreadyExists { .. } | Refusal::Precondition { .. })) => {
                    Ok(Created::Exists(request.failed("creating")(refusal)))
                }
                Err(refusal) => Err(request.failed("creating")(refusal)),
            }
        });
        create.wait()
    }

    /// Reads an object, or its first `most` bytes. Returns `None` if the object does not exist.
    pub(crate) fn get(&self, name: &str, most: Option<u64>) -> Result<Option<Bytes>, Error> {
        self.begin_get(name, most).wait()
    }

    /// Begins to read an object: see [`Self::get`].
    pub(crate) fn begin_get(&self, name: &str, most: Option<u64>) -> Pending<Option<Bytes>> {
        let request = self.request(name);
        self.begin(async move { request.get(most.map(|most| 0..most)).await })
    }

    /// Begins to read a range of an object; a shorter object is an error.
    pub(crate) fn range(&self, name: &str, range: Range<u64>) -> Pending<Bytes> {
        let request = self.request(name);
        self.begin(async move {
            let len = range.end - range.start;
            match request.get(Some(range)).await {
                Ok(Some(data)) if data.len() as u64 == len => Ok(data),
                Ok(Some(_)) => {
                    Err(Error::Damaged { object: request.object, what: "it is shorter than it was".into() })
                }
                Ok(None) => Err(Error::Missing { object: request.object }),
                Err(error) => Err(error),
            }
        })
    }

    /// Lists the objects in the folder `prefix`, in the order of names.
    pub(crate) fn list(&self, prefix: &str) -> Result<Vec<Listed>, Error> {
        self.list_behind(prefix, None)
    }

    /// Lists the objects in the folder `prefix` whose names come behind a name, if one is given.
    pub(crate) fn list_behind(&self, prefix: &str, name: Option<&str>) -> Result<Vec<Listed>, Error> {
        let request = self.request(prefix);
        let behind = name.map(|name| self.request(name).path);
        let found = self.begin(async move {
            let list = || {
                count(&request.costs.lists, 1);
                let listed = match &behind {
                    Some(behind) => request.store.list_with_offset(Some(&request.path), behind),
                    None => request.store.list(Some(&request.path)),
                };
                listed.try_collect::<Vec<_>>()
            };
            let found = again(list).await.map_err(request.failed("listing"))?;
            count(&request.costs.lists, found.len() as u64 / LISTED_AT_ONCE);
            Ok(found)
        });
        let listed = |object: object_store::ObjectMeta| Listed {
            name: self.name_of(&object.location),
            bytes: object.size,
            written: object.last_modified.timestamp_millis().max(0) as u64,
        };
        let mut found: Vec<Listed> = found.wait()?.into_iter().map(listed).collect();
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Deletes objects; a missing object is no error.
    pub(crate) fn delete(&self, names: &[String]) -> Result<(), Error> {
        let paths: Vec<Path> = names.iter().map(|name| self.request(name).path).collect();
        let request = self.request("");
        let delete = self.begin(async move {
            count(&request.costs.deletes, paths.len() as u64);
            let delete = || {
                let paths = stream::iter(paths.clone()).map(Ok).boxed();
                let gone = |deleted| async {
                    match deleted {
                        Ok(_) | Err(Refusal::NotFound { .. }) => Ok(()),
                        Err(refusal) => Err(refusal),
                    }
                };
                request.store.delete_stream(paths).then(gone).try_collect::<()>()
            };
            again(delete).await.map_err(request.failed("deleting objects in"))
        });
        delete.wait()
    }
}

/// An entry of a list of objects.
pub(crate) struct Listed {
    /// Name of the object within the bucket.
    pub name: String,
    pub bytes: u64,
    /// Time of the write, by the bucket's clock, in milliseconds since the Unix epoch.
    pub written: u64,
}

impl Listed {
    /// Returns the number in the object's name, after `under`.
    pub fn number(&self, under: &str) -> Option<u64> {
        number_of(self.name.strip_prefix(under)?.strip_prefix('/')?)
    }

    pub fn is_tombstone(&self) -> bool {
        self.bytes == TOMBSTONE.len() as u64
    }
}

/// The result of creating an object.
#[derive(Debug)]
pub(crate) enum Created {
    /// The object was created.
    Done,
    /// The service reports, by this error, that an object of that name exists. An earlier attempt
    /// of this upload may have created it unnoticed, or another upload creates it now.
    Exists(Error),
}
