//! Buckets: places in an object store. A thread of the bucket makes the requests, so callers need
//! no async runtime, and may have one. The bucket counts requests, as services charge for them.

use std::fmt;
use std::future::Future;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use object_store::ObjectStore;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use tokio::runtime::Runtime;

use crate::address;
use crate::error::Error;
use crate::request::{Counters, Pending, Request};

/// A place in an object store. The handle is cheap to clone.
#[derive(Clone)]
pub struct Bucket(Arc<Shared>);

struct Shared {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// The folder of this machine that the place is, if it is one.
    folder: Option<PathBuf>,
    name: String,
    /// `Some` until this is dropped.
    runtime: Option<Runtime>,
    costs: Arc<Counters>,
}

/// The requests to a bucket, as services count them, without the retries of their client libraries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Costs {
    /// Number of objects that were written.
    pub puts: u64,
    /// Number of reads of objects and of parts of objects.
    pub gets: u64,
    /// Number of list requests.
    pub lists: u64,
    /// Number of objects that were deleted.
    pub deletes: u64,
    /// Number of bytes written.
    pub sent: u64,
    /// Number of bytes read.
    pub received: u64,
}

impl Bucket {
    /// Opens the place that an address names: `s3://bucket/path`, `gs://bucket/path`,
    /// `az://container/path`, or a folder, as a path or `file:///path`. Creates a missing folder.
    ///
    /// Credentials and settings come from environment variables with the names that each service's
    /// own tools use (`AWS_…`, `GOOGLE_…`, `AZURE_…`). For S3 they also come from the profile that
    /// `AWS_PROFILE` names.
    ///
    /// # Errors
    /// [`Error::Address`].
    pub fn open(address: &str) -> Result<Self, Error> {
        let (store, prefix, folder) = address::open(address)?;
        Self::with(store, prefix, folder, address.trim_end_matches('/').into())
    }

    /// Opens a place in an object store that the caller has set up.
    ///
    /// # Errors
    /// [`Error::Address`] where `prefix` is no valid path.
    pub fn of(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<Self, Error> {
        let wrong = |error: object_store::path::Error| Error::Address {
            address: prefix.into(),
            why: error.to_string(),
        };
        let name = format!("{store}/{prefix}");
        Self::with(store, Path::parse(prefix).map_err(wrong)?, None, name)
    }

    fn with(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        folder: Option<PathBuf>,
        name: String,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("brooklet-bucket")
            .enable_all()
            .build()
            .map_err(|error| Error::Address {
                address: name.clone(),
                why: format!("its thread cannot start: {error}"),
            })?;
        let (runtime, costs) = (Some(runtime), Arc::default());
        Ok(Self(Arc::new(Shared { store, prefix, folder, name, runtime, costs })))
    }

    /// Returns the folder of this machine that the place is, if it is one.
    pub(crate) fn folder(&self) -> Option<&FilePath> {
        self.0.folder.as_deref()
    }

    /// Returns the object store below this place, for requests that this crate does not know. They
    /// are not counted in the [costs](Self::costs).
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        Arc::new(PrefixStore::new(self.0.store.clone(), self.0.prefix.clone()))
    }

    /// Returns the requests of this handle and its clones so far.
    pub fn costs(&self) -> Costs {
        let Counters { puts, gets, lists, deletes, sent, received } = &*self.0.costs;
        let [puts, gets, lists, deletes, sent, received] =
            [puts, gets, lists, deletes, sent, received].map(|count| count.load(Ordering::Relaxed));
        Costs { puts, gets, lists, deletes, sent, received }
    }

    /// Returns a request for the object `name`, or for all objects below that name.
    pub(crate) fn request(&self, name: &str) -> Request {
        let path = self.0.prefix.parts().chain(Path::from(name).parts()).collect();
        let (store, costs) = (self.0.store.clone(), self.0.costs.clone());
        Request { store, path, costs, object: self.full(name) }
    }

    /// Runs `work` on the bucket's thread. A panic in it, which may be one of the user's own object
    /// store, is an error of the request.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Pending<T> {
        let (tell, told) = mpsc::sync_channel(1);
        let runtime = self.0.runtime.as_ref().expect("it is there until the bucket is dropped");
        let (work, bucket) = (runtime.spawn(work), self.0.name.clone());
        runtime.spawn(async move {
            let panicked = |source| {
                Err(Error::Bucket {
                    doing: format!("a request to {bucket}"),
                    cause: object_store::Error::JoinError { source },
                })
            };
            let done = work.await.unwrap_or_else(panicked);
            // A caller that does not wait needs no result.
            let _ = tell.send(done);
        });
        Pending(told)
    }

    /// Waits before another attempt of a request.
    pub(crate) fn pause(&self, time: Duration) -> Result<(), Error> {
        let pause = self.begin(async move {
            tokio::time::sleep(time).await;
            Ok(())
        });
        pause.wait()
    }

    /// Returns an object's name within the bucket.
    pub(crate) fn name_of(&self, path: &Path) -> String {
        path.parts().skip(self.0.prefix.parts().count()).collect::<Path>().into()
    }

    /// Returns an object's name for messages.
    pub(crate) fn full(&self, name: &str) -> String {
        format!("{}/{name}", self.0.name)
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.0.name)
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A bucket may be dropped where blocking is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
