//! A volume on top of another, which implements only its differences.

use std::fmt;
use std::io;
use std::ops::Range;
use std::task::Waker;
use std::time::Duration;

use crate::{Completion, Counts, Op, Persist, Queue, Tuning, Volume, VolumeInfo};

/// A [`Volume`] that changes some methods and passes the others on to the volume
/// [`below`](Self::below).
///
/// Every type that implements `Layer` is a volume. Clones are handles to the same volume: each
/// queue holds one. Layers are for tests and measurements: implement [`Volume`] in full for a
/// volume that restricts operations, so that no new method bypasses it.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use brooklet_io::{Layer, MemVolume, Volume};
///
/// /// Counts the flushes.
/// #[derive(Clone, Debug)]
/// struct Counting(MemVolume, Arc<AtomicU64>);
///
/// impl Layer for Counting {
///     fn below(&self) -> &dyn Volume {
///         &self.0
///     }
///
///     fn flush(&self) -> std::io::Result<()> {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.below().flush()
///     }
/// }
///
/// let volume: Box<dyn Volume> = Box::new(Counting(MemVolume::new(7), Arc::default()));
/// volume.grow(1 << 20)?;
/// volume.flush()?;
/// assert_eq!(volume.size()?, 1 << 20);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Layer: Clone + Send + Sync + fmt::Debug + 'static {
    /// Returns the volume below this one.
    fn below(&self) -> &dyn Volume;

    /// Replaces [`Volume::info`].
    fn info(&self) -> VolumeInfo {
        self.below().info()
    }

    /// Replaces [`Volume::read_at`].
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.below().read_at(offset, buf)
    }

    /// Replaces [`Volume::read_cached`]. Not passed on by default, so that no read bypasses
    /// [`read_at`](Self::read_at).
    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        let _ = (offset, buf);
        false
    }

    /// Replaces [`Volume::read_medium`].
    fn read_medium(&self, offset: u64, buf: &mut [u8]) -> Option<io::Result<usize>> {
        self.below().read_medium(offset, buf)
    }

    /// Replaces [`Volume::write_at`].
    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        self.below().write_at(offset, data, persist)
    }

    /// Replaces [`Volume::flush`].
    fn flush(&self) -> io::Result<()> {
        self.below().flush()
    }

    /// Replaces [`Volume::zero_rest`].
    fn zero_rest(&self) -> io::Result<()> {
        self.below().zero_rest()
    }

    /// Replaces [`Queue::submit`] in the queues of this volume; `queue` is the queue of the volume
    /// below.
    fn submit(&self, queue: &mut dyn Queue, token: u64, op: Op) {
        queue.submit(token, op);
    }

    /// Replaces [`Queue::reap`] in the queues of this volume; `queue` is the queue of the volume
    /// below.
    fn reap(&self, queue: &mut dyn Queue, wait: bool, out: &mut Vec<Completion>) {
        queue.reap(wait, out);
    }

    /// Replaces [`Queue::wait`] in the queues of this volume; `queue` is the queue of the volume
    /// below.
    fn wait(&self, queue: &mut dyn Queue, patience: Duration) {
        queue.wait(patience);
    }

    /// Replaces [`Volume::queue`]. By default its operations go through [`submit`](Self::submit),
    /// [`reap`](Self::reap) and [`wait`](Self::wait).
    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(LayerQueue { layer: self.clone(), below: self.below().queue(depth)? }))
    }
}

impl<L: Layer> Volume for L {
    fn info(&self) -> VolumeInfo {
        Layer::info(self)
    }

    fn counts(&self) -> Counts {
        self.below().counts()
    }

    fn size(&self) -> io::Result<u64> {
        self.below().size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        Layer::read_at(self, offset, buf)
    }

    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        Layer::read_cached(self, offset, buf)
    }

    fn read_medium(&self, offset: u64, buf: &mut [u8]) -> Option<io::Result<usize>> {
        Layer::read_medium(self, offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        Layer::write_at(self, offset, data, persist)
    }

    fn flush(&self) -> io::Result<()> {
        Layer::flush(self)
    }

    fn grow(&self, size: u64) -> io::Result<()> {
        self.below().grow(size)
    }

    fn shrink(&self, size: u64) -> io::Result<()> {
        self.below().shrink(size)
    }

    fn allocate_range(&self, range: Range<u64>) -> io::Result<()> {
        self.below().allocate_range(range)
    }

    fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        self.below().punch(range)
    }

    fn tune(&self, scratch: Range<u64>) -> io::Result<()> {
        self.below().tune(scratch)
    }

    fn tuning(&self) -> Option<Tuning> {
        self.below().tuning()
    }

    fn adopt(&self, tuning: Tuning) -> bool {
        self.below().adopt(tuning)
    }

    fn zero_rest(&self) -> io::Result<()> {
        Layer::zero_rest(self)
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        Layer::queue(self, depth)
    }
}

struct LayerQueue<L> {
    layer: L,
    below: Box<dyn Queue>,
}

impl<L: Layer> Queue for LayerQueue<L> {
    fn submit(&mut self, token: u64, op: Op) {
        self.layer.submit(&mut *self.below, token, op);
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) {
        self.layer.reap(&mut *self.below, wait, out);
    }

    fn wait(&mut self, patience: Duration) {
        self.layer.wait(&mut *self.below, patience);
    }

    fn waker(&self) -> Waker {
        self.below.waker()
    }

    fn in_flight(&self) -> usize {
        self.below.in_flight()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{AlignedBuf, MemVolume, SECTOR, capped};

    #[derive(Clone, Debug)]
    struct Plain(Arc<dyn Volume>);

    impl Layer for Plain {
        fn below(&self) -> &dyn Volume {
            &*self.0
        }
    }

    #[test]
    fn what_is_not_done_differently_is_passed_on() {
        let disk = MemVolume::new(1);
        let volume: &dyn Volume = &Plain(capped(Arc::new(disk.clone()), 1 << 16));
        volume.grow(1 << 16).unwrap();
        volume.shrink(1 << 15).unwrap();
        assert_eq!((volume.size().unwrap(), volume.info().backend), (1 << 15, "memory"));
        assert!(volume.tune(0..1 << 15).is_ok() && volume.tune(0..1 << 20).is_err());
        let mut buf = AlignedBuf::zeroed(SECTOR);
        buf.fill(3);
        volume.write_at(0, &buf, Persist::Cached).unwrap();
        volume.flush().unwrap();
        assert_eq!((disk.at_risk(), &disk.image()[..SECTOR]), (0, &buf[..]));
        buf.fill(0);
        volume.read_at(0, &mut buf).unwrap();
        assert!(buf.iter().all(|&byte| byte == 3));

        let mut queue = volume.queue(2).unwrap();
        queue.submit(8, Op::Read { offset: 0, buf });
        assert_eq!(queue.in_flight(), 1);
        let mut done = Vec::new();
        queue.reap(true, &mut done);
        assert_eq!((done[0].token, done[0].result.as_ref().unwrap(), queue.in_flight()), (8, &SECTOR, 0));
        assert_eq!((volume.counts().reads, volume.counts().flushes), (2, 1));
    }
}
