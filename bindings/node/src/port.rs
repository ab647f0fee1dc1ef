//! Ports: where the waits of one environment of Node end.
//!
//! A wait is a future of the store and a promise, which the part in JavaScript keeps by the wait's
//! number. The store wakes a wait by its number, from any thread: the number joins a list, and Node
//! gets one call if the list was empty. That call polls all woken waits in one turn. So many ends
//! cost one wake-up.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use brooklet::{Appending, Committing};
use napi::Status;
use napi::bindgen_prelude::{Float64Array, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;

use crate::commit::{Commit, cut, many};
use crate::failure::Failure;
use crate::number::number;
use crate::reach::{self, Reach, Reaching};
use crate::rows::{Arrays, Rows};
use crate::store::Store;
use crate::tail::{Following, Tail, poll};

/// The future of the store.
enum Work {
    Append(Appending),
    Commit(Committing),
    Tail(Arc<Mutex<Following>>),
    Reach(Arc<Mutex<Reaching>>),
    /// It ended before it began.
    Failed(Option<Failure>),
}

/// The result of a future.
enum Outcome {
    Seq(f64),
    Seqs(Vec<f64>),
    Events(Rows),
    /// The log has reached the number.
    Reached,
}

impl Work {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Outcome, Failure>> {
        match self {
            Work::Append(append) => Pin::new(append).poll(context).map(|seq| number(seq?).map(Outcome::Seq)),
            Work::Commit(commit) => Pin::new(commit)
                .poll(context)
                .map(|seqs| seqs?.into_iter().map(number).collect::<Result<_, _>>().map(Outcome::Seqs)),
            Work::Tail(following) => poll(following, context).map_ok(Outcome::Events),
            Work::Reach(reaching) => reach::poll(reaching, context).map_ok(|()| Outcome::Reached),
            Work::Failed(failure) => {
                let again = || Failure::invalid("the wait has ended");
                Poll::Ready(Err(failure.take().unwrap_or_else(again)))
            }
        }
    }
}

/// Calls Node; it keeps no environment alive.
type Notify = ThreadsafeFunction<(), (), (), Status, false, true>;

struct Woken {
    waits: Mutex<Vec<u64>>,
    notify: Notify,
}

impl Woken {
    fn waits(&self) -> MutexGuard<'_, Vec<u64>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, wait: u64) {
        let mut waits = self.waits();
        waits.push(wait);
        let is_first = waits.len() == 1;
        drop(waits);
        if is_first {
            // An environment that ends takes no more calls, and needs none.
            self.notify.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }
}

/// Wakes one wait.
struct Waking {
    woken: Arc<Woken>,
    wait: u64,
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.woken.push(self.wait);
    }
}

/// A wait that has not ended.
struct Wait {
    work: Work,
    waker: Waker,
}

/// Where the waits of one environment of Node end.
#[napi]
pub struct Port {
    woken: Arc<Woken>,
    pending: BTreeMap<u64, Wait>,
    /// The results that JavaScript has not taken.
    ended: Vec<(u64, Result<Outcome, Failure>)>,
    /// The number of the last wait.
    last: u64,
}

/// Ends of waits: pairs of the number of a wait and the number of its entry; and the other ends.
type Ends = (Float64Array, Vec<End>);

/// The number of a wait; a failure, the numbers of a commit, or events.
type End = (f64, Option<Failure>, Option<Vec<f64>>, Option<Arrays>);

impl Port {
    /// Begins a wait, and returns its number.
    fn begin(&mut self, work: Work) -> f64 {
        self.last += 1;
        let wait = self.last;
        let waker = Waker::from(Arc::new(Waking { woken: self.woken.clone(), wait }));
        if self.advance(wait, Wait { work, waker }) {
            self.woken.push(wait);
        }
        wait as f64
    }

