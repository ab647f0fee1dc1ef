//! Requests to a bucket. Each request is counted, and retried after a temporary error.

use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;

use object_store::path::Path;
use object_store::{Error as Refusal, GetOptions, GetRange, ObjectStore};

use crate::error::Error;

/// Pauses between attempts of a request. The libraries of most services have already retried by
/// then.
#[cfg(not(fuzzing))]
pub(crate) const PAUSES: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(800)];
/// The objects of a fuzzer do not change with time.
#[cfg(fuzzing)]
pub(crate) const PAUSES: [Duration; 0] = [];

/// A request in progress.
pub(crate) struct Pending<T>(pub mpsc::Receiver<Result<T, Error>>);

impl<T> Pending<T> {
    pub fn wait(self) -> Result<T, Error> {
        self.0.recv().expect("a request ends, and tells how")
    }
}

/// The data of a request.
pub(crate) struct Request {
    pub store: Arc<dyn ObjectStore>,
    pub path: Path,
    pub costs: Arc<Counters>,
    /// Name of the object in messages.
    pub object: String,
}

pub(crate) fn count(of: &AtomicU64, more: u64) {
    of.fetch_add(more, Ordering::Relaxed);
}

impl Request {
    pub fn failed(&self, doing: &str) -> impl FnOnce(Refusal) -> Error {
        let doing = format!("{doing} {}", self.object);
        move |cause| Error::Bucket { doing, cause }
    }

    /// Reads all of an object, or the existing bytes of a range.
    pub async fn get(&self, range: Option<Range<u64>>) -> Result<Option<Bytes>, Error> {
        let get = || async {
            count(&self.costs.gets, 1);
            let range = range.clone().map(GetRange::Bounded);
            let got = self.store.get_opts(&self.path, GetOptions { range, ..Default::default() }).await?;
            let len = got.range.end - got.range.start;
            let data = got.bytes().await?;
            count(&self.costs.received, data.len() as u64);
            if data.len() as u64 == len {
                return Ok(data);
            }
            let what = format!("the response ends after {} of {len} bytes", data.len());
            Err(Refusal::Generic { store: "bucket", source: what.into() })
        };
        match again(get).await {
            Ok(data) => Ok(Some(data)),
            Err(Refusal::NotFound { .. }) => Ok(None),
            Err(refusal) => Err(self.failed("reading")(refusal)),
        }
    }
}

/// Retries a request after a temporary error.
pub(crate) async fn again<T, W: Future<Output = object_store::Result<T>>>(
    mut request: impl FnMut() -> W,
) -> object_store::Result<T> {
    for pause in PAUSES {
        match request().await {
            Err(refusal @ (Refusal::Generic { .. } | Refusal::JoinError { .. })) => {
                tracing::debug!(%refusal, "trying again");
                tokio::time::sleep(pause).await;
            }
            ended => return ended,
        }
    }
    request().await
}

#[derive(Default)]
pub(crate) struct Counters {
    pub puts: AtomicU64,
    pub gets: AtomicU64,
    pub lists: AtomicU64,
    pub deletes: AtomicU64,
    pub sent: AtomicU64,
    pub received: AtomicU64,
}
