//! Which backup a caller asks for.

use std::time::SystemTime;

/// Which backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The last one, and all commits that were shipped behind it.
    #[default]
    Latest,
    /// The store as it was at this time, by the clock of the store's host: the last backup of
    /// before, and the commits behind it that were durable by then. Between two backups that takes
    /// commits that were [shipped](crate::Archive::follow), all of them: else it is
    /// [`Error::Hole`](crate::Error::Hole). After all that the archive knows it is the last that it
    /// knows, and [`View::taken_ms`](brooklet::View::taken_ms) says of when that is.
    ///
    /// Where the clock was set back, so that it passed this time more than once, it is the time at
    /// which the store was backed up, or committed to, least long before.
    At(SystemTime),
    /// The one of this number alone.
    Number(u64),
}
