//! The reports of a store: its content, its activity, and both as metrics.

use crate::error::Error;
use crate::stats::activity::Activity;
use crate::stats::info::StoreInfo;
use crate::stats::metrics::Metrics;
use crate::store::Store;

impl Store {
    /// Writes an empty block to the ring. Returns `false`, and writes nothing, while commits are on
    /// their way. The call is for the mirror of a store without commits, which needs a block.
    ///
    /// # Errors
    /// The error that stopped the store.
    #[doc(hidden)]
    pub fn write_empty_block(&self) -> Result<bool, Error> {
        let inner = self.inner();
        inner.here()?;
        Ok(inner.writable()?.write_empty()?)
    }

    /// Returns the content of the store, and its activity since it was opened.
    pub fn info(&self) -> Result<StoreInfo, Error> {
        self.inner().info()
    }

    /// Returns the activity of the store since it was opened, and its current work. The call takes
    /// a few microseconds and waits for no I/O: it returns even if the device does not answer.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// use brooklet::StallReason;
    /// store.append("log", "entry")?.wait()?;
    /// let activity = store.activity();
    /// assert_eq!((activity.commits, activity.stages.whole.count()), (1, 1));
    /// println!("half of the blocks took {:?} to be durable", activity.stages.whole.quantile(0.5));
    /// println!("{:?} waiting for checkpoints", activity.stall(StallReason::Checkpoint).time);
    /// # Ok(())
    /// # }
    /// ```
    pub fn activity(&self) -> Activity {
        self.inner().activity()
    }

    /// Exports the same values as [`activity`](Self::activity) as metrics.
    /// [`Options::metrics_file`](crate::Options::metrics_file) keeps a file of these metrics.
    pub fn metrics(&self) -> Metrics {
        Metrics::from(&self.activity())
    }
}
