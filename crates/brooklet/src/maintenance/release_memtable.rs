//! Releases a memtable that a run holds by now, a part at a time. To free tens of megabytes at once
//! occupies a processor for tens of milliseconds, during which commits wait.
//!
//! Memory that is not freed yet counts as used, so that it holds writers back. A memtable is frozen
//! only after the memtable before has been released.

use crate::maintenance::{Context, Maintenance};
use crate::memtable::Memtable;

/// Bytes that a slice of work frees. Freeing them takes some tenths of a millisecond.
const AT_ONCE: usize = 256 << 10;

impl Maintenance {
    /// Frees a part of the last checkpoint's memtable. Returns `false` if no memtable is being
    /// released.
    pub(super) fn release(&mut self, context: &Context<'_>) -> bool {
        let Some(memtable) = &mut self.releasing else { return false };
        if !memtable.release_some(AT_ONCE) {
            self.releasing = None;
        }
        context.state().set_releasing(self.releasing.as_ref().map_or(0, Memtable::bytes));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brooklet_io::{ManualClock, MemVolume};

    use super::*;
    use crate::engine::Inner;
    use crate::memtable::FREEING;
    use crate::sync::atomic::Ordering;
    use crate::{Options, Store};

    fn store() -> Store {
        let options = Options::new().threads(false).ring_size(64 << 20).block_size(64 << 10);
        options
            .clock(Arc::new(ManualClock::default()))
            .rng_seed(1)
            .create_on(Arc::new(MemVolume::new(1)))
            .unwrap()
    }

    fn fill(store: &Store, logs: u32, len: usize) {
        (0..logs).for_each(|log| drop(store.append(format!("{log}"), vec![7; len]).unwrap()));
        store.flush().unwrap();
    }

    /// Steps to the end of a checkpoint. Returns the number of steps.
    fn checkpoint(inner: &Inner) -> u64 {
        let before = inner.maintenance().stats.checkpoints;
        inner.wanted.store(true, Ordering::Relaxed);
        (1..)
            .find(|_| inner.maintain().unwrap() && inner.maintenance().stats.checkpoints > before)
            .expect("it ends")
    }

    #[test]
    fn slices_are_short() {
        let store = store();
        fill(&store, 64, 64 << 10);
        let steps = checkpoint(store.inner());
        assert!(steps >= (4 << 20) / (128 << 10), "4 MiB in {steps} steps");
    }

    /// Once, a memtable was freed in one piece and not counted: for tens of milliseconds, no other
    /// thread had the processor.
    #[test]
    fn a_tier_leaves_in_parts_and_counts_until_then() {
        for (logs, len) in [(64, 64 << 10), (20_000, 10)] {
            let store = store();
            let inner = store.inner();
            fill(&store, logs, len);
            let held = inner.state().memory();
            checkpoint(inner);
            assert_eq!(inner.state().memory(), held, "the run has it, and memory has it still");
            // The next checkpoint does not begin now, and new commits do not count as memory that
            // is being released.
            fill(&store, 1, 10);
            inner.wanted.store(true, Ordering::Relaxed);
            let mut steps = 0;
            while inner.state().releasing > 0 {
                let before = inner.state().releasing;
                assert!(inner.maintain().unwrap() && inner.state().frozen.is_none());
                let freed = before - inner.state().releasing;
                assert!(freed <= AT_ONCE + (96 << 10), "{freed} bytes at once");
                steps += 1;
            }
            assert!(steps > logs as usize * (FREEING + len) / AT_ONCE / 2, "{steps} steps");
            let state = inner.state();
            assert_eq!(state.memory(), state.active.bytes());
            assert!(state.active.is_changed());
        }
    }

    #[test]
    fn who_asks_for_a_checkpoint_gets_the_memory() {
        let store = store();
        fill(&store, 64, 64 << 10);
        store.checkpoint().unwrap();
        assert_eq!(store.info().unwrap().memtable_bytes, 0);
    }
}
