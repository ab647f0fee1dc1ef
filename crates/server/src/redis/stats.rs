//! The counters of the Redis frontend.

use std::collections::{BTreeMap, VecDeque};

use super::commands::{Spec, TABLE, flags};

/// The counters since the start of the server.
#[derive(Debug)]
pub struct Stats {
    /// Start of the server, by the steady clock, in milliseconds.
    pub since: u64,
    /// Number of clients that connected.
    pub connections: u64,
    /// Number of clients that were refused because too many were connected.
    pub rejected: u64,
    /// Number of clients that had to leave because clients had too much memory.
    pub evicted_clients: u64,
    /// Number of requests.
    pub commands: u64,
    /// Number of keys that expired.
    pub expired: u64,
    /// Number of keys that commands which only read looked for and found, and did not find.
    pub lookups: Lookups,
    /// Number of bytes that clients sent, and that they were sent.
    pub traffic: (u64, u64),
    /// Latencies over the threshold.
    pub events: Events,
    calls: Vec<Calls>,
    errors: BTreeMap<String, u64>,
    samples: VecDeque<Sample>,
}

/// Numbers of keys that were looked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lookups {
    /// Number of keys that were found.
    pub hits: u64,
    /// Number of keys that were not found.
    pub misses: u64,
}

/// The counters of a command.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Number of times that the command ran.
    pub done: u64,
    /// Time that the command ran, in nanoseconds.
    pub nanos: u64,
    /// Number of times that it was refused before it ran: for lack of rights, or of arguments.
    pub rejected: u64,
    /// Number of times that it failed.
    pub failed: u64,
    /// Number of times by duration, once it was measured.
    pub times: Option<Box<Times>>,
}

/// Numbers of calls by duration: number `i` counts calls of less than 1,024 << `i` nanoseconds, and
/// the last one all others.
pub type Times = [u64; 32];

/// The counters at some time, by the steady clock.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: u64,
    commands: u64,
    traffic: (u64, u64),
}

/// Number of samples, and the time between two of them, in milliseconds.
const SAMPLES: usize = 16;
const SAMPLE_EVERY: u64 = 100;

/// What happened in one second, on the average of the last samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Number of requests.
    pub commands: u64,
    /// Number of bytes that clients sent.
    pub input: f64,
    /// Number of bytes that clients were sent.
    pub output: f64,
}

/// Most kinds of errors that are counted separately: clients choose the names of some kinds.
const MOST_KINDS: usize = 128;
/// Longest kind of errors, in bytes; the rest of a longer one is cut.
const MOST_BYTES: usize = 64;

impl Calls {
    /// Counts the time of some calls that ran one after another.
    fn took(&mut self, calls: u64, nanos: u64) {
        self.nanos += nanos;
        let each = nanos / calls.max(1);
        let place = (u64::BITS - (each / 1024).leading_zeros()) as usize;
        let times = self.times.get_or_insert_default();
        times[place.min(times.len() - 1)] += calls;
    }
}

impl Stats {
    /// Creates counters with zeros.
    pub fn new(since: u64) -> Self {
        Self {
            since,
            connections: 0,
            rejected: 0,
            evicted_clients: 0,
            commands: 0,
            expired: 0,
            lookups: Lookups::default(),
            traffic: (0, 0),
            events: Events::default(),
            calls: vec![Calls::default(); TABLE.len()],
            errors: BTreeMap::new(),
            samples: VecDeque::new(),
        }
    }

    /// Returns the counters of a command.
    pub fn of(&mut self, spec: &Spec) -> &mut Calls {
        &mut self.calls[spec.index()]
    }

    /// Counts the time of some calls of a command that ran one after another. `threshold` is the
    /// number of milliseconds from which on a latency is an event; 0: none is. `wall` is the time,
    /// in seconds since the Unix epoch.
    pub fn note_time(&mut self, spec: &Spec, calls: u64, nanos: u64, threshold: u64, wall: u64) {
        self.of(spec).took(calls, nanos);
        let millis = nanos / calls.max(1) / 1_000_000;
        if threshold > 0 && millis >= threshold {
            self.events.note(if spec.has(flags::FAST) { "fast-command" } else { "command" }, wall, millis);
        }
    }

    /// Counts an error reply.
    pub fn note_error(&mut self, error: &str) {
        // Clients choose some kinds, of any length.
        let end = (0..=MOST_BYTES.min(error.len())).rfind(|at| error.is_char_boundary(*at));
        let kind = error[..end.unwrap_or(0)].split(' ').next().unwrap_or_default();
        if let Some(count) = self.errors.get_mut(kind) {
            *count += 1;
        } else if self.errors.len() < MOST_KINDS {
            self.errors.insert(kind.to_owned(), 1);
        }
    }

    /// Returns the counters of each command that was requested.
    pub fn calls(&self) -> impl Iterator<Item = (&'static Spec, &Calls)> {
        let given = |calls: &Calls| calls.done + calls.rejected > 0;
        TABLE.iter().zip(&self.calls).filter(move |(_, n)| given(n))
    }

