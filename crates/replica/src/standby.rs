//! A standby: it reads a log behind its owner, until the store needs another owner.

use std::future::Future;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::claim::Claim;
use crate::drive::{follow, send};
use crate::error::Error;
use crate::journal::{Journal, Key};
use crate::machine::follower::{Follower, FollowerState};
use crate::machine::{Reply, Request};
use crate::place::{Epoch, Mark, StoreId};

/// Time between two requests of a standby that has read all of the log.
const PAUSE: Duration = Duration::from_millis(200);

/// Returns the store whose log a journal has.
pub(crate) async fn find<J: Journal>(journal: &J) -> Result<Option<StoreId>, Error> {
    let claim = journal.read(Key::Claim(Epoch::FIRST)).await?;
    Ok(claim.and_then(|claim| Claim::store(&claim)))
}

/// Waits until the owner of a log is silent for so long, or has handed the store over. A journal
/// without a log has no owner yet.
pub(crate) async fn stand_by<J: Journal>(journal: &J, silence: Duration) -> Result<(), Error> {
    let store = loop {
        match insist(|| find(journal)).await? {
            Some(store) => break store,
            None => tokio::time::sleep(PAUSE).await,
        }
    };
    loop {
        let request = Request::NewestRecord(None);
        let (at, record) = match insist(|| send(journal, store, &request)).await? {
            Reply::Record(Some(record)) => (record.mark, Some(record.number)),
            _ => (Mark::BEGIN, None),
        };
        let mut follower = Follower::new(store, at, record, silence, Duration::ZERO);
        match follow(journal, store, &mut follower, PAUSE, drop).await? {
            FollowerState::Behind => {}
            FollowerState::Broken(place) => {
                let what = "it does not follow the object before it";
                return Err(Error::Damaged { object: place.to_string(), what });
            }
            _ => return Ok(()),
        }
    }
}

/// Asks until the bucket answers: that the bucket is silent does not mean that the owner is.
async fn insist<T, F: Future<Output = Result<T, Error>>>(ask: impl Fn() -> F) -> Result<T, Error> {
    loop {
        match ask().await {
            Err(error) if error.is_temporary() => tokio::time::sleep(PAUSE).await,
            result => return result,
        }
    }
}

/// Does some work while `goes_on` returns true, and returns `None` after that.
pub(crate) async fn while_it<T>(work: impl Future<Output = T>, goes_on: &dyn Fn() -> bool) -> Option<T> {
    let stopped = async {
        while goes_on() {
            tokio::time::sleep(PAUSE / 2).await;
        }
    };
    match select(std::pin::pin!(work), std::pin::pin!(stopped)).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}
