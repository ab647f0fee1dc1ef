//! When checkpoints and compactions went on, as seen from outside.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use brooklet::io::exact_timers;

use crate::bench::system::{switches_of, thread_named};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(1);
/// The longest rest within one piece of work, and something on top.
const REST: Duration = Duration::from_millis(120);

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
            Some(last) if from <= last.1 + REST => last.1 = last.1.max(to),
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

/// Looks at the maintenance thread until it is told to stop. The store is not asked: to answer, it
/// would have to take the locks that appends and checkpoints wait for. A thread that rests between
/// two slices of work rests for a tenth of a second at most; one that has nothing to do wakes up
/// once a second. `None` where the system does not tell of threads.
pub fn watch(begin: Instant, stop: &AtomicBool) -> Option<Windows> {
    exact_timers();
    let maintenance = thread_named("brooklet-maint")?;
    let mut windows = Windows::default();
    let (mut looked, mut before) = (begin.elapsed(), switches_of(&maintenance)?);
    while !stop.load(Ordering::Relaxed) {
        let (now, switches) = (begin.elapsed(), switches_of(&maintenance)?);
        if switches != before {
            windows.add(looked, now);
        }
        (looked, before) = (now, switches);
        thread::sleep(LOOK);
    }
    Some(windows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_with_but_a_rest_between_are_one() {
        let at = Duration::from_millis;
        let windows =
            Windows::from(vec![(at(1), at(2)), (at(2), at(4)), (at(106), at(108)), (at(300), at(310))]);
        assert_eq!(windows.0, [(at(1), at(108)), (at(300), at(310))]);
        assert_eq!(windows.total(), at(117));
        for (from, to, meets) in [
            (0, 0, false),
            (0, 1, true),
            (50, 51, true),
            (108, 200, true),
            (109, 109, false),
            (109, 400, true),
            (311, 400, false),
        ] {
            assert_eq!(windows.meet(at(from), at(to)), meets, "{from} to {to}");
        }
    }
}
