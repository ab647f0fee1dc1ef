//! Tagged records: `brooklet-tags` beside redb in the pattern that tagged databases fall into, one
//! synced transaction a record with a place for each pair of tag and record; and queries of three
//! tags.
//!
//! ```sh
//! cargo run --release --no-default-features --example tagged -- --dir .
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brooklet::Store;
use brooklet::io::{AlignedBuf, FileOptions, FileVolume, OpenMode, Persist, Rng, Volume, write_all_at};
use brooklet_tags::{Options, Tags};
use clap::Parser;
use redb::{Database, Durability, TableDefinition};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Parser)]
struct Args {
    /// Where to make the stores: some gigabytes; they are removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Records that are stored before writing is timed
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Tag entries that redb has before
    #[arg(long, default_value_t = 5_000_000)]
    entries: u64,
    /// Records that queries go over; 0: no queries
    #[arg(long, default_value_t = 10_000_000)]
    found: u64,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Rounds; medians count
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Distinct tags of the records that are written.
const TAGS: u64 = 1_000_000;

/// 8 to 14 tags, drawn at random.
fn draw(rng: &mut Rng) -> Vec<String> {
    (0..8 + rng.below(7)).map(|_| format!("tag{:06}", rng.below(TAGS))).collect()
}

fn payload(rng: &mut Rng) -> Vec<u8> {
    format!("{{\"at\":{},\"by\":{},\"what\":\"{:0>64}\"}}", rng.next() >> 20, rng.below(1000), rng.next())
        .into_bytes()
}

fn main() -> Result<()> {
    let args = Args::parse();
    let dir = tempfile::Builder::new().prefix("brooklet-tagged-").tempdir_in(&args.dir)?;
    eprintln!("filling");
    let peer = Peer::fill(&dir.path().join("redb"), args.entries)?;
    let store = Store::open(dir.path().join("tags"))?;
    let tags = Tags::open(&store, "records", Options::new())?;
    let rng = &mut Rng::new(1);
    for n in 0..args.records {
        drop(tags.put(n.to_string(), draw(rng), payload(rng))?);
    }
    store.flush()?;
    tags.settle()?;
    // Both begin with everything in its place.
    store.compact()?;
    let time = Duration::from_secs(args.seconds);
    let (mut device, mut redb, mut one, mut many) = (vec![], vec![], vec![], vec![]);
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        device.push(synced_writes(&dir.path().join(format!("device{round}")), time)?);
        redb.push(peer.write(time)?);
        one.push(write(&tags, round, 1, time)?);
        many.push(write(&tags, round, 64, time)?);
    }
    let ratio = |ours: &[f64], base: &[f64]| median(ours.iter().zip(base).map(|(a, b)| a / b).collect());
    println!(
        "records a second, {} of them stored, {} tag entries in redb; medians of {}",
        args.records, args.entries, args.rounds
    );
    println!("  the device: synced writes of 4 KiB, one after another  {:>10.0}", median(device.clone()));
    println!("  redb: a synced transaction a record                    {:>10.0}", median(redb.clone()));
    for (what, ours) in [(" 1 waiting writer ", &one), ("64 waiting writers", &many)] {
        let (by_redb, by_device) = (ratio(ours, &redb), ratio(ours, &device));
        println!(
            "  brooklet-tags, {what}: {:>29.0}  {by_redb:.0} times redb, {by_device:.2} times the device",
            median(ours.clone())
        );
    }
    if args.found > 0 {
        drop((tags, store, peer));
        queries(&args, dir.path())?;
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Synced writes of 4 KiB a second, one after another.
fn synced_writes(path: &Path, time: Duration) -> Result<f64> {
    let volume = FileVolume::open(path, OpenMode::Create, FileOptions::default())?;
    volume.grow(64 << 20)?;
    let noise = AlignedBuf::zeroed(1 << 20);
    (0..64).try_for_each(|at| write_all_at(&volume, at << 20, &noise, Persist::Cached))?;
    volume.flush()?;
    let (begun, sector, mut writes) = (Instant::now(), AlignedBuf::zeroed(4096), 0);
    while begun.elapsed() < time {
        write_all_at(&volume, writes % (64 << 8) * 4096, &sector, Persist::Durable)?;
        writes += 1;
    }
    Ok(writes as f64 / begun.elapsed().as_secs_f64())
}

/// Puts records, each writer waiting for each.
fn write(tags: &Tags, round: usize, writers: usize, time: Duration) -> Result<f64> {
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let write = |writer: usize| -> Result<()> {
            let mut rng = Rng::new((round * 1000 + writers * 100 + writer) as u64);
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                let id = format!("{round}/{writers}/{writer}/{n}");
                tags.put(id, draw(&mut rng), payload(&mut rng))?.wait()?;
                done.fetch_add(1, Ordering::Relaxed);
                n += 1;
            }
            Ok(())
        };
        let all: Vec<_> = (0..writers).map(|writer| scope.spawn(move || write(writer))).collect();
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        all.into_iter().try_for_each(|writer| writer.join().expect("no panics"))
    })?;
    Ok(done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

const ENTRIES: TableDefinition<&[u8], ()> = TableDefinition::new("tags");
const RECORDS: TableDefinition<u64, &[u8]> = TableDefinition::new("records");

/// redb, with a key for each pair of tag and record.
struct Peer {
    db: Database,
    next: AtomicU64,
}

impl Peer {
    fn fill(path: &Path, entries: u64) -> Result<Self> {
        let db = Database::builder().set_cache_size(1 << 30).create(path)?;
        let peer = Self { db, next: AtomicU64::new(0) };
        let (mut rng, mut stored) = (Rng::new(2), 0);
        while stored < entries {
            stored += peer.commit(&mut rng, 20_000)?;
        }
        Ok(peer)
    }

    /// Some records in one synced transaction; gives how many tags they bear.
    fn commit(&self, rng: &mut Rng, records: u64) -> Result<u64> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let mut entries = 0;
        {
            let mut tags = transaction.open_table(ENTRIES)?;
            let mut table = transaction.open_table(RECORDS)?;
            for _ in 0..records {
                let record = self.next.fetch_add(1, Ordering::Relaxed);
                table.insert(record, &payload(rng)[..])?;
                for tag in draw(rng) {
                    let key = [tag.as_bytes(), &record.to_be_bytes()].concat();
                    tags.insert(&key[..], ())?;
                    entries += 1;
                }
            }
        }
        transaction.commit()?;
        Ok(entries)
    }

    fn write(&self, time: Duration) -> Result<f64> {
        let (begun, mut rng, mut records) = (Instant::now(), Rng::new(self.next.load(Ordering::Relaxed)), 0);
        while begun.elapsed() < time {
            self.commit(&mut rng, 1)?;
            records += 1;
        }
        Ok(records as f64 / begun.elapsed().as_secs_f64())
    }
}

