//! The log on three real servers of NATS, whose programs and settings the environment tells:
//! `.ci/jetstream` starts them and runs these, one after the other.
#![expect(clippy::disallowed_methods, reason = "the servers go by the time of the machine")]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream;
use brooklet_archive::Bucket;
use brooklet_replica::{
    Created, Epoch, Error, JetStream, Journal, Key, Place, Probe, Shipper, ShipperOptions, StoreId,
};
use bytes::Bytes;
use futures_util::future::join_all;

use crate::{s3, store};

const SERVERS: usize = 3;
/// Most time that servers need to begin.
const LONG: Duration = Duration::from_secs(60);

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set by .ci/jetstream"))
}

fn hosts() -> String {
    variable("NATS_HOSTS")
}

fn new_stream(name: &str) -> String {
    format!("{name}-{:x}", brooklet::io::system_seed())
}

/// Returns a log of its own, on all servers.
fn journal(name: &str) -> JetStream {
    JetStream::open(&format!("nats://{}/{}", hosts(), new_stream(name))).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn file(number: usize, ending: &str) -> PathBuf {
    PathBuf::from(variable("NATS_FOLDER")).join(format!("{number}.{ending}"))
}

fn kill(number: usize) {
    let pid = std::fs::read_to_string(file(number, "pid")).unwrap();
    assert!(Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
}

/// Starts a server again. The script ends it, by its file.
fn start(number: usize) {
    let log = std::fs::File::options().append(true).open(file(number, "log")).unwrap();
    let mut command = Command::new(variable("NATS_SERVER"));
    command.arg("-c").arg(file(number, "conf")).stdout(Stdio::null()).stderr(log);
    drop(command.spawn().unwrap());
}

/// Waits until a stream has all its servers, and returns the number of the leader.
async fn settled(stream: &str) -> usize {
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < LONG, "the servers do not find one another");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let Ok(client) = async_nats::connect(hosts().split(',').collect::<Vec<_>>()).await else { continue };
        let Ok(found) = jetstream::new(client).get_stream(stream).await else { continue };
        let Some(cluster) = &found.cached_info().cluster else { continue };
        let is_whole = cluster.replicas.iter().all(|other| other.current && !other.offline);
        if let Some(leader) = &cluster.leader
            && is_whole
            && cluster.replicas.len() + 1 == SERVERS
        {
            return leader.trim_start_matches('n').parse().unwrap();
        }
    }
}

#[test]
#[ignore = "needs servers: .ci/jetstream"]
fn the_servers_pass_the_probe() {
    let stream = new_stream("probe");
    for host in hosts().split(',') {
        let journal = JetStream::open(&format!("nats://{host}/{stream}")).unwrap();
        let probe = Probe { names: 20, creators: 32 };
        runtime().block_on(probe.run(&journal)).unwrap();
    }
}

/// Small and large objects race for names, through all servers.
#[test]
#[ignore = "needs servers: .ci/jetstream"]
fn of_creators_with_any_size_one_wins() {
    let stream = new_stream("sizes");
    let journals: Vec<_> = hosts()
        .split(',')
        .map(|host| JetStream::open(&format!("nats://{host}/{stream}")).unwrap().patience(LONG))
        .collect();
    runtime().block_on(async {
        let sizes = [0, 120, 1 << 20, (1 << 20) + 1, 5 << 20, 17 << 20];
        for race in 0..30u64 {
            let key = Key::Log(Place { epoch: Epoch(1), number: race });
            let data = |creator: usize| {
                // Most races are of the sizes around one part.
                let size = if race < 24 { sizes[(creator + race as usize) % 5] } else { sizes[creator % 6] };
                Bytes::from(vec![creator as u8; size])
            };
            let creators = if race < 24 { 8 } else { 6 };
            let create = |creator: usize| journals[creator % SERVERS].create(key, data(creator));
            let results = join_all((0..creators).map(create)).await;
            let won: Vec<_> = (0..creators).filter(|it| matches!(results[*it], Ok(Created::Done))).collect();
            assert!(won.len() <= 1, "{won:?} won race {race}");
            let found = journals[race as usize % SERVERS].read(key).await.unwrap();
            if let [winner] = won[..] {
                assert!(found == Some(data(winner)), "race {race}: the object is not that of {winner}");
                assert_eq!(journals[0].create(key, data(1)).await.unwrap(), Created::Exists);
            }
            journals[1].remove(key).await.unwrap();
            assert_eq!(journals[2].read(key).await.unwrap(), None);
            assert_eq!(journals[0].create(key, data(4)).await.unwrap(), Created::Done);
            assert!(journals[1].read(key).await.unwrap() == Some(data(4)), "race {race}");
            journals[2].remove(key).await.unwrap();
        }
    });
}

