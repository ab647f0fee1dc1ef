//! A store on the stage, shared by the threads of a test, and what is known of it from outside.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brooklet::io::{Clock, MemVolume, Rng};
use brooklet::{Commit, Durability, Entries, Error, Options, Store, Ticket};
use shuttle::thread::{self, JoinHandle};

use crate::common::{Log, Logs, contents};
use crate::stage::{Stage, Ticking, others, rng};

#[derive(Clone)]
pub struct World {
    pub stage: Arc<Stage>,
    store: Store,
    /// By writer, how many entries of its log were appended, and how many are acknowledged.
    known: Arc<Mutex<BTreeMap<u64, (u64, u64)>>>,
    /// Commits of pairs that were appended.
    pairs: Arc<AtomicUsize>,
    /// Callbacks that have not ended.
    looking: Arc<AtomicUsize>,
}

/// The log of one writer, which alone writes to it.
pub fn key(writer: u64) -> String {
    format!("own/{writer}")
}

/// What entry `seq` of a writer's log holds: how long it is, and noise.
fn payload(writer: u64, seq: u64, len: u64) -> Vec<u8> {
    let mut noise = Rng::new(writer << 32 | seq);
    let noise = (0..len).map(|_| noise.next() as u8);
    len.to_le_bytes().into_iter().chain(noise).collect()
}

fn check_payload(writer: u64, seq: u64, found: &[u8]) {
    let len = u64::from_le_bytes(found[..8].try_into().unwrap());
    assert!(found == payload(writer, seq, len), "entry {seq} of {} is another's", key(writer));
}

fn options(linger: Duration, clock: Arc<dyn Clock>) -> Options {
    let options = Options::new().ring_size(64 << 10).memory_budget(64 << 10).block_size(8 << 10);
    options.max_payload(9 << 10).linger(linger).depth(2).clock(clock).rng_seed(1)
}

/// An iterator that was made before other things happened.
pub struct Held {
    writer: u64,
    entries: Option<Entries>,
}

impl Held {
    /// Reads it to its end.
    pub fn check(self) {
        let Some(entries) = self.entries else { return };
        let mut seqs = entries.range();
        for entry in entries {
            let entry = entry.unwrap();
            assert_eq!(Some(entry.seq), seqs.next());
            check_payload(self.writer, entry.seq, &entry.payload);
        }
        assert_eq!(seqs.next(), None);
    }
}

impl World {
    pub fn new(linger: Duration) -> Self {
        let stage = Arc::new(Stage::new(rng().next()));
        let store = options(linger, Arc::new(Ticking::default())).create_on(stage.clone()).unwrap();
        Self { stage, store, known: Arc::default(), pairs: Arc::default(), looking: Arc::default() }
    }

