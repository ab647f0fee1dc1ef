//! TLS: the certificate of the server, and the certificates of clients.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// The files for TLS, all in PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Path of the certificate of the server, and of the certificates between it and its root.
    pub certificate: PathBuf,
    /// Path of the key of the certificate.
    pub key: PathBuf,
    /// Path of root certificates: a Redis client needs a certificate of one of these. `None`: no
    /// client needs a certificate.
    pub client_roots: Option<PathBuf>,
}

/// Returns the message about a defect of a file.
fn wrong(file: &Path, why: &dyn fmt::Display) -> String {
    format!("{}: {why}", file.display())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = found.map_err(|error| wrong(path, &error))?;
    if found.is_empty() { Err(wrong(path, &"it has no certificate in PEM")) } else { Ok(found) }
}

impl Tls {
    /// Reads the files for the ports of Redis clients.
    pub(crate) fn for_redis(&self) -> Result<Arc<ServerConfig>, String> {
        Ok(Arc::new(self.config(self.client_roots.as_deref())?))
    }

    /// Reads the files for the ports of HTTP clients, who need no certificate.
    pub(crate) fn for_http(&self) -> Result<Arc<ServerConfig>, String> {
        let mut config = self.config(None)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn config(&self, client_roots: Option<&Path>) -> Result<ServerConfig, String> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| wrong(&self.key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&self.certificate, &error))?;
        let config = match client_roots {
            None => config.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for root in certificates(path)? {
                    roots.add(root).map_err(|error| wrong(path, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                config.with_client_cert_verifier(verifier.map_err(|error| wrong(path, &error))?)
            }
        };
        config.with_single_cert(chain, key).map_err(|error| wrong(&self.certificate, &error))
    }
}
