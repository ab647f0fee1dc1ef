//! Sweeps: every place where one thing can go wrong, one after another.

pub mod damage;
pub mod errors;

use crate::ledger::Violation;

/// What a sweep came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Swept {
    /// Cases tried.
    pub cases: u64,
    /// Cases in which nothing was to be noticed: unused bytes, or another copy served.
    pub harmless: u64,
    /// Cases that a check reported.
    pub checked: u64,
    /// Cases that were reported by the opening or the read that met them, too; or in which a store stopped.
    pub met: u64,
    /// Damage that a check reports and that reading can do without, such as that of a filter.
    pub spared: u64,
}

impl Swept {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Swept) {
        self.cases += other.cases;
        self.harmless += other.harmless;
        self.checked += other.checked;
        self.met += other.met;
        self.spared += other.spared;
    }
}

/// Splits `0..n` among threads; the first violation ends it.
pub fn in_parallel(
    n: u64,
    threads: u64,
    part: impl Fn(std::ops::Range<u64>) -> Result<Swept, Violation> + Sync,
) -> Result<Swept, Violation> {
    if threads == 1 {
        return part(0..n);
    }
    let part = &part;
    std::thread::scope(|scope| {
        let bound = |i: u64| n * i / threads;
        let parts: Vec<_> = (0..threads).map(|i| scope.spawn(move || part(bound(i)..bound(i + 1)))).collect();
        let mut all = Swept::default();
        for part in parts {
            all.add(&part.join().expect("violations are no panics")?);
        }
        Ok(all)
    })
}
