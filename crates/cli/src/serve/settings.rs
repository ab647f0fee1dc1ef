//! The settings of a server: their sources, their order, and their defaults.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use brooklet_server::{Address, Config, Tls};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::secrets::{self, Hidden};
use crate::failure::{Failure, Kind};
use crate::mode::Mode;
use crate::size::size;
use crate::time::Setting;

/// Times whose numbers without a unit are seconds, milliseconds, days.
pub type Seconds = Setting<1000>;
type Millis = Setting<1>;
pub type Days = Setting<{ 24 * 3_600_000 }>;

/// The settings of one source; an unset one is taken from the next source, or from the defaults.
#[derive(clap::Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Given {
    /// Addresses for Redis clients: HOST:PORT or unix:PATH, separated by commas [default:
    /// 127.0.0.1:6379]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', env = "BROOKLET_LISTEN")]
    listen: Option<Vec<String>>,
    /// Addresses for HTTP clients, separated by commas; an empty text for none [default:
    /// 127.0.0.1:8379]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', env = "BROOKLET_HTTP")]
    http: Option<Vec<String>>,
    /// Origins whose web pages may use HTTP, separated by commas: SCHEME://HOST:PORT, or * for all
    /// [default: none]
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',', env = "BROOKLET_ALLOW_ORIGIN")]
    allow_origin: Option<Vec<String>>,
    /// The password for clients; required if other machines can connect. Other users of this
    /// machine can see the arguments of a process: prefer --password-file
    #[arg(long, env = "BROOKLET_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,
    /// A file with the password for clients
    #[arg(long, value_name = "FILE", env = "BROOKLET_PASSWORD_FILE")]
    pub password_file: Option<PathBuf>,
    /// Permissions of Unix sockets, in octal, such as 660 [default: 600]
    #[arg(long, value_name = "MODE", env = "BROOKLET_UNIX_SOCKET_MODE")]
    unix_socket_mode: Option<Mode>,
    /// A file with the certificates for TLS, in PEM
    #[arg(long, value_name = "FILE", env = "BROOKLET_TLS_CERT")]
    tls_cert: Option<PathBuf>,
    /// A file with the key for TLS, in PEM
    #[arg(long, value_name = "FILE", env = "BROOKLET_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// A file with root certificates, in PEM: Redis clients then need a certificate of one of these
    #[arg(long, value_name = "FILE", env = "BROOKLET_TLS_CLIENT_CA")]
    tls_client_ca: Option<PathBuf>,
    /// Other users, each with its rules in Redis's language: in the file only, as a table
    #[arg(skip)]
    pub users: BTreeMap<String, String>,
    /// Most Redis clients at once [default: 10000]
    #[arg(long, value_name = "N", env = "BROOKLET_MAX_CLIENTS")]
    max_clients: Option<usize>,
    /// Time after which an idle Redis client is disconnected, such as 5m; a number alone counts
    /// seconds; 0 for never [default: 0]
    #[arg(long, value_name = "TIME", env = "BROOKLET_TIMEOUT")]
    timeout: Option<Seconds>,
    /// Time after which a Redis client that has not logged in is disconnected; a number alone
    /// counts seconds; 0 for never [default: 10]
    #[arg(long, value_name = "TIME", env = "BROOKLET_AUTH_TIMEOUT")]
    auth_timeout: Option<Seconds>,
    /// Bytes of memory for all Redis clients: requests, queued commands and replies [default: 512M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_CLIENT_MEMORY")]
    client_memory: Option<u64>,
    /// Most bytes of replies that a Redis client has not taken yet [default: 256M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_MAX_REPLY")]
    max_reply: Option<u64>,
    /// Bytes of memory for all bodies of HTTP requests that arrive at once [default: 256M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_HTTP_BODY_MEMORY")]
    http_body_memory: Option<u64>,
    /// Bytes of memory for all replies to HTTP clients that leave at once [default: 256M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_HTTP_REPLY_MEMORY")]
    http_reply_memory: Option<u64>,
    /// Longest time of a script, in which other Redis clients wait; a number alone counts
    /// milliseconds; 0 for no limit [default: 50]
    #[arg(long, value_name = "TIME", env = "BROOKLET_SCRIPT_TIME")]
    script_time: Option<Millis>,
    /// Most bytes of memory of a script [default: 16M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_SCRIPT_MEMORY")]
    script_memory: Option<u64>,
    /// Classes of keyspace notifications that are published, in Redis's letters [default: none]
    #[arg(long, value_name = "CLASSES", env = "BROOKLET_NOTIFY_KEYSPACE_EVENTS")]
    notify_keyspace_events: Option<String>,
    /// Most bytes of an element, a field or a value (K, M and G are understood) [default: 16M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_MAX_VALUE")]
    pub max_value: Option<u64>,
    /// Bytes of memory for the most recently used keys [default: 32M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_KEY_CACHE")]
    key_cache: Option<u64>,
    /// Size of the ring of a new store, in bytes [default: 256M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_RING_SIZE")]
    pub ring_size: Option<u64>,
    /// Bytes of memory for entries that are not in a run yet [default: 128M]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_MEMORY")]
    pub memory: Option<u64>,
    /// Bytes of memory for look-ups of logs [default: 64M, or 32M and 2 bytes for each log of the
    /// largest run if that is more]
    #[arg(long, value_parser = size, value_name = "BYTES", env = "BROOKLET_CACHE")]
    pub cache: Option<u64>,
    /// Number of threads for the connections of Redis clients [default: 1]
    #[arg(long, value_name = "N", env = "BROOKLET_THREADS")]
    threads: Option<usize>,
    /// A place for the store's log: another host can go on from there. In a bucket, such as
    /// s3://bucket/path; or a stream of NATS JetStream, as nats://HOST:PORT,HOST:PORT/STREAM
    /// [default: none]
    #[arg(long, value_name = "PLACE", env = "BROOKLET_REPLICATE", hide_env_values = true)]
    pub replicate: Option<String>,
    /// The place of a cluster in a bucket, such as s3://bucket/cluster: this host serves one of its
    /// shards, or stands by for it [default: none]
    #[arg(long, value_name = "PLACE", env = "BROOKLET_CLUSTER")]
    pub cluster: Option<String>,
    /// With --cluster: the shard that this server is for
    #[arg(long, value_name = "NAME", env = "BROOKLET_SHARD")]
    pub shard: Option<String>,
    /// With --cluster: the name of this host in the cluster [default: its host name]
    #[arg(long, value_name = "NAME", env = "BROOKLET_HOST")]
    pub host: Option<String>,
    /// With --replicate: a place in a bucket for backups, required for a stream [default: below the
    /// log, in a bucket]
    #[arg(long, value_name = "BUCKET", env = "BROOKLET_BACKUPS")]
    pub backups: Option<String>,
    /// With --replicate: a commit is acknowledged when it is kept in the bucket, or when it is
    /// durable here [default: kept]
    #[arg(long, value_name = "WHEN", env = "BROOKLET_ACKNOWLEDGE")]
    pub acknowledge: Option<Acknowledge>,
    /// With --replicate: URL at which clients reach this host over HTTP, such as
    /// http://10.0.0.5:8379: standbys send them there while this host owns the store [default: none]
    #[arg(long, value_name = "URL", env = "BROOKLET_ADVERTISE")]
    pub advertise: Option<String>,
    /// With --replicate: wait until the owner of the store is gone, then take the store over
    #[arg(long, num_args = 0..=1, default_missing_value = "true", env = "BROOKLET_STANDBY")]
    pub standby: Option<bool>,
    /// With --replicate: serve the reads of a copy that follows the log of the store, and never
    /// take the store over
    #[arg(long, num_args = 0..=1, default_missing_value = "true", env = "BROOKLET_READ_REPLICA")]
    pub read_replica: Option<bool>,
    /// With --standby: time without a sign of the owner after which it is gone, 2s or more; a
    /// number alone counts seconds [default: 3]
    #[arg(long, value_name = "TIME", env = "BROOKLET_TAKEOVER_AFTER")]
    pub takeover_after: Option<Seconds>,
    /// With --replicate: time between two backups to the bucket, which shorten the log there, 1s or
    /// more; a number alone counts seconds; a log of 256 MiB, or of 20000 objects, is backed up
    /// sooner [default: 3600]
    #[arg(long, value_name = "TIME", env = "BROOKLET_BACKUP_EVERY")]
    pub backup_every: Option<Seconds>,
    /// With --replicate: time for which backups in the bucket are kept, 1h or more; a number alone
    /// counts days; the newest backup stays [default: 7]
    #[arg(long, value_name = "TIME", env = "BROOKLET_KEEP_BACKUPS")]
    pub keep_backups: Option<Days>,
    /// Format of the messages on the standard error; RUST_LOG sets their level [default: text]
    #[arg(long, value_name = "FORM", env = "BROOKLET_LOG")]
    pub log: Option<LogForm>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LogForm {
    Text,
    Json,
}

