//! Drives the engine: accepts clients, passes time, and reports durable commits.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brooklet::Store;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::acl::Users;
use super::connection::Connection;
use super::engine::Engine;
use super::keys::Keyspace;
use super::now::Now;
use super::settings::Settings;
use crate::hot_logs::HotLogs;
use crate::net::{Incoming, Listener, RELIEF};

/// How long a clean stop waits for replies to leave.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The longest time from one look at what is due to the next.
const TICK: Duration = Duration::from_millis(100);
/// The time after which what nobody asked for leaves memory, at the second look.
const AGE: Duration = Duration::from_secs(15);

/// The engine, and those who are to be told of news.
#[derive(Clone)]
pub struct Shared {
    engine: Arc<Mutex<Engine>>,
    /// When the engine began.
    began: Instant,
    written: Arc<Notify>,
    acknowledged: Arc<Notify>,
    deadline: Arc<Notify>,
    /// Why a commit was not acknowledged.
    failure: Arc<OnceLock<String>>,
}

/// Milliseconds since the Unix epoch.
fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

impl Shared {
    /// An engine on a store, with so many bytes of memory for keys. It takes note in `hot_logs` of
    /// what is written to.
    pub fn new(store: Store, users: Users, settings: Settings, cache: usize, hot_logs: Arc<HotLogs>) -> Self {
        let wall = wall();
        let engine = Engine::new(Keyspace::new(store, cache, wall), users, settings, hot_logs, wall);
        let engine = Arc::new(Mutex::new(engine));
        Self {
            engine,
            began: Instant::now(),
            written: Arc::default(),
            acknowledged: Arc::default(),
            deadline: Arc::default(),
            failure: Arc::default(),
        }
    }

    /// The engine, at the present time.
    pub fn lock(&self) -> MutexGuard<'_, Engine> {
        // A panic while a command was done left its keys in some state, and everybody's commands go
        // through here.
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        engine.set_time(self.now());
        engine
    }

    fn now(&self) -> Now {
        Now { wall: wall(), steady: self.began.elapsed().as_millis() as u64 }
    }

    /// Tells those who wait for commits and deadlines of new ones.
    pub fn tell(&self, engine: &mut Engine) {
        if std::mem::take(&mut engine.has_news) {
            self.written.notify_one();
        }
        if std::mem::take(&mut engine.has_deadline) {
            self.deadline.notify_one();
        }
    }

    /// Serves those who come in by `listeners`, until told to stop: then replies that wait for
    /// commits still leave.
    pub async fn serve(&self, listeners: Vec<Listener>, stop: CancellationToken) {
        let drivers = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(drivers.clone().run_until_cancelled_owned(self.clone().send_off()));
        tasks.spawn(drivers.clone().run_until_cancelled_owned(self.clone().follow_commits()));
        tasks.spawn(drivers.clone().run_until_cancelled_owned(self.clone().follow_time()));
        tasks.spawn(drivers.clone().run_until_cancelled_owned(self.clone().find_deadlines()));
        let mut doors = JoinSet::new();
        for listener in listeners {
            doors.spawn(self.clone().take_in(listener, stop.clone()));
        }
        while doors.join_next().await.is_some() {}
        drivers.cancel();
        while tasks.join_next().await.is_some() {}
    }

    /// Takes clients in by one door, and waits for them to leave once it is closed.
    async fn take_in(self, listener: Listener, stop: CancellationToken) {
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = clients.join_next() => {}
                incoming = listener.accept() => match incoming {
                    Ok(incoming) => drop(clients.spawn(self.clone().welcome(incoming))),
                    Err(error) => {
                        // No descriptors left, most likely: others have to leave first.
                        tracing::warn!(%error, "the server could not accept a client");
                        tokio::time::sleep(RELIEF).await;
                    }
                }
            }
        }
        drop(listener);
        self.lock().say_goodbye();
        let leave = async { while clients.join_next().await.is_some() {} };
        if tokio::time::timeout(PATIENCE, leave).await.is_err() {
            tracing::warn!("the server disconnects clients that did not read their replies");
        }
    }

    async fn welcome(self, incoming: Incoming) {
        let (from, to) = (incoming.from.clone(), incoming.to.clone());
        let served = async {
            let handshake = tokio::time::timeout(HANDSHAKE, incoming.open()).await;
            let mut stream = handshake.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            let connected = self.lock().connect(from.clone(), to);
            match connected {
                Ok(id) => Connection::new(self.clone(), id, stream).run().await,
                Err(why) => {
                    stream.write_all(why.as_bytes()).await?;
                    stream.shutdown().await
                }
            }
        };
        if let Err(error) = served.await {
            tracing::debug!(client = from, %error, "a connection broke");
        }
    }

    /// Sees to it that blocks leave that somebody waits for.
    ///
    /// On one thread its turn comes after those of the clients who were ready when the first of
    /// them wrote: what all of them write rides in one block. The first one's would leave without
    /// the others, and they would wait for its end.
    async fn send_off(self) {
        loop {
            self.written.notified().await;
            let tickets = self.lock().keys.take_unheard();
            for ticket in tickets {
                let (acknowledged, failure) = (self.acknowledged.clone(), self.failure.clone());
                ticket.on_done(move |done| {
                    if let Err(error) = done {
                        // The first one tells why; those after it could not do better.
                        let _ = failure.set(error.to_string());
                    }
                    acknowledged.notify_one();
                });
            }
        }
    }

    /// Waits for commits to become durable, and lets replies leave.
    async fn follow_commits(self) {
        loop {
            self.acknowledged.notified().await;
            let mut engine = self.lock();
            engine.note_durable();
            if let Some(why) = self.failure.get() {
                tracing::error!(why, "the store stopped writing; the server continues to serve reads");
                engine.note_stopped(why);
            }
        }
    }

    /// Does what is due as time goes by.
    async fn follow_time(self) {
        let mut since = Instant::now();
        loop {
            let wait = {
                let mut engine = self.lock();
                engine.tick(self.now());
                if since.elapsed() > AGE {
                    since = Instant::now();
                    engine.keys.age_cache();
                }
                self.tell(&mut engine);
                engine.next_due().map_or(TICK, |due| due.clamp(Duration::from_millis(1), TICK))
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.deadline.notified() => {}
            }
        }
    }

    /// Goes through the heads of all keys once, beside everything else, to know when those expire
    /// that nobody asks for.
    async fn find_deadlines(self) {
        let (store, databases) = {
            let engine = self.lock();
            (engine.keys.store().clone(), engine.settings.databases)
        };
        let look = tokio::task::spawn_blocking(move || {
            for number in 0..databases {
                let database = number.to_string().into_bytes();
                let found = super::keys::deadlines(&store, &database);
                let noted = found.and_then(|mut found| {
                    found.try_for_each(|deadline| {
                        let (at, key) = deadline?;
                        self.lock().keys.note_deadline(Some(at), &key);
                        Ok(())
                    })
                });
                if let Err(error) = noted {
                    tracing::warn!(database = number, %error, "expired keys may stay until a client reads them");
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
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn what_clients_write_who_are_ready_together_rides_in_one_block() {
        // No block leaves because of its age.
        let options = Options::new().linger(Duration::from_secs(3600));
        let store: Store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
        let (users, settings) = (Users::new(None), Settings::default());
        let shared = Shared::new(store.clone(), users, settings, 1 << 20, Arc::default());
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        let address = listener.address();
        let stop = CancellationToken::new();
        let server = {
            let stop = stop.clone();
            tokio::spawn(async move { shared.serve(vec![listener], stop).await })
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
