//! Tells what an append costs: time of the processor, context switches, allocations, writes.
//!
//! ```sh
//! cargo run --release -p brooklet --example cost -- [STORE] [SECONDS]
//! ```
//!
//! Each load has a new store at STORE (`cost.brooklet`), which is removed, and 100,000 logs that
//! get 64 to 512 bytes of JSON for SECONDS (2). Allocations are those of the whole process, the
//! load's own among them: a ticket, and for callbacks a box.

#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use brooklet::io::Rng;
use brooklet::{Commit, Durability, Error, Options, Store};

/// The system's allocator, which counts.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static ALLOCATED: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        ALLOCATED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LOGS: u64 = 100_000;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let path = Path::new(args.first().map_or("cost.brooklet", |path| path));
    let time = Duration::from_secs_f64(args.get(1).map_or(2.0, |n| n.parse().expect("seconds")));
    println!(
        "{:<32} {:>9} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>7} {:>7}",
        "load", "appends/s", "us", "system", "waits", "forced", "allocs", "bytes", "a block", "written"
    );
    for threads in [1, 8, 64, 256] {
        measure(path, &format!("{threads} threads that wait"), |store| waiting(store, threads, time))?;
    }
    measure(path, "1,024 in flight by callbacks", |store| flying(store, 1024, time))?;
    measure(path, "one thread that does not wait", |store| alone(store, time, Keys::append))?;
    for ops in [1, 2, 10] {
        let load = format!("deferred commits of {ops} operations");
        measure(path, &load, |store| alone(store, time, |keys, store| keys.commit(store, ops)))?;
    }
    println!(
        "us: time of the processor for an append, and its part in the system; waits, forced: context switches;"
    );
    println!("allocs, bytes: of the whole process; a block: commits in a block; written: bytes to the ring.");
    Ok(())
}

/// Measures a load on a new store, and prints what each of its appends cost.
fn measure(path: &Path, load: &str, run: impl FnOnce(&Store) -> Result<u64, Error>) -> Result<(), Error> {
    let store = Options::new().open(path)?;
    let (before, begun) = (Costs::now(&store)?, Instant::now());
    let appends = run(&store)?;
    let (seconds, after) = (begun.elapsed().as_secs_f64(), Costs::now(&store)?);
    let each = |of: fn(&Costs) -> u64| (of(&after) - of(&before)) as f64 / appends as f64;
    println!(
        "{load:<32} {:>9.0} {:>6.2} {:>6.2} {:>6.2} {:>6.2} {:>6.1} {:>6.0} {:>7.1} {:>7.0}",
        appends as f64 / seconds,
        each(|costs| costs.user_us + costs.system_us),
        each(|costs| costs.system_us),
        each(|costs| costs.waits),
        each(|costs| costs.forced),
        each(|costs| costs.allocations),
        each(|costs| costs.allocated),
        (after.records - before.records) as f64 / (after.blocks - before.blocks).max(1) as f64,
        each(|costs| costs.written),
    );
    store.close()?;
    std::fs::remove_file(path).expect("the store is a file");
    Ok(())
}

/// What the process has used up.
struct Costs {
    user_us: u64,
    system_us: u64,
    waits: u64,
    forced: u64,
    allocations: u64,
    allocated: u64,
    records: u64,
    blocks: u64,
    written: u64,
}

impl Costs {
    fn now(store: &Store) -> Result<Self, Error> {
        let wal = store.info()?.wal;
        let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
        // Behind the name, which may have spaces: ticks of 10 ms.
        let ticks: Vec<i64> = stat
            .rsplit(')')
            .next()
            .into_iter()
            .flat_map(str::split_whitespace)
            .filter_map(|n| n.parse().ok())
            .collect();
        let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
        let living = tasks.flatten().map(|task| switches(&task.path().join("status")));
        let (waits, forced) = living.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        Ok(Self {
            user_us: ticks[10] as u64 * 10_000,
            system_us: ticks[11] as u64 * 10_000,
            waits: waits + ENDED_WAITS.load(Ordering::Relaxed),
            forced: forced + ENDED_FORCED.load(Ordering::Relaxed),
            allocations: ALLOCATIONS.load(Ordering::Relaxed),
            allocated: ALLOCATED.load(Ordering::Relaxed),
            records: wal.records,
            blocks: wal.blocks,
            written: wal.written_bytes,
        })
    }
}

