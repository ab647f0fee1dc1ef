//! How exactly a thread wakes up.

use std::time::{Duration, Instant};

use brooklet::io::exact_timers;
use serde::Serialize;

use crate::latency::latencies;
use crate::signals;

/// The waits measured: the interval of a volume of 3,000 operations a second, and the default
/// `linger`.
pub const WAITS: [Duration; 2] = [Duration::from_micros(333), Duration::from_millis(1)];

/// How a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// It sleeps.
    Sleep,
    /// It sleeps, with timers as exact as the system has them.
    ExactSleep,
    /// It sleeps like that for less, and watches the clock for the rest.
    SleepThenSpin,
}

/// How late a wait ended, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timer {
    /// How the thread waited.
    pub wait: Wait,
    /// How long it meant to.
    pub asked_us: f64,
    /// How much of that it watched the clock, at most.
    pub spin_us: f64,
    /// Times it did.
    pub samples: u64,
    /// Half of the waits ended at most this late.
    pub p50_late_us: f64,
    /// All but one in a hundred.
    pub p99_late_us: f64,
}

/// Measures each way to wait, for a third of `slice`; the one that spins begins to as early as the
/// one before was late (but sleeps for half of the time at least).
///
/// In a thread of its own, since exact timers stay a thread's for good.
pub fn measure(asked: Duration, slice: Duration) -> [Timer; 3] {
    let measure = || {
        let plain = waits(Wait::Sleep, asked, Duration::ZERO, slice / 3);
        exact_timers();
        let exact = waits(Wait::ExactSleep, asked, Duration::ZERO, slice / 3);
        let margin = Duration::from_secs_f64(exact.p99_late_us / 1e6).min(asked / 2);
        [plain, exact, waits(Wait::SleepThenSpin, asked, margin, slice / 3)]
    };
    std::thread::scope(|scope| scope.spawn(measure).join().expect("waiting does not panic"))
}

fn waits(wait: Wait, asked: Duration, spin: Duration, slice: Duration) -> Timer {
    let mut late = latencies();
    let begin = Instant::now();
    while late.is_empty() || !signals::asked() && begin.elapsed() < slice {
        let until = Instant::now() + asked;
        std::thread::sleep(asked - spin);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        late.saturating_record((until.elapsed().as_nanos() as u64).max(1));
    }
    let at = |quantile| late.value_at_quantile(quantile) as f64 / 1e3;
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    Timer {
        wait,
        asked_us: micros(asked),
        spin_us: micros(spin),
        samples: late.len(),
        p50_late_us: at(0.5),
        p99_late_us: at(0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_never_early() {
        for timer in measure(Duration::from_micros(200), Duration::from_millis(20)) {
            assert!(timer.samples > 0 && timer.p50_late_us > 0.0, "{timer:?}");
            assert!(timer.p50_late_us <= timer.p99_late_us && timer.spin_us <= timer.asked_us, "{timer:?}");
        }
    }
}
