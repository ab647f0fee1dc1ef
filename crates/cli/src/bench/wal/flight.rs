//! Thousands of commits in flight on two threads, by callbacks and by awaiting tasks: what telling
//! everybody costs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use brooklet::io::{AlignedBuf, FileVolume, Persist, SECTOR, Volume, write_all_at};
use brooklet_wal::LogOptions;

use super::rig::{Rig, Trimmed};
use super::tasks::{self, Task};
use super::volumes::Slow;
use crate::bench::flying::{Credits, Stop, on_threads};
use crate::bench::load::{Payloads, deltas_of_200};
use crate::bench::plain::DEVICE_BYTES;
use crate::bench::row::{Rounds, Row};
use crate::bench::table::Mark;
use crate::device::Device;
use crate::failure::Failure;

/// Commits in flight of each of the two threads.
const EACH: usize = 2048;
/// How long a sync of the slow device takes.
const SYNC: Duration = Duration::from_millis(1);

/// Commits in flight, on this device and on a slow one.
pub fn flight(rig: &mut Rig<'_>) -> Result<Vec<Row>, Failure> {
    let deltas = deltas_of_200();
    let log = rig.log("flight", LogOptions::new())?;
    let counted = Counted::new(Device::new(&rig.path("counted"), DEVICE_BYTES)?.volume);
    let names = ["4,096 commits in flight by callbacks", "the same by awaiting tasks"];
    let mut fast = names.map(|name| Rounds::new("flight", name, "appends/s"));
    for _ in 0..rig.rounds {
        let limit = counted.run(&deltas, rig.span)?;
        fast[0].pair(callbacks(&log, &deltas, rig.span)?, limit);
        fast[1].pair(awaiting(&log, &deltas, rig.span)?, limit);
    }
    drop((log, counted));

    let volume = rig.new_volume("slow", 128 << 20)?;
    let slow = Arc::new(Slow::new(volume, SYNC));
    let log = Trimmed::new(slow.clone(), LogOptions::new())?;
    let single = Slow::new(rig.new_volume("single", 16 << 20)?, SYNC);
    let names = ["a device of 1 ms: 4,096 by callbacks", "the same by awaiting tasks"];
    let mut far = names.map(|name| Rounds::new("flight", name, "appends/s"));
    for _ in 0..rig.rounds {
        let limit = syncs(&single, rig.span)?;
        far[0].pair(callbacks(&log, &deltas, rig.span)?, limit);
        far[1].pair(awaiting(&log, &deltas, rig.span)?, limit);
    }
    drop((log, slow, single));
    ["flight", "counted", "slow", "single"].iter().try_for_each(|name| rig.remove(name))?;
    let near = fast.map(|row| row.row("a group commit that wakes nobody", Mark::AtLeast(0.6)));
    let far =
        far.map(|row| row.row("a sync per write on the device of 1 ms, one thread", Mark::AtLeast(600.0)));
    Ok(near.into_iter().chain(far).collect())
}

/// Durable 4 KiB writes a second, one after another.
fn syncs(volume: &dyn Volume, span: Duration) -> Result<f64, Failure> {
    let sector = AlignedBuf::zeroed(SECTOR);
    let begin = Instant::now();
    let mut n = 0;
    while begin.elapsed() < span || n == 0 {
        write_all_at(volume, n % 1024 * SECTOR as u64, &sector, Persist::Durable)?;
        n += 1;
    }
    Ok(n as f64 / begin.elapsed().as_secs_f64())
}

/// Runs `work` on two threads; appends a second.
fn on_two_threads(
    span: Duration,
    work: impl Fn(usize, &AtomicBool) -> Result<u64, Failure> + Sync,
) -> Result<f64, Failure> {
    let (appends, took) = on_threads(2, span, work)?;
    Ok(appends.iter().sum::<u64>() as f64 / took.as_secs_f64())
}

