//! Parts of a backup, read from the bucket: a look-up reads a small range, and a sequential read
//! reads large ranges ahead.
//!
//! The parts of a run follow each other in an upload. So the read-ahead places belong to the upload
//! and not to the part: a reader of a run from front to back does not stop at the end of each part.
//!
//! Threads share the places under a lock, and no thread holds the lock during a request. A thread
//! that needs bytes of a request in progress waits for those bytes only, and so do other threads
//! that need the same bytes.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brooklet::codex::Source;
use bytes::{Bytes, BytesMut};

use crate::bucket::Bucket;
use crate::cache::{BLOCK, CachedPart};
use crate::error::Error;
use crate::record::{TAIL, Upload};
use crate::request::Pending;

/// Size of the first read at a place, in bytes; each next read is twice as long.
const FIRST: u64 = 64 << 10;
/// Size of the longest read, in bytes.
const MOST: usize = 4 << 20;
/// Size of the longest read when memory is short, in bytes.
const LEAST_MOST: usize = 256 << 10;
/// Number of places that an upload keeps: some in each of a store's runs.
const PLACES: usize = 40;
/// Most reads of one place that are in memory or in progress, if memory allows.
const AT_ONCE: usize = 8;

/// The memory for reading ahead, shared by all of a backup.
pub(crate) struct Memory {
    bytes: usize,
    /// Number of places that read ahead.
    places: AtomicUsize,
}

impl Memory {
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, places: AtomicUsize::new(0) })
    }

    /// Returns the length of a place's longest read in bytes, and the number of its reads.
    fn share(&self) -> (u64, usize) {
        let share = self.bytes / self.places.load(Ordering::Relaxed).max(1);
        let most = (share / 2).clamp(LEAST_MOST, MOST);
        (most as u64, (share / most).clamp(2, AT_ONCE))
    }
}

/// An upload, without the objects that were pruned.
pub(crate) struct RemoteUpload {
    bucket: Bucket,
    upload: Upload,
    object_len: u64,
    /// The lengths of its existing objects, in bytes.
    objects: BTreeMap<u32, u32>,
    memory: Arc<Memory>,
    /// The places, the most recently used last.
    places: Mutex<Vec<Reading>>,
}

/// A place of a sequential read: the windows that are in memory or in progress.
struct Reading {
    /// Offset at which its first read began.
    begun: u64,
    windows: VecDeque<Arc<Window>>,
    /// Offset at which its last read ended.
    at: u64,
    /// Offset at which the next window begins, and its length in bytes.
    end: u64,
    step: u64,
    /// `Some` once the place reads ahead.
    ahead: Option<Counted>,
}

/// Bytes of one object.
struct Window {
    bytes: Range<u64>,
    data: Mutex<Data>,
}

enum Data {
    UnderWay(Pending<Bytes>),
    AtHand(Bytes),
    /// Another thread that waited for the bytes received the error.
    Failed,
}

impl Window {
    /// Waits for the bytes. Returns `None` if another thread received the error of the request; the
    /// caller then retries.
    fn wait(&self) -> Result<Option<Bytes>, Error> {
        // Only threads that need these bytes take this lock.
        let mut data = self.data.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *data, Data::Failed) {
            Data::UnderWay(pending) => *data = Data::AtHand(pending.wait()?),
            before => *data = before,
        }
        match &*data {
            Data::AtHand(bytes) => Ok(Some(bytes.clone())),
            _ => Ok(None),
        }
    }
}

struct Counted(Arc<Memory>);

impl Counted {
    fn new(memory: &Arc<Memory>) -> Self {
        memory.places.fetch_add(1, Ordering::Relaxed);
        Self(memory.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.places.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RemoteUpload {
    pub fn new(
        bucket: &Bucket,
        upload: Upload,
        object_len: u64,
        objects: BTreeMap<u32, u32>,
        memory: &Arc<Memory>,
    ) -> Self {
        let (bucket, memory) = (bucket.clone(), memory.clone());
        Self { bucket, upload, object_len, objects, memory, places: Mutex::default() }
    }

    /// Begins to read up to `len` bytes of one object. Returns `None` if the object has no bytes at
    /// `from`.
    fn begin(&self, from: u64, len: u64) -> Option<Window> {
        let at = u32::try_from(from / self.object_len).ok()?;
        let begin = u64::from(at) * self.object_len;
        let end = (begin + u64::from(*self.objects.get(&at)?)).min(from.saturating_add(len));
        let under_way =
            (from < end).then(|| self.bucket.range(&self.upload.object(at), from - begin..end - begin))?;
        Some(Window { bytes: from..end, data: Mutex::new(Data::UnderWay(under_way)) })
    }

    fn places(&self) -> MutexGuard<'_, Vec<Reading>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, bytes: &Range<u64>) -> Result<Bytes, Error> {
        'again: loop {
            let windows = self.windows(bytes)?;
            let mut read = BytesMut::new();
            for window in &windows {
                let data = window.wait().inspect_err(|_| self.forget(window))?;
                let Some(data) = data else {
                    self.forget(window);
                    continue 'again;
                };
                let of = &window.bytes;
                let (from, to) = (bytes.start.max(of.start) - of.start, bytes.end.min(of.end) - of.start);
                let data = data.slice(from as usize..to as usize);
                if data.len() as u64 == bytes.end - bytes.start {
                    return Ok(data);
                }
                read.extend_from_slice(&data);
            }
            return Ok(read.freeze());
        }
    }

    /// Begins to read these bytes, unless they are in memory or in progress, and the bytes that may
    /// be needed next.
    fn windows(&self, bytes: &Range<u64>) -> Result<Vec<Arc<Window>>, Error> {
        let mut places = self.places();
        let goes_on = places.iter().rposition(|place| place.goes_on(bytes.start));
        let holds = || places.iter().rposition(|place| place.holds(bytes));
        let mut place = match goes_on.or_else(holds) {
            Some(at) => places.remove(at),
            None => Reading::new(bytes.start),
        };
        if place.goes_on(bytes.start) {
            // Another run usually begins where another read-ahead place began: do not read its
            // bytes twice.
            let begun =
                |other: &Reading| (other.ahead.is_some() && other.begun >= place.end).then_some(other.begun);
            let bound = places.iter().filter_map(begun).min().unwrap_or(u64::MAX);
            place.go_on(self, bytes, bound)?;
        }
        let wanted = |window: &&Arc<Window>| window.bytes.start < bytes.end && window.bytes.end > bytes.start;
        let windows = place.windows.iter().filter(wanted).cloned().collect();
        places.push(place);
        if places.len() > PLACES {
            places.remove(0);
        }
        Ok(windows)
    }

    /// Drops a place whose read failed, so that a caller may try again.
    fn forget(&self, failed: &Arc<Window>) {
        let is_there = |place: &Reading| place.windows.iter().any(|window| Arc::ptr_eq(window, failed));
        self.places().retain(|place| !is_there(place));
    }
}

impl Reading {
    fn new(offset: u64) -> Self {
        Self { begun: offset, windows: VecDeque::new(), at: offset, end: offset, step: FIRST, ahead: None }
    }

