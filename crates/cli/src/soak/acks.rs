//! The reports of the killed process to the checking process, a line each.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use brooklet::MaintenanceStats;
use serde::Serialize;

/// Work that the store did by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    pub checkpoints: u64,
    pub compactions: u64,
    pub dead_runs: u64,
    pub heap_written: u64,
}

impl From<MaintenanceStats> for Work {
    fn from(stats: MaintenanceStats) -> Self {
        let MaintenanceStats { checkpoints, compactions, dead_runs, heap_written_bytes, .. } = stats;
        Self { checkpoints, compactions, dead_runs, heap_written: heap_written_bytes }
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The store is open, after this time.
    Opened(Duration),
    /// The first operation was acknowledged, this time after the begin of the opening.
    First(Duration),
    /// Number of a writer's operations that are acknowledged, and bytes of their payloads.
    Done { writer: u32, operations: u64, bytes: u64 },
    /// Work of the store since the opening, and bytes written to the ring.
    Figures(Work, u64),
    /// Something is wrong.
    Wrong(String),
    /// The store was closed.
    Closed,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Opened(took) => write!(f, "opened {}", took.as_micros()),
            Line::First(took) => write!(f, "first {}", took.as_micros()),
            Line::Done { writer, operations, bytes } => write!(f, "done {writer} {operations} {bytes}"),
            Line::Figures(work, ring) => {
                let Work { checkpoints, compactions, dead_runs, heap_written } = work;
                write!(f, "figures {checkpoints} {compactions} {dead_runs} {heap_written} {ring}")
            }
            Line::Wrong(what) => write!(f, "wrong {}", what.replace('\n', " ")),
            Line::Closed => write!(f, "closed"),
        }
    }
}

impl FromStr for Line {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "wrong" {
            return Ok(Line::Wrong(rest.to_owned()));
        }
        let numbers = rest.split_whitespace().map(|number| number.parse::<u64>().map_err(drop));
        let numbers = numbers.collect::<Result<Vec<u64>, ()>>()?;
        match (word, &numbers[..]) {
            ("opened", &[took]) => Ok(Line::Opened(Duration::from_micros(took))),
            ("first", &[took]) => Ok(Line::First(Duration::from_micros(took))),
            ("done", &[writer, operations, bytes]) => {
                Ok(Line::Done { writer: u32::try_from(writer).map_err(drop)?, operations, bytes })
            }
            ("figures", &[checkpoints, compactions, dead_runs, heap_written, ring]) => {
                Ok(Line::Figures(Work { checkpoints, compactions, dead_runs, heap_written }, ring))
            }
            ("closed", []) => Ok(Line::Closed),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let work = Work { checkpoints: 1, compactions: 2, dead_runs: 3, heap_written: 4 };
        for line in [
            Line::Opened(Duration::from_micros(7)),
            Line::First(Duration::from_micros(8)),
            Line::Done { writer: 1, operations: 2, bytes: 3 },
            Line::Figures(work, 5),
            Line::Wrong("all of it".to_owned()),
            Line::Closed,
        ] {
            assert_eq!(line.to_string().parse(), Ok(line));
        }
        for wrong in ["", "done 1 2", "done 1 2 x", "opened", "closed 1"] {
            assert_eq!(wrong.parse::<Line>(), Err(()), "{wrong}");
        }
    }
}
