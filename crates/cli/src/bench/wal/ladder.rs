//! The ladder: a sync per write, merged, compressed, pipelined, for few and many threads that wait
//! for each ack.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brooklet::io::{AlignedBuf, Counts, Persist, SECTOR, Volume, write_all_at};
use brooklet_wal::{Codec, Config, LogOptions};

use super::rig::{Rig, Trimmed};
use crate::bench::load::{Payloads, deltas_of_200};
use crate::bench::plain::{DEVICE_BYTES, PlainGroupCommit};
use crate::bench::row::{Rounds, Row};
use crate::bench::system::{switches_of_living, switches_of_thread};
use crate::bench::table::Mark;
use crate::device::Device;
use crate::failure::Failure;

const THREADS: [usize; 5] = [1, 8, 64, 256, 1024];
/// From so many threads on the mark counts.
const MARKED: usize = 64;
const AGAINST: &str = "the plainest group commit, with the same wake-ups";

/// Everything that is compared.
struct Rungs {
    single: Device,
    offset: AtomicU64,
    plain: PlainGroupCommit,
    merged: Trimmed,
    compressed: Trimmed,
    pipelined: Trimmed,
}

/// Waiting threads.
pub fn ladder(rig: &mut Rig<'_>) -> Result<Vec<Row>, Failure> {
    let config = Config { reserve_percent: 0, ..Config::default() };
    let one = |codec| LogOptions::new().config(Config { depth: 1, codec, ..config });
    let rungs = Rungs {
        single: Device::new(&rig.path("single"), DEVICE_BYTES)?,
        offset: AtomicU64::new(0),
        plain: PlainGroupCommit::new(&rig.path("plain"))?,
        merged: rig.log("merged", one(Codec::Raw))?,
        compressed: rig.log("compressed", one(Codec::Lz4))?,
        pipelined: rig.log("pipelined", LogOptions::new())?,
    };
    let deltas = deltas_of_200();
    let mut rows = Vec::new();
    for threads in THREADS {
        rows.extend(rungs.climb(rig, threads, &deltas)?);
    }
    drop(rungs);
    ["single", "plain", "merged", "compressed", "pipelined"].iter().try_for_each(|name| rig.remove(name))?;
    Ok(rows)
}

impl Rungs {
    fn climb(&self, rig: &Rig<'_>, threads: usize, deltas: &Payloads) -> Result<Vec<Row>, Failure> {
        let names = ["a sync per write", "merged", "merged, LZ4", "defaults: compressed, pipelined"];
        let mut rows =
            names.map(|name| Rounds::new("ladder", format!("{threads:>4} threads: {name}"), "appends/s"));
        let sector = AlignedBuf::zeroed(SECTOR);
        let single = || {
            let offset = self.offset.fetch_add(SECTOR as u64, Ordering::Relaxed) % DEVICE_BYTES;
            Ok(write_all_at(&self.single.volume, offset, &sector, Persist::Durable)?)
        };
        let by = |log: &Trimmed, delta: &[u8]| Ok(log.append(delta)?.1.wait()?);
        for _ in 0..rig.rounds {
            let storm = |append: &(dyn Fn(&[u8]) -> Result<(), Failure> + Sync), volume: &dyn Volume| {
                storm(threads, rig.span, deltas, append, volume)
            };
            let wakes = self.wakes();
            let storms = [
                storm(&|_| single(), &self.single.volume)?,
                storm(&|delta| by(&self.merged, delta), &*self.merged.volume)?,
                storm(&|delta| by(&self.compressed, delta), &*self.compressed.volume)?,
                // These two are compared, so they stand side by side.
                storm(&|delta| by(&self.pipelined, delta), &*self.pipelined.volume)?,
            ];
            let wakes = self.wakes() - wakes;
            let plain = storm(&|delta| self.plain.append(delta), self.plain.volume())?;
            for (row, storm) in rows.iter_mut().zip(&storms) {
                row.pair(storm.per_second, plain.per_second);
            }
            let last = &mut rows[3];
            storms[3].note(last, ["switches per append", "flushes per ack"]);
            plain.note(last, ["plain: switches per append", "plain: flushes per ack"]);
            last.note("wake-ups per append", wakes / storms[3].appends);
        }
        let [single, merged, compressed, pipelined] = rows;
        let mark = (threads >= MARKED).then_some(Mark::AtLeast(0.9));
        Ok(vec![
            single.row(AGAINST, None),
            merged.row(AGAINST, None),
            compressed.row(AGAINST, None),
            pipelined.row(AGAINST, mark),
        ])
    }

    /// Wake-ups by the log with the defaults, so far.
    fn wakes(&self) -> f64 {
        self.pipelined.log.stats().ring.wakes as f64
    }
}

/// What some threads brought about.
struct Storm {
    appends: f64,
    per_second: f64,
    switches: Option<f64>,
    flushes: f64,
}

impl Storm {
    fn note(&self, row: &mut Rounds, [switches, flushes]: [&'static str; 2]) {
        row.note(switches, self.switches);
        row.note(flushes, self.flushes);
    }
}

/// What a thread did: its appends, when it began and ended, and its context switches.
type Worked = (u64, [Instant; 2], Option<u64>);

/// Appends on many threads for a while, each waiting for each of its own.
fn storm(
    threads: usize,
    span: Duration,
    deltas: &Payloads,
    append: &(dyn Fn(&[u8]) -> Result<(), Failure> + Sync),
    volume: &dyn Volume,
) -> Result<Storm, Failure> {
    let barrier = Barrier::new(threads);
    let (living, before) = (switches_of_living(), volume.counts());
    let work = |thread: usize| -> Result<Worked, Failure> {
        let mut deltas = deltas.iter().cycle().skip(thread * 61 % deltas.len());
        barrier.wait();
        let start = Instant::now();
        let mut n = 0;
        while start.elapsed() < span || n == 0 {
            append(deltas.next().expect("endless"))?;
            n += 1;
        }
        let end = Instant::now();
        Ok((n, [start, end], switches_of_thread()))
    };
    let worked = std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let worked = running.into_iter().map(|thread| thread.join().expect("a writer panicked"));
        worked.collect::<Result<Vec<Worked>, Failure>>()
    })?;
    let appends: u64 = worked.iter().map(|(n, ..)| n).sum();
    // By the threads' own clocks: whoever starts them may get his turn when they are done.
    let begin = worked.iter().map(|(_, [begin, _], _)| *begin).min().expect("there are threads");
    let end = worked.iter().map(|(_, [_, end], _)| *end).max().expect("there are threads");
    let theirs: Option<u64> = worked.iter().map(|(.., switches)| *switches).sum();
    let others = switches_of_living().zip(living).map(|(after, before)| after.saturating_sub(before));
    let Counts { durable_writes, flushes, .. } = volume.counts() - before;
    Ok(Storm {
        appends: appends as f64,
        per_second: appends as f64 / (end - begin).as_secs_f64(),
        switches: theirs.zip(others).map(|(theirs, others)| (theirs + others) as f64 / appends as f64),
        flushes: (durable_writes + flushes) as f64 / appends as f64,
    })
}
