//! Most logs belong to a space, whose class changes while all users continue.

use std::time::Duration;

use brooklet::{Class, Error, MemoryConfig, SpaceConfig, Store};

use super::World;
use crate::model::SPACE;
use crate::oracle::{MemorySpaceModel, Violation};
use crate::plan::Rest;

/// Memory of the space, in bytes: more than it ever needs.
const MEMORY: u64 = 64 << 20;

/// Returns whether the space is in memory.
pub(super) fn is_in_memory(store: &Store) -> bool {
    store.spaces().iter().any(|space| space.config.class.memory().is_some())
}

impl World {
    pub(super) fn change_class(&self, rest: Rest) -> Result<(), Violation> {
        let store = self.open_store();
        let config = SpaceConfig::new().class(match rest {
            Rest::Durable => Class::Durable,
            Rest::Deferred => Class::Deferred(Duration::from_millis(100)),
            Rest::Memory => Class::Memory(MemoryConfig::new(MEMORY)),
        });
        let was_in_memory = is_in_memory(&store);
        self.state().oracle.begin_dump();
        let done = match store.space(SPACE) {
            Ok(space) => space.configure(config),
            Err(_) => store.create_space(SPACE, config).map(drop),
        };
        {
            let mut state = self.state();
            state.oracle.settle()?;
            let moved_within = done.is_ok() && was_in_memory;
            // After a stop, the class of the space is unknown until the next opening.
            if !matches!(done, Err(Error::Stopped { .. })) {
                let oracle = &mut state.oracle;
                oracle.end_dump(moved_within.then_some(false));
                match is_in_memory(&store) {
                    true => {
                        let new = || MemorySpaceModel::of(&oracle.durable);
                        oracle.memory_space.get_or_insert_with(new);
                    }
                    false => oracle.memory_space = None,
                }
            }
        }
        self.excuse(done)
    }

    /// Makes the logs in memory durable.
    pub(super) fn dump(&self) -> Result<(), Violation> {
        let Ok(space) = self.open_store().space(SPACE) else { return Ok(()) };
        self.state().oracle.begin_dump();
        let dumped = space.dump();
        self.tell(|| format!("  -> {dumped:?}"));
        let counts = match &dumped {
            Ok(_) => Some(true),
            Err(Error::Stopped { .. }) => None,
            Err(_) => Some(false),
        };
        self.state().oracle.end_dump(counts);
        match dumped {
            Err(Error::InvalidSpace(_)) if !is_in_memory(&self.open_store()) => Ok(()),
            dumped => self.excuse(dumped.map(drop)),
        }
    }
}
