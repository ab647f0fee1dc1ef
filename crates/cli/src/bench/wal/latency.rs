//! How soon: a lone writer that waits, and writes at a pace.

use std::time::{Duration, Instant};

use brooklet_wal::{Config, Log, LogOptions};

use super::rig::Rig;
use super::volumes::Watched;
use crate::bench::load::deltas_of_200;
use crate::bench::row::{Rounds, Row};
use crate::bench::table::Mark;
use crate::failure::Failure;
use crate::latency::{latencies, micros, record};

/// Turns that the log and the device take in a round: what else the machine has to do hits both.
const TURNS: u32 = 10;

/// One writer that waits for each ack.
pub fn lone(rig: &mut Rig<'_>) -> Result<Vec<Row>, Failure> {
    let log = rig.log("lone", LogOptions::new())?;
    let deltas = deltas_of_200();
    let mut next = deltas.iter().cycle();
    let mut halves = Rounds::new("lone", "one writer of 200-byte JSON that waits, p50", "us");
    let mut most = Rounds::new("lone", "the same, p99", "us");
    for _ in 0..rig.rounds {
        let (mut acks, mut writes) = (latencies(), latencies());
        for _ in 0..TURNS {
            writes += rig.writes(rig.span / TURNS)?;
            let begin = Instant::now();
            while acks.is_empty() || begin.elapsed() < rig.span / TURNS {
                let delta = next.next().expect("endless");
                let start = Instant::now();
                log.append(delta)?.1.wait()?;
                record(&mut acks, start.elapsed());
            }
        }
        halves.pair(micros(&acks, 0.5), micros(&writes, 0.5));
        most.pair(micros(&acks, 0.99), micros(&writes, 0.99));
    }
    drop(log);
    rig.remove("lone")?;
    let against = "the device's durable write of 4 KiB";
    Ok(vec![halves.row(against, Mark::AtMost(1.10)), most.row(against, Mark::AtMost(1.5))])
}

/// The pace of a volume that is paid for by the operation.
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 3000);

/// Writes of a round at least: there are two intervals between them.
const STARTS: usize = 3;

/// Writes at a pace, with always something to write.
pub fn pace(rig: &mut Rig<'_>) -> Result<Vec<Row>, Failure> {
    let volume = Watched::new(rig.new_volume("pace", 64 << 20)?);
    let config = Config { interval: INTERVAL, reserve_percent: 0, ..Config::default() };
    let log = Log::create(volume.clone(), LogOptions::new().config(config).overwrite(true))?;
    let deltas = deltas_of_200();
    let mut rate = Rounds::new("pace", "one write each 1/3000 s: writes", "1/s");
    let mut half = Rounds::new("pace", "writes start after they were due, p50", "us");
    let mut most = Rounds::new("pace", "the same, p99", "us");
    for _ in 0..rig.rounds {
        volume.take();
        keep_busy(&log, rig.span, &deltas, || volume.starts() >= STARTS)?;
        let starts = volume.take();
        let [first, .., last] = &starts[..] else { unreachable!("a round has {STARTS} writes at least") };
        let mut late = latencies();
        for pair in starts.windows(2) {
            record(&mut late, (pair[1] - pair[0]).saturating_sub(INTERVAL));
        }
        rate.pair((starts.len() - 1) as f64 / (*last - *first).as_secs_f64(), 1.0 / INTERVAL.as_secs_f64());
        half.alone(micros(&late, 0.5));
        most.alone(micros(&late, 0.99));
        // Each round has the whole ring.
        log.trim(log.stats().durable)?;
    }
    drop(log);
    rig.remove("pace")?;
    let due = "what was asked for; a write is due an interval after the one before it started";
    Ok(vec![rate.row(due, None), half.row(due, None), most.row(due, Mark::Within(50.0))])
}

/// Appends something every now and then, more often than the pace, and has somebody wait for it:
/// what nobody waits for rests for the linger. Goes on for `span`, and until there is `enough`,
/// however slow the machine is.
fn keep_busy(
    log: &Log,
    span: Duration,
    deltas: &[Box<[u8]>],
    enough: impl Fn() -> bool,
) -> Result<(), Failure> {
    let begin = Instant::now();
    for delta in deltas.iter().cycle() {
        log.append(delta)?.1.on_done(drop);
        std::thread::sleep(INTERVAL / 6);
        if begin.elapsed() >= span && enough() {
            break;
        }
    }
    Ok(())
}
