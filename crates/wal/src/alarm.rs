//! A sleep that ends on time.
//!
//! The system wakes a thread late: by its timer slack, and by the time that other threads run. So
//! an exact sleep ends early, by the recent lateness of wake-ups, and the thread spins for the
//! rest.

use std::hint::spin_loop;
use std::time::Duration;

use brooklet_io::Clock;

/// Least and most time by which a sleep ends early: for a quiet machine, and for a busy machine.
const LEAST_EARLY: Duration = Duration::from_micros(20);
const MOST_EARLY: Duration = Duration::from_micros(200);
/// With every sleep, the measured lateness shrinks by this part.
const FORGET: u32 = 64;

/// Sleeps until given moments, as exactly as the machine can.
#[derive(Debug)]
pub(crate) struct Alarm {
    early: Duration,
}

impl Alarm {
    pub fn new() -> Self {
        Self { early: LEAST_EARLY }
    }

    /// Sleeps for `time` with `sleep`, then spins; returns early if `sleep` returns early.
    pub fn sleep(&mut self, clock: &dyn Clock, time: Duration, sleep: impl FnOnce(Duration)) {
        let start = clock.now();
        let deadline = start.saturating_add(time);
        self.early -= self.early / FORGET;
        if let Some(coarse) = time.checked_sub(self.early).filter(|coarse| !coarse.is_zero()) {
            sleep(coarse);
            let Some(late) = clock.now().checked_sub(start.saturating_add(coarse)) else { return };
            self.early = self.early.max(late + LEAST_EARLY).clamp(LEAST_EARLY, MOST_EARLY);
        }
        while clock.now() < deadline {
            spin_loop();
        }
    }
}
