//! What a checkpoint takes out of memory is remembered, before it goes: the bounds of each log of its tier.
//!
//! As many in a slice as a slice can write, so that it is done by the time that the run is; and few under one lock, as
//! commits wait for that.

use brooklet_io::seeded::bug;

use super::{Context, Keeper};

/// Logs for each slice. No slice writes more: the least that one counts for is in `merge.rs`.
const SLICE: usize = 1 << 14;
/// Logs for each time that the front's lock is taken.
const AT_ONCE: usize = 128;

impl Keeper {
    /// Remembers some logs of the frozen tier. `false` once there are no more.
    pub(super) fn remember(&mut self, context: &Context<'_>) -> bool {
        let checkpoint = self.checkpoint.as_mut().expect("only a checkpoint has logs to remember");
        let more = remember_some(context, &mut checkpoint.remembered);
        let bytes = context.front().remembered.bytes();
        self.shelf.share(bytes);
        more
    }
}

/// The same; `done` logs are remembered by now.
fn remember_some(context: &Context<'_>, done: &mut usize) -> bool {
    for _ in 0..SLICE / AT_ONCE {
        let mut front = context.front();
        let front = &mut *front;
        let tier = front.frozen.as_deref().expect("a tier stays until its checkpoint is done");
        if *done == tier.logs.len() {
            return false;
        }
        let end = tier.logs.len().min(*done + AT_ONCE);
        for log in &tier.logs[*done..end - usize::from(bug("last-is-not-remembered"))] {
            let bounds = log.piece().map_or(log.origin(), |piece| piece.bounds);
            // Of a log that keeps a part of its entries only, bounds alone say too little.
            front.remembered.set(&log.key, bounds.filter(|_| log.visible_terms().is_none()));
        }
        *done = end;
    }
    true
}
