//! Reads: the entries of a log, and the logs of a store, in batches.

use std::sync::{Arc, Mutex, PoisonError};

use brooklet::{Entry, Error, LogInfo};
use napi::bindgen_prelude::AsyncTask;
use napi_derive::napi;

use crate::call::{Call, call};
use crate::failure::Failure;
use crate::rows::Rows;

/// Most items, and most of their bytes, that are read at once. The first batch is smaller.
const MOST: usize = 1024;
const MOST_BYTES: usize = 256 << 10;
const FIRST: usize = 64;

/// Items of the store.
pub type Items<T> = Box<dyn Iterator<Item = Result<T, Error>> + Send>;

/// Begins a read.
pub type Begin<T> = Box<dyn FnOnce() -> Result<Items<T>, Error> + Send>;

/// An item that rows have a place for.
pub trait Row: Send + 'static {
    fn add(&self, rows: &mut Rows) -> Result<(), Failure>;
}

impl Row for Entry {
    fn add(&self, rows: &mut Rows) -> Result<(), Failure> {
        rows.entry(self)
    }
}

impl Row for LogInfo {
    fn add(&self, rows: &mut Rows) -> Result<(), Failure> {
        rows.log(self)
    }
}

enum State<T> {
    /// No batch was read yet.
    Begins(Begin<T>),
    Reads(Items<T>),
    /// The last batch was returned; the error follows it, if there is one.
    Ends(Option<Failure>),
}

struct Ahead<T> {
    state: State<T>,
    batch: usize,
}

impl<T: Row> Ahead<T> {
    /// Returns the next batch; an empty one at the end.
    fn take(&mut self) -> Result<Rows, Failure> {
        let mut items = match std::mem::replace(&mut self.state, State::Ends(None)) {
            State::Begins(begin) => begin()?,
            State::Reads(items) => items,
            State::Ends(failed) => return failed.map_or_else(|| Ok(Rows::default()), Err),
        };
        let mut rows = Rows::default();
        for _ in 0..self.batch {
            let added = match items.next() {
                Some(Ok(item)) => item.add(&mut rows),
                Some(Err(error)) => Err(error.into()),
                None => return Ok(rows),
            };
            if let Err(failure) = added {
                if rows.is_empty() {
                    return Err(failure);
                }
                self.state = State::Ends(Some(failure));
                return Ok(rows);
            }
            if rows.size() >= MOST_BYTES {
                break;
            }
        }
        self.batch = MOST.min(self.batch * 4);
        self.state = State::Reads(items);
        Ok(rows)
    }
}

/// A read that has begun, or will with its first batch.
#[derive(Clone)]
struct Shared<T>(Arc<Mutex<Ahead<T>>>);

impl<T: Row> Shared<T> {
    fn new(begin: Begin<T>) -> Self {
        Self(Arc::new(Mutex::new(Ahead { state: State::Begins(begin), batch: FIRST })))
    }

    fn take(&self) -> AsyncTask<Call<Rows>> {
        let ahead = self.0.clone();
        call(move || ahead.lock().unwrap_or_else(PoisonError::into_inner).take())
    }

    /// Ends the read on a thread of the pool, where another one may read.
    fn end(&self) -> AsyncTask<Call<bool>> {
        let ahead = self.0.clone();
        call(move || {
            ahead.lock().unwrap_or_else(PoisonError::into_inner).state = State::Ends(None);
            Ok(true)
        })
    }
}

/// The entries of a log, as they are when the first batch is read.
#[napi]
pub struct Entries {
    shared: Shared<Entry>,
}

impl Entries {
    pub fn new(begin: Begin<Entry>) -> Self {
        Self { shared: Shared::new(begin) }
    }
}

#[napi]
impl Entries {
    /// Returns the next entries; none at the end.
    #[napi]
    pub fn take(&self) -> AsyncTask<Call<Rows>> {
        self.shared.take()
    }

    /// Releases what the read keeps of the store: the runs that it reads stay in the file as long.
    #[napi]
    pub fn end(&self) -> AsyncTask<Call<bool>> {
        self.shared.end()
    }
}

/// The logs of a store, in the order of their keys.
#[napi]
pub struct Logs {
    shared: Shared<LogInfo>,
}

impl Logs {
    pub fn new(begin: Begin<LogInfo>) -> Self {
        Self { shared: Shared::new(begin) }
    }
}

#[napi]
impl Logs {
    /// Returns the next logs; none at the end.
    #[napi]
    pub fn take(&self) -> AsyncTask<Call<Rows>> {
        self.shared.take()
    }

    /// Releases what the read keeps of the store: the runs that it reads stay in the file as long.
    #[napi]
    pub fn end(&self) -> AsyncTask<Call<bool>> {
        self.shared.end()
    }
}
