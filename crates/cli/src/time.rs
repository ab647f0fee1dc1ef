//! Lengths of time and dates, in the units that people write.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

/// The units of a length of time, the longest first, and their milliseconds.
const UNITS: [(&str, u64); 6] =
    [("w", 7 * 86_400_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// The last moment whose year has four digits, in milliseconds since the Unix epoch.
const LAST: u64 = 253_402_300_799_999;

/// Parses a length of time: one or more numbers with a unit each, ms, s, m, h, d or w.
pub fn age(text: &str) -> Result<Duration, String> {
    let (mut rest, mut millis) = (text.trim(), 0_u64);
    if rest.is_empty() {
        return Err("use digits, followed by ms, s, m, h, d or w".to_owned());
    }
    while !rest.is_empty() {
        let (number, behind) = split(rest, |c| c.is_ascii_digit());
        let (unit, behind) = split(behind.trim_start(), |c| c.is_ascii_alphabetic());
        let number: u64 = match number {
            "" => return Err("use digits before the unit".to_owned()),
            digits => digits.parse().map_err(|_| "the time is too long".to_owned())?,
        };
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, length) = unit.ok_or("use digits, followed by ms, s, m, h, d or w")?;
        let part = number.checked_mul(*length).and_then(|part| millis.checked_add(part));
        millis = part.ok_or("the time is too long")?;
        rest = behind.trim_start();
    }
    Ok(Duration::from_millis(millis))
}

/// Splits a text behind its first characters that are `part` of something.
fn split(text: &str, part: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !part(c)).unwrap_or(text.len()))
}

/// Parses seconds, or a length of time with units, if the time is in `range`.
pub fn seconds(text: &str, range: RangeInclusive<Duration>) -> Option<Duration> {
    let plain = text.parse().ok().and_then(|n: f64| Duration::try_from_secs_f64(n).ok());
    plain.or_else(|| age(text).ok()).filter(|time| range.contains(time))
}

/// Parses a moment: RFC 3339, or the form in which [`Moment`] is shown.
#[cfg(any(test, feature = "archive"))]
pub fn moment(text: &str) -> Result<SystemTime, String> {
    let text = text.strip_suffix(" UTC").unwrap_or(text);
    humantime::parse_rfc3339_weak(text).map_err(|error| error.to_string())
}

/// A length of time, shown as [`age`] reads it back: `7d`, `1h 30m`, `250ms`.
pub struct Span(pub Duration);

impl Span {
    /// Returns a number of milliseconds.
    pub fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

impl Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut left, mut space) = (self.0.as_millis(), "");
        if left == 0 {
            return f.write_str("0s");
        }
        // Two weeks are fourteen days: few people count in weeks.
        for (unit, length) in &UNITS[1..] {
            let count = left / u128::from(*length);
            if count > 0 {
                write!(f, "{space}{count}{unit}")?;
                (left, space) = (left % u128::from(*length), " ");
            }
        }
        Ok(())
    }
}

/// A moment: `2026-11-27 09:30:00 UTC` for people, RFC 3339 with milliseconds in JSON. People see
/// the milliseconds, too, if there are any.
#[derive(Clone, Copy)]
pub struct Moment(SystemTime);

impl Moment {
    /// Returns the moment so many milliseconds after the Unix epoch.
    pub fn millis(millis: u64) -> Self {
        // No form here has room for a year of five digits.
        Self(UNIX_EPOCH + Duration::from_millis(millis.min(LAST)))
    }

    /// Returns a moment without its part of a second.
    pub fn whole_seconds(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::millis(since.as_secs().saturating_mul(1000))
    }
}

impl Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = humantime::format_rfc3339_millis(self.0).to_string();
        let text = text.trim_end_matches('Z').trim_end_matches(".000").replacen('T', " ", 1);
        write!(f, "{text} UTC")
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_rfc3339_millis(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(age("7d"), Ok(Duration::from_secs(7 * 24 * 3600)));
        assert_eq!(age("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!([age("2w"), age("14d")], [age("336h"), age("20160m")]);
        assert_eq!([age("1h 30m"), age("1h30m")], [age("90m"), age(" 90 m ")]);
        for wrong in ["", " ", "7", "d", "7y", "-7d", "1h 30", "h 30m", "99999999999999w", "1é"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
        let range = || Duration::from_millis(100)..=Duration::from_secs(3600);
        assert_eq!(seconds("0.5", range()), seconds("500ms", range()));
        assert_eq!(seconds("1m 30s", range()), Some(Duration::from_secs(90)));
        assert!(["0", "2h", "x", "-1", "nan"].iter().all(|wrong| seconds(wrong, range()).is_none()));
    }

    #[test]
    fn spans_are_shown_as_they_are_read() {
        for (millis, shown) in [
            (0, "0s"),
            (1, "1ms"),
            (1_500, "1s 500ms"),
            (5_400_000, "1h 30m"),
            (86_400_000, "1d"),
            (14 * 86_400_000 + 1, "14d 1ms"),
        ] {
            assert_eq!(Span::millis(millis).to_string(), shown);
            assert_eq!(age(shown), Ok(Duration::from_millis(millis)));
        }
        let longest = Span::millis(u64::MAX).to_string();
        assert_eq!(age(&longest), Ok(Duration::from_millis(u64::MAX)), "{longest}");
    }

    #[test]
    fn moments_are_dates() {
        let both = |moment: Moment| (moment.to_string(), serde_json::to_value(moment).unwrap());
        let (shown, json) = both(Moment::millis(1_795_771_800_000));
        assert_eq!((&shown[..], json), ("2026-11-27 09:30:00 UTC", "2026-11-27T09:30:00.000Z".into()));
        let (shown, json) = both(Moment::millis(1_795_771_800_007));
        assert_eq!((&shown[..], json), ("2026-11-27 09:30:00.007 UTC", "2026-11-27T09:30:00.007Z".into()));
        assert_eq!(both(Moment::millis(u64::MAX)).0, "9999-12-31 23:59:59.999 UTC");
        let time = UNIX_EPOCH + Duration::from_millis(1_795_771_800_007);
        assert_eq!(Moment::whole_seconds(time).to_string(), "2026-11-27 09:30:00 UTC");
        for same in [&shown[..], "2026-11-27T09:30:00.007Z", "2026-11-27 09:30:00.007"] {
            assert_eq!(moment(same), Ok(time), "{same}");
        }
        assert!(moment("yesterday").is_err());
    }
}
