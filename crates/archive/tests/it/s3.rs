//! Archives on a real S3 server, whose address and keys the environment tells: `.ci/s3` starts one
//! and runs these.

use crate::common;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brooklet::Options;
use brooklet::io::{MemVolume, Rng};
use brooklet_archive::object_store::ObjectStore;
use brooklet_archive::object_store::aws::AmazonS3Builder;
use brooklet_archive::{Archive, Bucket, Error, Parts, Which};
use common::{back_up, contents, fill, restored, store};

fn address(name: &str) -> String {
    format!("s3://brooklet/{name}-{:x}", brooklet::io::system_seed())
}

#[test]
#[ignore = "needs a server: .ci/s3"]
fn what_was_backed_up_comes_back() {
    let (address, dir) = (address("plain"), tempfile::tempdir().unwrap());
    let store = store(1);
    let mut archive = Archive::new(Bucket::open(&address).unwrap(), dir.path().join("note"), "here").unwrap();
    let mut then = Vec::new();
    for round in 0..4 {
        fill(&store, &format!("{round}"), 200, 3000);
        back_up(&mut archive, &store).unwrap();
        then.push(contents(&store));
    }
    let bucket = Bucket::open(&address).unwrap();
    for (number, then) in then.iter().enumerate() {
        assert!(restored(&bucket, Which::Number(number as u64)) == *then);
    }
    assert_eq!(bucket.backups().unwrap().len(), 4);
    // The clock of the server tells seconds.
    let pruned = archive.prune(Duration::ZERO, false).unwrap();
    assert_eq!(pruned.backups as usize + bucket.backups().unwrap().len(), 4);
    assert!(bucket.backup(Which::Latest).unwrap().verify(brooklet::Progress::ignore).defects.is_empty());
    assert!(restored(&bucket, Which::Latest) == then[3]);
}

