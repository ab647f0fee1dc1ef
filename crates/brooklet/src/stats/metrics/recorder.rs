//! Records the metrics in a recorder of the `metrics` crate.

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit};

use crate::stats::metrics::{Family, Kind, Metrics, Sample, Value};

/// The quantiles that represent a histogram.
const QUANTILES: [(f64, &str); 3] = [(0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99")];

impl Metrics {
    /// Records all metrics in a recorder, which stores and exports them. Call this as often as the
    /// recorder needs fresh values.
    ///
    /// The store counts histograms itself, and cannot record each time separately. For each
    /// histogram, the call records three quantiles of all times since opening, as gauges with a
    /// label `quantile`. It also records the counters `…_sum`, in seconds, rounded down, and
    /// `…_count`.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// # metrics::set_global_recorder(metrics::NoopRecorder).unwrap();
    /// // Every few seconds:
    /// metrics::with_recorder(|recorder| store.metrics().record(recorder));
    /// # Ok(())
    /// # }
    /// ```
    pub fn record(&self, recorder: &dyn Recorder) {
        let metadata = Metadata::new("brooklet", Level::INFO, Some("brooklet"));
        for Family { name, help, kind, samples } in self.families() {
            describe(recorder, name, help, *kind);
            for Sample { label, value } in samples {
                let label =
                    label.as_ref().map(|(label, value)| Label::new(*label, value.clone().into_owned()));
                let key = |name: String, more: Option<Label>| {
                    Key::from_parts(name, label.iter().cloned().chain(more).collect::<Vec<_>>())
                };
                let counter = |name: String, value: u64| {
                    recorder.register_counter(&key(name, None), &metadata).absolute(value);
                };
                let gauge = |more: Option<Label>, value: f64| {
                    recorder.register_gauge(&key((*name).into(), more), &metadata).set(value);
                };
                match value {
                    Value::Number(number) if *kind == Kind::Counter => {
                        counter((*name).into(), *number as u64)
                    }
                    Value::Number(number) => gauge(None, *number),
                    Value::Times(times) => {
                        for (part, shown) in QUANTILES {
                            gauge(Some(Label::new("quantile", shown)), times.quantile(part).as_secs_f64());
                        }
                        counter(format!("{name}_sum"), times.sum().as_secs());
                        counter(format!("{name}_count"), times.count());
                    }
                }
            }
        }
    }
}

fn describe(recorder: &dyn Recorder, name: &'static str, help: &'static str, kind: Kind) {
    let base = name.strip_suffix("_total").unwrap_or(name);
    let unit = if base.ends_with("_bytes") {
        Unit::Bytes
    } else if base.ends_with("_seconds") {
        Unit::Seconds
    } else {
        Unit::Count
    };
    let (name, help) = (KeyName::from(name), SharedString::from(help));
    match kind {
        Kind::Counter => recorder.describe_counter(name, Some(unit), help),
        Kind::Gauge | Kind::Histogram => recorder.describe_gauge(name, Some(unit), help),
    }
}
