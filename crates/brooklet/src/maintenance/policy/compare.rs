//! Compares policies in a model of the store: with the same pieces, merging and counting of dead
//! entries, but without bytes. The tables of `docs/decisions/0009-compaction.md` and
//! `docs/decisions/0037-reads-of-whole-logs.md` are printed by
//!
//! ```sh
//! cargo test --release -p brooklet --lib policy::compare -- --ignored --nocapture
//! ```

use std::collections::BTreeMap;

use brooklet_io::Rng;

use crate::format::manifest::RunMeta;
use crate::maintenance::policy::{
    CompactionGoal, Merge, POLICY, Policy, Shape, binomial, is_dead, too_much_garbage,
};
use crate::model::{Bounds, Effect, Piece, resolve};

/// Bytes of an entry's payload, and bytes of a log's head in a run.
const PAYLOAD: u64 = 288;
const HEAD: u64 = 24;
/// Bytes of memory for an entry besides its payload, for a log, and for the budget. A checkpoint
/// starts at half of the budget.
const ENTRY_COST: u64 = 42;
const LOG_COST: u64 = 180;
const BUDGET: u64 = 2 << 20;
/// Bytes on the device for each byte of JSON, compressed by LZ4, in the ring and in a run: measured
/// with the real store (`tests/it/amplification.rs`).
const RING: f64 = 0.57;
const HEAP: f64 = 0.60;
/// The bytes of a merge that cost as much as the look at one piece more (`run/read_cost.rs`).
const LOOK: u64 = 4096;

/// A policy to compare.
struct Candidate {
    name: &'static str,
    next: Next,
}

const CANDIDATES: &[Candidate] = &[
    Candidate { name: "tiered 4, nothing else (as it was)", next: |runs, _| tiered(runs, 4) },
    Candidate { name: "tiered 4", next: |runs, idle| tiered(runs, 4).or_else(|| garbage(runs, idle)) },
    Candidate { name: "tiered 8", next: |runs, idle| tiered(runs, 8).or_else(|| garbage(runs, idle)) },
    Candidate { name: "leveled 8", next: |runs, idle| leveled(runs, 8).or_else(|| garbage(runs, idle)) },
    Candidate {
        name: "lazy leveled 8",
        next: |runs, idle| lazy_leveled(runs, 8).or_else(|| garbage(runs, idle)),
    },
    Candidate {
        name: "by size, from 8 on",
        next: |runs, idle| by_size(runs, 8).or_else(|| garbage(runs, idle)),
    },
    Candidate {
        name: "at most 8 runs",
        next: |runs, idle| Policy { most: 8, ..POLICY }.next(runs, goal(idle)),
    },
    Candidate { name: "**at most 12 runs (chosen)**", next: |runs, idle| POLICY.next(runs, goal(idle)) },
    Candidate {
        name: "at most 20 runs",
        next: |runs, idle| Policy { most: 20, ..POLICY }.next(runs, goal(idle)),
    },
];
const CHOSEN: &Candidate = &CANDIDATES[7];

fn goal(idle: bool) -> CompactionGoal {
    if idle { CompactionGoal::Space } else { CompactionGoal::Bounds }
}

fn garbage(runs: &[Shape], idle: bool) -> Option<Merge> {
    too_much_garbage(runs, if idle { POLICY.idle_garbage } else { POLICY.garbage })
}

/// Merges each full level separately.
fn tiered(runs: &[Shape], fanout: usize) -> Option<Merge> {
    let mut start = 0;
    for level in runs.chunk_by(|a, b| a.level == b.level) {
        if level.len() >= fanout {
            return Some(Merge { runs: start..start + level.len(), level: level[0].level + 1 });
        }
        start += level.len();
    }
    None
}

/// Keeps one run a level; each level is `ratio` times as large as the level before.
fn leveled(runs: &[Shape], ratio: u64) -> Option<Merge> {
    let second = runs.windows(2).position(|pair| pair[0].level == pair[1].level)?;
    let level = runs[second].level;
    let bytes = runs[second].bytes + runs[second + 1].bytes;
    let full = bytes > BUDGET / 2 * ratio.pow(level as u32 + 1);
    Some(Merge { runs: second..second + 2, level: level + u64::from(full) })
}

