//! A store: opening, closing and reads.

use std::ops::Bound as End;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use brooklet::{Create, Error, Options};
use napi::bindgen_prelude::AsyncTask;
use napi_derive::napi;

use crate::call::{Call, Value, call};
use crate::failure::Failure;
use crate::info::Info;
use crate::number::whole;
use crate::reach::Reach;
use crate::read::{Entries, Items, Logs};
use crate::rows::Rows;
use crate::tail::Begun;

/// A handle of a store, until it is closed.
#[derive(Clone)]
pub struct Slot(Arc<RwLock<Option<brooklet::Store>>>);

impl Slot {
    /// Returns a handle, if the store is open.
    pub fn handle(&self) -> Result<brooklet::Store, Failure> {
        Ok(self.opened()?)
    }

    fn opened(&self) -> Result<brooklet::Store, Error> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Error::Closed)
    }

    fn take(&self) -> Option<brooklet::Store> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Has a thread of the pool make a call.
    fn ask<T: Value>(
        &self,
        work: impl FnOnce(&brooklet::Store) -> Result<T, Failure> + Send + 'static,
    ) -> AsyncTask<Call<T>> {
        let slot = self.clone();
        call(move || work(&slot.handle()?))
    }
}

/// How to open a store. Times are in milliseconds.
#[napi(object)]
pub struct OpenOptions {
    pub create: Option<String>,
    pub read_only: Option<bool>,
    pub beside_writer: Option<bool>,
    pub ring_size: Option<f64>,
    pub ring_at: Option<String>,
    pub capacity: Option<f64>,
    pub memory_budget: Option<f64>,
    pub cache_budget: Option<f64>,
    pub max_payload: Option<f64>,
    pub linger: Option<f64>,
    pub permissions: Option<u32>,
}

impl OpenOptions {
    fn options(self) -> Result<Options, Failure> {
        let create = match self.create.as_deref() {
            None | Some("ifMissing") => Create::IfMissing,
            Some("never") => Create::Never,
            Some("new") => Create::New,
            Some(_) => return Err(Failure::invalid("create is none of 'never', 'ifMissing' and 'new'")),
        };
        let mut options = Options::new()
            .create(create)
            .read_only(self.read_only.unwrap_or_default())
            .beside_writer(self.beside_writer.unwrap_or_default());
        let size = |value: f64| whole(value) as usize;
        options = set(options, self.ring_size.map(whole), Options::ring_size);
        options = set(options, self.ring_at, Options::ring_at);
        options = set(options, self.capacity.map(whole), Options::capacity);
        options = set(options, self.memory_budget.map(size), Options::memory_budget);
        options = set(options, self.cache_budget.map(size), Options::cache_budget);
        options = set(options, self.max_payload.map(size), Options::max_payload);
        options = set(options, self.linger.map(|time| Duration::from_millis(whole(time))), Options::linger);
        Ok(set(options, self.permissions, Options::permissions))
    }
}

fn set<T>(options: Options, value: Option<T>, how: impl FnOnce(Options, T) -> Options) -> Options {
    match value {
        Some(value) => how(options, value),
        None => options,
    }
}

/// A store that a thread of the pool has opened.
pub struct Opened(brooklet::Store);

impl Value for Opened {
    type Js = Store;

    fn js(self) -> Store {
        Store { slot: Slot(Arc::new(RwLock::new(Some(self.0)))) }
    }
}

/// An open store.
#[napi]
pub struct Store {
    pub(crate) slot: Slot,
}

/// Returns the numbers from `start` on and before `stop`.
fn range(start: Option<f64>, stop: Option<f64>) -> (End<u64>, End<u64>) {
    let start = start.map_or(End::Unbounded, |start| End::Included(whole(start)));
    (start, stop.map_or(End::Unbounded, |stop| End::Excluded(whole(stop))))
}

/// Returns a row, or none.
fn row(entry: Option<brooklet::Entry>) -> Result<Rows, Failure> {
    let mut rows = Rows::default();
    entry.map_or(Ok(()), |entry| rows.entry(&entry))?;
    Ok(rows)
}

#[napi]
impl Store {
    /// Opens the store at `path`, or creates it.
    #[napi]
    pub fn open(path: String, options: OpenOptions) -> AsyncTask<Call<Opened>> {
        call(move || Ok(Opened(options.options()?.open(path)?)))
    }

