//! The damage of a store, as far as the store has met it.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::format::run_entry::unescape;
use crate::run::table::Table;
use crate::run::{Run, RunSet};
use crate::state::lost::{self, Lost};
use crate::store::Store;
use crate::store::view::View;

/// A damaged place of a store, and the logs that it affects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Place of the damage: a stretch of the ring, or a run.
    pub place: String,
    /// Description of the damage.
    pub what: String,
    /// Keys of the logs that the damage is known to affect, or that the damaged bytes name.
    pub logs: Vec<Vec<u8>>,
    /// Least key of a log that the damage may affect.
    pub from: Vec<u8>,
    /// Least key after those logs; `None` if no key ends the range.
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

    /// Returns the parts of a run in which the store met damage.
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

/// Returns the key of the log that a codex key, or the beginning of one, belongs to.
fn first_log(codex_key: &[u8]) -> Vec<u8> {
    unescape(codex_key).0
}

impl Store {
    /// Returns the damage that the store has met: during opening, reads, and its own maintenance.
    ///
    /// # Panics
    /// Panics in a process that did not open the store.
    pub fn damage(&self) -> Vec<Damage> {
        let (runs, lost) = {
            let state = self.inner().state();
            (state.runs.clone(), lost::of(&state.lost).cloned())
        };
        all(&runs, lost.as_ref())
    }
}

impl View {
    /// Returns the damage in the data of the view.
    pub fn damage(&self) -> Vec<Damage> {
        all(&self.runs, self.lost.as_ref())
    }
}

fn all(runs: &RunSet, lost: Option<&Arc<Lost>>) -> Vec<Damage> {
    let of_ring = lost.map(|lost| Damage::of_ring(lost));
    of_ring.into_iter().chain(runs.iter().flat_map(|run| Damage::of_run(run))).collect()
}