#[test]
#[ignore = "needs servers: .ci/jetstream"]
fn a_reader_hears_of_a_new_object_at_once() {
    let journal = journal("wait");
    runtime().block_on(async {
        let key = Key::Log(Place { epoch: Epoch(1), number: 0 });
        assert_eq!(journal.read(key).await.unwrap(), None);
        let (reader, begin) = (journal.clone(), Instant::now());
        let waiting = tokio::spawn(async move { reader.wait(key, LONG).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!waiting.is_finished());
        assert_eq!(journal.create(key, Bytes::from_static(b"new")).await.unwrap(), Created::Done);
        waiting.await.unwrap();
        assert!(begin.elapsed() < LONG, "it did not hear of it");
        assert_eq!(journal.read(key).await.unwrap(), Some(Bytes::from_static(b"new")));
    });
}

#[test]
#[ignore = "needs servers: .ci/jetstream"]
fn streams_that_cannot_keep_a_log_are_refused() {
    let stream = new_stream("few");
    let read = |address: &str| {
        let journal = JetStream::open(address).unwrap();
        runtime().block_on(journal.read(Key::Claim(Epoch(1))))
    };
    let of = |replicas: u32| format!("nats://{}/{stream}?replicas={replicas}", hosts());
    assert_eq!(read(&of(1)).unwrap(), None);
    let refused = |address: &str| match read(address) {
        Err(error @ Error::Stream { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(&of(3)).contains("it has 1 copies, and the address asks for 3"));
    // They do not ask for a password, and have no TLS.
    let host = hosts().split(',').next().unwrap().to_owned();
    assert!(refused(&format!("tls://{host}/{stream}")).contains("there is no TLS"));
}

#[test]
#[ignore = "needs servers: .ci/jetstream"]
fn owners_follow_one_another() {
    s3::owners(&journal("owners"));
}

#[test]
#[ignore = "needs servers: .ci/jetstream"]
fn claimants_race() {
    s3::claimants(&journal("race"));
}

#[test]
#[ignore = "needs servers: .ci/jetstream"]
fn stores_follow_one_another() {
    let folder = tempfile::tempdir().unwrap();
    s3::stores(&journal("stores"), &Bucket::open(folder.path().to_str().unwrap()).unwrap());
}

/// The random histories of `store`, in real time.
#[test]
#[ignore = "needs servers: .ci/jetstream"]
fn hosts_lose_nothing() {
    let histories: Vec<_> = (0..4)
        .map(|seed| {
            let journal = journal("hosts");
            let journals = [0; 5].map(|_| journal.clone());
            std::thread::spawn(move || {
                runtime().block_on(store::play(journals, seed, 20, Duration::from_secs(5)))
            })
        })
        .collect();
    let counts: Vec<_> = histories.into_iter().map(|it| it.join().unwrap()).collect();
    println!("takeovers, fenced owners, trims, blocks: {counts:?}");
    assert!(counts.iter().all(|[takeovers, .., acked]| *takeovers > 3 && *acked > 20));
}

/// An owner that appends block after block.
struct Appending {
    shipper: Shipper,
    next: u64,
    times: Vec<Duration>,
}

impl Appending {
    fn new(journal: &JetStream) -> Self {
        let mut options = ShipperOptions::default();
        options.cuts = JetStream::cuts();
        let (shipper, opened) = Shipper::open(journal.clone(), StoreId(7), options, |_| Ok(())).unwrap();
        Self { shipper, next: opened.end.lsn, times: Vec::new() }
    }

    /// Appends a block of 100 bytes, and waits until it is kept.
    fn append(&mut self) {
        let (begin, block) = (Instant::now(), format!("{:0100}", self.next));
        let number = self.shipper.ship(self.next, self.next + 1, block.as_bytes()).unwrap();
        self.shipper.wait(number).unwrap();
        self.next += 1;
        self.times.push(begin.elapsed());
    }

    /// Checks that a takeover finds each block that was acknowledged.
    fn end(self, journal: &JetStream) {
        let (_next, found) = s3::open(journal).unwrap();
        let expected: Vec<_> = (0..self.next).map(|number| format!("{number:0100}").into_bytes()).collect();
        assert!(found == expected, "found {} of {} blocks", found.len(), expected.len());
    }
}

/// Prints how long no commit was acknowledged.
#[test]
#[ignore = "needs servers: .ci/jetstream"]
fn a_leader_is_killed_while_an_owner_commits() {
    let (stream, runtime) = (new_stream("leader"), runtime());
    let journal = JetStream::open(&format!("nats://{}/{stream}", hosts())).unwrap();
    let mut owner = Appending::new(&journal);
    let kills = std::env::var("NATS_KILLS").map_or(2, |kills| kills.parse().unwrap());
    for _ in 0..kills {
        let leader = runtime.block_on(settled(&stream));
        (0..100).for_each(|_| owner.append());
        owner.times.clear();
        kill(leader);
        let begin = Instant::now();
        (0..100).for_each(|_| owner.append());
        assert!(begin.elapsed() < LONG);
        println!("the leader's kill: {:?} without an acknowledgement", owner.times.iter().max().unwrap());
        start(leader);
    }
    runtime.block_on(settled(&stream));
    owner.end(&journal);
}

/// Servers are killed in turn, also two at a time, then all of them.
#[test]
#[ignore = "needs servers: .ci/jetstream"]
fn servers_are_killed_and_come_back() {
    let (stream, runtime) = (new_stream("kills"), runtime());
    let journal = JetStream::open(&format!("nats://{}/{stream}", hosts())).unwrap();
    let mut owner = Appending::new(&journal);
    for killed in [&[0][..], &[0, 1], &[0, 1, 2]] {
        runtime.block_on(settled(&stream));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(200));
                killed.iter().copied().for_each(kill);
                std::thread::sleep(Duration::from_millis(500));
                killed.iter().copied().for_each(start);
                done.store(true, Ordering::Relaxed);
            });
            // Some while no server is there, and some after that.
            while !done.load(Ordering::Relaxed) {
                owner.append();
            }
            (0..20).for_each(|_| owner.append());
        });
    }
    runtime.block_on(settled(&stream));
    owner.end(&journal);
}