fn callbacks(log: &Trimmed, deltas: &Payloads, span: Duration) -> Result<f64, Failure> {
    on_two_threads(span, |thread, stop| {
        let credits = Credits::new(EACH);
        let mut deltas = deltas.iter().cycle().skip(thread * 7919);
        let mut n = 0;
        while n == 0 || !stop.load(Ordering::Relaxed) {
            let free = credits.take();
            for delta in deltas.by_ref().take(free) {
                let credits = credits.clone();
                // A log that stopped is told of by the next append or by the flush.
                log.append(delta)?.1.on_done(move |_| credits.give());
            }
            n += free as u64;
        }
        log.log.flush()?;
        Ok(n)
    })
}

fn awaiting(log: &Trimmed, deltas: &Payloads, span: Duration) -> Result<f64, Failure> {
    on_two_threads(span, |thread, stop| {
        let task = |i: usize| -> Task<'_> {
            let mut deltas = deltas.iter().cycle().skip((thread * EACH + i) * 13);
            Box::pin(async move {
                let mut n = 0;
                while n == 0 || !stop.load(Ordering::Relaxed) {
                    log.append(deltas.next().expect("endless"))?.1.await?;
                    n += 1;
                }
                Ok(n)
            })
        };
        tasks::run((0..EACH).map(task).collect())
    })
}

/// Group commit that wakes nobody: a thread writes what has gathered and counts; the others look at
/// the count.
struct Counted {
    volume: FileVolume,
    gathered: Mutex<Gathered>,
    durable: AtomicU64,
}

struct Gathered {
    buf: AlignedBuf,
    appended: u64,
}

impl Counted {
    fn new(volume: FileVolume) -> Self {
        let gathered = Mutex::new(Gathered { buf: AlignedBuf::new(1 << 20), appended: 0 });
        Self { volume, gathered, durable: AtomicU64::new(0) }
    }

    /// Takes a record; which one it is.
    fn append(&self, payload: &[u8]) -> u64 {
        let mut gathered = self.gathered.lock().expect("no panics");
        gathered.buf.extend(&(payload.len() as u32).to_le_bytes());
        gathered.buf.extend(payload);
        gathered.appended += 1;
        gathered.appended
    }

    /// Writes what gathers until there is no more to come.
    fn write(&self, stop: &AtomicBool) -> Result<(), Failure> {
        let mut offset = 0;
        loop {
            // In this order: what was appended before the end is seen.
            let last = stop.load(Ordering::Acquire);
            let mut gathered = self.gathered.lock().expect("no panics");
            if gathered.buf.is_empty() {
                drop(gathered);
                if last {
                    return Ok(());
                }
                thread::yield_now();
                continue;
            }
            let mut buf = std::mem::replace(&mut gathered.buf, AlignedBuf::new(1 << 20));
            let appended = gathered.appended;
            drop(gathered);
            buf.pad();
            write_all_at(&self.volume, offset, &buf, Persist::Durable)?;
            offset = (offset + buf.len() as u64) % (DEVICE_BYTES / 2);
            self.durable.store(appended, Ordering::Release);
        }
    }

    fn run(&self, deltas: &Payloads, span: Duration) -> Result<f64, Failure> {
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let writing = scope.spawn(|| self.write(&ended));
            let appended = on_two_threads(span, |thread, stop| {
                let mut deltas = deltas.iter().cycle().skip(thread * 7919);
                let (mut n, mut mine) = (0, 0);
                let durable = || self.durable.load(Ordering::Acquire);
                while n == 0 || !stop.load(Ordering::Relaxed) {
                    if mine >= durable() + 2 * EACH as u64 {
                        thread::yield_now();
                        continue;
                    }
                    mine = self.append(deltas.next().expect("endless"));
                    n += 1;
                }
                while durable() < mine && !writing.is_finished() {
                    thread::yield_now();
                }
                Ok(n)
            });
            drop(Stop(&ended));
            writing.join().expect("the writer panicked")?;
            appended
        })
    }
}