    /// Reads the entries of a log; if `available`, without those that the log does not have.
    #[napi]
    pub fn read(
        &self,
        key: &[u8],
        start: Option<f64>,
        stop: Option<f64>,
        reverse: bool,
        available: bool,
    ) -> Entries {
        let (slot, key, range) = (self.slot.clone(), key.to_vec(), range(start, stop));
        Entries::new(Box::new(move || {
            let store = slot.opened()?;
            let entries = if available { store.read_available(key, range) } else { store.read(key, range) }?;
            let items: Items<_> = if reverse { Box::new(entries.rev()) } else { Box::new(entries) };
            Ok(items)
        }))
    }

    /// Lists the logs whose keys start with `prefix`, from the key `start` on.
    #[napi]
    pub fn scan(&self, prefix: &[u8], start: &[u8]) -> Logs {
        let (slot, prefix, start) = (self.slot.clone(), prefix.to_vec(), start.to_vec());
        Logs::new(Box::new(move || Ok(Box::new(slot.opened()?.scan_from(prefix, start)?))))
    }

    /// Reads all entries of several logs.
    #[napi]
    pub fn read_many(&self, keys: Vec<&[u8]>) -> AsyncTask<Call<Vec<Rows>>> {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(<[u8]>::to_vec).collect();
        self.slot.ask(move |store| {
            let mut logs = Vec::with_capacity(keys.len());
            for entries in store.read_many(&keys)? {
                let mut rows = Rows::default();
                for entry in entries {
                    rows.entry(&entry?)?;
                }
                logs.push(rows);
            }
            Ok(logs)
        })
    }

    /// Follows a log from entry `start` on.
    #[napi]
    pub fn tail(&self, key: &[u8], start: f64) -> AsyncTask<Call<Begun>> {
        let key = key.to_vec();
        self.slot.ask(move |store| Ok(Begun(store.tail(key, whole(start))?)))
    }

    /// Begins to wait until the next number of a log is at least `next`.
    #[napi]
    pub fn wait_for(&self, key: &[u8], next: f64) -> Reach {
        Reach::new(self.slot.opened().map(|store| store.wait_for_async(key, whole(next))))
    }

    #[napi]
    pub fn first(&self, key: &[u8]) -> AsyncTask<Call<Rows>> {
        let key = key.to_vec();
        self.slot.ask(move |store| row(store.first(key)?))
    }

    #[napi]
    pub fn last(&self, key: &[u8]) -> AsyncTask<Call<Rows>> {
        let key = key.to_vec();
        self.slot.ask(move |store| row(store.last(key)?))
    }

    /// Returns the bounds of a log; none for an unknown log if `available`.
    #[napi]
    pub fn bounds(&self, key: &[u8], available: bool) -> AsyncTask<Call<Rows>> {
        let key = key.to_vec();
        self.slot.ask(move |store| {
            let bounds = if available { store.get_bounds(key)? } else { Some(store.bounds(key)?) };
            let mut rows = Rows::default();
            bounds.map_or(Ok(()), |bounds| rows.bounds(&bounds))?;
            Ok(rows)
        })
    }

    #[napi]
    pub fn exists(&self, key: &[u8]) -> AsyncTask<Call<bool>> {
        let key = key.to_vec();
        self.slot.ask(move |store| Ok(store.exists(key)?))
    }

    #[napi]
    pub fn info(&self) -> AsyncTask<Call<Info>> {
        self.slot.ask(|store| Ok(store.info()?.into()))
    }

    #[napi]
    pub fn flush(&self) -> AsyncTask<Call<bool>> {
        self.slot.ask(|store| Ok(store.flush().map(|()| true)?))
    }

    #[napi]
    pub fn checkpoint(&self) -> AsyncTask<Call<bool>> {
        self.slot.ask(|store| Ok(store.checkpoint().map(|()| true)?))
    }

    /// Waits until all commits are on stable media, and releases the file. If a space in memory has
    /// no room for its dump, the store is closed all the same, and the space stays as in its last
    /// dump.
    #[napi]
    pub fn close(&self) -> AsyncTask<Call<bool>> {
        let store = self.slot.take();
        call(move || {
            let Some(store) = store else { return Ok(true) };
            let closed = store.close();
            // The file is released with the last handle.
            drop(store);
            Ok(closed.map(|()| true)?)
        })
    }
}
