//! Measures a store whose commits wait for a bucket, beside the same store without a bucket, and
//! beside a bare loop of conditional creates.
//!
//! ```sh
//! cargo run --release -p brooklet-replica --example throughput -- FOLDER [SECONDS] [BUCKET]
//! ```
//!
//! FOLDER gets the stores, which are removed, and the bucket, unless BUCKET is its address. Each
//! load appends 64 to 512 bytes of text to 100,000 logs for SECONDS (3): 256 threads that wait,
//! then 4,096 appends in flight. Five rounds play all modes in turn; the table shows the medians.
//!
//! - `alone`: the store without a bucket.
//! - `local`: a commit is acknowledged once it is on this disk; the bucket follows.
//! - `kept`: a commit is acknowledged once the bucket has it, too.
//! - `bare`: a loop that waits for the time of a cut, then creates an object as long as those of
//!   `kept`. Its rate is that of clients who all wait for each object, and append at once.

#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use brooklet::io::Rng;
use brooklet::{MirrorOptions, Options, Store, Waits};
use brooklet_archive::Bucket;
use brooklet_replica::{BucketJournal, Created, Cuts, Epoch, Journal, Key, Place, Replica, ShipperOptions};

const LOGS: u64 = 100_000;
const ROUNDS: usize = 5;
const LOADS: [Load; 2] = [Load::Waiting(256), Load::InFlight(4096)];

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone, Copy)]
enum Load {
    Waiting(u64),
    InFlight(u64),
}