/// Merges full levels, but keeps one run in the last level.
fn lazy_leveled(runs: &[Shape], fanout: usize) -> Option<Merge> {
    let last = runs.last()?.level;
    let of_last = runs.iter().filter(|run| run.level == last).count();
    if last > 0 && of_last > 1 {
        let start = runs.len() - of_last;
        let bytes: u64 = runs[start..].iter().map(|run| run.bytes).sum();
        let full = bytes > BUDGET / 2 * (fanout as u64).pow(last as u32 + 1);
        return Some(Merge { runs: start..runs.len(), level: last + u64::from(full) });
    }
    tiered(runs, fanout)
}

/// Merges the newest runs: as many as are no larger than all newer runs together ("universal").
fn by_size(runs: &[Shape], from: usize) -> Option<Merge> {
    if runs.len() < from {
        return None;
    }
    let mut sum = runs[0].bytes;
    let mut end = 1;
    while end < runs.len() && (runs[end].bytes <= sum || end < 2) {
        sum += runs[end].bytes;
        end += 1;
    }
    Some(Merge { runs: 0..end, level: runs[end - 1].level })
}

/// A run of the model.
struct Run {
    meta: RunMeta,
    bytes: u64,
    dead: u64,
    pieces: Vec<(u32, Piece)>,
}

impl Run {
    fn new(level: u64, pieces: Vec<(u32, Piece)>) -> Self {
        let held = |piece: &Piece| piece.held().end - piece.held().start;
        let entries = pieces.iter().map(|(_, piece)| held(piece)).sum();
        let tombstones = pieces.iter().filter(|(_, piece)| piece.bounds.is_none()).count() as u64;
        let bare = pieces.iter().filter(|(_, piece)| held(piece) == 0).count() as u64;
        let bytes = entries * PAYLOAD + pieces.len() as u64 * HEAD;
        let logs = pieces.len() as u64;
        let empties = bare - tombstones;
        let meta = RunMeta { level, logs, entries, tombstones, empties, ..RunMeta::default() };
        Self { meta, bytes, dead: 0, pieces }
    }

    fn piece(&self, log: u32) -> Option<Piece> {
        let at = self.pieces.binary_search_by_key(&log, |(log, _)| *log).ok()?;
        Some(self.pieces[at].1)
    }
}

impl From<&Run> for Shape {
    fn from(run: &Run) -> Self {
        Self::of(&run.meta, run.bytes, run.dead)
    }
}

/// The measured figures.
#[derive(Default)]
struct Figures {
    payload: u64,
    written: u64,
    checkpoints: u64,
    dead_runs: u64,
    most_runs: usize,
    touched: Vec<u64>,
    /// Reads of whole logs, and the pieces that they touched: all, and all but the first of each.
    reads: u64,
    read_pieces: u64,
    looks: u64,
    /// Bytes of runs for each live byte: the maximum while busy, and the value after an idle time.
    space: f64,
    idle_space: f64,
}

/// A store of the model.
struct World<'a> {
    policy: &'a Candidate,
    /// Newest first.
    runs: Vec<Run>,
    /// The appended bounds of every log that ever existed.
    logs: BTreeMap<u32, Option<Bounds>>,
    /// The memtable: the bounds before it, and its piece.
    memtable: BTreeMap<u32, (Option<Bounds>, Piece)>,
    memory: u64,
    /// Reads of whole logs for each hundred appends.
    reads: u64,
    /// Whether reads pay for merges, and the bytes of a merge that they have paid for.
    paid: Option<u64>,
    rng: Rng,
    figures: Figures,
}

impl<'a> World<'a> {
    fn new(policy: &'a Candidate) -> Self {
        Self {
            policy,
            runs: Vec::new(),
            logs: BTreeMap::new(),
            memtable: BTreeMap::new(),
            memory: 0,
            reads: 0,
            paid: None,
            rng: Rng::new(1),
            figures: Figures::default(),
        }
    }

    fn bounds(&self, log: u32) -> Option<Bounds> {
        self.logs.get(&log).copied().flatten()
    }

    fn apply(&mut self, log: u32, effect: Effect) {
        let bounds = self.bounds(log);
        let known = &mut self.memory;
        let (_, piece) = self.memtable.entry(log).or_insert_with(|| {
            *known += LOG_COST;
            (bounds, Piece::on_top_of(bounds))
        });
        piece.apply(effect).expect("it fits");
        self.logs.insert(log, piece.bounds);
        if matches!(effect, Effect::Append(_)) {
            self.memory += PAYLOAD + ENTRY_COST;
            self.figures.payload += PAYLOAD;
            let now = self.figures.payload / PAYLOAD;
            let reads = now * self.reads / 100 - (now - 1) * self.reads / 100;
            (0..reads).for_each(|_| self.read());
        }
        if self.memory > BUDGET / 2 {
            self.checkpoint();
        }
    }

