//! Dumps: a dump writes a memory space as a run, in the order of keys. It does not use the log, and
//! all other work continues.
//!
//! A dump has every log of its space as a whole, and names the deleted logs. Older runs therefore
//! do not count for logs in the dump. An older dump is free as soon as the next dump is part of the
//! store.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::seeded::bug;

use crate::engine::Inner;
use crate::engine::ingest_writer::Writer;
use crate::error::Error;
use crate::format::manifest::RunMeta;
use crate::format::run_entry::PieceWriter;
use crate::maintenance::ingest_dump::DUMP;
use crate::memory_space::dump::Rest;
use crate::memory_space::{MemorySpace, Phase};
use crate::model::Piece;
use crate::run::Run;
use crate::run::writer::Pending;
use crate::run::writer::RunWriter;
use crate::sync::{held, thread};

/// The result of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpReport {
    /// Number of logs in the dump.
    pub logs: u64,
    /// Number of entries of these logs.
    pub entries: u64,
    /// Bytes that these logs take in the store.
    pub bytes: u64,
}

impl Inner {
    /// Starts the thread for scheduled dumps if a space needs it, or wakes the thread.
    pub fn see_to_dumps(self: &Arc<Self>) -> Result<(), Error> {
        let due = |memory_space: &Arc<MemorySpace>| memory_space.logs().config.dump_every.is_some();
        if !self.options.threads || !self.memory_spaces.all().iter().any(due) {
            return Ok(());
        }
        if self.dump_sleeper.thread().is_some() {
            self.dump_sleeper.wake();
            return Ok(());
        }
        let run = self.watched("the thread that dumps", |inner| inner.dump_on_schedule());
        let spawned = thread::Builder::new().name("brooklet-dump".into()).spawn(run);
        let spawned = spawned.map_err(Error::io("starting a thread"))?;
        self.dump_sleeper.set_thread(spawned.thread());
        self.keep_thread(spawned);
        Ok(())
    }
}

impl Inner {
    /// Dumps spaces when they are due, until the store is closed.
    fn dump_on_schedule(self: &Arc<Self>) {
        while !self.is_closing() {
            self.dump_sleeper.sleep(self.dump_what_is_due());
        }
    }

    /// Dumps the spaces that are due. Returns the time until the next dump is due.
    pub fn dump_what_is_due(self: &Arc<Self>) -> Option<Duration> {
        let mut next = None;
        for memory_space in self.memory_spaces.all() {
            let (every, since) = {
                let logs = memory_space.logs();
                (logs.config.dump_every, logs.dumped_at)
            };
            let Some(every) = every else { continue };
            let left = || (since + every).saturating_sub(self.options.clock.now());
            let left = if left().is_zero() {
                if let Err(error) = self.dump(&memory_space) {
                    tracing::warn!(space = memory_space.name, %error, "a scheduled dump failed");
                }
                every
            } else {
                left()
            };
            next = Some(next.map_or(left, |next: Duration| next.min(left)));
        }
        next
    }

