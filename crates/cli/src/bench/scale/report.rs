//! What was found for each number of logs, and the marks it is judged by.

use std::fmt::{self, Display};
use std::time::Duration;

use brooklet::io::VolumeInfo;
use serde::{Deserialize, Serialize};

use super::steady::Steady;
use super::throttle::Full;
use crate::bench::system;
use crate::bench::table::{Mark, plain};
use crate::plot::number;

/// What was found for one number of logs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Logs that the store was filled with.
    pub logs: u64,
    /// Logs at the end.
    pub all_logs: u64,
    /// Runs in which they were, once it had come to rest.
    pub runs: usize,
    /// Durable 4 KiB writes of the device, in microseconds.
    pub device_p50: f64,
    pub device_p99: f64,
    pub device_p999: f64,
    /// Logs created a second, by commits of 1,000.
    pub filled: f64,
    /// Spread over all logs, the store just reopened: by 64 threads that wait, and with 1,024 in
    /// flight. Points of older runs have neither.
    #[serde(default)]
    pub rested_waiting: Option<Full>,
    #[serde(default)]
    pub rested_in_flight: Option<Full>,
    pub at_work: Steady,
    pub spread: Steady,
    /// Full throttle.
    pub full_at_work: Full,
    pub full_spread: Full,
    pub creates: Full,
    pub snapshots: Full,
    /// Bytes written to ring and heap for each payload byte, but for the snapshots.
    pub amplification: f64,
    /// So many times its memory budget had been appended by then.
    pub budgets: f64,
    /// The same, of the snapshots alone.
    pub snapshot_amplification: f64,
    /// Bytes on the disk for each payload byte that lives, after an idle minute, and after a
    /// compaction that was asked for.
    pub space_idle: f64,
    pub space_compacted: f64,
    /// Bytes of memory a log, just after look-ups all over the store: as the store tells, and as
    /// the system sees it beyond an empty store.
    pub memory_told: f64,
    pub memory_resident: Option<f64>,
    /// The same, once nobody has looked anything up for a while.
    pub memory_rested: f64,
    pub memory_rested_resident: Option<f64>,
    /// Seconds from opening to the first acknowledged append, after a kill with a ring 80% full.
    pub restart_s: f64,
    /// Seconds of processor time that this took.
    pub restart_cpu_s: Option<f64>,
    /// How long all of this took.
    pub seconds: f64,
}

type Figure = fn(&Point) -> Option<f64>;

