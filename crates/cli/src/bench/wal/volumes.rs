//! Volumes around a file: one whose syncs take long, and one that notes when writes start.

use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brooklet::io::{Completion, Counts, FileVolume, Op, Persist, Queue, Volume, VolumeInfo, exact_timers};

/// A volume whose durable writes and flushes take so long each, however many there are at once.
#[derive(Clone, Debug)]
pub struct Slow {
    inner: Arc<FileVolume>,
    sync: Duration,
}

impl Slow {
    pub fn new(inner: Arc<FileVolume>, sync: Duration) -> Self {
        Self { inner, sync }
    }

    fn slowly<T>(&self, step: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let end = Instant::now() + self.sync;
        let done = step();
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        done
    }
}

impl Volume for Slow {
    fn info(&self) -> VolumeInfo {
        VolumeInfo { backend: "threads", ..self.inner.info() }
    }

    fn counts(&self) -> Counts {
        self.inner.counts()
    }

    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        match persist {
            Persist::Cached => self.inner.write_at(offset, data, persist),
            // What this device promises is only its time, so the sync of the one within is left out.
            Persist::Durable => self.slowly(|| self.inner.write_at(offset, data, Persist::Cached)),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.slowly(|| Ok(()))
    }

    fn grow(&self, size: u64) -> io::Result<()> {
        self.inner.grow(size)
    }

    fn shrink(&self, size: u64) -> io::Result<()> {
        self.inner.shrink(size)
    }

    fn tune(&self, scratch: Range<u64>) -> io::Result<()> {
        self.inner.tune(scratch)
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(SlowQueue::new(self, depth)?))
    }
}

/// A thread for each operation in flight.
struct SlowQueue {
    /// Gone when the queue goes, which ends the threads.
    to: Option<Sender<(u64, Op)>>,
    done: Receiver<Completion>,
    in_flight: usize,
    threads: Vec<JoinHandle<()>>,
}

impl SlowQueue {
    fn new(volume: &Slow, depth: usize) -> io::Result<Self> {
        let (to, from) = channel();
        let (tell, done) = channel();
        let from = Arc::new(Mutex::new(from));
        let spawn = |_| {
            let (volume, from, tell) = (volume.clone(), from.clone(), tell.clone());
            std::thread::Builder::new().name("slow-device".into()).spawn(move || serve(&volume, &from, &tell))
        };
        let threads = (0..depth).map(spawn).collect::<io::Result<_>>()?;
        Ok(Self { to: Some(to), done, in_flight: 0, threads })
    }
}

fn serve(volume: &Slow, from: &Mutex<Receiver<(u64, Op)>>, tell: &Sender<Completion>) {
    exact_timers();
    loop {
        let next = from.lock().expect("no panics").recv();
        let Ok((token, op)) = next else { return };
        let (result, buf) = match op {
            Op::Read { offset, mut buf } => {
                let result = volume.read_at(offset, &mut buf);
                buf.set_len(*result.as_ref().unwrap_or(&0));
                (result, Some(buf))
            }
            Op::Write { offset, data, persist } => (volume.write_at(offset, &data, persist), None),
        };
        // Nobody listens any more once the queue is gone.
        let _ = tell.send(Completion { token, result, buf });
    }
}

impl Queue for SlowQueue {
    fn submit(&mut self, token: u64, op: Op) {
        self.in_flight += 1;
        self.to.as_ref().expect("it lives").send((token, op)).expect("the threads live");
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) {
        let first = (wait && self.in_flight > 0).then(|| self.done.recv().expect("the threads live"));
        let before = out.len();
        out.extend(first);
        out.extend(self.done.try_iter());
        self.in_flight -= out.len() - before;
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for SlowQueue {
    fn drop(&mut self) {
        self.to = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A volume that notes when writes start.
#[derive(Debug)]
pub struct Watched {
    inner: Arc<FileVolume>,
    starts: Arc<Starts>,
}

type Starts = Mutex<Vec<Instant>>;

fn note(starts: &Starts) {
    starts.lock().expect("no panics").push(Instant::now());
}

impl Watched {
    pub fn new(inner: Arc<FileVolume>) -> Arc<Self> {
        Arc::new(Self { inner, starts: Arc::default() })
    }

    /// When the writes since the last call started.
    pub fn take(&self) -> Vec<Instant> {
        std::mem::take(&mut self.starts.lock().expect("no panics"))
    }
}

impl Volume for Watched {
    fn info(&self) -> VolumeInfo {
        self.inner.info()
    }

    fn counts(&self) -> Counts {
        self.inner.counts()
    }

    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        note(&self.starts);
        self.inner.write_at(offset, data, persist)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn grow(&self, size: u64) -> io::Result<()> {
        self.inner.grow(size)
    }

    fn shrink(&self, size: u64) -> io::Result<()> {
        self.inner.shrink(size)
    }

    fn tune(&self, scratch: Range<u64>) -> io::Result<()> {
        self.inner.tune(scratch)
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(WatchedQueue { inner: self.inner.queue(depth)?, starts: self.starts.clone() }))
    }
}

struct WatchedQueue {
    inner: Box<dyn Queue>,
    starts: Arc<Starts>,
}

impl Queue for WatchedQueue {
    fn submit(&mut self, token: u64, op: Op) {
        note(&self.starts);
        self.inner.submit(token, op);
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) {
        self.inner.reap(wait, out);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
