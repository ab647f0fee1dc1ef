//! The changes of keys by a command, for notifications. Nothing is recorded while nobody listens.

use super::cache::SlotId;
use super::names::LogKey;
use super::{Keyspace, names};

/// A key that changed before this number of other keys is told of again.
const NEAR: usize = 64;

/// The keys of a command.
#[derive(Default)]
pub struct Trace {
    /// Keys that changed, and whether each existed before that change.
    touched: Vec<(SlotId, bool)>,
    /// Keys that had expired.
    expired: Vec<SlotId>,
    /// Keys that were looked for and do not exist.
    pub missed: Vec<LogKey>,
    /// Streams that lost their oldest entries.
    trimmed: Vec<SlotId>,
    /// Streams of which a group got a new consumer.
    joined: Vec<SlotId>,
}

/// A key that a command changed.
#[derive(Debug)]
pub struct Traced {
    /// Plain log of the key.
    pub key: LogKey,
    /// Whether the key existed before the command.
    pub was_there: bool,
    /// Whether it exists now.
    pub is_there: bool,
    /// Whether the key had expired, and the command did nothing else with it.
    pub only_expired: bool,
    /// Whether the key had expired.
    pub has_expired: bool,
    /// Whether the stream lost its oldest entries.
    pub is_trimmed: bool,
    /// Whether a group of the stream got a new consumer.
    pub is_joined: bool,
}

impl Traced {
    /// Returns the database of the key.
    pub fn database(&self) -> &[u8] {
        names::database(&self.key)
    }

    /// Returns the name of the key.
    pub fn name(&self) -> &[u8] {
        names::name(&self.key)
    }
}

impl Keyspace {
    /// Begins or ends to record.
    pub fn set_trace(&mut self, records: bool) {
        if records != self.trace.is_some() {
            self.trace = records.then(Box::default);
        }
    }

    /// Takes what was recorded: the keys that changed, in the order of their first changes, and
    /// those that were missed.
    pub fn take_trace(&mut self) -> (Vec<Traced>, Vec<LogKey>) {
        let Some(trace) = self.trace.as_mut().map(std::mem::take) else { return Default::default() };
        let mut all: Vec<(SlotId, bool, usize)> = Vec::new();
        for (id, was_there) in trace.touched {
            match all.iter_mut().rev().take(NEAR).find(|(known, ..)| *known == id) {
                Some((.., times)) => *times += 1,
                None => all.push((id, was_there, 1)),
            }
        }
        let told = all.into_iter().filter_map(|(id, was_there, times)| {
            let slot = self.cache.peek(id)?;
            let has_expired = trace.expired.contains(&id);
            Some(Traced {
                key: slot.key.clone(),
                was_there: was_there && !has_expired,
                is_there: slot.value.is_there(),
                only_expired: has_expired && times == 1,
                has_expired,
                is_trimmed: trace.trimmed.contains(&id),
                is_joined: trace.joined.contains(&id),
            })
        });
        (told.collect(), trace.missed)
    }

    pub(super) fn trace_touch(&mut self, id: SlotId, was_there: bool) {
        if let Some(trace) = &mut self.trace {
            trace.touched.push((id, was_there));
        }
    }

    pub(super) fn trace_expired(&mut self, id: SlotId) {
        if let Some(trace) = &mut self.trace {
            trace.expired.push(id);
        }
    }

    pub(super) fn trace_miss(&mut self, id: SlotId) {
        let key = self.key(id).clone();
        if let Some(trace) = &mut self.trace {
            trace.missed.push(key);
        }
    }

    pub(super) fn trace_trim(&mut self, id: SlotId) {
        if let Some(trace) = &mut self.trace {
            trace.trimmed.push(id);
        }
    }

    pub(super) fn trace_join(&mut self, id: SlotId) {
        if let Some(trace) = &mut self.trace {
            trace.joined.push(id);
        }
    }
}
