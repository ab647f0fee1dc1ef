//! The engine on a store in memory, step by step, beside a plain model of what it should do.

mod bounds;
mod clocks;
mod copies;
mod cuts;
mod damages;
mod draft_edges;
mod drafts;
mod elsewhere;
mod expiries;
mod handover;
mod heads;
mod large_entries;
mod lease;
mod limits;
mod lists;
mod memory;
mod messages;
mod model;
mod moments;
mod nulls;
mod people;
mod portions;
mod random;
mod readers;
mod refusals;
mod scripts;
mod streams;
mod wakes;

use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{ManualClock, MemVolume};
use brooklet::{Options, Store};
use bytes::Bytes;

use super::Engine;
use crate::redis::acl::Users;
use crate::redis::client::ClientId;
use crate::redis::keys::stream::{Entry, Id};
use crate::redis::keys::{Keyspace, Value, deadlines, names};
use crate::redis::now::Now;
use crate::redis::settings::Settings;
use crate::redis::spaces;
use model::{Flow, Group, Held, Key, State};
use people::People;
use random::KEYS;

/// A moment in the tests' worlds, whose clocks agree on how time goes by and on nothing else.
pub fn at(wall: u64) -> Now {
    Now { wall, steady: wall - 900_000 }
}

/// A server without sockets and threads, and what is expected of it.
pub struct World {
    pub volume: MemVolume,
    pub store: Store,
    pub engine: Engine,
    pub people: People,
    clock: Arc<ManualClock>,
    now: u64,
    cache: usize,
    /// What happened since the store was opened.
    pub story: Vec<String>,
}

impl World {
    /// An empty one, with so many bytes of memory for keys. The first place in the store's options
    /// is a capacity, or none.
    pub fn new(seed: u64, cache: usize, capacity: Option<u64>) -> Self {
        let (volume, clock) = (MemVolume::new(seed), Arc::new(ManualClock::default()));
        let mut options = options(&clock, seed);
        if let Some(capacity) = capacity {
            options = options.capacity(capacity);
        }
        let store = options.create_on(Arc::new(volume.clone())).unwrap();
        Self::on(volume, store, clock, 1_000_000, cache)
    }

    fn on(volume: MemVolume, store: Store, clock: Arc<ManualClock>, now: u64, cache: usize) -> Self {
        let keys = Keyspace::new(store.clone(), cache, now);
        let mut engine = Engine::new(keys, Users::new(None), Settings::default(), Arc::default(), 1);
        for database in spaces::databases(&store, 16) {
            let note = |at, key: &[u8]| engine.keys.note_deadline(Some(at), key);
            deadlines(&store, database.as_bytes(), || false, note, drop).unwrap();
        }
        engine.tick(at(now));
        let people = People::new(State::new(), now);
        Self { volume, store, engine, people, clock, now, cache, story: Vec::new() }
    }

    /// The same store, opened again from what a volume holds.
    pub fn reopened(self, image: Vec<u8>, seed: u64) -> Self {
        let Self { store, engine, clock, now, cache, .. } = self;
        drop(engine);
        store.abandon();
        let volume = MemVolume::from_image(image, seed);
        let store = options(&clock, seed).open_on(Arc::new(volume.clone())).unwrap();
        Self::on(volume, store, clock, now, cache)
    }

    /// A client comes.
    pub fn come(&mut self) -> ClientId {
        let id = self.engine.connect("here".into(), "there".into()).unwrap();
        self.people.come(id);
        id
    }

    /// A client asks, and is told what the model says, or will be.
    pub fn ask(&mut self, id: ClientId, request: &[Bytes]) {
        self.ask_several(id, &[request.to_vec()]);
    }

    /// A client asks for several things at once, none of which has it wait.
    pub fn ask_several(&mut self, id: ClientId, requests: &[Vec<Bytes>]) {
        self.story.push(format!("{id}: {requests:?}"));
        self.engine.run(id, &mut requests.to_vec().into(), || true);
        requests.iter().for_each(|request| self.people.ask(id, request));
        // Where the device fails just then, what it leaves of that is not known, and nobody is told
        // any more.
        if self.engine.stopped.is_none() {
            self.compare(&format!("{requests:?}"));
        }
    }

