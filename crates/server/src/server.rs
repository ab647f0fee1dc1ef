//! A server, which starts and stops its frontends together.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::middleware::from_fn_with_state;
use brooklet::Store;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::follow::{self, Faces};
use crate::http::watch::Watch;
use crate::http::{self, Access, Http, Origin, OverTls, guard};
use crate::lease::{self, Lease};
use crate::net::{Address, Listener};
use crate::redis::{Settings, Shared, Users, check_numbered};
use crate::replica::Upstream;
use crate::tls::Tls;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses for Redis clients.
    pub redis: Vec<Address>,
    /// Addresses for HTTP clients.
    pub http: Vec<Address>,
    /// TLS on all TCP ports.
    pub tls: Option<Tls>,
    /// Permissions of Unix sockets. 0o600: only programs of the server's own user connect.
    pub unix_socket_mode: u32,
    /// Password of the user `default`. An empty password is none.
    pub password: Option<String>,
    /// Rules of other users, and of `default`, in Redis's language, by user name.
    pub users: BTreeMap<String, String>,
    /// Limits for Redis clients.
    pub settings: Settings,
    /// Limits for HTTP clients. The time until the login is that of `settings`, and `hurry` is the
    /// one below.
    pub streams: http::Config,
    /// Bytes of memory for the keys that Redis clients used last.
    pub cache: usize,
    /// Number of threads for the connections of Redis clients. The commands run one after another
    /// with any number of threads.
    pub threads: usize,
    /// Cancel this before the server is to stop if another server waits for its clients. The server
    /// then waits for 0.3 s at most, instead of 10 s, until requests are done and replies are read.
    pub hurry: CancellationToken,
    /// The lease that replies wait for, if another host may take the store over.
    pub lease: Option<Lease>,
}

impl Default for Config {
    /// Returns a configuration in which Redis clients of this machine, at the usual port, may do
    /// everything.
    fn default() -> Self {
        Self {
            redis: vec![Address::Tcp("127.0.0.1:6379".into())],
            http: Vec::new(),
            tls: None,
            unix_socket_mode: 0o600,
            password: None,
            users: BTreeMap::new(),
            settings: Settings::default(),
            streams: http::Config::default(),
            cache: 32 << 20,
            threads: 1,
            hurry: CancellationToken::new(),
            lease: None,
        }
    }
}

/// An error of a server's start or end.
#[derive(thiserror::Error)]
pub enum Error {
    /// The configuration is invalid.
    #[error("{0}")]
    Config(String),
    /// The server cannot listen at an address.
    #[error("listening at {address} failed: {cause}")]
    Listen {
        /// The address.
        address: String,
        /// The error of the system.
        cause: io::Error,
    },
    /// The system cannot provide threads or polling.
    #[error("starting the server failed: {0}")]
    Start(io::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] brooklet::Error),
}

/// Prints the message: a `main` that returns an error prints it in this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The addresses at which a server listens, as clients name them.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Addresses {
    /// Addresses for Redis clients.
    pub redis: Vec<String>,
    /// Addresses for HTTP clients.
    pub http: Vec<String>,
}

impl Config {
    /// Reports the faults for which [`serve`] would refuse this configuration, as far as they show
    /// without a store and without listening. So a program can refuse it before it creates a store.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn check(&self) -> Result<(), Error> {
        let users = self.users()?;
        if let Some(tls) = &self.tls {
            tls.for_redis().and_then(|_| tls.for_http()).map_err(Error::Config)?;
        }
        let all: Vec<_> = self.redis.iter().chain(&self.http).collect();
        // Each port 0 stands for another one.
        let is_twice = |at: &usize| all[..*at].contains(&all[*at]) && !all[*at].to_string().ends_with(":0");
        if let Some(at) = (0..all.len()).find(is_twice) {
            return Err(Error::Config(format!("the address {} is named twice: name another one", all[at])));
        }
        let wide = all.into_iter().find(|address| address.is_wide());
        wide.map_or(Ok(()), |wide| check_wide(&wide.to_string(), &users))
    }

    /// Returns an error if another process has one of the addresses now. So a program can refuse to
    /// start before it creates a store, or takes one over.
    ///
    /// # Errors
    /// [`Error::Listen`].
    pub fn check_addresses(&self) -> Result<(), Error> {
        self.redis.iter().chain(&self.http).try_for_each(expect_free)
    }

    pub(crate) fn users(&self) -> Result<Users, Error> {
        let users = Users::new(self.password.as_deref());
        for (name, rules) in &self.users {
            let set = users.set(name, rules.split_whitespace());
            set.map_err(|why| Error::Config(format!("user {name}: {why}")))?;
        }
        Ok(users)
    }
}