/// The event that acknowledges a commit.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Acknowledge {
    /// The commit is durable here, and in the bucket.
    Kept,
    /// The commit is durable here. The loss of this host may cost the last commits.
    Local,
}

pub const TAKEOVER_AFTER: Seconds = Setting::units(3);
pub const BACKUP_EVERY: Seconds = Setting::units(3600);
pub const KEEP_BACKUPS: Days = Setting::units(7);
pub const RING: u64 = 256 << 20;
pub const MEMORY: u64 = 128 << 20;
const HTTP: &str = "127.0.0.1:8379";

impl Given {
    /// What counts where these do not say.
    pub fn or(self, other: Self) -> Self {
        // A variable that a shell left empty is not set. A password, as text or as a file, hides
        // both of the next source.
        let password = self.password.filter(|password| !password.is_empty());
        let (password, password_file) = match (password, self.password_file) {
            (None, None) => (other.password, other.password_file),
            own => own,
        };
        Self {
            listen: self.listen.or(other.listen),
            http: self.http.or(other.http),
            allow_origin: self.allow_origin.or(other.allow_origin),
            password,
            password_file,
            unix_socket_mode: self.unix_socket_mode.or(other.unix_socket_mode),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_client_ca: self.tls_client_ca.or(other.tls_client_ca),
            users: if self.users.is_empty() { other.users } else { self.users },
            max_clients: self.max_clients.or(other.max_clients),
            timeout: self.timeout.or(other.timeout),
            auth_timeout: self.auth_timeout.or(other.auth_timeout),
            client_memory: self.client_memory.or(other.client_memory),
            max_reply: self.max_reply.or(other.max_reply),
            http_body_memory: self.http_body_memory.or(other.http_body_memory),
            http_reply_memory: self.http_reply_memory.or(other.http_reply_memory),
            script_time: self.script_time.or(other.script_time),
            script_memory: self.script_memory.or(other.script_memory),
            notify_keyspace_events: self.notify_keyspace_events.or(other.notify_keyspace_events),
            max_value: self.max_value.or(other.max_value),
            key_cache: self.key_cache.or(other.key_cache),
            ring_size: self.ring_size.or(other.ring_size),
            memory: self.memory.or(other.memory),
            cache: self.cache.or(other.cache),
            threads: self.threads.or(other.threads),
            replicate: self.replicate.or(other.replicate),
            cluster: self.cluster.or(other.cluster),
            shard: self.shard.or(other.shard),
            host: self.host.or(other.host),
            backups: self.backups.or(other.backups),
            acknowledge: self.acknowledge.or(other.acknowledge),
            advertise: self.advertise.or(other.advertise),
            standby: self.standby.or(other.standby),
            read_replica: self.read_replica.or(other.read_replica),
            takeover_after: self.takeover_after.or(other.takeover_after),
            backup_every: self.backup_every.or(other.backup_every),
            keep_backups: self.keep_backups.or(other.keep_backups),
            log: self.log.or(other.log),
        }
    }

