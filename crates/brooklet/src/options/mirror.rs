//! The second place of a store's log, and what waits for it.

use std::fmt;
use std::sync::Arc;

use brooklet_wal::{Mirror, Waits};

use crate::error::Error;
use crate::model::space_config::{SEPARATOR, SpaceConfig};

/// The second place of a store's log; see [`Options::mirror`](crate::Options::mirror).
///
/// The store passes each block of its log to the [`Mirror`], in order, once the block is on stable
/// media here.
#[derive(Clone)]
pub struct MirrorOptions {
    pub(crate) mirror: Arc<dyn Mirror>,
    pub(crate) waits: Waits,
    pub(crate) window: u64,
    spaces: Vec<Box<str>>,
}

impl MirrorOptions {
    /// Creates options with a mirror for which every acknowledgement waits.
    pub fn new(mirror: Arc<dyn Mirror>) -> Self {
        Self { mirror, waits: Waits::Kept, window: 32 << 20, spaces: Vec::new() }
    }

    /// Sets the event that acknowledges a commit. Default: [`Waits::Kept`]. Commits of
    /// [deferred](crate::Class::Deferred) spaces are acknowledged at once with either.
    pub fn waits(mut self, waits: Waits) -> Self {
        self.waits = waits;
        self
    }

    /// Lets the commits of one space wait for the mirror, in a store whose other commits
    /// [do not](Waits::Local). Readers see such a commit once it is on stable media here, before
    /// the mirror keeps it. The space need not exist; an opening refuses a name that no space can
    /// have.
    pub fn kept_space(mut self, name: &str) -> Self {
        self.spaces.push(name.into());
        self
    }

    /// Sets the bytes of blocks from which on commits wait, while the mirror does not keep these
    /// blocks yet. Default: 32 MiB. The blocks on their way to the medium come on top of it.
    pub fn window(mut self, bytes: u64) -> Self {
        self.window = bytes;
        self
    }

    /// Returns whether a commit on a log waits for the mirror, although the block does not.
    pub(crate) fn waits_beyond(&self, key: &[u8]) -> bool {
        let name = |space: &str| {
            key.strip_prefix(space.as_bytes()).is_some_and(|rest| rest.first() == Some(&SEPARATOR))
        };
        self.waits == Waits::Local && self.spaces.iter().any(|space| name(space))
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.spaces.iter().try_for_each(|name| SpaceConfig::new().check(name))?;
        if self.window == 0 {
            let what = "a mirror with a window of 0 bytes: use at least 1".into();
            return Err(Error::InvalidOptions(what));
        }
        Ok(())
    }
}

impl fmt::Debug for MirrorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MirrorOptions({:?}, {} bytes, {:?})", self.waits, self.window, self.spaces)
    }
}
