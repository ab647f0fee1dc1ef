//! Short transfers, as devices, full file systems and limits give them: completed where that is
//! possible, told where not.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use super::*;
use crate::{FileOptions, FileVolume, Layer, MemVolume, OpenMode};

/// A volume that moves, at each call, as many bytes as the next number says at most.
#[derive(Clone, Debug)]
struct Sluggish {
    within: MemVolume,
    counts: Arc<Mutex<Vec<usize>>>,
}

impl Sluggish {
    fn new(sectors: usize, counts: &[usize]) -> Self {
        let within = MemVolume::from_image(vec![7; sectors * SECTOR], 1);
        Self { within, counts: Arc::new(Mutex::new(counts.iter().rev().copied().collect())) }
    }

    fn next(&self, most: usize) -> usize {
        self.counts.lock().unwrap().pop().unwrap_or(most).min(most)
    }
}

impl Layer for Sluggish {
    fn below(&self) -> &dyn Volume {
        &self.within
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.next(buf.len());
        Ok(self.within.read_at(offset, buf)?.min(n))
    }
    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        let n = self.next(data.len());
        self.within.write_at(offset, &data[..n.next_multiple_of(SECTOR)], persist)?;
        Ok(n)
    }
}

fn ones(sectors: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(sectors * SECTOR);
    buf.fill(1);
    buf
}

#[test]
fn a_write_that_stops_anywhere_goes_on_from_the_last_whole_sector() {
    for counts in [&[SECTOR][..], &[SECTOR + 512, SECTOR], &[2 * SECTOR, SECTOR + 1], &[]] {
        let volume = Sluggish::new(6, counts);
        write_all_at(&volume, SECTOR as u64, &ones(4), Persist::Durable).unwrap();
        let image = volume.within.image();
        assert!(image[SECTOR..5 * SECTOR].iter().all(|&byte| byte == 1), "{counts:?}");
        assert!(image[..SECTOR].iter().chain(&image[5 * SECTOR..]).all(|&byte| byte == 7), "{counts:?}");
    }
}

/// What takes nothing, or less than a sector, would be asked for ever: no room is what that means.
#[test]
fn a_write_that_does_not_get_on_is_an_error() {
    let written = |counts: &[usize]| {
        write_all_at(&Sluggish::new(6, counts), 0, &ones(4), Persist::Cached)
            .map_err(|e| (e.kind(), e.to_string()))
    };
    let (kind, message) = written(&[SECTOR, 0]).unwrap_err();
    assert!(kind == io::ErrorKind::WriteZero && message.contains("took 4096 of 16384 bytes"), "{message}");
    let (kind, message) = written(&[SECTOR, 512]).unwrap_err();
    assert!(kind == io::ErrorKind::StorageFull && message.contains("part of a sector at 4096"), "{message}");
}

#[test]
fn a_read_is_completed_or_the_end_is_named() {
    let volume = Sluggish::new(3, &[SECTOR]);
    let mut buf = AlignedBuf::zeroed(3 * SECTOR);
    read_exact_at(&volume, 0, &mut buf).unwrap();
    assert!(buf.iter().all(|&byte| byte == 7));
    for counts in [&[][..], &[100]] {
        let mut buf = AlignedBuf::zeroed(2 * SECTOR);
        let error = read_exact_at(&Sluggish::new(3, counts), 2 * SECTOR as u64, &mut buf).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains("into a read of 8192 at 8192"), "{error}");
    }
}

/// A file for a queue to work on, and the directory it is in.
pub(crate) fn a_file() -> (FileVolume, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = FileVolume::open(&dir.path().join("v"), OpenMode::Create, FileOptions::default()).unwrap();
    (file, dir)
}

/// Of a queue with something in flight that does not end.
#[expect(clippy::disallowed_methods, reason = "what is tested is a wait in real time")]
pub(crate) fn a_wait_ends_by_time_and_by_its_waker(queue: &mut dyn Queue) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(5) {
        queue.wait(Duration::from_millis(5).saturating_sub(start.elapsed()));
    }
    let waker = queue.waker();
    // Before the wait, and while it lasts; each call ends one.
    waker.wake_by_ref();
    queue.wait(Duration::MAX);
    for patience in [Duration::MAX, Duration::MAX - Duration::from_secs(5), Duration::from_secs(1 << 40)] {
        let (start, waker) = (Instant::now(), waker.clone());
        let later = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            waker.wake();
        });
        queue.wait(patience);
        assert!(start.elapsed() >= Duration::from_millis(4), "{patience:?} were over at once");
        later.join().unwrap();
    }
    let start = Instant::now();
    queue.wait(Duration::from_millis(5));
    assert!(start.elapsed() >= Duration::from_millis(5), "no call is left over");
}
