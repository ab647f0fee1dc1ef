//! Those who want to know when a block ends: threads that park, tasks, and callbacks.

use std::panic::AssertUnwindSafe;
use std::task::Waker;

use crate::error::WalError;
use crate::sync::thread::Thread;

/// A function to call with how a block ended.
pub(crate) type Callback = Box<dyn FnOnce(Result<(), WalError>) + Send>;

/// What became of someone who began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Nobody listened before, or nobody who can drive: somebody must see to it that the block is driven.
    First,
    /// Others listen too, and the block is seen to.
    Another,
}

/// In the order in which they came, each kind by itself: thousands may listen to one block.
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

    /// Where only tasks and callbacks listen, the driver before may have found nobody to go on: the first thread is one.
    pub fn thread(&mut self, thread: Thread) -> Heard {
        self.heard(self.threads.is_empty(), |all| all.threads.push(thread))
    }

    pub fn callback(&mut self, callback: Callback) -> Heard {
        self.heard(self.is_empty(), |all| all.callbacks.push(callback))
    }

    /// A task listens; `slot` is what it was given when it came before, so that polling again replaces its waker.
    pub fn task(&mut self, slot: &mut Option<usize>, waker: &Waker) -> Heard {
        match *slot {
            Some(slot) => {
                self.tasks[slot].clone_from(waker);
                Heard::Another
            }
            None => self.heard(self.is_empty(), |all| {
                let vacant = all.vacant.pop();
                match vacant {
                    Some(vacant) => all.tasks[vacant].clone_from(waker),
                    None => all.tasks.push(waker.clone()),
                }
                *slot = vacant.or(Some(all.tasks.len() - 1));
            }),
        }
    }

    /// A task leaves its slot to others. Whoever saw to the block when it came still does.
    pub fn leave(&mut self, slot: usize) {
        self.tasks[slot].clone_from(Waker::noop());
        self.vacant.push(slot);
    }

    /// Takes a thread that waits out of the listeners, to drive the block. It listens again if it must.
    pub fn take_thread(&mut self) -> Option<Thread> {
        self.threads.pop()
    }

    /// Tells everyone; returns how many were woken.
    pub fn tell(self, result: &Result<(), WalError>) -> u64 {
        let woken = self.threads.len() + self.tasks.len();
        self.threads.iter().for_each(Thread::unpark);
        self.tasks.into_iter().for_each(|waker| guarded(|| waker.wake()));
        self.callbacks.into_iter().for_each(|callback| guarded(|| callback(result.clone())));
        woken as u64
    }
}

/// Calls what is not ours: a panic of one must not keep the others from being told.
fn guarded(call: impl FnOnce()) {
    if std::panic::catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!("a callback panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_those_who_left_are_used_again() {
        let mut listeners = Listeners::default();
        let (mut first, mut second, mut third) = (None, None, None);
        assert_eq!(listeners.task(&mut first, Waker::noop()), Heard::First);
        listeners.task(&mut second, Waker::noop());
        listeners.leave(first.unwrap());
        assert_eq!(listeners.task(&mut third, Waker::noop()), Heard::Another);
        assert_eq!((first, second, third), (Some(0), Some(1), Some(0)));
        for _ in 0..1000 {
            let mut slot = None;
            listeners.task(&mut slot, Waker::noop());
            listeners.leave(slot.unwrap());
        }
        assert_eq!(listeners.tasks.len(), 3);
    }
}
