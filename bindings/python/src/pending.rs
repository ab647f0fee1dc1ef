//! The waits of event loops: futures of the store, each with a future of `asyncio`.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{PipeReader, PipeWriter, Write};
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};

use brooklet::{Appending, Committing, Error, WaitingFor};
use pyo3::prelude::*;

use crate::tail::Following;
use crate::wait::held;

/// The future of the store.
pub enum Work {
    Append(Appending),
    Commit(Committing),
    Ticket(brooklet::Ticket),
    Tail(Arc<Following>),
    Reach(Arc<Mutex<WaitingFor>>),
    /// A write that ended before its event loop took the result.
    Ended(Option<Result<Outcome, Error>>),
}

/// The result of a future.
pub enum Outcome {
    Seq(u64),
    Seqs(Vec<u64>),
    /// The write is acknowledged, the tail has an event, or the log has reached the number.
    Done,
}

impl Work {
    /// Returns whether an end of the wait matters before the work has ended: it cancels a commit
    /// that is not made, or ends the wait for a log, which may last for ever.
    pub fn may_end_early(&self) -> bool {
        match self {
            Work::Append(append) => !append.is_made(),
            Work::Commit(commit) => !commit.is_made(),
            Work::Tail(_) | Work::Reach(_) => true,
            Work::Ticket(_) | Work::Ended(_) => false,
        }
    }

    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Outcome, Error>> {
        match self {
            Work::Append(append) => Pin::new(append).poll(context).map_ok(Outcome::Seq),
            Work::Commit(commit) => Pin::new(commit).poll(context).map_ok(Outcome::Seqs),
            Work::Ticket(ticket) => Pin::new(ticket).poll(context).map_ok(|()| Outcome::Done),
            Work::Tail(following) => following.poll(context).map(|()| Ok(Outcome::Done)),
            Work::Reach(waiting) => Pin::new(&mut *held(waiting)).poll(context).map_ok(|()| Outcome::Done),
            Work::Ended(result) => Poll::Ready(result.take().unwrap_or(Err(Error::Closed))),
        }
    }
}

pub struct Woken {
    /// Numbers of waits.
    pub waits: Vec<u64>,
    /// Whether the pipe has its byte.
    pub has_byte: bool,
    /// Both ends of the pipe: a tail may wake a wait of an event loop that is gone.
    pub reader: PipeReader,
    pub writer: PipeWriter,
}

/// Wakes one wait.
pub struct Waking {
    pub woken: Arc<Mutex<Woken>>,
    pub wait: u64,
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        let mut woken = held(&self.woken);
        if !woken.has_byte {
            // The pipe is empty, so this does not block. If it fails, the next wake tries again.
            woken.has_byte = woken.writer.write(&[1]).is_ok();
        }
        woken.waits.push(self.wait);
    }
}

/// A wait that has not ended.
pub struct Wait {
    pub number: u64,
    pub work: Work,
    pub waker: Waker,
    /// The future of `asyncio`.
    pub future: Py<PyAny>,
}

/// The number of the last wait. No two ports use one number: a tail may move from one to another.
pub static LAST: AtomicU64 = AtomicU64::new(0);

/// Waits by number. Only a thread with the interpreter's lock holds it: so none does in a fork.
pub type Pending = Mutex<BTreeMap<u64, Wait>>;

/// The waits of all ports, each with the process of its port: a child of a fork has copies.
pub static PORTS: Mutex<Vec<(u32, Weak<Pending>)>> = Mutex::new(Vec::new());

/// Ends the writes that have their results, for a store that was closed: a write holds its store
/// until it ends, and its event loop may take the result later.
pub fn end_writes(py: Python<'_>) {
    let ports: Vec<Arc<Pending>> = {
        let (ports, here) = (held(&PORTS), std::process::id());
        ports.iter().filter(|port| port.0 == here).filter_map(|port| port.1.upgrade()).collect()
    };
    let mut ended = Vec::new();
    for pending in ports {
        for wait in held(&pending).values_mut() {
            if !matches!(wait.work, Work::Append(_) | Work::Commit(_)) {
                continue;
            }
            if let Poll::Ready(result) = wait.work.poll(&mut Context::from_waker(&wait.waker)) {
                ended.push(std::mem::replace(&mut wait.work, Work::Ended(Some(result))));
                wait.waker.wake_by_ref();
            }
        }
    }
    // It may be the last handle of another store.
    py.detach(|| drop(ended));
}
