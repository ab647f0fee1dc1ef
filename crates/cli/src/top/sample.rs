//! The activity between two moments: rates, shares and quantiles, computed from counters.

use serde::Serialize;

use super::text::Told;

/// The activity of a store in a stretch of time, and its state at the end. Times are in
/// microseconds, shares from 0 to 1.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// Length of the stretch.
    pub seconds: f64,
    pub commits_per_second: f64,
    pub reads_per_second: f64,
    /// From a commit, the first of its block, until it is durable.
    pub commit_p50: Option<f64>,
    pub commit_p99: Option<f64>,
    pub stages: Vec<Stage>,
    pub records_per_block: Option<f64>,
    /// Bytes written to ring and heap in a second, and for each byte of a record.
    pub written_bytes_per_second: f64,
    pub written_per_byte: Option<f64>,
    /// Used shares of the ring, and of the memory for entries that no checkpoint has written.
    pub ring: f64,
    pub memory: f64,
    pub queued_blocks: u64,
    pub writes_in_flight: u64,
    pub waiting_writers: u64,
    pub stalls: Vec<Stall>,
    /// Which part of all reads was answered by what.
    pub reads: Vec<(String, f64)>,
    pub run_lookups_per_second: f64,
    pub run_lookup_p50: Option<f64>,
    pub run_lookup_p99: Option<f64>,
    pub cache_hits: Option<f64>,
    pub cache_read_bytes_per_second: f64,
    /// Part of the time that checkpoints and compaction took of one core.
    pub maintenance: f64,
    pub checkpointing: bool,
    pub compacting: bool,
    pub checkpoints: u64,
    pub compactions: u64,
    pub runs: u64,
    pub run_bytes: u64,
    pub dead_entries: Option<f64>,
    pub heap_bytes: u64,
    pub heap_free: Option<f64>,
    pub spaces: Vec<Space>,
    /// Whether it stopped writing for good.
    pub stopped: bool,
}

/// A stage of a write.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    pub stage: &'static str,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// What commits had to wait for.
#[derive(Clone, Debug, Serialize)]
pub struct Stall {
    pub reason: String,
    pub per_second: f64,
    /// Seconds that commits waited, all together, in each second.
    pub share: f64,
    /// How many wait now.
    pub now: u64,
}

/// The activity in a space.
#[derive(Clone, Debug, Serialize)]
pub struct Space {
    pub space: String,
    pub appended_per_second: f64,
    pub reads_per_second: f64,
    pub refused_per_second: f64,
    pub memory_bytes: u64,
}

const STAGES: [&str; 5] = ["append", "wait", "seal", "write", "ack"];

