//! The table: medians, ratios and marks, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::Serialize;

use crate::plan::{Better, Mark, Metric, Work};
use crate::run::Rounds;
use crate::stores::Kind;

/// One workload's one figure.
#[derive(Debug, Serialize)]
pub struct Row {
    work: String,
    what: String,
    unit: &'static str,
    better: Better,
    /// Store by store: the median of the rounds; the least for bytes on the device, which others
    /// only add to.
    figures: BTreeMap<&'static str, f64>,
    /// The same, round by round.
    rounds: BTreeMap<&'static str, Vec<f64>>,
    best_peer: Option<&'static str>,
    /// Brooklet's figure to the best peer's, the plainest group commit's, the device's.
    to_peer: Option<f64>,
    to_plain: Option<f64>,
    to_device: Option<f64>,
    marks: Vec<Verdict>,
    failures: BTreeMap<&'static str, String>,
}

/// A mark and what became of it.
#[derive(Debug, Serialize)]
struct Verdict {
    mark: String,
    figure: Option<f64>,
    holds: bool,
    #[serde(skip)]
    of: Mark,
}

/// The one in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Row {
    /// The rows of a workload.
    pub fn of(work: &Work, rounds: &Rounds) -> Vec<Self> {
        work.metrics.iter().map(|metric| Self::new(work, metric, rounds)).collect()
    }

    fn new(work: &Work, metric: &Metric, rounds: &Rounds) -> Self {
        let (mut figures, mut each, mut failures) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (kind, rounds) in rounds {
            let values: Vec<f64> =
                rounds.iter().flatten().filter_map(|figures| figures.get(metric.figure)).copied().collect();
            if let Some(Err(why)) = rounds.iter().find(|round| round.is_err()) {
                failures.insert(kind.name(), why.clone());
            }
            if values.is_empty() {
                continue;
            }
            let least = metric.figure.starts_with("written");
            let figure =
                if least { values.iter().copied().fold(f64::MAX, f64::min) } else { median(values.clone()) };
            figures.insert(kind.name(), figure);
            each.insert(kind.name(), values);
        }
        let peers = rounds.keys().filter(|kind| kind.is_peer()).map(|kind| kind.name());
        let better = metric.better;
        let best_peer = peers.filter(|name| figures.contains_key(name)).max_by(|a, b| {
            let order = figures[a].total_cmp(&figures[b]);
            if better == Better::Higher { order } else { order.reverse() }
        });
        let ours = figures.get(Kind::Brooklet.name()).copied();
        let to = |name: &str| {
            figures.get(name).filter(|theirs| **theirs != 0.0).and_then(|theirs| Some(ours? / theirs))
        };
        let (to_peer, to_plain) = (best_peer.and_then(to), to(Kind::Plain.name()));
        let to_device = to(Kind::Device.name());
        let marks = metric.marks.iter().map(|mark| {
            let figure = match mark {
                Mark::Peer(_) => to_peer,
                Mark::Plain(_) => to_plain,
                Mark::Value(_) => ours,
                // Known only once all rows are.
                Mark::AnyPeer(_) => None,
            };
            Verdict::new(*mark, better, figure)
        });
        Self {
            work: work.name.clone(),
            what: work.what.clone(),
            unit: metric.unit,
            better,
            marks: marks.collect(),
            figures,
            rounds: each,
            best_peer,
            to_peer,
            to_plain,
            to_device,
            failures,
        }
    }

    fn best_peers_figure(&self) -> Option<f64> {
        self.figures.get(self.best_peer?).copied()
    }
}

impl Verdict {
    fn new(of: Mark, better: Better, figure: Option<f64>) -> Self {
        let (target, than) = match of {
            Mark::Peer(ratio) => (ratio, " times the best peer"),
            Mark::AnyPeer(ratio) => (ratio, " times any peer's best appends/s"),
            Mark::Plain(ratio) => (ratio, " times plain"),
            Mark::Value(value) => (value, ""),
        };
        let (word, holds) = match better {
            Better::Higher => ("at least", figure.is_some_and(|figure| figure >= target)),
            Better::Lower => ("at most", figure.is_some_and(|figure| figure <= target)),
        };
        Self { mark: format!("{word} {target}{than}"), figure, holds, of }
    }
}

/// All rows.
#[derive(Serialize)]
pub struct Table {
    rounds: usize,
    seconds: f64,
    settings: BTreeMap<&'static str, &'static str>,
    caveats: Vec<String>,
    rows: Vec<Row>,
    #[serde(skip)]
    stores: Vec<Kind>,
}

impl Table {
    /// Of rows that are complete but for the marks that look at other rows.
    pub fn new(
        rounds: usize,
        seconds: f64,
        stores: &[Kind],
        caveats: Vec<String>,
        mut rows: Vec<Row>,
    ) -> Self {
        let appends = rows.iter().filter(|row| row.unit == "appends/s" && !row.work.starts_with("burst"));
        let best = appends.filter_map(Row::best_peers_figure).reduce(f64::max);
        for row in &mut rows {
            let ours = row.figures.get(Kind::Brooklet.name()).copied();
            for verdict in &mut row.marks {
                if matches!(verdict.of, Mark::AnyPeer(_)) {
                    *verdict =
                        Verdict::new(verdict.of, row.better, ours.zip(best).map(|(ours, best)| ours / best));
                }
            }
        }
        let settings = stores.iter().map(|kind| (kind.name(), kind.setting())).collect();
        Self { rounds, seconds, settings, caveats, rows, stores: stores.to_vec() }
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "medians of {} rounds; spans of {} s", self.rounds, self.seconds)?;
        write!(f, "{:<26}", "")?;
        self.stores.iter().try_for_each(|kind| write!(f, "{:>12}", kind.name()))?;
        writeln!(f, "   best peer: ratio  to plain  to device")?;
        let mut work = "";
        for row in &self.rows {
            if row.work != work {
                writeln!(f, "{}: {}", row.work, row.what)?;
                work = &row.work;
            }
            self.line(f, row)?;
        }
        for (name, setting) in &self.settings {
            writeln!(f, "{name}: {setting}")?;
        }
        self.caveats.iter().try_for_each(|caveat| writeln!(f, "note: {caveat}"))
    }
}