/// Returns an error if a server could not listen at an address now.
pub(crate) fn expect_free(address: &Address) -> Result<(), Error> {
    address.expect_free().map_err(|cause| Error::Listen { address: address.to_string(), cause })
}

pub(crate) async fn bind(
    addresses: &[Address],
    tls: Option<&Arc<rustls::ServerConfig>>,
    mode: u32,
) -> Result<Vec<Listener>, Error> {
    let mut listeners = Vec::new();
    for address in addresses {
        let bound = Listener::bind(address, tls, mode).await;
        listeners.push(bound.map_err(|cause| Error::Listen { address: address.to_string(), cause })?);
    }
    Ok(listeners)
}

/// Refuses an address that other machines can reach, if a user needs no password.
pub(crate) fn check_wide(address: &str, users: &Users) -> Result<(), Error> {
    let Some(user) = users.without_password() else { return Ok(()) };
    let name = &user.name;
    Err(Error::Config(match users.default_user() {
        Some(_) => format!(
            "other machines can connect to {address}, and no password is set: set a password, or listen on 127.0.0.1"
        ),
        None => format!(
            "other machines can connect to {address}, and user {name} needs no password: \
             give the user a password, or listen on 127.0.0.1"
        ),
    }))
}

/// Returns the threads for a frontend: a blocked thread of one frontend does not block the other.
pub(crate) fn runtime(name: &str, threads: usize) -> Result<Runtime, Error> {
    let mut builder = match threads {
        0 | 1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.worker_threads(threads.max(1)).thread_name(name).enable_all().build().map_err(Error::Start)
}

/// Serves a store until `stop` is cancelled. Then sends all replies about acknowledged commits, and
/// closes the store.
///
/// Calls `ready` once clients can connect.
///
/// # Errors
/// An error of the start: nothing was served. Or [`Error::Store`] where closing the store fails.
pub fn serve(
    store: Store,
    config: &Config,
    ready: impl FnOnce(&Addresses),
    stop: CancellationToken,
) -> Result<(), Error> {
    run(&store, None, config, ready, stop)?;
    Ok(store.close()?)
}

/// Serves the reads of a store that shows the commits of another server, until `stop` is cancelled.
/// Does not close the store. Once the store is replaced by another one, cancel `stop`, and call
/// this again.
///
/// Calls `ready` once clients can connect.
///
/// # Errors
/// An error of the start: nothing was served.
pub fn serve_replica(
    upstream: Arc<dyn Upstream>,
    config: &Config,
    ready: impl FnOnce(&Addresses),
    stop: CancellationToken,
) -> Result<(), Error> {
    let faces = Faces::default();
    let store = upstream.attach(faces.beside());
    let served = run(&store, Some((upstream, &faces)), config, ready, stop);
    faces.forget();
    served
}

/// Refuses a store with a space that the server cannot serve. Without addresses for HTTP, no client
/// asks for streams. `is_owner`: the server writes to the store.
pub(crate) fn check_spaces(config: &Config, store: &Store, is_owner: bool) -> Result<(), Error> {
    check_numbered(store, config.settings.databases).map_err(Error::Config)?;
    if is_owner && !config.http.is_empty() {
        http::check_streams(store)?;
    }
    Ok(())
}

fn run(
    store: &Store,
    follows: Option<(Arc<dyn Upstream>, &Faces)>,
    config: &Config,
    ready: impl FnOnce(&Addresses),
    stop: CancellationToken,
) -> Result<(), Error> {
    let users = config.users()?;
    check_spaces(config, store, follows.is_none())?;
    let tls_redis = config.tls.as_ref().map(Tls::for_redis).transpose().map_err(Error::Config)?;
    let tls_http = config.tls.as_ref().map(Tls::for_http).transpose().map_err(Error::Config)?;
    let (for_redis, for_http) = (runtime("brooklet-redis", config.threads)?, runtime("brooklet-http", 2)?);
    let redis = for_redis.block_on(bind(&config.redis, tls_redis.as_ref(), config.unix_socket_mode))?;
    let web = for_http.block_on(bind(&config.http, tls_http.as_ref(), config.unix_socket_mode))?;
    if let Some(wide) = redis.iter().chain(&web).find(|listener| listener.is_wide()) {
        check_wide(&wide.address(), &users)?;
    }
    let addresses = |all: &[Listener]| all.iter().map(Listener::address).collect();
    let addresses = Addresses { redis: addresses(&redis), http: addresses(&web) };
    let watch = Watch::new();
    let shared = Shared::new(
        store.clone(),
        users.clone(),
        config.settings.clone(),
        config.cache,
        watch.hot_logs().clone(),
    );
    let login = Duration::from_secs(config.settings.auth_timeout);
    let streams = http::Config { login, hurry: config.hurry.clone(), ..config.streams.clone() };
    let http = Http::open(store.clone(), streams.clone(), stop.clone(), follows.is_some())?;
    http.show_on(&watch);
    watch.ready(store.clone());
    if let Some(lease) = &config.lease {
        shared.wait_for_lease(lease.clone());
    }
    let upstream = follows.map(|(upstream, faces)| {
        shared.follow(upstream.clone());
        follow::show_on(&watch, &upstream);
        faces.set(shared.clone(), http.clone());
        upstream
    });
    let lease = config.lease.clone();
    let web = Web { listeners: web, http, upstream, lease, users, streams, stop: stop.clone() };
    let frontend = web.serve(watch.clone(), shared.clone());
    let frontend = for_http.spawn(frontend);
    ready(&addresses);
    for_redis.block_on(async {
        shared.serve(redis, stop.clone(), &config.hurry).await;
        // Without addresses for Redis clients, the HTTP clients are served until the end.
        stop.cancelled().await;
    });
    watch.stopping();
    if let Err(error) = for_http.block_on(frontend) {
        tracing::error!(%error, "the HTTP frontend ended with an error");
    }
    Ok(())
}

/// The access to HTTP. It notes wrong passwords in the same place as those of Redis clients.
struct Door {
    users: Users,
    shared: Shared,
}

impl Access for Door {
    fn is_open(&self) -> bool {
        self.users.is_open()
    }

    fn accepts(&self, name: &str, password: &[u8]) -> bool {
        self.users.accepts(name, password)
    }

    fn note_wrong(&self, name: &str, address: &str) {
        self.shared.note_wrong_password(name, address);
    }
}

/// The HTTP frontend: streams, documents, and the pages about the store.
struct Web {
    listeners: Vec<Listener>,
    http: Http,
    /// The log that the store follows, if it does.
    upstream: Option<Arc<dyn Upstream>>,
    lease: Option<Lease>,
    users: Users,
    streams: http::Config,
    stop: CancellationToken,
}

impl Web {
    async fn serve(self, watch: Watch, shared: Shared) {
        let Self { listeners, http, upstream, lease, users, streams, stop } = self;
        shared.show_on(&watch);
        if users.is_open() && streams.allow_origins.contains(&Origin::Any) {
            tracing::warn!(
                "every web page may read and change the data: pages of all origins are allowed, and no password is set"
            );
        }
        let is_owner = upstream.is_none();
        let data = match upstream {
            Some(upstream) => {
                let state = (upstream, streams.patience);
                http.router().layer(from_fn_with_state(state, follow::send_writes_on))
            }
            None => http.router(),
        };
        let data = match lease {
            Some(lease) => data.layer(from_fn_with_state((lease, stop.clone()), lease::wait_for_it)),
            None => data,
        };
        let router = data.merge(http::watch::router(watch.clone()));
        let router = guard(router, Arc::new(Door { users, shared }), streams.allow_origins.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(stop.clone().run_until_cancelled_owned(watch.keep()));
        if is_owner {
            tasks.spawn(stop.clone().run_until_cancelled_owned(http.keep()));
        }
        for listener in listeners {
            let router = match listener.has_tls() {
                true => router.clone().layer(Extension(OverTls)),
                false => router.clone(),
            };
            let (streams, stop) = (streams.clone(), stop.clone());
            tasks.spawn(async move {
                http::serve(listener, router, &streams, stop).await;
                None
            });
        }
        while tasks.join_next().await.is_some() {}
    }
}
