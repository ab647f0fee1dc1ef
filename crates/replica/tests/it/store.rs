//! Random histories of hosts over an object store that fails: the real driver, bytes and journal,
//! in a runtime whose clock is virtual, so that a seed is one history.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brooklet::io::Rng;
use brooklet_archive::Bucket;
use brooklet_archive::object_store::ObjectStore;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_replica::{
    BucketJournal, Epoch, Error, Follower, Found, Journal, Kind, Mark, Object, Shipper, ShipperOptions,
    StoreId, blocks, follow,
};
use bytes::Bytes;

use crate::faulty::{Failing, Faulty};

const STORE: StoreId = StoreId(7);

/// All that the hosts of a history know, and a plain program would not.
#[derive(Default)]
pub struct Known {
    /// What was acknowledged at each position of the store's log, and by the owner of which epoch.
    pub acked: BTreeMap<u64, (u64, Epoch)>,
    /// What each backup has.
    backups: Vec<Vec<u64>>,
    takeovers: u32,
    fenced: u32,
    trims: u32,
}

pub type Shared = Arc<Mutex<Known>>;

fn journal(memory: &Arc<InMemory>, failing: Failing, seed: u64) -> BucketJournal {
    let faulty: Arc<dyn ObjectStore> = Arc::new(Faulty::new(memory.clone(), failing, seed));
    let bucket = Bucket::of(faulty, "here").unwrap();
    BucketJournal::new(&bucket).patience(Duration::from_secs(2))
}

fn numbers(object: &Object<Bytes>) -> Vec<u64> {
    if object.kind != Kind::Blocks {
        return Vec::new();
    }
    let number = |block: Bytes| u64::from_le_bytes(block[..].try_into().unwrap());
    blocks(&object.payload).unwrap().into_iter().map(number).collect()
}

/// Opens the log, and returns its history and the claimed epoch, too.
pub async fn open(journal: impl Journal, shared: &Shared) -> Result<(Shipper, Vec<u64>, Epoch), Error> {
    let mut history = Vec::new();
    let found = |found: Found<Bytes>| {
        match found {
            Found::Begin(record) => {
                let backup = |number: u64| shared.lock().unwrap().backups[number as usize].clone();
                history = record.map_or(Vec::new(), |record| backup(record.backup));
            }
            Found::Object(object) => history.extend(numbers(&object)),
        }
        Ok(())
    };
    let (shipper, opened) = Shipper::start(journal, STORE, ShipperOptions::default(), found).await?;
    assert_eq!(opened.end.lsn, history.len() as u64);
    Ok((shipper, history, opened.writer.epoch))
}

/// A host: takes over, appends, records and trims until it is fenced or killed; again and again.
/// Its pauses are shorter by the factor `haste`.
async fn host(name: u64, journal: impl Journal + Clone, shared: Shared, mut rng: Rng, haste: u32) {
    let mut next = name << 32;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(rng.below(20_000)) / haste).await;
        let (shipper, mut history, epoch) = match open(journal.clone(), &shared).await {
            Ok(opened) => opened,
            Err(
                Error::Outbid { .. }
                | Error::TooLate { .. }
                | Error::Bucket { .. }
                | Error::Servers { .. }
                | Error::NoAnswer { .. },
            ) => continue,
            Err(error) => panic!("{error}"),
        };
        check(&shared, &history, epoch);
        shared.lock().unwrap().takeovers += 1;
        let base = history.len();
        for _ in 0..rng.below(60) {
            for _ in 0..rng.below(4) {
                if shipper.status().waiting < 1000 && shipper.error().is_none() {
                    let at = history.len() as u64;
                    shipper.ship(at, at + 1, &next.to_le_bytes()).unwrap();
                    history.push(next);
                    next += 1;
                }
            }
            let most = if rng.percent(3) { 10_000 } else { 300 };
            tokio::time::sleep(Duration::from_millis(rng.below(most)) / haste).await;
            let status = shipper.status();
            acknowledge(&shared, &history, base, (status.kept, epoch));
            if shipper.error().is_some() {
                break;
            }
            if rng.percent(10) && !status.is_recording && status.kept.place.number > 0 {
                let mut known = shared.lock().unwrap();
                known.backups.push(history[..status.kept.lsn as usize].to_vec());
                known.trims += 1;
                shipper.record(status.kept, known.backups.len() as u64 - 1);
            }
        }
        match shipper.error() {
            None => {}
            Some(Error::Fenced { .. }) => shared.lock().unwrap().fenced += 1,
            Some(error) => panic!("{error}"),
        }
        acknowledge(&shared, &history, base, (shipper.status().kept, epoch));
    }
}