    fn append(&mut self, log: u32) {
        let next = self.bounds(log).map_or(0, |b| b.next);
        self.apply(log, Effect::Append(next));
    }

    fn snapshot(&mut self, log: u32) {
        self.append(log);
        self.apply(log, Effect::Trim(self.bounds(log).map_or(0, |b| b.next - 1)));
    }

    /// Changes one of `logs` logs; every 16th change is a snapshot.
    fn snapshot_or_append(&mut self, logs: u64) {
        let log = self.rng.below(logs) as u32;
        if self.rng.below(16) == 0 { self.snapshot(log) } else { self.append(log) }
    }

    /// Reads a whole log. As in the store, a look at each piece but the first pays for a merge.
    fn read(&mut self) {
        let log = self.rng.below(self.logs.len() as u64) as u32;
        let touched = self.touched(log);
        self.figures.read_pieces += touched;
        self.figures.looks += touched.saturating_sub(1);
        self.figures.reads += 1;
        let Some(paid) = &mut self.paid else { return };
        *paid += touched.saturating_sub(1) * LOOK;
        let shapes: Vec<Shape> = self.runs.iter().map(Shape::from).collect();
        let Some((merge, bytes)) = POLICY.for_reads(&shapes) else { return };
        if *paid >= (bytes as f64 * HEAP) as u64 {
            *paid = 0;
            self.merge(&merge);
        }
    }

    fn checkpoint(&mut self) {
        let bottom = self.runs.is_empty();
        let memtable = std::mem::take(&mut self.memtable);
        for (&log, (_, piece)) in &memtable {
            self.lose(log, *piece);
        }
        let pieces = memtable.into_iter().map(|(log, (_, piece))| (log, piece));
        self.add(0, Run::new(0, pieces.filter(|(_, p)| !bottom || p.bounds.is_some()).collect()));
        self.memory = 0;
        self.figures.checkpoints += 1;
        self.work(false);
        self.measure();
    }

    /// Counts the entries that the runs lose, as `run/dead_entries.rs` does.
    fn lose(&mut self, log: u32, newer: Piece) {
        let found: Vec<(usize, Piece)> =
            self.runs.iter().enumerate().filter_map(|(i, run)| Some((i, run.piece(log)?))).collect();
        let pieces = || found.iter().map(|(_, piece)| *piece);
        for (i, part) in resolve(pieces()).parts {
            self.runs[found[i].0].dead += part.end - part.start;
        }
        for (i, part) in resolve(std::iter::once(newer).chain(pieces())).parts {
            if i > 0 {
                self.runs[found[i - 1].0].dead -= part.end - part.start;
            }
        }
    }

    fn add(&mut self, at: usize, run: Run) {
        self.figures.written += run.bytes;
        if run.meta.logs > 0 {
            self.runs.insert(at, run);
        }
        let mut is_oldest = true;
        for i in (0..self.runs.len()).rev() {
            if is_dead(&self.runs[i].meta, self.runs[i].dead, is_oldest) {
                self.runs.remove(i);
                self.figures.dead_runs += 1;
            } else {
                is_oldest = false;
            }
        }
    }

    fn work(&mut self, idle: bool) {
        loop {
            let shapes: Vec<Shape> = self.runs.iter().map(Shape::from).collect();
            let Some(merge) = (self.policy.next)(&shapes, idle) else { return };
            self.merge(&merge);
        }
    }

    fn merge(&mut self, merge: &Merge) {
        let bottom = merge.runs.end == self.runs.len();
        let old: Vec<Run> = self.runs.drain(merge.runs.clone()).collect();
        let mut all: Vec<(u32, usize, Piece)> = Vec::new();
        for (age, run) in old.iter().enumerate() {
            all.extend(run.pieces.iter().map(|&(log, piece)| (log, age, piece)));
        }
        all.sort_unstable_by_key(|&(log, age, _)| (log, age));
        let merged = all.chunk_by(|a, b| a.0 == b.0).map(|pieces| {
            let log = resolve(pieces.iter().map(|(_, _, piece)| *piece));
            (pieces[0].0, Piece { bounds: log.bounds, base: log.upper })
        });
        let mut run = Run::new(merge.level, merged.filter(|(_, p)| !bottom || p.bounds.is_some()).collect());
        let sum = |of: fn(&Run) -> u64| old.iter().map(of).sum::<u64>();
        run.dead = sum(|run| run.dead) - (sum(|run| run.meta.entries) - run.meta.entries);
        self.add(merge.runs.start, run);
    }

