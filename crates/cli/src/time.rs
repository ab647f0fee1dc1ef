//! Lengths of time and dates, in the units that people write.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
#[cfg(feature = "serve")]
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(feature = "serve")]
use serde::{Deserialize, Deserializer};
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

/// A length of time in a setting: with units, or a number alone, which counts units of `MILLIS`
/// milliseconds. It is shown as it is read back.
#[cfg(feature = "serve")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting<const MILLIS: u64>(Duration);

#[cfg(feature = "serve")]
impl<const MILLIS: u64> Setting<MILLIS> {
    /// Returns so many units.
    pub const fn units(units: u64) -> Self {
        Self(Duration::from_millis(units.saturating_mul(MILLIS)))
    }

    /// Returns the length of time.
    pub fn time(self) -> Duration {
        self.0
    }

    /// Returns the number of units, if it is a whole number.
    pub fn whole(self) -> Option<u64> {
        let millis = self.0.as_millis() as u64;
        millis.is_multiple_of(MILLIS).then(|| millis / MILLIS)
    }
}

#[cfg(feature = "serve")]
impl<const MILLIS: u64> FromStr for Setting<MILLIS> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.bytes().any(|byte| !byte.is_ascii_digit()) {
            return age(text).map(Self);
        }
        let millis = text.parse().ok().and_then(|units: u64| units.checked_mul(MILLIS));
        millis.map(|millis| Self(Duration::from_millis(millis))).ok_or_else(|| "the time is too long".into())
    }
}

#[cfg(feature = "serve")]
impl<const MILLIS: u64> Serialize for Setting<MILLIS> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.whole() {
            Some(units) => serializer.serialize_u64(units),
            None => serializer.collect_str(&Span(self.0)),
        }
    }
}

#[cfg(feature = "serve")]
impl<'de, const MILLIS: u64> Deserialize<'de> for Setting<MILLIS> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "use a number, or a time such as \"90s\"")]
        enum Written {
            Units(u64),
            Text(String),
        }
        let text = match Written::deserialize(from)? {
            Written::Units(units) => units.to_string(),
            Written::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
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
    fn a_setting_without_units_counts_its_own() {
        let seconds = |text: &str| text.parse::<Setting<1000>>();
        assert_eq!((seconds("90"), seconds("1m 30s")), (seconds("90s"), Ok(Setting::units(90))));
        assert_eq!("2".parse(), Ok(Setting::<86_400_000>(Duration::from_secs(48 * 3600))));
        assert_eq!((seconds("0").unwrap().whole(), seconds("1500ms").unwrap().whole()), (Some(0), None));
        for wrong in ["", "-1", "1.5", "x", "1x", "99999999999999999999", "18446744073709551615"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        for written in ["0", "90", "\"1s 500ms\""] {
            let read: Setting<1000> = serde_json::from_str(written).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), written);
        }
        for wrong in ["-1", "1.5", "null", "\"1x\""] {
            assert!(serde_json::from_str::<Setting<1000>>(wrong).is_err(), "{wrong}");
        }
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