    /// Polls a wait, and returns whether it has ended. Keeps it otherwise.
    fn advance(&mut self, number: u64, mut wait: Wait) -> bool {
        match wait.work.poll(&mut Context::from_waker(&wait.waker)) {
            Poll::Pending => {
                self.pending.insert(number, wait);
                false
            }
            Poll::Ready(result) => {
                self.ended.push((number, result));
                true
            }
        }
    }
}

#[napi]
impl Port {
    /// Returns a port that calls `notify` when there are ends.
    #[napi(constructor)]
    pub fn new(notify: Function<'_, (), ()>) -> napi::Result<Self> {
        let notify = notify.build_threadsafe_function().weak::<true>().build()?;
        let woken = Arc::new(Woken { waits: Mutex::new(Vec::new()), notify });
        Ok(Self { woken, pending: BTreeMap::new(), ended: Vec::new(), last: 0 })
    }

    /// Polls the woken waits, and returns the ends.
    #[napi]
    pub fn drain(&mut self) -> Ends {
        let woken = std::mem::take(&mut *self.woken.waits());
        for number in woken {
            if let Some(wait) = self.pending.remove(&number) {
                self.advance(number, wait);
            }
        }
        let (mut appended, mut others) = (Vec::new(), Vec::new());
        for (wait, result) in self.ended.drain(..) {
            let wait = wait as f64;
            match result {
                Ok(Outcome::Seq(seq)) => appended.extend([wait, seq]),
                Ok(Outcome::Seqs(seqs)) => others.push((wait, None, Some(seqs), None)),
                Ok(Outcome::Events(rows)) => others.push((wait, None, None, Some(rows.arrays()))),
                Ok(Outcome::Reached) => others.push((wait, None, None, None)),
                Err(failure) => others.push((wait, Some(failure), None, None)),
            }
        }
        (Float64Array::new(appended), others)
    }

    /// Forgets a wait. A write goes on; an event stays in its tail.
    #[napi]
    pub fn forget(&mut self, wait: f64) {
        self.pending.remove(&(wait as u64));
    }

    /// Appends entries, each for itself. `bytes` has the key and the payload of each, `lengths` has
    /// their lengths. Returns the number of the first wait; the numbers of the others follow. A
    /// wait ends with the number of its entry when the entry is acknowledged.
    #[napi]
    pub fn append_each(&mut self, store: &Store, bytes: &[u8], lengths: &[u32]) -> f64 {
        let (first, mut rest) = (self.last + 1, bytes);
        for pair in lengths.chunks_exact(2) {
            let (key, payload);
            (key, rest) = cut(rest, pair[0]);
            (payload, rest) = cut(rest, pair[1]);
            self.begin(match store.slot.handle() {
                Ok(store) => Work::Append(store.append_async(key, payload)),
                Err(failure) => Work::Failed(Some(failure)),
            });
        }
        first as f64
    }

    /// Appends entries, all or none. The wait ends with their numbers.
    #[napi]
    pub fn append_many(&mut self, store: &Store, key: &[u8], payloads: &[u8], lengths: &[u32]) -> f64 {
        let work = match store.slot.handle() {
            Ok(store) => Work::Commit(store.commit_async(many(key, payloads, lengths))),
            Err(failure) => Work::Failed(Some(failure)),
        };
        self.begin(work)
    }

    /// Commits. The wait ends with the numbers when the commit is acknowledged.
    #[napi]
    pub fn commit(&mut self, store: &Store, commit: &Commit) -> f64 {
        let work = match store.slot.handle() {
            Ok(store) => Work::Commit(store.commit_async(commit.commit.clone())),
            Err(failure) => Work::Failed(Some(failure)),
        };
        self.begin(work)
    }

    /// Waits for the next events of a tail.
    #[napi]
    pub fn tail(&mut self, tail: &Tail) -> f64 {
        self.begin(Work::Tail(tail.following.clone()))
    }

    /// Waits until a log has reached a number.
    #[napi]
    pub fn reach(&mut self, reach: &Reach) -> f64 {
        self.begin(Work::Reach(reach.reaching.clone()))
    }
}
