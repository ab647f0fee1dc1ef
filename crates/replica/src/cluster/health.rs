//! The state of a log in a bucket, without reading the log: for people who look at a cluster.

use std::time::{Duration, SystemTime};

use brooklet_archive::Bucket;
use brooklet_archive::object_store::ObjectStoreExt;
use brooklet_archive::object_store::path::Path;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::bucket::BucketJournal;
use crate::claim::Claim;
use crate::cluster::doctor::{AT_ONCE, FLIGHTS, is_fence};
use crate::drive::send;
use crate::error::Error;
use crate::journal::{Journal, Key};
use crate::machine::{Reply, Request};
use crate::object::{Kind, Object};
use crate::place::{Epoch, Mark, Place, StoreId};
use crate::record::Record;
use crate::standby::{block_on_while, find};

/// The state of a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// The store.
    pub store: StoreId,
    /// The claim of the owner, or of a host that takes the store over and has fenced that owner.
    pub claim: Claim,
    /// The newest epoch that was claimed. It may be later than that of the owner: a host that takes
    /// the store over may have died before its first fence.
    pub claimed: Epoch,
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
    /// Makes some 30 requests, and 64 more while the newest claim has no object.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::NewerFormat`]; those of the bucket; [`Error::GivenUp`].
    pub fn of(bucket: &Bucket, goes_on: &dyn Fn() -> bool) -> Result<Option<Self>, Error> {
        block_on_while(Self::look(bucket), goes_on)?.ok_or(Error::GivenUp)
    }

    pub(crate) async fn look(bucket: &Bucket) -> Result<Option<Self>, Error> {
        let journal = BucketJournal::new(bucket);
        let Some(store) = find(&journal).await? else { return Ok(None) };
        let mut record = newest(&journal, store, None).await?;
        loop {
            let number = record.as_ref().map(|record| record.number);
            let found = Self::behind(bucket, &journal, store, record).await;
            // The log may have been trimmed meanwhile, past the places that were looked at.
            let newer = newest(&journal, store, number).await?;
            if newer.as_ref().map(|record| record.number) == number {
                return found;
            }
            record = newer;
        }
    }

    /// Looks at the log behind its newest record.
    async fn behind(
        bucket: &Bucket,
        journal: &BucketJournal,
        store: StoreId,
        record: Option<Record>,
    ) -> Result<Option<Self>, Error> {
        let Reply::Claim(Some(mut claim)) = send(journal, store, &Request::NewestClaim).await? else {
            return Ok(None);
        };
        let claimed = claim.writer.epoch;
        let begin = record.as_ref().map_or(Mark::BEGIN.place, |record| record.mark.place);
        let mut end = Last::of(journal, store, claimed, begin).await?;
        // A host may have died between its claim and its first fence: the owner before it serves
        // on.
        let mut epoch = claimed;
        while end.last.is_none() && epoch > begin.epoch {
            epoch = Epoch(epoch.0 - 1);
            let before = Last::of(journal, store, epoch, begin).await?;
            let Some((last, is_over)) = before.last else { continue };
            if is_over || is_fenced(journal, store, last, begin).await? {
                break;
            }
            if let Reply::Claim(of) = send(journal, store, &Request::ReadClaim(epoch)).await? {
                (claim, end) = (of.unwrap_or(claim), before);
            }
            break;
        }
        let last = end.last.map_or(Key::Claim(claim.writer.epoch), |(last, _)| Key::Log(last));
        let sign = written(bucket, last).await?;
        Ok(Some(Self { store, claim, claimed, end: end.place, sign, record }))
    }
}

/// Returns the newest record, which is the known one if there is no newer one.
async fn newest(
    journal: &BucketJournal,
    store: StoreId,
    known: Option<u64>,
) -> Result<Option<Record>, Error> {
    match send(journal, store, &Request::NewestRecord(known)).await? {
        Reply::Record(record) => Ok(record),
        _ => Ok(None),
    }
}

/// The end of an epoch.
struct Last {
    /// The place of the next object.
    place: Place,
    /// The place of the last object behind the begin of the log, and whether it ends the epoch.
    last: Option<(Place, bool)>,
}

impl Last {
    async fn of(journal: &BucketJournal, store: StoreId, epoch: Epoch, begin: Place) -> Result<Self, Error> {
        let from = if begin.epoch == epoch { begin.number } else { 0 };
        // The numbers of objects begin with 0.
        let place = |number: u64| Place { epoch, number: number - 1 };
        let newest = journal.newest(|number| Key::Log(place(number)), from).await?;
        let Some((number, data)) = newest else {
            return Ok(Self { place: Place { epoch, number: from }, last: None });
        };
        // One that cannot be read here is a sign all the same.
        let is_over = Object::decode(store, place(number), &data)
            .is_ok_and(|object| matches!(object.kind, Kind::Fence | Kind::Handover));
        Ok(Self { place: Place { epoch, number }, last: Some((place(number), is_over)) })
    }
}

/// Returns whether the last objects of an epoch, up to `last`, have its fence: what its owner had
/// in flight may lie behind it, and counts for nothing.
async fn is_fenced(
    journal: &BucketJournal,
    store: StoreId,
    last: Place,
    begin: Place,
) -> Result<bool, Error> {
    let first = last.number.saturating_sub(FLIGHTS);
    let places = (first..last.number).rev().map(|number| Place { number, ..last });
    let looks = places.filter(|place| *place >= begin).map(|place| is_fence(journal, store, place));
    let looks: Vec<_> = looks.collect();
    let found: Vec<bool> = stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
    Ok(found.contains(&true))
}

/// Returns the time at which an object was written.
pub(super) async fn written(bucket: &Bucket, key: Key) -> Result<SystemTime, Error> {
    let found = bucket.object_store().head(&Path::from(key.to_string())).await;
    let found =
        found.map_err(|cause| Error::Bucket { doing: format!("looking at {bucket}/{key}"), cause })?;
    Ok(found.last_modified.into())
}
