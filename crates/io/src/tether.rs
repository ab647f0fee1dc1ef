//! A volume behind a tether: its panics become errors, and its owner can release it while others
//! still hold the tether.
//!
//! The owner of a volume shares it in many places, and users hold some of these: for example, an
//! iterator pins the bytes that it reads. [`Tether::let_go`] ends all these uses at once. A volume
//! may be the user's own type: its panic, under any lock, counts as a failed operation.

use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::Waker;
use std::time::Duration;

use crate::panics::caught;
use crate::{Completion, Counts, Op, Persist, Queue, Tuning, Volume, VolumeInfo};

/// A volume behind a tether.
#[derive(Debug)]
pub struct Tether {
    within: RwLock<Option<Arc<dyn Volume>>>,
    /// Description of the volume at the beginning, for messages after its release.
    info: VolumeInfo,
}

impl Tether {
    /// Creates a tether for a volume.
    pub fn new(volume: Arc<dyn Volume>) -> Arc<Self> {
        let info = volume.info();
        Arc::new(Self { within: RwLock::new(Some(volume)), info })
    }

    /// Releases the volume: every later operation fails, with an error that [`is_gone`] recognizes.
    pub fn let_go(&self) {
        let within = self.within.write().unwrap_or_else(PoisonError::into_inner).take();
        // Outside the lock: the volume may be the user's own type.
        dropped("the volume", within);
    }

    fn get(&self) -> io::Result<Arc<dyn Volume>> {
        let within = self.within.read().unwrap_or_else(PoisonError::into_inner).clone();
        within.ok_or_else(|| io::Error::other(Gone(self.info.name.clone())))
    }

    fn ask<T>(&self, doing: &str, ask: impl FnOnce(&dyn Volume) -> io::Result<T>) -> io::Result<T> {
        let volume = self.get()?;
        caught(doing, || ask(&*volume))?
    }
}

/// Drops a value of a user's type: its panic ends here.
fn dropped<T>(what: &str, it: T) {
    if let Err(error) = caught(what, || drop(it)) {
        tracing::error!("{error}");
    }
}

/// The error of a released volume.
#[derive(Debug)]
struct Gone(String);

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} was closed", self.0)
    }
}

impl std::error::Error for Gone {}

/// Returns whether an error reports a released volume.
pub fn is_gone(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<Gone>())
}

impl Volume for Tether {
    fn info(&self) -> VolumeInfo {
        self.ask("describing the volume", |volume| Ok(volume.info())).unwrap_or_else(|_| self.info.clone())
    }

    fn counts(&self) -> Counts {
        self.ask("counting what the volume did", |volume| Ok(volume.counts())).unwrap_or_default()
    }

    fn size(&self) -> io::Result<u64> {
        self.ask("measuring the volume", |volume| volume.size())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.ask("reading the volume", |volume| volume.read_at(offset, buf))
    }

    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.ask("reading the volume", |volume| Ok(volume.read_cached(offset, buf))).unwrap_or(false)
    }

    fn read_medium(&self, offset: u64, buf: &mut [u8]) -> Option<io::Result<usize>> {
        self.ask("reading the volume", |volume| Ok(volume.read_medium(offset, buf)))
            .unwrap_or_else(|e| Some(Err(e)))
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        self.ask("writing the volume", |volume| volume.write_at(offset, data, persist))
    }

    fn flush(&self) -> io::Result<()> {
        self.ask("flushing the volume", |volume| volume.flush())
    }

    fn grow(&self, size: u64) -> io::Result<()> {
        self.ask("growing the volume", |volume| volume.grow(size))
    }

    fn shrink(&self, size: u64) -> io::Result<()> {
        self.ask("shrinking the volume", |volume| volume.shrink(size))
    }

    fn allocate_range(&self, range: Range<u64>) -> io::Result<()> {
        self.ask("securing space of the volume", |volume| volume.allocate_range(range))
    }

    fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        self.ask("giving space of the volume back", |volume| volume.punch(range))
    }

    fn tune(&self, scratch: Range<u64>) -> io::Result<()> {
        self.ask("tuning the volume", |volume| volume.tune(scratch))
    }

    fn tuning(&self) -> Option<Tuning> {
        self.ask("tuning the volume", |volume| Ok(volume.tuning())).ok().flatten()
    }

    fn adopt(&self, tuning: Tuning) -> bool {
        self.ask("tuning the volume", |volume| Ok(volume.adopt(tuning))).unwrap_or(false)
    }

    fn zero_rest(&self) -> io::Result<()> {
        self.ask("writing the volume's end", |volume| volume.zero_rest())
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let (within, waker) = self.ask("making a queue", |volume| {
            let queue = volume.queue(depth)?;
            let waker = queue.waker();
            Ok((queue, waker))
        })?;
        Ok(Box::new(Watched { within: Some(within), waker, flying: Vec::new(), broken: None }))
    }
}

