//! Merging sorted sources into one sequence, range by range.
//!
//! The ranges are known beforehand: each source has reported the entries with which its ranges
//! begin. So any free thread can merge and pack each range alone. The sources hold a few sorted
//! sequences of a range. These fit into a core's cache, so sorting them again takes less time than
//! merging them.

use std::ops::ControlFlow;

use crate::arena::Arena;
use crate::block::shared_len;
use crate::error::{Error, Result};
use crate::filter::key_hash;
use crate::options::{BuilderOptions, Duplicates, FileOptions};
use crate::pack::{Packed, Packer};
use crate::progress::{OnProgress, Progress, report};
use crate::sort::{Entry, RANGE, Slot, Sorted, entry_at, prefix, put_entry, settle, settled, sort_slots};
use crate::spill::Spill;
use crate::turns::in_turns;

/// Average bytes of each source on the medium for a range that is merged in one job: each range
/// costs a read, and some of the bytes read belong to its neighbours.
const READ: usize = 128 << 10;
/// Memory for each byte of the ranges that a thread merges: the entries read, their slots, and the
/// results that wait for their turn.
const MERGING: usize = 6;
/// Number of low bits of a place, which hold the position of an entry in its source.
const WITHIN: u32 = 40;

/// Sources in the order in which their entries came.
pub(crate) struct Merge<'a> {
    spill: Option<&'a Spill>,
    sorted: &'a [Sorted],
    options: &'a BuilderOptions,
    rule: Duplicates,
    /// The keys with which ranges begin, in order.
    cuts: Vec<&'a [u8]>,
    /// Number of ranges in one job.
    at_once: usize,
    /// Length of the common prefix of all keys, in bytes.
    shared: usize,
}

/// Memory in which a thread merges.
#[derive(Default)]
pub(crate) struct Room {
    /// Entries read from the medium.
    loaded: Arena,
    slots: Vec<Slot>,
    spare: Vec<Slot>,
}

impl<'a> Merge<'a> {
    pub fn new(
        spill: Option<&'a Spill>,
        sorted: &'a [Sorted],
        options: &'a FileOptions,
        threads: usize,
    ) -> Self {
        let stretches = spill.map_or(&[][..], |spill| &spill.stretches);
        let spilled = spill.into_iter().flat_map(Spill::cuts);
        let mut cuts: Vec<&[u8]> = spilled.chain(sorted.iter().flat_map(Sorted::cuts)).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let ends = spill.into_iter().flat_map(|spill| stretches.iter().filter_map(|each| spill.ends(each)));
        let ends: Vec<_> = ends.chain(sorted.iter().filter_map(Sorted::ends)).collect();
        let (first, last) = (ends.iter().map(|ends| ends.0).min(), ends.iter().map(|ends| ends.1).max());
        let shared = first.zip(last).map_or(0, |(first, last)| shared_len(first, last));
        let at_once = at_once(stretches.len(), options.memory, threads);
        Merge { spill, sorted, options: &options.blocks, rule: options.duplicates, cuts, at_once, shared }
    }

    /// Returns the number of jobs.
    fn jobs(&self) -> usize {
        (self.cuts.len() + 1).div_ceil(self.at_once)
    }

    /// Returns the last key; `None` without entries.
    pub fn last(&self) -> Option<Vec<u8>> {
        let stretches =
            self.spill.iter().flat_map(|spill| spill.stretches.iter().filter_map(|it| spill.ends(it)));
        stretches.chain(self.sorted.iter().filter_map(Sorted::ends)).map(|ends| ends.1.to_vec()).max()
    }

    /// Merges everything with `threads` threads, and passes the result to `take`, in order.
    pub fn run(
        &self,
        threads: usize,
        progress: &mut Progress,
        on_progress: &mut Option<OnProgress>,
        mut take: impl FnMut(Packed) -> Result<()> + Send,
    ) -> Result<()> {
        (progress.merged, progress.to_merge) = (0, self.jobs() as u64);
        let work = |job, room: &mut Room| self.pack(job, room);
        in_turns(self.jobs(), threads, work, |packed| {
            progress.merged += 1;
            report(on_progress, progress)?;
            take(packed)
        })?;
        (progress.merged, progress.to_merge) = (0, 0);
        Ok(())
    }

    /// Merges everything with `threads` threads, and passes each entry to `visit`, in order.
    pub fn visit(
        &self,
        threads: usize,
        progress: &mut Progress,
        on_progress: &mut Option<OnProgress>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()> + Send,
    ) -> Result<()> {
        (progress.merged, progress.to_merge) = (0, self.jobs() as u64);
        in_turns(
            self.jobs(),
            threads,
            |job, room: &mut Room| self.copy(job, room),
            |entries: Arena| {
                progress.merged += 1;
                report(on_progress, progress)?;
                let mut at = 0;
                while at < entries.len() {
                    let Entry { key, value, whole } = entry_at(&entries, at);
                    if visit(key, value).is_break() {
                        return Err(Error::Cancelled);
                    }
                    at += whole.len();
                }
                Ok(())
            },
        )
    }