    /// Returns the number of error replies of each kind.
    pub fn errors(&self) -> impl Iterator<Item = (&str, u64)> {
        self.errors.iter().map(|(kind, n)| (kind.as_str(), *n))
    }

    /// Returns the number of error replies.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Takes a sample of the counters, if the last one is old enough.
    pub fn sample(&mut self, now: u64) {
        if self.samples.back().is_some_and(|last| now.saturating_sub(last.at) < SAMPLE_EVERY) {
            return;
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { at: now, commands: self.commands, traffic: self.traffic });
    }

    /// Returns the rates between the oldest sample and the newest.
    pub fn rates(&self) -> Rates {
        let Some((first, last)) = self.samples.front().zip(self.samples.back()) else {
            return Rates::default();
        };
        let millis = (last.at - first.at).max(1) as f64;
        let rate = |from: u64, to: u64| (to - from) as f64 * 1000.0 / millis;
        Rates {
            commands: rate(first.commands, last.commands) as u64,
            input: rate(first.traffic.0, last.traffic.0),
            output: rate(first.traffic.1, last.traffic.1),
        }
    }

    /// Resets the counters.
    pub fn reset(&mut self) {
        let events = std::mem::take(&mut self.events);
        *self = Self { since: self.since, events, ..Self::new(0) };
    }
}

/// Latencies over the threshold, by the kind of event.
#[derive(Debug, Default)]
pub struct Events(BTreeMap<&'static str, Event>);

/// The latencies of one kind of event.
#[derive(Debug, Default)]
pub struct Event {
    /// The last ones: time in seconds since the Unix epoch, and milliseconds; the oldest first.
    pub history: VecDeque<(u64, u64)>,
    /// The longest, in milliseconds.
    pub longest: u64,
}

/// Number of latencies that are kept of each kind of event.
const HISTORY: usize = 160;

impl Events {
    fn note(&mut self, kind: &'static str, wall: u64, millis: u64) {
        let event = self.0.entry(kind).or_default();
        event.longest = event.longest.max(millis);
        // Those of one second are one.
        if let Some((_, last)) = event.history.back_mut().filter(|(at, _)| *at == wall) {
            *last = millis.max(*last);
            return;
        }
        if event.history.len() == HISTORY {
            event.history.pop_front();
        }
        event.history.push_back((wall, millis));
    }

    /// Returns all kinds of events.
    pub fn all(&self) -> impl ExactSizeIterator<Item = (&'static str, &Event)> {
        self.0.iter().map(|(kind, event)| (*kind, event))
    }

    /// Returns the latencies of a kind of event.
    pub fn of(&self, kind: &[u8]) -> Option<&Event> {
        self.0.get(std::str::from_utf8(kind).ok()?)
    }

    /// Forgets the events of some kinds, or of all if none is named; returns the number of kinds.
    pub fn forget(&mut self, kinds: &[bytes::Bytes]) -> usize {
        let before = self.0.len();
        self.0.retain(|kind, _| !kinds.is_empty() && !kinds.iter().any(|named| *named == *kind));
        before - self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::commands::find;

    #[test]
    fn kinds_of_errors_are_short() {
        let mut stats = Stats::new(0);
        for text in ["A".repeat(1000), "é".repeat(100), "A".repeat(64), "ERR what".into()] {
            stats.note_error(&text);
        }
        let kinds: Vec<(&str, u64)> = stats.errors().collect();
        let (long, wide) = ("A".repeat(64), "é".repeat(32));
        assert_eq!(kinds, [(&long[..], 2), ("ERR", 1), (&wide[..], 1)]);
    }

    #[test]
    fn durations_and_rates_are_what_was_measured() {
        let mut stats = Stats::new(0);
        let get = find(b"get").unwrap();
        stats.note_time(get, 1, 1_000, 0, 7);
        stats.note_time(get, 3, 3 * 5_000, 0, 7);
        stats.note_time(get, 1, u64::MAX / 2, 0, 7);
        let times = stats.of(get).times.clone().unwrap();
        assert_eq!((times[0], times[3], times[31]), (1, 3, 1));
        assert_eq!(stats.events.all().len(), 0);
        stats.note_time(get, 1, 12_000_000, 10, 7);
        stats.note_time(get, 1, 11_000_000, 10, 7);
        stats.note_time(get, 1, 15_000_000, 10, 8);
        let event = stats.events.of(b"fast-command").unwrap();
        assert_eq!(
            (event.history.iter().copied().collect::<Vec<_>>(), event.longest),
            (vec![(7, 12), (8, 15)], 15)
        );
        assert_eq!(stats.events.forget(&[bytes::Bytes::from_static(b"other")]), 0);
        assert_eq!(stats.events.forget(&[]), 1);
        for at in 0..30 {
            stats.sample(at * 100);
            stats.sample(at * 100 + 1);
            stats.commands += 50;
            stats.traffic.0 += 100;
        }
        assert_eq!(stats.rates(), Rates { commands: 500, input: 1000.0, output: 0.0 });
    }
}
