//! Looks up missing sizes of an `EntrySizes` in the runs, without the state's lock.
//!
//! Damage must not block commits on a log, least of all when the damaged entries are about to be
//! dropped. Damaged entries therefore count with an equal share of the bytes that no other entry
//! explains. Readers and the tracing log still report the damage. If the device fails a read, a
//! later read may succeed, and a guess could drop entries that the log must keep: in this case, the
//! commit is refused.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, KeyText};
use crate::format::run_entry::Head;
use crate::memtable::entry_sizes::{SizeAnswer, SizeQuery};
use crate::memtable::size_span::Span;
use crate::model::{Bounds, Piece, resolve};
use crate::run::{Run, RunSet};

/// Maximum number of chunks that one lookup reads, so that no run is held for longer. Many lookups
/// for one commit end after about as many. The sizes that were read are kept.
pub(crate) const AT_ONCE: usize = 1024;

/// Returns the number of chunks after which so many lookups for one commit end. The commit is then
/// planned again as a whole, under the lock: of very many logs, a quarter is looked up at once.
pub(crate) fn most_at_once(lookups: usize) -> usize {
    AT_ONCE.max(lookups / 4)
}

/// Entries of a log that a run holds.
struct Part {
    range: Range<u64>,
    run: Arc<Run>,
    head: Head,
}

impl SizeQuery {
    /// Looks up the sizes, or a part of them.
    pub fn look(&self, runs: &RunSet, key: &[u8]) -> Result<SizeAnswer, Error> {
        let (mut rest, mut sum, mut spans) = (self.range.clone(), 0, Vec::new());
        let parts = match twice(|| self.parts(runs, key)) {
            Err(error @ Error::Damaged { .. }) => {
                spans.push(self.give_up(key, rest.clone(), &error));
                rest = 0..0;
                Vec::new()
            }
            parts => parts?,
        };
        while !rest.is_empty() && sum <= self.enough && spans.len() < AT_ONCE {
            let at = if self.newest { rest.end - 1 } else { rest.start };
            let part =
                parts.iter().find(|part| part.range.contains(&at)).expect("they hold all that is missing");
            let mut span = match twice(|| part.sizes(key, at)) {
                Err(error @ Error::Damaged { .. }) => match self.damaged(key, at, part)? {
                    range if range.is_empty() => continue,
                    range => self.give_up(key, range, &error),
                },
                sizes => sizes?,
            };
            sum += span.bytes;
            if sum <= self.enough && !span.is_damaged() {
                span.forget_sizes();
            }
            // The bytes of damaged entries are not known here, so the lookup ends.
            rest = match (span.is_damaged(), self.newest) {
                (true, _) => 0..0,
                (false, true) => rest.start..span.range.start,
                (false, false) => span.range.end..rest.end,
            };
            spans.push(span);
        }
        Ok(SizeAnswer { missing: self.clone(), spans })
    }

    /// Returns the runs that hold the missing entries.
    fn parts(&self, runs: &RunSet, key: &[u8]) -> Result<Vec<Part>, Error> {
        let Range { start, end } = self.range;
        let heads = runs.heads(key, Some(start), end)?;
        let newer = Piece { bounds: Some(Bounds { first: start, next: end }), base: end };
        let found = resolve(std::iter::once(newer).chain(heads.iter().map(|(_, head)| head.piece))).parts;
        let mut heads: Vec<_> = heads.into_iter().map(Some).collect();
        let parts = found.into_iter().filter_map(|(i, range)| {
            let (run, head) = heads[i.checked_sub(1)?].take()?;
            Some(Part { range, run, head })
        });
        let parts: Vec<Part> = parts.collect();
        // The parts are sorted from the newest to the oldest.
        let start_of =
            parts.iter().try_fold(end, |at, part| (part.range.end == at).then_some(part.range.start));
        if start_of == Some(start) {
            return Ok(parts);
        }
        let what = format!("some entries from {start} to {end} (exclusive) are in no run");
        Err(Error::damaged(format!("log {}", KeyText::of(key)), what))
    }

    /// Returns a span of damaged entries, and logs a warning.
    fn give_up(&self, key: &[u8], range: Range<u64>, error: &Error) -> Span {
        let log = key.escape_ascii();
        let why =
            "entries of a log are damaged; the store estimates their size to apply the byte limit of the log";
        tracing::warn!(%log, from = range.start, to = range.end, %error, "{why}");
        Span::damaged(range)
    }

    /// Returns the damaged entries from `at` on, in the direction of the lookup. Tries some of
    /// them, all of which are damaged. Returns an empty range if the entry at `at` can be read by
    /// now.
    fn damaged(&self, key: &[u8], at: u64, part: &Part) -> Result<Range<u64>, Error> {
        let range = self.range.start.max(part.range.start)..self.range.end.min(part.range.end);
        // `end`, `bad` and `good` count entries from `at` on.
        let end = if self.newest { at + 1 - range.start } else { range.end - at };
        let (mut bad, mut good, mut step) = (0, end, 1);
        while good > bad + 1 {
            let tried = if good == end { (bad + step).min(end - 1) } else { bad + (good - bad) / 2 };
            step *= 2;
            let read = part.sizes(key, if self.newest { at - tried } else { at + tried });
            match read {
                Ok(span) if self.newest => good = (at + 1).saturating_sub(span.range.end),
                Ok(span) => good = span.range.start.saturating_sub(at),
                Err(Error::Damaged { .. }) => bad = tried,
                Err(error) => return Err(error),
            }
        }
        Ok(if self.newest { at + 1 - good..at + 1 } else { at..at + good })
    }
}

/// Repeats a read of damaged data, because the data may be damaged only on its way from the device.
fn twice<T>(read: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    match read() {
        Err(Error::Damaged { .. }) => read(),
        done => done,
    }
}

impl Part {
    /// Returns the sizes of the entries in the chunk that holds `seq`, as far as they count.
    fn sizes(&self, key: &[u8], seq: u64) -> Result<Span, Error> {
        let in_head = self.head.chunk.range().contains(&seq);
        let chunk = if in_head { self.head.chunk.clone() } else { self.run.chunk(key, seq)? };
        let range = chunk.range().start.max(self.range.start)..chunk.range().end.min(self.range.end);
        Ok(Span::each(range.start, range.map(|seq| chunk.payload_bytes(seq).len() as u32).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In an earlier state there were a thousand, and each planned the commit on a million logs.
    #[test]
    fn few_tries_look_up_the_sizes_of_very_many_logs() {
        let (mut missing, mut tries) = (1_000_000_usize, 0);
        while missing > 0 {
            missing = missing.saturating_sub(most_at_once(missing));
            tries += 1;
        }
        assert!(tries < 30, "{tries} tries");
    }
}
