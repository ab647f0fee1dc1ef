//! `read`: the entries that a log has, once. Where the writer of the store replaces what is still
//! to be read, reading goes on at a later moment, and a note says what the log lost in between.

use std::ops::{Bound, Range};

use brooklet::{Entry, Store};

use super::{Read, notes};
use crate::beside::{Reader, Stop};
use crate::failure::Failure;

/// The entries that are still to be printed.
struct Rest<'a> {
    args: &'a Read,
    /// Numbers of entries; `None` before the log was found.
    range: Option<Range<u64>>,
    left: usize,
}

/// Prints the entries of a log.
pub fn print(
    args: &Read,
    reader: &mut Reader<'_>,
    mut put: impl FnMut(&Entry) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut rest = Rest { args, range: None, left: args.limit.unwrap_or(usize::MAX) };
    loop {
        match rest.print(reader.store(), &mut put) {
            Err(Stop::Replaced(_)) => {
                let cut = reader.reopen_log(args.log.key())?;
                cut.into_iter().for_each(|cut| rest.cut(cut));
            }
            printed => return Ok(printed?),
        }
    }
}

impl Rest<'_> {
    /// Prints the entries that the store has.
    fn print(
        &mut self,
        store: &Store,
        put: &mut impl FnMut(&Entry) -> Result<(), Failure>,
    ) -> Result<(), Stop> {
        let Read { log, from, to, reverse, .. } = self.args;
        let mut entries = match &self.range {
            None => {
                let from = from.map_or(Bound::Unbounded, Bound::Included);
                store.read(log.key(), (from, to.map_or(Bound::Unbounded, Bound::Excluded)))?
            }
            Some(range) => store.read_available(log.key(), range.clone())?,
        };
        let found = entries.range();
        match self.range.take() {
            None => self.range = Some(found),
            Some(range) => {
                self.note(&range, &found);
                self.range = Some(found);
            }
        }
        while self.left > 0 {
            // Behind the last entry, an error may report damage.
            let Some(entry) = (if *reverse { entries.next_back() } else { entries.next() }) else { break };
            let entry = entry?;
            put(&entry)?;
            let range = self.range.as_mut().expect("the log was found");
            match reverse {
                true => range.end = entry.seq,
                false => range.start = entry.seq + 1,
            }
            self.left -= 1;
        }
        Ok(())
    }

    /// Says which entries of a range the log does not have any more.
    fn note(&self, range: &Range<u64>, found: &Range<u64>) {
        if found.start > range.start {
            notes::trimmed(range.start..found.start.min(range.end));
        }
        match self.args.reverse {
            true if found.end < range.end => notes::cut_below(found.end),
            false if found.start < range.start => notes::cut(found.start),
            _ => {}
        }
    }

    /// Goes on after the log has lost its entries from `cut` on, and may have others there. Those
    /// that were not printed yet are read as they are now.
    fn cut(&mut self, cut: u64) {
        let Read { from, to, reverse, .. } = self.args;
        let Some(range) = &mut self.range else { return };
        if *reverse && cut < range.end {
            range.end = cut.max(range.start);
            notes::cut_below(range.end);
        }
        if !*reverse && cut < range.start {
            *range = cut.max(from.unwrap_or(0))..to.unwrap_or(u64::MAX);
            notes::cut(range.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::Log;
    use crate::testing::{ALONE, Place};

    /// Reads a log of 40 entries that begin with 1. Before the third printed entry, `change` works
    /// on the store, which then replaces all runs. Returns the number and first byte of each
    /// printed entry.
    fn read_while(set: fn(&mut Read), change: fn(&Place)) -> Vec<(u64, u8)> {
        let place = Place::new();
        place.append("log", 40, 1);
        let log = Log { store: place.path.clone(), log: "log".into() };
        let (from, to, limit) = (None, None, None);
        let mut args = Read { log, from, to, reverse: false, limit, raw: true, follow: false };
        set(&mut args);
        let mut reader = Reader::open_beside(&place.path, &ALONE).unwrap();
        let opened = reader.store().info().unwrap().generation;
        let mut printed = Vec::new();
        print(&args, &mut reader, |Entry { seq, payload }| {
            printed.push((*seq, payload[0]));
            if printed.len() == 3 {
                change(&place);
                place.merge();
            }
            Ok(())
        })
        .unwrap();
        assert_ne!(reader.store().info().unwrap().generation, opened, "nothing was replaced");
        printed
    }

    /// Splits what was printed where the reader went on at a later moment: the numbers there do
    /// not follow one another, or the entries begin with another byte.
    fn moments(printed: &[(u64, u8)]) -> Vec<(u64, u64, u8)> {
        let next = |a: &(u64, u8), b: &(u64, u8)| a.0.abs_diff(b.0) == 1 && a.1 == b.1;
        printed.chunk_by(next).map(|part| (part[0].0, part[part.len() - 1].0, part[0].1)).collect()
    }

    fn remade(place: &Place) {
        place.store.delete("log").unwrap().wait().unwrap();
        place.append("log", 5, 2);
    }

    fn regrown(place: &Place, from: u64, entries: u64) {
        place.store.truncate("log", from).unwrap().wait().unwrap();
        place.append("log", entries, 2);
    }

    #[test]
    fn reading_goes_on_when_the_runs_are_replaced() {
        assert_eq!(moments(&read_while(|_| {}, |_| {})), [(0, 39, 1)]);
        assert_eq!(moments(&read_while(|args| args.reverse = true, |_| {})), [(39, 0, 1)]);
        let part = |args: &mut Read| (args.from, args.to, args.limit) = (Some(5), Some(35), Some(28));
        assert_eq!(moments(&read_while(part, |_| {})), [(5, 32, 1)]);
    }

    #[test]
    fn a_log_that_is_trimmed_meanwhile_is_read_on() {
        let trim = |place: &Place| drop(place.store.trim("log", 30).unwrap());
        let [(0, last, 1), (30, 39, 1)] = moments(&read_while(|_| {}, trim))[..] else { panic!() };
        assert!((2..29).contains(&last), "{last}");
        let [(39, last, 1)] = moments(&read_while(|args| args.reverse = true, trim))[..] else { panic!() };
        assert!(last <= 30, "{last}");
        let part = |args: &mut Read| args.to = Some(20);
        let [(0, last, 1)] = moments(&read_while(part, trim))[..] else { panic!() };
        assert!(last < 20, "{last}");
    }

    #[test]
    fn a_log_that_is_deleted_meanwhile_ends() {
        let delete = |place: &Place| drop(place.store.delete("log").unwrap());
        let [(0, last, 1)] = moments(&read_while(|_| {}, delete))[..] else { panic!() };
        assert!(last < 39, "{last}");
        let [(39, last, 1)] = moments(&read_while(|args| args.reverse = true, delete))[..] else { panic!() };
        assert!(last > 0, "{last}");
    }

    #[test]
    fn another_log_with_the_same_key_is_read_from_its_beginning() {
        let [(0, last, 1), (0, 4, 2)] = moments(&read_while(|_| {}, remade))[..] else { panic!() };
        assert!(last < 39, "{last}");
        let part = |args: &mut Read| args.from = Some(3);
        let [(3, _, 1), (3, 4, 2)] = moments(&read_while(part, remade))[..] else { panic!() };
        // No entry of the other log is among those that are read backwards.
        let [(39, _, 1)] = moments(&read_while(|args| args.reverse = true, remade))[..] else { panic!() };
    }

    #[test]
    fn a_log_that_is_cut_and_grows_again_meanwhile_is_read_on_at_the_cut() {
        let behind = |place: &Place| regrown(place, 38, 4);
        assert_eq!(moments(&read_while(|_| {}, behind)), [(0, 37, 1), (38, 39, 2)]);
        let before = |place: &Place| regrown(place, 1, 5);
        let [(0, last, 1), (1, 5, 2)] = moments(&read_while(|_| {}, before))[..] else { panic!() };
        assert!(last < 39, "{last}");
        let reverse = |args: &mut Read| args.reverse = true;
        let [(39, _, 1), (0, 0, 1)] = moments(&read_while(reverse, before))[..] else { panic!() };
        assert_eq!(moments(&read_while(reverse, behind)), [(39, 0, 1)]);
    }
}
