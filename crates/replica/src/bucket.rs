//! The journal in a bucket.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use brooklet_archive::Bucket;
use brooklet_archive::object_store::path::Path;
use brooklet_archive::object_store::{Error as Refusal, ObjectStore, ObjectStoreExt, PutMode};
use bytes::Bytes;

use crate::error::Error;
use crate::journal::{Created, Journal, Key, time_for};

/// Time after which a request counts as unanswered, beside the time for its bytes.
const PATIENCE: Duration = Duration::from_secs(10);

/// A journal in a place of an object store; see [`Journal`].
#[derive(Clone)]
pub struct BucketJournal {
    store: Arc<dyn ObjectStore>,
    name: String,
    patience: Duration,
}

impl BucketJournal {
    /// Returns the journal in a bucket. Makes no request.
    pub fn new(bucket: &Bucket) -> Self {
        Self { store: bucket.object_store(), name: bucket.to_string(), patience: PATIENCE }
    }

    /// Sets the time after which a request counts as unanswered; by default 10 seconds. A long
    /// object has some more: 4 seconds for each MiB.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    async fn timely<T>(
        &self,
        bytes: u64,
        doing: impl FnOnce() -> String,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Error> {
        let patience = self.patience + time_for(bytes);
        match tokio::time::timeout(patience, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(cause)) => Err(Error::Bucket { doing: doing(), cause }),
            Err(_) => Err(Error::NoAnswer { doing: doing(), seconds: patience.as_secs() }),
        }
    }
}

/// Turns "not found" into `None`.
fn absent<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Error::Bucket { cause: Refusal::NotFound { .. }, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Journal for BucketJournal {
    async fn create(&self, key: Key, data: Bytes) -> Result<Created, Error> {
        let (path, options) = (Path::from(key.to_string()), PutMode::Create.into());
        let bytes = data.len() as u64;
        let put = self.store.put_opts(&path, data.into(), options);
        match self.timely(bytes, || format!("creating {self}/{key}"), put).await {
            Ok(_) => Ok(Created::Done),
            // A failed condition, or a conflict with another request: services and their libraries
            // use these errors for both.
            Err(Error::Bucket {
                cause: Refusal::AlreadyExists { .. } | Refusal::Precondition { .. },
                ..
            }) => Ok(Created::Exists),
            Err(error) => Err(error),
        }
    }

    async fn read(&self, key: Key) -> Result<Option<Bytes>, Error> {
        let path = Path::from(key.to_string());
        let doing = || format!("reading {self}/{key}");
        let Some(found) = absent(self.timely(0, doing, self.store.get(&path)).await)? else {
            return Ok(None);
        };
        let (size, len) = (found.meta.size, found.range.end - found.range.start);
        let whole = async {
            let data = found.bytes().await?;
            if data.len() as u64 == len {
                return Ok(data);
            }
            // The object may be sound.
            let why = format!("the response ends after {} of {len} bytes", data.len());
            Err(Refusal::Generic { store: "bucket", source: why.into() })
        };
        absent(self.timely(size, doing, whole).await)
    }

    async fn remove(&self, key: Key) -> Result<(), Error> {
        let path = Path::from(key.to_string());
        let delete = self.store.delete(&path);
        absent(self.timely(0, || format!("deleting {self}/{key}"), delete).await).map(drop)
    }
}

impl fmt::Debug for BucketJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BucketJournal({})", self.name)
    }
}

impl fmt::Display for BucketJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
