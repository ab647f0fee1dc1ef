//! Fills the bounds cache: before a checkpoint releases its memtable, it stores the bounds of each
//! log of the memtable in the cache.
//!
//! Commits wait for the state's lock. A thread that locks again right after unlocking keeps out the
//! threads that were woken meanwhile. Therefore only a few logs are set under one lock, their keys
//! are hashed before, and the checkpoint writes a part of its run in between.

use std::sync::Arc;

use brooklet_io::seeded::bug;

use crate::maintenance::merge::LOG_COST;
use crate::maintenance::run_builder::{Build, SLICE};
use crate::maintenance::{Context, Maintenance};
use crate::memtable::Memtable;
use crate::model::keyed_hash::Secret;
use crate::run::writer::BuildError;

/// Number of logs that are set under one lock of the state.
const AT_ONCE: usize = 128;
/// Bytes of payload that are written between two such locks: at most the cost of `AT_ONCE` logs, so
/// that all bounds are cached by the time that the run is written.
const BETWEEN: u64 = AT_ONCE as u64 * LOG_COST;

impl Maintenance {
    /// Does one slice of a checkpoint that writes: writes a part of its run, and caches the bounds
    /// of some logs. Returns `false` after the last slice.
    pub(super) fn write_and_cache_bounds(
        &mut self,
        context: &Context<'_>,
        build: &mut Build,
    ) -> Result<bool, BuildError> {
        let memory = Memory::of(context);
        let mut done = 0;
        let more = loop {
            let written = self.work(context, build, BETWEEN)?;
            let checkpoint = self.checkpoint.as_mut().expect("only a checkpoint is written");
            let more = memory.take(context, &mut checkpoint.bounds_cache);
            match written {
                None => break more,
                Some(work) => done += work,
            }
            if done >= SLICE {
                break true;
            }
        };
        let bytes = context.state().bounds_cache.bytes();
        self.table_cache.share(bytes);
        Ok(more)
    }

    /// Caches the bounds of all logs before the memtable is complete.
    pub(super) fn cache_bounds_early(&mut self, context: &Context<'_>) {
        let checkpoint = self.checkpoint.as_mut().expect("only a checkpoint has logs to remember");
        let memory = Memory::of(context);
        while memory.take(context, &mut checkpoint.bounds_cache) {}
    }
}

/// The frozen memtable, and the secret for hashing its keys.
struct Memory {
    memtable: Arc<Memtable>,
    secret: Secret,
}

impl Memory {
    fn of(context: &Context<'_>) -> Self {
        let state = context.state();
        let memtable = state.frozen.clone().expect("a tier stays until its checkpoint is done");
        Self { memtable, secret: state.bounds_cache.secret() }
    }

    /// Caches the bounds of some logs; `done` is the number of logs so far. Returns `false` after
    /// the last log.
    fn take(&self, context: &Context<'_>, done: &mut usize) -> bool {
        let end = self.memtable.logs.len().min(*done + AT_ONCE);
        let forgotten = usize::from(bug("last-is-not-remembered"));
        let known = (*done..end).take((end - *done).saturating_sub(forgotten)).map(|slot| {
            let log = &self.memtable.logs[slot];
            let bounds = log.piece().map_or(log.origin(), |piece| piece.bounds);
            // The bounds alone do not describe a log that keeps only a part of its entries.
            (self.secret.hash(&log.key), bounds.filter(|_| log.visible_terms().is_none()))
        });
        let known: Vec<_> = known.collect();
        let mut state = context.state();
        known.into_iter().for_each(|(hash, bounds)| state.bounds_cache.set(hash, bounds));
        *done = end;
        end < self.memtable.logs.len()
    }
}
