//! The documents whose snapshot is due, and the thread that takes the snapshots.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Most names that wait. One that has no room comes again with the next update of its document, or
/// with its next slow load. Nobody takes names where no snapshots are taken, as on a read replica.
const MOST: usize = 1 << 14;

/// The names of the documents whose snapshot is due.
#[derive(Default)]
pub(crate) struct Due {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    names: BTreeSet<Box<[u8]>>,
    is_closed: bool,
}

impl Due {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, name: &[u8]) {
        let mut queue = self.lock();
        if queue.names.len() < MOST && !queue.names.contains(name) {
            queue.names.insert(name.into());
            self.changed.notify_one();
        }
    }

    /// Returns the next name, if there is one.
    pub fn pop(&self) -> Option<Box<[u8]>> {
        self.lock().names.pop_first()
    }

    /// Waits for the next name; `None` once the last handle is gone.
    fn wait(&self) -> Option<Box<[u8]>> {
        let mut queue = self.lock();
        loop {
            if queue.is_closed {
                return None;
            }
            if let Some(name) = queue.names.pop_first() {
                return Some(name);
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

/// The thread that takes snapshots.
pub(crate) struct Worker {
    due: Arc<Due>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread. Without it, snapshots wait for a call of `maintain`.
    pub fn start(due: Arc<Due>, take: impl Fn(&[u8]) + Send + 'static) -> Self {
        let own = due.clone();
        let run = move || {
            while let Some(name) = own.wait() {
                take(&name);
            }
        };
        let thread = Builder::new().name("brooklet-documents".into()).spawn(run);
        if let Err(error) = &thread {
            tracing::warn!(%error, "no thread takes snapshots of documents: documents load slowly");
        }
        Self { due, thread: thread.ok() }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.due.close();
        if let Some(thread) = self.thread.take() {
            // The thread catches what the model panics with.
            _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nobody_takes_have_a_limit() {
        let due = Due::default();
        for n in 0..2 * MOST {
            due.push(n.to_string().as_bytes());
        }
        assert_eq!(std::iter::from_fn(|| due.pop()).count(), MOST);
        due.push(b"again");
        assert!(due.pop().is_some());
    }
}
