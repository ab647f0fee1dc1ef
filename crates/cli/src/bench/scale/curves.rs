//! What of a table is drawn: everything that should be flat, against the number of logs.

use super::report::{Point, Table};
use crate::plot::{Line, Panel, Picture, number};

const BLUE: &str = "#0060c0";
const ORANGE: &str = "#d07000";
const GREEN: &str = "#208040";
const GREY: &str = "#606060";

/// The picture of a table.
#[expect(clippy::too_many_lines, reason = "one line a curve")]
pub fn picture(table: &Table) -> Picture {
    let line = |name: &str, color, dash, figure: fn(&Point) -> Option<f64>| Line {
        name: name.to_owned(),
        color,
        dash,
        points: table.points.iter().filter_map(|point| Some((point.logs as f64, figure(point)?))).collect(),
    };
    let panel = |title: &str, y_title, lines: Vec<Line>| Panel {
        title: title.to_owned(),
        x_title: "logs",
        x_base: 10.0,
        y_title,
        x_label: number,
        lines: lines.into_iter().filter(|line| !line.points.is_empty()).collect(),
    };
    Picture {
        title: "From few logs to many".to_owned(),
        subtitle: format!("steady loads of {} appends/s; logs at work: 10,000, the others rest", table.rate),
        columns: 2,
        panels: vec![
            panel(
                "Full throttle, 1,024 in flight",
                "appends/s",
                vec![
                    line("logs at work", BLUE, "", |p| Some(p.full_at_work.per_second)),
                    line("spread over all", ORANGE, "", |p| Some(p.full_spread.per_second)),
                    line("creating logs", GREEN, "", |p| Some(p.creates.per_second)),
                ],
            ),
            panel(
                "Time to be acknowledged at a steady load (whole line: p50, dashed: p99)",
                "latency, µs",
                vec![
                    line("logs at work", BLUE, "", |p| Some(p.at_work.p50)),
                    line("", BLUE, "5 4", |p| Some(p.at_work.p99)),
                    line("spread over all", ORANGE, "", |p| Some(p.spread.p50)),
                    line("", ORANGE, "5 4", |p| Some(p.spread.p99)),
                    line("the device, 4 KiB", GREY, "", |p| Some(p.device_p50)),
                    line("", GREY, "5 4", |p| Some(p.device_p99)),
                ],
            ),
            panel(
                "p99.9 at a steady load (whole line: while a checkpoint or compaction goes on, dashed: without)",
                "latency, µs",
                vec![
                    line("logs at work", BLUE, "", |p| p.at_work.p999_busy),
                    line("", BLUE, "5 4", |p| p.at_work.p999_quiet),
                    line("spread over all", ORANGE, "", |p| p.spread.p999_busy),
                    line("", ORANGE, "5 4", |p| p.spread.p999_quiet),
                    line("the device, 4 KiB", GREY, "5 4", |p| Some(p.device_p999)),
                ],
            ),
            panel(
                "Written to the device, and space left alone",
                "bytes for each payload byte",
                vec![
                    line("written, appended only", BLUE, "", |p| Some(p.amplification)),
                    line("written, snapshots that trim", GREEN, "", |p| Some(p.snapshot_amplification)),
                    line("space for a live byte", ORANGE, "", |p| Some(p.space_idle)),
                ],
            ),
            panel(
                &format!("Restart after a kill, a ring of {} MiB 80% full", table.ring >> 20),
                "seconds to the first acknowledged append",
                vec![line("restart", BLUE, "", |p| Some(p.restart_s))],
            ),
            panel(
                "Memory of a log that rests",
                "bytes a log",
                vec![
                    line("told by the store", BLUE, "", |p| Some(p.memory_told)),
                    line("resident", ORANGE, "", |p| p.memory_resident.filter(|bytes| *bytes > 0.0)),
                ],
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brooklet::io::{MemVolume, Volume};

    use super::super::report::tests::made_up;
    use super::*;

    #[test]
    fn all_panels_are_drawn() {
        let points = vec![made_up(1000, 1.0), made_up(1_000_000, 1.3)];
        let table = Table::new(&MemVolume::new(1).info(), 16e3, Duration::from_secs(20), 1 << 28, points);
        let svg = picture(&table).to_string();
        assert_eq!(svg.matches("font-weight=\"bold\"").count(), 7, "a title and six panels");
        // What the system did not tell has no line.
        assert!(svg.contains(">1,000,000<") && svg.contains(">bytes a log<") && !svg.contains(">resident<"));
    }
}
