//! The changes between two samples of a store: rates, shares and quantiles from counters.

use std::time::Duration;

use brooklet::{Activity, Histogram, StallReason};
use serde::Serialize;

/// What a store did in a while, and what it has at the end of it. Times are in seconds, shares from
/// 0 to 1; what nothing can be said of is null.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    /// Its number; each point has the next.
    pub n: u64,
    /// When it ends, in seconds since the Unix epoch, and how long it is.
    pub at: f64,
    pub seconds: f64,
    pub commits_per_second: f64,
    pub reads_per_second: f64,
    /// From the first commit of a block until that is durable.
    pub durable: Times,
    pub stages: [Times; 5],
    pub records_per_block: Option<f64>,
    /// Bytes written to ring and heap in a second, and for each byte of a record.
    pub written_bytes_per_second: f64,
    pub written_per_byte: Option<f64>,
    /// How full the ring is, and what is kept in memory until it is checkpointed.
    pub ring: Option<f64>,
    pub memory: Option<f64>,
    /// Seconds that commits waited to be appended, all together, in each second.
    pub stalled: f64,
    pub stalls: Vec<Stalled>,
    pub cache_hits: Option<f64>,
    /// Part of the time that checkpoints and compaction took of one core.
    pub maintenance: f64,
    pub heap_free: Option<f64>,
    /// Part of the free space that is not the largest free extent.
    pub fragmented: Option<f64>,
}

/// Stages of a write, in their order.
pub(super) const STAGES: [&str; 5] = ["append", "wait", "seal", "write", "ack"];

/// How long something took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Times {
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// What commits waited for in a while, where they did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Stalled {
    pub reason: &'static str,
    pub per_second: f64,
    pub share: f64,
}

/// A part of a whole; none where there is no whole.
fn part(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

impl Times {
    fn between(before: &Histogram, now: &Histogram) -> Self {
        let times = now.since(before);
        let quantile = |part| (times.count() > 0).then(|| times.quantile(part).as_secs_f64());
        let mean = part(times.sum().as_secs_f64(), times.count() as f64);
        Self { mean, p50: quantile(0.5), p99: quantile(0.99) }
    }
}

fn reads(activity: &Activity) -> u64 {
    let reads = &activity.reads;
    reads.active + reads.frozen + reads.memory + reads.bounds_cache + reads.runs
}

fn written(activity: &Activity) -> u64 {
    activity.wal.written_bytes + activity.kept.stats.heap_written_bytes
}

impl Point {
    /// Between two looks, so long apart.
    pub fn between(before: &Activity, now: &Activity, passed: Duration, n: u64, at: Duration) -> Self {
        let seconds = passed.as_secs_f64();
        let since = |of: &dyn Fn(&Activity) -> u64| of(now).saturating_sub(of(before)) as f64;
        let written_bytes = since(&written);
        let [hits, misses] = [since(&|a| a.lookups.cache_hits), since(&|a| a.lookups.cache_misses)];
        let stages = [&before.stages, &now.stages];
        let stalls: Vec<Stalled> =
            StallReason::ALL.into_iter().filter_map(|reason| stalled(before, now, reason, seconds)).collect();
        Self {
            n,
            at: at.as_secs_f64(),
            seconds,
            commits_per_second: since(&|a| a.commits) / seconds,
            reads_per_second: since(&reads) / seconds,
            durable: Times::between(&stages[0].whole, &stages[1].whole),
            stages: [
                Times::between(&before.append, &now.append),
                Times::between(&stages[0].wait, &stages[1].wait),
                Times::between(&stages[0].seal, &stages[1].seal),
                Times::between(&stages[0].write, &stages[1].write),
                Times::between(&stages[0].ack, &stages[1].ack),
            ],
            records_per_block: part(since(&|a| a.wal.records), since(&|a| a.wal.blocks)),
            written_bytes_per_second: written_bytes / seconds,
            written_per_byte: part(written_bytes, since(&|a| a.wal.raw_bytes)),
            ring: part(now.wal.used as f64, now.wal.size as f64),
            memory: part(now.memtable_bytes as f64, now.memory_budget as f64),
            stalled: stalls.iter().fold(0.0, |sum, stall| sum + stall.share),
            stalls,
            cache_hits: part(hits, hits + misses),
            maintenance: now.slices.since(&before.slices).sum().as_secs_f64() / seconds,
            heap_free: part(now.kept.heap_free as f64, now.kept.heap_bytes as f64),
            fragmented: part(now.kept.heap_largest_free as f64, now.kept.heap_free as f64)
                .map(|largest| 1.0 - largest),
        }
    }
}

fn stalled(before: &Activity, now: &Activity, reason: StallReason, seconds: f64) -> Option<Stalled> {
    let (was, is) = (before.stall(reason), now.stall(reason));
    let stalled = Stalled {
        reason: reason.name(),
        per_second: is.count.saturating_sub(was.count) as f64 / seconds,
        share: is.time.saturating_sub(was.time).as_secs_f64() / seconds,
    };
    (stalled.per_second > 0.0 || stalled.share > 0.0).then_some(stalled)
}

#[cfg(test)]
mod tests {
    use brooklet::Store;

    use super::*;

    #[test]
    fn counters_become_rates_and_shares_of_the_while_between() {
        let store = Store::in_memory(1).unwrap();
        let append = |n: u64| (0..n).for_each(|_| store.append("log", "x").unwrap().wait().unwrap());
        append(5);
        let before = store.activity();
        append(30);
        (0..8).for_each(|_| drop(store.read("log", ..).unwrap()));
        let second = Duration::from_secs(1);
        let point = Point::between(&before, &store.activity(), second * 2, 7, second * 1000);
        assert_eq!((point.n, point.at, point.seconds), (7, 1000.0, 2.0));
        assert_eq!((point.commits_per_second, point.reads_per_second), (15.0, 4.0));
        assert_eq!((point.records_per_block, point.stalled), (Some(1.0), 0.0));
        assert!(point.durable.p50 <= point.durable.p99 && point.durable.mean > Some(0.0));
        assert!(point.written_per_byte > Some(1.0) && point.ring > Some(0.0) && point.memory > Some(0.0));
        let still = store.activity();
        let point = Point::between(&still, &still, second, 8, second);
        let Times { mean, p50, p99 } = point.durable;
        assert_eq!(
            (mean, p50, p99, point.records_per_block, point.cache_hits),
            (None, None, None, None, None)
        );
        assert_eq!((point.commits_per_second, point.written_bytes_per_second), (0.0, 0.0));
    }
}