#[test]
#[ignore = "needs a server: .ci/s3"]
fn of_hosts_that_write_at_once_one_wins() {
    let (address, dir) = (address("races"), tempfile::tempdir().unwrap());
    let store = store(1);
    for round in 0..8 {
        fill(&store, &format!("{round}"), 4, 100);
        let now = contents(&store);
        let won: usize = std::thread::scope(|scope| {
            let try_it = |host| {
                let (store, note) = (store.clone(), dir.path().join(format!("{host}")));
                let bucket = Bucket::open(&address).unwrap();
                let mut archive = Archive::new(bucket, note, format!("{host}")).unwrap().take_over();
                scope.spawn(move || match back_up(&mut archive, &store) {
                    Ok(archived) => usize::from(archived.number == round && archived.is_new),
                    Err(Error::Owned { .. }) => 0,
                    Err(error) => panic!("{error}"),
                })
            };
            (0..6).map(try_it).collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(won, 1);
        let bucket = Bucket::open(&address).unwrap();
        assert_eq!(bucket.backups().unwrap().len() as u64, round + 1);
        assert!(restored(&bucket, Which::Latest) == now);
    }
}

/// Stores that these tests set up themselves need a provider of cryptography, too.
fn provide_cryptography() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[test]
#[ignore = "needs a server: .ci/s3"]
fn keys_that_open_nothing_are_told() {
    provide_cryptography();
    let server = std::env::var("AWS_ENDPOINT_URL").unwrap();
    let builder =
        AmazonS3Builder::from_env().with_endpoint(server).with_bucket_name("brooklet").with_allow_http(true);
    let s3: Arc<dyn ObjectStore> = Arc::new(builder.with_secret_access_key("wrong").build().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let store = store(1);
    fill(&store, "a", 4, 100);
    let bucket = Bucket::of(s3, "nobody").unwrap();
    let mut archive = Archive::new(bucket, dir.path().join("note"), "here").unwrap();
    let error = back_up(&mut archive, &store).unwrap_err();
    assert!(matches!(error, Error::Bucket { .. }), "{error}");
}

/// Through a server that fails in every way, backups end well or say why; what they leave is whole.
#[test]
#[ignore = "needs a server: .ci/s3"]
fn requests_that_fail_lose_nothing() {
    let proxy = Proxy::start(5);
    let s3 = proxy.s3();
    let (address, dir) = (address("faults"), tempfile::tempdir().unwrap());
    let prefix = address.strip_prefix("s3://brooklet/").unwrap();
    let (bucket, note) = (Bucket::open(&address).unwrap(), dir.path().join("note"));
    let store = store(1);
    let open = || {
        let mut archive = Archive::new(Bucket::of(s3.clone(), prefix).unwrap(), &note, "here").unwrap();
        archive.follow(&store).unwrap();
        archive
    };
    let (mut archive, mut made, mut shipped) = (open(), 0, 0);
    for round in 0..20 {
        fill(&store, &format!("{round}"), 100, 3000);
        if round % 4 == 3 {
            archive = open();
        }
        match back_up(&mut archive, &store) {
            Ok(archived) => {
                made += 1;
                assert!(restored(&bucket, Which::Number(archived.number)) == contents(&store));
                assert_eq!(bucket.backup(Which::Latest).unwrap().number(), archived.number);
            }
            Err(Error::Bucket { doing, cause }) => println!("round {round}: {doing}: {cause}"),
            Err(error) => panic!("{error}"),
        }
        fill(&store, &format!("{round}/behind"), 10, 300);
        match archive.ship() {
            Ok(Some(sent)) => {
                shipped += sent.objects;
                assert!(restored(&bucket, Which::Latest) == contents(&store));
            }
            Ok(None) => {}
            Err(error) => println!("round {round}: {error}"),
        }
        let pruned = (round % 5 == 4).then(|| archive.prune(Duration::from_secs(1), false));
        if let Some(Err(error)) = pruned {
            println!("round {round}: {error}");
        }
        // Reading goes through it, too.
        let through = Bucket::of(s3.clone(), prefix).unwrap();
        match through.backup(Which::Latest).and_then(|backup| backup.view(1 << 20)) {
            Ok(view) => {
                let new = common::store(5);
                match new.import().view(&view, "") {
                    Ok(imported) => assert_eq!(imported.logs as usize, contents(&new).len()),
                    Err(error) => println!("round {round}: {error}"),
                }
            }
            Err(error) => println!("round {round}: {error}"),
        }
    }
    let faults = proxy.faults.load(Ordering::Relaxed);
    println!("{made} of 20 backups, {shipped} objects shipped, {faults} faults");
    assert!(made >= 15 && shipped >= 15 && faults >= 20, "{made} {shipped} {faults}");
    let whole = bucket.backups().unwrap();
    for backup in whole {
        let verified =
            bucket.backup(Which::Number(backup.number)).unwrap().verify(brooklet::Progress::ignore);
        assert!(verified.defects.is_empty(), "{:?}", verified.defects);
    }
}

/// Backups and offloading by way of what does harm, and the process gone after each round: all of
/// it is there.
#[test]
#[ignore = "needs a server: .ci/s3"]
fn what_was_offloaded_is_read_from_there() {
    let proxy = Proxy::start(7);
    let s3 = proxy.s3();
    let (address, dir) = (address("offloaded"), tempfile::tempdir().unwrap());
    let prefix = address.strip_prefix("s3://brooklet/").unwrap();
    let (volume, note) = (Arc::new(MemVolume::new(1)), dir.path().join("note"));
    let options = || Options::new().ring_size(1 << 20).max_payload(64 << 10).threads(false);
    let mut store = options().create_on(volume.clone()).unwrap();
    let mut offloaded = 0;
    for round in 0..12 {
        fill(&store, &format!("{round}"), 50, 3000);
        let harmed = Bucket::of(s3.clone(), prefix).unwrap();
        let parts = Parts::new(&harmed, 1 << 20).cache(dir.path(), 1 << 20).unwrap();
        let mut archive = Archive::new(harmed, &note, "here").unwrap().with_parts(parts);
        let done = back_up(&mut archive, &store)
            .and_then(|_| archive.offload(&store, 50_000, brooklet::Progress::ignore));
        match done {
            Ok(done) => offloaded += done.runs,
            Err(error) => println!("round {round}: {error}"),
        }
        store.abandon();
        let parts = Parts::new(&Bucket::open(&address).unwrap(), 1 << 20).cache(dir.path(), 1 << 20).unwrap();
        store = options().offload_reader(move |name| parts.open(name)).open_on(volume.clone()).unwrap();
        let found = contents(&store);
        assert_eq!(found.len(), (round + 1) * 50);
        assert!(found.values().all(|(_, entries)| entries.len() == 2 && entries[1] == b"and more"));
    }
    let faults = proxy.faults.load(Ordering::Relaxed);
    println!("{offloaded} runs offloaded, {faults} faults");
    assert!(offloaded >= 6 && faults >= 10, "{offloaded} {faults}");
}

/// Stands between, and does harm: answers 503 or 500, does what is asked and does not answer, cuts
/// answers off, gives lists that it gave before.
struct Proxy {
    address: SocketAddr,
    faults: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

struct Harm {
    server: String,
    rng: Mutex<Rng>,
    last_list: Mutex<Option<Vec<u8>>>,
    faults: Arc<AtomicU64>,
}

impl Proxy {
    /// The bucket, by way of it.
    fn s3(&self) -> Arc<dyn ObjectStore> {
        provide_cryptography();
        let builder = AmazonS3Builder::from_env().with_endpoint(format!("http://{}", self.address));
        Arc::new(builder.with_bucket_name("brooklet").with_allow_http(true).build().unwrap())
    }

    fn start(seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::env::var("AWS_ENDPOINT_URL").unwrap();
        let server = server.strip_prefix("http://").unwrap().to_owned();
        let (faults, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (rng, last_list) = (Mutex::new(Rng::new(seed)), Mutex::default());
        let harm = Arc::new(Harm { server, rng, last_list, faults: faults.clone() });
        let stopped = stop.clone();
        spawn(move || {
            for client in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (client, harm) = (client.unwrap(), harm.clone());
                // A client that gives up is nobody's concern.
                spawn(move || drop(harm.serve(client)));
            }
        });
        Self { address, faults, stop }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // So that it looks.
        drop(TcpStream::connect(self.address));
    }
}

#[expect(clippy::disallowed_methods, reason = "a server of its own")]
fn spawn(work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(work);
}

impl Harm {
    /// One request, one answer, and the connection is over.
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let request = read_request(&mut client)?;
        let is_list = request.starts_with(b"GET ")
            && request[..request.len().min(200)].windows(10).any(|at| at == b"list-type=");
        let harm = {
            let mut rng = self.rng.lock().unwrap();
            if rng.percent(20) { rng.below(5) } else { 9 }
        };
        if harm < 5 {
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
        if harm < 2 {
            let status = ["503 Slow Down", "500 Internal Server Error"][harm as usize];
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return client.write_all(head.as_bytes());
        }
        let mut answer = self.ask(&request)?;
        let mut last = self.last_list.lock().unwrap();
        match harm {
            // It was done, and nobody hears of it.
            2 => return client.shutdown(Shutdown::Both),
            3 => answer.truncate(answer.len() * 2 / 3),
            4 if is_list && last.is_some() => answer = last.clone().unwrap(),
            _ if is_list => *last = Some(answer.clone()),
            _ => {}
        }
        drop(last);
        client.write_all(&answer)?;
        client.shutdown(Shutdown::Both)
    }

    fn ask(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let mut server = TcpStream::connect(&self.server)?;
        server.write_all(request)?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer)?;
        Ok(answer)
    }
}

/// Reads a request, and asks for the connection to be closed after it.
fn read_request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut data, mut buf) = (Vec::new(), vec![0; 64 << 10]);
    let head = loop {
        if let Some(at) = data.windows(4).position(|at| at == b"\r\n\r\n") {
            break at + 2;
        }
        match client.read(&mut buf)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => data.extend_from_slice(&buf[..n]),
        }
    };
    let text = String::from_utf8_lossy(&data[..head]).into_owned();
    let len = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    while data.len() < head + 2 + len.unwrap_or(0) {
        match client.read(&mut buf)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => data.extend_from_slice(&buf[..n]),
        }
    }
    data.splice(head..head, *b"Connection: close\r\n");
    Ok(data)
}