/// Context switches of threads that have ended.
static ENDED_WAITS: AtomicU64 = AtomicU64::new(0);
static ENDED_FORCED: AtomicU64 = AtomicU64::new(0);

/// Returns the context switches of a thread: those by which it waited, and the others.
fn switches(status: &Path) -> (u64, u64) {
    let status = std::fs::read_to_string(status).unwrap_or_default();
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or_default()
    };
    (number("voluntary_ctxt_switches:"), number("nonvoluntary_ctxt_switches:"))
}

/// Keys and payloads of a thread.
struct Keys(Rng);

impl Keys {
    fn key(&mut self) -> String {
        format!("document/{:016x}", self.0.below(LOGS).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn payload(&mut self) -> &'static [u8] {
        const TEXT: &str = r#"{"op":"insert","at":1742,"by":"5f2c9a7710be44d3","text":"and so on"},"#;
        static TEXTS: std::sync::LazyLock<Vec<u8>> =
            std::sync::LazyLock::new(|| TEXT.bytes().cycle().take(64 << 10).collect());
        let (at, len) = (self.0.below(60 << 10) as usize, 64 + self.0.below(449) as usize);
        &TEXTS[at..at + len]
    }

    fn append(&mut self, store: &Store) -> Result<u64, Error> {
        let payload = self.payload();
        store.append(self.key(), payload).map(drop)?;
        Ok(1)
    }

    fn commit(&mut self, store: &Store, ops: u64) -> Result<u64, Error> {
        let keys: Vec<String> = (0..ops).map(|_| self.key()).collect();
        let mut commit = Commit::new();
        commit.durability(Durability::Deferred(Duration::from_millis(100)));
        for key in &keys {
            commit.append(key, self.payload());
        }
        store.commit(&commit).map(drop)?;
        Ok(ops)
    }
}

/// Repeats a step of one thread for a time, then waits for all. Returns the number of appends.
fn alone(
    store: &Store,
    time: Duration,
    step: impl Fn(&mut Keys, &Store) -> Result<u64, Error>,
) -> Result<u64, Error> {
    let (mut keys, mut appends, end) = (Keys(Rng::new(1)), 0, Instant::now() + time);
    while Instant::now() < end {
        for _ in 0..64 {
            appends += step(&mut keys, store)?;
        }
    }
    store.flush()?;
    Ok(appends)
}

fn waiting(store: &Store, threads: u64, time: Duration) -> Result<u64, Error> {
    let end = Instant::now() + time;
    let append = |seed| {
        let (mut keys, mut appends) = (Keys(Rng::new(seed)), 0);
        while Instant::now() < end {
            let payload = keys.payload();
            store.append(keys.key(), payload)?.wait()?;
            appends += 1;
        }
        let (waits, forced) = switches(Path::new("/proc/thread-self/status"));
        ENDED_WAITS.fetch_add(waits, Ordering::Relaxed);
        ENDED_FORCED.fetch_add(forced, Ordering::Relaxed);
        Ok(appends)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|seed| scope.spawn(move || append(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panics")).sum()
    })
}

fn flying(store: &Store, most: u64, time: Duration) -> Result<u64, Error> {
    let flying = Arc::new((Mutex::new(0u64), Condvar::new()));
    let (mut keys, mut appends, end) = (Keys(Rng::new(1)), 0, Instant::now() + time);
    while Instant::now() < end {
        let (count, room) = &*flying;
        let held = count.lock().expect("no panics");
        *room.wait_while(held, |count| *count >= most).expect("no panics") += 1;
        appends += 1;
        let payload = keys.payload();
        let flying = flying.clone();
        store.append(keys.key(), payload)?.on_done(move |_| {
            let (count, room) = &*flying;
            let mut count = count.lock().expect("no panics");
            *count -= 1;
            // A wake-up for each end of an append would count as a cost of the store.
            if *count == most / 2 {
                room.notify_one();
            }
        });
    }
    store.flush()?;
    Ok(appends)
}
