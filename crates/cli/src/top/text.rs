//! The text format of Prometheus, as far as a store writes it: one label at most, besides the
//! bounds of histograms.

use std::collections::BTreeMap;

/// A metric's name, and the value of its label, or nothing.
type Name = (String, String);

/// The metrics of a store at one moment.
#[derive(Debug, Default, PartialEq)]
pub struct Told {
    numbers: BTreeMap<Name, f64>,
    /// Bounds in seconds, and how many times were no longer.
    times: BTreeMap<Name, Vec<(f64, f64)>>,
}

/// Times of a histogram, by how long they took.
#[derive(Debug, Default, PartialEq)]
pub struct Times(Vec<(f64, f64)>);

impl Told {
    /// Reads a document. `None` where it is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut told = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (metric, value) = line.rsplit_once(' ')?;
            let value: f64 = value.parse().ok()?;
            let (name, labels) = metric.split_once('{').unwrap_or((metric, "}"));
            let (mut label, mut bound) = (String::new(), None);
            for (key, value) in labels_of(labels.strip_suffix('}')?)? {
                if key == "le" { bound = Some(value) } else { label = value }
            }
            match bound {
                Some(bound) => {
                    let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
                    let name = name.strip_suffix("_bucket")?.to_owned();
                    told.times.entry((name, label)).or_default().push((bound, value));
                }
                None => drop(told.numbers.insert((name.to_owned(), label), value)),
            }
        }
        told.numbers.keys().any(|(name, _)| name.starts_with("brooklet_")).then_some(told)
    }

    /// Returns a value without a label; 0 if it is missing.
    pub fn number(&self, name: &str) -> f64 {
        self.labelled(name, "")
    }

    /// The value of a label.
    pub fn labelled(&self, name: &str, label: &str) -> f64 {
        self.numbers.get(&(name.to_owned(), label.to_owned())).copied().unwrap_or_default()
    }

    /// The labels that there are of a name, and their values.
    pub fn labels<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let of_name = self.numbers.iter().filter(move |((other, _), _)| other == name);
        of_name.map(|((_, label), value)| (&label[..], *value))
    }

    /// The times that were counted since an earlier moment.
    pub fn times_since(&self, earlier: &Self, name: &str, label: &str) -> Times {
        let at = (name.to_owned(), label.to_owned());
        let (Some(now), before) = (self.times.get(&at), earlier.times.get(&at)) else {
            return Times::default();
        };
        let before = |i: usize| before.and_then(|before| before.get(i)).map_or(0.0, |(_, count)| *count);
        Times(
            now.iter()
                .enumerate()
                .map(|(i, (bound, count))| (*bound, (count - before(i)).max(0.0)))
                .collect(),
        )
    }
}

/// Names and values between braces.
fn labels_of(mut text: &str) -> Option<Vec<(&str, String)>> {
    let mut labels = Vec::new();
    while !text.is_empty() {
        let (key, rest) = text.split_once("=\"")?;
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.push((key, value));
        let rest = &rest[end + 1..];
        text = rest.strip_prefix(',').unwrap_or(rest);
    }
    Some(labels)
}

impl Times {
    /// A time in seconds that a part of them do not exceed; `None` where there are none. Within a
    /// class they are taken to lie evenly.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let all = self.0.last().map_or(0.0, |(_, count)| *count);
        let rank = all * part;
        let (mut floor, mut before) = (0.0, 0.0);
        for &(bound, count) in &self.0 {
            if count >= rank && count > before && bound.is_finite() {
                return Some(floor + (bound - floor) * (rank - before) / (count - before));
            }
            if bound.is_finite() {
                (floor, before) = (bound, count);
            }
        }
        (all > 0.0).then_some(floor)
    }
}

#[cfg(test)]
mod tests {
    use brooklet::Store;

    use super::*;

    #[test]
    fn what_a_store_writes_is_read() {
        let store = Store::in_memory(1).unwrap();
        let told = || Told::parse(&store.metrics().to_string()).unwrap();
        let before = told();
        (0..5).for_each(|_| store.append("log", "entry").unwrap().wait().unwrap());
        let (now, activity) = (told(), store.activity());
        assert_eq!(
            (before.number("brooklet_commits_total"), now.number("brooklet_commits_total")),
            (0.0, 5.0)
        );
        assert_eq!(now.labels("brooklet_reads_total").count(), 5);
        assert_eq!(now.labelled("brooklet_reads_total", "active"), 0.0);
        let of = |name, label| now.times_since(&before, name, label).quantile(0.5).unwrap();
        for (name, label, is) in [
            ("brooklet_commit_seconds", "", activity.stages.whole),
            ("brooklet_write_stage_seconds", "write", activity.stages.write),
        ] {
            let (told, is) = (of(name, label), is.quantile(0.5).as_secs_f64());
            assert!(told > 0.0 && (told / is - 1.0).abs() < 0.3, "{name}: {told} for {is}");
        }
        assert_eq!(now.times_since(&now, "brooklet_commit_seconds", "").quantile(0.5), None);
    }

    #[test]
    fn what_is_something_else_is_not_read() {
        for text in [
            "",
            "#!/bin/sh\necho 1\n",
            "up 1\n",
            "brooklet_a{b=\"c} 1\n",
            "brooklet_a one\n",
            "brooklet_a{b} 1",
        ] {
            assert_eq!(Told::parse(text), None, "{text}");
        }
        let told = Told::parse("brooklet_a{space=\"x, \\\"y\\\" {z}\\n\\\\\"} 3\n").unwrap();
        assert_eq!(told.labels("brooklet_a").next(), Some(("x, \"y\" {z}\n\\", 3.0)));
    }
}
