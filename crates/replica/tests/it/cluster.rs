//! Random histories of a cluster: three hosts and two shards over object stores that fail, moves,
//! kills and partitions. Each shard keeps what was acknowledged, and has one owner at a time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use brooklet::io::Rng;
use brooklet_archive::Bucket;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_replica::{
    BucketJournal, Change, Cluster, Error, Followed, Map, Observer, Part, Place, Standing, stand_by,
};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use crate::faulty::{Failing, Faulty};
use crate::store::{Shared, acknowledge, check, open};

const HOSTS: [&str; 3] = ["one", "two", "three"];
const SHARDS: [&str; 2] = ["a", "b"];
const SILENCE: Duration = Duration::from_secs(3);

type Known = Arc<Mutex<Part>>;

/// What a history did, for the test to see that it did something.
#[derive(Default)]
struct Counts {
    moves: u32,
    takeovers: u32,
}

struct Observes(Known);

impl Observer for Observes {
    fn see(&mut self, map: Option<&Map>) -> Option<Change> {
        self.0.lock().unwrap().see(map)
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(if self.0.lock().unwrap().is_moving() { 50 } else { 1000 })
    }
}

struct Stands<'a>(&'a Known);

impl Standing for Stands<'_> {
    fn take(&mut self, _read: Followed) {}

    fn pause(&mut self, end: Option<Place>) -> Duration {
        let mut part = self.0.lock().unwrap();
        part.stand_by(end);
        Duration::from_millis(if part.is_moving() { 20 } else { 200 })
    }

    fn takes(&mut self, to: &str) -> bool {
        self.0.lock().unwrap().takes(to)
    }

    fn begins(&mut self) -> bool {
        self.0.lock().unwrap().begins()
    }
}

/// One process: a host for a shard.
struct Process {
    cluster: Cluster<BucketJournal>,
    journal: Arc<BucketJournal>,
    shared: Shared,
    counts: Arc<Mutex<Counts>>,
    end: Instant,
}

impl Process {
    /// Lives until it is killed, and again, until the end.
    async fn run(self, shard: &str, host: &str, mut rng: Rng) {
        let mut next = rng.below(1 << 20) << 32;
        while Instant::now() < self.end {
            let known = Known::new(Mutex::new(Part::new(shard, host, "")));
            let most = Duration::from_millis(5000 + rng.below(80_000));
            let lives = async {
                let mut observer = Observes(known.clone());
                tokio::select! {
                    ended = self.cluster.observe(None, &mut observer) => ended.unwrap(),
                    () = self.live(&known, &mut rng, &mut next) => {}
                }
            };
            // A kill.
            let _ = timeout(most.min(self.end - Instant::now()), lives).await;
            sleep(Duration::from_millis(rng.below(5000))).await;
        }
    }

    async fn live(&self, known: &Known, rng: &mut Rng, next: &mut u64) {
        loop {
            match stand_by(&self.journal, SILENCE, &mut Stands(known)).await {
                Ok(()) => self.serve(known, rng, next).await,
                Err(error) => panic!("{error}"),
            }
            known.lock().unwrap().end_serving();
        }
    }

    async fn serve(&self, known: &Known, rng: &mut Rng, next: &mut u64) {
        let (shipper, mut history, epoch) = match open((*self.journal).clone(), &self.shared).await {
            Ok(opened) => opened,
            Err(
                Error::Outbid { .. } | Error::TooLate { .. } | Error::Bucket { .. } | Error::NoAnswer { .. },
            ) => return,
            Err(error) => panic!("{error}"),
        };
        check(&self.shared, &history, epoch);
        self.counts.lock().unwrap().takeovers += 1;
        known.lock().unwrap().serve(epoch);
        known.lock().unwrap().open();
        let base = history.len();
        let left_to = loop {
            if shipper.error().is_some() {
                break None;
            }
            if shipper.status().waiting < 1000 {
                let at = history.len() as u64;
                shipper.ship(at, at + 1, &next.to_le_bytes()).unwrap();
                history.push(*next);
                *next += 1;
            }
            sleep(Duration::from_millis(rng.below(200))).await;
            acknowledge(&self.shared, &history, base, (shipper.status().kept, epoch));
            let mut part = known.lock().unwrap();
            part.note_log(true, shipper.status().kept.place, None);
            if let Some(to) = part.leaves_to() {
                break Some(to.to_owned());
            }
        };
        if let Some(to) = left_to {
            shipper.hand_over(&to);
            let begin = Instant::now();
            while shipper.error().is_none() && begin.elapsed() < Duration::from_secs(30) {
                sleep(Duration::from_millis(5)).await;
            }
            let is_left = matches!(shipper.error(), Some(Error::HandedOver { .. }));
            self.counts.lock().unwrap().moves += u32::from(is_left);
        }
        acknowledge(&self.shared, &history, base, (shipper.status().kept, epoch));
    }
}