    /// Merges and packs the ranges of one job.
    fn pack(&self, job: usize, room: &mut Room) -> Result<Packed> {
        let cuts = self.merge(job, room)?;
        self.pack_sorted(cuts, room)
    }

    /// Merges the ranges of one job, and copies their entries.
    fn copy(&self, job: usize, room: &mut Room) -> Result<Arena> {
        self.merge(job, room)?;
        let mut entries = Arena::default();
        self.each(room, |Entry { whole, .. }| {
            entries.reserve(whole.len());
            entries.extend(whole);
        })?;
        Ok(entries)
    }

    /// Loads the ranges of one job into the room, in order; returns the keys with which they begin.
    fn merge(&self, job: usize, room: &mut Room) -> Result<&[&'a [u8]]> {
        let end = (job + 1) * self.at_once - 1;
        let from = (job * self.at_once).checked_sub(1).map(|cut| self.cuts[cut]);
        let to = self.cuts.get(end).copied();
        let shared = from.zip(to).map_or(self.shared, |(from, to)| shared_len(from, to));
        self.gather(from, to, shared, room)?;
        let begins = (job * self.at_once).saturating_sub(1)..end.min(self.cuts.len());
        Ok(&self.cuts[begins])
    }

    /// Loads the entries between two keys into the room, in order.
    fn gather(&self, from: Option<&[u8]>, to: Option<&[u8]>, shared: usize, room: &mut Room) -> Result<()> {
        let Room { loaded, slots, spare } = room;
        loaded.truncate(0);
        slots.clear();
        if let Some(spill) = self.spill {
            for stretch in &spill.stretches {
                spill.range(stretch, from, to, |key, value| {
                    slots.push(Slot { prefix: prefix(&key[shared..]), place: loaded.len() as u64 });
                    put_entry(loaded, key, value);
                })?;
            }
        }
        for (sorted, source) in self.sorted.iter().zip(1..) {
            slots.extend(sorted.range(from, to).map(|(at, entry)| {
                let place = source << WITHIN | at as u64;
                Slot { prefix: prefix(&entry.key[shared..]), place }
            }));
        }
        sort_slots(slots, spare);
        settle(slots, |slot| self.entry(loaded, slot).key);
        Ok(())
    }

    #[inline]
    fn entry<'r>(&self, loaded: &'r [u8], slot: Slot) -> Entry<'r>
    where
        'a: 'r,
    {
        let at = (slot.place & ((1 << WITHIN) - 1)) as usize;
        match (slot.place >> WITHIN) as usize {
            0 => entry_at(loaded, at),
            source => self.sorted[source - 1].entry(at),
        }
    }

    /// Packs the entries of the room, in ranges that begin with `cuts`.
    fn pack_sorted(&self, mut cuts: &[&[u8]], room: &Room) -> Result<Packed> {
        let mut packer = Packer::new(self.options.clone());
        self.each(room, |entry| self.pack_one(&mut packer, &mut cuts, entry))?;
        Ok(packer.finish())
    }

    /// Passes on the entries of the room: one of each key.
    fn each(&self, Room { loaded, slots, .. }: &Room, mut give: impl FnMut(Entry<'_>)) -> Result<()> {
        let mut slots = slots.iter().copied().peekable();
        while let Some(slot) = slots.next() {
            let mut entry = self.entry(loaded, slot);
            while let Some(next) = slots.next_if(|next| next.prefix == slot.prefix) {
                let again = self.entry(loaded, next);
                if again.key != entry.key {
                    give(entry);
                    entry = again;
                } else if settled(self.rule, again.key)? == Duplicates::Last {
                    entry = again;
                }
            }
            give(entry);
        }
        Ok(())
    }

    fn pack_one(&self, packer: &mut Packer, cuts: &mut &[&[u8]], entry: Entry<'_>) {
        while let Some((_, rest)) = cuts.split_first().filter(|(cut, _)| **cut <= entry.key) {
            packer.begin_range();
            *cuts = rest;
        }
        pack_entry(packer, self.options, entry);
    }
}

/// Returns the number of ranges in one job: enough for large reads of each stretch, if the memory
/// suffices for as many jobs as there are threads.
fn at_once(stretches: usize, memory: usize, threads: usize) -> usize {
    let most = memory / (MERGING * RANGE).saturating_mul(threads.max(1));
    stretches.saturating_mul(READ).div_ceil(RANGE).min(most).max(1)
}

/// Packs an entry, with its key in the filter.
#[inline]
pub(crate) fn pack_entry(packer: &mut Packer, options: &BuilderOptions, entry: Entry<'_>) {
    if options.bits_per_item > 0 {
        packer.add_filter(key_hash(options.filter_seed, entry.key));
    }
    packer.add(entry.key, entry.value);
}
