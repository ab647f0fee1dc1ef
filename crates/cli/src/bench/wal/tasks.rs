//! An executor of many tasks on one thread, as small as it can be: what awaiting costs without a
//! runtime's own cost.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::failure::Failure;

/// A task that ends with a count.
pub type Task<'a> = Pin<Box<dyn Future<Output = Result<u64, Failure>> + 'a>>;

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

/// Carries the tasks out on this thread until all have ended; gives the sum of their counts.
pub fn run(tasks: Vec<Task<'_>>) -> Result<u64, Failure> {
    let thread = std::thread::current();
    let ready = Arc::new(Ready { tasks: Mutex::new((0..tasks.len()).collect()), thread });
    let waker = |task| Waker::from(Arc::new(Handle { ready: ready.clone(), task }));
    let wakers: Vec<Waker> = (0..tasks.len()).map(waker).collect();
    let mut left = tasks.len();
    let mut tasks: Vec<Option<Task<'_>>> = tasks.into_iter().map(Some).collect();
    let mut sum = 0;
    while left > 0 {
        let now = std::mem::take(&mut *ready.tasks.lock().expect("no panics"));
        if now.is_empty() {
            std::thread::park();
        }
        for at in now {
            let Some(task) = &mut tasks[at] else { continue };
            if let Poll::Ready(count) = task.as_mut().poll(&mut Context::from_waker(&wakers[at])) {
                sum += count?;
                tasks[at] = None;
                left -= 1;
            }
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn tasks_go_on_when_woken_from_elsewhere() {
        let (wakers, woken) = channel::<Waker>();
        let other = std::thread::spawn(move || woken.iter().map(Waker::wake).count());
        let task = |turns: u64| {
            let (wakers, mut left) = (wakers.clone(), turns);
            Box::pin(std::future::poll_fn(move |context| {
                if left == 0 {
                    return Poll::Ready(Ok(turns));
                }
                left -= 1;
                wakers.send(context.waker().clone()).unwrap();
                Poll::Pending
            })) as Task<'_>
        };
        assert_eq!(run((0..100).map(task).collect()).ok(), Some(4950));
        drop(wakers);
        assert_eq!(other.join().unwrap(), 4950);
    }
}