    /// In words with spaces between.
    pub fn say(&mut self, id: ClientId, request: &str) {
        self.ask(id, &words(request));
    }

    /// What is on its way to each client is what the model says.
    pub fn compare(&mut self, after: &str) {
        for (id, person) in &self.people.all {
            let client = self.engine.client(*id).unwrap();
            assert_eq!(
                String::from_utf8_lossy(&client.reply.bytes),
                String::from_utf8_lossy(&person.said.bytes),
                "client {id}, after {after}"
            );
            assert_eq!(client.wait.is_some(), person.wait.is_some(), "client {id}, after {after}");
        }
    }

    /// Clients get the replies that may leave.
    pub fn deliver(&mut self) {
        let ids: Vec<ClientId> = self.people.all.keys().copied().collect();
        for id in ids {
            let ready = self.engine.take_ready(id);
            if !ready.is_empty() {
                self.story.push(format!("{id} gets {}", ready.escape_ascii()));
            }
            self.people.get(id, &ready);
        }
    }

    /// Everything is made durable, and everybody told, if the device still works.
    pub fn settle(&mut self) {
        if self.store.flush().is_err() {
            return;
        }
        self.engine.note_durable();
        self.deliver();
        let late = self.people.all.values().filter(|person| !person.said.bytes.is_empty());
        assert_eq!(late.count(), 0, "clients are told once all is durable");
    }

    /// Time goes by.
    pub fn pass(&mut self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
        self.now += millis;
        self.engine.tick(at(self.now));
        self.people.tick(self.now);
        if self.engine.stopped.is_none() {
            self.compare("time went by");
        }
    }

    /// All keys of the engine; none may be there that the model never has.
    pub fn state(&mut self) -> State {
        let keys = &mut self.engine.keys;
        let mut state = State::new();
        for name in KEYS {
            let id = keys.open(b"0", name.as_bytes()).unwrap();
            let plain = keys.key(id).clone();
            let held = match keys.value(id).clone() {
                Value::Absent | Value::Damaged(_) => continue,
                Value::String(text) => Held::String(text),
                Value::Hash(fields) => Held::Hash(fields),
                Value::List(list) => {
                    Held::List(keys.elements(id, 0..list.len()).unwrap().map(Result::unwrap).collect())
                }
                Value::Stream(stream) => {
                    let entries = keys.entries(id, (Id::MIN, Id::MAX), usize::MAX, false).unwrap();
                    let group = |kept: &crate::redis::keys::stream::Group| Group {
                        last: kept.last,
                        pending: kept
                            .pending
                            .iter()
                            .map(|(id, p)| (*id, (p.consumer.clone(), p.at, p.times)))
                            .collect(),
                        consumers: kept.consumers.keys().cloned().collect(),
                    };
                    Held::Stream(Flow {
                        entries: entries.iter().map(|entry| (entry.id, fields_of(entry))).collect(),
                        last: stream.kept.meta.last,
                        max_deleted: stream.kept.meta.max_deleted,
                        added: stream.added(),
                        groups: stream
                            .kept
                            .groups
                            .iter()
                            .map(|(name, kept)| (name.clone(), group(kept)))
                            .collect(),
                    })
                }
            };
            state.insert(names::name(&plain).to_vec().into(), Key { held, expire: keys.expire(id) });
        }
        let mut listed: Vec<Bytes> = keys.keys_after(b"0", None).unwrap().map(Result::unwrap).collect();
        listed.sort();
        assert_eq!(listed, state.keys().cloned().collect::<Vec<_>>());
        // A key whose time had come was deleted by being looked at.
        drop(keys.commit());
        state
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.now
    }
}

/// A request, in words with spaces between.
fn words(text: &str) -> Vec<Bytes> {
    text.split(' ').map(|word| Bytes::from(word.to_owned())).collect()
}

fn options(clock: &Arc<ManualClock>, seed: u64) -> Options {
    let options = Options::new().ring_size(256 << 10).memory_budget(128 << 10).max_payload(64 << 10);
    options.cache_budget(256 << 10).threads(false).clock(clock.clone()).rng_seed(seed)
}

/// Returns fields and values of an entry.
fn fields_of(entry: &Entry) -> Vec<Bytes> {
    entry.fields().map(Bytes::copy_from_slice).collect()
}
