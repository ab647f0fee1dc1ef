//! Moves logs into memory and out of it: when a store is opened, and when a space gets another
//! class.
//!
//! - Into memory: once the table of spaces says so, commits go to the memory space, and each log of
//!   a commit is loaded as it is. Meanwhile, all logs are loaded, in the order of their keys.
//! - Out of memory: commits wait while the memory space is dumped and the table of spaces is
//!   changed. Readers never wait.
//!
//! If a move is interrupted, the table says which class the space has. Nothing counts twice: the
//! memory space, or its last dump, holds each log as a whole, and only it counts.

use std::sync::Arc;

use brooklet_io::seeded::bug;

use crate::engine::Inner;
use crate::error::Error;
use crate::format::run_entry::{Chunk, Head, PieceWriter, split_key};
use crate::maintenance::merge::Input;
use crate::memory_space::{LoadedLog, MemorySpace, Phase};
use crate::model::space_config::{MemoryConfig, SpaceConfig};
use crate::run::writer::Pending;
use crate::run::writer::read_error;
use crate::run::{Run, RunSet};
use crate::sync::held;

impl Inner {
    /// Loads the memory spaces when the store is opened. Logs that cannot be read are set aside,
    /// and logs that do not fit stay in the runs. Neither prevents the store from opening.
    pub fn load_memory(self: &Arc<Self>) -> Result<(), Error> {
        let spaces = self.state().spaces.in_memory();
        for (name, config, memory) in spaces {
            let memory_space = self.new_memory_space(&name, config, memory, Phase::Open);
            memory_space.logs().sets_aside = true;
            self.memory_spaces.insert(memory_space.clone());
            match self.bring_all(&memory_space) {
                Ok(()) => {}
                Err(error @ (Error::Stopped { .. } | Error::Closed)) => return Err(error),
                Err(error) => {
                    tracing::warn!(space = name, %error, "the store could not load a whole space into memory");
                }
            }
        }
        self.see_to_dumps()
    }

    fn new_memory_space(
        &self,
        name: &str,
        space: SpaceConfig,
        config: MemoryConfig,
        phase: Phase,
    ) -> Arc<MemorySpace> {
        let memory_space = MemorySpace::new(name, space, config, phase, self.options.seed);
        memory_space.logs().dumped_at = self.options.clock.now();
        memory_space.into()
    }

    /// Moves the logs of a space into memory; `commit` changes the table of spaces and makes all
    /// earlier commits durable.
    pub fn move_into_memory(
        self: &Arc<Self>,
        name: &str,
        space: SpaceConfig,
        config: MemoryConfig,
        commit: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let memory_space = self.new_memory_space(name, space, config, Phase::Moving);
        {
            let _hush = self.hush();
            let _moving = held(&memory_space.moving);
            self.memory_spaces.insert(memory_space.clone());
            if let Err(error) = commit() {
                self.memory_spaces.remove(name);
                memory_space.logs().phase = Phase::Moved;
                return Err(error);
            }
            memory_space.logs().phase = Phase::Open;
        }
        self.bring_all(&memory_space)?;
        self.see_to_dumps()
    }

    /// Moves the logs of a space out of memory; `commit` changes the table of spaces.
    pub fn move_out_of_memory(
        self: &Arc<Self>,
        memory_space: &MemorySpace,
        commit: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _hush = self.hush();
        let _moving = held(&memory_space.moving);
        memory_space.logs().phase = Phase::Moving;
        let dumped = if bug("move-does-not-dump") { Ok(()) } else { self.dump(memory_space).map(drop) };
        let done = dumped.and_then(|()| {
            let mut state = self.state();
            // The bounds cache is older than the move into memory, and was not updated since.
            if !bug("moved-logs-are-remembered") {
                state.clear_bounds_cache(&self.table_cache);
            }
            // So is what commits looked up in the runs before that move.
            state.runs = Arc::new(state.runs.with_logs_of_memory());
            state.subscribers.lose();
            drop(state);
            commit()
        });
        // A failed commit of the table may still count until the store is opened again.
        let left = self.state().spaces.memory_of(memory_space.name.as_bytes()).is_none();
        if left {
            self.memory_spaces.remove(&memory_space.name);
        }
        memory_space.logs().phase = if left { Phase::Moved } else { Phase::Open };
        done
    }

