//! The counters of a store as metrics with names, labels and units: in the text format of
//! Prometheus, or for a recorder.
//!
//! Names follow the conventions of Prometheus: metrics use base units, and a name ends with its
//! unit. `stats/metrics/list.rs` lists all metrics.

pub mod file;
pub mod list;
#[cfg(feature = "metrics")]
pub mod recorder;

use std::borrow::Cow;
use std::fmt;

use brooklet_wal::Histogram;

use crate::stats::activity::Activity;

/// The metrics of a store at one moment. [`Display`](fmt::Display) writes them as a document in the
/// text format of Prometheus, version 0.0.4.
///
/// ```
/// # fn main() -> Result<(), brooklet::Error> {
/// # let store = brooklet::Store::in_memory(1)?;
/// store.append("log", "entry")?.wait()?;
/// let text = store.metrics().to_string();
/// assert!(text.contains("\nbrooklet_commits_total 1\n"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Metrics {
    families: Vec<Family>,
}

/// A metric: all samples of one name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Family {
    /// The name: `brooklet_…`; names of counters end with `_total`.
    pub name: &'static str,
    /// The description of the metric.
    pub help: &'static str,
    /// The kind of the metric.
    pub kind: Kind,
    /// The samples, at least one.
    pub samples: Vec<Sample>,
}

/// A kind of metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only grows, from 0 when the store is opened.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution of times.
    Histogram,
}

/// A sample: one value of a metric.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sample {
    /// The label that distinguishes this sample from other samples of the metric, as name and
    /// value. No metric needs more than one label.
    pub label: Option<(&'static str, Cow<'static, str>)>,
    /// The value.
    pub value: Value,
}

/// The value of a sample.
#[derive(Clone, Debug)]
pub enum Value {
    /// The value of a counter or a gauge.
    Number(f64),
    /// The times of a histogram.
    Times(Box<Histogram>),
}

impl Metrics {
    /// Returns all metrics, in an order for human readers.
    pub fn families(&self) -> &[Family] {
        &self.families
    }
}

/// Exports the same counters as [`Activity`].
impl From<&Activity> for Metrics {
    fn from(activity: &Activity) -> Self {
        Self { families: list::list(activity) }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.families.iter().try_for_each(|family| family.fmt(f))
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, help, kind, samples } = self;
        writeln!(f, "# HELP {name} {help}\n# TYPE {name} {}", kind.name())?;
        for Sample { label, value } in samples {
            let label = label.as_ref().map(|(label, value)| format!("{label}=\"{}\"", escaped(value)));
            match value {
                Value::Number(number) => writeln!(f, "{name}{} {number}", braces(&label, None))?,
                Value::Times(times) => {
                    for (bound, count) in times.cumulative() {
                        let le = format!("le=\"{}\"", bound.as_secs_f64());
                        writeln!(f, "{name}_bucket{} {count}", braces(&label, Some(&le)))?;
                    }
                    let count = times.count();
                    writeln!(f, "{name}_bucket{} {count}", braces(&label, Some("le=\"+Inf\"")))?;
                    let label = braces(&label, None);
                    writeln!(f, "{name}_sum{label} {}", times.sum().as_secs_f64())?;
                    writeln!(f, "{name}_count{label} {count}")?;
                }
            }
        }
        Ok(())
    }
}

/// Formats labels in the form that follows a name.
fn braces(label: &Option<String>, more: Option<&str>) -> String {
    let all: Vec<&str> = label.as_deref().into_iter().chain(more).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

/// Escapes the value of a label for use between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_text_is_as_prometheus_has_it() {
        let mut times = Histogram::default();
        times.record(Duration::from_micros(300));
        times.record(Duration::from_secs(100));
        let sample = |label: Option<&'static str>, value| Sample {
            label: label.map(|label| ("label", label.into())),
            value,
        };
        let samples = vec![sample(None, Value::Number(2.5)), sample(Some("a\"\\\n"), Value::Number(1e15))];
        let number = Family { name: "n_total", help: "Numbers.", kind: Kind::Counter, samples };
        let samples = vec![sample(Some("x"), Value::Times(Box::new(times)))];
        let times = Family { name: "t_seconds", help: "Times.", kind: Kind::Histogram, samples };
        let text = Metrics { families: vec![number, times] }.to_string();
        let (head, tail) = text.split_at(text.find("t_seconds_bucket").unwrap());
        assert_eq!(
            head,
            "# HELP n_total Numbers.\n# TYPE n_total counter\nn_total 2.5\n\
             n_total{label=\"a\\\"\\\\\\n\"} 1000000000000000\n# HELP t_seconds Times.\n# TYPE t_seconds histogram\n"
        );
        let line = |wanted: &str| assert!(tail.lines().any(|line| line == wanted), "{wanted}\n{tail}");
        line("t_seconds_bucket{label=\"x\",le=\"0.000000256\"} 0");
        line("t_seconds_bucket{label=\"x\",le=\"0.000393216\"} 1");
        line("t_seconds_bucket{label=\"x\",le=\"+Inf\"} 2");
        line("t_seconds_sum{label=\"x\"} 100.0003");
        line("t_seconds_count{label=\"x\"} 2");
    }

    #[test]
    fn every_metric_has_a_name_of_its_kind_and_samples_that_differ() {
        let store = crate::Store::in_memory(1).unwrap();
        let config = crate::SpaceConfig::new().class(crate::Class::Memory(crate::MemoryConfig::new(1 << 20)));
        store.create_space("games", config).unwrap();
        let metrics = store.metrics();
        let mut names = std::collections::BTreeSet::new();
        for Family { name, help, kind, samples } in metrics.families() {
            assert!(names.insert(name) && name.starts_with("brooklet_"), "{name}");
            assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
            assert!(*kind != Kind::Histogram || name.ends_with("_seconds"), "{name}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}");
            let mut labels: Vec<_> = samples.iter().map(|sample| &sample.label).collect();
            labels.dedup();
            assert!(labels.len() == samples.len() && !labels.is_empty(), "{name}");
            let is_number = |sample: &Sample| matches!(sample.value, Value::Number(_));
            assert!(samples.iter().all(|sample| is_number(sample) == (*kind != Kind::Histogram)), "{name}");
        }
    }
}
