//! The wall clock, in milliseconds since the Unix epoch, and the cursors that follow from it.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat};

/// 2024-10-09T00:00:00Z, from which the protocol counts cursors, and the length of their intervals.
const CURSOR_EPOCH: u64 = 1_728_432_000_000;
const CURSOR_INTERVAL: u64 = 20_000;
/// The most intervals that a cursor is moved ahead: an hour.
const CURSOR_JITTER: u64 = 180;

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

pub fn now() -> u64 {
    since_epoch().as_millis() as u64
}

/// Nanoseconds since the Unix epoch: a number that a stream made anew does not share with the one
/// before it.
pub fn nanos() -> u64 {
    since_epoch().as_nanos() as u64
}

/// A time as RFC 3339 has it, with any zone.
pub fn parse(text: &str) -> Option<u64> {
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    // What lies before the epoch is past, and no more needs to be known of it.
    Some(time.timestamp_millis().max(0) as u64)
}

pub fn format(millis: u64) -> String {
    let time = i64::try_from(millis).ok().and_then(DateTime::from_timestamp_millis);
    time.unwrap_or(DateTime::<chrono::Utc>::MAX_UTC).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The cursor of a reply: the interval of now, or one after the client's, if it is not behind that.
pub fn cursor(asked: Option<u64>) -> u64 {
    let current = now().saturating_sub(CURSOR_EPOCH) / CURSOR_INTERVAL;
    let jitter = 1 + u64::from(since_epoch().subsec_nanos()) % CURSOR_JITTER;
    match asked.filter(|asked| *asked >= current) {
        Some(asked) => asked.checked_add(jitter).unwrap_or(current),
        None => current,
    }
}

/// Waits for a time, in milliseconds since the Unix epoch; for ever without one.
pub async fn reached(at: Option<u64>) {
    match at {
        Some(at) => tokio::time::sleep(Duration::from_millis(at.saturating_sub(now()))).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back() {
        assert_eq!(parse("1970-01-01T01:00:01.5+01:00"), Some(1_500));
        assert_eq!(format(1_500), "1970-01-01T00:00:01.500Z");
        assert_eq!(parse("1960-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse("tomorrow"), None);
        assert!(format(u64::MAX).ends_with('Z'));
    }

    #[test]
    fn a_cursor_gets_ahead_of_the_one_that_was_asked_with() {
        let first = cursor(None);
        assert!(cursor(Some(first)) > first);
        assert!(cursor(Some(first + 1000)) > first + 1000);
        assert!(cursor(Some(0)) >= first);
        assert!(cursor(Some(u64::MAX)) >= first);
    }
}