    fn space(&self) -> f64 {
        let bytes: u64 = self.runs.iter().map(|run| run.bytes).sum();
        let lives = |(log, bounds): (&u32, &Option<Bounds>)| {
            let bounds = self.memtable.get(log).map_or(*bounds, |(origin, _)| *origin);
            bounds.map_or(0, |b| b.len() * PAYLOAD + HEAD)
        };
        bytes as f64 / self.logs.iter().map(lives).sum::<u64>().max(1) as f64
    }

    fn measure(&mut self) {
        self.figures.most_runs = self.figures.most_runs.max(self.runs.len());
        if self.figures.checkpoints.is_multiple_of(5) {
            self.figures.space = self.figures.space.max(self.space());
            for _ in 0..50 {
                let log = self.rng.below(self.logs.len() as u64) as usize;
                let log = *self.logs.keys().nth(log).expect("it is below the length");
                let touched = self.touched(log);
                self.figures.touched.push(touched);
            }
        }
    }

    /// Returns the number of runs in which a read of a whole log finds something.
    fn touched(&self, log: u32) -> u64 {
        let mut found = Vec::new();
        for piece in self.runs.iter().filter_map(|run| run.piece(log)) {
            found.push(piece);
            let so_far = resolve(found.iter().copied());
            if so_far.bounds.is_none_or(|b| b.first == so_far.upper) {
                break;
            }
        }
        found.len() as u64
    }

    fn finish(mut self) -> Figures {
        self.checkpoint();
        self.work(true);
        self.figures.idle_space = self.space();
        self.figures
    }
}

