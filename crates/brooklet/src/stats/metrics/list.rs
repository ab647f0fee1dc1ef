//! The list of all metrics and their sources.

use std::borrow::Cow;
use std::time::Duration;

use brooklet_wal::Histogram;

use crate::counters::StallReason;
use crate::stats::activity::Activity;
use crate::stats::metrics::{Family, Kind, Sample, Value};

/// The metrics that were listed so far.
struct List(Vec<Family>);

impl List {
    fn family(&mut self, name: &'static str, help: &'static str, kind: Kind, samples: Vec<Sample>) {
        // A metric without samples is not listed.
        if !samples.is_empty() {
            self.0.push(Family { name, help, kind, samples });
        }
    }

    fn counter(&mut self, name: &'static str, help: &'static str, value: impl Number) {
        self.family(name, help, Kind::Counter, vec![Sample { label: None, value: value.value() }]);
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: impl Number) {
        self.family(name, help, Kind::Gauge, vec![Sample { label: None, value: value.value() }]);
    }

    fn times(&mut self, name: &'static str, help: &'static str, times: &Histogram) {
        let value = Value::Times(Box::new(times.clone()));
        self.family(name, help, Kind::Histogram, vec![Sample { label: None, value }]);
    }
}

trait Number {
    fn value(self) -> Value;
}

impl Number for u64 {
    fn value(self) -> Value {
        Value::Number(self as f64)
    }
}

impl Number for usize {
    fn value(self) -> Value {
        Value::Number(self as f64)
    }
}

impl Number for bool {
    fn value(self) -> Value {
        Value::Number(f64::from(u8::from(self)))
    }
}

impl Number for Duration {
    fn value(self) -> Value {
        Value::Number(self.as_secs_f64())
    }
}

fn labelled<T: Number>(
    label: &'static str,
    values: impl IntoIterator<Item = (impl Into<Cow<'static, str>>, T)>,
) -> Vec<Sample> {
    let sample =
        |(name, value): (_, T)| Sample { label: Some((label, Into::into(name))), value: value.value() };
    values.into_iter().map(sample).collect()
}

pub(super) fn list(activity: &Activity) -> Vec<Family> {
    let mut list = List(Vec::with_capacity(80));
    writes(&mut list, activity);
    stalls(&mut list, activity);
    reads(&mut list, activity);
    keeping(&mut list, activity);
    spaces(&mut list, activity);
    list.0
}

fn writes(list: &mut List, activity: &Activity) {
    let Activity { stages, wal, .. } = activity;
    list.counter(
        "brooklet_commits_total",
        "Commits that came to the ring, refused ones too.",
        activity.commits,
    );
    let stage = |name: &'static str, times: &Histogram| Sample {
        label: Some(("stage", name.into())),
        value: Value::Times(Box::new(times.clone())),
    };
    list.family(
        "brooklet_write_stage_seconds",
        "how long each stage of a write took: append of one in 16 commits, the others of every block.",
        Kind::Histogram,
        vec![
            stage("append", &activity.append),
            stage("wait", &stages.wait),
            stage("seal", &stages.seal),
            stage("write", &stages.write),
            stage("ack", &stages.ack),
        ],
    );
    list.times(
        "brooklet_commit_seconds",
        "How long the first commit of each block took to be durable.",
        &stages.whole,
    );
    list.counter("brooklet_ring_records_total", "Records appended to blocks of the ring.", wal.records);
    list.counter("brooklet_ring_raw_bytes_total", "Bytes of them before compression.", wal.raw_bytes);
    list.counter("brooklet_ring_blocks_total", "Blocks written to the ring.", wal.blocks);
    list.counter("brooklet_ring_written_bytes_total", "Bytes written to the ring.", wal.written_bytes);
    list.counter("brooklet_ring_wakes_total", "Threads and tasks that were woken.", wal.wakes);
    list.gauge("brooklet_ring_used_bytes", "Bytes of the ring that no checkpoint has freed yet.", wal.used);
    list.gauge("brooklet_ring_size_bytes", "Bytes of the ring.", wal.size);
    list.gauge("brooklet_ring_block_size_bytes", "Bytes after which a block is full.", wal.block_size);
    list.gauge("brooklet_ring_depth", "Most writes that may be in flight.", wal.depth);
    list.gauge("brooklet_ring_writes_in_flight", "Writes in flight.", wal.in_flight);
    list.gauge("brooklet_ring_queued_blocks", "Full blocks that wait to be written.", wal.queued);
    list.gauge("brooklet_waiting_writers", "Threads that wait for room to commit.", wal.waiting);
    list.gauge("brooklet_stopped", "1 where the store stopped writing for good.", activity.stopped.is_some());
}

fn stalls(list: &mut List, activity: &Activity) {
    let each = StallReason::ALL.map(|reason| (reason.name(), activity.stall(reason)));
    let counts = labelled("reason", each.iter().map(|(name, stall)| (*name, stall.count)));
    list.family(
        "brooklet_stalls_total",
        "How often a commit had to wait before it was appended.",
        Kind::Counter,
        counts,
    );
    let times = labelled("reason", each.iter().map(|(name, stall)| (*name, stall.time)));
    list.family(
        "brooklet_stalled_seconds_total",
        "How long commits had to wait before they were appended.",
        Kind::Counter,
        times,
    );
    let now = labelled("reason", each.iter().map(|(name, stall)| (*name, stall.now)));
    list.family("brooklet_stalled_commits", "Commits that wait to be appended.", Kind::Gauge, now);
}

