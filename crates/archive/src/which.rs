//! The choice of a backup.

use std::time::SystemTime;

/// A choice of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The last backup, with all commits that were shipped behind it.
    #[default]
    Latest,
    /// The store as it was at this time, by the clock of the store's host: the last backup before
    /// the time, with the commits behind it that were durable by then. A time between two backups
    /// needs all commits between them, [shipped](crate::Archive::follow) to the archive; otherwise
    /// the error is [`Error::Hole`](crate::Error::Hole). A time after the last known moment selects
    /// that moment; [`View::taken_ms`](brooklet::View::taken_ms) returns its time.
    ///
    /// If the clock was set back, it may have passed this time more than once. Then the choice is
    /// the pass that starts from the latest time of a backup or a commit.
    At(SystemTime),
    /// The backup of this number, without the commits behind it.
    Number(u64),
}
