//! Parts of a backup, read from the bucket: single look-ups by small ranges, and what is read on
//! and on by large ones, ahead.
//!
//! Parts of a run follow each other in an upload, as they were read when it was made. So places
//! that are read on from belong to the upload, and not to the part: who reads a run from front to
//! back does not stop at the end of each part.
//!
//! Places are shared, and looked at under a lock; nobody holds that while a request goes on. Who
//! needs bytes that are under way waits for those alone, and so does whoever else needs the same.

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

/// The first read at a place, in bytes; each next one is twice as long.
const FIRST: u64 = 64 << 10;
/// The longest.
const MOST: usize = 4 << 20;
/// The longest where memory is short.
const LEAST_MOST: usize = 256 << 10;
/// So many places of an upload are read on from at a time: in each of a store's runs some.
const PLACES: usize = 40;
/// So many reads of one place are at hand or under way, if memory allows.
const AT_ONCE: usize = 8;

/// Memory for reading ahead, which all of a backup shares.
pub(crate) struct Memory {
    bytes: usize,
    /// Places that are read ahead of.
    places: AtomicUsize,
}

impl Memory {
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, places: AtomicUsize::new(0) })
    }

    /// How long the reads of a place are at most, and how many it may have.
    fn share(&self) -> (u64, usize) {
        let share = self.bytes / self.places.load(Ordering::Relaxed).max(1);
        let most = (share / 2).clamp(LEAST_MOST, MOST);
        (most as u64, (share / most).clamp(2, AT_ONCE))
    }
}

/// An upload, or what is left of it.
pub(crate) struct RemoteUpload {
    bucket: Bucket,
    upload: Upload,
    object_len: u64,
    /// The lengths of its objects that are there.
    objects: BTreeMap<u32, u32>,
    memory: Arc<Memory>,
    /// The one that was used last comes last.
    places: Mutex<Vec<Reading>>,
}

/// A place that is read on from: what is at hand from there on, and under way.
struct Reading {
    /// Where its first read began.
    begun: u64,
    windows: VecDeque<Arc<Window>>,
    /// Where the last read that went on with it ended.
    at: u64,
    /// Where the next window begins, and how long it is.
    end: u64,
    step: u64,
    /// There once it reads ahead.
    ahead: Option<Counted>,
}

/// Some bytes of one object.
struct Window {
    bytes: Range<u64>,
    data: Mutex<Data>,
}

enum Data {
    UnderWay(Pending<Bytes>),
    AtHand(Bytes),
    /// Somebody who waited for it was told why.
    Failed,
}

impl Window {
    /// Waits until it is at hand. `None` where it failed for somebody else: then it is asked for
    /// again.
    fn wait(&self) -> Result<Option<Bytes>, Error> {
        // This lock is of those alone who need these bytes.
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

    /// Begins to read up to `len` bytes, as far as the object goes; `None` where that is not there.
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

    /// Begins to read what these bytes need, unless it is at hand or under way, and what may be
    /// needed next.
    fn windows(&self, bytes: &Range<u64>) -> Result<Vec<Arc<Window>>, Error> {
        let mut places = self.places();
        let goes_on = places.iter().rposition(|place| place.goes_on(bytes.start));
        let holds = || places.iter().rposition(|place| place.holds(bytes));
        let mut place = match goes_on.or_else(holds) {
            Some(at) => places.remove(at),
            None => Reading::new(bytes.start),
        };
        if place.goes_on(bytes.start) {
            // Where another place that reads ahead began, another run begins as a rule: its bytes
            // are not fetched twice.
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

    /// Keeps nothing of a place where reading failed, so that it may be tried again.
    fn forget(&self, failed: &Arc<Window>) {
        let is_there = |place: &Reading| place.windows.iter().any(|window| Arc::ptr_eq(window, failed));
        self.places().retain(|place| !is_there(place));
    }
}

impl Reading {
    fn new(offset: u64) -> Self {
        Self { begun: offset, windows: VecDeque::new(), at: offset, end: offset, step: FIRST, ahead: None }
    }

    /// Whether a read from there goes on with it.
    fn goes_on(&self, offset: u64) -> bool {
        let begin = self.windows.front().map_or(self.at, |window| window.bytes.start);
        (begin..=self.end.min(self.at + FIRST)).contains(&offset)
    }

    /// Whether all of it is at hand, or under way.
    fn holds(&self, bytes: &Range<u64>) -> bool {
        self.windows.front().is_some_and(|window| window.bytes.start <= bytes.start) && bytes.end <= self.end
    }

    /// Begins to read the next window; tells whether there is one.
    fn read_on(&mut self, upload: &RemoteUpload, len: u64) -> bool {
        let window = upload.begin(self.end, len);
        let there = window.is_some();
        self.end = window.as_ref().map_or(self.end, |window| window.bytes.end);
        self.windows.extend(window.map(Arc::new));
        there
    }

    /// Begins to read what these bytes need, and, where it is not the first time, what will come
    /// after them, up to the bound.
    fn go_on(&mut self, upload: &RemoteUpload, bytes: &Range<u64>, bound: u64) -> Result<(), Error> {
        self.windows.retain(|window| window.bytes.end > bytes.start);
        self.at = bytes.end;
        let again = self.step > FIRST;
        while self.end < bytes.end {
            let len = self.step.max(bytes.end - self.end);
            self.step *= 2;
            if !self.read_on(upload, len) {
                let object = upload.bucket.full(&upload.upload.object((self.end / upload.object_len) as u32));
                return Err(Error::Damaged { object, what: "it ends before what lies in it".into() });
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
    /// What is kept of it on the local disk.
    pub cached: Option<CachedPart>,
}

impl RemotePart {
    /// A range of it; `None` where it passes its end.
    fn range(&self, offset: u64, len: usize) -> Option<Range<u64>> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.len)?;
        Some(offset..end)
    }

    /// Whatever of it the record holds.
    fn in_tail(&self, bytes: &Range<u64>) -> Option<Bytes> {
        let tail = self.len - TAIL as u64;
        (bytes.start >= tail)
            .then(|| self.tail.slice((bytes.start - tail) as usize..(bytes.end - tail) as usize))
    }

    fn fetch(&self, bytes: &Range<u64>) -> Result<Bytes, Error> {
        self.upload.read(&(self.start + bytes.start..self.start + bytes.end))
    }

    /// Reads by way of the local disk, a block at a time.
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
        // What is longer is read on and on.
        let read = match &self.cached {
            Some(cached) if len < BLOCK as usize => self.fetch_cached(cached, &bytes),
            _ => self.fetch(&bytes),
        };
        read.map_err(io::Error::other)
    }
}