    /// Returns whether a read at `offset` continues this sequential read.
    fn goes_on(&self, offset: u64) -> bool {
        let begin = self.windows.front().map_or(self.at, |window| window.bytes.start);
        (begin..=self.end.min(self.at + FIRST)).contains(&offset)
    }

    /// Returns whether all of the bytes are in memory or in progress.
    fn holds(&self, bytes: &Range<u64>) -> bool {
        self.windows.front().is_some_and(|window| window.bytes.start <= bytes.start) && bytes.end <= self.end
    }

    /// Begins to read the next window; returns whether it exists.
    fn read_on(&mut self, upload: &RemoteUpload, len: u64) -> bool {
        let window = upload.begin(self.end, len);
        let there = window.is_some();
        self.end = window.as_ref().map_or(self.end, |window| window.bytes.end);
        self.windows.extend(window.map(Arc::new));
        there
    }

    /// Begins to read these bytes. From the second read on, also reads ahead, up to `bound`.
    fn go_on(&mut self, upload: &RemoteUpload, bytes: &Range<u64>, bound: u64) -> Result<(), Error> {
        self.windows.retain(|window| window.bytes.end > bytes.start);
        self.at = bytes.end;
        let again = self.step > FIRST;
        while self.end < bytes.end {
            let len = self.step.max(bytes.end - self.end);
            self.step *= 2;
            if !self.read_on(upload, len) {
                let object = upload.bucket.full(&upload.upload.object((self.end / upload.object_len) as u32));
                return Err(Error::Damaged { object, what: "it ends before the end of a part in it".into() });
            }
        }
        if again {
            self.ahead.get_or_insert_with(|| Counted::new(&upload.memory));
            let (most, at_once) = upload.memory.share();
            self.step = self.step.min(most);
            while self.windows.len() < at_once
                && self.read_on(upload, self.step.min(bound.saturating_sub(self.end)))
            {
                self.step = (self.step * 2).min(most);
            }
        }
        Ok(())
    }
}

/// A part of a backup.
pub(crate) struct RemotePart {
    pub upload: Arc<RemoteUpload>,
    pub start: u64,
    pub len: u64,
    pub tail: Bytes,
    /// The part's blocks on the local disk.
    pub cached: Option<CachedPart>,
}

impl RemotePart {
    /// Returns a range of the part, or `None` if the range passes the part's end.
    fn range(&self, offset: u64, len: usize) -> Option<Range<u64>> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.len)?;
        Some(offset..end)
    }

    /// Returns the bytes, if the record holds them.
    fn in_tail(&self, bytes: &Range<u64>) -> Option<Bytes> {
        let tail = self.len - TAIL as u64;
        (bytes.start >= tail)
            .then(|| self.tail.slice((bytes.start - tail) as usize..(bytes.end - tail) as usize))
    }

    fn fetch(&self, bytes: &Range<u64>) -> Result<Bytes, Error> {
        self.upload.read(&(self.start + bytes.start..self.start + bytes.end))
    }

    /// Reads through the cache on the local disk, a block at a time.
    fn fetch_cached(&self, cached: &CachedPart, bytes: &Range<u64>) -> Result<Bytes, Error> {
        let mut out = BytesMut::new();
        for block in bytes.start / BLOCK..bytes.end.div_ceil(BLOCK) {
            let begin = block * BLOCK;
            let of_block = begin..self.len.min(begin + BLOCK);
            let data = match cached.get(block) {
                Some(data) => data,
                None => self.fetch(&of_block).inspect(|data| cached.put(block, data))?,
            };
            let (from, to) = (bytes.start.max(begin) - begin, bytes.end.min(of_block.end) - begin);
            out.extend_from_slice(&data[from as usize..to as usize]);
        }
        Ok(out.freeze())
    }
}

impl Source for RemotePart {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let bytes = self.range(offset, len).ok_or(io::ErrorKind::UnexpectedEof)?;
        if let Some(data) = self.in_tail(&bytes) {
            return Ok(data);
        }
        // A longer read is sequential, and bypasses the cache.
        let read = match &self.cached {
            Some(cached) if len < BLOCK as usize => self.fetch_cached(cached, &bytes),
            _ => self.fetch(&bytes),
        };
        read.map_err(io::Error::other)
    }
}