fn journal(memory: &Arc<InMemory>, place: &str, faulty: Failing, seed: u64) -> (BucketJournal, Faulty) {
    let store = Faulty::new(memory.clone(), faulty, seed);
    let bucket = Bucket::of(Arc::new(store.clone()), place).unwrap();
    (BucketJournal::new(&bucket).patience(Duration::from_secs(2)), store)
}

/// Asks for moves, and sometimes takes one back.
async fn mover(cluster: Cluster<BucketJournal>, mut rng: Rng, end: Instant) {
    while Instant::now() < end {
        sleep(Duration::from_millis(rng.below(12_000))).await;
        let shard = SHARDS[rng.below(2) as usize].to_owned();
        let change = match rng.percent(15) {
            true => Change::Cancel { shard },
            false => Change::Move { shard, to: HOSTS[rng.below(3) as usize].into() },
        };
        // The host may not be registered yet, and the store fails.
        let _ = cluster.change(change, None).await;
    }
}

/// Plays the history of a seed. Returns the numbers of handovers, takeovers and acknowledged
/// blocks.
pub fn history(seed: u64) -> [u64; 3] {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (memory, counts) = (Arc::new(InMemory::new()), Arc::<Mutex<Counts>>::default());
    let failing = Failing::Percent([0, 3, 12][seed as usize % 3]);
    let calm = |place: &str| journal(&memory, place, Failing::Percent(0), 0).0;
    let play = async {
        let map = Cluster::new(calm("cluster"));
        map.change(Change::Begin, None).await.unwrap();
        for shard in SHARDS {
            map.change(Change::AddShard { shard: shard.into() }, None).await.unwrap();
        }
        let end = Instant::now() + Duration::from_secs(240);
        let mut tasks = vec![spawn_local(mover(map, Rng::new(seed), end))];
        let shards = SHARDS.map(|_| Shared::default());
        for (at, (shard, shared)) in SHARDS.iter().zip(&shards).enumerate() {
            for (number, host) in HOSTS.iter().enumerate() {
                let name = seed * 100 + (at * 10 + number) as u64;
                let (log, cut) = journal(&memory, &format!("cluster/shards/{shard}"), failing, name);
                let (map, cut_map) = journal(&memory, "cluster", failing, name + 50);
                let (counts, shared) = (counts.clone(), shared.clone());
                let process =
                    Process { cluster: Cluster::new(map), journal: log.into(), shared, counts, end };
                tasks.push(spawn_local(process.run(shard, host, Rng::new(name))));
                tasks.push(spawn_local(partitions([cut, cut_map], Rng::new(name + 7), end)));
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        // Whatever is late comes now.
        sleep(Duration::from_secs(100)).await;
        let mut acked = 0;
        for (shard, shared) in SHARDS.iter().zip(&shards) {
            let (_, history, epoch) = open(calm(&format!("cluster/shards/{shard}")), shared).await.unwrap();
            check(shared, &history, epoch);
            acked += shared.lock().unwrap().acked.len() as u64;
        }
        let counts = counts.lock().unwrap();
        [counts.moves.into(), counts.takeovers.into(), acked]
    };
    runtime.block_on(LocalSet::new().run_until(play))
}

/// Cuts a process off from the log, from the map, or from both, now and then.
async fn partitions(stores: [Faulty; 2], mut rng: Rng, end: Instant) {
    while Instant::now() < end {
        sleep(Duration::from_millis(rng.below(60_000))).await;
        let cut: Vec<&Faulty> = stores.iter().filter(|_| rng.percent(60)).collect();
        for store in &cut {
            store.cut_off(true);
        }
        sleep(Duration::from_millis(rng.below(10_000))).await;
        for store in &cut {
            store.cut_off(false);
        }
    }
}

#[test]
fn shards_that_move_lose_nothing() {
    let seeds = std::env::var("REPLICA_SEEDS").map_or(6, |seeds| seeds.parse().unwrap());
    let mut sum = [0; 3];
    for seed in 0..seeds {
        let counts = std::panic::catch_unwind(|| history(seed)).unwrap_or_else(|_| panic!("seed {seed}"));
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let [moves, takeovers, acked] = sum;
    println!("{seeds} histories: {moves} handovers, {takeovers} takeovers, {acked} blocks");
    assert!(moves > 5 * seeds && takeovers > moves && acked > 500 * seeds);
}
