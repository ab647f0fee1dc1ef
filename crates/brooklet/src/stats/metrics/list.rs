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
    mirror(&mut list, activity);
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
        "Commits sent to the ring, including refused commits.",
        activity.commits,
    );
    let stage = |name: &'static str, times: &Histogram| Sample {
        label: Some(("stage", name.into())),
        value: Value::Times(Box::new(times.clone())),
    };
    list.family(
        "brooklet_write_stage_seconds",
        "Time of each stage of a write: append of one in 16 commits, other stages of every block.",
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
        "Time from the append of the first commit of each block until the commit was durable.",
        &stages.whole,
    );
    list.counter("brooklet_ring_records_total", "Records appended to blocks of the ring.", wal.records);
    list.counter(
        "brooklet_ring_raw_bytes_total",
        "Bytes of these records before compression.",
        wal.raw_bytes,
    );
    list.counter("brooklet_ring_blocks_total", "Blocks written to the ring.", wal.blocks);
    list.counter("brooklet_ring_written_bytes_total", "Bytes written to the ring.", wal.written_bytes);
    list.counter("brooklet_ring_wakes_total", "Wake-ups of threads and tasks.", wal.wakes);
    list.gauge("brooklet_ring_used_bytes", "Bytes of the ring that no checkpoint has freed yet.", wal.used);
    list.gauge("brooklet_ring_size_bytes", "Bytes of the ring.", wal.size);
    list.gauge("brooklet_ring_block_size_bytes", "Bytes after which a block is full.", wal.block_size);
    list.gauge("brooklet_ring_depth", "Maximum number of writes in flight.", wal.depth);
    list.gauge("brooklet_ring_writes_in_flight", "Writes in flight.", wal.in_flight);
    list.gauge("brooklet_ring_queued_blocks", "Full blocks that wait to be written.", wal.queued);
    list.gauge("brooklet_waiting_writers", "Threads that wait for room to commit.", wal.waiting);
    list.gauge(
        "brooklet_stopped",
        "1 if the store stopped writing until it is opened again.",
        activity.stopped.is_some(),
    );
}

