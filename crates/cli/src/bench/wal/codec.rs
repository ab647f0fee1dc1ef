//! Compression: what it costs and gains at full throttle, and how far it shrinks what is written.

use std::time::Duration;

use brooklet_wal::{Codec, Config, LogOptions, WalStats};

use super::rig::{Flooded, Rig, Trimmed, flood};
use super::throttle::{APPENDING, COMMITTER};
use crate::bench::load::{Payloads, deltas, keystrokes, traces};
use crate::bench::row::{Rounds, Row};
use crate::bench::table::Mark;
use crate::failure::Failure;

/// Bytes a second of the metered volume.
const RATE: u64 = 20_000_000;

fn options(codec: Codec, rate: u64) -> LogOptions {
    LogOptions::new().config(Config { codec, rate, reserve_percent: 0, ..Config::default() })
}

fn flood_with(
    log: &Trimmed,
    payloads: &Payloads,
    more: impl FnMut(Duration) -> bool,
    span: Duration,
) -> Result<Flooded, Failure> {
    let mut payloads = payloads.iter().cycle();
    flood(log, more, span, || {
        let payload = payloads.next().expect("endless");
        log.append(payload).map(|_| payload.len())
    })
}

/// Defaults against no compression.
pub fn codec(rig: &mut Rig<'_>) -> Result<Vec<Row>, Failure> {
    let payloads = deltas();
    let places = [
        ("JSON of 64-512 B at full throttle", 0, 0.97),
        ("the same on a volume metered to 20 MB/s", RATE, 1.0),
    ];
    let one = |(name, rate, least)| compared(rig, &payloads, name, rate, Mark::AtLeast(least));
    places.into_iter().map(one).collect()
}

fn compared(
    rig: &Rig<'_>,
    payloads: &Payloads,
    name: &'static str,
    rate: u64,
    mark: Mark,
) -> Result<Row, Failure> {
    let mut row = Rounds::new("codec", name, "MB/s");
    let logs = [rig.log("defaults", options(Codec::Zstd, rate))?, rig.log("raw", options(Codec::Raw, rate))?];
    // The logs find their settings before it counts.
    for log in &logs {
        flood_with(log, payloads, |elapsed| elapsed < 8 * rig.span, Duration::ZERO)?;
    }
    for _ in 0..rig.rounds {
        let [ours, raw] = [&logs[0], &logs[1]].map(|log| {
            let flooded = flood_with(log, payloads, |elapsed| elapsed < rig.span / 2, rig.span);
            let stats = log.log.stats().ring;
            log.log.flush()?;
            flooded.map(|flooded| (flooded, stats))
        });
        let ((ours, stats), (raw, raw_stats)) = (ours?, raw?);
        row.pair(ours.mb_per_s(), raw.mb_per_s());
        note(&mut row, &stats, &ours);
        row.note("Codec::Raw: block KiB", raw_stats.block_size as f64 / 1024.0);
        row.note("Codec::Raw: depth", raw_stats.depth as f64);
    }
    drop(logs);
    ["defaults", "raw"].iter().try_for_each(|name| rig.remove(name))?;
    Ok(row.row("without compression, by Codec::Raw", mark))
}

fn note(row: &mut Rounds, stats: &WalStats, flooded: &Flooded) {
    row.note("codec (0 raw, 1 LZ4, 2 zstd)", f64::from(stats.codec as u8));
    row.note("block KiB", stats.block_size as f64 / 1024.0);
    row.note("depth", stats.depth as f64);
    row.note("written per byte", flooded.written_per_byte());
    if let Some((appending, others)) = flooded.cores {
        row.note(APPENDING, appending);
        row.note(COMMITTER, others);
    }
}

/// Bytes on the device for each byte of payload.
pub fn shrink(rig: &mut Rig<'_>) -> Result<Vec<Row>, Failure> {
    let mut loads = vec![("JSON deltas of 64-512 B", deltas()), ("keystrokes, made up", keystrokes())];
    if let Some(dir) = rig.traces {
        loads.push(("keystrokes, as people typed them", traces(dir)?));
    }
    let mut rows = Vec::new();
    for (rate, place) in [(RATE, "metered to 20 MB/s"), (0, "full throttle")] {
        for (name, payloads) in &loads {
            rows.push(shrunk(rig, payloads, format!("{name}, {place}"), rate)?);
        }
    }
    Ok(rows)
}

fn shrunk(rig: &Rig<'_>, payloads: &Payloads, name: String, rate: u64) -> Result<Row, Failure> {
    let mut row = Rounds::new("shrink", name, "bytes/byte");
    let log = rig.log("shrink", options(Codec::Zstd, rate))?;
    // Rounds follow one another without a pause: a log that was idle would start with LZ4 again.
    let codec = || log.log.stats().ring.codec;
    let mut finding = |elapsed: Duration| {
        elapsed < 2 * rig.span || rate > 0 && elapsed < 12 * rig.span && codec() != Codec::Zstd
    };
    for _ in 0..rig.rounds {
        let flooded = flood_with(&log, payloads, &mut finding, 2 * rig.span)?;
        row.alone(flooded.written_per_byte());
        note(&mut row, &log.log.stats().ring, &flooded);
    }
    drop(log);
    rig.remove("shrink")?;
    Ok(row.row("none; bytes that the volume took for each byte of payload", Mark::Within(0.6)))
}
