//! The state of a log, and the effects of operations on the state: arithmetic on numbers, shared by
//! every memtable.
//!
//! A log's state in one memtable (the memtable, or a run) is a *piece*: the whole bounds of the log
//! as of that memtable, and the log's entries from `base` on. Older memtables hold the entries
//! before `base`. So for a piece `p` and the pieces older than `p`:
//!
//! - the log's bounds are the bounds of the newest piece that knows the log;
//! - a piece holds exactly the entries `max(first, base)..next`;
//! - the entries of older pieces count only below `base`. So trimming, truncating, deleting and
//!   creating a log anew is cheap: none of these operations touches an older memtable.

pub mod commit;
pub mod key;
pub mod keyed_hash;
pub mod pending;
pub mod progress;
pub mod rehearsal;
pub mod retention;
pub mod retention_rule;
pub mod retention_state;
pub mod space_config;

use std::ops::Range;

use brooklet_io::seeded::bug;

/// A log's bounds: it holds the entries `first..next`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Number of the first entry that the log keeps.
    pub first: u64,
    /// Number of the next entry.
    pub next: u64,
}

impl Bounds {
    /// Returns the number of entries in the log.
    pub fn len(&self) -> u64 {
        self.next - self.first
    }

    /// Returns whether the log holds no entry. An empty log still exists and keeps its next number.
    pub fn is_empty(&self) -> bool {
        self.first == self.next
    }
}

/// The effect of a commit on one log, with resolved numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Appends an entry with this number.
    Append(u64),
    /// Drops the entries before this number.
    Trim(u64),
    /// Drops the entries from this number on.
    Truncate(u64),
    /// Deletes the log.
    Delete,
    /// Sets the most entries of the log, plus one; 0: no limit. Creates the log if it does not
    /// exist.
    Entries(u64),
    /// Sets the most bytes of payloads of the log, plus one; 0: no limit.
    Bytes(u64),
    /// Sets the age limit of entries in milliseconds, plus one; 0: no limit.
    Age(u64),
    /// Sets a mark: later entries are committed before this time, in milliseconds since the Unix
    /// epoch.
    Mark(u64),
    /// Sets the bytes of all payloads of the log.
    Held(u64),
    /// Counts the log in the totals of the space with this number.
    Count(u64),
    /// Gives the next entry of an empty log this number, which may be above the log's next number.
    /// Creates the log if it does not exist.
    Begin(u64),
}

/// The bounds and the base of a piece. `bounds` is `None` if the log does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub bounds: Option<Bounds>,
    pub base: u64,
}

impl Piece {
    /// Creates the piece of a memtable that knows the log's bounds and holds none of its entries
    /// yet.
    pub fn on_top_of(bounds: Option<Bounds>) -> Self {
        Self { bounds, base: bounds.map_or(0, |b| b.next) }
    }

    /// Returns the numbers of the entries that this piece holds itself.
    pub fn held(&self) -> Range<u64> {
        self.bounds.map_or(0..0, |b| b.first.max(self.base)..b.next)
    }

    /// Applies an effect. Returns `None`, and changes nothing, if the effect does not fit the
    /// state.
    pub fn apply(&mut self, effect: Effect) -> Option<()> {
        match effect {
            Effect::Append(seq) => {
                let fresh = Bounds { first: 0, next: 0 };
                let bounds = self.bounds.unwrap_or(fresh);
                if bounds.next != seq {
                    return None;
                }
                self.bounds = Some(Bounds { next: seq.checked_add(1)?, ..bounds });
            }
            Effect::Trim(first) => {
                let bounds = self.bounds.filter(|b| b.first <= first && first <= b.next)?;
                self.bounds = Some(Bounds { first, ..bounds });
            }
            Effect::Truncate(next) => {
                let bounds = self.bounds.filter(|b| b.first <= next && next <= b.next)?;
                self.bounds = Some(Bounds { next, ..bounds });
                self.base = if bug("truncation-keeps-older-tiers") { self.base } else { self.base.min(next) };
            }
            Effect::Delete => {
                self.bounds?;
                *self = Self { bounds: None, base: 0 };
            }
            Effect::Begin(next) => {
                if self.bounds.is_some_and(|b| !b.is_empty() || next < b.next) {
                    return None;
                }
                *self = Self::on_top_of(Some(Bounds { first: next, next }));
            }
            Effect::Entries(_) => drop(self.bounds.get_or_insert_default()),
            Effect::Bytes(_) | Effect::Age(_) | Effect::Mark(_) | Effect::Held(_) | Effect::Count(_) => {
                self.bounds?;
            }
        }
        Some(())
    }
}

