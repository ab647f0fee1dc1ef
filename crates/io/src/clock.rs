//! Replaceable time and randomness: a simulator can own both.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the time since some fixed moment; never decreases.
    fn now(&self) -> Duration;
    /// Returns the time since the Unix epoch; may jump.
    fn wall(&self) -> Duration;
    /// Waits for `time`. By default the calling thread sleeps.
    #[expect(clippy::disallowed_methods, reason = "this is the room that owns the clock")]
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Creates a clock that starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the room that owns the clock")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the room that owns the clock")]
    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// Asks the system to wake the calling thread from sleeps and timed waits as exactly as possible.
/// By default Linux lets timers be up to 50 microseconds late, to wake up less often. If the system
/// refuses, nothing changes.
pub fn exact_timers() {
    #[cfg(target_os = "linux")]
    if let Err(e) = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)) {
        tracing::debug!("timers stay as exact as they are: {e}");
    }
}

/// A clock that moves only by [`advance`](Self::advance), and by sleeps.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: std::sync::atomic::AtomicU64,
    /// Nanoseconds by which the wall clock is ahead; wraps around if it is behind.
    ahead: std::sync::atomic::AtomicU64,
}

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(by.as_nanos() as u64, std::sync::atomic::Ordering::SeqCst);
    }

    /// Sets the wall clock, forward or back; it continues from there.
    pub fn set_wall(&self, to: Duration) {
        let ahead = (to.as_nanos() as u64).wrapping_sub(self.now().as_nanos() as u64);
        self.ahead.store(ahead, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn wall(&self) -> Duration {
        let ahead = self.ahead.load(std::sync::atomic::Ordering::SeqCst);
        Duration::from_nanos((self.now().as_nanos() as u64).wrapping_add(ahead))
    }

    fn sleep(&self, time: Duration) {
        self.advance(time);
    }
}

/// A small deterministic generator (SplitMix64) for all chance that needs no secrecy.
///
/// ```
/// let mut rng = brooklet_io::Rng::new(7);
/// let (a, b) = (rng.next(), rng.below(10));
/// assert_eq!((a, b), { let mut again = brooklet_io::Rng::new(7); (again.next(), again.below(10)) });
/// ```
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator that always returns the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "it is not an iterator: it has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `n - 1`.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "there is no number below zero");
        self.next() % n
    }

    /// Returns `true` `percent` times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Returns a seed from the operating system.
pub fn system_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The operating system seeds this hasher; it saves a dependency for two words at open.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn exact_timers_have_the_least_slack() {
        super::exact_timers();
        assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1, "nanosecond");
    }
}
