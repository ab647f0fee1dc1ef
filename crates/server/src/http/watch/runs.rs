//! The runs, for the picture of them. Reading them takes a lock that maintenance holds while it
//! waits for the device. So one thread reads them from time to time, and the page shows its last
//! result.

use std::sync::Mutex;
use std::time::Duration;

use brooklet::{Error, StoreInfo};
use serde::Serialize;

use super::Watch;

/// How old what is told may be before it is asked for again.
const OLD: Duration = Duration::from_secs(1);
/// Most runs that are told.
const MOST: usize = 200;

#[derive(Default)]
pub(super) struct Runs(Mutex<State>);

#[derive(Default)]
struct State {
    last: Option<(Duration, Told)>,
    asking: bool,
}

/// What a store is made of.
#[derive(Clone, Serialize)]
pub(super) struct Told {
    store: String,
    id: String,
    size_bytes: u64,
    capacity_bytes: u64,
    /// How many runs there are; the newest of them are listed, newest first.
    count: usize,
    runs: Vec<RunRow>,
}

#[derive(Clone, Serialize)]
struct RunRow {
    id: u64,
    level: u64,
    bytes: u64,
    raw_bytes: u64,
    logs: u64,
    entries: u64,
    dead: u64,
    segments: usize,
    merging: bool,
    elsewhere: bool,
}

impl Told {
    fn of(info: &StoreInfo) -> Self {
        let runs = info.runs.iter().take(MOST).map(|run| RunRow {
            id: run.id,
            level: run.level,
            bytes: run.bytes,
            raw_bytes: run.raw_bytes,
            logs: run.logs,
            entries: run.entries,
            dead: run.dead,
            segments: run.tables,
            merging: run.merging,
            elsewhere: run.offloaded,
        });
        Self {
            store: info.volume.name.clone(),
            id: format!("{:032x}", info.id),
            size_bytes: info.size,
            capacity_bytes: info.capacity,
            count: info.runs.len(),
            runs: runs.collect(),
        }
    }
}

impl Runs {
    /// What was told last; has a thread ask again where that is old, and none does.
    pub fn last(watch: &Watch) -> Option<Told> {
        let store = watch.store()?;
        let mut state = watch.0.runs.0.lock().expect("no panics");
        let is_old = state.last.as_ref().is_none_or(|(at, _)| *at + OLD < watch.now());
        if is_old && !state.asking {
            state.asking = true;
            let (watch, store) = (watch.clone(), store.clone());
            tokio::task::spawn_blocking(move || watch.0.runs.told(watch.now(), store.info()));
        }
        state.last.as_ref().map(|(_, told)| told.clone())
    }

    fn told(&self, now: Duration, info: Result<StoreInfo, Error>) {
        let mut state = self.0.lock().expect("no panics");
        state.asking = false;
        match info {
            Ok(info) => state.last = Some((now, Told::of(&info))),
            Err(error) => tracing::warn!(%error, "the page shows runs as they were"),
        }
    }
}
