//! TLS for both frontends, and certificates of clients.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brooklet::Store;
use brooklet_server::{Config, Error, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::redis::client::{Client, Server, encode};

/// A certificate for the server, and its files.
struct Place {
    _dir: TempDir,
    root: CertificateDer<'static>,
    tls: Tls,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let [certificate, key] = ["cert.pem", "key.pem"].map(|name| dir.path().join(name));
        fs::write(&certificate, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let tls = Tls { certificate, key, client_roots: None };
        Self { root: made.cert.der().clone(), tls, _dir: dir }
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.tls.key.with_file_name(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Connects, with a certificate of the client or none.
    fn connect(&self, address: &str, own: Option<&Own>) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(roots);
        let config = match own {
            None => config.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::try_from(own.key.serialize_der()).unwrap();
                config.with_client_auth_cert(vec![own.certificate.clone()], key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
    }
}

/// A certificate of a client.
struct Own {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

/// Returns the certificate of a new root, in PEM, and a client's certificate of it.
fn new_root() -> (String, Own) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_key = KeyPair::generate().unwrap();
    let root = params.self_signed(&root_key).unwrap();
    let issuer = Issuer::from_params(&params, &root_key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["client".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    (root.pem(), Own { certificate: own.der().clone(), key })
}

fn server(config: Config) -> Server {
    let http = vec!["127.0.0.1:0".parse().unwrap()];
    Server::with(Store::in_memory(1).unwrap(), Config { http, ..config })
}

#[test]
fn tls_is_spoken_where_there_is_a_certificate() {
    let place = Place::new();
    let tls = Some(place.tls.clone());
    let server = server(Config { tls, ..Config::default() });
    let mut client = Client::over(place.connect(&server.address, None));
    let large = "x".repeat(300_000);
    assert_eq!(client.ask(&["RPUSH", "l", &large, "y"]), ":2");
    assert_eq!(client.say("LINDEX l 0"), large);
    let mut pipeline = Client::over(place.connect(&server.address, None));
    pipeline.send(&encode(&["LLEN", "l"]).repeat(1000));
    assert!((0..1000).all(|_| pipeline.reply() == ":2"));
    // Who does not speak it is let go of, and keeps nobody else out.
    let mut plain = TcpStream::connect(&server.address).unwrap();
    plain.write_all(&encode(&["PING"])).unwrap();
    let mut said = Vec::new();
    drop(plain.read_to_end(&mut said));
    assert!(!said.windows(4).any(|part| part == b"PONG"));
    assert_eq!(client.say("LLEN l"), ":2");
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let place = Place::new();
    let Tls { certificate, key, .. } = place.tls.clone();
    let nothing = place.file("nothing.pem", "");
    for tls in [
        Tls { certificate: key.clone(), key: certificate.clone(), client_roots: None },
        Tls { certificate: nothing.clone(), ..place.tls.clone() },
        Tls { client_roots: Some(nothing.clone()), ..place.tls.clone() },
        Tls { client_roots: Some(place.file("not.pem", "not a certificate")), ..place.tls.clone() },
        Tls { client_roots: Some("missing.pem".into()), ..place.tls.clone() },
    ] {
        let config = Config { tls: Some(tls.clone()), ..Config::default() };
        let started = Server::at(Store::in_memory(1).unwrap(), config);
        assert!(matches!(started, Err(Error::Config(_))), "{tls:?}");
    }
}

#[test]
fn redis_clients_show_a_certificate_where_one_is_asked() {
    let place = Place::new();
    let ((root, own), (_, other)) = (new_root(), new_root());
    let tls = Tls { client_roots: Some(place.file("roots.pem", &root)), ..place.tls.clone() };
    let server = server(Config { tls: Some(tls), ..Config::default() });
    for stranger in [None, Some(&other)] {
        let mut stream = place.connect(&server.address, stranger);
        // The client learns of the refusal when it reads, or when it writes.
        let mut said = Vec::new();
        drop(stream.write_all(&encode(&["SET", "a", "b"])));
        drop(stream.read_to_end(&mut said));
        assert_eq!(said, b"");
    }
    let mut client = Client::over(place.connect(&server.address, Some(&own)));
    assert_eq!(client.say("GET a"), "nil");
    // A browser has no such certificate.
    assert!(get(&place, &server, "/healthz").starts_with("HTTP/1.1 200 "));
}

/// Asks over TLS for a path.
fn get(place: &Place, server: &Server, path: &str) -> String {
    ask(place, server, &format!("GET {path}"))
}

/// Sends a request without a body over TLS.
fn ask(place: &Place, server: &Server, request: &str) -> String {
    let mut stream = place.connect(&server.http, None);
    let headers = format!("host: {}\r\ncontent-length: 0\r\nconnection: close", server.http);
    stream.write_all(format!("{request} HTTP/1.1\r\n{headers}\r\n\r\n").as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// In the old state the address of a new stream was one of HTTP without TLS.
#[test]
fn a_stream_is_where_the_server_says() {
    let place = Place::new();
    let server = server(Config { tls: Some(place.tls.clone()), ..Config::default() });
    let made = ask(&place, &server, "PUT /v1/stream/s");
    assert!(made.starts_with("HTTP/1.1 201 "), "{made}");
    assert!(made.contains(&format!("location: https://{}/v1/stream/s\r\n", server.http)), "{made}");
}

#[test]
fn http_speaks_tls_and_waits_for_nobody() {
    let place = Place::new();
    let mut config = Config { tls: Some(place.tls.clone()), ..Config::default() };
    config.streams.patience = Duration::from_secs(4);
    let server = server(config);
    // They do not begin the handshake, or not end it, or do not speak TLS.
    let silent = [&b""[..], b"\x16\x03\x01", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"];
    let mut silent = silent.map(|begin| {
        let mut stream = TcpStream::connect(&server.http).unwrap();
        stream.write_all(begin).unwrap();
        stream
    });
    for path in ["/healthz", "/api/logs", "/v1/stream/none"] {
        let status = if path == "/v1/stream/none" { "404" } else { "200" };
        assert!(get(&place, &server, path).starts_with(&format!("HTTP/1.1 {status} ")), "{path}");
    }
    // In the end the server lets go of them.
    for stream in &mut silent {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut said = Vec::new();
        let ended = stream.read_to_end(&mut said);
        let is_late = ended.is_err_and(|error| {
            matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
        });
        assert!(!is_late && !String::from_utf8_lossy(&said).contains("HTTP/"));
    }
}
