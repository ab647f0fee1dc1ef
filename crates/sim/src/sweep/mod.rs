//! Sweeps: every place of one kind of fault, one after another.

pub mod damage;
pub mod errors;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::budget::Budget;
use crate::oracle::Violation;

/// The places of one kind of fault, tried one at a time.
pub trait Sweep: Sync {
    /// Returns the number of places.
    fn places(&self) -> u64;

    /// Causes the fault in one place, and checks the store.
    fn try_place(&self, nth: u64) -> Result<Swept, Violation>;
}

/// The results of a sweep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Swept {
    /// Number of cases tried.
    pub cases: u64,
    /// Number of cases without visible effects: unused bytes, or another copy served.
    pub harmless: u64,
    /// Number of cases that a check reported.
    pub checked: u64,
    /// Number of cases that the opening or a read also reported, or in which a store stopped.
    pub met: u64,
    /// Number of cases with damage that a check reports but reads can do without, for example
    /// damage of a filter.
    pub spared: u64,
    /// Number of places for which no time was left.
    pub left_out: u64,
}

impl Swept {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Swept) {
        self.cases += other.cases;
        self.harmless += other.harmless;
        self.checked += other.checked;
        self.met += other.met;
        self.spared += other.spared;
        self.left_out += other.left_out;
    }
}

/// Tries the places of a sweep on `threads` threads, until all are tried, the budget is spent or a
/// place fails; returns the place that fails. The order spreads over all places, so that a short
/// budget still tries every part.
pub fn run(sweep: &dyn Sweep, threads: u64, budget: &Budget) -> Result<Swept, (u64, Violation)> {
    let (places, next) = (sweep.places(), AtomicU64::new(0));
    let work = || {
        let mut swept = Swept::default();
        while !budget.is_spent() {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            if nth >= places {
                break;
            }
            let place = in_turn(nth, places);
            let tried = sweep.try_place(place).inspect_err(|_| next.store(places, Ordering::Relaxed));
            swept.add(&tried.map_err(|violation| (place, violation))?);
        }
        Ok(swept)
    };
    let mut all = Swept::default();
    if threads == 1 {
        all = work()?;
    } else {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                all.add(&worker.join().expect("violations are no panics")?);
            }
            Ok(())
        })?;
    }
    all.left_out = places.saturating_sub(next.into_inner());
    Ok(all)
}

/// Returns the place to try as number `nth` of `places`: each place occurs once, in an order that
/// spreads over all places.
pub fn in_turn(nth: u64, places: u64) -> u64 {
    (u128::from(nth) * u128::from(spread(places)) % u128::from(places)) as u64
}

/// Returns a step width that visits each of `n` places before it returns to a place, each visit far
/// from the one before.
fn spread(n: u64) -> u64 {
    let divides = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let near = (n as f64 * 0.618) as u64;
    (near..).find(|&step| divides(step, n) == 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    struct Places(u64, Mutex<Vec<u64>>);

    impl Sweep for Places {
        fn places(&self) -> u64 {
            self.0
        }

        fn try_place(&self, nth: u64) -> Result<Swept, Violation> {
            self.1.lock().unwrap().push(nth);
            if nth == 77 {
                return Err(Violation("seventy-seven".into()));
            }
            Ok(Swept { cases: 1, ..Swept::default() })
        }
    }

    #[test]
    fn each_place_is_tried_once_and_none_without_time() {
        for n in (0..70).chain([1 << 40]) {
            assert!(
                n > 70
                    || (0..n).map(|i| in_turn(i, n)).collect::<std::collections::BTreeSet<_>>().len() as u64
                        == n
            );
            let places = Places(n.min(70), Mutex::default());
            let threads = 1 + n % 3;
            let swept = run(&places, threads, &Budget::new(None)).unwrap();
            assert_eq!((swept.cases, swept.left_out), (n.min(70), 0));
            let mut tried = places.1.into_inner().unwrap();
            tried.sort_unstable();
            assert_eq!(tried, (0..n.min(70)).collect::<Vec<_>>());
            let swept = run(&Places(n, Mutex::default()), threads, &Budget::of(Duration::ZERO)).unwrap();
            assert_eq!((swept.cases, swept.left_out), (0, n));
        }
        let failed = run(&Places(1000, Mutex::default()), 2, &Budget::new(None)).unwrap_err();
        assert_eq!(failed.0, 77);
    }
}
