//! The workloads, what is measured of each, and the marks that Brooklet should reach.

use serde::Serialize;

use crate::stores::Kind;
use crate::works::{Data, How, Left, Load, Until};

/// A workload.
pub struct Work {
    /// Its name on the command line.
    pub name: String,
    /// What it does, for people.
    pub what: String,
    /// What is done with each store.
    pub plan: Plan,
    /// What is measured.
    pub metrics: Vec<Metric>,
}

/// What is done with each store.
#[derive(Clone, Copy)]
pub enum Plan {
    /// Write to a new store.
    Write(Load),
    /// Read from [`DATA`], or from [`RESTED`].
    Read { rested: bool },
    /// Open [`DATA`], after a clean close or a kill.
    Open { killed: bool },
    /// Weigh [`IDLE`] beside [`ONE`].
    Idle,
}

/// What is read and opened: a million entries.
pub const DATA: Data = Data { logs: 100_000, each: 10, left: Left::AsItIs };
/// The same, in the shape for reading.
pub const RESTED: Data = Data { left: Left::Compacted, ..DATA };
/// What idles.
pub const IDLE: Data = Data { logs: 1_000_000, each: 1, left: Left::Settled };
/// What takes the same memory but for the logs.
pub const ONE: Data = Data { logs: 1, each: 1, left: Left::Settled };

/// One figure of a workload, a line of the table.
pub struct Metric {
    /// Its name among the figures of a step.
    pub figure: &'static str,
    /// Its name in the table.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// What Brooklet's figure should reach.
    pub marks: Vec<Mark>,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

/// What Brooklet's figure should reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    /// So many times that of the best peer in the same line.
    Peer(f64),
    /// So many times the best appends/s that a peer reaches in any line.
    AnyPeer(f64),
    /// So many times that of the plainest group commit in the same line.
    Plain(f64),
    /// This value.
    Value(f64),
}

/// Threads that wait.
const THREADS: [u64; 4] = [1, 8, 64, 256];
/// Operations in flight, of callers that leave callbacks or await.
const IN_FLIGHT: usize = 1024;
/// Operations whose bytes on the device are counted with all that follows from them.
const COUNTED: u64 = 500_000;

impl Work {
    /// Whether it makes sense with a store: the yardsticks only write.
    pub fn takes(&self, kind: Kind) -> bool {
        match (kind, self.plan) {
            (Kind::Plain, Plan::Write(_)) => true,
            (Kind::Device, Plan::Write(load)) => matches!(load.how, How::Waiting(_) | How::Bulk) && !load.hot,
            (Kind::Plain | Kind::Device, _) => false,
            _ => true,
        }
    }
}

/// All workloads; those without an end of their own take so many seconds.
pub fn works(seconds: f64) -> Vec<Work> {
    let load = Load {
        hot: false,
        cold: false,
        how: How::Bulk,
        until: Until::Seconds(seconds),
        first_log: 0,
        settle: false,
    };
    let mut works = Vec::new();
    for threads in THREADS {
        let marks = if threads >= 64 { vec![Mark::Peer(1.0), Mark::Plain(0.9)] } else { Vec::new() };
        works.push(Work {
            name: format!("waiting-{threads}"),
            what: format!("threads that wait for each append: {threads}; 100,000 logs, deltas of 200 bytes"),
            plan: Plan::Write(Load { how: How::Waiting(threads), ..load }),
            metrics: waited("appends/s", marks),
        });
    }
    works.push(Work {
        name: "burst".into(),
        what: "100,000 appends that do not wait, until all are durable; 100,000 logs".into(),
        plan: Plan::Write(Load { until: Until::Count(100_000), ..load }),
        metrics: written("appends/s", vec![Mark::Peer(5.0)]),
    });
    works.push(Work {
        name: "burst-cold".into(),
        what: "the same, on logs that rest on the disk since a checkpoint or flush".into(),
        plan: Plan::Write(Load { until: Until::Count(100_000), cold: true, ..load }),
        metrics: written("appends/s", Vec::new()),
    });
    works.push(Work {
        name: "flight".into(),
        what: "1,024 appends in flight by callbacks; 100,000 logs".into(),
        plan: Plan::Write(Load { how: How::Flight(IN_FLIGHT), ..load }),
        metrics: written("appends/s", vec![Mark::AnyPeer(3.0)]),
    });
    works.push(Work {
        name: "tasks".into(),
        what: "1,024 tasks on a thread, each of which awaits each of its appends; 100,000 logs".into(),
        plan: Plan::Write(Load { how: How::Tasks(IN_FLIGHT as u64), ..load }),
        metrics: written("appends/s", vec![Mark::AnyPeer(3.0)]),
    });
    works.push(Work {
        name: "trims-64".into(),
        what: "snapshot-and-trim: 1,000 hot logs, each 16th entry a snapshot of 1 KiB; 64 threads that wait"
            .into(),
        plan: Plan::Write(Load { hot: true, how: How::Waiting(64), ..load }),
        metrics: waited("ops/s", vec![Mark::Peer(1.5)]),
    });
    works.push(Work {
        name: "trims-flight".into(),
        what: "the same, 1,024 in flight by callbacks".into(),
        plan: Plan::Write(Load { hot: true, how: How::Flight(IN_FLIGHT), ..load }),
        metrics: written("ops/s", vec![Mark::Peer(4.0)]),
    });
    let counted = Load { how: How::Flight(IN_FLIGHT), until: Until::Count(COUNTED), settle: true, ..load };
    works.push(Work {
        name: "bytes-appends".into(),
        what: "500,000 appends, 1,024 in flight, then all is brought to its place: checkpoint, flush".into(),
        plan: Plan::Write(counted),
        metrics: vec![cpu(), bytes(vec![Mark::Peer(0.5)])],
    });
    works.push(Work {
        name: "bytes-trims".into(),
        what: "500,000 operations of snapshot-and-trim, likewise".into(),
        plan: Plan::Write(Load { hot: true, ..counted }),
        metrics: vec![cpu(), bytes(vec![Mark::Peer(0.5)])],
    });
    works.extend(on_data());
    works
}

