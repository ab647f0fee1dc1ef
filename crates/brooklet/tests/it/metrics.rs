//! What a store counts: by stage of a write, by what answers a read, stalls and their reasons; and
//! how that is told.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::Duration;

use brooklet::io::MemVolume;
use brooklet::{Class, Error, MemoryConfig, Options, SpaceConfig, StallReason, StallStats, Store};

use crate::common::gate::Gate;

fn options() -> Options {
    Options::new().ring_size(1 << 20).memory_budget(1 << 20).max_payload(64 << 10)
}

#[test]
fn each_read_is_counted_with_what_answers_it() {
    let store = options().threads(false).create_on(Arc::new(MemVolume::new(1))).unwrap();
    let config = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
    store.create_space("games", config).unwrap();
    let before = store.activity();
    store.append("log", "a").unwrap().wait().unwrap();
    store.append("games/1", "e4").unwrap().wait().unwrap();
    let read = |key: &str| drop(store.read(key, ..).map(Iterator::count));
    read("log");
    read("games/1");
    assert!(store.exists("games/1").unwrap() && !store.exists("games/2").unwrap());
    read("unknown");
    let during = store.activity();
    let told = during.reads;
    assert_eq!((told.active, told.frozen, told.memory, told.bounds_cache, told.runs), (1, 0, 3, 0, 1));
    assert_eq!(during.commits - before.commits, 1, "those in memory do not come to the ring");
    assert_eq!(during.stages.whole.count() - before.stages.whole.count(), 1);
    store.checkpoint().unwrap();
    while store.step().unwrap() {}
    read("log");
    store.bounds("log").unwrap();
    let after = store.activity();
    assert_eq!((after.reads.runs, after.reads.bounds_cache), (2, 1));
    assert!(after.run_lookups > during.run_lookups && after.run_lookup_times.count() > 0);
    assert!(after.kept.stats.checkpoints > before.kept.stats.checkpoints && after.slices.count() > 0);
    assert_eq!((after.runs > 0, after.memtable_logs), (true, 0));
    assert_eq!(after.spaces[0].reads, 1);
}

/// A checkpoint that does not get on, as its flush hangs: whoever asks hears at once who waits, and
/// why.
#[test]
fn whoever_has_to_wait_is_counted_with_the_reason_while_the_device_hangs() {
    let gate = Gate::new(1);
    let store = options().create_on(Arc::new(gate.clone())).unwrap();
    let open = gate.close();
    let all = || StallReason::ALL.map(|reason| store.activity().stall(reason));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..3000 {
                store.append(format!("log {}", n % 10), [7; 1000]).unwrap().wait().unwrap();
            }
        });
        // It also waits for moments at a time before, of which the metrics may show the end.
        let has_stalled = || {
            let text = store.metrics().to_string();
            let stalled = |line: &&str| line.starts_with("brooklet_stalled_commits") && line.ends_with(" 1");
            text.lines().filter(stalled).count() == 1
        };
        while !has_stalled() {
            assert!(!writer.is_finished(), "it should have had to wait");
            std::thread::yield_now();
        }
        drop(open);
        writer.join().unwrap();
    });
    let held: Vec<StallStats> = all().into_iter().filter(|stall| stall.count > 0).collect();
    assert!(!held.is_empty() && held.iter().all(|stall| stall.now == 0 && !stall.time.is_zero()), "{held:?}");
    let room = [StallReason::Memory, StallReason::Ring, StallReason::Checkpoint];
    assert!(room.iter().any(|reason| store.activity().stall(*reason).count > 0), "{held:?}");
    assert_eq!(store.activity().commits, 3000);
    assert_eq!(store.activity().append.count(), 3000_u64.div_ceil(16));
}

#[test]
fn the_file_of_the_metrics_is_there_while_the_store_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.prom");
    let every = Duration::from_millis(1);
    let store =
        Options::new().ring_size(1 << 20).metrics_file(&file, every).open(dir.path().join("s")).unwrap();
    let told = || std::fs::read_to_string(&file).unwrap();
    assert!(told().contains("\nbrooklet_commits_total 0\n"), "there from the start");
    store.append("log", "entry").unwrap().wait().unwrap();
    while !told().contains("\nbrooklet_commits_total 1\n") {
        std::thread::yield_now();
    }
    store.close().unwrap();
    assert!(!file.exists() && std::fs::read_dir(dir.path()).unwrap().count() == 1);

    drop(store);
    let nowhere = dir.path().join("nowhere").join("store.prom");
    let error = Options::new().metrics_file(&nowhere, every).open(dir.path().join("s")).unwrap_err();
    assert!(error.to_string().contains("metrics"), "{error}");
    let again = Store::open(dir.path().join("s")).unwrap();
    assert_eq!(again.bounds("log").unwrap().next, 1);
}

