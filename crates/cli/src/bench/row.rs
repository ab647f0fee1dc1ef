//! A line of a table of figures, and how it is made of rounds.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::Serialize;

use super::system;
use super::table::{Mark, median, plain};

/// One line of the table.
#[derive(Serialize)]
pub struct Row {
    /// What is measured.
    pub section: &'static str,
    name: String,
    unit: &'static str,
    /// The log's figure, or that of what the name says.
    figure: f64,
    /// What it is compared with, measured in the same rounds.
    limit: Option<f64>,
    /// What the limit is.
    pub against: &'static str,
    /// Figure to limit: the median of the rounds' ratios.
    ratio: Option<f64>,
    #[serde(serialize_with = "as_text")]
    mark: Option<Mark>,
    holds: Option<bool>,
    notes: BTreeMap<&'static str, f64>,
    /// What else is to be said.
    remark: Option<String>,
}

fn as_text<S: serde::Serializer>(mark: &Option<Mark>, to: S) -> Result<S::Ok, S::Error> {
    mark.map(|mark| mark.to_string()).serialize(to)
}

/// A row in the making: its figures, round by round.
pub struct Rounds {
    section: &'static str,
    name: String,
    unit: &'static str,
    figures: Vec<f64>,
    limits: Vec<f64>,
    notes: BTreeMap<&'static str, Vec<f64>>,
}

impl Rounds {
    /// A row without figures so far.
    pub fn new(section: &'static str, name: impl Into<String>, unit: &'static str) -> Self {
        let (figures, limits, notes) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { section, name: name.into(), unit, figures, limits, notes }
    }

    /// Figure and limit of a round.
    pub fn pair(&mut self, figure: f64, limit: f64) {
        self.figures.push(figure);
        self.limits.push(limit);
    }

    /// The figure of a round that has no limit.
    pub fn alone(&mut self, figure: f64) {
        self.figures.push(figure);
    }

    /// Another figure of a round; the median is told.
    pub fn note(&mut self, name: &'static str, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            self.notes.entry(name).or_default().push(value);
        }
    }

    /// The medians. `against` says what the limits are, or what there is instead.
    pub fn row(self, against: &'static str, mark: impl Into<Option<Mark>>) -> Row {
        let Self { section, name, unit, figures, limits, notes } = self;
        let ratios: Vec<f64> = figures.iter().zip(&limits).map(|(figure, limit)| figure / limit).collect();
        let some = |values: Vec<f64>| (!values.is_empty()).then(|| median(values));
        let (figure, limit, ratio) = (median(figures), some(limits), some(ratios));
        let mark = mark.into();
        let holds = mark.map(|mark: Mark| mark.holds(figure, ratio.unwrap_or(f64::NAN)));
        let notes = notes.into_iter().map(|(name, values)| (name, median(values))).collect();
        Row { section, name, unit, figure, limit, against, ratio, mark, holds, notes, remark: None }
    }
}

impl Row {
    /// The note of this name.
    pub fn noted(&self, name: &str) -> Option<f64> {
        self.notes.get(name).copied()
    }

    /// With a remark.
    pub fn remark(self, remark: impl Into<String>) -> Self {
        Self { remark: Some(remark.into()), ..self }
    }

    /// Whether the mark is missed.
    pub fn is_missed(&self) -> bool {
        self.holds == Some(false)
    }
}

impl Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("  {} [{}]", self.name, self.unit);
        write!(f, "{name:<58} {:>12}", plain(self.figure))?;
        let or_none = |value: Option<f64>, digits| match value {
            Some(value) if digits => plain(value),
            Some(value) => format!("{value:.2}"),
            None => String::new(),
        };
        let (limit, ratio) = (or_none(self.limit, true), or_none(self.ratio, false));
        write!(f, " {limit:>12} {ratio:>8}")?;
        if let (Some(mark), Some(holds)) = (self.mark, self.holds) {
            write!(f, "  {mark}: {}", if holds { "holds" } else { "missed" })?;
        }
        if !self.notes.is_empty() {
            let notes = self.notes.iter().map(|(name, value)| format!("{name} {}", plain(*value)));
            write!(f, "\n      {}", notes.collect::<Vec<_>>().join(", "))?;
        }
        self.remark.as_ref().map_or(Ok(()), |remark| write!(f, "\n      {remark}"))
    }
}

/// Rows under their headings.
pub fn under_headings(f: &mut fmt::Formatter<'_>, rows: &[Row]) -> fmt::Result {
    write!(f, "{:<58} {:>12} {:>12} {:>8}  mark", "", "figure", "limit", "ratio")?;
    let mut heading = ("", "");
    for row in rows {
        if heading != (row.section, row.against) {
            heading = (row.section, row.against);
            write!(f, "\n{} (limit: {})", row.section, row.against)?;
        }
        write!(f, "\n{row}")?;
    }
    Ok(())
}

/// What commands print that measure work on so many entries, in so much memory.
#[derive(Serialize)]
pub struct Table {
    entries: u64,
    rounds: u64,
    memory: u64,
    cores: usize,
    load: Option<f64>,
    rows: Vec<Row>,
}

impl Table {
    /// A table of what was just measured here.
    pub fn new(entries: u64, rounds: u64, memory: u64, rows: Vec<Row>) -> Self {
        Self { entries, rounds, memory, cores: system::cores(), load: system::load(), rows }
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, rounds, memory, cores, .. } = self;
        write!(f, "{entries} entries, medians of {rounds} rounds, ")?;
        if *memory > 0 {
            write!(f, "{} MiB to sort in, ", memory >> 20)?;
        }
        writeln!(f, "{cores} cores")?;
        under_headings(f, &self.rows)?;
        match self.load {
            Some(load) if load > *cores as f64 + 1.0 => {
                write!(f, "\n{load:.1} processes wanted the {cores} cores: these figures are theirs, too")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_middle_round() {
        let mut rounds = Rounds::new("lone", "p50", "us");
        for (figure, limit) in [(11.0, 10.0), (50.0, 10.0), (36.0, 30.0)] {
            rounds.pair(figure, limit);
            rounds.note("n", figure);
        }
        let row = rounds.row("the device", Mark::AtMost(1.2));
        assert_eq!((row.figure, row.limit, row.ratio, row.holds), (36.0, Some(10.0), Some(1.2), Some(true)));
        assert_eq!((row.noted("n"), row.is_missed()), (Some(36.0), false));
        let told = row.to_string();
        assert!(
            told.contains("p50 [us]") && told.ends_with("ratio at most 1.2: holds\n      n 36.0"),
            "{told}"
        );
    }

    #[test]
    fn a_mark_on_a_ratio_that_is_not_there_is_missed() {
        let mut rounds = Rounds::new("lone", "p50", "us");
        rounds.alone(3.0);
        assert!(rounds.row("", Mark::AtLeast(0.9)).is_missed());
    }
}
