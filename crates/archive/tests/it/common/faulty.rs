//! An object store that fails: before and after it did what was asked, in the midst of an answer,
//! late, and for good.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use brooklet::io::Rng;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::object_store::path::Path;
use brooklet_archive::object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Fine,
    /// Nothing is done, and an error is told, such as a 503.
    Refused,
    /// It is done, and nobody hears of it.
    Unheard,
    /// An error is told; a write takes effect some requests later.
    Late,
    /// An answer breaks off; a list lacks what was written last.
    Short,
}

struct Faults {
    rng: Rng,
    /// Requests in a hundred that do not go well.
    percent: u64,
    /// After so many requests, nothing is let through any more, as when the process is gone.
    lives: Option<u64>,
    /// Whether the last of them is done all the same, and only not heard of.
    dies_unheard: bool,
    requests: u64,
    late: Vec<(u64, Path, PutPayload, PutMode)>,
    written: Vec<Path>,
    /// Whether each write came a day after the one before, as far as lists tell.
    a_day_each: bool,
    lists_nothing: bool,
    panics: bool,
    races: bool,
    holds: bool,
}

/// See above.
#[derive(Clone)]
pub struct Faulty {
    pub inner: Arc<InMemory>,
    faults: Arc<Mutex<Faults>>,
}

impl Faulty {
    /// One that fails `percent` times in a hundred.
    pub fn new(inner: Arc<InMemory>, seed: u64, percent: u64) -> Self {
        let faults = Faults {
            rng: Rng::new(seed),
            percent,
            lives: None,
            dies_unheard: false,
            requests: 0,
            late: Vec::new(),
            written: Vec::new(),
            a_day_each: false,
            lists_nothing: false,
            panics: false,
            races: false,
            holds: false,
        };
        Self { inner, faults: Arc::new(Mutex::new(faults)) }
    }

    /// From now on so many requests are let through, or all.
    pub fn live(&self, requests: Option<u64>) {
        let mut faults = self.faults.lock().unwrap();
        faults.lives = requests.map(|more| faults.requests + more);
    }

    /// What becomes of the first request that is not let through.
    pub fn dies_unheard(&self, unheard: bool) {
        self.faults.lock().unwrap().dies_unheard = unheard;
    }

    /// From now on each write comes a day after the one before.
    pub fn a_day_each(&self) {
        self.faults.lock().unwrap().a_day_each = true;
    }

    /// From now on lists are empty.
    pub fn lists_nothing(&self) {
        self.faults.lock().unwrap().lists_nothing = true;
    }

    /// Whether it panics from now on.
    pub fn panics(&self, panics: bool) {
        self.faults.lock().unwrap().panics = panics;
    }

    /// Whether a create meets another one of the same name from now on, which is not done yet.
    pub fn races(&self, races: bool) {
        self.faults.lock().unwrap().races = races;
    }

    /// Whether creates fail from now on, and take effect once they are [released](Self::release).
    pub fn holds(&self, holds: bool) {
        self.faults.lock().unwrap().holds = holds;
    }

    /// Lets the held creates take effect before the request that comes `after` so many others.
    pub fn release(&self, after: u64) {
        let mut faults = self.faults.lock().unwrap();
        let when = faults.requests + after + 1;
        faults.late.iter_mut().for_each(|(due, ..)| *due = when);
    }

    /// All objects.
    pub fn listed(&self) -> Vec<String> {
        let objects: Vec<ObjectMeta> = self.inner.list(None).try_collect().now_or_never().unwrap().unwrap();
        objects.into_iter().map(|object| object.location.to_string()).collect()
    }

    pub fn requests(&self) -> u64 {
        self.faults.lock().unwrap().requests
    }

    fn fate(&self, path: &Path) -> Result<Fate> {
        let panics = self.faults.lock().unwrap().panics;
        assert!(!panics, "a fault of the object store");
        let mut faults = self.faults.lock().unwrap();
        faults.requests += 1;
        if faults.lives.is_some_and(|lives| faults.requests > lives) {
            if faults.dies_unheard && faults.lives == Some(faults.requests - 1) {
                return Ok(Fate::Unheard);
            }
            return Err(Error::PermissionDenied {
                path: path.to_string(),
                source: "the process is gone".into(),
            });
        }
        let now = faults.requests;
        let (due, waiting) =
            std::mem::take(&mut faults.late).into_iter().partition(|(when, ..)| *when <= now);
        faults.late = waiting;
        let due: Vec<_> = due;
        for (_, path, data, mode) in due {
            // Memory answers at once.
            let _ =
                self.inner.put_opts(&path, data, mode.into()).now_or_never().expect("memory answers at once");
        }
        let percent = faults.percent;
        if !faults.rng.percent(percent) {
            return Ok(Fate::Fine);
        }
        let fates = [Fate::Refused, Fate::Unheard, Fate::Late, Fate::Short];
        Ok(fates[faults.rng.below(4) as usize])
    }
}

