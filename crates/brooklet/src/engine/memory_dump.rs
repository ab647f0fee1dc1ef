//! Dumps: what is in memory becomes a run, in the order of keys, past the log and beside everything else.
//!
//! A dump has every log of its space, as a whole, and names those that are no more. So nothing in older runs counts of what it
//! has, and an older dump is free as soon as the next one is part of the store.

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

/// What a dump wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dumped {
    /// Logs.
    pub logs: u64,
    /// Their entries.
    pub entries: u64,
    /// Bytes that they take in the store.
    pub bytes: u64,
}

impl Inner {
    /// Has somebody look after the dumps that are due.
    pub fn see_to_dumps(self: &Arc<Self>) -> Result<(), Error> {
        let due = |silo: &Arc<MemorySpace>| silo.logs().config.dump_every.is_some();
        if !self.options.threads || !self.silos.all().iter().any(due) {
            return Ok(());
        }
        if let Some(thread) = self.dumper.get() {
            thread.unpark();
            return Ok(());
        }
        let run = self.watched("the thread that dumps", |inner| inner.dump_on_schedule());
        let spawned = thread::Builder::new().name("brooklet-dump".into()).spawn(run);
        let spawned = spawned.map_err(Error::io("starting a thread"))?;
        self.dumper.get_or_init(|| spawned.thread().clone());
        self.adopt_thread(spawned);
        Ok(())
    }
}

impl Inner {
    /// Dumps what is due, until the store is closed.
    fn dump_on_schedule(self: &Arc<Self>) {
        while !self.is_closing() {
            match self.dump_what_is_due() {
                Some(wait) => thread::park_timeout(wait),
                None => thread::park(),
            }
        }
    }

    /// Dumps what is due; gives how long it is until the next is.
    pub fn dump_what_is_due(self: &Arc<Self>) -> Option<Duration> {
        let mut next = None;
        for silo in self.silos.all() {
            let (every, since) = {
                let logs = silo.logs();
                (logs.config.dump_every, logs.dumped_at)
            };
            let Some(every) = every else { continue };
            let left = || (since + every).saturating_sub(self.options.clock.now());
            let left = if left().is_zero() {
                if let Err(error) = self.dump(&silo) {
                    tracing::warn!(space = silo.name, %error, "a dump that was due failed");
                }
                every
            } else {
                left()
            };
            next = Some(next.map_or(left, |next: Duration| next.min(left)));
        }
        next
    }

    /// Dumps everything, at the end, and lets nobody in any more.
    pub fn dump_for_good(self: &Arc<Self>) -> Result<(), Error> {
        let mut dumped = Ok(());
        for silo in self.silos.all() {
            // Whoever moves it goes on until it is in one class.
            let _moving = held(&silo.moving);
            if !silo.is_sound() {
                dumped = dumped.and(Err(self.half_done(&silo)));
                continue;
            }
            silo.logs().phase = Phase::Closed;
            let one = self.dump(&silo).map(drop);
            dumped = dumped.and(one);
        }
        dumped
    }

    /// Makes a silo a run of the store, if it has changed.
    pub fn dump(self: &Arc<Self>, silo: &MemorySpace) -> Result<Dumped, Error> {
        self.may_wait()?;
        let _hush = self.hush();
        let _alone = held(&silo.dumping);
        if !silo.is_sound() {
            return Err(self.half_done(silo));
        }
        silo.logs().dumped_at = self.options.clock.now();
        if !silo.logs().is_changed() {
            return Ok(Dumped::default());
        }
        if let Some(why) = self.wal()?.failure() {
            return Err(why.into());
        }
        if !silo.logs().settled {
            // A tier would be written upon the dump.
            self.checkpoint()?;
            silo.logs().settled = true;
        }
        let (rest, complete) = self.begin_dump(silo);
        if rest.is_empty() {
            silo.logs().end_dump(true);
            return Ok(Dumped::default());
        }
        let dumped = self.write_dump(silo, rest).and_then(|run| {
            let supersedes = if complete { silo.logs().supersedes.clone() } else { Vec::new() };
            let context = self.context()?;
            self.keeper().adopt_dump(&context, &run, &supersedes)?;
            drop(context);
            let RunMeta { id, logs, entries, tombstones, .. } = run.meta;
            if complete {
                silo.logs().supersedes = vec![id];
            }
            Ok(Dumped { logs: logs - tombstones, entries, bytes: run.bytes() })
        });
        silo.logs().end_dump(dumped.is_ok() || bug("failed-dump-counts"));
        dumped
    }

    /// Stops the store: what is in this memory may be half of a commit, and is not to be kept.
    fn half_done(&self, silo: &MemorySpace) -> Error {
        self.stop(io::Error::other(format!("a thread panicked while it changed space {}", silo.name)))
    }

    /// Begins a dump; tells whether it has all that there is of the space.
    fn begin_dump(&self, silo: &MemorySpace) -> (Rest, bool) {
        let (mut keys, mut from) = (Vec::new(), Some(0));
        let complete = {
            let mut logs = silo.logs();
            logs.begin_dump();
            logs.complete
        };
        while let Some(slot) = from {
            from = silo.logs().collect(slot, &mut keys, &|| self.now());
        }
        let mut rest = silo.logs().rest(keys);
        rest.sort();
        (rest, complete)
    }

    /// Writes a dump into the heap.
    fn write_dump(self: &Arc<Self>, silo: &MemorySpace, mut rest: Rest) -> Result<Arc<Run>, Error> {
        let id = self.keeper().new_run();
        let mut writer = Writer::new(self.clone(), DUMP, RunWriter::new(id, Some(Vec::new())))?;
        let mut pieces = PieceWriter::new(Pending::new(self.shelf.filter_seed()));
        while !rest.is_empty() {
            let some = silo.logs().next(&mut rest);
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
        let PieceWriter { logs, entries, tombstones, empties, ageing, .. } = pieces;
        let meta = RunMeta { id, logs, entries, tombstones, empties, ..RunMeta::default() };
        Ok(Arc::new(Run::new(&self.shelf, meta.with_ageing(ageing), sealed, &[])))
    }
}
