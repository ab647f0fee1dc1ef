//! `brooklet serve`: a store for Redis clients and over HTTP.
//!
//! Each setting is a flag, an environment variable (`BROOKLET_` and the flag's name) and a key of a
//! TOML file. A flag overrides the variable, and the variable overrides the file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use brooklet::Create;
use brooklet_server::{Address, Addresses, CancellationToken, Config, Error};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::descriptors;
use crate::failure::{Failure, Kind};
use crate::output::Output;
use crate::size::size;
use crate::store_args::StoreArgs;

#[derive(clap::Args)]
pub struct Args {
    /// The store: a file or a block device; created if missing
    store: PathBuf,
    /// A TOML file of settings
    #[arg(long, value_name = "FILE", env = "BROOKLET_CONFIG")]
    config: Option<PathBuf>,
    /// Print all effective settings as a TOML file, and do not serve
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    given: Given,
}

/// The settings of one source; an unset one is taken from the next source, or from the defaults.
#[derive(clap::Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Given {
    /// Addresses for Redis clients: HOST:PORT or unix:PATH, separated by commas [default:
    /// 127.0.0.1:6379]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', env = "BROOKLET_LISTEN")]
    listen: Option<Vec<String>>,
    /// Addresses for HTTP clients, separated by commas; an empty text for none [default:
    /// 127.0.0.1:8379]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', env = "BROOKLET_HTTP")]
    http: Option<Vec<String>>,
    /// The password for clients; required if other machines can connect
    #[arg(long, env = "BROOKLET_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// A file with the certificates for TLS, in PEM
    #[arg(long, value_name = "FILE", env = "BROOKLET_TLS_CERT")]
    tls_cert: Option<PathBuf>,
    /// A file with the key for TLS, in PEM
    #[arg(long, value_name = "FILE", env = "BROOKLET_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// Other users, each with its rules in Redis's language: in the file only, as a table
    #[arg(skip)]
    users: BTreeMap<String, String>,
    /// Most Redis clients at once [default: 10000]
    #[arg(long, value_name = "N", env = "BROOKLET_MAX_CLIENTS")]
    max_clients: Option<usize>,
    /// Seconds after which an idle Redis client is disconnected; 0 for never [default: 0]
    #[arg(long, value_name = "SECONDS", env = "BROOKLET_TIMEOUT")]
    timeout: Option<u64>,
    /// Seconds after which a Redis client that has not logged in is disconnected; 0 for never
    /// [default: 10]
    #[arg(long, value_name = "SECONDS", env = "BROOKLET_AUTH_TIMEOUT")]
    auth_timeout: Option<u64>,
    /// Bytes of memory for all Redis clients: requests, queued commands and replies [default: 512M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_CLIENT_MEMORY")]
    client_memory: Option<u64>,
    /// Most bytes of replies that a Redis client has not taken yet [default: 256M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_MAX_REPLY")]
    max_reply: Option<u64>,
    /// Most bytes of an element, a field or a value (K, M and G are understood) [default: 16M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_MAX_VALUE")]
    max_value: Option<u64>,
    /// Bytes of memory for the most recently used keys [default: 32M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_KEY_CACHE")]
    key_cache: Option<u64>,
    /// Size of the ring of a new store, in bytes [default: 256M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_RING_SIZE")]
    ring_size: Option<u64>,
    /// Bytes of memory for entries that are not in a run yet [default: 128M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_MEMORY")]
    memory: Option<u64>,
    /// Bytes of memory for look-ups of logs [default: 64M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_CACHE")]
    cache: Option<u64>,
    /// Number of threads for the connections of Redis clients [default: 1]
    #[arg(long, value_name = "N", env = "BROOKLET_THREADS")]
    threads: Option<usize>,
    /// Format of the messages on the standard error; RUST_LOG sets their level [default: text]
    #[arg(long, value_name = "FORM", env = "BROOKLET_LOG")]
    log: Option<LogForm>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum LogForm {
    Text,
    Json,
}

const RING: u64 = 256 << 20;
const MEMORY: u64 = 128 << 20;
const CACHE: u64 = 64 << 20;
const HTTP: &str = "127.0.0.1:8379";

