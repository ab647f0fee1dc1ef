//! What is damaged of a store, as far as it was met.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::format::run_entry::unescape;
use crate::run::table::Table;
use crate::run::{Run, RunSet};
use crate::state::lost::{self, Lost};
use crate::store::Store;
use crate::store::view::View;

/// A damaged place of a store, and whom it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Where it is: a stretch of the ring, or a run.
    pub place: String,
    /// What is wrong there.
    pub what: String,
    /// Logs that it is known to touch, or that the damaged bytes name.
    pub logs: Vec<Vec<u8>>,
    /// The least key of a log that it may touch.
    pub from: Vec<u8>,
    /// The least key behind those; `None` where there is no end.
    pub to: Option<Vec<u8>>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damage in {}: {}", self.place, self.what)
    }
}

impl Damage {
    fn of_ring(lost: &Lost) -> Self {
        let logs = lost.touched().map(<[u8]>::to_vec).collect();
        Self { place: lost.place(), what: lost.what(), logs, from: Vec::new(), to: None }
    }

    /// The parts of a run in which damage was met.
    fn of_run(run: &Run) -> Vec<Self> {
        let damaged = run.tables.iter().enumerate().filter(|(_, table)| table.is_damaged());
        let of_table = |(at, table): (usize, &Arc<Table>)| {
            let (place, what) = match table.reader() {
                Err(Error::Damaged { place, what }) => (place, what),
                Err(error) => (table.place(), error.to_string()),
                Ok(_) => (table.place(), "some of it does not read back as it was written".into()),
            };
            let from = first_log(&table.meta.first);
            let to = run.tables.get(at + 1).map(|next| first_log(&next.meta.first));
            Self { place, what, logs: Vec::new(), from, to }
        };
        damaged.map(of_table).collect()
    }
}

/// The key of the log that a codex key belongs to, or that a part of one begins.
fn first_log(codex_key: &[u8]) -> Vec<u8> {
    unescape(codex_key).0
}

impl Store {
    /// The damage that opening the store, reading it, and its own upkeep have met.
    ///
    /// # Panics
    /// In a process that did not open the store.
    pub fn damage(&self) -> Vec<Damage> {
        let (runs, lost) = {
            let state = self.inner().state();
            (state.runs.clone(), lost::of(&state.lost).cloned())
        };
        all(&runs, lost.as_ref())
    }
}

impl View {
    /// The same, of what the view shows.
    pub fn damage(&self) -> Vec<Damage> {
        all(&self.runs, self.lost.as_ref())
    }
}

fn all(runs: &RunSet, lost: Option<&Arc<Lost>>) -> Vec<Damage> {
    let of_ring = lost.map(|lost| Damage::of_ring(lost));
    of_ring.into_iter().chain(runs.iter().flat_map(|run| Damage::of_run(run))).collect()
}
