//! Places of requests for one document: a part of the turns of their kind. So a document whose
//! writer waits for room leaves turns to all others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One of this many turns is for one document.
const PART: usize = 4;

/// The places of one kind.
pub struct Places {
    most: usize,
    /// Of the documents for which requests have places, or wait for them.
    queues: Mutex<BTreeMap<Vec<u8>, Queue>>,
}

/// The places of a document.
struct Queue {
    /// Requests that have one, or wait for one.
    requests: usize,
    places: Arc<Semaphore>,
}

/// A place. The fields are dropped in this order.
pub struct Place {
    _permit: OwnedSemaphorePermit,
    _stay: Stay,
}

/// A request that has a place, or waits for one.
struct Stay {
    places: Arc<Places>,
    document: Vec<u8>,
}

impl Places {
    /// Returns places for a part of so many turns.
    pub fn new(turns: usize) -> Arc<Self> {
        Arc::new(Self { most: (turns / PART).max(1), queues: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place of a document.
    pub async fn take(self: &Arc<Self>, document: &[u8]) -> Place {
        let stay = Stay::new(self, document);
        let places = self.lock()[document].places.clone();
        Place { _permit: places.acquire_owned().await.expect("it is never closed"), _stay: stay }
    }
}

impl Stay {
    fn new(places: &Arc<Places>, document: &[u8]) -> Self {
        let new = || Queue { requests: 0, places: Arc::new(Semaphore::new(places.most)) };
        places.lock().entry(document.to_vec()).or_insert_with(new).requests += 1;
        Self { places: places.clone(), document: document.to_vec() }
    }
}

/// Forgets the document after the last request, also after one whose client has left.
impl Drop for Stay {
    fn drop(&mut self) {
        let mut queues = self.places.lock();
        let Some(queue) = queues.get_mut(&self.document) else { return };
        queue.requests -= 1;
        if queue.requests == 0 {
            queues.remove(&self.document);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_document_has_its_part_and_is_forgotten() {
        let places = Places::new(2 * PART);
        let take = |name: &str| places.take(name.as_bytes()).now_or_never();
        let (first, second) = (take("a").unwrap(), take("a").unwrap());
        assert!(take("a").is_none(), "it does not wait on");
        let other = take("b").unwrap();
        assert_eq!(places.lock().len(), 2);
        drop(first);
        let third = take("a").unwrap();
        drop((second, third, other));
        assert!(places.lock().is_empty());
        assert!(take("a").is_some());
    }
}