fn reads(list: &mut List, activity: &Activity) {
    let (reads, lookups) = (&activity.reads, &activity.lookups);
    let sources = [
        ("active", reads.active),
        ("frozen", reads.frozen),
        ("memory", reads.memory),
        ("bounds_cache", reads.bounds_cache),
        ("runs", reads.runs),
    ];
    let help = "Reads and questions about bounds, by the newest place that knows the log.";
    list.family("brooklet_reads_total", help, Kind::Counter, labelled("source", sources));
    list.counter(
        "brooklet_run_lookups_total",
        "How often a log was looked for in the runs.",
        activity.run_lookups,
    );
    list.times(
        "brooklet_run_lookup_seconds",
        "How long one in 16 of those look-ups took.",
        &activity.run_lookup_times,
    );
    list.counter(
        "brooklet_filter_questions_total",
        "How often a run's filter was asked.",
        lookups.filter_questions,
    );
    list.counter(
        "brooklet_filter_false_positives_total",
        "How often it said maybe, and it was not.",
        lookups.filter_false_positives,
    );
    list.counter("brooklet_cache_hits_total", "Parts of runs that were in memory.", lookups.cache_hits);
    list.counter("brooklet_cache_misses_total", "Parts of runs that had to be read.", lookups.cache_misses);
    list.counter("brooklet_cache_read_bytes_total", "Bytes that were read for those.", lookups.read_bytes);
    let used = lookups.filter_bytes + lookups.index_bytes + lookups.block_bytes + lookups.bounds_cache_bytes;
    list.gauge("brooklet_cache_used_bytes", "Bytes of memory that look-ups take.", used);
    list.gauge("brooklet_cache_budget_bytes", "Bytes of memory that they may take.", lookups.cache_budget);
}

fn keeping(list: &mut List, activity: &Activity) {
    let (kept, stats) = (&activity.kept, &activity.kept.stats);
    list.gauge("brooklet_memtable_logs", "Logs in the memtables.", activity.memtable_logs);
    list.gauge("brooklet_memtable_bytes", "Bytes of memory that they take.", activity.memtable_bytes);
    list.gauge(
        "brooklet_memtable_budget_bytes",
        "Bytes of memory that they may take.",
        activity.memory_budget,
    );
    list.counter("brooklet_checkpoints_total", "Checkpoints done.", stats.checkpoints);
    list.counter("brooklet_compactions_total", "Compactions done.", stats.compactions);
    list.counter("brooklet_compaction_steps_total", "Steps of compactions done.", stats.compaction_steps);
    list.counter("brooklet_dead_runs_total", "Runs that were freed without being read.", stats.dead_runs);
    list.counter(
        "brooklet_heap_written_bytes_total",
        "Bytes of runs and manifests written.",
        stats.heap_written_bytes,
    );
    list.counter(
        "brooklet_heap_punched_bytes_total",
        "Bytes given back to the file system.",
        stats.punched_bytes,
    );
    list.times(
        "brooklet_maintenance_slice_seconds",
        "How long slices of checkpoints and compaction took.",
        &activity.slices,
    );
    list.gauge("brooklet_checkpointing", "1 while a checkpoint goes on.", kept.checkpoint.is_some());
    list.gauge("brooklet_compacting", "1 while a compaction goes on.", kept.compacting);
    list.gauge("brooklet_heap_bytes", "Bytes of the heap.", kept.heap_bytes);
    list.gauge("brooklet_heap_free_bytes", "Bytes of the heap that are free.", kept.heap_free);
    list.gauge("brooklet_heap_largest_free_bytes", "The largest free extent.", kept.heap_largest_free);
    list.gauge("brooklet_runs", "Runs.", activity.runs);
    list.gauge("brooklet_run_bytes", "Bytes of runs, on the volume or offloaded.", activity.run_bytes);
    list.gauge("brooklet_run_entries", "Entries in runs.", activity.run_entries);
    list.gauge(
        "brooklet_run_dead_entries",
        "Entries in runs that are known to be dead.",
        activity.dead_entries,
    );
}

fn spaces(list: &mut List, activity: &Activity) {
    let spaces = &activity.spaces;
    let mut each = |name, help, kind, of: &dyn Fn(&crate::SpaceInfo) -> Option<u64>| {
        let values = spaces.iter().filter_map(|space| Some((space.name.clone(), of(space)?)));
        list.family(name, help, kind, labelled("space", values));
    };
    each("brooklet_space_logs", "Logs of a space, where they are counted.", Kind::Gauge, &|space| space.logs);
    each("brooklet_space_bytes", "Bytes of their payloads.", Kind::Gauge, &|space| space.bytes);
    let help = "Entries appended in a space.";
    each("brooklet_space_appended_total", help, Kind::Counter, &|space| Some(space.appended));
    let help = "Bytes of their payloads.";
    each("brooklet_space_appended_bytes_total", help, Kind::Counter, &|space| Some(space.appended_bytes));
    let help = "Reads of logs of a space.";
    each("brooklet_space_reads_total", help, Kind::Counter, &|space| Some(space.reads));
    let help = "Commits that a quota or full memory refused.";
    each("brooklet_space_refused_total", help, Kind::Counter, &|space| Some(space.refused));
    let memory =
        |of: fn(&crate::MemoryInfo) -> u64| move |space: &crate::SpaceInfo| space.memory.as_ref().map(of);
    let help = "Bytes of memory that a space takes which is kept there.";
    each("brooklet_space_memory_bytes", help, Kind::Gauge, &memory(|memory| memory.used));
    let help = "Dumps of such a space.";
    each("brooklet_space_dumps_total", help, Kind::Counter, &memory(|memory| memory.dumps));
    let help = "Logs that were dropped as memory was full.";
    each("brooklet_space_dropped_total", help, Kind::Counter, &memory(|memory| memory.dropped));
}