fn failed<T>() -> Result<T> {
    Err(Error::Generic { store: "faulty", source: "slow down, please".into() })
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
        let fate = self.fate(path)?;
        if self.faults.lock().unwrap().races && options.mode == PutMode::Create {
            let source = "a conflicting operation is under way".into();
            return Err(Error::AlreadyExists { path: path.to_string(), source });
        }
        if options.mode == PutMode::Create {
            let mut faults = self.faults.lock().unwrap();
            if faults.holds {
                faults.late.push((u64::MAX, path.clone(), data, options.mode));
                return failed();
            }
        }
        match fate {
            Fate::Refused => return failed(),
            Fate::Late => {
                let mut faults = self.faults.lock().unwrap();
                let when = faults.requests + 1 + faults.rng.below(8);
                faults.late.push((when, path.clone(), data, options.mode));
                return failed();
            }
            Fate::Unheard => {
                self.inner.put_opts(path, data, options).await?;
                return failed();
            }
            Fate::Fine | Fate::Short => {}
        }
        let put = self.inner.put_opts(path, data, options).await?;
        self.faults.lock().unwrap().written.push(path.clone());
        Ok(put)
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unimplemented!("not used")
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let fate = self.fate(path)?;
        if matches!(fate, Fate::Refused | Fate::Unheard | Fate::Late) {
            return failed();
        }
        let mut got = self.inner.get_opts(path, options).await?;
        if fate == Fate::Short {
            let Range { start, end } = got.range.clone();
            let GetResult { meta, range, attributes, extensions, payload } = got;
            let whole = GetResult {
                payload,
                meta: meta.clone(),
                range: range.clone(),
                attributes: attributes.clone(),
                extensions: extensions.clone(),
            };
            let data = whole.bytes().await?.slice(..((end - start) / 2) as usize);
            let payload = GetResultPayload::Stream(stream::iter([Ok(data)]).boxed());
            got = GetResult { payload, meta, range, attributes, extensions };
        }
        Ok(got)
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let delete = move |path: Result<Path>| {
            let this = this.clone();
            async move {
                let path = path?;
                let fate = this.fate(&path)?;
                if fate == Fate::Refused {
                    return failed();
                }
                let one = stream::iter([Ok(path.clone())]).boxed();
                this.inner.delete_stream(one).try_collect::<Vec<_>>().await?;
                if matches!(fate, Fate::Unheard | Fate::Late) { failed() } else { Ok(path) }
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let fate = match self.fate(&Path::default()) {
            Err(error) => return stream::iter([Err(error)]).boxed(),
            Ok(Fate::Refused | Fate::Unheard | Fate::Late) => return stream::iter([failed()]).boxed(),
            Ok(fate) => fate,
        };
        let faults = self.faults.lock().unwrap();
        let written = faults.written.clone();
        let stale = if fate == Fate::Short {
            written[written.len().saturating_sub(3)..].to_vec()
        } else {
            Vec::new()
        };
        let (nothing, a_day_each) = (faults.lists_nothing, faults.a_day_each);
        let listed = move |object: Result<ObjectMeta>| {
            let mut object = object.expect("memory lists");
            if a_day_each {
                let days =
                    written.iter().rposition(|path| *path == object.location).map_or(0, |at| at as u64 + 1);
                let epoch = object.last_modified
                    - Duration::from_millis(object.last_modified.timestamp_millis() as u64);
                object.last_modified = epoch + Duration::from_secs(24 * 3600) * days as u32;
            }
            let listed = !nothing && !stale.contains(&object.location);
            futures_util::future::ready(listed.then_some(Ok(object)))
        };
        self.inner.list(prefix).filter_map(listed).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        unimplemented!("not used")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unimplemented!("not used")
    }
}