    pub fn defaults() -> Self {
        let config = Config::default();
        Self {
            listen: Some(config.redis.iter().map(Address::to_string).collect()),
            http: Some(vec![HTTP.into()]),
            allow_origin: Some(Vec::new()),
            unix_socket_mode: Some(Mode(config.unix_socket_mode)),
            max_clients: Some(config.settings.max_clients),
            timeout: Some(Setting::units(config.settings.timeout)),
            auth_timeout: Some(Setting::units(config.settings.auth_timeout)),
            client_memory: Some(config.settings.client_memory as u64),
            max_reply: Some(config.settings.hard_output as u64),
            http_body_memory: Some(config.streams.body_budget as u64),
            http_reply_memory: Some(config.streams.reply_budget as u64),
            script_time: Some(Setting::units(config.settings.script_time)),
            script_memory: Some(config.settings.script_memory as u64),
            notify_keyspace_events: Some(String::new()),
            max_value: Some(config.settings.max_bulk as u64),
            key_cache: Some(config.cache as u64),
            ring_size: Some(RING),
            memory: Some(MEMORY),
            threads: Some(config.threads),
            acknowledge: Some(Acknowledge::Kept),
            standby: Some(false),
            read_replica: Some(false),
            takeover_after: Some(TAKEOVER_AFTER),
            backup_every: Some(BACKUP_EVERY),
            keep_backups: Some(KEEP_BACKUPS),
            log: Some(LogForm::Text),
            ..Self::default()
        }
    }