    /// Returns the runs after they hold all commits up to now.
    fn settled_runs(&self) -> Result<Arc<RunSet>, Error> {
        drop(self.sound_state()?);
        self.checkpoint()?;
        Ok(self.state().runs.clone())
    }

    /// Loads all logs of a space that are not in memory yet.
    pub fn bring_all(self: &Arc<Self>, memory_space: &MemorySpace) -> Result<(), Error> {
        // A dump would change the runs below.
        let _hush = self.hush();
        let _alone = held(&memory_space.dumping);
        let generation = memory_space.logs().generation();
        let runs = self.settled_runs()?;
        memory_space.logs().settled = true;
        let prefix = memory_space.prefix();
        let mut input = Input::all(&runs, prefix)?;
        let mut pieces = PieceWriter::new(Pending::new(0));
        let mut log: Option<(Vec<u8>, LoadedLog)> = None;
        let limit = memory_space.logs().config.bytes;
        let expect = |fits: bool| match fits {
            true => Ok(()),
            false => Err(Error::MemoryFull { space: memory_space.name.clone(), limit }),
        };
        let put = |log: Option<(Vec<u8>, LoadedLog)>| {
            let Some((key, loaded)) = log else { return Ok(()) };
            expect(memory_space.logs().bring(&key, Some(loaded), generation))
        };
        while !input.is_between_logs() || input.next_log().is_some_and(|key| key.starts_with(prefix)) {
            input.step(&mut pieces).map_err(read_error)?;
            while let Some(entry) = pieces.out().pop() {
                let made = "a piece that was just made is whole";
                let (key, part) = split_key(&entry.key).expect(made);
                let value = entry.value.into();
                let chunk = if part.is_none() {
                    put(log.take())?;
                    let Head { piece, terms, chunk } = Head::decode(&value).expect(made);
                    let first = piece.bounds.expect("all runs are among them").first;
                    log = Some((key, LoadedLog::new(first, terms.as_deref())));
                    chunk
                } else {
                    Chunk::decode(&value).expect(made)
                };
                let (_, loaded) = log.as_mut().expect("chunks follow a head");
                chunk.range().for_each(|seq| loaded.push(chunk.payload_bytes(seq)));
                expect(!loaded.exceeds(limit))?;
            }
        }
        put(log.take())?;
        let within = runs_within(&runs, prefix)?;
        let mut logs = memory_space.logs();
        logs.complete = true;
        logs.supersedes = within;
        Ok(())
    }
}

/// Returns the runs whose logs all have keys that begin with a prefix, now and at all earlier
/// times. Runs in a merge are never returned: the new run still grows, and the merged runs are
/// recorded with the counts of their whole.
fn runs_within(runs: &RunSet, prefix: &[u8]) -> Result<Vec<u64>, Error> {
    let merged = runs.merge().map_or((None, &[][..]), |(into, inputs)| (Some(into), inputs));
    let merges = |run: &Arc<Run>| merged.0.into_iter().chain(merged.1).any(|other| Arc::ptr_eq(run, other));
    let mut within = Vec::new();
    for run in runs.iter().filter(|run| !run.is_offloaded() && !merges(run)) {
        let (Some(first), Some(last)) = (run.tables.first(), run.tables.last()) else { continue };
        let mut cursor = first.reader()?.cursor();
        cursor.seek_first().map_err(|error| first.error(error))?;
        let begins = cursor.key().starts_with(prefix);
        let mut cursor = last.reader()?.cursor();
        cursor.seek_last().map_err(|error| last.error(error))?;
        if begins && cursor.key().starts_with(prefix) {
            within.push(run.meta.id);
        }
    }
    Ok(within)
}

#[cfg(test)]
mod tests {
    use brooklet_io::MemVolume;

    use super::*;
    use crate::model::space_config::Class;
    use crate::{Options, Store};

    fn store() -> Store {
        let options = Options::new().ring_size(1 << 20).memory_budget(1 << 20).max_payload(64 << 10);
        options.threads(false).rng_seed(5).create_on(Arc::new(MemVolume::new(1))).unwrap()
    }