    /// The options of its store.
    pub fn options(&self) -> Options {
        options(Duration::ZERO, Arc::new(Ticking::default()))
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn spawn(&self, run: impl FnOnce(&World) + Send + 'static) -> JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || run(&world))
    }

    pub fn spawn_all(
        &self,
        count: u64,
        run: impl Fn(&World, u64) + Copy + Send + 'static,
    ) -> Vec<JoinHandle<()>> {
        (0..count).map(|n| self.spawn(move |world| run(world, n))).collect()
    }

    /// Appends to the writer's log. What is appended without being refused is there after closing.
    pub fn append(&self, writer: u64, len: u64, durability: Durability) -> Result<Ticket, Error> {
        let next = self.known.lock().unwrap().entry(writer).or_default().0;
        let ticket = self.store.append_with(key(writer), payload(writer, next, len), durability)?;
        assert_eq!(ticket.seq(), next);
        self.known.lock().unwrap().entry(writer).or_default().0 = next + 1;
        Ok(ticket)
    }

    /// Says that all that the writer appended is acknowledged.
    pub fn acked(&self, writer: u64) {
        let known = &mut *self.known.lock().unwrap();
        let (appended, acked) = known.get_mut(&writer).unwrap();
        *acked = *appended;
    }

    /// Adds the same entry to two logs.
    pub fn commit_pair(&self, writer: u64) -> Result<Ticket, Error> {
        let payload = writer.to_le_bytes();
        let mut commit = Commit::new();
        commit.append("pair/a", &payload).append("pair/b", &payload);
        let ticket = self.store.commit(&commit)?;
        assert_eq!(ticket.seqs()[0], ticket.seqs()[1], "nobody comes between");
        self.pairs.fetch_add(1, Ordering::Relaxed);
        Ok(ticket)
    }

    /// Reads what the writer wrote last.
    pub fn read_back(&self, writer: u64, seq: u64) {
        let newest = self.store.read(key(writer), ..).unwrap().next_back().unwrap().unwrap();
        assert_eq!(newest.seq, seq, "one reads what one wrote");
        check_payload(writer, seq, &newest.payload);
    }

    /// Starts to read the writer's log, if it is there.
    pub fn hold(&self, writer: u64) -> Held {
        let entries = match self.store.read(key(writer), ..) {
            Ok(entries) => Some(entries),
            Err(Error::UnknownLog { .. }) => None,
            Err(error) => panic!("{error}"),
        };
        Held { writer, entries }
    }

    /// Leaves a callback that looks at the store, as it may, whichever thread it is called on.
    pub fn look_back(&self, ticket: &Ticket) {
        let (store, looking) = (self.store.clone(), self.looking.clone());
        looking.fetch_add(1, Ordering::Relaxed);
        ticket.on_done(move |_| {
            store.info().unwrap();
            assert!(store.exists(key(0)).is_ok());
            looking.fetch_sub(1, Ordering::Relaxed);
        });
    }

    pub fn looking(&self) -> usize {
        self.looking.load(Ordering::Relaxed)
    }

    /// Looks at all logs as they are at one moment, and then at each.
    pub fn look(&self) {
        let acked = self.known.lock().unwrap().clone();
        let logs = self.store.scan("").unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        let bounds: BTreeMap<_, _> = logs.iter().map(|log| (&log.key[..], log.bounds)).collect();
        assert_eq!(bounds.get(&b"pair/a"[..]), bounds.get(&b"pair/b"[..]), "a commit is seen whole");
        for (writer, (_, acked)) in acked {
            let next = bounds.get(key(writer).as_bytes()).map_or(0, |bounds| bounds.next);
            assert!(next >= acked, "{acked} entries are acked, and {next} are seen");
            let held = self.hold(writer);
            others();
            let now = held.entries.as_ref().map_or(0, |entries| entries.range().end);
            assert!(now >= next, "{} goes back from {next} to {now}", key(writer));
            held.check();
        }
        let pair = |key| match self.store.read(key, ..) {
            Ok(entries) => entries.map(|entry| entry.unwrap().payload).collect(),
            Err(Error::UnknownLog { .. }) => Vec::new(),
            Err(error) => panic!("{error}"),
        };
        let (a, b) = (pair("pair/a"), pair("pair/b"));
        assert_eq!(a, b[..a.len()], "what was read second is as new");
    }

    /// Opens what a power cut at this moment leaves.
    pub fn check_after_a_crash(&self) {
        // What is acknowledged is read before the power goes.
        let known = self.known.lock().unwrap().clone();
        let logs = reopen(self.stage.disk.crash());
        for (writer, (_, acked)) in known {
            let next = check_log(&logs, writer);
            assert!(next >= acked, "{acked} entries are acked, and {next} are left");
        }
    }

    pub fn close_and_check(self) {
        self.store.close().unwrap();
        self.end_and_check(Vec::new());
    }

    /// Lets go of the store, once the threads have ended, and finds all that was appended on its
    /// volume.
    pub fn end_and_check(self, threads: Vec<JoinHandle<()>>) {
        let World { stage, store, known, pairs, .. } = self;
        drop(store);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // A handle that goes in a callback is closed on a thread that nobody joins.
        while Arc::strong_count(&stage) > 1 {
            thread::yield_now();
        }
        let known = known.lock().unwrap().clone();
        let logs = reopen(stage.disk.image());
        let pair = logs.get(&b"pair/a"[..]);
        assert_eq!(pair, logs.get(&b"pair/b"[..]), "a commit is there whole");
        assert_eq!(pair.map_or(0, Log::next), pairs.load(Ordering::Relaxed) as u64);
        for (writer, (appended, _)) in known {
            assert_eq!(check_log(&logs, writer), appended, "all that was appended is there");
        }
    }
}

/// Opens an image, and reads everything.
fn reopen(image: Vec<u8>) -> Logs {
    let volume = Arc::new(MemVolume::from_image(image, 1));
    let options = options(Duration::ZERO, Arc::new(Ticking::default())).threads(false);
    let store = options.open_on(volume).expect("it opens");
    let logs = contents(&store).expect("it is sound");
    store.abandon();
    logs
}

/// Checks each entry of a writer's log, and tells the number of the next.
fn check_log(logs: &Logs, writer: u64) -> u64 {
    let Some(log) = logs.get(key(writer).as_bytes()) else { return 0 };
    for (n, entry) in log.entries.iter().enumerate() {
        check_payload(writer, log.first + n as u64, entry);
    }
    log.next()
}
