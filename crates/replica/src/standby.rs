//! A standby: it reads a log behind its owner, until the store needs another owner.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use tokio::time::Instant;

use crate::claim::Claim;
use crate::drive::{Listener, follow_with, send};
use crate::error::Error;
use crate::followed::{Followed, sealed};
use crate::journal::{Journal, Key};
use crate::machine::follower::{Follower, FollowerState};
use crate::machine::{Reply, Request};
use crate::object::{Kind, Object};
use crate::place::{Epoch, Mark, Place, StoreId};

/// Time between two requests of a standby that has read all of the log.
const PAUSE: Duration = Duration::from_millis(200);

/// Returns the store whose log a journal has.
pub(crate) async fn find<J: Journal>(journal: &J) -> Result<Option<StoreId>, Error> {
    let claim = journal.read(Key::Claim(Epoch::FIRST)).await?;
    Ok(claim.and_then(|claim| Claim::store(&claim)))
}

/// Returns the claim of an epoch of the log that a journal has.
pub(crate) async fn claim_of<J: Journal>(journal: &J, epoch: Epoch) -> Result<Option<Claim>, Error> {
    let Some(store) = find(journal).await? else { return Ok(None) };
    match send(journal, store, &Request::ReadClaim(epoch)).await? {
        Reply::Claim(claim) => Ok(claim),
        _ => Ok(None),
    }
}

/// The decisions of a host that stands by, for
/// [`Replica::stand_by_as`](crate::Replica::stand_by_as).
pub trait Standing {
    /// Takes the next part of the log.
    fn take(&mut self, read: Followed);

    /// Returns the time until the next look at the log. All of it was read, up to the place `_end`;
    /// `None` if the bucket did not answer. The log may have been trimmed past that place.
    fn pause(&mut self, _end: Option<Place>) -> Duration {
        PAUSE
    }

    /// Returns whether this host takes over at once after the owner has handed the store over to
    /// the host `_to`. Otherwise this host waits for a silence.
    fn takes(&mut self, _to: &str) -> bool {
        true
    }

    /// Returns whether this host begins a log where there is none.
    fn begins(&mut self) -> bool {
        false
    }
}

impl<F: FnMut(Followed)> Standing for F {
    fn take(&mut self, read: Followed) {
        self(read);
    }
}

/// Waits until the owner of a log is silent for the time `silence`, or has handed the store over to
/// this host. A journal without a log has no owner yet. Passes all that it reads to `standing`.
///
/// # Errors
/// The errors of [`Replica::stand_by`](crate::Replica::stand_by).
pub async fn stand_by<J: Journal>(
    journal: &Arc<J>,
    silence: Duration,
    standing: &mut dyn Standing,
) -> Result<(), Error> {
    stand_by_to(journal, silence, standing).await.map(drop)
}

/// Does what [`stand_by`] does, and returns the place behind the last object that the owner left;
/// `None` if there is no log.
pub(crate) async fn stand_by_to<J: Journal>(
    journal: &Arc<J>,
    silence: Duration,
    standing: &mut dyn Standing,
) -> Result<Option<Place>, Error> {
    let store = loop {
        match insist(|| find(&**journal)).await? {
            Some(store) => break store,
            None if standing.begins() => return Ok(None),
            None => tokio::time::sleep(PAUSE).await,
        }
    };
    loop {
        let Begin { at, record, backup, claim } = begin(&**journal, store).await?;
        standing.take(Followed::Begin { store, backup });
        claim.iter().for_each(|claim| standing.take(owner_of(claim)));
        let mut follower = Follower::new(store, at, record, silence, Duration::ZERO);
        let mut reading = Reading { standing: &mut *standing, end: at.place, left_to: None };
        loop {
            let state = follow_with(journal, store, &mut follower, &mut reading).await?;
            match (state, reading.left_to.take()) {
                (FollowerState::Behind, _) => break,
                (FollowerState::Broken(place), _) => {
                    let what = "it does not follow the object before it";
                    return Err(Error::Damaged { object: place.to_string(), what });
                }
                (FollowerState::HandedOver, Some(to)) => {
                    if !is_claimed(&**journal, store, &follower).await? && reading.standing.takes(&to) {
                        return Ok(Some(follower.at().place));
                    }
                    follower = follower.past_the_handover();
                }
                _ => return Ok(Some(follower.at().place)),
            }
        }
    }
}

