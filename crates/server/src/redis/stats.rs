//! What is counted of the Redis face.

use std::collections::BTreeMap;

use super::commands::{Spec, TABLE};

/// Counters since the server started.
#[derive(Debug)]
pub struct Stats {
    /// When it started, in milliseconds since the Unix epoch.
    pub since: u64,
    /// Clients that came.
    pub connections: u64,
    /// Clients that were too many.
    pub rejected: u64,
    /// Requests.
    pub commands: u64,
    /// Keys that expired.
    pub expired: u64,
    calls: Vec<u64>,
    errors: BTreeMap<String, u64>,
}

/// Kinds of errors that are told apart: clients name them.
const MOST_KINDS: usize = 128;

impl Stats {
    /// Nothing yet.
    pub fn new(since: u64) -> Self {
        let (calls, errors) = (vec![0; TABLE.len()], BTreeMap::new());
        Self { since, connections: 0, rejected: 0, commands: 0, expired: 0, calls, errors }
    }

    /// A command is done.
    pub fn note_call(&mut self, spec: &Spec) {
        self.calls[spec.index()] += 1;
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

    /// How often each command was done, of those that were.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, u64)> {
        TABLE.iter().zip(&self.calls).filter(|(_, n)| **n > 0).map(|(spec, n)| (spec.name, *n))
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