impl Table {
    fn line(&self, f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
        write!(f, "  {:<24}", row.unit)?;
        for kind in &self.stores {
            match row.figures.get(kind.name()) {
                Some(figure) => write!(f, "{:>12}", plain(*figure))?,
                None if row.failures.contains_key(kind.name()) => write!(f, "{:>12}", "failed")?,
                None => write!(f, "{:>12}", "")?,
            }
        }
        if let Some((name, ratio)) = row.best_peer.zip(row.to_peer) {
            write!(f, "   {name}: {ratio:.2}")?;
        }
        if let Some(ratio) = row.to_plain {
            write!(f, "  {ratio:.2}")?;
        }
        if let Some(ratio) = row.to_device {
            write!(f, "  {ratio:.2}")?;
        }
        writeln!(f)?;
        for Verdict { mark, figure, holds, .. } in &row.marks {
            let figure = figure.map_or("not measured".to_owned(), plain);
            writeln!(f, "      {mark}: {figure}, {}", if *holds { "met" } else { "missed" })?;
        }
        let mut failures = row.failures.iter();
        failures.try_for_each(|(name, why)| writeln!(f, "      {name}: {why}"))
    }
}

/// Two digits or more, thousands apart.
fn plain(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        0.1.. => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if value < 10_000.0 {
        return text;
    }
    let split = |i: usize| if i > 0 && (text.len() - i).is_multiple_of(3) { "," } else { "" };
    text.char_indices().fold(String::new(), |out, (i, c)| out + split(i) + &c.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::works;
    use crate::works::Figures;

    fn rounds(figure: &str, values: &[(Kind, &[f64])]) -> Rounds {
        let round = |value: &f64| Ok(Figures::from([(figure.to_owned(), *value)]));
        values.iter().map(|(kind, values)| (*kind, values.iter().map(round).collect())).collect()
    }

    fn work(name: &str) -> Work {
        works(1.0).into_iter().find(|work| work.name == name).unwrap()
    }

    #[test]
    fn the_best_peer_is_a_peer_and_marks_are_judged_by_it() {
        let given = rounds(
            "per second",
            &[
                (Kind::Brooklet, &[90.0, 100.0, 900.0]),
                (Kind::Redb, &[40.0]),
                (Kind::Lmdb, &[80.0]),
                (Kind::Plain, &[200.0]),
                (Kind::Device, &[500.0]),
            ],
        );
        let row = &Row::of(&work("waiting-64"), &given)[0];
        assert_eq!((row.best_peer, row.to_peer, row.to_plain), (Some("lmdb"), Some(1.25), Some(0.5)));
        assert!(row.marks[0].holds && !row.marks[1].holds);
    }

    #[test]
    fn lower_is_better_where_it_is_and_bytes_are_the_least_of_the_rounds() {
        let given = rounds(
            "written per byte",
            &[(Kind::Brooklet, &[0.5, 9.0, 0.6]), (Kind::Redb, &[40.0]), (Kind::Lmdb, &[2.0])],
        );
        let rows = Row::of(&work("bytes-appends"), &given);
        let row = rows.iter().find(|row| row.unit == "bytes on device per byte").unwrap();
        assert_eq!((row.best_peer, row.to_peer), (Some("lmdb"), Some(0.25)));
        assert!(row.marks[0].holds);
        // There is no ratio to nothing.
        let given = rounds("bytes per log", &[(Kind::Brooklet, &[0.1]), (Kind::Redb, &[0.0])]);
        let row = &Row::of(&work("idle"), &given)[0];
        assert_eq!((row.best_peer, row.to_peer), (Some("redb"), None));
    }

    #[test]
    fn callbacks_are_judged_by_the_best_line_of_any_peer() {
        let ours = rounds("per second", &[(Kind::Brooklet, &[100.0]), (Kind::Redb, &[10.0])]);
        let theirs = rounds("per second", &[(Kind::Brooklet, &[100.0]), (Kind::Redb, &[40.0])]);
        let mut rows = Row::of(&work("flight"), &ours);
        rows.extend(Row::of(&work("waiting-256"), &theirs));
        let table = Table::new(1, 1.0, &[Kind::Brooklet, Kind::Redb], Vec::new(), rows);
        assert_eq!(table.rows[0].marks[0].figure, Some(2.5));
        assert!(!table.rows[0].marks[0].holds);
        assert!(table.to_string().contains("at least 3 times any peer's best appends/s: 2.50, missed"));
    }

    #[test]
    fn a_store_that_fails_is_told_and_reaches_nothing() {
        let failed = Rounds::from([(Kind::Brooklet, vec![Err("why".to_owned())])]);
        let row = &Row::of(&work("idle"), &failed)[0];
        assert!(!row.marks[0].holds && row.failures["brooklet"] == "why");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            ["0.0068", "0.25", "12.3", "9999", "10,000", "1,234,567"],
            [0.0068, 0.25, 12.3, 9999.0, 1e4, 1234567.0].map(plain)[..]
        );
    }
}
