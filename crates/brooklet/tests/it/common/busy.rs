//! A volume whose caller does something else in between.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use brooklet::io::{Layer, MemVolume, Persist, Volume};

/// Before what it does something else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Before {
    Reads,
    /// Of which there are some for each compaction step of a merge.
    CachedWrites,
}

type Deed = Box<dyn FnMut() + Send>;

#[derive(Clone)]
pub struct Busy {
    pub within: MemVolume,
    before: Before,
    deed: Arc<Mutex<Option<Deed>>>,
}

impl Busy {
    /// Does nothing else yet.
    pub fn new(within: MemVolume, before: Before) -> Self {
        Self { within, before, deed: Arc::default() }
    }

    /// Does this from now on; what the deed itself asks of the volume is let through.
    pub fn begin(&self, deed: impl FnMut() + Send + 'static) {
        *self.deed.lock().unwrap() = Some(Box::new(deed));
    }

    pub fn end(&self) {
        *self.deed.lock().unwrap() = None;
    }

    fn at(&self, now: Before) {
        let deed = if now == self.before { self.deed.lock().unwrap().take() } else { None };
        if let Some(mut deed) = deed {
            deed();
            self.deed.lock().unwrap().replace(deed);
        }
    }
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Busy({:?})", self.within)
    }
}

impl Layer for Busy {
    fn below(&self) -> &dyn Volume {
        &self.within
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.at(Before::Reads);
        self.within.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        if persist == Persist::Cached {
            self.at(Before::CachedWrites);
        }
        self.within.write_at(offset, data, persist)
    }
}
