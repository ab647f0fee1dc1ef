//! Writes a run, a slice at a time, table after table.

use std::sync::Arc;

use crate::format::manifest::RunMeta;
use crate::format::run_entry::PieceWriter;
use crate::maintenance::merge::Input;
use crate::maintenance::{Context, Maintenance};
use crate::run::table::{Entry, Table, TableBuilder};
use crate::run::writer::RunWriter;
use crate::run::writer::{BuildError, Pending};

/// Bytes of payload after which a slice of work ends. A slice takes some tenths of a millisecond. A
/// commit that finds all processors busy waits for that time, because few systems preempt a thread
/// that has just started to run.
pub(super) const SLICE: u64 = 64 << 10;

/// A run being written, or the part that a compaction step adds to a run.
pub(super) struct Build {
    pub input: Input,
    out: PieceWriter<Pending>,
    tables: RunWriter,
    level: u64,
    /// The expected total bytes.
    expected: u64,
    /// The end of a compaction step, if it may be before the end of the input.
    end: Option<End>,
}

/// The conditions under which a compaction step ends, between two logs and after its first log: it
/// has written `bytes` bytes, or could free twice as many, or the next log may be longer than
/// `long` bytes. Otherwise the step ends with its input.
pub(super) struct End {
    pub bytes: u64,
    pub long: u64,
    /// The first log of the step.
    pub start: Option<Vec<u8>>,
}

impl Build {
    /// Returns the last codex key.
    pub fn last(&self) -> Option<&[u8]> {
        self.tables.last()
    }

    /// Returns the key of the log that was begun last.
    pub fn log(&self) -> &[u8] {
        self.out.key()
    }

    /// Returns whether something was merged, or there was nothing to merge.
    pub fn got_on(&self) -> bool {
        self.end
            .as_ref()
            .is_none_or(|end| end.start.is_none() || self.input.next_log() != end.start.as_deref())
    }

    /// Returns the bytes of its extents.
    pub fn held(&self) -> u64 {
        self.tables.held()
    }

    /// Returns whether a compaction step ends here, before its input does.
    fn is_enough(&self) -> bool {
        let is_due = |end: &End| {
            self.tables.written() >= end.bytes
                || self.input.passed_bytes() >= end.bytes.saturating_mul(2)
                || self.input.next_log_bytes() > end.long
        };
        self.input.is_between_logs() && self.got_on() && self.end.as_ref().is_some_and(is_due)
    }
}

impl Maintenance {
    /// Begins a run, or another part of a run whose last key is `last`.
    pub(super) fn build(
        &self,
        input: Input,
        (id, level): (u64, u64),
        last: Option<Vec<u8>>,
        end: Option<End>,
    ) -> Build {
        let expected = input.expected();
        let out = PieceWriter::new(Pending::new(self.table_cache.filter_seed()));
        Build { input, out, tables: RunWriter::new(id, last), level, expected, end }
    }

    /// Writes some entries. Returns `false` once all entries, or enough entries, are written.
    pub(super) fn write(&mut self, context: &Context<'_>, build: &mut Build) -> Result<bool, BuildError> {
        Ok(self.work(context, build, SLICE)?.is_some())
    }

    /// Does at least `least` bytes of work, or all that is left. Returns the work done, in bytes of
    /// payload; `None` if all entries, or enough entries, are written.
    pub(super) fn work(
        &mut self,
        context: &Context<'_>,
        build: &mut Build,
        least: u64,
    ) -> Result<Option<u64>, BuildError> {
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

    fn put(&mut self, context: &Context<'_>, build: &mut Build, entry: Entry) -> Result<(), BuildError> {
        if build.tables.is_full_for(&entry) {
            self.seal_table(build)?;
        }
        if !build.tables.is_open() {
            let left = build.expected.saturating_sub(build.tables.written());
            let least = TableBuilder::least(&self.table_cache, &entry);
            let extent = self.allocate_table(context, least, left, build.end.is_some())?;
            build.tables.open(&self.table_cache, extent);
        }
        build.tables.add(entry)
    }

    fn seal_table(&mut self, build: &mut Build) -> Result<(), BuildError> {
        let heap = &mut self.heap;
        self.stats.heap_written_bytes += build.tables.seal(&self.table_cache, |unused| heap.give(unused))?;
        Ok(())
    }

    /// Ends the build, and returns its run and tables. On failure, frees its extents.
    pub(super) fn seal(&mut self, mut build: Build) -> Result<(RunMeta, Vec<Arc<Table>>), BuildError> {
        if let Err(build_error) = self.seal_table(&mut build) {
            self.discard(build);
            return Err(build_error);
        }
        let Build { level, out, tables, .. } = build;
        Ok((out.meta(tables.id, level), tables.into_sealed()))
    }

    /// Discards the build, and frees its extents.
    pub(super) fn discard(&mut self, build: Build) {
        build.tables.into_extents().for_each(|extent| self.heap.give(extent));
    }
}