/// In an earlier state, closing waited until the thread that writes the metrics had slept out its
/// interval.
#[test]
fn closing_does_not_wait_for_the_next_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.prom");
    let options = Options::new().ring_size(1 << 20).metrics_file(&file, Duration::MAX);
    let store = options.open(dir.path().join("s")).unwrap();
    let (closed, is_closed) = channel();
    Builder::new()
        .spawn(move || {
            store.close().unwrap();
            closed.send(()).unwrap();
        })
        .unwrap();
    is_closed.recv_timeout(Duration::from_secs(60)).expect("the store is closed");
    assert!(!file.exists());
}

/// A path may be mistyped. The file of the metrics is replaced, and removed at the end.
#[test]
fn metrics_do_not_replace_other_files() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let open = |metrics: &str| {
        let options = Options::new().ring_size(1 << 20);
        options.metrics_file(at(metrics), Duration::from_secs(1)).open(at("s"))
    };
    let other = Options::new().ring_size(1 << 20).open(at("other")).unwrap();
    other.append("log", "entry").unwrap().wait().unwrap();
    other.close().unwrap();
    drop(other);
    std::fs::write(at("notes"), "# HELP wanted\n").unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    std::os::unix::fs::symlink("other", at("link")).unwrap();
    // The metrics of `whole` are written to `whole.part` first.
    std::fs::write(at("whole.part"), "half of a film").unwrap();
    for name in ["other", "notes", "folder", "link", "whole"] {
        let error = open(name).unwrap_err();
        assert!(
            matches!(&error, Error::InvalidOptions(what) if what.contains("is not a metrics file")),
            "{error}"
        );
        assert!(!at("s").exists(), "nothing was made");
    }
    assert_eq!(std::fs::read(at("notes")).unwrap(), b"# HELP wanted\n");
    assert_eq!(Store::open(at("other")).unwrap().bounds("log").unwrap().next, 1);
    // A process that was killed leaves its metrics; others make the file before they name it.
    let metrics = Store::in_memory(1).unwrap().metrics().to_string();
    for left in [&metrics[..], "", "# HELP br"] {
        std::fs::write(at("metrics"), left).unwrap();
        std::fs::write(at("metrics.part"), left).unwrap();
        open("metrics").unwrap().close().unwrap();
        assert!(!at("metrics").exists());
    }
}

#[cfg(feature = "metrics")]
#[test]
fn a_recorder_is_handed_everything() {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};

    use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};

    #[derive(Default)]
    struct Kept(std::sync::Mutex<BTreeMap<String, Arc<AtomicU64>>>);

    impl Kept {
        fn of(&self, key: &Key) -> Arc<AtomicU64> {
            let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value()));
            let name = format!("{}{{{}}}", key.name(), labels.collect::<Vec<_>>().join(","));
            self.0.lock().unwrap().entry(name).or_default().clone()
        }
    }

    impl metrics::Recorder for Kept {
        fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
            assert!(name.as_str().ends_with("_total"));
        }

        fn describe_gauge(&self, _: KeyName, unit: Option<Unit>, _: SharedString) {
            assert!(unit.is_some());
        }

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
            panic!("times are not handed on one by one");
        }

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.of(key))
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.of(key))
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            panic!("times are not handed on one by one");
        }
    }

    let store = Store::in_memory(1).unwrap();
    (0..3).for_each(|_| store.append("log", "entry").unwrap().wait().unwrap());
    let kept = Kept::default();
    store.metrics().record(&kept);
    let of = |name: &str| kept.0.lock().unwrap()[name].load(Ordering::Relaxed);
    assert_eq!(of("brooklet_commits_total{}"), 3);
    assert_eq!(of("brooklet_write_stage_seconds_count{stage=write}"), 3);
    assert!(f64::from_bits(of("brooklet_commit_seconds{quantile=0.99}")) > 0.0);
    assert_eq!(of("brooklet_stalls_total{reason=ring}"), 0);
    store.append("log", "entry").unwrap().wait().unwrap();
    store.metrics().record(&kept);
    assert_eq!(of("brooklet_commits_total{}"), 4);
}
