//! An object store that fails: late, twice, unheard, and without the atomic creates that it
//! promises.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use brooklet::io::Rng;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::object_store::path::Path;
use brooklet_archive::object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

/// How a store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// So many requests in a hundred go wrong.
    Percent(u64),
    /// It ignores conditions.
    Unconditional,
    /// It checks the condition first, and writes then.
    CheckThenWrite,
    ReadOnly,
    Unsupported,
    /// It refuses reads of objects that do not exist, as for a user who may not list them.
    NoList,
    /// Its replies to reads end before the end of the object.
    Cut,
}

/// See above. Times are those of the runtime, which tests may pause.
#[derive(Clone)]
pub struct Faulty {
    inner: Arc<InMemory>,
    failing: Failing,
    rng: Arc<Mutex<Rng>>,
    is_cut_off: Arc<AtomicBool>,
    /// Requests that failed because it was cut off.
    refused: Arc<AtomicU64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Fine,
    /// Nothing is done, and an error is told.
    Refused,
    /// It is done, and an error is told.
    Unheard,
    /// It is done, and nobody answers.
    Hangs,
    /// An error is told, and it is done later.
    Late,
    /// It is done, and done again later.
    Doubled,
    /// A conflict is told, although there is none.
    Busy,
}

impl Faulty {
    pub fn new(inner: Arc<InMemory>, failing: Failing, seed: u64) -> Self {
        let rng = Arc::new(Mutex::new(Rng::new(seed)));
        Self { inner, failing, rng, is_cut_off: Arc::default(), refused: Arc::default() }
    }

    /// From now on all requests fail, or none for this reason. Returns the number of those that
    /// have failed so.
    pub fn cut_off(&self, is_cut_off: bool) -> u64 {
        self.is_cut_off.store(is_cut_off, Ordering::Relaxed);
        self.refused.load(Ordering::Relaxed)
    }

    fn below(&self, most: u64) -> u64 {
        self.rng.lock().unwrap().below(most)
    }

    /// Decides about a request, after a while.
    async fn fate(&self) -> Fate {
        if self.is_cut_off.load(Ordering::Relaxed) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Fate::Refused;
        }
        let Failing::Percent(percent) = self.failing else { return Fate::Fine };
        tokio::time::sleep(Duration::from_millis(1 + self.below(20))).await;
        if self.below(100) >= percent {
            return Fate::Fine;
        }
        let fates = [Fate::Refused, Fate::Unheard, Fate::Hangs, Fate::Late, Fate::Doubled, Fate::Busy];
        fates[self.below(6) as usize]
    }

    /// Does something later: most often soon, sometimes after a minute.
    fn later(&self, work: impl Future<Output = ()> + Send + 'static) {
        let most = [50, 3000, 60_000][self.below(3) as usize];
        let wait = Duration::from_millis(self.below(most));
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            work.await;
        });
    }

    fn put_later(&self, path: &Path, data: PutPayload, options: PutOptions) {
        let (inner, path) = (self.inner.clone(), path.clone());
        self.later(async move { drop(inner.put_opts(&path, data, options).await) });
    }
}

fn failed<T>() -> Result<T> {
    Err(Error::Generic { store: "faulty", source: "slow down, please".into() })
}

async fn hang<T>() -> T {
    std::future::pending().await
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, path: &Path, data: PutPayload, options: PutOptions) -> Result<PutResult> {
        match self.failing {
            Failing::Percent(_) | Failing::NoList | Failing::Cut => {}
            Failing::Unconditional => {
                return self.inner.put_opts(path, data, PutMode::Overwrite.into()).await;
            }
            Failing::CheckThenWrite => {
                if self.inner.head(path).await.is_ok() {
                    return Err(Error::AlreadyExists { path: path.to_string(), source: "exists".into() });
                }
                tokio::task::yield_now().await;
                return self.inner.put_opts(path, data, PutMode::Overwrite.into()).await;
            }
            Failing::ReadOnly => {
                return Err(Error::PermissionDenied { path: path.to_string(), source: "read only".into() });
            }
            Failing::Unsupported => {
                return Err(Error::NotImplemented { operation: "put".into(), implementer: "faulty".into() });
            }
        }
        let fate = self.fate().await;
        match fate {
            Fate::Refused => return failed(),
            Fate::Late => {
                self.put_later(path, data, options);
                return failed();
            }
            Fate::Busy => {
                return Err(Error::AlreadyExists { path: path.to_string(), source: "conflict".into() });
            }
            Fate::Doubled => self.put_later(path, data.clone(), options.clone()),
            Fate::Fine | Fate::Unheard | Fate::Hangs => {}
        }
        let put = self.inner.put_opts(path, data, options).await;
        // The answer takes its time, too.
        self.fate().await;
        match fate {
            Fate::Unheard => failed(),
            Fate::Hangs => hang().await,
            _ => put,
        }
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unimplemented!("not used")
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        match self.fate().await {
            Fate::Fine | Fate::Doubled => match self.inner.get_opts(path, options).await {
                Err(Error::NotFound { path, source }) if self.failing == Failing::NoList => {
                    Err(Error::PermissionDenied { path, source })
                }
                Ok(got) if self.failing == Failing::Cut => {
                    let payload = stream::iter([Ok(Bytes::from_static(b"cut"))]).boxed();
                    Ok(GetResult { payload: GetResultPayload::Stream(payload), ..got })
                }
                got => got,
            },
            Fate::Hangs => hang().await,
            _ => failed(),
        }
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let delete = move |path: Result<Path>| {
            let this = this.clone();
            async move {
                let path = path?;
                let fate = this.fate().await;
                if matches!(fate, Fate::Late | Fate::Doubled) {
                    let (inner, path) = (this.inner.clone(), path.clone());
                    this.later(async move { drop(inner.delete(&path).await) });
                }
                match fate {
                    Fate::Refused | Fate::Late | Fate::Busy => failed(),
                    Fate::Hangs => hang().await,
                    Fate::Unheard => this.inner.delete(&path).await.and(failed()),
                    Fate::Fine | Fate::Doubled => this.inner.delete(&path).await.map(|()| path),
                }
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        // The protocol must do without.
        stream::iter([failed()]).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        failed()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unimplemented!("not used")
    }
}
