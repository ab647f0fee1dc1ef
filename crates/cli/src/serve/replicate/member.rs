//! `serve --cluster`: this host follows the map of a cluster, and does what the map asks of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use brooklet_replica::{AnyJournal, Change, Cluster, Epoch, Error, Map, Observer, Part, Refusal};
use brooklet_server::CancellationToken;

use super::tries::Tries;
use super::{PAUSE, refused};
use crate::bucket::is_missing;
use crate::failure::{Failure, Kind};
use crate::serve::settings::Given;

/// Time between two looks at the map, and the one while a move is under way.
const USUAL: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(50);

/// This host as one of a shard.
pub struct Member {
    cluster: Cluster<AnyJournal>,
    pub shard: String,
    pub host: String,
    state: Mutex<State>,
}

struct State {
    part: Part,
    life: Option<Life>,
}

/// A time in which a server serves the store.
pub struct Life {
    /// Ends it.
    pub stop: CancellationToken,
    /// Lets its end be short; see [`Config::hurry`](brooklet_server::Config::hurry).
    pub hurry: CancellationToken,
}

impl Member {
    /// Registers this host in the map that the settings name, if they do, and follows the map from
    /// then on, in a thread. Returns `None` as well if a signal ended the wait for the bucket.
    pub fn start(given: &Given, stop: &CancellationToken) -> Result<Option<Arc<Self>>, Failure> {
        let Some((place, shard, host)) = given.in_cluster() else { return Ok(None) };
        if is_missing(&place)? {
            return Err(refused_at(&place, Error::Map(Refusal::NoMap)));
        }
        let journal = AnyJournal::open(&place).map_err(refused)?;
        let part = Part::new(&shard, &host, given.advertise.as_deref().unwrap_or_default());
        let registration = part.registration();
        let state = Mutex::new(State { part, life: None });
        let member = Arc::new(Self { cluster: Cluster::new(journal), shard, host, state });
        let (goes_on, mut tries) = (|| !stop.is_cancelled(), Tries::default());
        let map = loop {
            match member.cluster.change_now(registration.clone(), None, &goes_on) {
                Ok(map) => break map,
                Err(_) if !goes_on() => return Ok(None),
                Err(error) if error.is_temporary() => {
                    tries.report(&error, "the map of the cluster cannot be read");
                    thread::sleep(PAUSE);
                }
                Err(error) => return Err(refused_at(&place, error)),
            }
        };
        member.state().part.see(Some(&map));
        tracing::info!(shard = member.shard, host = member.host, map = map.number, "this host is in the map");
        let (stop, mut following) = (stop.clone(), Following { member: member.clone(), is_replaced: false });
        let follow = move || {
            let cluster = following.member.cluster.clone();
            if let Err(error) = cluster.observe_now(Some(map), &mut following, &|| !stop.is_cancelled()) {
                tracing::error!(%error, "this host does not follow the map of the cluster any more");
            }
        };
        let thread = thread::Builder::new().name("brooklet-map".into()).spawn(follow);
        thread.map_err(Failure::io("starting a thread"))?;
        Ok(Some(member))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks or changes the part of this host.
    pub fn part<T>(&self, ask: impl FnOnce(&mut Part) -> T) -> T {
        ask(&mut self.state().part)
    }

    /// Notes that this host serves as the owner of an epoch, until `life` ends. It ends here, in a
    /// hurry, once the shard is to move.
    pub fn serve(&self, epoch: Epoch, life: Life) {
        let mut state = self.state();
        state.life = Some(life);
        state.part.serve(epoch);
    }
}

struct Following {
    member: Arc<Member>,
    /// Whether a warning was given.
    is_replaced: bool,
}

impl Observer for Following {
    fn see(&mut self, map: Option<&Map>) -> Option<Change> {
        let member = &self.member;
        let State { part, life } = &mut *member.state();
        let wanted = part.see(map);
        if part.is_replaced() && !self.is_replaced {
            tracing::warn!(
                shard = member.shard,
                host = member.host,
                "the map has another URL for this host, or none: does another process have its name?"
            );
        }
        self.is_replaced = part.is_replaced();
        if let Some(Change::GiveUp { host, .. }) = &wanted {
            tracing::warn!(
                shard = member.shard,
                host,
                "the move is cancelled: the host took the shard over, and did not serve it; look at its log, and move the shard again"
            );
        }
        if let Some(to) = part.leaves_to()
            && let Some(life) = life.take()
        {
            tracing::info!(shard = member.shard, to, "the shard moves: this host leaves it");
            // Its clients wait for the next host.
            life.hurry.cancel();
            life.stop.cancel();
        }
        wanted
    }

    fn pause(&self) -> Duration {
        if self.member.part(|part| part.is_moving()) { SOON } else { USUAL }
    }
}

/// Returns the failure of a request to the map of a cluster.
pub fn refused_at(place: &str, error: Error) -> Failure {
    match error {
        // A typing error in the place is the usual reason.
        Error::Map(Refusal::NoMap) => {
            let what = format!(
                "{place} has no map of a cluster: check the place, or make a map by `brooklet cluster init {place}`"
            );
            Failure::new(Kind::NotFound, what)
        }
        error => refused(error),
    }
}

/// Returns the failure with the exit code of a refusal.
pub fn refusal(refusal: &Refusal) -> Failure {
    let kind = match refusal {
        Refusal::NoMap | Refusal::NoShard(_) | Refusal::NoHost { .. } => Kind::NotFound,
        Refusal::HasShard(_) | Refusal::IsNeeded { .. } => Kind::No,
        Refusal::NoName(_) | Refusal::LongUrl => Kind::Usage,
        Refusal::Full => Kind::Full,
    };
    Failure::new(kind, refusal.to_string())
}