impl Given {
    /// What counts where these do not say.
    fn or(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            http: self.http.or(other.http),
            password: self.password.or(other.password),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            users: if self.users.is_empty() { other.users } else { self.users },
            max_clients: self.max_clients.or(other.max_clients),
            timeout: self.timeout.or(other.timeout),
            auth_timeout: self.auth_timeout.or(other.auth_timeout),
            client_memory: self.client_memory.or(other.client_memory),
            max_reply: self.max_reply.or(other.max_reply),
            max_value: self.max_value.or(other.max_value),
            key_cache: self.key_cache.or(other.key_cache),
            ring_size: self.ring_size.or(other.ring_size),
            memory: self.memory.or(other.memory),
            cache: self.cache.or(other.cache),
            threads: self.threads.or(other.threads),
            log: self.log.or(other.log),
        }
    }

    fn defaults() -> Self {
        let config = Config::default();
        Self {
            listen: Some(config.redis.iter().map(Address::to_string).collect()),
            http: Some(vec![HTTP.into()]),
            max_clients: Some(config.settings.max_clients),
            timeout: Some(config.settings.timeout),
            auth_timeout: Some(config.settings.auth_timeout),
            client_memory: Some(config.settings.client_memory as u64),
            max_reply: Some(config.settings.hard_output as u64),
            max_value: Some(config.settings.max_bulk as u64),
            key_cache: Some(config.cache as u64),
            ring_size: Some(RING),
            memory: Some(MEMORY),
            cache: Some(CACHE),
            threads: Some(config.threads),
            log: Some(LogForm::Text),
            ..Self::default()
        }
    }

    /// What a server makes of it.
    fn config(&self) -> Result<Config, Failure> {
        let addresses = |all: &Option<Vec<String>>| -> Result<Vec<Address>, Failure> {
            let all = all.iter().flatten().filter(|text| !text.is_empty());
            all.map(|text| text.parse().map_err(|why: String| Failure::new(Kind::Usage, why))).collect()
        };
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => return Err(Failure::new(Kind::Usage, "TLS needs both a certificate and its key")),
        };
        let mut config = Config {
            redis: addresses(&self.listen)?,
            http: addresses(&self.http)?,
            tls,
            password: self.password.clone(),
            users: self.users.clone(),
            ..Config::default()
        };
        let settings = &mut config.settings;
        settings.max_clients = self.max_clients.unwrap_or(settings.max_clients);
        settings.timeout = self.timeout.unwrap_or(settings.timeout);
        settings.auth_timeout = self.auth_timeout.unwrap_or(settings.auth_timeout);
        settings.client_memory = self.client_memory.map_or(settings.client_memory, |bytes| bytes as usize);
        if let Some(bytes) = self.max_reply {
            settings.hard_output = bytes as usize;
            settings.soft_output = settings.soft_output.min(settings.hard_output / 4);
        }
        settings.max_bulk = self.max_value.map_or(settings.max_bulk, |bytes| bytes as usize);
        config.cache = self.key_cache.map_or(config.cache, |bytes| bytes as usize);
        config.threads = self.threads.unwrap_or(config.threads);
        Ok(config)
    }
}

impl Args {
    /// Whether the log is written as JSON. What the file says of that is read before anything else
    /// is done.
    pub fn logs_json(&self) -> bool {
        let of_file = || self.file().ok().and_then(|given| given.log);
        self.given.log.or_else(of_file) == Some(LogForm::Json)
    }

    fn file(&self) -> Result<Given, Failure> {
        let Some(path) = &self.config else { return Ok(Given::default()) };
        let text =
            std::fs::read_to_string(path).map_err(Failure::io(format!("reading {}", path.display())))?;
        toml::from_str(&text).map_err(|error| Failure::malformed(path, error))
    }
}

static STOP: OnceLock<CancellationToken> = OnceLock::new();

/// A signal asks for a clean stop the first time, and ends the process the second.
fn listen_for_signals() -> Result<CancellationToken, Failure> {
    let stop = STOP.get_or_init(CancellationToken::new).clone();
    let token = stop.clone();
    let listening = ctrlc::set_handler(move || {
        if token.is_cancelled() {
            std::process::exit(i32::from(Kind::Interrupted as u8));
        }
        token.cancel();
    });
    listening.map_err(|error| Failure::new(Kind::Io, format!("listening for signals failed: {error}")))?;
    Ok(stop)
}

pub fn run(args: Args, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let asked = args.given.clone().or(args.file()?);
    let given = asked.clone().or(Given::defaults());
    if args.print_config {
        let text = toml::to_string(&given).map_err(|error| Failure::new(Kind::Io, error.to_string()))?;
        out.line(text.trim_end())?;
        return out.document(&given);
    }
    let mut config = given.config()?;
    descriptors::fit(&mut config);
    let stop = listen_for_signals()?;
    let payload = config.settings.max_bulk + (1 << 10);
    let options = store_args
        .options()?
        .create(Create::IfMissing)
        .ring_size(given.ring_size.unwrap_or(RING))
        .memory_budget(given.memory.unwrap_or(MEMORY) as usize)
        .cache_budget(given.cache.unwrap_or(CACHE) as usize);
    let store = match options.clone().max_payload(payload).open(&args.store) {
        // The ring takes less, and nobody asked for so much: values are as large as it takes.
        Err(brooklet::Error::InvalidOptions(_)) if asked.max_value.is_none() => options.open(&args.store)?,
        opened => opened?,
    };
    let ready = |addresses: &Addresses| {
        tracing::info!(store = %args.store.display(), redis = ?addresses.redis, http = ?addresses.http, "ready");
        tell_ready();
        if let Err(failure) = tell(out, addresses) {
            tracing::debug!(?failure, "the server could not print its addresses");
        }
    };
    brooklet_server::serve(store, &config, ready, stop).map_err(|error| match error {
        Error::Store(error) => error.into(),
        Error::Config(why) => Failure::new(Kind::Usage, why),
        other => Failure::new(Kind::Io, other.to_string()),
    })?;
    tracing::info!("stopped; all acknowledged commits are on stable media");
    Ok(())
}

/// Tells where clients come in.
fn tell(out: &mut Output, addresses: &Addresses) -> Result<(), Failure> {
    for (frontend, all) in [("Redis", &addresses.redis), ("HTTP", &addresses.http)] {
        all.iter().try_for_each(|at| out.line(format_args!("{frontend} at {at}")))?;
    }
    out.document(addresses)?;
    out.flush()
}

/// Tells a service manager that clients can come in.
fn tell_ready() {
    #[cfg(target_os = "linux")]
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        tracing::warn!(%error, "the server could not notify the service manager");
    }
}
