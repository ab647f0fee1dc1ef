//! Retention rules of spaces, as the command takes and shows them.

use std::fmt;

use brooklet::{Retention, RetentionRule};
use serde::Serialize;

use crate::output::{Octets, counted};
use crate::size::size;
use crate::time::{Span, age};

/// A value of `--rule`.
#[derive(Clone)]
pub enum Rule {
    /// No rules.
    None,
    /// This retention for the keys that match.
    For(String, Retention),
}

/// Parses a rule: `PATTERN=LIMITS` with one or more of `entries:N`, `bytes:SIZE` and `age:TIME`, or
/// `PATTERN=none`; `none` alone means no rules.
pub fn rule(text: &str) -> Result<Rule, String> {
    if text == "none" {
        return Ok(Rule::None);
    }
    let (pattern, limits) = text.rsplit_once('=').ok_or("use PATTERN=LIMITS, or none")?;
    if limits == "none" {
        return Ok(Rule::For(pattern.into(), Retention::new()));
    }
    let mut retention = Retention::new();
    for limit in limits.split(',') {
        let (name, most) = limit.split_once(':').unwrap_or((limit, ""));
        retention = match name {
            "entries" => retention.entries(most.parse().map_err(|_| "use digits after entries:")?),
            "bytes" => retention.bytes(size(most)?),
            "age" => retention.age(age(most)?),
            _ => return Err("use limits such as entries:100, bytes:1M or age:7d, or none".into()),
        };
    }
    Ok(Rule::For(pattern.into(), retention))
}

/// Limits of a log.
#[derive(Serialize)]
pub struct Limits {
    keeps_entries: Option<u64>,
    keeps_bytes: Option<u64>,
    keeps_ms: Option<u64>,
}

impl Limits {
    pub fn of(Retention { entries, bytes, age, .. }: Retention) -> Self {
        let keeps_ms = age.map(|age| age.as_millis() as u64);
        Self { keeps_entries: entries, keeps_bytes: bytes, keeps_ms }
    }

    pub fn are_set(&self) -> bool {
        self.keeps_entries.or(self.keeps_bytes).or(self.keeps_ms).is_some()
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [("entry", self.keeps_entries), ("byte", self.keeps_bytes)];
        let counts = counts.iter().filter_map(|(what, most)| Some(counted((*most)?, what)));
        let mut limits: Vec<_> = counts.collect();
        if let Some(ms) = self.keeps_ms {
            let what = if limits.is_empty() { "entries for" } else { "for" };
            limits.push(format!("{what} {}", Span::millis(ms)));
        }
        if limits.is_empty() { f.write_str("all entries") } else { f.write_str(&limits.join(", ")) }
    }
}

/// A rule of a space.
#[derive(Serialize)]
pub struct RuleRow<'a> {
    #[serde(flatten)]
    pattern: Octets<'a>,
    #[serde(flatten)]
    limits: Limits,
}

impl<'a> RuleRow<'a> {
    pub fn of(rule: &'a RetentionRule) -> Self {
        Self { pattern: Octets::pattern(&rule.pattern), limits: Limits::of(rule.retention) }
    }
}

impl fmt::Display for RuleRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keeps {}", self.pattern, self.limits)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rules_are_read() {
        let read = |text| match rule(text) {
            Ok(Rule::For(pattern, retention)) => (pattern, retention),
            other => panic!("{text}: {:?}", other.err()),
        };
        let week = Duration::from_secs(7 * 86_400);
        assert_eq!(read("*/feed=entries:3"), ("*/feed".into(), Retention::new().entries(3)));
        let all = Retention::new().entries(3).bytes(1 << 20).age(week);
        assert_eq!(read("a=b*=entries:3,bytes:1M,age:7d"), ("a=b*".into(), all));
        assert_eq!(read("audit/*=none"), ("audit/*".into(), Retention::new()));
        assert!(matches!(rule("none"), Ok(Rule::None)));
        for wrong in ["", "a", "a=", "a=entries", "a=entries:x", "a=7d", "a=entries:1,", "a=bytes:-1"] {
            assert!(rule(wrong).is_err(), "{wrong:?}");
        }
    }
}
