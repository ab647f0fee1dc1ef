//! Latencies, and how they are summed up.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Nanoseconds, to three digits.
pub type Latencies = Histogram<u64>;

/// An empty histogram, for latencies up to a minute.
pub fn latencies() -> Latencies {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("these bounds are allowed")
}

/// Adds a time.
pub fn record(latencies: &mut Latencies, time: Duration) {
    latencies.saturating_record((time.as_nanos() as u64).max(1));
}

/// A quantile, in microseconds.
pub fn micros(latencies: &Latencies, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1e3
}

/// A summary of latencies, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Micros {
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl From<&Latencies> for Micros {
    fn from(latencies: &Latencies) -> Self {
        let at = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: latencies.max() as f64 / 1e3 }
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50, p90, p99, p999, max } = self;
        write!(f, "p50 {p50:.0} µs, p90 {p90:.0}, p99 {p99:.0}, p99.9 {p999:.0}, max {max:.0}")
    }
}