/// Queries of three tags: on a half, a tenth and a hundredth of the records.
fn queries(args: &Args, dir: &Path) -> Result<()> {
    eprintln!("putting {} records", args.found);
    let store = Store::open(dir.join("found"))?;
    let tags = Tags::open(&store, "records", Options::new())?;
    let (rng, begun) = (&mut Rng::new(3), Instant::now());
    for n in 0..args.found {
        let own = [
            format!("half={}", rng.below(2)),
            format!("tenth={}", rng.below(10)),
            format!("hundredth={}", rng.below(100)),
        ];
        drop(tags.put(n.to_string(), own, format!("record {n}"))?);
    }
    store.flush()?;
    tags.settle()?;
    println!(
        "{} records put in {:.0} s; a query of three tags, on a half, a tenth and a hundredth of them",
        args.found,
        begun.elapsed().as_secs_f64()
    );
    let query = |n: u64| {
        tags.find().all([
            format!("half={}", n % 2),
            format!("tenth={}", n % 10),
            format!("hundredth={}", n % 100),
        ])
    };
    let timed = |n: u64, counts: bool| -> Result<f64> {
        let begun = Instant::now();
        if counts {
            query(n).count()?;
        } else {
            query(n).limit(20).run()?.try_for_each(|found| found.map(drop))?;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    };
    println!("  the first time, counting      {:>8.2} ms", timed(0, true)?);
    for (what, counts) in [("counting          ", true), ("the newest 20, read", false)] {
        // All of its sets are in memory then.
        (0..100).try_for_each(|n| timed(n, counts).map(drop))?;
        let times = (0..200).map(|n| timed(n, counts)).collect::<Result<Vec<_>>>()?;
        println!("  warm, {what}     {:>8.2} ms", median(times));
    }
    println!("  {} of them found", query(0).count()?);
    Ok(())
}