    /// Dumps all spaces before the store is closed by a call. If there is no room for a dump, the
    /// caller can make room and close the store again: so this is an error, and other failures are
    /// errors of the closing.
    pub fn dump_before_close(self: &Arc<Self>) -> Result<(), Error> {
        if held(&self.closed).is_some() {
            return Ok(());
        }
        for memory_space in self.memory_spaces.all() {
            if let Err(error @ Error::Full { .. }) = self.dump(&memory_space) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Dumps all spaces when the store closes, and refuses all later commits on them.
    pub fn dump_for_good(self: &Arc<Self>) -> Result<(), Error> {
        let mut dumped = Ok(());
        for memory_space in self.memory_spaces.all() {
            // A running move of the space ends first, so that the space is in one class.
            let _moving = held(&memory_space.moving);
            if !memory_space.is_sound() {
                dumped = dumped.and(Err(self.half_done(&memory_space)));
                continue;
            }
            memory_space.logs().phase = Phase::Closed;
            let one = self.dump(&memory_space).map(drop);
            dumped = dumped.and(one);
        }
        dumped
    }

    /// Writes a memory space as a run of the store, if the space has changed.
    pub fn dump(self: &Arc<Self>, memory_space: &MemorySpace) -> Result<DumpReport, Error> {
        self.may_wait()?;
        let _hush = self.hush();
        let _alone = held(&memory_space.dumping);
        if !memory_space.is_sound() {
            return Err(self.half_done(memory_space));
        }
        memory_space.logs().dumped_at = self.options.clock.now();
        if !memory_space.logs().is_changed() {
            return Ok(DumpReport::default());
        }
        if let Some(why) = self.wal()?.failure() {
            return Err(why.into());
        }
        if !memory_space.logs().settled {
            // Otherwise, a later checkpoint would write older entries over the dump.
            self.checkpoint()?;
            memory_space.logs().settled = true;
        }
        let (rest, complete) = self.begin_dump(memory_space);
        if rest.is_empty() {
            memory_space.logs().end_dump(true);
            return Ok(DumpReport::default());
        }
        let dumped = self.write_dump(memory_space, rest).and_then(|run| {
            let supersedes = if complete { memory_space.logs().supersedes.clone() } else { Vec::new() };
            let context = self.context()?;
            self.maintenance().ingest_dump(&context, &run, &supersedes)?;
            drop(context);
            let RunMeta { id, logs, entries, tombstones, .. } = run.meta;
            if complete {
                memory_space.logs().supersedes = vec![id];
            }
            Ok(DumpReport { logs: logs - tombstones, entries, bytes: run.bytes() })
        });
        memory_space.logs().end_dump(dumped.is_ok() || bug("failed-dump-counts"));
        dumped
    }

    /// Stops the store: the memory may hold half of a commit, which must not be stored.
    pub(super) fn half_done(&self, memory_space: &MemorySpace) -> Error {
        self.stop(io::Error::other(format!("a thread panicked while it changed space {}", memory_space.name)))
    }

    /// Begins a dump. Returns the logs to dump, and whether the dump is complete for its space.
    fn begin_dump(&self, memory_space: &MemorySpace) -> (Rest, bool) {
        let (mut keys, mut from) = (Vec::new(), Some(0));
        let complete = {
            let mut logs = memory_space.logs();
            logs.begin_dump();
            logs.complete
        };
        while let Some(slot) = from {
            from = memory_space.logs().collect(slot, &mut keys, &|| self.now());
        }
        let mut rest = memory_space.logs().rest(keys);
        rest.sort();
        (rest, complete)
    }

    /// Writes a dump into the heap.
    fn write_dump(self: &Arc<Self>, memory_space: &MemorySpace, mut rest: Rest) -> Result<Arc<Run>, Error> {
        let id = self.maintenance().new_run();
        let mut writer = Writer::new(self.clone(), DUMP, RunWriter::new(id, Some(Vec::new())))?;
        let mut pieces = PieceWriter::new(Pending::new(self.table_cache.filter_seed()));
        while !rest.is_empty() {
            let some = memory_space.logs().next(&mut rest);
            for (key, frozen) in some {
                let bounds = frozen.as_ref().map(|frozen| frozen.bounds);
                let terms = frozen.as_ref().and_then(|frozen| frozen.terms.clone());
                pieces.begin(&key, Piece { bounds, base: 0 }, terms);
                let range = bounds.map_or(0..0, |bounds| bounds.first..bounds.next);
                for payload in frozen.iter().flat_map(|frozen| frozen.payloads(range.clone())) {
                    let Ok(()) = pieces.entry(payload);
                    while let Some(entry) = pieces.out().pop() {
                        writer.put(entry)?;
                    }
                }
                let Ok(()) = pieces.end();
                while let Some(entry) = pieces.out().pop() {
                    writer.put(entry)?;
                }
            }
        }
        let sealed = writer.finish()?;
        Ok(Arc::new(Run::new(&self.table_cache, pieces.meta(id, 0), sealed, &[])))
    }
}