/// The figures of one mode and one load in one round.
#[derive(Clone, Copy)]
struct Figures {
    per_second: f64,
    p50: Duration,
    p99: Duration,
    /// Mean bytes of an object of the log.
    object: u64,
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(args.first().map_or("throughput.dir", |folder| folder));
    let time = Duration::from_secs_f64(args.get(1).map_or(3.0, |n| n.parse().expect("seconds")));
    std::fs::create_dir_all(&folder)?;
    let places = Places { folder: folder.clone(), bucket: args.get(2).cloned() };
    println!("{:<20} {:>6} {:>9} {:>9} {:>9} {:>9}", "load", "mode", "appends/s", "p50", "p99", "object");
    for load in LOADS {
        let mut rounds = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            let kept = places.measure(load, Some(Waits::Kept), time)?;
            rounds[0].push(places.measure(load, None, time)?);
            rounds[1].push(places.measure(load, Some(Waits::Local), time)?);
            rounds[2].push(kept);
            rounds[3].push(places.bare(load, kept.object, time)?);
        }
        print_load(load, &rounds);
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn print_load(load: Load, rounds: &[Vec<Figures>; 4]) {
    for (mode, rounds) in ["alone", "local", "kept", "bare"].iter().zip(rounds) {
        let rate = median(rounds, |round| round.per_second);
        let ms = |of: fn(&Figures) -> Duration| median(rounds, |round| of(round).as_secs_f64() * 1e3);
        let object = median(rounds, |round| round.object as f64) / 1024.0;
        let (p50, p99) = (ms(|round| round.p50), ms(|round| round.p99));
        println!(
            "{:<20} {mode:>6} {rate:>9.0} {p50:>6.2} ms {p99:>6.2} ms {object:>5.0} KiB",
            load.to_string()
        );
    }
    // Neighbours in time are compared, so that a slow minute of the machine changes both.
    let ratio = |over: usize, under: usize| {
        let mut ratios: Vec<f64> =
            rounds[over].iter().zip(&rounds[under]).map(|(a, b)| a.per_second / b.per_second).collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    };
    println!("{:<20} local / alone {:.2}; kept / bare {:.2}", load.to_string(), ratio(1, 0), ratio(2, 3));
}

fn median(rounds: &[Figures], of: impl Fn(&Figures) -> f64) -> f64 {
    let mut sorted: Vec<f64> = rounds.iter().map(of).collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The places of stores and buckets.
struct Places {
    folder: PathBuf,
    bucket: Option<String>,
}

impl Places {
    /// Returns an empty bucket. One with an address has a new place in it each time.
    fn bucket(&self) -> Outcome<Bucket> {
        if let Some(address) = &self.bucket {
            let drawn = brooklet::io::system_seed();
            return Ok(Bucket::open(&format!("{}/throughput-{drawn:016x}", address.trim_end_matches('/')))?);
        }
        let path = self.folder.join("bucket");
        if path.exists() {
            std::fs::remove_dir_all(&path)?;
        }
        std::fs::create_dir(&path)?;
        Ok(Bucket::open(path.to_str().ok_or("the folder's name is not UTF-8")?)?)
    }

    fn measure(&self, load: Load, waits: Option<Waits>, time: Duration) -> Outcome<Figures> {
        let path = self.folder.join("store");
        let mut options = Options::new();
        let mut replica = None;
        if let Some(waits) = waits {
            let log = Replica::new(BucketJournal::new(&self.bucket()?), ShipperOptions::default());
            options = options.mirror(MirrorOptions::new(log.clone()).waits(waits));
            replica = Some(log);
        }
        let store = options.open(&path)?;
        let begin = Instant::now();
        let mut times = match load {
            Load::Waiting(threads) => waiting(&store, threads, time)?,
            Load::InFlight(most) => in_flight(&store, most, time)?,
        };
        let seconds = begin.elapsed().as_secs_f64();
        times.sort();
        let status = replica.and_then(|replica| replica.status());
        let object = status.map_or(0, |status| status.bytes / status.cuts.max(1));
        let share = |percent: usize| times[(times.len() - 1) * percent / 100];
        let figures =
            Figures { per_second: times.len() as f64 / seconds, p50: share(50), p99: share(99), object };
        store.close()?;
        std::fs::remove_file(&path)?;
        Ok(figures)
    }

    /// Creates objects of so many bytes, one after the other, each after the time of a cut.
    fn bare(&self, load: Load, object: u64, time: Duration) -> Outcome<Figures> {
        let journal = BucketJournal::new(&self.bucket()?);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (Load::Waiting(clients) | Load::InFlight(clients)) = load;
        let mut data = vec![0; usize::try_from(object)?];
        let mut rng = Rng::new(1);
        data.iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
        let data = bytes::Bytes::from(data);
        runtime.block_on(async {
            let (mut times, begin) = (Vec::new(), Instant::now());
            while begin.elapsed() < time {
                let cut = Instant::now();
                tokio::time::sleep(Cuts::default().time).await;
                let place = Place { epoch: Epoch::FIRST, number: times.len() as u64 };
                let created = journal.create(Key::Log(place), data.clone()).await?;
                assert_eq!(created, Created::Done, "the bucket was empty");
                times.push(cut.elapsed());
            }
            let per_second = times.len() as f64 * clients as f64 / begin.elapsed().as_secs_f64();
            times.sort();
            let share = |percent: usize| times[(times.len() - 1) * percent / 100];
            Ok(Figures { per_second, p50: share(50), p99: share(99), object })
        })
    }
}

/// Keys and payloads of a thread.
struct Inputs(Rng);

impl Inputs {
    fn key(&mut self) -> String {
        format!("document/{:016x}", self.0.below(LOGS).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn payload(&mut self) -> &'static [u8] {
        const TEXT: &str = r#"{"op":"insert","at":1742,"by":"5f2c9a7710be44d3","text":"and so on"},"#;
        static TEXTS: std::sync::LazyLock<Vec<u8>> =
            std::sync::LazyLock::new(|| TEXT.bytes().cycle().take(64 << 10).collect());
        let (at, len) = (self.0.below(60 << 10) as usize, 64 + self.0.below(449) as usize);
        &TEXTS[at..at + len]
    }
}

/// Appends by threads that wait for each acknowledgement. Returns the times of the appends.
fn waiting(store: &Store, threads: u64, time: Duration) -> Outcome<Vec<Duration>> {
    let end = Instant::now() + time;
    let append = |seed| -> Result<Vec<Duration>, brooklet::Error> {
        let (mut inputs, mut times) = (Inputs(Rng::new(seed)), Vec::new());
        while Instant::now() < end {
            let payload = inputs.payload();
            let begin = Instant::now();
            store.append(inputs.key(), payload)?.wait()?;
            times.push(begin.elapsed());
        }
        Ok(times)
    };
    std::thread::scope(|scope| {
        let append = &append;
        let threads: Vec<_> = (0..threads).map(|seed| scope.spawn(move || append(seed))).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().expect("no panics")?);
        }
        Ok(all)
    })
}

/// Appends that callbacks acknowledge, so many at a time. Returns the times of the appends.
fn in_flight(store: &Store, most: u64, time: Duration) -> Outcome<Vec<Duration>> {
    let flying = Arc::new((Mutex::new((0_u64, Vec::new())), Condvar::new()));
    let (mut inputs, end) = (Inputs(Rng::new(1)), Instant::now() + time);
    while Instant::now() < end {
        let (state, room) = &*flying;
        let held = state.lock().expect("no panics");
        room.wait_while(held, |(count, _)| *count >= most).expect("no panics").0 += 1;
        let payload = inputs.payload();
        let (flying, begin) = (flying.clone(), Instant::now());
        store.append(inputs.key(), payload)?.on_done(move |result| {
            result.expect("the store takes appends");
            let (state, room) = &*flying;
            let mut state = state.lock().expect("no panics");
            state.1.push(begin.elapsed());
            state.0 -= 1;
            // One wake-up for many ends of appends.
            if state.0 == most / 2 || state.0 == 0 {
                room.notify_one();
            }
        });
    }
    store.flush()?;
    let (state, room) = &*flying;
    let held = state.lock().expect("no panics");
    let mut state = room.wait_while(held, |(count, _)| *count > 0).expect("no panics");
    Ok(std::mem::take(&mut state.1))
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Waiting(threads) => f.pad(&format!("{threads} threads that wait")),
            Self::InFlight(most) => f.pad(&format!("{most} in flight")),
        }
    }
}
