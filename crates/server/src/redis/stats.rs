//! The counters of the Redis frontend.

use std::collections::BTreeMap;

use super::commands::{Spec, TABLE};

/// Counters since the server started.
#[derive(Debug)]
pub struct Stats {
    /// When it started, by the steady clock, in milliseconds.
    pub since: u64,
    /// Clients that came.
    pub connections: u64,
    /// Clients that were too many.
    pub rejected: u64,
    /// Requests.
    pub commands: u64,
    /// Keys that expired.
    pub expired: u64,
    calls: Vec<Calls>,
    errors: BTreeMap<String, u64>,
}

/// What is counted of a command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    /// How often it was done.
    pub done: u64,
    /// How often its client had to wait.
    pub waited: u64,
    /// How often it was not begun: for want of rights, or of arguments.
    pub rejected: u64,
    /// How often it failed.
    pub failed: u64,
}

/// Kinds of errors that are told apart: clients name them.
const MOST_KINDS: usize = 128;

impl Stats {
    /// Nothing yet.
    pub fn new(since: u64) -> Self {
        let (calls, errors) = (vec![Calls::default(); TABLE.len()], BTreeMap::new());
        Self { since, connections: 0, rejected: 0, commands: 0, expired: 0, calls, errors }
    }

    /// What is counted of a command.
    pub fn of(&mut self, spec: &Spec) -> &mut Calls {
        &mut self.calls[spec.index()]
    }

    /// An error is told.
    pub fn note_error(&mut self, error: &str) {
        let kind = error.split(' ').next().unwrap_or_default();
        if let Some(count) = self.errors.get_mut(kind) {
            *count += 1;
        } else if self.errors.len() < MOST_KINDS {
            self.errors.insert(kind.to_owned(), 1);
        }
    }

    /// What is counted of each command that was given.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, Calls)> {
        let given = |calls: &Calls| calls.done + calls.rejected > 0;
        TABLE.iter().zip(&self.calls).filter(move |(_, n)| given(n)).map(|(spec, n)| (spec.name, *n))
    }

    /// How often each kind of error was told.
    pub fn errors(&self) -> impl Iterator<Item = (&str, u64)> {
        self.errors.iter().map(|(kind, n)| (kind.as_str(), *n))
    }

    /// Errors that were told.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Forgets the counts.
    pub fn reset(&mut self) {
        *self = Self { since: self.since, ..Self::new(0) };
    }
}