fn stalls(list: &mut List, activity: &Activity) {
    let each = StallReason::ALL.map(|reason| (reason.name(), activity.stall(reason)));
    let counts = labelled("reason", each.iter().map(|(name, stall)| (*name, stall.count)));
    list.family(
        "brooklet_stalls_total",
        "Number of waits of commits before they were appended.",
        Kind::Counter,
        counts,
    );
    let times = labelled("reason", each.iter().map(|(name, stall)| (*name, stall.time)));
    list.family(
        "brooklet_stalled_seconds_total",
        "Time that commits waited before they were appended.",
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
    let help = "Reads of entries or bounds, by the newest place that holds the log.";
    list.family("brooklet_reads_total", help, Kind::Counter, labelled("source", sources));
    list.counter("brooklet_run_lookups_total", "Look-ups of logs in the runs.", activity.run_lookups);
    list.times(
        "brooklet_run_lookup_seconds",
        "Time of one in 16 of these look-ups.",
        &activity.run_lookup_times,
    );
    list.counter(
        "brooklet_filter_questions_total",
        "Queries of the filters of runs.",
        lookups.filter_questions,
    );
    list.counter(
        "brooklet_filter_false_positives_total",
        "Filter queries with a false positive answer.",
        lookups.filter_false_positives,
    );
    list.counter("brooklet_cache_hits_total", "Parts of runs found in memory.", lookups.cache_hits);
    list.counter("brooklet_cache_misses_total", "Parts of runs read from the volume.", lookups.cache_misses);
    list.counter("brooklet_cache_read_bytes_total", "Bytes read for these parts.", lookups.read_bytes);
    let used = lookups.filter_bytes + lookups.index_bytes + lookups.block_bytes + lookups.bounds_cache_bytes;
    list.gauge("brooklet_cache_used_bytes", "Bytes of memory used for look-ups.", used);
    list.gauge("brooklet_cache_budget_bytes", "Maximum bytes of memory for look-ups.", lookups.cache_budget);
}

fn keeping(list: &mut List, activity: &Activity) {
    let (kept, stats) = (&activity.kept, &activity.kept.stats);
    list.gauge("brooklet_memtable_logs", "Logs in the memtables.", activity.memtable_logs);
    list.gauge("brooklet_memtable_bytes", "Bytes of memory of the memtables.", activity.memtable_bytes);
    list.gauge(
        "brooklet_memtable_budget_bytes",
        "Maximum bytes of memory of the memtables.",
        activity.memory_budget,
    );
    list.counter("brooklet_checkpoints_total", "Checkpoints done.", stats.checkpoints);
    list.counter("brooklet_compactions_total", "Compactions done.", stats.compactions);
    list.counter("brooklet_compaction_steps_total", "Compaction steps done.", stats.compaction_steps);
    list.counter("brooklet_dead_runs_total", "Runs freed without a read.", stats.dead_runs);
    list.counter(
        "brooklet_heap_written_bytes_total",
        "Bytes of runs and manifests written.",
        stats.heap_written_bytes,
    );
    list.counter(
        "brooklet_heap_punched_bytes_total",
        "Bytes returned to the file system.",
        stats.punched_bytes,
    );
    list.times(
        "brooklet_maintenance_slice_seconds",
        "Time of each slice of a checkpoint or compaction.",
        &activity.slices,
    );
    list.gauge("brooklet_checkpointing", "1 while a checkpoint is running.", kept.checkpoint.is_some());
    list.gauge("brooklet_compacting", "1 while a compaction is running.", kept.compacting);
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

fn mirror(list: &mut List, activity: &Activity) {
    let Some(mirror) = &activity.mirror else { return };
    list.gauge(
        "brooklet_mirror_lag_seconds",
        "Age of the oldest block that the mirror does not keep.",
        mirror.lag,
    );
    list.gauge(
        "brooklet_mirror_waiting_bytes",
        "Bytes of blocks that the mirror does not keep.",
        mirror.bytes,
    );
    list.gauge("brooklet_mirror_waiting_blocks", "Blocks that the mirror does not keep.", mirror.blocks);
    list.counter(
        "brooklet_mirror_kept_bytes_total",
        "Bytes of blocks that the mirror keeps.",
        mirror.kept_bytes,
    );
    list.times(
        "brooklet_mirror_keep_seconds",
        "Time from the end of each block here until the mirror kept it.",
        &mirror.times,
    );
}

fn spaces(list: &mut List, activity: &Activity) {
    let spaces = &activity.spaces;
    let mut each = |name, help, kind, of: &dyn Fn(&crate::SpaceInfo) -> Option<u64>| {
        let values = spaces.iter().filter_map(|space| Some((space.name.clone(), of(space)?)));
        list.family(name, help, kind, labelled("space", values));
    };
    each("brooklet_space_logs", "Logs of a space, if the store counts them.", Kind::Gauge, &|space| {
        space.logs
    });
    each("brooklet_space_bytes", "Bytes of the payloads in a space.", Kind::Gauge, &|space| space.bytes);
    let help = "Entries appended in a space.";
    each("brooklet_space_appended_total", help, Kind::Counter, &|space| Some(space.appended));
    let help = "Bytes of the payloads appended in a space.";
    each("brooklet_space_appended_bytes_total", help, Kind::Counter, &|space| Some(space.appended_bytes));
    let help = "Reads of logs of a space.";
    each("brooklet_space_reads_total", help, Kind::Counter, &|space| Some(space.reads));
    let help = "Commits that a quota or full memory refused.";
    each("brooklet_space_refused_total", help, Kind::Counter, &|space| Some(space.refused));
    let memory =
        |of: fn(&crate::MemoryInfo) -> u64| move |space: &crate::SpaceInfo| space.memory.as_ref().map(of);
    let help = "Bytes of memory of a space that is kept in memory.";
    each("brooklet_space_memory_bytes", help, Kind::Gauge, &memory(|memory| memory.used));
    let help = "Dumps of a space that is kept in memory.";
    each("brooklet_space_dumps_total", help, Kind::Counter, &memory(|memory| memory.dumps));
    let help = "Logs dropped because memory was full.";
    each("brooklet_space_dropped_total", help, Kind::Counter, &memory(|memory| memory.dropped));
}
