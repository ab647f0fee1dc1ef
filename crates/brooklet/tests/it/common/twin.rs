//! Two disks on one fuse: when it blows, during a write or flush of either, the power of both goes
//! off.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use brooklet::io::{AlignedBuf, Fault, Layer, MemVolume, Op, Persist, Queue, Volume, VolumeInfo};

/// One of two disks.
#[derive(Clone, Debug)]
pub struct Twin {
    pub disk: MemVolume,
    name: &'static str,
    other: MemVolume,
    /// Writes and flushes left before the fuse blows; negative once it has.
    left: Arc<AtomicI64>,
    /// Whether the write during which the fuse blows may leave a sector that is half old and half
    /// new.
    tears: bool,
}

/// Two disks that hold these images, with an endless fuse.
pub fn twins(images: [Vec<u8>; 2], seed: u64) -> [Twin; 2] {
    let left = Arc::new(AtomicI64::new(i64::MAX));
    let [a, b] = images.map(|image| MemVolume::from_image(image, seed));
    let twin = |name, disk: &MemVolume, other: &MemVolume| Twin {
        disk: disk.clone(),
        name,
        other: other.clone(),
        left: left.clone(),
        tears: false,
    };
    [twin("the first disk", &a, &b), twin("the second disk", &b, &a)]
}

impl Twin {
    /// Lets the power go off during the write or flush after `operations` more, on whichever disk
    /// that is.
    pub fn blow_after(&self, operations: u64) {
        self.left.store(operations as i64, Ordering::Relaxed);
    }

    /// This disk, tearing even what fits in 512 bytes.
    pub fn tearing(mut self) -> Self {
        self.tears = true;
        self
    }

    pub fn has_blown(&self) -> bool {
        self.left.load(Ordering::Relaxed) < 0
    }

    /// Counts a write or flush: the power of this disk goes off during it, and that of the other
    /// right after it.
    fn operate<T>(&self, operation: impl FnOnce(&MemVolume) -> T) -> T {
        if self.left.fetch_sub(1, Ordering::Relaxed) != 0 {
            return operation(&self.disk);
        }
        self.disk.fail(Fault::PowerOffAfter(0));
        let done = operation(&self.disk);
        for disk in [&self.disk, &self.other] {
            disk.fail(Fault::PowerOffAfter(0));
            let _ = disk.flush();
        }
        done
    }
}

impl Layer for Twin {
    fn below(&self) -> &dyn Volume {
        &self.disk
    }
    fn info(&self) -> VolumeInfo {
        VolumeInfo { name: self.name.into(), ..self.disk.info() }
    }
    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        if self.tears && self.left.load(Ordering::Relaxed) == 0 {
            let mut torn = AlignedBuf::zeroed(data.len());
            self.disk.read_at(offset, &mut torn)?;
            torn[..40].copy_from_slice(&data[..40]);
            torn[76..80].copy_from_slice(&data[76..80]);
            self.disk.write_at(offset, &torn, Persist::Durable)?;
        }
        self.operate(|disk| disk.write_at(offset, data, persist))
    }
    fn flush(&self) -> io::Result<()> {
        self.operate(MemVolume::flush)
    }
    fn zero_rest(&self) -> io::Result<()> {
        self.operate(MemVolume::zero_rest)
    }
    /// A write counts when it is handed over: what is in flight when the fuse blows may arrive.
    fn submit(&self, queue: &mut dyn Queue, token: u64, op: Op) {
        match op {
            Op::Read { .. } => queue.submit(token, op),
            Op::Write { .. } => self.operate(|_| queue.submit(token, op)),
        }
    }
}
