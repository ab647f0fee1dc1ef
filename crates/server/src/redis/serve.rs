//! Drives the engine: accepts clients, passes time, and reports durable commits.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, mpsc};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brooklet::Store;
use bytes::Bytes;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::acl::Users;
use super::client::ClientId;
use super::connection::Connection;
use super::engine::Engine;
use super::keys::{Keyspace, Task};
use super::now::Now;
use super::settings::Settings;
use super::show::Beside;
use super::spaces;
use crate::hot_logs::HotLogs;
use crate::lease::Lease;
use crate::net::{HURRY, Incoming, Listener, RELIEF};
use crate::replica::Upstream;

/// Longest wait for replies to be sent at a clean stop.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit of a client's handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Steps of handshakes that are computed at once, beside the commands: a signature takes about as
/// long as the turn of a client.
const STEPS: usize = 2;
/// Longest time between two checks of due events.
const TICK: Duration = Duration::from_millis(100);
/// Interval of cache ageing: a key that is unused for two intervals leaves memory.
const AGE: Duration = Duration::from_secs(15);
/// Keys that have their turn at once then.
const AGED: usize = 4_000;

/// The engine, and the tasks that it notifies.
#[derive(Clone)]
pub struct Shared {
    engine: Arc<Mutex<Engine>>,
    /// What the engine and HTTP leave for each other.
    pub(super) beside: Arc<Beside>,
    /// Start of the engine.
    began: Instant,
    written: Arc<Notify>,
    acknowledged: Arc<Notify>,
    deadline: Arc<Notify>,
    /// Turns of handshakes.
    steps: Arc<Semaphore>,
    /// Reason why a commit was not acknowledged.
    failure: Arc<OnceLock<String>>,
}

/// The place of an admitted client, which is free again when this is dropped.
pub struct Seat {
    /// The engine.
    pub shared: Shared,
    /// Number of the client.
    pub id: ClientId,
}

