//! A server: its faces, started and stopped together.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brooklet::Store;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::sync::CancellationToken;

use crate::net::{Address, Listener};
use crate::redis::{Settings, Shared, Users};

/// What a server serves, where, and for whom.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where Redis clients come in.
    pub redis: Vec<Address>,
    /// Where those of HTTP do.
    pub http: Vec<Address>,
    /// Certificate and key, both in PEM, for TLS on the TCP ports of Redis clients.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The password of the user `default`.
    pub password: Option<String>,
    /// Other users, and `default`, by their rules in Redis's language.
    pub users: BTreeMap<String, String>,
    /// Limits for Redis clients.
    pub settings: Settings,
    /// Bytes of memory for the keys that Redis clients used last.
    pub cache: usize,
    /// Threads that move the bytes of Redis clients. Their commands are done one after another all the same.
    pub threads: usize,
}

impl Default for Config {
    /// Redis clients of this machine, at their usual port, may do everything.
    fn default() -> Self {
        Self {
            redis: vec![Address::Tcp("127.0.0.1:6379".into())],
            http: Vec::new(),
            tls: None,
            password: None,
            users: BTreeMap::new(),
            settings: Settings::default(),
            cache: 32 << 20,
            threads: 1,
        }
    }
}

/// Why a server could not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What it is to do makes no sense.
    #[error("{0}")]
    Config(String),
    /// A place to listen at cannot be had.
    #[error("listening at {address} failed: {source}")]
    Listen {
        /// The place.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives no threads, or no polling.
    #[error("starting the server failed: {0}")]
    Start(io::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] brooklet::Error),
}

/// Where a server listens, as clients name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Addresses {
    /// For Redis clients.
    pub redis: Vec<String>,
    /// For those of HTTP.
    pub http: Vec<String>,
}

impl Config {
    fn users(&self) -> Result<Users, Error> {
        let mut users = Users::new(self.password.as_deref());
        for (name, rules) in &self.users {
            let set = users.set(name, rules.split_whitespace());
            set.map_err(|why| Error::Config(format!("user {name}: {why}")))?;
        }
        Ok(users)
    }
}

/// Reads certificates and key.
fn tls(certificate: &Path, key: &Path) -> Result<Arc<rustls::ServerConfig>, Error> {
    let wrong =
        |file: &Path, why: &dyn std::fmt::Display| Error::Config(format!("{}: {why}", file.display()));
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain: Vec<CertificateDer<'static>> = chain.map_err(|error| wrong(certificate, &error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(certificate, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| wrong(certificate, &error))?;
    Ok(Arc::new(config))
}

async fn bind(
    addresses: &[Address],
    tls: Option<&Arc<rustls::ServerConfig>>,
) -> Result<Vec<Listener>, Error> {
    let mut listeners = Vec::new();
    for address in addresses {
        let bound = Listener::bind(address, tls).await;
        listeners.push(bound.map_err(|source| Error::Listen { address: address.to_string(), source })?);
    }
    Ok(listeners)
}

/// Serves a store until told to stop; then what was acknowledged has left, and the store is closed.
///
/// `ready` is called once clients can come in.
///
/// # Errors
/// Nothing was served. Or the store failed as it was closed.
pub fn serve(
    store: Store,
    config: &Config,
    ready: impl FnOnce(&Addresses),
    stop: CancellationToken,
) -> Result<(), Error> {
    let users = config.users()?;
    let tls = config.tls.as_ref().map(|(certificate, key)| tls(certificate, key)).transpose()?;
    let mut builder = match config.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder
        .worker_threads(config.threads.max(1))
        .thread_name("brooklet-redis")
        .enable_all()
        .build()
        .map_err(Error::Start)?;
    runtime.block_on(async {
        let redis = bind(&config.redis, tls.as_ref()).await?;
        let is_open = users.stranger().is_some();
        if let Some(wide) = redis.iter().find(|listener| listener.is_wide()).filter(|_| is_open) {
            let address = wide.address();
            return Err(Error::Config(format!(
                "{address} can be reached from other machines, and no password is set: set one, or listen on 127.0.0.1"
            )));
        }
        let shared = Shared::new(store.clone(), users, config.settings.clone(), config.cache);
        let addresses = |all: &[Listener]| all.iter().map(Listener::address).collect();
        ready(&Addresses { redis: addresses(&redis), http: Vec::new() });
        shared.serve(redis, stop).await;
        Ok(())
    })?;
    drop(runtime);
    Ok(store.close()?)
}
