//! What is damaged of a store, as far as it was met.

use std::fmt;

use crate::lost;
use crate::store::Store;
use crate::view::View;

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
    fn of_ring(lost: &lost::Lost) -> Self {
        let logs = lost.touched().map(<[u8]>::to_vec).collect();
        Self { place: lost.place(), what: lost.what(), logs, from: Vec::new(), to: None }
    }
}

impl Store {
    /// The damage that opening the store, reading it, and its own upkeep have met.
    pub fn damage(&self) -> Vec<Damage> {
        let front = self.inner().front();
        lost::of(&front.lost).map(|lost| Damage::of_ring(lost)).into_iter().collect()
    }
}

impl View {
    /// The same, of what the view shows.
    pub fn damage(&self) -> Vec<Damage> {
        self.lost.as_ref().map(|lost| Damage::of_ring(lost)).into_iter().collect()
    }
}
