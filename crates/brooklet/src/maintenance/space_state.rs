//! The state of the room on the volume, as maintenance knows it.

use crate::error::Error;

/// The room on the volume, and the requests that found too little of it.
pub(super) struct SpaceState {
    /// The error of a checkpoint that found no room, and the free room at that time. The checkpoint
    /// is retried only with more free room.
    pub stuck: Option<(Error, u64)>,
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
