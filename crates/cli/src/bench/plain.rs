//! What the log is compared with: group commit at its plainest.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use brooklet::io::{AlignedBuf, FileVolume, Persist, write_all_at};
#[cfg(target_os = "linux")]
use rustix::thread::futex;

use crate::device::Device;
use crate::failure::Failure;

/// Bytes of the plain file.
pub const DEVICE_BYTES: u64 = 64 << 20;

/// Group commit at its plainest: two buffers, and one thread that writes what has gathered with one
/// durable write. Whoever waits sleeps on the word of its batch, and takes no lock after waking.
pub struct PlainGroupCommit {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    volume: FileVolume,
    open: Mutex<Open>,
    /// Set while something waits to be written.
    work: Word,
}

/// The batch that fills.
struct Open {
    buf: AlignedBuf,
    batch: Arc<Batch>,
    closing: bool,
}

#[derive(Default)]
struct Batch {
    result: Word,
}

const PENDING: u32 = 0;
const DURABLE: u32 = 1;
const FAILED: u32 = 2;

impl PlainGroupCommit {
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let volume = Device::new(path, DEVICE_BYTES)?.volume;
        let open = Open { buf: AlignedBuf::new(1 << 20), batch: Arc::default(), closing: false };
        let shared = Arc::new(Shared { volume, open: Mutex::new(open), work: Word::default() });
        let writer = shared.clone();
        let writer = thread::Builder::new().name("plain-writer".into()).spawn(move || writer.run())?;
        Ok(Self { shared, writer: Some(writer) })
    }

    pub fn append(&self, payload: &[u8]) -> Result<(), Failure> {
        let (batch, is_first) = {
            let mut open = self.shared.lock();
            let is_first = open.buf.is_empty();
            open.buf.extend(&(payload.len() as u32).to_le_bytes());
            open.buf.extend(payload);
            (open.batch.clone(), is_first)
        };
        if is_first {
            self.shared.work.set(1);
        }
        match batch.result.wait() {
            DURABLE => Ok(()),
            _ => Err(io::Error::other("the plain group commit could not write").into()),
        }
    }

    /// The volume it writes to.
    pub fn volume(&self) -> &FileVolume {
        &self.shared.volume
    }
}

impl Drop for PlainGroupCommit {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.set(1);
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("no panics")
    }

    fn run(&self) {
        let mut offset = 0;
        let mut spare = AlignedBuf::new(1 << 20);
        loop {
            self.work.wait();
            self.work.reset();
            let mut open = self.lock();
            if open.buf.is_empty() {
                if open.closing {
                    return;
                }
                continue;
            }
            let mut buf = std::mem::replace(&mut open.buf, spare);
            let batch = std::mem::take(&mut open.batch);
            drop(open);
            buf.pad();
            let written = write_all_at(&self.volume, offset, &buf, Persist::Durable);
            offset = (offset + buf.len() as u64) % (DEVICE_BYTES / 2);
            batch.result.set(if written.is_ok() { DURABLE } else { FAILED });
            buf.clear();
            spare = buf;
        }
    }
}

/// A word that threads wait for, without a lock.
#[derive(Default)]
struct Word(AtomicU32);

impl Word {
    fn reset(&self) {
        self.0.store(PENDING, Ordering::Release);
    }

    /// Sets the word, and wakes everybody who waits for it.
    fn set(&self, value: u32) {
        self.0.store(value, Ordering::Release);
        #[cfg(target_os = "linux")]
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, u32::MAX >> 1);
    }

    /// Waits until the word is set, and returns it.
    fn wait(&self) -> u32 {
        loop {
            let value = self.0.load(Ordering::Acquire);
            if value != PENDING {
                return value;
            }
            // A signal, or a word that has changed, ends the call early.
            #[cfg(target_os = "linux")]
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, PENDING, None);
            #[cfg(not(target_os = "linux"))]
            thread::park_timeout(std::time::Duration::from_micros(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use brooklet::io::Volume;

    use super::*;

    #[test]
    fn everybody_is_acknowledged_and_the_writer_ends() {
        let dir = tempfile::tempdir().unwrap();
        let plain = PlainGroupCommit::new(&dir.path().join("plain")).unwrap();
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| (0..50).for_each(|_| plain.append(&[7; 300]).unwrap()));
            }
        });
        let volume = plain.volume().counts();
        assert!(volume.written_bytes >= 16 * 50 * 304 && volume.writes <= 16 * 50, "{volume:?}");
    }
}