/// A queue whose panic ends all operations in flight with an error. After a panic, the queue is not
/// used any more.
struct Watched {
    /// The queue; `None` only after `drop`.
    within: Option<Box<dyn Queue>>,
    waker: Waker,
    /// Tokens of the operations in flight.
    flying: Vec<u64>,
    broken: Option<String>,
}

impl Watched {
    fn ask(&mut self, ask: impl FnOnce(&mut dyn Queue)) {
        if let (Some(within), None) = (&mut self.within, &self.broken) {
            self.broken = caught("the volume's queue", || ask(&mut **within)).err().map(|e| e.to_string());
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        dropped("the volume's queue", self.within.take());
    }
}

impl Queue for Watched {
    fn submit(&mut self, token: u64, op: Op) {
        self.flying.push(token);
        self.ask(|within| within.submit(token, op));
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) {
        let before = out.len();
        self.ask(|within| within.reap(wait, out));
        if let Some(why) = &self.broken {
            out.truncate(before);
            let failed = |token| Completion { token, result: Err(io::Error::other(why.clone())), buf: None };
            out.extend(self.flying.drain(..).map(failed));
        } else {
            self.flying.retain(|token| !out[before..].iter().any(|done| done.token == *token));
        }
    }

    fn wait(&mut self, patience: Duration) {
        self.ask(|within| within.wait(patience));
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn in_flight(&self) -> usize {
        self.flying.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, Layer, MemVolume, SECTOR};

    /// A volume that panics whenever it is asked for something.
    #[derive(Clone, Debug)]
    struct Panics(MemVolume);

    impl Layer for Panics {
        fn below(&self) -> &dyn Volume {
            &self.0
        }
        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
            panic!("cannot read")
        }
        fn flush(&self) -> io::Result<()> {
            panic!("cannot flush")
        }
        fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
            Ok(Box::new(PanicsToo(self.0.queue(depth)?)))
        }
    }

    struct PanicsToo(Box<dyn Queue>);

    impl Drop for PanicsToo {
        fn drop(&mut self) {
            panic!("cannot be dropped")
        }
    }

    impl Queue for PanicsToo {
        fn submit(&mut self, token: u64, op: Op) {
            self.0.submit(token, op);
        }
        fn reap(&mut self, _: bool, _: &mut Vec<Completion>) {
            panic!("cannot reap")
        }
        fn wait(&mut self, _: Duration) {}
        fn waker(&self) -> Waker {
            self.0.waker()
        }
        fn in_flight(&self) -> usize {
            self.0.in_flight()
        }
    }

    #[test]
    fn a_panic_of_the_volume_is_an_error() {
        let volume = Tether::new(Arc::new(Panics(MemVolume::new(1))));
        volume.grow(1 << 20).unwrap();
        let error = volume.read_at(0, &mut AlignedBuf::zeroed(SECTOR)).unwrap_err();
        assert_eq!(error.to_string(), "reading the volume panicked: cannot read");
        assert_eq!(volume.flush().unwrap_err().to_string(), "flushing the volume panicked: cannot flush");
        let mut queue = volume.queue(2).unwrap();
        for token in [7, 9] {
            let data = AlignedBuf::zeroed(SECTOR).freeze();
            queue.submit(token, Op::Write { offset: 0, data, persist: Persist::Durable });
        }
        let mut done = Vec::new();
        queue.reap(true, &mut done);
        let told = done.iter().map(|done| (done.token, done.result.as_ref().unwrap_err().to_string()));
        let why = "the volume's queue panicked: cannot reap".to_owned();
        assert_eq!(told.collect::<Vec<_>>(), [(7, why.clone()), (9, why)]);
        assert_eq!(queue.in_flight(), 0);
        drop(queue);
    }

    #[test]
    fn a_volume_that_was_let_go_of_is_free_and_says_so() {
        let within = Arc::new(MemVolume::new(1));
        let volume = Tether::new(within.clone());
        volume.grow(1 << 20).unwrap();
        volume.let_go();
        assert_eq!(Arc::strong_count(&within), 1);
        let error = volume.flush().unwrap_err();
        assert!(is_gone(&error) && error.to_string() == "memory was closed", "{error}");
        assert!(!is_gone(&io::Error::other("another")));
        assert_eq!(volume.info().name, "memory");
    }
}
