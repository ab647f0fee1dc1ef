//! Random histories of a store whose hosts succeed one another, with all kinds of commits. A store
//! in memory makes the same commits and never ends: each successor must have its contents, also
//! after checkpoints and merges of its own. So must a read replica, which is away now and then.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{MemVolume, Rng};
use brooklet::{Bounds, Bytes, Commit, ErrorKind, Options, Retention, Store, Ticket, Waits};
use brooklet_archive::Bucket;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_replica::{Cuts, ReadReplica, ReadReplicaOptions, Replica, ShipperOptions};
use tokio::time::Instant;

use crate::backups::Backups;
use crate::replica::{Host, Running, journal, options, shipping};

const LONG: Duration = Duration::from_secs(300);

type Contents = BTreeMap<Vec<u8>, (Bounds, Retention, Vec<Bytes>)>;

fn often() -> ShipperOptions {
    let mut options = shipping();
    options.cuts = Cuts { time: Duration::from_millis(1), ..Cuts::default() };
    options
}

fn contents(store: &Store) -> Contents {
    let log = |log: Result<brooklet::LogInfo, _>| {
        let log = log.unwrap();
        let entries = store.read(&log.key, ..).unwrap().map(|entry| entry.unwrap().payload).collect();
        (log.key, (log.bounds, log.retention, entries))
    };
    store.scan("").unwrap().map(log).collect()
}

/// Draws a commit of some changes of a few logs, so that most logs are deleted and made again.
fn draw(rng: &mut Rng) -> Commit {
    let mut commit = Commit::new();
    for _ in 0..1 + rng.below(3) {
        let key = format!("log/{}", rng.below(12));
        let payload = vec![b'a' + rng.below(26) as u8; 1 + rng.below(300) as usize];
        match rng.below(16) {
            0..2 => commit.delete(key),
            2 => commit.truncate(key, rng.below(6)),
            3 => commit.trim(key, rng.below(10)),
            4 => commit.keep_last(key, rng.below(4)),
            5 => commit.snapshot(key, payload),
            6 => commit.set_retention(key, Retention::new().entries(1 + rng.below(5))),
            7 => commit.begin_at(key, rng.below(20)),
            _ => commit.append(key, payload),
        };
    }
    commit
}

/// Backs the store up, and waits until the log begins behind the backup.
fn back_up(running: &Running, backups: &Backups) {
    let shipper = running.replica.shipper().unwrap();
    let before = shipper.status().record;
    if backups.back_up(running).unwrap().is_some() {
        while shipper.status().record <= before || shipper.status().is_recording {
            assert!(shipper.error().is_none());
            std::thread::yield_now();
        }
    }
}

fn told(result: Result<Ticket, brooklet::Error>) -> Result<Vec<u64>, ErrorKind> {
    result.map(|ticket| ticket.seqs().to_vec()).map_err(|error| error.kind())
}

/// Another host takes the log over: with the file of the last one, or with the bucket alone.
fn succeed(
    running: Running,
    host: &mut Host,
    memory: &Arc<InMemory>,
    backups: &Backups,
    rng: &mut Rng,
) -> Running {
    running.kill();
    if rng.percent(30) {
        return host.open().unwrap();
    }
    let replica = Replica::new(journal(memory, 0, 0), often());
    let (kept, _claim) = replica.kept(|number| Ok(backups.view(number))).unwrap();
    let volume = Arc::new(MemVolume::new(rng.next()));
    options().succeed_on(volume.clone(), &kept).unwrap().close().unwrap();
    *host = Host::with_disk(volume, memory, Waits::Kept);
    host.shipping = often();
    host.open().unwrap()
}

/// Opens the read replica in a folder.
fn follow(folder: &Path, memory: &Arc<InMemory>) -> ReadReplica {
    let mut reading = ReadReplicaOptions::new(Bucket::of(memory.clone(), "backups").unwrap());
    reading.store = Options::new().memory_budget(1 << 20);
    reading.poll = Duration::from_millis(1);
    let begin = Instant::now();
    let goes_on = || begin.elapsed() < LONG;
    ReadReplica::open(folder.join("replica"), journal(memory, 0, 0), reading, goes_on).unwrap()
}

fn history(seed: u64) {
    let mut rng = Rng::new(seed);
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let twin = Store::in_memory(seed).unwrap();
    let mut host = Host::new(&memory, Waits::Kept);
    host.shipping = often();
    let mut running = host.open().unwrap();
    let (folder, mut replica) = (tempfile::tempdir().unwrap(), None);
    for life in 0..4 {
        for _ in 0..10 + rng.below(40) {
            match rng.below(24) {
                0 => running.store.checkpoint().unwrap(),
                1 => running.store.compact().unwrap(),
                2 => back_up(&running, &backups),
                _ => {
                    let commit = draw(&mut rng);
                    let (here, there) = (running.store.commit(&commit), twin.commit(&commit));
                    assert_eq!(told(here), told(there), "seed {seed}, life {life}: {commit:?}");
                }
            }
        }
        running.store.flush().unwrap();
        twin.flush().unwrap();
        running = succeed(running, &mut host, &memory, &backups, &mut rng);
        assert_eq!(contents(&running.store), contents(&twin), "seed {seed}, life {life}");
        let place = running.store.view().unwrap().lsn();
        let reader = replica.take().unwrap_or_else(|| follow(folder.path(), &memory));
        let shows = reader.wait_for(place, LONG);
        assert!(shows, "seed {seed}, life {life}: {:?}, {:?}", reader.lag(), reader.error());
        assert_eq!(contents(&reader.store()), contents(&twin), "seed {seed}, life {life}: a replica");
        if rng.percent(60) {
            replica = Some(reader);
        } else {
            reader.close().unwrap();
        }
        if rng.percent(50) {
            running.store.checkpoint().unwrap();
            assert_eq!(contents(&running.store), contents(&twin), "seed {seed}, life {life}: a checkpoint");
        }
        if rng.percent(30) {
            running.store.compact().unwrap();
            assert_eq!(contents(&running.store), contents(&twin), "seed {seed}, life {life}: a merge");
        }
    }
    running.kill();
}

#[test]
fn each_successor_has_all_changes_and_keeps_them() {
    let seeds = std::env::var("REPLICA_SEEDS").map_or(3, |seeds| seeds.parse().unwrap());
    (0..seeds).for_each(history);
}
