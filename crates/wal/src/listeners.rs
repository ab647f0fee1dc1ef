//! The listeners for a block's end: threads that park, tasks, and callbacks.

use std::task::Waker;

use crate::calls::{Call, Callback};
use crate::error::WalError;
use crate::sync::thread::Thread;

/// The state of a new listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// No earlier listener can drive the block: the caller must ensure that the block is driven.
    First,
    /// Other listeners exist, and the block will be driven.
    Another,
}

/// The listeners in the order of their arrival, each kind separately: thousands may listen to one
/// block.
#[derive(Default)]
pub(crate) struct Listeners {
    threads: Vec<Thread>,
    tasks: Vec<Waker>,
    /// Slots of `tasks` whose owners have left.
    vacant: Vec<usize>,
    callbacks: Vec<Callback>,
}

impl Listeners {
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.tasks.is_empty() && self.callbacks.is_empty()
    }

    fn heard(&mut self, is_first: bool, join: impl FnOnce(&mut Self)) -> Heard {
        let heard = if is_first { Heard::First } else { Heard::Another };
        join(self);
        heard
    }

    /// Adds a thread. If only tasks and callbacks listen, the previous driver may have found no
    /// successor: the first thread is one.
    pub fn thread(&mut self, thread: Thread) -> Heard {
        self.heard(self.threads.is_empty(), |all| all.threads.push(thread))
    }

    pub fn callback(&mut self, callback: Callback) -> Heard {
        self.heard(self.is_empty(), |all| all.callbacks.push(callback))
    }

    /// Adds a task; `slot` is the task's earlier slot, so that polling again replaces its waker.
    /// Returns the replaced waker: dropping it runs user code, for which no lock may be held.
    pub fn task(&mut self, slot: &mut Option<usize>, mut waker: Waker) -> (Heard, Option<Waker>) {
        if let Some(slot) = *slot {
            std::mem::swap(&mut self.tasks[slot], &mut waker);
            return (Heard::Another, Some(waker));
        }
        let heard = if self.is_empty() { Heard::First } else { Heard::Another };
        let vacant = self.vacant.pop();
        *slot = vacant.or(Some(self.tasks.len()));
        let Some(vacant) = vacant else {
            self.tasks.push(waker);
            return (heard, None);
        };
        std::mem::swap(&mut self.tasks[vacant], &mut waker);
        (heard, Some(waker))
    }

    /// Frees a task's slot, and returns its waker. The driver that was found for this task still
    /// drives the block.
    pub fn leave(&mut self, slot: usize) -> Waker {
        self.vacant.push(slot);
        std::mem::replace(&mut self.tasks[slot], Waker::noop().clone())
    }

    /// Takes one waiting thread out of the listeners, to drive the block. The thread listens again
    /// if necessary.
    pub fn take_thread(&mut self) -> Option<Thread> {
        self.threads.pop()
    }

    /// Wakes the threads; returns the number of all wake-ups, and the calls to make.
    pub fn notify(self, result: Result<(), WalError>) -> (u64, Call) {
        let woken = self.threads.len() + self.tasks.len();
        self.threads.iter().for_each(Thread::unpark);
        (woken as u64, Call { tasks: self.tasks, callbacks: self.callbacks, result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_those_who_left_are_used_again() {
        let mut listeners = Listeners::default();
        let (mut first, mut second, mut third) = (None, None, None);
        let noop = || Waker::noop().clone();
        assert_eq!(listeners.task(&mut first, noop()).0, Heard::First);
        listeners.task(&mut second, noop());
        listeners.leave(first.unwrap());
        assert_eq!(listeners.task(&mut third, noop()).0, Heard::Another);
        assert_eq!((first, second, third), (Some(0), Some(1), Some(0)));
        for _ in 0..1000 {
            let mut slot = None;
            listeners.task(&mut slot, noop());
            listeners.leave(slot.unwrap());
        }
        assert_eq!(listeners.tasks.len(), 3);
    }
}
