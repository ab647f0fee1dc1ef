//! The table that is made of what the sections give.

use std::fmt::{self, Display};

use brooklet::io::Volume;
use serde::Serialize;

use super::rig::Rig;
use crate::bench::row::{Row, under_headings};
use crate::bench::system;
use crate::probe::measure::Cell;

/// What the command prints.
#[derive(Serialize)]
pub struct Table {
    backend: &'static str,
    direct: bool,
    fallbacks: Vec<String>,
    /// How the device writes most bytes in a second.
    best: Cell,
    rounds: usize,
    seconds: f64,
    cores: usize,
    load: Option<f64>,
    rows: Vec<Row>,
    /// What cannot be told here.
    caveats: Vec<String>,
}

impl Table {
    /// A table of all rows.
    pub fn new(rig: &Rig<'_>, rows: Vec<Row>) -> Self {
        let info = rig.volume().info();
        let (cores, load) = (system::cores(), system::load());
        Self {
            backend: info.backend,
            direct: info.direct,
            fallbacks: info.fallbacks,
            best: rig.best,
            rounds: rig.rounds,
            seconds: rig.span.as_secs_f64(),
            cores,
            load,
            caveats: caveats(info.direct, cores, load),
            rows,
        }
    }
}

fn caveats(direct: bool, cores: usize, load: Option<f64>) -> Vec<String> {
    let mut caveats = Vec::new();
    if !direct {
        caveats
            .push("the page cache is not bypassed here, so that reads say little of the device".to_owned());
    }
    if let Some(load) = load.filter(|load| *load > cores as f64 + 1.0) {
        caveats.push(format!(
            "{load:.1} processes wanted the {cores} cores: figures of latency and of many threads are theirs, too"
        ));
    }
    if cores < 4 {
        caveats.push(format!(
            "{cores} cores: appending, compressing and the system's part of writing take them from each other"
        ));
    }
    caveats.push(
        "the device of 1 ms is this one with a pause, so that it takes any number of writes at once".into(),
    );
    caveats.push("whether the device keeps what it says it has written is not told by a clock".into());
    caveats
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, direct, fallbacks, best, rounds, seconds, .. } = self;
        writeln!(f, "direct I/O: {direct}, queues by {backend}; medians of {rounds} rounds of {seconds} s")?;
        fallbacks.iter().try_for_each(|why| writeln!(f, "{why}"))?;
        writeln!(f, "the device's best: {}", describe(best))?;
        under_headings(f, &self.rows)?;
        self.caveats.iter().try_for_each(|caveat| write!(f, "\nnot told here: {caveat}"))
    }
}

/// A way, size and depth in words.
pub fn describe(cell: &Cell) -> String {
    use crate::probe::plan::Way;
    let Cell { way, size, depth, mb_per_s, .. } = cell;
    let way = match way {
        Way::Window => "writes with one flush behind them",
        Way::Read => "reads",
        _ => "writes, durable each by itself",
    };
    format!("{depth} times {} KiB at once, {way}: {mb_per_s:.0} MB/s", size >> 10)
}