impl Seat {
    /// Waits until the engine disconnects the client.
    async fn lost(&self) {
        poll_fn(|cx| match self.shared.lock().client(self.id) {
            Some(client) if !client.is_killed && !client.is_leaving => {
                client.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
        .await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.lock().disconnect(self.id);
    }
}

/// Returns the milliseconds since the Unix epoch.
fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// Returns the number of a run of the server.
fn run_id(wall: u64) -> String {
    let mut bytes = [0; 20];
    if getrandom::fill(&mut bytes).is_err() {
        // Early after the start of the system: the time and the process then tell runs apart.
        let own = (u128::from(wall) << 32 | u128::from(std::process::id())).to_be_bytes();
        bytes[4..].copy_from_slice(&own);
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Shared {
    /// Creates an engine on a store, with `cache` bytes of memory for keys. The engine notes its
    /// writes in `hot_logs`.
    pub fn new(store: Store, users: Users, settings: Settings, cache: usize, hot_logs: Arc<HotLogs>) -> Self {
        let wall = wall();
        let mut engine = Engine::new(Keyspace::new(store, cache, wall), users, settings, hot_logs, wall);
        let began = Instant::now();
        engine.set_script_clock(Box::new(move || began.elapsed()));
        engine.run_id = run_id(wall);
        engine.clock = Box::new(move || began.elapsed().as_nanos() as u64);
        let beside = Arc::new(Beside::new(engine.keys.notices.clone()));
        let engine = Arc::new(Mutex::new(engine));
        Self {
            engine,
            beside,
            began,
            written: Arc::default(),
            acknowledged: Arc::default(),
            deadline: Arc::default(),
            steps: Arc::new(Semaphore::new(STEPS)),
            failure: Arc::default(),
        }
    }

    /// Makes this a replica: the commits of another server come by [`show`](Self::show).
    pub fn follow(&self, upstream: Arc<dyn Upstream>) {
        let mut engine = self.lock();
        engine.upstream = Some(upstream);
        engine.keys.follow_another();
    }

    /// Lets replies wait until the server has the lease of its store.
    pub fn wait_for_lease(&self, lease: Lease) {
        self.lock().set_lease(lease);
    }

    /// Shows commits of another server, which change these logs, while no command runs.
    pub fn show(&self, logs: &[Bytes], show: &mut dyn FnMut()) {
        let mut engine = self.lock();
        show();
        engine.note_shown(logs);
        self.tell(&mut engine);
    }

    /// Locks the engine and sets its time.
    pub fn lock(&self) -> MutexGuard<'_, Engine> {
        let mut engine = self.engine.lock().unwrap_or_else(|poisoned| {
            // All clients' commands use this engine: a command that did not come to its end has no
            // effect.
            let mut engine = poisoned.into_inner();
            engine.abandon();
            self.engine.clear_poison();
            engine
        });
        engine.set_time(self.now());
        self.beside.hand_over(&mut engine);
        engine
    }

    pub(super) fn now(&self) -> Now {
        Now { wall: wall(), steady: self.began.elapsed().as_millis() as u64 }
    }

    /// Notifies the tasks that wait for new commits and deadlines.
    pub fn tell(&self, engine: &mut Engine) {
        if std::mem::take(&mut engine.has_news) {
            self.written.notify_one();
        }
        if std::mem::take(&mut engine.has_deadline) {
            self.deadline.notify_one();
        }
    }

    /// Serves the clients of `listeners` until `stop`; then still sends the replies that wait for
    /// commits. Waits less for clients to read them if `hurry` is cancelled then.
    pub async fn serve(&self, listeners: Vec<Listener>, stop: CancellationToken, hurry: &CancellationToken) {
        let helper = self.clone().begin_to_help();
        let drivers = CancellationToken::new();
        // Work on other threads ends, too, if nobody waits for this future any more.
        let _end = drivers.clone().drop_guard();
        let mut tasks = JoinSet::new();
        tasks.spawn(drivers.clone().run_until_cancelled_owned(self.clone().send_off()));
        tasks.spawn(drivers.clone().run_until_cancelled_owned(self.clone().follow_commits()));
        tasks.spawn(drivers.clone().run_until_cancelled_owned(self.clone().follow_time()));
        let search = tokio::spawn(self.clone().find_deadlines(drivers.clone()));
        let notices = {
            let mut engine = self.lock();
            engine.port = listeners.iter().find_map(Listener::port).unwrap_or(0);
            engine.keys.notices.clone()
        };
        let writer = notices.clone();
        tasks.spawn(drivers.clone().run_until_cancelled_owned(async move { writer.keep_writing().await }));
        let mut doors = JoinSet::new();
        for listener in listeners {
            doors.spawn(self.clone().take_in(listener, stop.clone(), hurry.clone()));
        }
        while doors.join_next().await.is_some() {}
        drivers.cancel();
        while tasks.join_next().await.is_some() {}
        drop(search.await);
        self.lock().helper = None;
        if let Some(helper) = helper {
            // It has the store, which the caller may open again at once.
            drop(tokio::task::spawn_blocking(|| helper.join()).await);
        }
        notices.write();
    }

    /// Begins to hand long commits to the store, on a thread of its own, which ends once the engine
    /// has no helper any more. Without it, the engine does that itself.
    fn begin_to_help(self) -> Option<JoinHandle<()>> {
        let (helper, tasks) = mpsc::channel::<Task>();
        self.lock().helper = Some(helper);
        let help = move || {
            for task in tasks {
                let mut end = task.run();
                let garbage = end.take_garbage();
                let mut engine = self.lock();
                engine.end_task(end);
                self.tell(&mut engine);
                drop(engine);
                drop(garbage);
            }
        };
        let started = thread::Builder::new().name("brooklet-handover".into()).spawn(help);
        started
            .inspect_err(|error| {
                tracing::warn!(%error, "all clients wait for long commits, because a thread does not start");
            })
            .ok()
    }

    /// Admits the clients of one listener, and waits for them to leave once the listener is closed.
    async fn take_in(self, listener: Listener, stop: CancellationToken, hurry: CancellationToken) {
        let mut clients = JoinSet::new();
        let mut is_failing = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = clients.join_next() => {}
                incoming = listener.accept() => match incoming {
                    Ok(incoming) => {
                        is_failing = false;
                        drop(clients.spawn(self.clone().welcome(incoming)));
                    }
                    Err(error) => {
                        // Usually no descriptors are left: other clients must leave first.
                        if !std::mem::replace(&mut is_failing, true) {
                            tracing::warn!(%error, "the server cannot accept clients for now");
                        }
                        tokio::time::sleep(RELIEF).await;
                    }
                }
            }
        }
        drop(listener);
        self.lock().say_goodbye();
        let leave = async { while clients.join_next().await.is_some() {} };
        let patience = if hurry.is_cancelled() { HURRY } else { PATIENCE };
        if tokio::time::timeout(patience, leave).await.is_err() {
            tracing::warn!("the server disconnects clients that did not read their replies");
        }
    }

    async fn welcome(self, incoming: Incoming) {
        let (from, to) = (incoming.from.clone(), incoming.to.clone());
        // A client has its place before its handshake: so handshakes have the limits of strangers.
        let connected = self.lock().connect(from.clone(), to);
        let served = async {
            let id = match connected {
                Ok(id) => id,
                Err(why) => return incoming.refuse(why),
            };
            let seat = Seat { shared: self.clone(), id };
            let stream = tokio::select! {
                biased;
                opened = tokio::time::timeout(HANDSHAKE, incoming.open(&self.steps)) => {
                    opened.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??
                }
                () = seat.lost() => return Ok(()),
            };
            Connection::new(seat, stream).run().await
        };
        if let Err(error) = served.await {
            tracing::debug!(client = from, %error, "a connection broke");
        }
    }

    /// Writes the blocks that clients wait for.
    ///
    /// On one thread, this task runs after the clients that were ready when the first of them
    /// wrote: so all their commits are in one block. Otherwise the first commit's block would leave
    /// without the other commits, which would wait for its end.
    async fn send_off(self) {
        loop {
            self.written.notified().await;
            let tickets = self.lock().keys.take_unheard();
            for ticket in tickets {
                let (acknowledged, failure) = (self.acknowledged.clone(), self.failure.clone());
                ticket.on_done(move |done| {
                    if let Err(error) = done {
                        // The first error has the reason; later errors add nothing.
                        let _ = failure.set(error.to_string());
                    }
                    acknowledged.notify_one();
                });
            }
        }
    }

    /// Waits for commits to become durable, and sends their replies.
    async fn follow_commits(self) {
        loop {
            self.acknowledged.notified().await;
            let mut engine = self.lock();
            engine.note_durable();
            let failure = self.failure.get();
            if let Some(why) = failure {
                engine.note_stopped(why);
            }
            drop(engine);
            if let Some(why) = failure {
                tracing::error!(why, "the store stopped writing; the server continues to serve reads");
            }
        }
    }

    /// Handles due events as time passes.
    async fn follow_time(self) {
        let (mut since, mut ages) = (Instant::now(), false);
        loop {
            let wait = {
                let mut engine = self.lock();
                engine.tick(self.now());
                self.beside.look(&mut engine);
                if since.elapsed() > AGE {
                    (since, ages) = (Instant::now(), true);
                }
                if ages {
                    ages = !engine.keys.age_cache(AGED);
                }
                self.tell(&mut engine);
                let soon = Duration::from_millis(1);
                let longest = if ages { soon } else { TICK };
                engine.next_due().map_or(longest, |due| due.clamp(soon, longest))
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.deadline.notified() => {}
            }
        }
    }

    /// Reads the heads of all keys once, in the background, to find the keys that expire without
    /// any request. Returns soon after `stop`, and nothing of it has the store then.
    async fn find_deadlines(self, stop: CancellationToken) {
        let look = tokio::task::spawn_blocking(move || {
            let (store, databases) = {
                let engine = self.lock();
                (engine.keys.store().clone(), engine.settings.databases)
            };
            for database in spaces::databases(&store, databases) {
                let note = |at, key: &[u8]| self.lock().keys.note_deadline(Some(at), key);
                let pass = |error| {
                    tracing::warn!(database, %error, "a damaged key never expires by itself: delete it");
                };
                let is_over = || stop.is_cancelled();
                if let Err(error) = super::keys::deadlines(&store, database.as_bytes(), is_over, note, pass) {
                    tracing::warn!(database, %error, "expired keys may stay until a client reads them");
                }
            }
        });
        drop(look.await);
    }
}

#[cfg(test)]
mod tests {
    use brooklet::Options;
    use brooklet::io::MemVolume;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// In the old state the thread that hands long commits to the store went on for a moment, with
    /// the store, and an opening of the same store then met its lock.
    #[tokio::test]
    async fn nothing_has_the_store_once_the_server_has_stopped() {
        for _ in 0..20 {
            let store = Store::in_memory(1).unwrap();
            let (users, settings) = (Users::new(None), Settings::default());
            let shared = Shared::new(store, users, settings, 1 << 20, Arc::default());
            let (engine, stop) = (Arc::downgrade(&shared.engine), CancellationToken::new());
            let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), None, 0o600).await.unwrap();
            stop.cancel();
            shared.serve(vec![listener], stop, &CancellationToken::new()).await;
            drop(shared);
            assert!(engine.upgrade().is_none());
        }
    }

