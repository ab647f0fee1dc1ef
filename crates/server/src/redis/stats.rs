//! The counters of the Redis frontend.

use std::collections::BTreeMap;

use super::commands::{Spec, TABLE};

/// The counters since the start of the server.
#[derive(Debug)]
pub struct Stats {
    /// Start of the server, by the steady clock, in milliseconds.
    pub since: u64,
    /// Number of clients that connected.
    pub connections: u64,
    /// Number of clients that were refused because too many were connected.
    pub rejected: u64,
    /// Number of requests.
    pub commands: u64,
    /// Number of keys that expired.
    pub expired: u64,
    calls: Vec<Calls>,
    errors: BTreeMap<String, u64>,
}

/// The counters of a command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    /// Number of times that the command ran.
    pub done: u64,
    /// Number of times that its client had to wait.
    pub waited: u64,
    /// Number of times that it was refused before it ran: for lack of rights, or of arguments.
    pub rejected: u64,
    /// Number of times that it failed.
    pub failed: u64,
}

/// Most kinds of errors that are counted separately: clients choose the names of some kinds.
const MOST_KINDS: usize = 128;

impl Stats {
    /// Creates counters with zeros.
    pub fn new(since: u64) -> Self {
        let (calls, errors) = (vec![Calls::default(); TABLE.len()], BTreeMap::new());
        Self { since, connections: 0, rejected: 0, commands: 0, expired: 0, calls, errors }
    }

    /// Returns the counters of a command.
    pub fn of(&mut self, spec: &Spec) -> &mut Calls {
        &mut self.calls[spec.index()]
    }

    /// Counts an error reply.
    pub fn note_error(&mut self, error: &str) {
        let kind = error.split(' ').next().unwrap_or_default();
        if let Some(count) = self.errors.get_mut(kind) {
            *count += 1;
        } else if self.errors.len() < MOST_KINDS {
            self.errors.insert(kind.to_owned(), 1);
        }
    }

    /// Returns the counters of each command that was requested.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, Calls)> {
        let given = |calls: &Calls| calls.done + calls.rejected > 0;
        TABLE.iter().zip(&self.calls).filter(move |(_, n)| given(n)).map(|(spec, n)| (spec.name, *n))
    }

    /// Returns the number of error replies of each kind.
    pub fn errors(&self) -> impl Iterator<Item = (&str, u64)> {
        self.errors.iter().map(|(kind, n)| (kind.as_str(), *n))
    }

    /// Returns the number of error replies.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Resets the counters.
    pub fn reset(&mut self) {
        *self = Self { since: self.since, ..Self::new(0) };
    }
}
