//! Tasks that await their operations, and an executor of many on one thread, as small as it can be:
//! what awaiting costs without a runtime's own cost.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::outcome::Result;

/// A task.
pub type Task<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// The tasks that may go on, and the thread that carries them out.
struct Ready {
    tasks: Mutex<Vec<usize>>,
    thread: Thread,
}

struct Handle {
    ready: Arc<Ready>,
    task: usize,
}

impl Wake for Handle {
    fn wake(self: Arc<Self>) {
        let mut tasks = self.ready.tasks.lock().expect("no panics");
        tasks.push(self.task);
        let sleeps = tasks.len() == 1;
        drop(tasks);
        if sleeps {
            self.ready.thread.unpark();
        }
    }
}

/// Carries the tasks out on this thread until all have ended, or one has failed.
pub fn run(tasks: Vec<Task<'_>>) -> Result<()> {
    let ready = Arc::new(Ready { tasks: Mutex::new((0..tasks.len()).collect()), thread: thread::current() });
    let waker = |task| Waker::from(Arc::new(Handle { ready: ready.clone(), task }));
    let wakers: Vec<Waker> = (0..tasks.len()).map(waker).collect();
    let mut left = tasks.len();
    let mut tasks: Vec<Option<Task<'_>>> = tasks.into_iter().map(Some).collect();
    while left > 0 {
        let now = std::mem::take(&mut *ready.tasks.lock().expect("no panics"));
        if now.is_empty() {
            thread::park();
        }
        for at in now {
            let Some(task) = &mut tasks[at] else { continue };
            if let Poll::Ready(ended) = task.as_mut().poll(&mut Context::from_waker(&wakers[at])) {
                ended?;
                tasks[at] = None;
                left -= 1;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn tasks_go_on_when_woken_from_elsewhere() {
        let (wakers, woken) = channel::<Waker>();
        let other = thread::spawn(move || woken.iter().map(Waker::wake).count());
        let turns = Cell::new(0);
        let task = |mut left: u64| {
            let (wakers, turns) = (wakers.clone(), &turns);
            Box::pin(std::future::poll_fn(move |context| {
                if left == 0 {
                    return Poll::Ready(Ok(()));
                }
                left -= 1;
                turns.set(turns.get() + 1);
                wakers.send(context.waker().clone()).unwrap();
                Poll::Pending
            })) as Task<'_>
        };
        run((0..100).map(task).collect()).unwrap();
        assert_eq!(turns.get(), 4950);
        drop(wakers);
        assert_eq!(other.join().unwrap(), 4950);
    }

    #[test]
    fn a_task_that_fails_ends_the_run() {
        let fails = Box::pin(async { Err("told to fail".into()) });
        let waits = Box::pin(std::future::pending());
        assert_eq!(run(vec![waits as Task<'_>, fails]).unwrap_err().to_string(), "told to fail");
    }
}
