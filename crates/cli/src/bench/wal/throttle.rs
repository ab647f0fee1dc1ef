//! Bandwidth: one thread that appends records that do not compress and waits for nothing, as fast
//! as it goes and at 96% of what the device takes.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use brooklet_wal::{LogOptions, WalStats};

use super::rig::{Rig, Trimmed, flood};
use crate::bench::load::noise;
use crate::bench::row::{Rounds, Row};
use crate::bench::system;
use crate::bench::table::Mark;
use crate::failure::Failure;
use crate::latency::{latencies, micros, record};

const SIZES: [(usize, &str); 6] = [
    (1 << 10, "1 KiB"),
    (4 << 10, "4 KiB"),
    (64 << 10, "64 KiB"),
    (128 << 10, "128 KiB"),
    (256 << 10, "256 KiB"),
    (1 << 20, "1 MiB"),
];

/// Turns that the log and the device take in a round.
const TURNS: u32 = 2;

/// Shares of a core, as notes.
pub const APPENDING: &str = "core of the appending thread";
pub const COMMITTER: &str = "core of the committer";
/// A thread that uses so much of a core has no more to give, as far as a shared machine lets it.
const SATURATED: f64 = 0.9;

/// Records of one size, cut from noise at ever other places.
pub struct Records {
    noise: Vec<u8>,
    size: usize,
    at: usize,
}

impl Records {
    pub fn new(size: usize) -> Self {
        Self { noise: noise(8 << 20), size, at: 0 }
    }

    pub fn next(&mut self) -> &[u8] {
        self.at = (self.at + self.size + 8) % (self.noise.len() - self.size);
        &self.noise[self.at..self.at + self.size]
    }
}

/// Full throttle.
pub fn full(rig: &mut Rig<'_>) -> Result<Vec<Row>, Failure> {
    SIZES.into_iter().map(|(size, name)| full_with(rig, size, name)).collect()
}

fn full_with(rig: &mut Rig<'_>, size: usize, name: &str) -> Result<Row, Failure> {
    let mut row = Rounds::new("throttle", format!("full throttle, records of {name}"), "MB/s");
    let log = rig.log("throttle", LogOptions::new())?;
    let mut records = Records::new(size);
    let mut push = |log: &Trimmed| log.append(records.next()).map(|_| size);
    // The log finds its settings before it counts.
    flood(&log, |elapsed| elapsed < 4 * rig.span, Duration::ZERO, || push(&log))?;
    for _ in 0..rig.rounds {
        // In turns, so that both meet the same weather.
        let (mut figure, mut limit) = (0.0, 0.0);
        for _ in 0..TURNS {
            limit += rig.bandwidth(rig.span / TURNS)? / f64::from(TURNS);
            let flooded = flood(&log, |elapsed| elapsed < rig.span / 8, rig.span / TURNS, || push(&log))?;
            figure += flooded.mb_per_s() / f64::from(TURNS);
            let WalStats { block_size, depth, .. } = log.log.stats().ring;
            log.log.flush()?;
            row.note("block KiB", block_size as f64 / 1024.0);
            row.note("depth", depth as f64);
            row.note("device with that MB/s", rig.bandwidth_with(block_size, depth, rig.span / 4)?);
            if let Some((appending, others)) = flooded.cores {
                row.note(APPENDING, appending);
                row.note(COMMITTER, others);
            }
        }
        row.pair(figure, limit);
    }
    drop(log);
    rig.remove("throttle")?;
    let mark = match size {
        0x10000.. => Some(Mark::AtLeast(0.95)),
        0x400 => Some(Mark::AtLeast(0.60)),
        _ => None,
    };
    let row = row.row("the device's best durable bandwidth", mark);
    Ok(if row.is_missed() { told_limit(row) } else { row })
}

/// Says what stood in the way.
fn told_limit(row: Row) -> Row {
    let share = |name| row.noted(name).unwrap_or(0.0);
    let (appending, committer) = (share(APPENDING), share(COMMITTER));
    let limit = if appending >= SATURATED {
        "the core of the appending thread is the limit"
    } else if committer >= SATURATED {
        "the core of the committer is the limit"
    } else if appending + committer >= SATURATED * system::cores() as f64 {
        "the cores of the machine are the limit"
    } else {
        "no core is the limit"
    };
    row.remark(limit)
}

/// Of what the device takes at best, so much is offered.
const OFFERED: f64 = 0.96;
/// One in so many bytes is timed: the time of more says no more.
const TIMED: usize = 64 << 10;

/// At 96% of the device's best.
pub fn offered(rig: &mut Rig<'_>) -> Result<Vec<Row>, Failure> {
    SIZES.into_iter().map(|(size, name)| offered_with(rig, size, name)).collect()
}

fn offered_with(rig: &mut Rig<'_>, size: usize, name: &str) -> Result<Row, Failure> {
    let mut row = Rounds::new("offered", format!("records of {name}"), "MB/s");
    let log = rig.log("offered", LogOptions::new())?;
    let mut records = Records::new(size);
    flood(
        &log,
        |elapsed| elapsed < 2 * rig.span,
        Duration::ZERO,
        || log.append(records.next()).map(|_| size),
    )?;
    for _ in 0..rig.rounds {
        let rate = rig.bandwidth(rig.span / 2)? * OFFERED;
        let (acked, acks) = channel();
        let begin = Instant::now();
        let mut bytes = 0;
        while begin.elapsed() < rig.span || bytes == 0 {
            let due = Duration::from_secs_f64(bytes as f64 / (rate * 1e6));
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
            for i in 0..(TIMED / size).max(1) {
                let start = Instant::now();
                let (_, ack) = log.append(records.next())?;
                bytes += size;
                if i == 0 {
                    let acked = acked.clone();
                    ack.on_done(move |done| {
                        if done.is_ok() {
                            _ = acked.send(start.elapsed());
                        }
                    });
                }
            }
        }
        log.log.flush()?;
        row.pair(bytes as f64 / 1e6 / begin.elapsed().as_secs_f64(), rate);
        // The last callbacks may still be at it.
        drop(acked);
        let mut latencies = latencies();
        acks.iter().for_each(|took| record(&mut latencies, took));
        row.note("ack avg us", latencies.mean() / 1e3);
        row.note("ack p99 us", micros(&latencies, 0.99));
    }
    drop(log);
    rig.remove("offered")?;
    Ok(row.row("96% of the device's best durable bandwidth, which is what was offered", None))
}