/// A part of a whole; none where there is no whole.
fn part(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

impl Sample {
    /// Between two moments, so many seconds apart.
    #[expect(clippy::too_many_lines, reason = "one line a figure")]
    pub fn between(before: &Told, now: &Told, seconds: f64) -> Self {
        // Where a counter went back, another store was opened: that all came in this while.
        let grown = |name: &str, label: &str| {
            let (was, is) = (before.labelled(name, label), now.labelled(name, label));
            if is < was { is } else { is - was }
        };
        let since = |name: &str| grown(name, "");
        let rate = |name: &str| since(name) / seconds;
        let whole = |name: &str| now.number(name) as u64;
        let micros = |name: &str, label: &str, part: f64| {
            now.times_since(before, name, label).quantile(part).map(|seconds| seconds * 1e6)
        };
        let quantiles = |name, label| (micros(name, label, 0.5), micros(name, label, 0.99));
        let stage = |stage| {
            let (p50, p99) = quantiles("brooklet_write_stage_seconds", stage);
            Stage { stage, p50, p99 }
        };
        let stall = |(reason, now): (&str, f64)| Stall {
            reason: reason.to_owned(),
            per_second: grown("brooklet_stalls_total", reason) / seconds,
            share: grown("brooklet_stalled_seconds_total", reason) / seconds,
            now: now as u64,
        };
        let space = |(space, _): (&str, f64)| Space {
            space: space.to_owned(),
            appended_per_second: grown("brooklet_space_appended_total", space) / seconds,
            reads_per_second: grown("brooklet_space_reads_total", space) / seconds,
            refused_per_second: grown("brooklet_space_refused_total", space) / seconds,
            memory_bytes: now.labelled("brooklet_space_memory_bytes", space) as u64,
        };
        let sources = now
            .labels("brooklet_reads_total")
            .map(|(source, _)| (source, grown("brooklet_reads_total", source)));
        let sources: Vec<(&str, f64)> = sources.collect();
        let reads: f64 = sources.iter().map(|(_, count)| count).sum();
        let written = since("brooklet_ring_written_bytes_total") + since("brooklet_heap_written_bytes_total");
        let (commit_p50, commit_p99) = quantiles("brooklet_commit_seconds", "");
        let (run_lookup_p50, run_lookup_p99) = quantiles("brooklet_run_lookup_seconds", "");
        let (hits, misses) = (since("brooklet_cache_hits_total"), since("brooklet_cache_misses_total"));
        let share = |of: &str, all: &str| part(now.number(of), now.number(all));
        Self {
            seconds,
            commits_per_second: rate("brooklet_commits_total"),
            reads_per_second: reads / seconds,
            commit_p50,
            commit_p99,
            stages: STAGES.map(stage).into(),
            records_per_block: part(
                since("brooklet_ring_records_total"),
                since("brooklet_ring_blocks_total"),
            ),
            written_bytes_per_second: written / seconds,
            written_per_byte: part(written, since("brooklet_ring_raw_bytes_total")),
            ring: share("brooklet_ring_used_bytes", "brooklet_ring_size_bytes").unwrap_or_default(),
            memory: share("brooklet_memtable_bytes", "brooklet_memtable_budget_bytes").unwrap_or_default(),
            queued_blocks: whole("brooklet_ring_queued_blocks"),
            writes_in_flight: whole("brooklet_ring_writes_in_flight"),
            waiting_writers: whole("brooklet_waiting_writers"),
            stalls: now.labels("brooklet_stalled_commits").map(stall).collect(),
            reads: sources
                .iter()
                .filter_map(|(source, n)| Some(((*source).into(), part(*n, reads)?)))
                .collect(),
            run_lookups_per_second: rate("brooklet_run_lookups_total"),
            run_lookup_p50,
            run_lookup_p99,
            cache_hits: part(hits, hits + misses),
            cache_read_bytes_per_second: rate("brooklet_cache_read_bytes_total"),
            maintenance: rate("brooklet_maintenance_slice_seconds_sum"),
            checkpointing: now.number("brooklet_checkpointing") > 0.0,
            compacting: now.number("brooklet_compacting") > 0.0,
            checkpoints: whole("brooklet_checkpoints_total"),
            compactions: whole("brooklet_compactions_total"),
            runs: whole("brooklet_runs"),
            run_bytes: whole("brooklet_run_bytes"),
            dead_entries: share("brooklet_run_dead_entries", "brooklet_run_entries"),
            heap_bytes: whole("brooklet_heap_bytes"),
            heap_free: share("brooklet_heap_free_bytes", "brooklet_heap_bytes"),
            spaces: now.labels("brooklet_space_appended_total").map(space).collect(),
            stopped: now.number("brooklet_stopped") > 0.0,
        }
    }

    /// Seconds that commits waited to be appended, all together, in each second.
    pub fn stalled(&self) -> f64 {
        self.stalls.iter().map(|stall| stall.share).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_rates_and_shares() {
        let told = |text: &str| Told::parse(text).unwrap();
        let before = told(
            "brooklet_commits_total 100\nbrooklet_reads_total{source=\"active\"} 10\nbrooklet_reads_total{source=\"runs\"} 5\n\
             brooklet_stalls_total{reason=\"ring\"} 1\nbrooklet_stalled_seconds_total{reason=\"ring\"} 0.5\n",
        );
        let now = told(
            "brooklet_commits_total 300\nbrooklet_reads_total{source=\"active\"} 40\nbrooklet_reads_total{source=\"runs\"} 15\n\
             brooklet_stalls_total{reason=\"ring\"} 5\nbrooklet_stalled_seconds_total{reason=\"ring\"} 1.5\n\
             brooklet_stalled_commits{reason=\"ring\"} 2\nbrooklet_ring_used_bytes 25\nbrooklet_ring_size_bytes 100\n",
        );
        let sample = Sample::between(&before, &now, 2.0);
        assert_eq!((sample.commits_per_second, sample.reads_per_second, sample.ring), (100.0, 20.0, 0.25));
        assert_eq!(sample.reads, [("active".to_owned(), 0.75), ("runs".to_owned(), 0.25)]);
        let Stall { reason, per_second, share, now: waiting } = &sample.stalls[0];
        assert_eq!((&reason[..], *per_second, *share, *waiting), ("ring", 2.0, 0.5, 2));
        assert_eq!((sample.stalled(), sample.commit_p50, sample.cache_hits), (0.5, None, None));
        assert_eq!(Sample::between(&now, &before, 1.0).commits_per_second, 100.0, "another store");
    }
}
