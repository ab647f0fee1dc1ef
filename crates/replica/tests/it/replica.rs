//! Stores whose log is kept in a bucket that fails: what is acknowledged survives the host, and no
//! opening continues with a history that is not its own.

use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{MemVolume, Rng};
use brooklet::{
    Class, Durability, MemoryConfig, MirrorOptions, Options, SealedBlock, SpaceConfig, Store, Ticket, Waits,
};
use brooklet_archive::Bucket;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_replica::{
    BucketJournal, Cuts, Error, Found, Journal, Key, Kind, Mark, OwnerLimits, Record, Replica, Shipper,
    ShipperOptions, StoreId, blocks,
};
use bytes::Bytes;

use crate::faulty::{Failing, Faulty};

pub fn options() -> Options {
    Options::new().ring_size(256 << 10).memory_budget(1 << 20).max_payload(8 << 10).threads(false)
}

pub fn journal(memory: &Arc<InMemory>, percent: u64, seed: u64) -> BucketJournal {
    let faulty = Faulty::new(memory.clone(), Failing::Percent(percent), seed);
    BucketJournal::new(&Bucket::of(Arc::new(faulty), "here").unwrap()).patience(Duration::from_millis(100))
}

pub fn shipping() -> ShipperOptions {
    let limits = OwnerLimits { hedge: Duration::from_millis(50), ..OwnerLimits::default() };
    let mut options = ShipperOptions::default();
    options.limits = limits;
    options
}

/// Cuts only when it is told to.
pub fn lazy() -> ShipperOptions {
    let mut options = shipping();
    options.cuts = Cuts { time: Duration::from_secs(3600), bytes: 64 << 20 };
    options
}

/// A host with its disk.
pub struct Host {
    pub volume: Arc<MemVolume>,
    memory: Arc<InMemory>,
    waits: Waits,
    pub shipping: ShipperOptions,
    percent: u64,
    seed: u64,
}

pub struct Running {
    pub store: Store,
    pub replica: Arc<Replica>,
}

impl Host {
    pub fn new(memory: &Arc<InMemory>, waits: Waits) -> Self {
        let volume = Arc::new(MemVolume::new(1));
        drop(options().create_on(volume.clone()).unwrap());
        Self::with_disk(volume, memory, waits)
    }

    pub fn with_disk(volume: Arc<MemVolume>, memory: &Arc<InMemory>, waits: Waits) -> Self {
        Self { volume, memory: memory.clone(), waits, shipping: shipping(), percent: 0, seed: 0 }
    }

    /// Another host, with a copy of this one's disk as it is now.
    pub fn copy(&self) -> Self {
        let volume = Arc::new(MemVolume::from_image(self.volume.image(), 1));
        Self { volume, memory: self.memory.clone(), shipping: shipping(), ..*self }
    }

    pub fn open(&self) -> Result<Running, Error> {
        let journal = journal(&self.memory, self.percent, self.seed);
        self.open_with(Replica::new(journal, self.shipping.clone()), options())
    }

    pub fn open_with(&self, replica: Arc<Replica>, options: Options) -> Result<Running, Error> {
        let mirror = MirrorOptions::new(replica.clone()).waits(self.waits).kept_space("kept");
        let store = options.mirror(mirror).open_on(self.volume.clone());
        let store = store.map_err(|error| replica.explain(error))?;
        Ok(Running { store, replica })
    }

    /// Forgets the disk, makes the store anew from the log, and opens it.
    pub fn succeed(self) -> Result<Running, Error> {
        let replica = Replica::new(journal(&self.memory, 0, 0), self.shipping.clone());
        let (kept, _claim) = replica.kept(|number| panic!("backup {number} is not there"))?;
        let volume = Arc::new(MemVolume::new(9));
        options().succeed_on(volume.clone(), &kept).unwrap().close().unwrap();
        Self { volume, ..self }.open()
    }

    /// Opens the store without its log.
    fn look(&self) -> Vec<String> {
        let store = options().read_only(true).open_on(self.volume.clone()).unwrap();
        entries(&store)
    }
}

impl Running {
    pub fn append(&self, entry: &str) -> Ticket {
        self.store.append("log", entry).unwrap()
    }

    /// Waits until the bucket keeps all entries.
    pub fn flush(&self) {
        assert!(self.store.append("last", "x").unwrap().wait_kept().unwrap());
    }

    pub fn kill(self) {
        self.store.abandon();
        self.replica.give_up();
    }
}

