//! The marks of a watcher: the changes since its reader looked, in bounded memory.

use std::collections::BTreeMap;

use brooklet_io::seeded::bug;

use crate::model::{Bounds, Effect};
use crate::state::watchers::registry::{ByKey, Registry};

/// The changes that a reader has not looked at yet.
pub(crate) trait Marks: Sized {
    /// Returns the watchers with such marks.
    fn watchers(registry: &mut Registry) -> &mut ByKey<Self>;

    /// Returns whether the reader has to look.
    fn is_marked(&self) -> bool;

    /// Takes the marks, and leaves none.
    fn take(&mut self) -> Self;
}

/// The changes of one log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogMarks {
    /// Whether the log may have other entries than at the last look.
    pub changed: bool,
    /// Whether the log was deleted.
    pub deleted: bool,
    /// The lowest number from which the log was truncated, since its deletion if it was deleted.
    pub truncated: Option<u64>,
    /// The highest next number that the log had.
    pub reached: u64,
}

impl Marks for LogMarks {
    fn watchers(registry: &mut Registry) -> &mut ByKey<Self> {
        &mut registry.logs
    }

    fn is_marked(&self) -> bool {
        self.changed
    }

    fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

impl LogMarks {
    pub fn mark(&mut self, effect: Effect) {
        match effect {
            Effect::Append(_) if bug("wait-misses-what-is-gone") => {}
            Effect::Append(seq) => self.reached = self.reached.max(seq + 1),
            Effect::Truncate(_) if bug("tail-misses-a-truncation") => {}
            Effect::Truncate(from) => {
                self.truncated = Some(self.truncated.map_or(from, |other| other.min(from)));
            }
            Effect::Delete => (self.deleted, self.truncated) = (true, None),
            Effect::Begin(next) => self.reached = self.reached.max(next),
            Effect::Trim(_) if bug("tail-wakes-for-a-trim") => {}
            // Readers see the entries that are left at their next look.
            Effect::Trim(_)
            | Effect::Entries(_)
            | Effect::Bytes(_)
            | Effect::Age(_)
            | Effect::Mark(_)
            | Effect::Held(_)
            | Effect::Count(_) => return,
        }
        self.changed = true;
    }

    /// Marks that the log may have changed.
    pub fn mark_unknown(&mut self) {
        self.changed = true;
    }
}

/// The logs that changed, at most `most` of them.
#[derive(Debug)]
pub(crate) struct PrefixMarks {
    /// The logs, with their bounds after the last change; `None` if the log was deleted.
    pub logs: BTreeMap<Box<[u8]>, Option<Bounds>>,
    /// Whether more logs changed than the reader stores; `logs` is then empty.
    pub missed: bool,
    most: usize,
}

impl Marks for PrefixMarks {
    fn watchers(registry: &mut Registry) -> &mut ByKey<Self> {
        &mut registry.prefixes
    }

    fn is_marked(&self) -> bool {
        self.missed || !self.logs.is_empty()
    }

    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.most))
    }
}

impl PrefixMarks {
    pub fn new(most: usize) -> Self {
        Self { logs: BTreeMap::new(), missed: false, most }
    }

    pub fn set_limit(&mut self, most: usize) {
        self.most = most;
    }

    /// Returns whether an effect moves a log, or may create it.
    pub fn counts(effect: Effect) -> bool {
        !matches!(effect, Effect::Mark(_) | Effect::Held(_) | Effect::Count(_))
    }

    pub fn mark(&mut self, key: &[u8], bounds: Option<Bounds>) {
        if self.missed {
            return;
        }
        let first = |bounds: Bounds| if bug("watch-forgets-the-first") { 0 } else { bounds.first };
        let bounds = bounds.map(|bounds| Bounds { first: first(bounds), ..bounds });
        let most = if bug("watch-misses-too-early") { self.most / 2 } else { self.most };
        if let Some(known) = self.logs.get_mut(key) {
            *known = bounds;
        } else if self.logs.len() < most {
            self.logs.insert(key.into(), bounds);
        } else {
            self.mark_unknown();
        }
    }

    /// Marks that any of the logs may have changed.
    pub fn mark_unknown(&mut self) {
        (self.missed, self.logs) = (true, BTreeMap::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_a_log_add_up() {
        let mut marks = LogMarks::default();
        marks.mark(Effect::Trim(3));
        assert!(!marks.is_marked(), "a trim adds nothing to read");
        for effect in [Effect::Append(6), Effect::Truncate(4), Effect::Truncate(5), Effect::Append(5)] {
            marks.mark(effect);
        }
        let wanted = LogMarks { changed: true, deleted: false, truncated: Some(4), reached: 7 };
        assert_eq!((marks.take(), marks.is_marked()), (wanted, false));
        for effect in [Effect::Truncate(4), Effect::Delete, Effect::Append(0)] {
            marks.mark(effect);
        }
        assert_eq!(marks, LogMarks { changed: true, deleted: true, truncated: None, reached: 1 });
    }

    #[test]
    fn marks_of_many_logs_are_bounded() {
        let at = |next| Some(Bounds { first: 0, next });
        let mut marks = PrefixMarks::new(2);
        for (key, bounds) in [("a", at(1)), ("b", at(1)), ("a", at(2)), ("b", None)] {
            marks.mark(key.as_bytes(), bounds);
        }
        let taken = marks.take();
        assert_eq!(taken.logs.values().copied().collect::<Vec<_>>(), [at(2), None]);
        ["a", "b", "c", "a"].iter().for_each(|key| marks.mark(key.as_bytes(), at(3)));
        assert!(marks.is_marked() && marks.missed && marks.logs.is_empty());
        assert!(marks.take().missed && !marks.is_marked());
    }
}