/// Returns whether a host has followed an owner that handed the store over: its handover is an old
/// one, of which a follower reads that begins anew.
async fn is_claimed<J: Journal>(journal: &J, store: StoreId, at: &Follower<Bytes>) -> Result<bool, Error> {
    let next = Request::ReadClaim(at.at().place.epoch.next());
    // A claim that cannot be read here is one all the same.
    match insist(|| send(journal, store, &next)).await {
        Ok(Reply::Claim(None)) => Ok(false),
        Ok(_) | Err(Error::Damaged { .. } | Error::NewerFormat { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The listener of a standby.
struct Reading<'a> {
    standing: &'a mut dyn Standing,
    /// The place behind the last object, or the begin.
    end: Place,
    /// The host in the handover that was the last object.
    left_to: Option<String>,
}

impl Listener for Reading<'_> {
    fn found(&mut self, object: Object<Bytes>) -> Result<(), Error> {
        // A newer version may have sealed it. The owner lives all the same.
        let sealed = sealed(&object).inspect_err(|error| {
            tracing::warn!(%error, "an object of the log cannot be read here: upgrade Brooklet, or look at the bucket");
        });
        self.end = object.place.next();
        self.left_to =
            (object.kind == Kind::Handover).then(|| String::from_utf8_lossy(&object.payload).into_owned());
        self.standing.take(Followed::Blocks(sealed.unwrap_or_default()));
        Ok(())
    }

    fn claimed(&mut self, claim: &Claim) {
        self.standing.take(owner_of(claim));
    }

    fn pause(&mut self, none: Option<Instant>) -> Result<Duration, Error> {
        Ok(self.standing.pause(none.map(|_| self.end)))
    }
}

/// Where a log begins.
pub(crate) struct Begin {
    pub at: Mark,
    /// The number of the record, and of the backup, behind which it begins.
    pub record: Option<u64>,
    pub backup: Option<u64>,
    pub claim: Option<Claim>,
}

/// Looks where a log begins, and who owns it.
pub(crate) async fn begin<J: Journal>(journal: &J, store: StoreId) -> Result<Begin, Error> {
    let request = Request::NewestRecord(None);
    let (at, record, backup) = match insist(|| send(journal, store, &request)).await? {
        Reply::Record(Some(record)) => (record.mark, Some(record.number), Some(record.backup)),
        _ => (Mark::BEGIN, None, None),
    };
    // A claim that cannot be read here is no reason to leave.
    let claim = match insist(|| send(journal, store, &Request::NewestClaim)).await {
        Ok(Reply::Claim(claim)) => claim,
        _ => None,
    };
    Ok(Begin { at, record, backup, claim })
}

fn owner_of(claim: &Claim) -> Followed {
    Followed::Owner { name: claim.owner.clone(), address: claim.address.clone() }
}

/// Asks until the bucket answers: that the bucket is silent does not mean that the owner is.
pub(crate) async fn insist<T, F: Future<Output = Result<T, Error>>>(ask: impl Fn() -> F) -> Result<T, Error> {
    let mut is_first = true;
    loop {
        match ask().await {
            Err(error) if error.is_temporary() => {
                if std::mem::take(&mut is_first) {
                    tracing::warn!(%error, "the bucket does not answer: the request is repeated until it does");
                }
                tokio::time::sleep(PAUSE).await;
            }
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

/// Does some work on the caller's thread while `goes_on` returns true, and returns `None` after
/// that, also while a request has no answer.
pub(crate) fn block_on_while<T>(
    work: impl Future<Output = Result<T, Error>>,
    goes_on: &dyn Fn() -> bool,
) -> Result<Option<T>, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Error::Thread)?;
    let done = runtime.block_on(while_it(work, goes_on)).transpose();
    // A look-up of a name, or a folder that hangs, blocks a thread of the runtime.
    runtime.shutdown_background();
    done
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use brooklet_archive::Bucket;
    use brooklet_archive::object_store::memory::InMemory;
    use bytes::Bytes;
    use tokio::time::{Instant, sleep, timeout};

    use super::*;
    use crate::bucket::BucketJournal;
    use crate::drive::follow;
    use crate::journal::{Created, Journal, Key};
    use crate::place::{Drawn, Writer};
    use crate::shipper::{Shipper, ShipperOptions};

    const STORE: StoreId = StoreId(7);
    const SILENCE: Duration = Duration::from_secs(3);
    const LONG: Duration = Duration::from_secs(60);

    /// A journal whose reads take a while, or fail.
    #[derive(Clone)]
    struct Slow {
        journal: BucketJournal,
        read: Duration,
        is_down: Arc<Mutex<bool>>,
    }

    impl Slow {
        fn new(read: Duration) -> Arc<Self> {
            let bucket = Bucket::of(Arc::new(InMemory::new()), "here").unwrap();
            Arc::new(Self { journal: BucketJournal::new(&bucket), read, is_down: Arc::default() })
        }

        fn expect_up(&self, key: Key) -> Result<(), Error> {
            let refusal = Error::NoAnswer { doing: key.to_string(), seconds: 0 };
            if *self.is_down.lock().unwrap() { Err(refusal) } else { Ok(()) }
        }
    }

    impl Journal for Slow {
        async fn create(&self, key: Key, data: Bytes) -> Result<Created, Error> {
            self.expect_up(key)?;
            self.journal.create(key, data).await
        }

        async fn read(&self, key: Key) -> Result<Option<Bytes>, Error> {
            sleep(self.read).await;
            self.expect_up(key)?;
            self.journal.read(key).await
        }

        async fn remove(&self, key: Key) -> Result<(), Error> {
            self.journal.remove(key).await
        }
    }

    /// Runs in a runtime whose clock is the test's.
    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(test);
    }

    async fn owner(journal: &Arc<Slow>) -> Shipper {
        let options = ShipperOptions::default();
        Shipper::start(Slow::clone(journal), STORE, options, |_| Ok(())).await.unwrap().0
    }

    #[test]
    fn a_standby_waits_as_long_as_the_owner_gives_signs() {
        run(async {
            let journal = Slow::new(Duration::ZERO);
            let owner = owner(&journal).await;
            assert!(timeout(LONG, stand_by(&journal, SILENCE, &mut drop)).await.is_err());
            owner.give_up();
            timeout(LONG, stand_by(&journal, SILENCE, &mut drop)).await.unwrap().unwrap();
        });
    }

    /// The owner cannot give signs either.
    #[test]
    fn a_standby_does_not_take_the_silence_of_the_bucket_for_that_of_the_owner() {
        run(async {
            let journal = Slow::new(Duration::ZERO);
            let _owner = owner(&journal).await;
            let down = async {
                loop {
                    for (is_down, time) in [(false, 10), (true, 30)] {
                        *journal.is_down.lock().unwrap() = is_down;
                        sleep(Duration::from_secs(time)).await;
                    }
                }
            };
            let mut on = drop;
            let standing = timeout(4 * LONG, stand_by(&journal, SILENCE, &mut on));
            match select(std::pin::pin!(standing), std::pin::pin!(down)).await {
                Either::Left((result, _)) => assert!(result.is_err(), "the owner lives"),
                Either::Right(_) => unreachable!(),
            }
        });
    }

    #[test]
    fn a_standby_hears_who_the_owner_is_and_who_the_next_one_is() {
        run(async {
            let journal = Slow::new(Duration::ZERO);
            let start = async |name: &str| {
                let options = ShipperOptions {
                    owner: name.into(),
                    address: format!("http://{name}"),
                    ..ShipperOptions::default()
                };
                Shipper::start(Slow::clone(&journal), STORE, options, |_| Ok(())).await.unwrap().0
            };
            let _first = start("a").await;
            let mut heard = Vec::new();
            let mut on = |read| {
                if let Followed::Owner { name, address } = read {
                    heard.push((name, address));
                }
            };
            let standing = timeout(LONG, stand_by(&journal, SILENCE, &mut on));
            let next = async {
                sleep(LONG / 2).await;
                let _next = start("b").await;
                sleep(LONG).await;
            };
            match select(std::pin::pin!(standing), std::pin::pin!(next)).await {
                Either::Left((result, _)) => assert!(result.is_err(), "the owners live"),
                Either::Right(_) => unreachable!(),
            }
            heard.dedup();
            let owners = ["a", "b"].map(|name| (name.to_owned(), format!("http://{name}")));
            assert_eq!(heard, owners);
        });
    }

    /// The last record is before the handover, so that each standby that begins reads of it.
    #[test]
    fn a_standby_does_not_take_what_was_handed_over_long_ago() {
        run(async {
            let journal = Slow::new(Duration::ZERO);
            let first = owner(&journal).await;
            first.hand_over("two");
            timeout(LONG, stand_by(&journal, SILENCE, &mut drop)).await.unwrap().unwrap();
            let second = owner(&journal).await;
            assert!(timeout(LONG, stand_by(&journal, SILENCE, &mut drop)).await.is_err(), "the owner lives");
            second.give_up();
            timeout(LONG, stand_by(&journal, SILENCE, &mut drop)).await.unwrap().unwrap();
        });
    }

    /// The target may have died.
    #[test]
    fn a_handover_to_another_host_leaves_it_some_time() {
        struct Other(Vec<String>);
        impl Standing for Other {
            fn take(&mut self, _read: Followed) {}
            fn takes(&mut self, to: &str) -> bool {
                self.0.push(to.into());
                false
            }
        }
        run(async {
            let journal = Slow::new(Duration::ZERO);
            owner(&journal).await.hand_over("two");
            let (begin, mut other) = (Instant::now(), Other(Vec::new()));
            timeout(LONG, stand_by(&journal, SILENCE, &mut other)).await.unwrap().unwrap();
            assert!(begin.elapsed() >= SILENCE, "{:?}", begin.elapsed());
            assert_eq!(other.0, ["two"]);
        });
    }

    #[test]
    fn a_standby_leaves_time_to_another_one_that_has_claimed_the_store() {
        run(async {
            let journal = Slow::new(Duration::ZERO);
            owner(&journal).await.give_up();
            let wait = async {
                let begin = Instant::now();
                stand_by(&journal, SILENCE, &mut drop).await.unwrap();
                begin.elapsed()
            };
            let alone = wait.await;
            // Claims the next epoch, and dies.
            let writer = Writer { store: STORE, epoch: Epoch(2), drawn: Drawn(5) };
            let claim = Claim { writer, owner: String::new(), address: String::new() };
            journal.create(Key::Claim(Epoch(2)), claim.encode()).await.unwrap();
            let begin = Instant::now();
            stand_by(&journal, SILENCE, &mut drop).await.unwrap();
            assert!(
                alone >= SILENCE && begin.elapsed() >= alone + 2 * SILENCE,
                "{alone:?}, {:?}",
                begin.elapsed()
            );
        });
    }

    /// An owner sends several objects at a time. One read after the other would fall behind.
    #[test]
    fn a_standby_keeps_up_with_a_busy_owner() {
        run(async {
            let journal = Slow::new(Duration::from_millis(50));
            let owner = owner(&journal).await;
            let count: u64 = 400;
            for number in 0..count {
                owner.ship(number, number + 1, b"block").unwrap();
                owner.flush();
                sleep(Duration::from_millis(1)).await;
            }
            let mut follower = Follower::new(STORE, Mark::BEGIN, None, SILENCE, Duration::ZERO);
            let (begin, mut read) = (Instant::now(), 0);
            let mut time = Duration::ZERO;
            let following = follow(
                &journal,
                STORE,
                &mut follower,
                PAUSE,
                |_| {
                    read += 1;
                    if read == count {
                        time = begin.elapsed();
                    }
                    Ok(())
                },
                |_| (),
            );
            drop(timeout(LONG, following).await);
            assert!(read >= count && time < Duration::from_secs(4), "{read} in {time:?}");
        });
    }
}
