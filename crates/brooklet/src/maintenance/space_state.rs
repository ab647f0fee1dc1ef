//! The state of the room on the volume, as maintenance knows it.

use crate::error::Error;

/// The room on the volume, and the requests that found too little of it.
pub(super) struct SpaceState {
    /// The last failure of a checkpoint that found no room.
    pub stuck: Option<Stuck>,
    /// The room for merging at the last look, in bytes.
    pub room: u64,
    /// Set if less room was found than wanted: the request for which this was found, and the number
    /// of refusals.
    pub short_of_space: Option<(u64, u64)>,
    /// The last request for room for which the reserved entries were checkpointed.
    pub checkpointed_for: Option<u64>,
    /// Whether merging cannot continue with its reserve: half of the reserve is then for commits
    /// that free space.
    pub last_resort: bool,
    /// Number of waits for the readers of merged tables, since there were none.
    pub waits: u32,
    /// The reason why the volume did not grow at the last failure.
    pub why_full: String,
    /// Whether holes can be punched, as far as is known.
    pub punches: bool,
}

/// A checkpoint that found no room. It is retried with more free room, and now and then: the volume
/// may refuse a write for a reason that passes, although the space of the write was allocated.
pub(super) struct Stuck {
    pub error: Error,
    /// The free room then.
    pub room: u64,
    /// Number of slices since then that made no room.
    pub futile: u32,
    /// Number of such slices after which the checkpoint is retried.
    patience: u32,
    /// Whether it is being retried.
    retries: bool,
}

impl Stuck {
    const MOST_PATIENCE: u32 = 64;

    /// Returns whether the checkpoint is to be retried without more room.
    pub fn retries(&mut self) -> bool {
        self.retries = self.futile >= self.patience;
        self.retries
    }
}

impl SpaceState {
    /// Records that a checkpoint found no room, or that no room could be made for it.
    pub fn note_stuck(&mut self, error: Error, room: u64) {
        let (futile, patience) = match &self.stuck {
            None => (0, 1),
            Some(Stuck { retries: true, patience, .. }) => (0, (patience * 2).min(Stuck::MOST_PATIENCE)),
            Some(Stuck { futile, patience, .. }) => (*futile, *patience),
        };
        self.stuck = Some(Stuck { error, room, futile, patience, retries: false });
    }
}

impl Default for SpaceState {
    fn default() -> Self {
        Self {
            stuck: None,
            room: 0,
            short_of_space: None,
            checkpointed_for: None,
            last_resort: false,
            waits: 0,
            why_full: String::new(),
            punches: true,
        }
    }
}