/// Prints the time of acknowledgements, beside that of bare publishes to the same servers.
#[test]
#[ignore = "a measurement: .ci/jetstream measure"]
fn time_of_an_acknowledgement() {
    const COUNT: usize = 3000;
    let (stream, runtime) = (new_stream("time"), runtime());
    let journal = JetStream::open(&format!("nats://{}/{stream}", hosts())).unwrap();
    let mut owner = Appending::new(&journal);
    let client = runtime.block_on(async_nats::connect(hosts().split(',').collect::<Vec<_>>())).unwrap();
    let _entered = runtime.enter();
    let context = jetstream::new(client);
    let bare = |number: usize| {
        let begin = Instant::now();
        let publish = async {
            let subject = format!("brooklet.{stream}.bare.{number}");
            context.publish(subject, vec![7; 220].into()).await.unwrap().await.unwrap();
        };
        runtime.block_on(publish);
        begin.elapsed()
    };
    let mut times = [Vec::new(), Vec::new()];
    // In turns, so that both meet the same machine.
    for round in 0..10 {
        owner.times.clear();
        (0..COUNT / 10).for_each(|_| owner.append());
        times[0].append(&mut owner.times);
        times[1].extend((0..COUNT / 10).map(|number| bare(round * COUNT + number)));
    }
    let share = |times: &mut Vec<Duration>, percent: usize| {
        times.sort();
        times[(times.len() - 1) * percent / 100]
    };
    for (name, times) in ["acknowledgement", "bare publish"].into_iter().zip(&mut times) {
        println!("{name}: p50 {:?}, p99 {:?}", share(times, 50), share(times, 99));
    }
    let [ours, bare] = times;
    println!("ratio at p50: {:.2}", ours[COUNT / 2].as_secs_f64() / bare[COUNT / 2].as_secs_f64());
}
