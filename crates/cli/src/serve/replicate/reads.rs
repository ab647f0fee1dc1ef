//! `serve --replicate --read-replica`: a server of a copy that follows the log in the bucket. It
//! writes nothing there, and never takes the store over.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;

use brooklet::{Options, Store};
use brooklet_replica::{Error, ReadReplica, ReadReplicaOptions};
use brooklet_server::replica::{Beside, Lag, Upstream};
use brooklet_server::standby::{Owner, base_url};
use brooklet_server::{Addresses, CancellationToken, Config, serve_replica};

use super::{LOOK, check_file, places, refused};
use crate::bucket::is_missing;
use crate::failure::{Failure, Kind};
use crate::serve::settings::Given;

/// What a server of a read replica needs.
pub struct Reads<'a> {
    pub given: &'a Given,
    pub config: &'a Config,
    pub path: &'a Path,
    pub stop: CancellationToken,
}

impl Reads<'_> {
    /// Follows the log, and serves until a signal, or until the log can be followed no more.
    pub fn serve(
        self,
        options: &Options,
        has_ring: bool,
        mut ready: impl FnMut(&Addresses),
    ) -> Result<(), Failure> {
        check_file(self.path, has_ring)?;
        let address = self.given.log().unwrap_or_default();
        if is_missing(&address)? {
            return Err(no_log(&address));
        }
        let (journal, backups) = places(self.given, &address)?;
        // Without a password.
        let place = journal.to_string();
        let mut opening = ReadReplicaOptions::new(backups);
        opening.store = options.clone();
        tracing::info!("reading the log of the store, up to its end");
        let opened = ReadReplica::open(self.path, journal, opening, || !self.stop.is_cancelled());
        let source = match opened {
            Ok(replica) => Arc::new(Source(RwLock::new(Some(replica)))),
            Err(Error::GivenUp) if self.stop.is_cancelled() => return Ok(()),
            Err(Error::NoLog) => return Err(no_log(&place)),
            Err(error) => return Err(refused(error)),
        };
        let mut served = Ok(());
        let mut is_first = true;
        while !self.stop.is_cancelled() && !source.has_ended() && served.is_ok() {
            served = self.serve_once(&source, |addresses| {
                if std::mem::take(&mut is_first) {
                    ready(addresses);
                }
            });
        }
        let replica = source.0.write().unwrap_or_else(PoisonError::into_inner).take();
        let closed = replica.map_or(Ok(()), ReadReplica::close).map_err(refused);
        served.and(closed)
    }

    /// Serves a store, until the file is made anew as another one.
    fn serve_once(&self, source: &Arc<Source>, ready: impl FnOnce(&Addresses)) -> Result<(), Failure> {
        let made_anew = source.lag().made_anew;
        let life = self.stop.child_token();
        thread::scope(|scope| {
            let _ends = life.clone().drop_guard();
            scope.spawn(|| {
                while !life.is_cancelled() {
                    if source.has_ended() || source.lag().made_anew != made_anew {
                        tracing::warn!("the store of the replica ends: clients connect again");
                        life.cancel();
                    }
                    thread::sleep(LOOK);
                }
            });
            let last = Mutex::new(Lag { made_anew, ..Lag::default() });
            let served = Arc::new(Served { source: source.clone(), last });
            serve_replica(served, self.config, ready, life.clone()).map_err(super::super::refused)
        })
    }
}

/// Returns the failure of a place without a log. A typing error is the usual reason.
fn no_log(place: &str) -> Failure {
    let what = format!("{place} keeps no log of a store: check the place, or start the owner first");
    Failure::new(Kind::CannotOpen, what)
}

/// The replica, until the server ends.
struct Source(RwLock<Option<ReadReplica>>);

impl Source {
    fn with<T>(&self, ask: impl FnOnce(&ReadReplica) -> T) -> Option<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(ask)
    }

    /// Returns whether an error has ended the following.
    fn has_ended(&self) -> bool {
        self.with(|replica| replica.error().is_some()).unwrap_or(true)
    }

    fn lag(&self) -> Lag {
        let Some(lag) = self.with(ReadReplica::lag) else { return Lag::default() };
        let owner = lag.owner.map(|(name, address)| Owner { name, url: base_url(&address).ok() });
        Lag {
            shown: lag.shown,
            read: lag.read,
            age: lag.age,
            silence: lag.silence,
            owner,
            made_anew: lag.made_anew,
        }
    }
}

/// The store that is served. Once the file was made anew, the replica follows with another one.
struct Served {
    source: Arc<Source>,
    /// The last lag of this store.
    last: Mutex<Lag>,
}

impl Upstream for Served {
    fn attach(&self, beside: Beside) -> Store {
        self.source.with(|replica| replica.attach(beside)).expect("the replica outlives the server")
    }

    /// A client may wait for a place, and then read: so this is of the store that it will read.
    fn lag(&self) -> Lag {
        let (now, mut last) = (self.source.lag(), self.last.lock().unwrap_or_else(PoisonError::into_inner));
        if now.made_anew == last.made_anew {
            *last = now;
        } else {
            last.age = None;
        }
        last.clone()
    }
}
