//! What a callback tells, for a task that awaits it: for stores that know callbacks only.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::outcome::{Awaited, Done, Outcome, Result};

/// An operation on its way.
#[derive(Default)]
struct Promise {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

/// Ends when the callback is called that `submit` was given.
pub fn awaited(submit: impl FnOnce(Done) -> Result<()>) -> Result<Awaited> {
    let promise = Arc::<Mutex<Promise>>::default();
    let maintenance = promise.clone();
    submit(Box::new(move |outcome| {
        let mut promise = maintenance.lock().expect("no panics");
        promise.outcome = Some(outcome);
        let waker = promise.waker.take();
        drop(promise);
        waker.into_iter().for_each(Waker::wake);
    }))?;
    Ok(Box::pin(Kept(promise)))
}

struct Kept(Arc<Mutex<Promise>>);

impl Future for Kept {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut promise = self.0.lock().expect("no panics");
        match promise.outcome.take() {
            Some(outcome) => Poll::Ready(Ok(outcome.map_err(|why| why.to_string())?)),
            None => {
                promise.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_awaits_is_woken_once_and_told_how_it_ended() {
        for outcome in [Ok(()), Err(Arc::from("why"))] {
            let (count, mut done) = (Arc::new(Count::default()), None);
            let waker = Waker::from(count.clone());
            let mut context = Context::from_waker(&waker);
            let begun = awaited(|callback| {
                done = Some(callback);
                Ok(())
            });
            let mut begun = begun.unwrap();
            assert!(begun.as_mut().poll(&mut context).is_pending());
            done.unwrap()(outcome.clone());
            assert_eq!(count.0.load(Ordering::Relaxed), 1);
            let Poll::Ready(ended) = begun.as_mut().poll(&mut context) else { panic!("it has ended") };
            assert_eq!(ended.map_err(|why| why.to_string()), outcome.map_err(|why| why.to_string()));
        }
    }
}
