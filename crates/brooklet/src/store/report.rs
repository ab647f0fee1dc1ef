//! What a store reports of itself: what it is made of, what it did, and that as metrics.

use crate::error::Error;
use crate::stats::activity::Activity;
use crate::stats::info::StoreInfo;
use crate::stats::metrics::Metrics;
use crate::store::Store;

impl Store {
    /// Tells what the store is made of and what it has done since it was opened.
    pub fn info(&self) -> Result<StoreInfo, Error> {
        self.inner().info()
    }

    /// Tells what the store has done since it was opened, and what it is doing. It takes a few
    /// microseconds, and waits for no I/O: it answers, too, where the device does not.
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

    /// The store's metrics: [`activity`](Self::activity) with names.
    /// [`Options::metrics_file`](crate::Options::metrics_file) keeps a file of them.
    pub fn metrics(&self) -> Metrics {
        Metrics::from(&self.activity())
    }
}
