//! When checkpoints and compactions went on, as seen from outside.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use brooklet::Store;
use brooklet::io::exact_timers;

use crate::failure::Failure;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(1);
/// Who has to wait so long for an answer waits for work that is going on.
const WAITED: Duration = Duration::from_millis(2);

/// Spans of time, counted from a beginning; in order, and apart.
#[derive(Default)]
pub struct Windows(Vec<(Duration, Duration)>);

impl From<Vec<(Duration, Duration)>> for Windows {
    fn from(spans: Vec<(Duration, Duration)>) -> Self {
        let mut windows = Self::default();
        spans.into_iter().for_each(|(from, to)| windows.add(from, to));
        windows
    }
}

impl Windows {
    /// Adds a span that begins no earlier than the last one.
    fn add(&mut self, from: Duration, to: Duration) {
        match self.0.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => self.0.push((from, to)),
        }
    }

    /// Whether some of the time from `from` to `to` lies within.
    pub fn meet(&self, from: Duration, to: Duration) -> bool {
        let first = self.0.partition_point(|span| span.1 < from);
        self.0.get(first).is_some_and(|span| span.0 <= to)
    }

    /// All of it.
    pub fn total(&self) -> Duration {
        self.0.iter().map(|(from, to)| *to - *from).sum()
    }
}

/// Looks at the store until it is told to stop. What was going on at one of two looks counts as going on between them.
pub fn watch(store: &Store, begin: Instant, stop: &AtomicBool) -> Result<Windows, Failure> {
    exact_timers();
    let mut windows = Windows::default();
    let (mut looked, mut was_busy) = (begin.elapsed(), false);
    while !stop.load(Ordering::Relaxed) {
        let asked = begin.elapsed();
        let info = store.info()?;
        let now = begin.elapsed();
        let busy = info.checkpointing || info.compacting;
        if busy || was_busy || now - asked > WAITED {
            windows.add(looked, now);
        }
        (looked, was_busy) = (now, busy);
        thread::sleep(LOOK);
    }
    Ok(windows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_touch_are_one() {
        let at = Duration::from_millis;
        let windows = Windows::from(vec![(at(1), at(2)), (at(2), at(4)), (at(6), at(8)), (at(7), at(9))]);
        assert_eq!(windows.0, [(at(1), at(4)), (at(6), at(9))]);
        assert_eq!(windows.total(), at(6));
        for (from, to, meets) in [
            (0, 0, false),
            (0, 1, true),
            (3, 3, true),
            (4, 5, true),
            (5, 5, false),
            (5, 20, true),
            (10, 20, false),
        ] {
            assert_eq!(windows.meet(at(from), at(to)), meets, "{from} to {to}");
        }
    }
}
