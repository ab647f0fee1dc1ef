//! Writing with many operations in flight on one thread: by callbacks, and by tasks that await.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::tasks::{self, Task};
use super::write::{Load, Ops, Written};
use crate::outcome::{Outcome, Result};
use crate::payloads::Payloads;
use crate::peer::Peer;
use crate::system;

/// What may still be handed in, given back by callbacks.
struct Credits {
    free: AtomicUsize,
    /// So many wake the thread: waking it for each would be a wake-up per operation.
    enough: usize,
    thread: Thread,
    failure: Mutex<Option<Arc<str>>>,
}

impl Credits {
    fn give(&self, outcome: Outcome) {
        if let Err(why) = outcome {
            *self.failure.lock().expect("no panics") = Some(why);
        }
        if self.free.fetch_add(1, Ordering::AcqRel) + 1 == self.enough {
            self.thread.unpark();
        }
    }

    fn check(&self) -> Result<()> {
        let failure = self.failure.lock().expect("no panics").clone();
        Ok(failure.map_or(Ok(()), |why| Err(why.to_string()))?)
    }
}

/// One thread hands in operations and leaves callbacks.
pub fn callbacks(store: &dyn Peer, load: &Load, most: usize, payloads: Payloads) -> Result<Written> {
    let mut ops = Ops::new(load, 0, 1, payloads);
    let (thread, failure) = (thread::current(), Mutex::default());
    let credits = Arc::new(Credits { free: AtomicUsize::new(most), enough: most / 2, thread, failure });
    let (begin, before) = (Instant::now(), system::switches_of_living());
    while load.until.holds(begin, ops.given) {
        let free = credits.free.swap(0, Ordering::AcqRel);
        if free == 0 {
            thread::park();
        }
        for _ in 0..free {
            let credits = credits.clone();
            store.submit(ops.next(), Box::new(move |outcome| credits.give(outcome)))?;
        }
        credits.check()?;
    }
    while credits.free.load(Ordering::Acquire) < most {
        thread::sleep(Duration::from_micros(100));
    }
    credits.check()?;
    let took = begin.elapsed();
    let switches = system::switches_since(before);
    Ok(Written { ops: ops.given, bytes: ops.bytes, took, latencies: Vec::new(), switches })
}

/// So many tasks on this thread, each of which awaits each of its operations.
pub fn tasks(store: &dyn Peer, load: &Load, count: u64, payloads: Payloads) -> Result<Written> {
    let (given, bytes) = (Cell::new(0), Cell::new(0));
    let (begin, before) = (Instant::now(), system::switches_of_living());
    let task = |i: u64| -> Task<'_> {
        let mut ops = Ops::new(load, i, count, payloads);
        let (given, bytes) = (&given, &bytes);
        Box::pin(async move {
            while load.until.holds(begin, given.get()) {
                let op = ops.next();
                given.set(given.get() + 1);
                bytes.set(bytes.get() + op.payload.len() as u64);
                store.begin(op)?.await?;
            }
            Ok(())
        })
    };
    tasks::run((0..count).map(task).collect())?;
    let took = begin.elapsed();
    let switches = system::switches_since(before);
    Ok(Written { ops: given.get(), bytes: bytes.get(), took, latencies: Vec::new(), switches })
}
