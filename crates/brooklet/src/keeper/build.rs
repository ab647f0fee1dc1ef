//! A run being written, a slice at a time, segment after segment.

use std::io;
use std::sync::Arc;

use super::{Context, Keeper};
use crate::error::Error;
use crate::heap::Extent;
use crate::manifest::{RunMeta, SegmentMeta};
use crate::merge::{Input, Pending, Trouble, write_error};
use crate::piece::PieceWriter;
use crate::segment::{Entry, Segment, SegmentBuilder};

/// Bytes of payload after which a slice of work ends: some tenths of a millisecond. Those who commit and find all
/// processors taken wait for so long, since few systems take one from a thread that has just been given it.
pub(super) const SLICE: u64 = 64 << 10;

/// A run being written, or what an instalment adds to one.
pub(super) struct Build {
    pub input: Input,
    out: PieceWriter<Pending>,
    id: u64,
    level: u64,
    /// Bytes that are expected in all.
    expected: u64,
    /// Where it ends before its input does.
    end: Option<End>,
    /// The last codex key, where that is known; empty before the first.
    last: Option<Vec<u8>>,
    /// The segments that are written, and the one that is being written.
    sealed: Vec<Arc<Segment>>,
    open: Option<SegmentBuilder>,
}

/// Where an instalment ends: between two logs, behind its first, once it has written so many bytes or could free twice as
/// many, or where the next log may be longer than `long`; else with its input.
pub(super) struct End {
    pub bytes: u64,
    pub long: u64,
    /// The log that it began with.
    pub start: Option<Vec<u8>>,
}

impl Build {
    /// The last codex key.
    pub fn last(&self) -> Option<&[u8]> {
        self.last.as_deref()
    }

    /// The log that was begun last.
    pub fn log(&self) -> &[u8] {
        self.out.key()
    }

    /// Whether something was merged, or there was nothing.
    pub fn got_on(&self) -> bool {
        self.end
            .as_ref()
            .is_none_or(|end| end.start.is_none() || self.input.next_log() != end.start.as_deref())
    }

    /// Bytes of the extents that it has.
    pub fn held(&self) -> u64 {
        let sealed: u64 = self.sealed.iter().map(|segment| segment.meta.extent).sum();
        sealed + self.open.as_ref().map_or(0, |open| open.extent.len)
    }

    /// Bytes written so far, roughly.
    fn written(&self) -> u64 {
        let sealed: u64 = self.sealed.iter().map(|segment| segment.meta.extent).sum();
        sealed + self.open.as_ref().map_or(0, SegmentBuilder::written)
    }

    /// Whether an instalment has come to its end, though there is more to write.
    fn is_enough(&self) -> bool {
        let is_due = |end: &End| {
            self.written() >= end.bytes
                || self.input.passed_bytes() >= end.bytes.saturating_mul(2)
                || self.input.next_log_bytes() > end.long
        };
        self.input.is_between_logs() && self.got_on() && self.end.as_ref().is_some_and(is_due)
    }
}

impl Keeper {
    /// Begins a run, or more of one, whose last key is `last`.
    pub(super) fn build(
        &self,
        input: Input,
        (id, level): (u64, u64),
        last: Option<Vec<u8>>,
        end: Option<End>,
    ) -> Build {
        let expected = input.expected();
        let out = PieceWriter::new(Pending::new(self.shelf.filter_seed()));
        Build { input, out, id, level, expected, end, last, sealed: Vec::new(), open: None }
    }

    /// Writes some entries. `false` once that is all, or enough.
    pub(super) fn write(&mut self, context: &Context<'_>, build: &mut Build) -> Result<bool, Trouble> {
        Ok(self.work(context, build, SLICE)?.is_some())
    }

    /// Writes entries of at least so many bytes of payload, or all that is left; tells how many. `None` once there is no
    /// more, or enough is written.
    pub(super) fn work(
        &mut self,
        context: &Context<'_>,
        build: &mut Build,
        least: u64,
    ) -> Result<Option<u64>, Trouble> {
        let mut done = 0;
        while done < least {
            if build.is_enough() {
                return Ok(None);
            }
            let Some(work) = build.input.step(&mut build.out)? else { return Ok((done > 0).then_some(done)) };
            done += work;
            while let Some(entry) = build.out.out().pop() {
                self.put(context, build, entry)?;
            }
        }
        Ok(Some(done))
    }

    fn put(&mut self, context: &Context<'_>, build: &mut Build, entry: Entry) -> Result<(), Trouble> {
        if build.open.as_ref().is_some_and(|open| !open.holds(&entry)) {
            self.seal_segment(build)?;
        }
        if build.open.is_none() {
            let left = build.expected.saturating_sub(build.written());
            let least = SegmentBuilder::least(&self.shelf, &entry);
            let extent = self.allocate_segment(context, least, left, build.end.is_some())?;
            build.open = Some(SegmentBuilder::new(&self.shelf, extent, build.id, build.last.take()));
        }
        build.open.as_mut().expect("it was just opened").add(&entry).map_err(write_error)?;
        build.last = Some(entry.key);
        Ok(())
    }

    /// Ends the segment that is being written, and gives back what it did not need of its extent.
    fn seal_segment(&mut self, build: &mut Build) -> Result<(), Trouble> {
        let Some(open) = build.open.take() else { return Ok(()) };
        let whole = open.extent;
        let sealed = open.finish().map_err(write_error);
        let meta = sealed.inspect_err(|_| self.heap.give(whole))?;
        let SegmentMeta { offset, extent: used, .. } = meta;
        self.heap.give(Extent { offset: offset + used, len: whole.len - used });
        self.stats.heap_written_bytes += used;
        let segment = Segment::open(&self.shelf, build.id, meta).map_err(|error| {
            self.heap.give(Extent { offset, len: used });
            match error {
                // No damage to the store, but a device whose word on a write is worth nothing.
                Error::Damaged { place, what } => Trouble::Write(io::Error::other(format!(
                    "{place} does not read back as it was just written: {what}"
                ))),
                error => error.into(),
            }
        })?;
        build.sealed.push(Arc::new(segment));
        Ok(())
    }

    /// Ends what is being written; tells what it holds. On failure its extents are given back.
    pub(super) fn seal(&mut self, mut build: Build) -> Result<(RunMeta, Vec<Arc<Segment>>), Trouble> {
        if let Err(trouble) = self.seal_segment(&mut build) {
            self.discard(build);
            return Err(trouble);
        }
        let Build { id, level, out, sealed, .. } = build;
        let PieceWriter { logs, entries, tombstones, empties, ageing, .. } = out;
        let meta = RunMeta { id, level, logs, entries, tombstones, empties, ..RunMeta::default() };
        Ok((meta.with_ageing(ageing), sealed))
    }

    /// Gives up what is being written.
    pub(super) fn discard(&mut self, build: Build) {
        let open = build.open.map(|open| open.extent);
        let sealed = build.sealed.iter().map(|segment| segment.extent());
        sealed.chain(open).for_each(|extent| self.heap.give(extent));
    }
}
