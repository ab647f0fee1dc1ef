//! Volumes around a file: one whose syncs take long, and one that notes when writes start.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brooklet::io::{Completion, FileVolume, Layer, Op, Persist, Queue, Volume, VolumeInfo, exact_timers};

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

impl Layer for Slow {
    fn below(&self) -> &dyn Volume {
        &*self.inner
    }

    fn info(&self) -> VolumeInfo {
        VolumeInfo { backend: "threads", ..self.below().info() }
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        match persist {
            Persist::Cached => self.below().write_at(offset, data, persist),
            // What this device promises is only its time, so the sync of the one below is left out.
            Persist::Durable => self.slowly(|| self.below().write_at(offset, data, Persist::Cached)),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.slowly(|| Ok(()))
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(SlowQueue::new(self, depth)?))
    }
}

/// A thread for each operation in flight.
struct SlowQueue {
    /// Gone when the queue goes, which ends the threads.
    to: Option<Sender<(u64, Op)>>,
    /// What has ended; nothing where somebody ends a wait.
    done: Receiver<Option<Completion>>,
    bell: Sender<Option<Completion>>,
    ready: Vec<Completion>,
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
        Ok(Self { to: Some(to), done, bell: tell, ready: Vec::new(), in_flight: 0, threads })
    }
}

struct Bell(Sender<Option<Completion>>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Nobody listens any more once the queue is gone.
        let _ = self.0.send(None);
    }
}

fn serve(volume: &dyn Volume, from: &Mutex<Receiver<(u64, Op)>>, tell: &Sender<Option<Completion>>) {
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
        let _ = tell.send(Some(Completion { token, result, buf }));
    }
}

impl Queue for SlowQueue {
    fn submit(&mut self, token: u64, op: Op) {
        self.in_flight += 1;
        self.to.as_ref().expect("it lives").send((token, op)).expect("the threads live");
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) {
        while wait && self.ready.is_empty() && self.in_flight > 0 {
            self.wait(Duration::MAX);
        }
        self.ready.extend(self.done.try_iter().flatten());
        self.in_flight -= self.ready.len();
        out.append(&mut self.ready);
    }

    fn wait(&mut self, patience: Duration) {
        if self.ready.is_empty() && self.in_flight > 0 {
            self.ready.extend(self.done.recv_timeout(patience).ok().flatten());
        }
    }

    fn waker(&self) -> Waker {
        Arc::new(Bell(self.bell.clone())).into()
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
#[derive(Clone, Debug)]
pub struct Watched {
    inner: Arc<FileVolume>,
    starts: Arc<Mutex<Vec<Instant>>>,
}

impl Watched {
    pub fn new(inner: Arc<FileVolume>) -> Arc<Self> {
        Arc::new(Self { inner, starts: Arc::default() })
    }

    /// When the writes since the last call started.
    pub fn take(&self) -> Vec<Instant> {
        std::mem::take(&mut self.starts.lock().expect("no panics"))
    }

    /// Writes that started since [`take`](Self::take) was called.
    pub fn starts(&self) -> usize {
        self.starts.lock().expect("no panics").len()
    }

    fn note(&self) {
        self.starts.lock().expect("no panics").push(Instant::now());
    }
}

impl Layer for Watched {
    fn below(&self) -> &dyn Volume {
        &*self.inner
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        self.note();
        self.below().write_at(offset, data, persist)
    }

    fn submit(&self, queue: &mut dyn Queue, token: u64, op: Op) {
        self.note();
        queue.submit(token, op);
    }
}