pub fn entries(store: &Store) -> Vec<String> {
    let entry =
        |entry: Result<brooklet::Entry, _>| String::from_utf8(entry.unwrap().payload.to_vec()).unwrap();
    store.read_available("log", ..).unwrap().map(entry).collect()
}

/// Takes the log over, and returns the records of all its blocks: a host that has the bucket alone.
fn in_the_bucket(memory: &Arc<InMemory>, id: u128) -> Vec<u8> {
    let mut found = Vec::new();
    let on_found = |it: Found<Bytes>| {
        match it {
            Found::Begin(_) => found.clear(),
            Found::Object(object) if object.kind == Kind::Blocks => {
                for block in blocks(&object.payload).unwrap() {
                    found.extend_from_slice(&SealedBlock::decode(block).unwrap().records().unwrap());
                }
            }
            Found::Object(_) => {}
        }
        Ok(())
    };
    drop(Shipper::open(journal(memory, 0, 0), StoreId(id), shipping(), on_found).unwrap());
    found
}

fn holds(records: &[u8], entry: &str) -> bool {
    records.windows(entry.len()).any(|part| part == entry.as_bytes())
}

/// Lives of one host over a bucket that fails, each ended by a kill. At last the host is lost with
/// its disk. Returns the number of acknowledged entries.
pub fn lives(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let memory = Arc::new(InMemory::new());
    let mut host = Host::new(&memory, Waits::Kept);
    (host.percent, host.seed) = ([0, 5, 20][seed as usize % 3], seed);
    let (mut acked, mut id) = (Vec::new(), 0);
    for life in 0..3 {
        let running = match host.open() {
            Ok(running) => running,
            Err(Error::Bucket { .. } | Error::NoAnswer { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        id = running.store.info().unwrap().id;
        let there = entries(&running.store);
        acked.iter().for_each(|entry| assert!(there.contains(entry), "{entry} was acknowledged"));
        let mut tickets = Vec::new();
        for n in 0..1 + rng.below(12) {
            let entry = format!("entry {n} of life {life}, {seed}.");
            let ticket = running.append(&entry);
            if rng.percent(50) {
                ticket.wait().unwrap();
                let there = entries(&running.store);
                assert!(there.contains(&entry));
            }
            tickets.push((entry, ticket));
        }
        tickets.retain(|(_, ticket)| ticket.is_done());
        acked.extend(tickets.into_iter().map(|(entry, _)| entry));
        running.kill();
    }
    // Another host continues, with the bucket alone.
    if !acked.is_empty() {
        let next = Host::new(&memory, Waits::Kept).succeed().unwrap();
        let there = entries(&next.store);
        acked
            .iter()
            .for_each(|entry| assert!(there.contains(entry), "{entry} was acknowledged, and is lost"));
        next.append("entry of the successor").wait().unwrap();
        next.kill();
    }
    let records = in_the_bucket(&memory, id);
    acked.iter().for_each(|entry| assert!(holds(&records, entry), "{entry} was acknowledged, and is lost"));
    acked.len()
}

#[test]
fn what_is_acknowledged_survives_the_host_and_its_disk() {
    let seeds = std::env::var("REPLICA_SEEDS").map_or(6, |seeds| seeds.parse().unwrap());
    let acked: usize = (0..seeds).map(lives).sum();
    println!("{seeds} hosts: {acked} entries acknowledged");
    assert!(acked as u64 > 4 * seeds);
}

#[test]
fn a_local_acknowledgement_does_not_wait_and_the_next_opening_ships_the_rest() {
    let memory = Arc::new(InMemory::new());
    let mut host = Host::new(&memory, Waits::Local);
    host.shipping = lazy();
    let running = host.open().unwrap();
    let id = running.store.info().unwrap().id;
    let ticket = running.append("local");
    ticket.wait().unwrap();
    assert!(ticket.is_done() && !ticket.is_kept());
    assert_eq!(entries(&running.store), ["local"]);
    let lag = running.store.activity().mirror.unwrap();
    assert!(lag.blocks > 0 && lag.bytes > 0);
    running.kill();
    assert!(!holds(&in_the_bucket(&memory, id), "local"));

    let running = host.open().unwrap();
    assert_eq!(entries(&running.store), ["local"]);
    assert!(holds(&in_the_bucket(&memory, id), "local"));
}

/// A checkpoint does not trim the ring of what the bucket lacks: the next opening would find no
/// link to the log.
#[test]
fn the_ring_keeps_what_the_bucket_lacks() {
    the_ring_keeps_it();
}

pub fn the_ring_keeps_it() {
    let memory = Arc::new(InMemory::new());
    let mut host = Host::new(&memory, Waits::Local);
    host.shipping = lazy();
    let running = host.open().unwrap();
    let mut rng = Rng::new(7);
    for _ in 0..20 {
        let payload: Vec<u8> = (0..8000).map(|_| rng.next() as u8).collect();
        running.store.append("log", payload).unwrap().wait().unwrap();
    }
    for _ in 0..100 {
        running.store.step().unwrap();
    }
    assert!(running.store.info().unwrap().checkpointing);
    running.kill();
    let running = host.open().unwrap();
    assert_eq!(running.store.bounds("log").unwrap().next, 20);
    running.store.checkpoint().unwrap();
    assert!(!running.store.info().unwrap().runs.is_empty());
    running.kill();
    assert_eq!(host.open().unwrap().store.bounds("log").unwrap().next, 20);
}

/// One space waits for the bucket, the others do not.
#[test]
fn a_space_may_wait_where_the_store_does_not() {
    let memory = Arc::new(InMemory::new());
    let mut host = Host::new(&memory, Waits::Local);
    host.shipping = lazy();
    let Running { store, replica } = host.open().unwrap();
    let local = store.append("keptless/1", "x").unwrap();
    let kept = store.append("kept/1", "y").unwrap();
    let deferred = store.append_with("kept/2", "z", Durability::Deferred(Duration::from_secs(60))).unwrap();
    assert!(!local.comes_with(&kept) && !kept.comes_with(&local) && !kept.comes_with(&deferred));
    local.wait().unwrap();
    kept.wait_durable().unwrap();
    assert!(kept.is_durable() && !kept.is_done() && local.is_done() && deferred.is_done());
    assert!(!kept.wait_timeout(Duration::from_millis(1)).unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    kept.on_done(move |result| tell.send(result.is_ok()).unwrap());
    assert!(told.try_recv().is_err());
    replica.shipper().unwrap().flush();
    kept.wait().unwrap();
    assert!(kept.is_kept() && local.wait_kept().unwrap() && deferred.wait_kept().unwrap());
    assert_eq!(told.recv(), Ok(true));
    let status = replica.status().unwrap();
    assert!(status.cuts > 0 && status.puts >= status.cuts && status.bytes > 0);
}

#[test]
fn an_owner_that_was_replaced_acknowledges_nothing_more() {
    let memory = Arc::new(InMemory::new());
    let host = Host::new(&memory, Waits::Kept);
    let first = host.open().unwrap();
    first.append("one").wait().unwrap();
    first.store.close().unwrap();
    let standby = host.copy();
    let old = host.open().unwrap();
    old.append("two").wait().unwrap();
    old.store.close().unwrap();
    drop(old);
    // Its disk is older than the log.
    assert!(matches!(standby.open(), Err(Error::Behind { .. })));

    let old = host.open().unwrap();
    let standby = host.copy();
    let new = standby.open().unwrap();
    let refused = old.append("three").wait().unwrap_err();
    assert_eq!(refused.kind(), brooklet::ErrorKind::Stopped);
    assert!(matches!(old.replica.explain(refused), Error::Fenced { .. }));
    assert!(old.store.append("log", "four").is_err());
    new.append("three of the new owner").wait().unwrap();
    assert_eq!(entries(&new.store), ["one", "two", "three of the new owner"]);
    // A history that another one has replaced is refused, and kept.
    old.kill();
    match host.open().map(drop) {
        Err(Error::Diverged { from, end }) => assert!(from < end),
        other => panic!("{other:?}"),
    }
    assert_eq!(host.look(), ["one", "two", "three"]);
    assert_eq!(entries(&new.store), ["one", "two", "three of the new owner"]);
}

/// A store that is made anew from the log continues under the same identity, and can be left and
/// succeeded again.
#[test]
fn hosts_succeed_one_another_with_the_bucket_alone() {
    let memory = Arc::new(InMemory::new());
    assert!(matches!(Host::new(&memory, Waits::Kept).succeed(), Err(Error::NoLog)));
    let first = Host::new(&memory, Waits::Kept).open().unwrap();
    let id = first.store.info().unwrap().id;
    let mut all = Vec::new();
    let mut running = first;
    for round in 0..3 {
        for n in 0..5 {
            all.push(format!("entry {n} of round {round}"));
            running.append(all.last().unwrap()).wait().unwrap();
        }
        running.store.delete("gone").unwrap_err();
        if round == 1 {
            running.store.checkpoint().unwrap();
        }
        let next = Host::new(&memory, Waits::Kept).succeed().unwrap();
        // A beat may have met the successor already.
        assert!(running.store.append("log", "too late").and_then(|late| late.wait()).is_err());
        running.kill();
        running = next;
        assert_eq!(entries(&running.store), all);
        assert_eq!(running.store.info().unwrap().id, id);
    }
    assert!(running.store.bounds("log").unwrap().next == 15);
}

/// Two histories of the same length are told apart, also where every block is as long.
/// A backup shortens the way: its entries, and those of the blocks that it lacks.
#[test]
fn a_successor_begins_with_a_backup_of_the_same_store() {
    let memory = Arc::new(InMemory::new());
    let host = Host::new(&memory, Waits::Kept);
    let running = host.open().unwrap();
    running.append("0").wait().unwrap();
    running.store.checkpoint().unwrap();
    let backup = running.store.view().unwrap();
    running.append("1").wait().unwrap();
    running.kill();
    let other = options().rng_seed(7).create_on(Arc::new(MemVolume::new(4))).unwrap();
    other.append("log", "of another store").unwrap().wait().unwrap();

    let replica = Replica::new(journal(&memory, 0, 0), shipping());
    let (mut kept, _claim) = replica.kept(|_| panic!("no backup is recorded")).unwrap();
    kept.backup = Some(other.view().unwrap());
    let refused = options().succeed_on(Arc::new(MemVolume::new(8)), &kept);
    assert!(refused.unwrap_err().to_string().contains("another store"));
    kept.backup = Some(backup);
    let volume = Arc::new(MemVolume::new(9));
    let store = options().succeed_on(volume.clone(), &kept).unwrap();
    assert_eq!(entries(&store), ["0", "1"]);
    drop(store);
    let successor = Host { volume, ..host }.open().unwrap();
    successor.append("2").wait().unwrap();
    assert_eq!(entries(&successor.store), ["0", "1", "2"]);
}

#[test]
fn a_history_of_the_same_length_has_diverged_all_the_same() {
    let memory = Arc::new(InMemory::new());
    let mut host = Host::new(&memory, Waits::Local);
    host.open().unwrap().store.close().unwrap();
    let other = host.copy();
    host.shipping = lazy();
    let running = host.open().unwrap();
    running.append("a").wait().unwrap();
    running.kill();
    let there = other.open().unwrap();
    assert!(there.append("b").wait_kept().unwrap());
    assert!(matches!(host.open(), Err(Error::Diverged { .. })));
    assert_eq!(host.look(), ["a"]);
}

#[test]
fn after_a_trim_of_the_log_an_opening_still_knows_its_history() {
    let memory = Arc::new(InMemory::new());
    let host = Host::new(&memory, Waits::Kept);
    let running = host.open().unwrap();
    for n in 0..5 {
        running.append(&format!("entry {n}")).wait().unwrap();
    }
    let shipper = running.replica.shipper().unwrap();
    let mark = shipper.status().recordable.unwrap();
    assert!(mark.lsn > 0 && mark.lsn < shipper.status().kept.lsn);
    shipper.record(mark, 0);
    while shipper.status().record.is_none() || shipper.status().is_recording {
        std::thread::yield_now();
    }
    let standby = host.copy();
    running.append("the last one").wait().unwrap();
    running.kill();
    assert!(matches!(standby.open(), Err(Error::Behind { .. })));
    assert_eq!(host.open().unwrap().store.bounds("log").unwrap().next, 6);
}

/// Two backups may end in another order than they began, while an earlier record is under way. In
/// an earlier state, the later record was forgotten.
#[test]
fn of_the_records_that_wait_the_latest_point_counts() {
    let memory = Arc::new(InMemory::new());
    let running = Host::new(&memory, Waits::Kept).open().unwrap();
    let shipper = running.replica.shipper().unwrap();
    let mark = |n: u64| {
        running.append(&format!("entry {n}")).wait().unwrap();
        shipper.status().kept
    };
    let marks: Vec<Mark> = (0..3).map(mark).collect();
    for n in [0, 2, 1] {
        shipper.record(marks[n], n as u64);
    }
    while shipper.status().record.is_none() || shipper.status().is_recording {
        std::thread::yield_now();
    }
    let (number, id) = (shipper.status().record.unwrap(), running.store.info().unwrap().id);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let data = runtime.block_on(journal(&memory, 0, 0).read(Key::Record(number))).unwrap().unwrap();
    assert_eq!(Record::decode(StoreId(id), number, &data).unwrap().mark, marks[2]);
    running.kill();
}

#[test]
fn a_store_whose_entries_no_log_has_is_refused() {
    let memory = Arc::new(InMemory::new());
    let host = Host::new(&memory, Waits::Kept);
    let plain = options().open_on(host.volume.clone()).unwrap();
    plain.append("log", "early").unwrap().wait().unwrap();
    plain.checkpoint().unwrap();
    plain.close().unwrap();
    drop(plain);
    assert!(matches!(host.open(), Err(Error::NeedsBackup)));
    assert_eq!(host.look(), ["early"]);
    // The log of a restored store begins at 0, and its entries are in its runs alone.
    let view = options().read_only(true).open_on(host.volume.clone()).unwrap().view().unwrap();
    let volume = Arc::new(MemVolume::new(3));
    drop(options().copy_on(volume.clone(), &view).unwrap());
    let restored = Host { volume, ..Host::new(&Arc::new(InMemory::new()), Waits::Kept) };
    assert!(matches!(restored.open(), Err(Error::NeedsBackup)));
    assert_eq!(restored.look(), ["early"]);
    // One that is in the ring goes into the log.
    let host = Host::new(&memory, Waits::Kept);
    let plain = options().open_on(host.volume.clone()).unwrap();
    plain.append("log", "recent").unwrap().wait().unwrap();
    plain.close().unwrap();
    drop(plain);
    let other = Host { memory: Arc::new(InMemory::new()), ..host };
    let id = other.open().unwrap().store.info().unwrap().id;
    assert!(holds(&in_the_bucket(&other.memory, id), "recent"));
}

#[test]
fn a_place_of_another_store_is_refused() {
    let memory = Arc::new(InMemory::new());
    let first = Host::new(&memory, Waits::Kept).open().unwrap();
    first.append("x").wait().unwrap();
    let other = Host { volume: Arc::new(MemVolume::new(2)), ..Host::new(&memory, Waits::Kept) };
    drop(options().rng_seed(99).create_on(other.volume.clone()).unwrap());
    assert!(matches!(other.open(), Err(Error::OtherStore { .. })));
    first.append("y").wait().unwrap();
}

/// What bypasses the log of a store would be lost with the host.
#[test]
fn what_bypasses_the_log_is_refused() {
    let memory = Arc::new(InMemory::new());
    let source = Store::in_memory(5).unwrap();
    source.append("other", "x").unwrap().wait().unwrap();
    let refuses = |store: &Store| {
        let config = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
        let error = store.create_space("fast", config).unwrap_err();
        assert!(error.to_string().contains("keeps no space in memory"), "{error}");
        let error = store.import().view(&source.view().unwrap(), "").unwrap_err();
        assert!(error.to_string().contains("takes no import"), "{error}");
        assert!(!store.exists("other").unwrap());
    };
    let host = Host::new(&memory, Waits::Kept);
    let running = host.open().unwrap();
    running.append("one").wait().unwrap();
    refuses(&running.store);
    running.store.close().unwrap();
    drop(running);
    // The next opening with the log could not see it either.
    let plain = options().open_on(host.volume.clone()).unwrap();
    refuses(&plain);
    plain.checkpoint().unwrap();
    plain.close().unwrap();
    drop(plain);
    refuses(&options().open_on(host.volume.clone()).unwrap());
    let copy = Arc::new(MemVolume::new(3));
    let view = options().read_only(true).open_on(host.volume.clone()).unwrap().view().unwrap();
    let copy = options().copy_on(copy, &view).unwrap();
    copy.import().view(&source.view().unwrap(), "").unwrap();
    assert!(copy.exists("other").unwrap());
    // A successor has a mirror from the beginning.
    let replica = Replica::new(journal(&memory, 0, 0), shipping());
    let (kept, _claim) = replica.kept(|_| panic!("no backup is recorded")).unwrap();
    refuses(&options().succeed_on(Arc::new(MemVolume::new(9)), &kept).unwrap());
}

#[test]
fn a_name_that_no_space_can_have_is_refused() {
    let mirror = MirrorOptions::new(Replica::new(journal(&Arc::new(InMemory::new()), 0, 0), shipping()));
    let volume = Arc::new(MemVolume::new(1));
    let error = options().mirror(mirror.kept_space("kept/")).create_on(volume).unwrap_err();
    assert!(error.to_string().contains("is not a valid name of a space"), "{error}");
}
