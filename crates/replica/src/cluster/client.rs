//! The map of a cluster over a journal.

use std::time::Duration;

use crate::cluster::change::Change;
use crate::cluster::changer::{Asked, Changed, Changer, Heard};
use crate::drive::pause;
use crate::error::Error;
use crate::journal::{Created, Journal, Key};
use crate::map::Map;
use crate::refusal::Refusal;
use crate::shipper::draw;
use crate::standby::block_on_while;

/// Failed tries of one request after which a change fails, beside the looks at its effect.
const TRIES: u32 = 8;

/// The map of a cluster, in the place of a journal.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use brooklet_archive::Bucket;
/// use brooklet_replica::{BucketJournal, Change, Cluster};
///
/// # let dir = tempfile::tempdir()?;
/// # let address = dir.path().to_str().unwrap();
/// let cluster = Cluster::new(BucketJournal::new(&Bucket::open(address)?));   // such as s3://bucket/cluster
/// let goes_on = || true;
/// cluster.change_now(Change::Begin, None, &goes_on)?;
/// let map = cluster.change_now(Change::AddShard { shard: "a".into() }, None, &goes_on)?;
/// assert_eq!(map.shard_of("any space"), Some("a"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Cluster<J> {
    journal: J,
}

impl<J: Journal> Cluster<J> {
    /// Returns the cluster whose map a journal keeps. Makes no request.
    pub fn new(journal: J) -> Self {
        Self { journal }
    }

    /// Returns the newest map, which is `known` if there is no newer one; `None` if there is none.
    /// With a known map that is the newest, this is one request.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::NewerFormat`]; those of the journal.
    pub async fn look(&self, known: Option<Map>) -> Result<Option<Map>, Error> {
        let after = known.as_ref().map_or(0, |known| known.number);
        match self.journal.newest(Key::Map, after).await? {
            Some((number, data)) => decode(known.as_ref(), number, &data).map(Some),
            None => Ok(known),
        }
    }

    /// Returns the map of a number; `None` if there is none.
    ///
    /// # Errors
    /// As for [`look`](Self::look).
    pub async fn read(&self, number: u64) -> Result<Option<Map>, Error> {
        let data = self.journal.read(Key::Map(number)).await?;
        data.map(|data| decode(None, number, &data)).transpose()
    }

    /// Changes the map, beside others that change it. Returns the newest map that is known, which
    /// has the change. `known` is a map that exists.
    ///
    /// # Errors
    /// [`Error::Map`] if the change does not fit the map; the errors of [`look`](Self::look), after
    /// several tries. After an error of the journal, the map may have the change, or get it later.
    pub async fn change(&self, change: Change, known: Option<Map>) -> Result<Map, Error> {
        let (mut changer, mut failures) = (Changer::new(change, draw(), known), 0);
        loop {
            if let Some(end) = changer.end() {
                return match end.clone() {
                    Changed::Done(map) => Ok(map),
                    Changed::Refused(refusal) => Err(Error::Map(refusal)),
                };
            }
            let asked = changer.poll().expect("a changer has a request until it ends");
            // A look whether a request had its effect shows nothing of the next try.
            let is_look = matches!(asked, Asked::Read(_));
            let heard = match self.ask(asked).await {
                Err(error) if error.is_temporary() && failures + 1 < TRIES => {
                    tracing::debug!(%error, "trying again");
                    tokio::time::sleep(pause(failures)).await;
                    failures += 1;
                    Heard::Unknown
                }
                heard => {
                    failures = if is_look { failures } else { 0 };
                    heard?
                }
            };
            if is_look && heard == Heard::Map(None) {
                // Another request for the number may be under way.
                tokio::time::sleep(pause(0)).await;
            }
            changer.answer(heard);
        }
    }

    async fn ask(&self, asked: Asked) -> Result<Heard, Error> {
        Ok(match asked {
            Asked::Newest(known) => Heard::Map(self.look(known).await?),
            Asked::Read(number) => Heard::Map(self.read(number).await?),
            Asked::Create(map) => match self.journal.create(Key::Map(map.number), map.encode()).await? {
                Created::Done => Heard::Done,
                Created::Exists => Heard::Exists,
            },
        })
    }

    /// Does what [`look`](Self::look) does, on the caller's thread, while `goes_on` returns true.
    ///
    /// # Errors
    /// As for [`look`](Self::look); [`Error::GivenUp`] after that.
    pub fn look_now(&self, known: Option<Map>, goes_on: &dyn Fn() -> bool) -> Result<Option<Map>, Error> {
        block_on_while(self.look(known), goes_on)?.ok_or(Error::GivenUp)
    }

    /// Does what [`change`](Self::change) does, on the caller's thread, while `goes_on` returns
    /// true.
    ///
    /// # Errors
    /// As for [`change`](Self::change); [`Error::GivenUp`] after that.
    pub fn change_now(
        &self,
        change: Change,
        known: Option<Map>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Map, Error> {
        block_on_while(self.change(change, known), goes_on)?.ok_or(Error::GivenUp)
    }

    /// Looks at the map again and again, shows it to `observer`, and makes the changes that it
    /// wants.
    ///
    /// A failure of the bucket is no end: the next look follows.
    pub async fn observe(&self, known: Option<Map>, observer: &mut dyn Observer) -> Result<(), Error> {
        let (mut known, mut was_readable) = (known, true);
        loop {
            match self.look(known.clone()).await {
                Ok(newest) => (known, was_readable) = (newest, true),
                Err(error) if !error.is_temporary() && std::mem::take(&mut was_readable) => {
                    tracing::warn!(%error, "the map of the cluster cannot be read: this host does what the last one asks");
                }
                Err(error) => tracing::debug!(%error, "the map of the cluster cannot be read"),
            }
            if let Some(change) = observer.see(known.as_ref()) {
                match self.change(change, known.clone()).await {
                    Ok(map) => {
                        known = Some(map);
                        // The change may call for the next one.
                        continue;
                    }
                    Err(error) => tracing::warn!(%error, "the map of the cluster cannot be changed"),
                }
            }
            tokio::time::sleep(observer.pause()).await;
        }
    }

    /// Does what [`observe`](Self::observe) does, on the caller's thread, while `goes_on` returns
    /// true.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub fn observe_now(
        &self,
        known: Option<Map>,
        observer: &mut dyn Observer,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        block_on_while(self.observe(known, observer), goes_on).map(drop)
    }
}

/// A host that follows the map of a cluster.
pub trait Observer {
    /// Sees the newest map. Returns a change that it wants now.
    fn see(&mut self, map: Option<&Map>) -> Option<Change>;

    /// Returns the time until the next look.
    fn pause(&self) -> Duration;
}

fn decode(known: Option<&Map>, number: u64, data: &[u8]) -> Result<Map, Error> {
    let damaged = || Error::Damaged { object: Map::name(number), what: "it does not begin as it must" };
    let id = known.map(|known| known.id).or_else(|| Map::cluster(data)).ok_or_else(damaged)?;
    Map::decode(id, number, data).map_err(|defect| Error::of(defect, Map::name(number), id))
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Map(refusal)
    }
}