/// A workload of a store.
struct Workload {
    name: &'static str,
    run: fn(&mut World<'_>, u64),
    /// Number of repetitions; enough for some hundred checkpoints.
    times: u64,
}

const WORKLOADS: &[Workload] = &[
    Workload {
        name: "append-only, 10,000 logs, to 100 times the memory budget",
        run: |world, _| {
            let log = world.rng.below(10_000) as u32;
            world.append(log);
        },
        times: 100 * BUDGET / PAYLOAD,
    },
    Workload {
        name: "snapshot-and-trim, every 16th a snapshot, of 16 logs (that is, 1,000 at 128 MiB)",
        run: |world, _| world.snapshot_or_append(16),
        times: 700_000,
    },
    Workload {
        name: "the same of 10,000 logs, few of which come twice in a checkpoint",
        run: |world, _| world.snapshot_or_append(10_000),
        times: 700_000,
    },
    Workload {
        name: "random deletes: every 10th change deletes one of 10,000 logs",
        run: |world, _| {
            let log = world.rng.below(10_000) as u32;
            let deletes = world.rng.below(10) == 0 && world.bounds(log).is_some();
            if deletes { world.apply(log, Effect::Delete) } else { world.append(log) }
        },
        times: 700_000,
    },
    Workload {
        name: "one hot log, kept to 1,000 entries, among 100,000 cold ones",
        run: |world, n| match n {
            0..300_000 => world.append((n % 100_000) as u32 + 1),
            _ if n % 10 == 0 => {
                let log = world.rng.below(100_000) as u32 + 1;
                world.append(log);
            }
            _ => {
                world.append(0);
                let bounds = world.bounds(0).expect("it was appended to");
                if bounds.len() > 1_100 {
                    world.apply(0, Effect::Trim(bounds.next - 1_000));
                }
            }
        },
        times: 1_000_000,
    },
];

fn measure(workload: &Workload, policy: &Candidate, times: u64) -> Figures {
    let mut world = World::new(policy);
    (0..times).for_each(|n| (workload.run)(&mut world, n));
    world.finish()
}

fn print_head(name: &str) {
    println!("\n{name}\n");
    println!(
        "| policy | written | of it to runs | space busy | space idle | runs read, mean | most | runs, most | freed unread |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
}

fn print(name: &str, mut figures: Figures) {
    figures.touched.sort_unstable();
    let heap = HEAP * figures.written as f64 / figures.payload as f64;
    let mean = figures.touched.iter().sum::<u64>() as f64 / figures.touched.len().max(1) as f64;
    let most = figures.touched.last().unwrap_or(&0);
    let Figures { space, idle_space, most_runs, dead_runs, .. } = figures;
    let written = RING + heap;
    println!(
        "| {name} | {written:.2} | {heap:.2} | {space:.2} | {idle_space:.2} | {mean:.1} | {most} | {most_runs} | {dead_runs} |"
    );
}

#[test]
#[ignore = "prints tables, and takes minutes"]
fn compare_policies() {
    for workload in WORKLOADS {
        print_head(workload.name);
        CANDIDATES.iter().for_each(|policy| print(policy.name, measure(workload, policy, workload.times)));
    }
    for budgets in [10, 30, 300, 1000] {
        print_head(&format!("append-only, to {budgets} times the memory budget"));
        for policy in [&CANDIDATES[1], &CANDIDATES[2], CHOSEN] {
            print(policy.name, measure(&WORKLOADS[0], policy, budgets * BUDGET / PAYLOAD));
        }
    }
}

/// Returns the next merge of some runs; the `bool` says whether the store is idle.
type Next = fn(&[Shape], bool) -> Option<Merge>;

/// Bounds of the number of runs, with and without merges that reads pay for.
const FOR_READS: &[(&str, Next, bool)] = &[
    ("at most 12 runs", |runs, idle| POLICY.next(runs, goal(idle)), false),
    ("at most 4 runs", |runs, idle| Policy { most: 4, ..POLICY }.next(runs, goal(idle)), false),
    ("at most 2 runs", |runs, idle| Policy { most: 2, ..POLICY }.next(runs, goal(idle)), false),
    ("**at most 12 runs, and merges that reads pay for**", |runs, idle| POLICY.next(runs, goal(idle)), true),
];

/// Appends to 10,000 logs with random reads of whole logs. Returns the figures.
fn measure_reads(next: Next, paid: bool, reads: u64, times: u64) -> Figures {
    let policy = Candidate { name: "", next };
    let mut world = World::new(&policy);
    (world.reads, world.paid) = (reads, paid.then_some(0));
    for _ in 0..times {
        let log = world.rng.below(10_000) as u32;
        world.append(log);
    }
    world.finish()
}

/// Returns the bytes written to runs and the cost of all looks but the first of each read, both as
/// bytes of a merge for each byte of payload.
fn costs(figures: &Figures) -> [f64; 2] {
    let looks = (figures.looks * LOOK) as f64;
    [HEAP * figures.written as f64, looks].map(|bytes| bytes / figures.payload as f64)
}

#[test]
#[ignore = "prints tables, and takes minutes"]
fn compare_reads() {
    println!("\n| reads for 100 appends | policy | written | pieces a read | merges and looks |");
    println!("| --- | --- | --- | --- | --- |");
    for reads in [0, 1, 10, 100, 1000] {
        for (name, next, paid) in FOR_READS {
            let figures = measure_reads(*next, *paid, reads, 30 * BUDGET / PAYLOAD);
            let ([heap, looks], mean) = (costs(&figures), figures.read_pieces as f64 / figures.reads as f64);
            println!("| {reads} | {name} | {:.2} | {mean:.1} | {:.2} |", RING + heap, heap + looks);
        }
    }
}

/// Merges that reads pay for cost at most as much as the looks that paid.
#[test]
fn reads_pay_for_their_merges() {
    for reads in [1, 10, 100] {
        let [never, paid] = [false, true]
            .map(|paid| measure_reads(FOR_READS[0].1, paid, reads, 4 * BUDGET / PAYLOAD))
            .map(|figures| costs(&figures));
        assert!(paid[0] <= never[0] + paid[1], "{reads}: {never:?}, {paid:?}");
        assert!(paid[0] + paid[1] <= 1.1 * (never[0] + never[1]), "{reads}: {never:?}, {paid:?}");
    }
}

/// Checks the bounds at the head of `maintenance/policy/mod.rs` for the policy of all stores.
#[test]
fn the_chosen_policy_keeps_its_bounds() {
    for workload in WORKLOADS {
        let figures = measure(workload, CHOSEN, workload.times / 8);
        assert!(figures.most_runs <= POLICY.most, "{}: {}", workload.name, figures.most_runs);
        assert!(figures.idle_space <= 1.3, "{}: {}", workload.name, figures.idle_space);
        let rewrites = (0..).find(|&d| binomial(POLICY.most as u64 + d, d) >= figures.checkpoints);
        let written = figures.written as f64 / figures.payload as f64;
        assert!(written <= 1.2 * (1 + rewrites.unwrap()) as f64, "{}: {written}", workload.name);
    }
}