/// A log, assembled from its pieces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// The log's bounds; `None` if the log does not exist.
    pub bounds: Option<Bounds>,
    /// The entries that each piece contributes, newest piece first: index of the piece, and numbers
    /// of the entries.
    pub parts: Vec<(usize, Range<u64>)>,
    /// The first number that these pieces hold; the log's first number if no older piece is needed.
    pub upper: u64,
}

/// Assembles a log from its pieces, newest first. Stops at the first piece that makes all older
/// pieces irrelevant.
pub(crate) fn resolve(pieces: impl IntoIterator<Item = Piece>) -> Resolved {
    let mut log = Resolved { bounds: None, parts: Vec::new(), upper: 0 };
    for (i, piece) in pieces.into_iter().enumerate() {
        if i == 0 {
            let Some(newest) = piece.bounds else { break };
            log.bounds = Some(newest);
            log.upper = newest.next;
        }
        let first = log.bounds.unwrap_or_default().first;
        let held = piece.held();
        let part = held.start.max(first)..held.end.min(log.upper);
        if !part.is_empty() {
            log.parts.push((i, part));
        }
        log.upper = log.upper.min(piece.base).max(first);
        if log.upper == first {
            break;
        }
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(first: u64, next: u64, base: u64) -> Piece {
        Piece { bounds: Some(Bounds { first, next }), base }
    }

    #[test]
    fn effects_move_the_bounds_and_the_base() {
        let mut p = Piece::on_top_of(Some(Bounds { first: 2, next: 10 }));
        assert_eq!(p.held(), 10..10);
        p.apply(Effect::Append(10)).unwrap();
        assert_eq!((p, p.held()), (piece(2, 11, 10), 10..11));
        p.apply(Effect::Truncate(5)).unwrap();
        p.apply(Effect::Append(5)).unwrap();
        assert_eq!((p, p.held()), (piece(2, 6, 5), 5..6));
        p.apply(Effect::Trim(6)).unwrap();
        assert_eq!(p.held(), 6..6);
        p.apply(Effect::Delete).unwrap();
        assert_eq!(p, Piece { bounds: None, base: 0 });
        p.apply(Effect::Append(0)).unwrap();
        assert_eq!((p, p.held()), (piece(0, 1, 0), 0..1));
        p.apply(Effect::Trim(1)).unwrap();
        p.apply(Effect::Begin(9)).unwrap();
        p.apply(Effect::Append(9)).unwrap();
        assert_eq!((p, p.held()), (piece(9, 10, 9), 9..10));
        let mut begun = Piece::on_top_of(None);
        begun.apply(Effect::Begin(3)).unwrap();
        assert_eq!((begun, begun.held()), (piece(3, 3, 3), 3..3));
    }

    #[test]
    fn an_effect_that_does_not_fit_changes_nothing() {
        let start = piece(2, 10, 10);
        for effect in [
            Effect::Append(9),
            Effect::Append(11),
            Effect::Trim(1),
            Effect::Trim(11),
            Effect::Truncate(1),
            Effect::Truncate(11),
            Effect::Begin(12),
        ] {
            let mut p = start;
            assert_eq!((p.apply(effect), p), (None, start), "{effect:?}");
        }
        let empty = piece(10, 10, 10);
        assert_eq!(empty.clone().apply(Effect::Begin(9)), None, "a number is never used again");
        let mut none = Piece::on_top_of(None);
        for effect in [Effect::Append(1), Effect::Trim(0), Effect::Truncate(0), Effect::Delete] {
            assert_eq!(none.apply(effect), None, "{effect:?}");
        }
    }

    #[test]
    fn older_pieces_count_only_below_the_base_of_newer_ones() {
        // Entries 0..100 in the oldest run, truncated to 50 and appended to 60 in the next, trimmed
        // to 40 in the newest.
        let log = resolve([piece(40, 60, 60), piece(0, 60, 50), piece(0, 100, 0)]);
        assert_eq!((log.bounds, log.upper), (Some(Bounds { first: 40, next: 60 }), 40));
        assert_eq!(log.parts, vec![(1, 50..60), (2, 40..50)]);
        // The log was deleted and created anew: the old entries are dead.
        let log = resolve([piece(0, 3, 0), piece(0, 100, 0)]);
        assert_eq!((log.parts, log.upper), (vec![(0, 0..3)], 0));
        // The log was deleted.
        assert_eq!(resolve([Piece { bounds: None, base: 0 }, piece(0, 100, 0)]).bounds, None);
        // The log was emptied and begins anew at a number that older pieces never held.
        let log = resolve([piece(300, 302, 300), piece(0, 100, 0)]);
        assert_eq!((log.parts, log.upper), (vec![(0, 300..302)], 300));
        // A piece that was not passed holds a part of the log.
        assert_eq!(resolve([piece(5, 9, 8)]).upper, 8);
    }
}