/// No position is acknowledged twice with different blocks.
pub fn acknowledge(shared: &Shared, history: &[u64], base: usize, (kept, epoch): (Mark, Epoch)) {
    let mut known = shared.lock().unwrap();
    for (at, block) in history.iter().enumerate().take(kept.lsn as usize).skip(base) {
        let before = known.acked.insert(at as u64, (*block, epoch));
        let same = before.is_none_or(|before| before == (*block, epoch));
        assert!(same, "two blocks are acknowledged at {at}");
    }
}

/// All that earlier owners have acknowledged so far is in the history that an owner begins with.
pub fn check(shared: &Shared, history: &[u64], epoch: Epoch) {
    let known = shared.lock().unwrap();
    for (at, (block, _)) in known.acked.iter().filter(|(_, (_, by))| *by < epoch) {
        assert_eq!(history.get(*at as usize), Some(block), "position {at} was acknowledged, and is lost");
    }
}

/// Follows the log while it can, and returns what it read.
async fn reader(journal: impl Journal, time: Duration) -> Vec<u64> {
    let mut follower = Follower::new(STORE, Mark::BEGIN, None, Duration::from_secs(3), Duration::ZERO);
    let (journal, mut read) = (Arc::new(journal), Vec::new());
    let following = async {
        loop {
            let pause = Duration::from_millis(100);
            let found = |object| {
                read.extend(numbers(&object));
                Ok(())
            };
            let end = follow(&journal, STORE, &mut follower, pause, found, |_| ());
            if matches!(end.await.unwrap(), brooklet_replica::FollowerState::Behind) {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    };
    let _ = tokio::time::timeout(time, following).await;
    read
}

/// Plays the history of a seed over some journals: one for the last look, which does not fail, one
/// for a reader, which reads for so long, and one for each of three hosts. Returns its takeovers,
/// owners that were fenced while they appended, trims and acknowledged blocks.
pub async fn play<J: Journal + Clone>(journals: [J; 5], seed: u64, haste: u32, time: Duration) -> [u64; 4] {
    let (shared, [calm, read, first, second, third]) = (Shared::default(), journals);
    let hosts: Vec<_> = (1..)
        .zip([first, second, third])
        .map(|(name, journal)| {
            tokio::spawn(host(name, journal, shared.clone(), Rng::new(seed * 100 + name), haste))
        })
        .collect();
    let reader = tokio::spawn(reader(read, time));
    for host in hosts {
        host.await.unwrap();
    }
    // Whatever is late comes now, and then it is read for the last time.
    tokio::time::sleep(Duration::from_secs(100) / haste).await;
    let (_, history, epoch) = open(calm, &shared).await.unwrap();
    check(&shared, &history, epoch);
    let read = reader.await.unwrap();
    assert!(history.starts_with(&read), "a follower read what is not in the log");
    let known = shared.lock().unwrap();
    [known.takeovers.into(), known.fenced.into(), known.trims.into(), known.acked.len() as u64]
}

/// Plays the history of a seed over a store that fails.
pub fn history(seed: u64) -> [u64; 4] {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let memory = Arc::new(InMemory::new());
    let failing = Failing::Percent([0, 5, 20][seed as usize % 3]);
    let [read, first, second, third] = [0, 1, 2, 3].map(|name| journal(&memory, failing, seed * 10 + name));
    let calm = journal(&memory, Failing::Percent(0), 0);
    runtime.block_on(play([calm, read, first, second, third], seed, 1, Duration::from_secs(60)))
}

#[test]
fn hosts_over_a_failing_store_lose_nothing() {
    let seeds = std::env::var("REPLICA_SEEDS").map_or(60, |seeds| seeds.parse().unwrap());
    let mut sum = [0; 4];
    for seed in 0..seeds {
        let counts = std::panic::catch_unwind(|| history(seed)).unwrap_or_else(|_| panic!("seed {seed}"));
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let [takeovers, fenced, trims, acked] = sum;
    println!(
        "{seeds} histories: {takeovers} takeovers, {fenced} owners fenced, {trims} trims, {acked} blocks"
    );
    assert!(takeovers > 2 * seeds && fenced > seeds / 2 && trims > seeds && acked > 20 * seeds);
}