    /// Refuses settings of replication that cannot be.
    pub fn check_replication(&self) -> Result<(), Failure> {
        let least = |given: Option<Duration>, least| given.is_some_and(|time| time < least);
        if least(self.takeover_after.map(Setting::time), Duration::from_secs(2)) {
            let what = "--takeover-after is less than 2 seconds: owners give a sign each second";
            return Err(Failure::new(Kind::Usage, what));
        }
        if least(self.backup_every.map(Setting::time), Duration::from_secs(1)) {
            return Err(Failure::new(Kind::Usage, "--backup-every is less than 1 second: use at least 1s"));
        }
        if least(self.keep_backups.map(Setting::time), Duration::from_secs(3600)) {
            let what = "--keep-backups is less than 1 hour: a takeover may be reading the last backup; use at least 1h";
            return Err(Failure::new(Kind::Usage, what));
        }
        if let Some(url) = self.advertise.as_ref().filter(|url| !url.is_empty()) {
            let checked = brooklet_server::standby::base_url(url);
            checked.map_err(|why| Failure::new(Kind::Usage, format!("--advertise: {why}")))?;
        }
        Hidden::refuse(self.replicate.iter())?;
        self.check_cluster()?;
        let log = &self.log();
        let has_backups = set(&self.backups).is_some();
        if log.as_ref().is_some_and(|log| secrets::is_stream(log)) && !has_backups {
            let what = "--replicate names a stream of NATS JetStream: it needs --backups BUCKET, because backups have no place in a stream";
            return Err(Failure::new(Kind::Usage, what));
        }
        if has_backups && log.is_none() {
            let what = "--backups needs --replicate: `brooklet archive` makes backups of a store without a log elsewhere";
            return Err(Failure::new(Kind::Usage, what));
        }
        if self.standby == Some(true) && log.is_none() {
            let what = "--standby needs --replicate: a standby takes over the store of a bucket";
            return Err(Failure::new(Kind::Usage, what));
        }
        if self.read_replica == Some(true) {
            let what = match (log.is_some(), self.standby) {
                (false, _) => "--read-replica needs --replicate: it follows the log in a bucket",
                (true, Some(true)) => {
                    "--read-replica and --standby: a standby takes the store over, a read replica never does; start one server of each"
                }
                _ => return Ok(()),
            };
            return Err(Failure::new(Kind::Usage, what));
        }
        Ok(())
    }

    fn check_cluster(&self) -> Result<(), Failure> {
        let cluster = set(&self.cluster);
        let what = match (cluster, set(&self.shard)) {
            (None, Some(_)) => "--shard needs --cluster: it is the name of a shard in the map of a cluster",
            (None, None) if set(&self.host).is_some() => {
                "--host needs --cluster: it is the name of this host in the map of a cluster"
            }
            (None, None) => return Ok(()),
            (Some(_), None) => "--cluster needs --shard: one server is for one shard",
            (Some(_), Some(_)) if set(&self.replicate).is_some() => {
                "--cluster and --replicate: a shard has its log below the place of the cluster; leave --replicate out"
            }
            (Some(_), Some(_)) if self.read_replica == Some(true) => {
                "--cluster and --read-replica: a read replica is no host of a shard; use --replicate PLACE/shards/NAME"
            }
            (Some(place), Some(_)) if secrets::is_stream(place) => {
                "--cluster names a stream of NATS JetStream: the map of a cluster needs a bucket"
            }
            (Some(_), Some(_)) => return Ok(()),
        };
        Err(Failure::new(Kind::Usage, what))
    }

    /// Returns the place of the cluster, the shard, and the name of this host.
    #[cfg(feature = "replicate")]
    pub fn in_cluster(&self) -> Option<(String, String, String)> {
        let host = set(&self.host).map_or_else(super::replicate::host_name, str::to_owned);
        Some((set(&self.cluster)?.to_owned(), set(&self.shard)?.to_owned(), host))
    }

    /// Returns the place of the store's log, if it has one.
    pub fn log(&self) -> Option<String> {
        let of_shard = || {
            let (cluster, shard) = (set(&self.cluster)?, set(&self.shard)?);
            Some(format!("{}/shards/{shard}", cluster.trim_end_matches('/')))
        };
        set(&self.replicate).map(str::to_owned).or_else(of_shard)
    }

