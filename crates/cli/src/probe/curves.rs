//! What of a report is drawn: latencies of one at a time, and bandwidths at several depths.

use super::measure::Cell;
use super::plan::{BATCH, Way};
use super::report::{Report, size_name};
use crate::plot::{Line, Panel, Picture};

/// The picture of a report.
pub fn picture(report: &Report) -> Picture {
    let panel = |title: &str, y_title, lines: Vec<Line>| Panel {
        title: title.to_owned(),
        x_title: "bytes of each write or read",
        x_base: 4.0,
        y_title,
        x_label: size_name,
        lines: lines.into_iter().filter(|line| !line.points.is_empty()).collect(),
    };
    let path = if report.direct { "direct I/O" } else { "through the page cache" };
    Picture {
        title: format!("What {} can do", report.path),
        subtitle: format!("{path}, {}, durable by {}", report.backend, report.durable_by),
        columns: 2,
        panels: vec![
            panel("Latency, one at a time (whole line: p50, dashed: p99)", "latency, µs", latencies(report)),
            panel("Bandwidth, so many at a time", "bandwidth, MB/s", bandwidths(report)),
        ],
    }
}

fn color(way: Way) -> &'static str {
    match way {
        Way::Durable => "#0060c0",
        Way::Window => "#d07000",
        Way::Read => "#208040",
        Way::Append => "#c02040",
        Way::AppendBatch => "#8040a0",
        Way::OpenAppend => "#606060",
    }
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Durable => "durable by itself",
        Way::Window => "window, then a flush",
        Way::Read => "read",
        Way::Append => "held open, flush each",
        Way::AppendBatch => "held open, batch flush",
        Way::OpenAppend => "open, append, flush, close",
    }
}

fn points(report: &Report, way: Way, depth: usize, value: fn(&Cell) -> f64) -> Vec<(f64, f64)> {
    let cells = report.cells.iter().filter(|cell| (cell.way, cell.depth) == (way, depth));
    cells.map(|cell| (cell.size as f64, value(cell))).collect()
}

/// A batch is left out: what one waits for there are sixteen appends and not one.
fn latencies(report: &Report) -> Vec<Line> {
    let mut lines = Vec::new();
    for way in Way::ALL.into_iter().filter(|way| *way != Way::AppendBatch) {
        let line = |name: &str, dash, value| Line {
            name: name.to_owned(),
            color: color(way),
            dash,
            points: points(report, way, 1, value),
        };
        lines.push(line(name(way), "", |cell| cell.p50_us));
        lines.push(line("", "5 4", |cell| cell.p99_us));
    }
    lines
}

fn bandwidths(report: &Report) -> Vec<Line> {
    let mut lines = Vec::new();
    for way in Way::ALL {
        let shown: &[(usize, &str)] = match way {
            Way::Durable | Way::Window => &[(1, ""), (4, "7 3"), (16, "2 3")],
            Way::Read => &[(1, ""), (16, "2 3")],
            Way::AppendBatch => &[(BATCH, "")],
            Way::Append | Way::OpenAppend => &[(1, "")],
        };
        lines.extend(shown.iter().map(|&(depth, dash)| Line {
            name: format!("{}: {depth}", name(way)),
            color: color(way),
            dash,
            points: points(report, way, depth, |cell| cell.mb_per_s),
        }));
    }
    lines
}