    /// In the old state the search for deadlines went on over all keys, with the store, after the
    /// server had stopped.
    #[tokio::test]
    async fn the_search_for_deadlines_ends_with_the_server() {
        let store = Store::in_memory(1).unwrap();
        let serve = async |stop: CancellationToken, command: Vec<u8>| {
            let shared =
                Shared::new(store.clone(), Users::new(None), Settings::default(), 1 << 20, Arc::default());
            let engine = Arc::downgrade(&shared.engine);
            let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), None, 0o600).await.unwrap();
            let address = listener.address();
            let use_it = async {
                if command.is_empty() {
                    return;
                }
                let mut client = TcpStream::connect(address).await.unwrap();
                client.write_all(&command).await.unwrap();
                let mut reply = [0; 5];
                client.read_exact(&mut reply).await.unwrap();
                assert_eq!(&reply, b"+OK\r\n");
                stop.cancel();
            };
            let hurry = CancellationToken::new();
            tokio::join!(shared.serve(vec![listener], stop.clone(), &hurry), use_it);
            engine
        };
        let keys = 20_000;
        let mut fill = format!("*{}\r\n$4\r\nMSET\r\n", 2 * keys + 1);
        for key in 0..keys {
            fill += &format!("$8\r\nkey{key:05}\r\n$1\r\nv\r\n");
        }
        serve(CancellationToken::new(), fill.into_bytes()).await;
        let stopped = CancellationToken::new();
        stopped.cancel();
        assert!(serve(stopped, Vec::new()).await.upgrade().is_none());
    }

    #[tokio::test]
    async fn what_clients_write_who_are_ready_together_rides_in_one_block() {
        // No block leaves because of its age.
        let options = Options::new().linger(Duration::from_secs(3600));
        let store: Store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
        let (users, settings) = (Users::new(None), Settings::default());
        let shared = Shared::new(store.clone(), users, settings, 1 << 20, Arc::default());
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), None, 0o600).await.unwrap();
        let address = listener.address();
        let stop = CancellationToken::new();
        let server = {
            let stop = stop.clone();
            tokio::spawn(async move { shared.serve(vec![listener], stop, &CancellationToken::new()).await })
        };
        let mut clients = Vec::new();
        for _ in 0..50 {
            let mut client = TcpStream::connect(&address).await.unwrap();
            client.write_all(b"PING\r\n").await.unwrap();
            client.read_exact(&mut [0; b"+PONG\r\n".len()]).await.unwrap();
            clients.push(client);
        }
        let blocks = || store.activity().stages.whole.count();
        for round in 1..=9 {
            let before = blocks();
            for client in &clients {
                // Nobody else has a turn meanwhile.
                assert_eq!(client.try_write(b"LPUSH list 1\r\n").unwrap(), 14);
            }
            let (mut lens, mut len) = (Vec::new(), [0; 6]);
            for client in &mut clients {
                let end = client.read(&mut len).await.unwrap();
                lens.push(String::from_utf8_lossy(&len[..end]).into_owned());
            }
            lens.sort_by_key(|len| (len.len(), len.clone()));
            let all = (1..=clients.len()).map(|i| format!(":{}\r\n", (round - 1) * clients.len() + i));
            assert!(lens.into_iter().eq(all));
            assert_eq!(blocks() - before, 1, "in round {round}");
        }
        drop(clients);
        stop.cancel();
        server.await.unwrap();
    }
}
