//! What a bucket shows of a log, without reading it: for people who look at a cluster.

use std::time::{Duration, SystemTime};

use brooklet_archive::Bucket;
use brooklet_archive::object_store::ObjectStoreExt;
use brooklet_archive::object_store::path::Path;

use crate::bucket::BucketJournal;
use crate::claim::Claim;
use crate::drive::send;
use crate::error::Error;
use crate::journal::{Journal, Key};
use crate::machine::{Reply, Request};
use crate::place::{Place, StoreId};
use crate::record::Record;
use crate::standby::{block_on_while, find};

/// How a log stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// The store.
    pub store: StoreId,
    /// The newest claim: that of the owner, or of a host that takes the store over.
    pub claim: Claim,
    /// The place of the next object of that owner.
    pub end: Place,
    /// The last sign of that owner, by the clock of the bucket.
    pub sign: SystemTime,
    /// The newest record.
    pub record: Option<Record>,
}

impl Health {
    /// Returns the time from the last sign to `now`; none if the clocks differ by more than that.
    pub fn silence(&self, now: SystemTime) -> Duration {
        now.duration_since(self.sign).unwrap_or_default()
    }

    /// Looks at the log in a bucket, while `goes_on` returns true; `None` if nobody has claimed it.
    /// Makes some 30 requests.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::NewerFormat`]; those of the bucket; [`Error::GivenUp`].
    pub fn of(bucket: &Bucket, goes_on: &dyn Fn() -> bool) -> Result<Option<Self>, Error> {
        block_on_while(Self::look(bucket), goes_on)?.ok_or(Error::GivenUp)
    }

    pub(crate) async fn look(bucket: &Bucket) -> Result<Option<Self>, Error> {
        let journal = BucketJournal::new(bucket);
        let Some(store) = find(&journal).await? else { return Ok(None) };
        let Reply::Claim(Some(claim)) = send(&journal, store, &Request::NewestClaim).await? else {
            return Ok(None);
        };
        let record = match send(&journal, store, &Request::NewestRecord(None)).await? {
            Reply::Record(record) => record,
            _ => None,
        };
        let epoch = claim.writer.epoch;
        let place = record.as_ref().map(|record| record.mark.place).filter(|place| place.epoch == epoch);
        let from = place.map_or(0, |place| place.number);
        // The numbers of objects begin with 0.
        let name = |number: u64| Key::Log(Place { epoch, number: number - 1 });
        let newest = journal.newest(name, from).await?;
        let end = Place { epoch, number: newest.map_or(from, |(number, _)| number) };
        let last = if end.number > from { name(end.number) } else { Key::Claim(epoch) };
        let sign = written(bucket, last).await?;
        Ok(Some(Self { store, claim, end, sign, record }))
    }
}

/// Returns the time at which an object was written.
async fn written(bucket: &Bucket, key: Key) -> Result<SystemTime, Error> {
    let found = bucket.object_store().head(&Path::from(key.to_string())).await;
    let found =
        found.map_err(|cause| Error::Bucket { doing: format!("looking at {bucket}/{key}"), cause })?;
    Ok(found.last_modified.into())
}
