//! A run being written, a slice at a time.

use std::io;
use std::sync::Arc;

use super::Keeper;
use crate::error::Error;
use crate::heap::Extent;
use crate::manifest::RunMeta;
use crate::merge::{Input, Trouble, write_error};
use crate::piece::PieceWriter;
use crate::runs::{ExtentWriter, Run, RunBuilder};

/// Bytes of payload after which a slice of work ends.
pub(super) const SLICE: u64 = 1 << 20;

/// A run being written.
pub(super) struct Build {
    pub input: Input,
    out: PieceWriter<RunBuilder>,
    pub extent: Extent,
    id: u64,
    level: u64,
}

impl Build {
    /// Writes some entries. `false` once there is no more.
    pub fn slice(&mut self) -> Result<bool, Trouble> {
        Ok(self.work(SLICE)?.is_some())
    }

    /// Writes entries of at least so many bytes of payload, or all that is left; tells how many. `None` once there is no
    /// more.
    pub fn work(&mut self, least: u64) -> Result<Option<u64>, Trouble> {
        let mut done = 0;
        while done < least {
            match self.input.step(&mut self.out)? {
                Some(work) => done += work,
                None => return Ok((done > 0).then_some(done)),
            }
        }
        Ok(Some(done))
    }
}

impl Keeper {
    pub(super) fn build(&mut self, input: Input, level: u64) -> Result<Build, Trouble> {
        let extent = self.allocate_run(input.bound())?;
        let id = self.superblock.next_run;
        self.superblock.next_run += 1;
        let writer = ExtentWriter::new(self.volumes.data.clone(), extent);
        Ok(Build {
            input,
            out: PieceWriter::new(RunBuilder::new(&self.shelf, writer, id)),
            extent,
            id,
            level,
        })
    }

    /// Ends a run and gives back what it did not need of its extent. `None` where it came out empty.
    pub(super) fn seal(&mut self, build: Build) -> Result<Option<Arc<Run>>, Trouble> {
        let Build { out, extent, id, level, .. } = build;
        let PieceWriter { logs, entries, tombstones, empties, ageing, .. } = out;
        let ageing = ageing.unwrap_or_default();
        let sealed = if logs == 0 {
            Ok(None)
        } else {
            out.into_inner().finish().map_err(write_error).and_then(|(summary, writer)| {
                let used = writer.finish().map_err(Trouble::Write)?;
                Ok(Some((summary, used)))
            })
        };
        let sealed = sealed.inspect_err(|_| self.heap.give(extent))?;
        let used = sealed.as_ref().map_or(0, |(_, used)| *used);
        self.heap.give(Extent { offset: extent.offset + used, len: extent.len - used });
        self.stats.heap_written_bytes += used;
        let Some((summary, used)) = sealed else { return Ok(None) };
        let meta = RunMeta {
            id,
            level,
            offset: extent.offset,
            len: summary.len,
            extent: used,
            footer_sum: summary.footer_sum,
            logs,
            entries,
            tombstones,
            empties,
            dead: 0,
            ageing: ageing.entries,
            ages_from: ageing.from,
            ages_to: ageing.to,
        };
        let run = Run::open(&self.shelf, meta).map_err(|error| {
            self.heap.give(Extent { offset: extent.offset, len: used });
            match error {
                // No damage to the store, but a device whose word on a write is worth nothing.
                Error::Damaged { place, what } => Trouble::Write(io::Error::other(format!(
                    "{place} does not read back as it was just written: {what}"
                ))),
                error => error.into(),
            }
        })?;
        Ok(Some(Arc::new(run)))
    }
}