fn on_data() -> [Work; 5] {
    let reads = |figure, unit| Metric { figure, unit, better: Better::Higher, marks: vec![Mark::Peer(1.0)] };
    let on_device = || lower("written MiB", "MiB on device");
    let read = || {
        vec![
            reads("cold", "logs/s, cold"),
            reads("warm", "logs/s, warm"),
            on_device(),
            lower("space per byte", "space on disk per byte"),
        ]
    };
    let open = |marks| vec![Metric { figure: "ms", unit: "ms", better: Better::Lower, marks }, on_device()];
    [
        Work {
            name: "read".into(),
            what: "10,000 random logs of 100,000 with 10 entries each, one after another, after a reopening"
                .into(),
            plan: Plan::Read { rested: false },
            metrics: read(),
        },
        Work {
            name: "read-rested".into(),
            what: "the same of stores that were compacted, as Brooklet does by itself once it is left alone"
                .into(),
            plan: Plan::Read { rested: true },
            metrics: read(),
        },
        Work {
            name: "open-closed".into(),
            what: "opening a million entries after a clean close, until a log is read; files not in memory"
                .into(),
            plan: Plan::Open { killed: false },
            metrics: open(Vec::new()),
        },
        Work {
            name: "open-killed".into(),
            what: "the same after 100,000 appends more and a SIGKILL in the midst of others".into(),
            plan: Plan::Open { killed: true },
            metrics: open(vec![Mark::Value(100.0)]),
        },
        Work {
            name: "idle".into(),
            what: "memory with 1,000,000 idle logs, beyond that with one; without pages of files".into(),
            plan: Plan::Idle,
            metrics: vec![
                Metric { marks: vec![Mark::Value(2.5)], ..lower("bytes per log", "bytes per log") },
                lower("MiB", "MiB, all"),
            ],
        },
    ]
}

/// What is measured where operations are in flight.
fn written(unit: &'static str, marks: Vec<Mark>) -> Vec<Metric> {
    vec![speed(unit, marks), switches(), cpu(), bytes(Vec::new())]
}

/// What is measured where threads wait.
fn waited(unit: &'static str, marks: Vec<Mark>) -> Vec<Metric> {
    let latency = [lower("p50", "p50, µs"), lower("p99", "p99, µs")];
    [speed(unit, marks)].into_iter().chain(latency).chain([switches(), cpu(), bytes(Vec::new())]).collect()
}

fn speed(unit: &'static str, marks: Vec<Mark>) -> Metric {
    Metric { figure: "per second", unit, better: Better::Higher, marks }
}

fn bytes(marks: Vec<Mark>) -> Metric {
    Metric { marks, ..lower("written per byte", "bytes on device per byte") }
}

fn switches() -> Metric {
    lower("switches", "context switches each")
}

fn cpu() -> Metric {
    lower("cpu", "CPU time, µs each")
}

fn lower(figure: &'static str, unit: &'static str) -> Metric {
    Metric { figure, unit, better: Better::Lower, marks: Vec::new() }
}