    /// Returns the password, from where it is.
    fn password(&self) -> Result<Option<String>, Failure> {
        match (&self.password, &self.password_file) {
            (Some(_), Some(_)) => {
                let what = "the password is given as a text and as a file: give one of them";
                Err(Failure::new(Kind::Usage, what))
            }
            (None, Some(file)) => secrets::read(file).map(Some),
            (password, None) => Ok(password.clone()),
        }
    }

    /// Returns the settings as they may be shown: without secrets.
    pub fn shown(&self) -> Self {
        let password = self.password.as_ref().map(|_| Hidden::TEXT.to_owned());
        let users = self.users.iter().map(|(name, rules)| (name.clone(), Hidden::rules(rules)));
        let replicate = self.replicate.as_deref().map(Hidden::address);
        Self { password, users: users.collect(), replicate, ..self.clone() }
    }

    /// What a server makes of it.
    pub fn config(&self) -> Result<Config, Failure> {
        let addresses = |all: &Option<Vec<String>>| -> Result<Vec<Address>, Failure> {
            let all = all.iter().flatten().filter(|text| !text.is_empty());
            all.map(|text| text.parse().map_err(|why: String| Failure::new(Kind::Usage, why))).collect()
        };
        let origins = self.allow_origin.iter().flatten().filter(|text| !text.is_empty());
        let origins: Result<_, Failure> =
            origins.map(|text| text.parse().map_err(|why: String| Failure::new(Kind::Usage, why))).collect();
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                let client_roots = self.tls_client_ca.clone();
                Some(Tls { certificate: certificate.clone(), key: key.clone(), client_roots })
            }
            (None, None) if self.tls_client_ca.is_none() => None,
            _ => return Err(Failure::new(Kind::Usage, "TLS needs both a certificate and its key")),
        };
        Hidden::refuse(self.password.iter().chain(self.users.values()))?;
        let mut config = Config {
            redis: addresses(&self.listen)?,
            http: addresses(&self.http)?,
            tls,
            password: self.password()?,
            users: self.users.clone(),
            ..Config::default()
        };
        let streams = &mut config.streams;
        streams.allow_origins = origins?;
        streams.body_budget = self.http_body_memory.map_or(streams.body_budget, |bytes| bytes as usize);
        streams.reply_budget = self.http_reply_memory.map_or(streams.reply_budget, |bytes| bytes as usize);
        config.unix_socket_mode = self.unix_socket_mode.map_or(config.unix_socket_mode, |mode| mode.0);
        let settings = &mut config.settings;
        settings.max_clients = self.max_clients.unwrap_or(settings.max_clients);
        settings.timeout = seconds("--timeout", self.timeout)?.unwrap_or(settings.timeout);
        settings.auth_timeout =
            seconds("--auth-timeout", self.auth_timeout)?.unwrap_or(settings.auth_timeout);
        settings.client_memory = self.client_memory.map_or(settings.client_memory, |bytes| bytes as usize);
        if let Some(bytes) = self.max_reply {
            settings.hard_output = bytes as usize;
            settings.soft_output = settings.soft_output.min(settings.hard_output / 4);
        }
        settings.script_time = self.script_time.and_then(Setting::whole).unwrap_or(settings.script_time);
        settings.script_memory = self.script_memory.map_or(settings.script_memory, |bytes| bytes as usize);
        let events = self.notify_keyspace_events.as_deref().unwrap_or_default();
        settings.set("notify-keyspace-events", events).map_err(|_| {
            let what = format!(
                "{events:?} are no classes of keyspace notifications: use letters of Ag$lshzxeKEtmdn"
            );
            Failure::new(Kind::Usage, what)
        })?;
        settings.max_bulk = self.max_value.map_or(settings.max_bulk, |bytes| bytes as usize);
        config.cache = self.key_cache.map_or(config.cache, |bytes| bytes as usize);
        config.threads = self.threads.unwrap_or(config.threads);
        Ok(config)
    }
}

/// Returns a time that the server counts in whole seconds.
fn seconds(flag: &str, given: Option<Seconds>) -> Result<Option<u64>, Failure> {
    let whole = |time: Seconds| {
        let what = || Failure::new(Kind::Usage, format!("{flag} is no whole number of seconds"));
        time.whole().ok_or_else(what)
    };
    given.map(whole).transpose()
}

/// Returns a text that is set. A variable that a shell left empty is not.
fn set(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}
