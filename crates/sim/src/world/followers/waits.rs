//! Tasks that wait until a log has reached a number. As in a runtime, a task runs at first, and
//! then only after it was woken.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use brooklet::io::Rng;
use brooklet::{Bytes, Error, Store, WaitingFor};

use crate::model::{Logs, text};
use crate::oracle::Oracle;

pub(super) struct Wait {
    key: Bytes,
    /// The number that the task waits for.
    wanted: u64,
    waiting: WaitingFor,
    woken: Arc<Woken>,
    is_done: bool,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Wait {
    /// Begins to wait for a number that the log does not have. The oracle must be settled.
    pub fn begin(store: &Store, key: &[u8], oracle: &mut Oracle, rng: &mut Rng) -> Self {
        let key = Bytes::copy_from_slice(key);
        oracle.reached.remove(&key);
        let wanted = oracle.durable.get(&key).map_or(0, |log| log.next()) + 1 + rng.below(4);
        let (waiting, woken) = (store.wait_for_async(&key, wanted), Woken(true.into()).into());
        Self { key, wanted, waiting, woken, is_done: false }
    }

    /// Begins again, if the task is done.
    pub fn renew(&mut self, store: &Store, oracle: &mut Oracle, rng: &mut Rng) {
        if self.is_done {
            *self = Self::begin(store, &self.key.clone(), oracle, rng);
        }
    }

    /// Runs the task, if it was woken.
    pub fn run(&mut self) -> Result<(), Error> {
        if self.is_done || !self.woken.0.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let waker = Waker::from(self.woken.clone());
        if let Poll::Ready(reached) = Pin::new(&mut self.waiting).poll(&mut Context::from_waker(&waker)) {
            reached?;
            self.is_done = true;
        }
        Ok(())
    }

    /// Compares the task with the numbers that the log had.
    pub fn check(&self, shown: &Logs, oracle: &Oracle) -> Result<(), String> {
        let next = shown.get(&self.key).map_or(0, |log| log.next());
        let reached = oracle.reached.get(&self.key).copied().unwrap_or_default();
        let (key, wanted) = (text(&self.key), self.wanted);
        if self.is_done && reached < wanted && !oracle.imported {
            return Err(format!("{key}: a task waits for {wanted}, and is done, but the log had {reached}"));
        }
        if !self.is_done && reached.max(next) >= wanted {
            return Err(format!("{key}: the log reached {wanted}, and a task still waits for it"));
        }
        Ok(())
    }
}
