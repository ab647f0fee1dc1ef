//! The streams in memory, found by their names: the streams in use, and others while there is room.
//!
//! Each user of a stream holds it, and commits hold it until they are durable. A stream that only
//! this table holds can be dropped, and is loaded again for the next request. Two streams of the
//! same name are never in memory: they would not take turns.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use hashbrown::{DefaultHashBuilder, HashMap};

use super::name::Name;
use super::stream::Stream;

/// Parts with a lock each.
const SHARDS: usize = 64;
/// Producers that the streams of a part remember together, if streams are kept that nobody uses. A
/// producer takes about 120 bytes, and a stream may remember a thousand.
const PRODUCERS: usize = (1 << 20) / SHARDS;

pub struct Registry {
    hasher: DefaultHashBuilder,
    shards: Vec<Mutex<Shard>>,
    /// Streams of a shard that are kept though nobody uses them.
    room: usize,
    /// How long a reader waits at a stream at most, in milliseconds.
    longest_wait: u64,
}

#[derive(Default)]
struct Shard {
    streams: HashMap<Name, Arc<Stream>>,
    /// In the order in which they came, or were in use when their time had come.
    queue: VecDeque<Name>,
    /// Producers that they remember together.
    producers: Arc<AtomicUsize>,
}

impl Registry {
    pub fn new(cached: usize, longest_wait: u64) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let (hasher, room) = (DefaultHashBuilder::default(), cached.div_ceil(SHARDS));
        Self { hasher, shards, room, longest_wait }
    }

    pub fn get(&self, name: &Name) -> Arc<Stream> {
        let mut shard = self.shard(name);
        let found = shard.streams.get(name).cloned();
        let stream = found.unwrap_or_else(|| shard.add(name, self.longest_wait));
        shard.make_room(self.room);
        stream
    }

    /// A stream that is in memory.
    pub fn find(&self, name: &Name) -> Option<Arc<Stream>> {
        self.shard(name).streams.get(name).cloned()
    }

    /// Drops a stream: the next request looks it up again.
    pub fn remove(&self, name: &Name) {
        self.shard(name).streams.remove(name);
    }

    fn shard(&self, name: &Name) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[self.hasher.hash_one(name) as usize % SHARDS];
        shard.lock().expect("nothing panics within")
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().streams.len()).sum()
    }
}

impl Shard {
    fn add(&mut self, name: &Name, longest_wait: u64) -> Arc<Stream> {
        let stream = Arc::new(Stream::new(name.clone(), longest_wait, self.producers.clone()));
        self.streams.insert(name.clone(), stream.clone());
        self.queue.push_back(name.clone());
        stream
    }

    /// Lets go of the oldest that nobody uses, looking at a few only.
    fn make_room(&mut self, room: usize) {
        for _ in 0..4 {
            if self.streams.len() <= room && self.producers.load(Relaxed) <= PRODUCERS {
                return;
            }
            let Some(name) = self.queue.pop_front() else { return };
            // Only under the lock does anyone get hold of one that the table alone holds.
            if self.streams.get(&name).is_some_and(|stream| Arc::strong_count(stream) > 1) {
                self.queue.push_back(name);
            } else {
                self.streams.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::http::Config;
    use crate::http::limits::Limits;
    use crate::http::streams::Streams;
    use crate::http::streams::metadata::{Identity, Metadata, Producer};

    /// In the old state as many streams were kept, whether they remember no producer or a thousand.
    #[tokio::test]
    async fn streams_that_remember_many_producers_make_room() {
        let store = brooklet::Store::in_memory(1).unwrap();
        let config = Config::default();
        let limits = Limits::new(&config);
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let registry = &streams.registry;
        let shard = |name: &Name| registry.hasher.hash_one(name) as usize % SHARDS;
        let names = (0..).map(|i| Name::new(&format!("s{i}")).unwrap());
        let names: Vec<Name> = names.filter(|name| shard(name) == 0).take(40).collect();
        let producer = |i: u64| (format!("producer-{i}"), Producer { epoch: 0, seq: i, at: i });
        let identity =
            Identity { id: 7, content_type: "text/plain".into(), ttl: None, expires: None, fork: None };
        let metadata = Metadata {
            identity: Arc::new(identity),
            touched: 0,
            due: None,
            closed: None,
            seq: None,
            producers: (0..1000).map(producer).collect::<BTreeMap<_, _>>(),
            forks: 0,
            gone: false,
        };
        for name in &names {
            streams.store.append(name.metadata(), metadata.encode()).unwrap().wait().unwrap();
        }
        for name in &names {
            assert!(streams.open(name, true).await.unwrap().seen().identity.is_some());
        }
        let kept = registry.len();
        assert!((8..=20).contains(&kept), "{kept} are kept");
        // They are read again.
        assert!(streams.open(&names[0], true).await.unwrap().seen().identity.is_some());
    }

    #[test]
    fn what_nobody_holds_makes_room() {
        let registry = Registry::new(SHARDS, 0);
        let name = |i: usize| Name::new(&format!("s{i}")).unwrap();
        let held: Vec<_> = (0..100).map(|i| registry.get(&name(i))).collect();
        for i in 100..5_000 {
            registry.get(&name(i));
        }
        // Only a few are looked at each time: behind those that are held, some may be there a while
        // longer.
        assert!(registry.len() <= SHARDS + 2 * held.len(), "{} are kept", registry.len());
        for stream in &held {
            assert!(Arc::ptr_eq(stream, &registry.get(&stream.name)));
        }
    }
}
