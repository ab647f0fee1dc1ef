//! Strangers: connections on which no request has given the right password, or none has come where
//! no password is asked. They have a part of the places, and the oldest makes room for a new one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::map_request;
use tokio_util::sync::CancellationToken;

/// One of this many places is for strangers.
const STRANGERS: usize = 4;

/// The strangers of a listener, by age.
pub struct Strangers {
    most: usize,
    all: Mutex<Arrivals>,
}

#[derive(Default)]
struct Arrivals {
    next: u64,
    by_age: BTreeMap<u64, CancellationToken>,
}

impl Strangers {
    /// Returns strangers for whom there is a part of `places`.
    pub fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { most: (places / STRANGERS).max(1), all: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Arrivals> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection of the oldest stranger, if there is one.
    pub fn dismiss_oldest(&self) {
        if let Some((_, end)) = self.lock().by_age.pop_first() {
            end.cancel();
        }
    }

    /// Admits a connection as a stranger; the oldest leaves where there are too many.
    pub fn admit(self: &Arc<Self>, address: String) -> Caller {
        while self.lock().by_age.len() >= self.most {
            self.dismiss_oldest();
        }
        let end = CancellationToken::new();
        let mut all = self.lock();
        let id = all.next;
        all.next += 1;
        all.by_age.insert(id, end.clone());
        drop(all);
        Caller(Arc::new(Place { strangers: self.clone(), id, address, end }))
    }
}

/// A connection, which its requests know as an extension. Clones are the same.
#[derive(Clone)]
pub struct Caller(Arc<Place>);

struct Place {
    strangers: Arc<Strangers>,
    id: u64,
    address: String,
    end: CancellationToken,
}

impl Caller {
    /// Returns the address of the peer.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// Notes that the connection is that of a client.
    fn make_known(&self) {
        self.0.strangers.lock().by_age.remove(&self.0.id);
    }

    /// Waits until the connection has to end: it is a stranger, and the oldest of too many, or one
    /// for longer than `limit`. Zero is no limit.
    pub async fn dismissed(self, limit: Duration) {
        let over = async {
            tokio::time::sleep(limit).await;
            if limit.is_zero() || !self.0.strangers.lock().by_age.contains_key(&self.0.id) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.0.end.cancelled() => {}
            () = over => {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.strangers.lock().by_age.remove(&self.id);
    }
}

/// Makes the connections known whose requests reach `router`. [`serve`](super::serve) allows all
/// other connections, the strangers, few places and little time. The routes of
/// [`Http`](super::Http) and of [`watch`](super::watch) are wrapped in this way; wrap your own
/// routes, too. [`guard`](super::guard) lets requests with the password through. A connection that
/// only probes remains a stranger.
pub fn welcome(router: Router) -> Router {
    router.layer(map_request(|request: Request| async {
        if let Some(caller) = request.extensions().get::<Caller>() {
            caller.make_known();
        }
        request
    }))
}
