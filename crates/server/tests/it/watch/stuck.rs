//! A device that does not answer, and an engine of Redis clients that is busy for long: what is
//! shown without them is shown, and no more threads than a few wait for the device.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};

use brooklet::io::{Layer, MemVolume, Volume};
use brooklet::{Options, Store};
use brooklet_server::http::watch::{Watch, router};
use brooklet_server::http::{Access, guard};
use brooklet_server::redis::{Settings, Shared, Users};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use super::{Server, eventually};
use crate::http_client::FOREVER;

/// Reads wait while it is held.
#[derive(Clone, Debug)]
struct Stuck(MemVolume, Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    held: bool,
    waiting: usize,
}

impl Stuck {
    fn hold(&self, held: bool) {
        self.1.0.lock().unwrap().held = held;
        self.1.1.notify_all();
    }

    /// Holds it until that is dropped, so that a test that fails ends.
    fn held(&self) -> Held<'_> {
        self.hold(true);
        Held(self)
    }

    fn waiting(&self) -> usize {
        self.1.0.lock().unwrap().waiting
    }
}

struct Held<'a>(&'a Stuck);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.hold(false);
    }
}

impl Layer for Stuck {
    fn below(&self) -> &dyn Volume {
        &self.0
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let mut state = self.1.0.lock().unwrap();
        state.waiting += 1;
        let mut state = self.1.1.wait_while(state, |state| state.held).unwrap();
        state.waiting -= 1;
        drop(state);
        self.0.read_at(offset, buf)
    }
}

#[tokio::test]
async fn what_needs_no_device_is_shown_while_it_does_not_answer() {
    let volume = Stuck(MemVolume::new(1), Arc::default());
    let options = || Options::new().ring_size(1 << 20).max_payload(64 << 10);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    store.append("log", "entry").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    let server = Server::new().await;
    server.watch.ready(options().open_on(Arc::new(volume.clone())).unwrap());
    let held = volume.held();
    let client = server.client;
    let asked: Vec<_> =
        (0..24).map(|_| tokio::spawn(async move { client.ask("GET", "/api/logs").await.status })).collect();
    eventually("as many listings as may wait", async || volume.waiting() == 16).await;
    eventually("refusals of the others", async || {
        asked.iter().filter(|asked| asked.is_finished()).count() == 8
    })
    .await;
    for address in ["/", "/metrics", "/healthz", "/readyz", "/api/live"] {
        assert_eq!(server.get(address).await.status, 200, "{address}");
    }
    let refused = server.get("/api/log?key=log").await;
    assert!(refused.status == 503 && refused.body.contains("retry"), "{refused:?}");
    drop(held);
    let mut statuses = Vec::new();
    for asked in asked {
        statuses.push(asked.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [[200; 16].as_slice(), [503; 8].as_slice()].concat());
    assert_eq!(server.get("/api/log?key=log").await.status, 200);
}

/// Lets one password in, and has wrong ones noted where those of Redis clients are.
struct Door(Shared);

impl Access for Door {
    fn is_open(&self) -> bool {
        false
    }

    fn accepts(&self, _name: &str, password: &[u8]) -> bool {
        password == b"pw"
    }

    fn note_wrong(&self, name: &str, address: &str) {
        self.0.note_wrong_password(name, address);
    }
}

/// Returns the status of the reply to a request with a password.
async fn status(address: SocketAddr, path: &str, password: &str) -> u16 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\nauthorization: Bearer {password}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply[9..12].parse().unwrap()
}

/// In the old state two such requests stopped all of HTTP, for as long as the engine was busy: for
/// example while a commit of a Redis client waited for room.
#[test]
fn http_goes_on_while_the_engine_of_redis_clients_is_busy() {
    let store = Store::in_memory(1).unwrap();
    let shared =
        Shared::new(store.clone(), Users::new(Some("pw")), Settings::default(), 1 << 20, Arc::default());
    let watch = Watch::new();
    watch.ready(store);
    shared.show_on(&watch);
    let serving = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let listener = serving.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let router = guard(router(watch), Arc::new(Door(shared.clone())), Vec::new());
    serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
    let engine = shared.lock();
    let asking = Builder::new_current_thread().enable_all().build().unwrap();
    let ask_all = async {
        let mut asked = Vec::new();
        for (path, password, wanted) in [
            ("/api/live", "pw", 200),
            ("/metrics", "pw", 200),
            ("/", "wrong", 401),
            ("/", "pw", 200),
            ("/healthz", "pw", 200),
            ("/readyz", "pw", 200),
        ] {
            for _ in 0..10 {
                asked.push((path, wanted, tokio::spawn(status(address, path, password))));
            }
        }
        for (path, wanted, status) in asked {
            assert_eq!(status.await.unwrap(), wanted, "{path}");
        }
    };
    let all = asking.block_on(async { tokio::time::timeout(FOREVER, ask_all).await });
    drop(engine);
    all.expect("all are answered while the engine is busy");
    let refusals: i64 = shared.lock().refusals.entries().map(|entry| entry.count).sum();
    assert_eq!(refusals, 10);
}