/// What a mark's ratio is to.
#[derive(Clone, Copy)]
enum To {
    /// Nothing: the mark is on each figure itself.
    Nothing,
    /// Nothing, and the mark is on the figure of most logs alone: with few logs, what is shared
    /// counts too much.
    MostLogs,
    /// The figure of fewest logs, and only that of most logs is judged.
    Fewest,
    /// Another figure of the same store.
    Other(&'static str, Figure),
}

/// A row of the table.
struct Row {
    name: &'static str,
    unit: &'static str,
    figure: Figure,
    judge: Option<(To, Mark)>,
}

const fn row(name: &'static str, unit: &'static str, figure: Figure) -> Row {
    Row { name, unit, figure, judge: None }
}

impl Row {
    const fn mark(self, to: To, mark: Mark) -> Self {
        Self { judge: Some((to, mark)), ..self }
    }
}

const DEVICE_P50: To = To::Other("the device's durable 4 KiB write, p50", |p| Some(p.device_p50));
const DEVICE_P99: To = To::Other("the device's durable 4 KiB write, p99", |p| Some(p.device_p99));
const AT_WORK_QUIET: To = To::Other("that without", |p| p.at_work.p999_quiet);
const SPREAD_QUIET: To = To::Other("that without", |p| p.spread.p999_quiet);
const APPENDS: To = To::Other("appends to logs at work", |p| Some(p.full_at_work.per_second));

const ROWS: [Row; 57] = [
    row("the device's durable 4 KiB write: p50", "us", |p| Some(p.device_p50)),
    row("  p99", "us", |p| Some(p.device_p99)),
    row("  p99.9", "us", |p| Some(p.device_p999)),
    row("just reopened, spread over all: 64 that wait", "1/s", |p| Some(p.rested_waiting?.per_second))
        .mark(To::Fewest, Mark::AtLeast(0.85)),
    row("  1,024 in flight", "1/s", |p| Some(p.rested_in_flight?.per_second))
        .mark(To::Fewest, Mark::AtLeast(0.85)),
    row("  processor time an append: 64 that wait", "us", |p| p.rested_waiting?.cpu_us),
    row("  1,024 in flight", "us", |p| p.rested_in_flight?.cpu_us).mark(To::MostLogs, Mark::Within(6.0)),
    row("full throttle: logs at work", "1/s", |p| Some(p.full_at_work.per_second))
        .mark(To::Fewest, Mark::AtLeast(0.85)),
    row("  spread over all logs", "1/s", |p| Some(p.full_spread.per_second))
        .mark(To::Fewest, Mark::AtLeast(0.85)),
    row("  creating logs", "1/s", |p| Some(p.creates.per_second)).mark(APPENDS, Mark::AtLeast(0.95)),
    row("  snapshots of 1,000 logs", "1/s", |p| Some(p.snapshots.per_second)),
    row("  creating logs by commits of 1,000", "1/s", |p| Some(p.filled)),
    row("processor time an append: logs at work", "us", |p| p.full_at_work.cpu_us),
    row("  spread over all logs", "us", |p| p.full_spread.cpu_us),
    row("  creating logs", "us", |p| p.creates.cpu_us),
    row("  snapshots of 1,000 logs", "us", |p| p.snapshots.cpu_us),
    row("reads an append: logs at work", "", |p| p.full_at_work.reads),
    row("  spread over all logs", "", |p| p.full_spread.reads),
    row("  creating logs", "", |p| p.creates.reads),
    row("steady, logs at work: p50", "us", |p| Some(p.at_work.p50)).mark(DEVICE_P50, Mark::AtMost(2.5)),
    row("  p99", "us", |p| Some(p.at_work.p99)).mark(DEVICE_P99, Mark::AtMost(4.0)),
    row("  p99, flat", "us", |p| Some(p.at_work.p99)).mark(To::Fewest, Mark::AtMost(1.25)),
    row("  p99.9", "us", |p| Some(p.at_work.p999)),
    row("  max", "us", |p| Some(p.at_work.max)),
    row("  p99.9 without checkpoint or compaction", "us", |p| p.at_work.p999_quiet),
    row("  p99.9 at checkpoints and compactions", "us", |p| p.at_work.p999_busy)
        .mark(AT_WORK_QUIET, Mark::AtMost(2.0)),
    row("  share of the time with one", "", |p| p.at_work.busy),
    row("  checkpoints", "", |p| Some(p.at_work.checkpoints as f64)),
    row("  compactions", "", |p| Some(p.at_work.compactions as f64)),
    row("  sent", "", |p| Some(p.at_work.sent)),
    row("  sent late, p50", "us", |p| Some(p.at_work.sent_late_p50)),
    row("  reads an append", "", |p| p.at_work.reads),
    row("steady, spread over all: p50", "us", |p| Some(p.spread.p50)).mark(DEVICE_P50, Mark::AtMost(2.5)),
    row("  p99", "us", |p| Some(p.spread.p99)).mark(DEVICE_P99, Mark::AtMost(4.0)),
    row("  p99, flat", "us", |p| Some(p.spread.p99)).mark(To::Fewest, Mark::AtMost(1.25)),
    row("  p99.9", "us", |p| Some(p.spread.p999)),
    row("  max", "us", |p| Some(p.spread.max)),
    row("  p99.9 without checkpoint or compaction", "us", |p| p.spread.p999_quiet),
    row("  p99.9 at checkpoints and compactions", "us", |p| p.spread.p999_busy)
        .mark(SPREAD_QUIET, Mark::AtMost(2.0)),
    row("  share of the time with one", "", |p| p.spread.busy),
    row("  checkpoints", "", |p| Some(p.spread.checkpoints as f64)),
    row("  compactions", "", |p| Some(p.spread.compactions as f64)),
    row("  sent", "", |p| Some(p.spread.sent)),
    row("  sent late, p50", "us", |p| Some(p.spread.sent_late_p50)),
    row("  reads an append", "", |p| p.spread.reads),
    row("restart after a kill", "s", |p| Some(p.restart_s)).mark(To::Nothing, Mark::Within(1.0)),
    row("  processor time", "s", |p| p.restart_cpu_s),
    row("memory a log, told by the store", "B", |p| Some(p.memory_told))
        .mark(To::MostLogs, Mark::Within(2.5)),
    row("  resident", "B", |p| p.memory_resident).mark(To::MostLogs, Mark::Within(2.5)),
    row("  told, left alone", "B", |p| Some(p.memory_rested)),
    row("  resident, left alone", "B", |p| p.memory_rested_resident),
    row("written per byte, appended only", "", |p| Some(p.amplification))
        .mark(To::Nothing, Mark::Within(3.0)),
    row("  times the memory budget appended", "", |p| Some(p.budgets)),
    row("  snapshots of 1,000 logs", "", |p| Some(p.snapshot_amplification))
        .mark(To::Nothing, Mark::Within(0.8)),
    row("space per live byte, left alone", "", |p| Some(p.space_idle)).mark(To::Nothing, Mark::Within(1.3)),
    row("  compacted when asked to", "", |p| Some(p.space_compacted)).mark(To::Nothing, Mark::Within(1.3)),
    row("runs at rest", "", |p| Some(p.runs as f64)),
];

/// A row that was judged.
#[derive(Debug, Serialize)]
struct Judged {
    name: &'static str,
    unit: &'static str,
    /// For each number of logs.
    figures: Vec<Option<f64>>,
    /// Of the figures that are judged, where they are by a ratio.
    ratios: Vec<f64>,
    mark: Option<String>,
    holds: Option<bool>,
}

impl Judged {
    fn new(row: &Row, points: &[Point]) -> Self {
        let figures: Vec<Option<f64>> = points.iter().map(row.figure).collect();
        let (mut ratios, mut holds, mut told) = (Vec::new(), None, None);
        if let Some((to, mark)) = row.judge {
            let last = figures.last().copied().flatten();
            let judged: Vec<(f64, f64)> = match to {
                To::Nothing => figures.iter().flatten().map(|figure| (*figure, f64::NAN)).collect(),
                To::MostLogs => last.iter().map(|figure| (*figure, f64::NAN)).collect(),
                To::Fewest => {
                    last.into_iter().zip(figures[0]).map(|(last, first)| (last, last / first)).collect()
                }
                To::Other(_, other) => {
                    let pairs = figures.iter().zip(points.iter().map(other));
                    pairs.filter_map(|(figure, other)| Some(((*figure)?, (*figure)? / other?))).collect()
                }
            };
            holds =
                (!judged.is_empty()).then(|| judged.iter().all(|&(figure, ratio)| mark.holds(figure, ratio)));
            ratios = judged.into_iter().map(|(_, ratio)| ratio).filter(|ratio| !ratio.is_nan()).collect();
            told = Some(match to {
                To::Nothing => mark.to_string(),
                To::MostLogs => format!("{mark}, with most logs"),
                To::Fewest => format!("{mark}, most logs to fewest"),
                To::Other(other, _) => format!("{mark}, to {other}"),
            });
        }
        Self { name: row.name, unit: row.unit, figures, ratios, mark: told, holds }
    }
}

/// What the command prints.
#[derive(Debug, Serialize)]
pub struct Table {
    durable_by: &'static str,
    direct: bool,
    cores: usize,
    load: Option<f64>,
    /// Appends a second of the steady loads, and how long each took.
    pub rate: f64,
    seconds: f64,
    /// Bytes of the ring.
    pub ring: u64,
    rows: Vec<Judged>,
    /// All that was found.
    pub points: Vec<Point>,
}

impl Table {
    /// Judges what was found.
    pub fn new(device: &VolumeInfo, rate: f64, span: Duration, ring: u64, points: Vec<Point>) -> Self {
        Self {
            durable_by: device.durable_by,
            direct: device.direct,
            cores: system::cores(),
            load: system::load(),
            rate,
            seconds: span.as_secs_f64(),
            ring,
            rows: ROWS.iter().map(|row| Judged::new(row, &points)).collect(),
            points,
        }
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { durable_by, direct, cores, load, rate, seconds, ring, rows, points } = self;
        write!(f, "direct I/O: {direct}, durable by {durable_by}; {cores} cores")?;
        if let Some(load) = load {
            write!(f, ", of which {load:.1} processes wanted one")?;
        }
        writeln!(f, "; a ring of {} MiB; steady loads of {rate} appends/s for {seconds} s", ring >> 20)?;
        write!(f, "{:<44}", "logs")?;
        points.iter().try_for_each(|point| write!(f, "{:>12}", number(point.logs as f64)))?;
        for Judged { name, unit, figures, ratios, mark, holds } in rows {
            let unit = if unit.is_empty() { String::new() } else { format!(" [{unit}]") };
            write!(f, "\n{:<44}", format!("{name}{unit}"))?;
            for figure in figures {
                let told = |figure: f64| {
                    if figure >= 1e4 || figure.fract() == 0.0 { number(figure) } else { plain(figure) }
                };
                let figure = figure.map_or("-".to_owned(), told);
                write!(f, "{figure:>12}")?;
            }
            let Some(mark) = mark else { continue };
            let verdict = match holds {
                Some(true) => "met",
                Some(false) => "missed",
                None => "not told",
            };
            write!(f, "  {mark}: ")?;
            ratios.iter().try_for_each(|ratio| write!(f, "{ratio:.2} "))?;
            write!(f, "{verdict}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// What a store might be like that gets slower by `slower`.
    pub fn made_up(logs: u64, slower: f64) -> Point {
        let steady = Steady {
            p50: 200.0,
            p99: 500.0 * slower,
            p999: 900.0,
            max: 1000.0,
            p999_busy: Some(900.0),
            p999_quiet: Some(600.0),
            busy: Some(0.1),
            checkpoints: 2,
            compactions: 1,
            sent_late_p50: 30.0,
            sent: 1.0,
            reads: None,
        };
        let full = Full { per_second: 1e6, bytes: 1 << 30, cpu_us: Some(1.5), reads: None };
        Point {
            logs,
            all_logs: logs,
            runs: 3,
            device_p50: 100.0,
            device_p99: 200.0,
            device_p999: 400.0,
            filled: 1e6,
            rested_waiting: Some(Full { per_second: 5e4 / slower, ..full }),
            rested_in_flight: None,
            at_work: steady,
            spread: Steady { p999_busy: None, ..steady },
            full_at_work: Full { per_second: 1e6 / slower, ..full },
            full_spread: full,
            creates: full,
            snapshots: full,
            amplification: 1.5,
            budgets: 20.0,
            snapshot_amplification: 0.5,
            space_idle: 1.2,
            space_compacted: 1.0,
            memory_told: 1000.0 / logs as f64 + 2.0,
            memory_resident: None,
            memory_rested: 0.0,
            memory_rested_resident: None,
            restart_s: 0.5 * slower,
            restart_cpu_s: None,
            seconds: 100.0,
        }
    }

    fn judged(name: &str, points: &[Point]) -> Judged {
        Judged::new(ROWS.iter().find(|row| row.name == name).expect("a row"), points)
    }

    #[test]
    fn each_mark_judges_what_it_says() {
        let points = [made_up(1000, 1.0), made_up(1_000_000, 1.3)];
        let flat = judged("full throttle: logs at work", &points);
        assert_eq!((flat.holds, (flat.ratios[0] * 100.0).round(), flat.ratios.len()), (Some(false), 77.0, 1));
        assert_eq!(judged("full throttle: logs at work", &points[..1]).holds, Some(true));
        // 2.5 and 3.25 times the device's 200 µs.
        let p99 =
            Judged::new(ROWS.iter().find(|row| row.name == "  p99" && row.judge.is_some()).unwrap(), &points);
        assert_eq!((p99.holds, p99.ratios), (Some(true), vec![2.5, 3.25]));
        assert_eq!(judged("restart after a kill", &points).holds, Some(true));
        assert_eq!(
            judged("restart after a kill", &[made_up(1000, 2.1), made_up(1_000_000, 1.0)]).holds,
            Some(false)
        );
        // 3.0 bytes with few logs do not count, 2.001 with many do.
        assert_eq!(judged("memory a log, told by the store", &points).holds, Some(true));
        assert_eq!(judged("memory a log, told by the store", &points[..1]).holds, Some(false));
        assert_eq!(judged("  resident", &points).holds, None);
        // Of the two loads, one met a checkpoint.
        let busy: Vec<_> = ROWS.iter().filter(|row| row.name.contains("p99.9 at checkpoints")).collect();
        assert_eq!(
            busy.iter().map(|row| Judged::new(row, &points).holds).collect::<Vec<_>>(),
            [Some(true), None]
        );
    }

    #[test]
    fn people_see_every_row_and_verdict() {
        let info = brooklet::io::MemVolume::new(1);
        let info = brooklet::io::Volume::info(&info);
        let points = vec![made_up(1000, 1.0), made_up(1_000_000, 1.3)];
        let told = Table::new(&info, 16e3, Duration::from_secs(20), 1 << 28, points).to_string();
        assert_eq!(told.lines().count(), ROWS.len() + 2, "{told}");
        assert!(
            told.contains("1,000,000")
                && told.contains(": 2.50 3.25 met")
                && told.contains("ratio at least 0.85, most logs to fewest: 0.77 missed")
        );
        assert!(told.contains("at most 2.5, with most logs: not told"), "{told}");
    }
}