    fn in_memory() -> SpaceConfig {
        SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)))
    }

    /// The sizes of the log are being looked up for a commit while its space moves.
    #[test]
    fn no_memtable_keeps_the_old_bounds_of_a_log_that_moves_to_memory() {
        let store = store();
        let space = store.create_space("s", SpaceConfig::new()).unwrap();
        space.append("log", "a").unwrap().wait().unwrap();
        store.inner().state().begin_count(b"s/log");
        space.configure(in_memory()).unwrap();
        store.inner().state().end_count(b"s/log");
        assert_eq!(space.append("log", "b").unwrap().seq(), 1);
        space.configure(SpaceConfig::new()).unwrap();
        assert_eq!(space.append("log", "c").unwrap().seq(), 2);
        store.flush().unwrap();
        let read = space.read("log", ..).unwrap().map(|entry| entry.unwrap().payload);
        assert!(read.eq([&b"a"[..], b"b", b"c"]));
    }

    /// A commit looked the log up before its space moved, and returns after that.
    #[test]
    fn no_memtable_learns_the_old_bounds_of_a_log_in_memory() {
        let store = store();
        let space = store.create_space("s", SpaceConfig::new()).unwrap();
        space.append("log", "a").unwrap().wait().unwrap();
        store.checkpoint().unwrap();
        space.configure(in_memory()).unwrap();
        // The log is still in the frozen memtable or in the cache when the commit returns.
        let inner = store.inner();
        let runs = inner.state().runs.clone();
        let looked = runs.state(b"s/log").unwrap();
        {
            let cache = &mut inner.state().bounds_cache;
            cache.set(cache.secret().hash(b"s/log"), looked.bounds);
        }
        assert!(inner.state().learn(&runs, b"s/log", looked));
        assert_eq!(inner.state().active.find(b"s/log"), None);
    }

    /// A space is dumped while a commit looks up a log outside of it. In an earlier state, the
    /// commit looked it up again after each dump.
    #[test]
    fn look_ups_outlive_a_dump() {
        let store = store();
        let space = store.create_space("s", in_memory()).unwrap();
        store.append("log", "a").unwrap().wait().unwrap();
        store.checkpoint().unwrap();
        let inner = store.inner();
        let runs = inner.state().runs.clone();
        let looked = runs.state(b"log").unwrap();
        {
            // The cache must not hide what is learned.
            let cache = &mut inner.state().bounds_cache;
            cache.set(cache.secret().hash(b"log"), None);
        }
        space.append("log", "b").unwrap().wait().unwrap();
        assert_eq!(space.dump().unwrap().logs, 1);
        assert!(inner.state().learn(&runs, b"log", looked));
        assert!(inner.state().active.find(b"log").is_some());
        assert_eq!(store.append("log", "c").unwrap().seq(), 1);
    }

    /// The last dump has all of the space when it leaves memory.
    #[test]
    fn look_ups_from_before_a_stay_in_memory_are_outdated() {
        let store = store();
        let space = store.create_space("s", SpaceConfig::new()).unwrap();
        space.append("log", "a").unwrap().wait().unwrap();
        store.checkpoint().unwrap();
        let inner = store.inner();
        let runs = inner.state().runs.clone();
        let looked = runs.state(b"s/log").unwrap();
        space.configure(in_memory()).unwrap();
        space.append("log", "b").unwrap().wait().unwrap();
        space.dump().unwrap();
        space.configure(SpaceConfig::new()).unwrap();
        assert!(inner.state().learn(&runs, b"s/log", looked));
        assert_eq!(inner.state().active.find(b"s/log"), None);
        assert_eq!(space.append("log", "c").unwrap().seq(), 2);
    }

    /// A move panics on the thread of its caller, so that it never ends.
    #[test]
    fn a_panic_in_a_move_stops_the_store() {
        let options = Options::new().ring_size(1 << 20).memory_budget(1 << 20).max_payload(64 << 10);
        let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
        let space = store.create_space("s", in_memory()).unwrap();
        let memory_space = store.inner().memory_spaces.find(b"s").unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _moving = held(&memory_space.moving);
            memory_space.logs().phase = Phase::Moving;
            panic!("a planned panic");
        }));
        assert!(panicked.is_err());
        let refused = space.append("log", "entry").unwrap_err();
        assert!(matches!(refused, Error::Stopped { .. }), "{refused}");
    }
}
