//! The stage on which interleavings are tried: a volume whose every operation lets other threads
//! in, a clock that moves when it is looked at.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use brooklet_io::{Clock, Completion, Fault, Layer, MemVolume, Op, Persist, Queue, Volume};
use brooklet_wal::Header;
use shuttle::thread;

pub use crate::explore::{explore, others, rng};

/// A disk in memory, during whose operations others go on, and which knows the blocks of a ring
/// that are safe on it.
#[derive(Clone, Debug)]
pub struct Stage {
    pub disk: MemVolume,
    safe: Arc<Mutex<BTreeSet<u64>>>,
    /// Operations until it panics.
    panics: Arc<AtomicU64>,
}

impl Stage {
    pub fn new(seed: u64) -> Self {
        Self { disk: MemVolume::new(seed), safe: Arc::default(), panics: Arc::new(u64::MAX.into()) }
    }

    /// Has it panic after so many writes and flushes, and then each time.
    pub fn panic_after(&self, operations: u64) {
        self.panics.store(operations, Ordering::Relaxed);
    }

    fn may_panic(&self) {
        match self.panics.load(Ordering::Relaxed) {
            u64::MAX => {}
            // Without the hook, which would print a schedule.
            0 => std::panic::resume_unwind(Box::new("a planned panic")),
            left => self.panics.store(left - 1, Ordering::Relaxed),
        }
    }

    pub fn fail_after(&self, operations: u64) {
        self.disk.fail(Fault::ErrorAfter { operations, kind: io::ErrorKind::Other, sticky: true });
    }

    /// Whether block `seq` and all before it were written durably, and whole.
    pub fn is_safe(&self, seq: u64) -> bool {
        let safe = self.safe.lock().unwrap();
        (1..=seq).all(|seq| safe.contains(&seq))
    }

    fn wrote(&self, header: Option<(u64, usize)>, result: &io::Result<usize>) {
        if let (Some((seq, len)), Ok(written)) = (header, result)
            && *written == len
        {
            self.safe.lock().unwrap().insert(seq);
        }
    }
}

/// The number and the length of a block, if it is a block that is written durably.
fn header(data: &[u8], persist: Persist) -> Option<(u64, usize)> {
    let (header, _) = Header::decode(data)?;
    (persist == Persist::Durable).then_some((header.seq, data.len()))
}

impl Layer for Stage {
    fn below(&self) -> &dyn Volume {
        &self.disk
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        others();
        self.disk.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        others();
        self.may_panic();
        let result = self.disk.write_at(offset, data, persist);
        self.wrote(header(data, persist), &result);
        others();
        result
    }

    fn flush(&self) -> io::Result<()> {
        others();
        self.may_panic();
        let result = self.disk.flush();
        others();
        result
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(StageQueue { queue: self.disk.queue(depth)?, stage: self.clone(), blocks: Vec::new() }))
    }
}

struct StageQueue {
    queue: Box<dyn Queue>,
    stage: Stage,
    /// The blocks in flight, by token.
    blocks: Vec<(u64, (u64, usize))>,
}

impl Queue for StageQueue {
    fn submit(&mut self, token: u64, op: Op) {
        if let Op::Write { data, persist, .. } = &op
            && let Some(block) = header(data, *persist)
        {
            self.blocks.push((token, block));
        }
        self.stage.may_panic();
        self.queue.submit(token, op);
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) {
        others();
        let before = out.len();
        self.queue.reap(wait, out);
        for completion in &out[before..] {
            let at = self.blocks.iter().position(|(token, _)| *token == completion.token);
            self.stage.wrote(at.map(|at| self.blocks.swap_remove(at).1), &completion.result);
        }
    }

    fn wait(&mut self, patience: Duration) {
        self.queue.wait(patience);
    }

    fn waker(&self) -> Waker {
        self.queue.waker()
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }
}

/// Moves on by a twentieth of a millisecond whenever it is looked at.
#[derive(Debug, Default)]
pub struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Duration {
        Duration::from_micros(50 * self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn wall(&self) -> Duration {
        self.now()
    }

    fn sleep(&self, time: Duration) {
        self.0.fetch_add(1 + time.as_micros() as u64 / 50, Ordering::Relaxed);
        others();
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest of runtimes.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
