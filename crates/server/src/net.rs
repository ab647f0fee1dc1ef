//! The addresses and connections of clients: TCP, TLS and Unix sockets.

use std::fmt;
use std::fs::Permissions;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixSocket, UnixStream, lookup_host};
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// Pause after a failure to accept a client, in which other clients may leave.
pub const RELIEF: Duration = Duration::from_millis(100);

/// Longest wait for clients at the end of a server that is in a hurry.
pub const HURRY: Duration = Duration::from_millis(300);

/// Silence of a client after which the system asks whether the client is still there, time between
/// two such questions, and their number before the connection ends, as in Redis.
const SILENCE: Duration = Duration::from_secs(300);
const ASK_EVERY: Duration = Duration::from_secs(100);
const ASKED: u32 = 3;

/// Steps of handshakes of HTTP clients that are computed at once, beside the requests.
const STEPS: usize = 2;
static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(STEPS)));

/// An address to listen at: `HOST:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host name and a TCP port.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("a Unix socket needs a path: unix:/run/brooklet.sock".into()),
            Some(path) => Ok(Self::Unix(path.into())),
            None if text
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) =>
            {
                Ok(Self::Tcp(text.into()))
            }
            None => Err(format!("{text} is not an address: use HOST:PORT, or unix:PATH")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(text) => f.write_str(text),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// Returns whether other machines can reach the address. A name that has no address now is not
    /// reached; listening there reports the error.
    pub fn is_wide(&self) -> bool {
        match self {
            Self::Tcp(text) => {
                text.to_socket_addrs().is_ok_and(|mut all| all.any(|at| !at.ip().is_loopback()))
            }
            Self::Unix(_) => false,
        }
    }
}

impl Address {
    /// Returns an error if nobody could listen at the address now. The call never listens, so that
    /// no client connects.
    pub fn expect_free(&self) -> io::Result<()> {
        match self {
            Self::Tcp(text) => {
                let mut refused =
                    io::Error::new(io::ErrorKind::AddrNotAvailable, format!("{text} has no address"));
                for address in text.to_socket_addrs()? {
                    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                    socket.set_reuseaddr(true)?;
                    match socket.bind(address) {
                        Ok(()) => return Ok(()),
                        Err(error) => refused = error,
                    }
                }
                Err(refused)
            }
            Self::Unix(path) => match knock(path) {
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
                {
                    expect_place(path)
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
                // A process listens there. It may accept nobody now.
                _ => Err(io::ErrorKind::AddrInUse.into()),
            },
        }
    }
}

/// Connects to a Unix socket, and leaves again. Does not wait for a process that accepts nobody.
fn knock(path: &Path) -> io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(())
}

/// Returns an error if no socket can be made at a path at which nobody listens.
fn expect_place(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(()),
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        // The folder has to be there.
        Err(_) => std::path::absolute(path)?.parent().map_or(Ok(()), |folder| folder.metadata().map(drop)),
    }
}

/// Number of clients that may wait to be accepted, if the system allows it. Of a crowd that
/// connects at once, clients beyond it retry after a second.
const BACKLOG: u32 = 4096;

/// Listens at the first address of a name that is free.
async fn listen(name: &str) -> io::Result<TcpListener> {
    let mut refused = io::Error::new(io::ErrorKind::AddrNotAvailable, format!("{name} has no address"));
    for address in lookup_host(name).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Allows the port even while the system still closes connections of an earlier server.
        socket.set_reuseaddr(true)?;
        match socket.bind(address).and_then(|()| socket.listen(BACKLOG)) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Listens at a path. Nobody connects before the socket has its permissions.
fn listen_at(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let permitted = std::fs::set_permissions(path, Permissions::from_mode(mode));
    permitted.and_then(|()| socket.listen(BACKLOG)).inspect_err(|_| drop(std::fs::remove_file(path)))
}

/// A socket that accepts clients.
pub enum Listener {
    /// A TCP port, with or without TLS.
    Tcp(TcpListener, Option<TlsAcceptor>),
    /// A Unix socket, which is removed at the end.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Begins to listen. A Unix socket gets the permissions `mode`.
    pub async fn bind(
        address: &Address,
        tls: Option<&Arc<rustls::ServerConfig>>,
        mode: u32,
    ) -> io::Result<Self> {
        match address {
            Address::Tcp(text) => {
                let listener = listen(text).await?;
                Ok(Self::Tcp(listener, tls.map(|config| TlsAcceptor::from(config.clone()))))
            }
            Address::Unix(path) => {
                // Removes only the socket of a killed process, at which no process answers.
                let is_socket =
                    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
                if is_socket
                    && knock(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
                {
                    std::fs::remove_file(path)?;
                }
                Ok(Self::Unix(listen_at(path, mode)?, path.clone()))
            }
        }
    }

    /// Returns the address, as clients name it.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(listener, _) => listener.local_addr().map_or_else(|_| "?".into(), |at| at.to_string()),
            Self::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// Returns the TCP port.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(listener, _) => listener.local_addr().ok().map(|at| at.port()),
            Self::Unix(..) => None,
        }
    }

    /// Returns whether clients speak TLS.
    pub(crate) fn has_tls(&self) -> bool {
        matches!(self, Self::Tcp(_, Some(_)))
    }

    /// Returns whether other machines can reach the address.
    pub fn is_wide(&self) -> bool {
        match self {
            Self::Tcp(listener, _) => listener.local_addr().is_ok_and(|at| !at.ip().is_loopback()),
            Self::Unix(..) => false,
        }
    }

    /// Waits for the next client. A client that has gone again keeps no other client out.
    ///
    /// # Errors
    /// An error of the process: usually no descriptors are left.
    pub async fn accept(&self) -> io::Result<Incoming> {
        loop {
            match self.accept_one().await {
                Err(error) if is_of_client(&error) => {}
                accepted => return accepted,
            }
        }
    }

    async fn accept_one(&self) -> io::Result<Incoming> {
        match self {
            Self::Tcp(listener, tls) => {
                let (stream, from) = listener.accept().await?;
                // On some systems, a socket whose peer has gone takes no option.
                let is_set = set_options(&stream);
                is_set.map_err(|error| io::Error::new(io::ErrorKind::ConnectionReset, error))?;
                let to = name_of(stream.local_addr());
                let socket = match tls {
                    Some(tls) => Socket::Tls(Box::new(tls.accept(stream))),
                    None => Socket::Open(Stream::Tcp(stream)),
                };
                Ok(Incoming { from: from.to_string(), to, socket })
            }
            Self::Unix(listener, path) => {
                let (stream, _) = listener.accept().await?;
                let to = format!("{}:0", path.display());
                Ok(Incoming { from: to.clone(), to, socket: Socket::Open(Stream::Unix(stream)) })
            }
        }
    }
}

impl axum::serve::Listener for Listener {
    type Io = Stream;
    type Addr = String;

    /// Waits for the next client. Reading from its stream performs the TLS handshake, on other
    /// threads: a client that is slow with it keeps no other client out.
    async fn accept(&mut self) -> (Stream, String) {
        let mut is_failing = false;
        loop {
            match Self::accept(self).await {
                Ok(Incoming { from, socket: Socket::Open(stream), .. }) => return (stream, from),
                Ok(Incoming { from, socket: Socket::Tls(opening), .. }) => {
                    return (Stream::Opening(Box::pin(shake_hands(opening, TURNS.clone()))), from);
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::warn!(%error, "the server cannot accept clients for now");
                    }
                    tokio::time::sleep(RELIEF).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<String> {
        Ok(self.address())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            drop(std::fs::remove_file(path));
        }
    }
}

/// Sends small replies at once, and ends the connection of a client whose machine has gone without
/// a word. Such a client would keep its place for ever, and take an element that it waits for. A
/// system that cannot ask after silent clients serves them all the same.
fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let asks = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, SILENCE))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, ASK_EVERY))
        .and_then(|()| sockopt::set_tcp_keepcnt(stream, ASKED));
    if let Err(error) = asks {
        tracing::debug!(%error, "a connection ends only if its client ends it");
    }
    Ok(())
}

/// Returns whether an error is one of a client, and not of the process.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

fn name_of(address: io::Result<SocketAddr>) -> String {
    address.map_or_else(|_| "?".into(), |at| at.to_string())
}

/// A client that has just connected.
pub struct Incoming {
    /// The client's own address.
    pub from: String,
    /// The address to which the client connected.
    pub to: String,
    socket: Socket,
}

/// A connection, with its TLS handshake if it needs one.
enum Socket {
    Open(Stream),
    Tls(Box<Accept<TcpStream>>),
}

impl Incoming {
    /// Reports to the client why it is refused, if that needs no handshake and no wait.
    pub fn refuse(self, why: &str) -> io::Result<()> {
        match &self.socket {
            Socket::Open(Stream::Tcp(stream)) => stream.try_write(why.as_bytes()).map(drop),
            Socket::Open(Stream::Unix(stream)) => stream.try_write(why.as_bytes()).map(drop),
            Socket::Open(_) | Socket::Tls(_) => Ok(()),
        }
    }

    /// Performs the TLS handshake, if the port uses TLS: as many steps of handshakes at once as
    /// there are `turns`.
    pub async fn open(self, turns: &Arc<Semaphore>) -> io::Result<Stream> {
        match self.socket {
            Socket::Open(stream) => Ok(stream),
            Socket::Tls(opening) => shake_hands(opening, turns.clone()).await,
        }
    }
}

/// Performs a TLS handshake. Each step of it is computed on a thread for work that blocks, as many
/// at once as there are `turns`: the signature of one handshake takes a millisecond, and strangers
/// may begin thousands while other clients wait.
async fn shake_hands(mut opening: Box<Accept<TcpStream>>, turns: Arc<Semaphore>) -> io::Result<Stream> {
    let arrival = Arc::new(Arrival::default());
    loop {
        let turn = turns.clone().acquire_owned().await.expect("it is never closed");
        let waker = Waker::from(arrival.clone());
        let step = tokio::task::spawn_blocking(move || {
            let done = Pin::new(&mut *opening).poll(&mut Context::from_waker(&waker));
            drop(turn);
            (opening, done)
        });
        let (still_opening, done) = step.await?;
        opening = still_opening;
        match done {
            Poll::Ready(stream) => return Ok(Stream::Tls(Box::new(stream?))),
            Poll::Pending => arrival.0.notified().await,
        }
    }
}

/// The rest of a TLS handshake.
type Handshake = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

/// Receives the notice that a handshake can go on.
#[derive(Default)]
struct Arrival(Notify);

impl Wake for Arrival {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// The connection of a client.
pub enum Stream {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A TCP connection before the end of its TLS handshake.
    Opening(Handshake),
    /// A TCP connection with TLS.
    Tls(Box<TlsStream<TcpStream>>),
    /// A Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Performs the TLS handshake, if it is not complete.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Self::Opening(handshake) = self {
            let stream = ready!(handshake.as_mut().poll(cx))?;
            *self = stream;
        }
        Poll::Ready(Ok(()))
    }
}

macro_rules! each {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Self::Tcp($stream) => $call,
            Self::Tls($stream) => $call,
            Self::Unix($stream) => $call,
            // Nothing is written before the handshake, so that nothing is to be flushed.
            Self::Opening(_) => Poll::Ready(Ok(())),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx))?;
        each!(self, stream => Pin::new(stream).poll_read(cx, to))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?;
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, from),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, from),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, from),
            Self::Opening(_) => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?;
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, from),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, from),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, from),
            Self::Opening(_) => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Otherwise the HTTP library copies each body, and lets go of the memory that it counts in.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Mutex;
    use std::thread::{self, ThreadId};

    use rustls::crypto::ring::default_provider;
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
    use tokio::io::AsyncReadExt;

    use super::*;

    /// Notes the threads on which handshakes look for a certificate; there is none.
    #[derive(Debug, Default)]
    struct Threads(Mutex<Vec<ThreadId>>);

    impl ResolvesServerCert for Threads {
        fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            self.0.lock().unwrap().push(thread::current().id());
            None
        }
    }

    /// Sends the begin of a handshake in two parts.
    fn begin_handshake(address: &str) -> std::net::TcpStream {
        let provider = Arc::new(default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let (mut hello, mut stream) = (Vec::new(), std::net::TcpStream::connect(address).unwrap());
        client.write_tls(&mut hello).unwrap();
        let (begin, end) = hello.split_at(10);
        stream.write_all(begin).unwrap();
        stream.write_all(end).unwrap();
        stream
    }

    /// Listens with TLS.
    async fn listener(threads: &Arc<Threads>) -> Listener {
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = Arc::new(config.with_cert_resolver(threads.clone()));
        Listener::bind(&"127.0.0.1:0".parse().unwrap(), Some(&config), 0o600).await.unwrap()
    }

    /// In the old state a crowd of strangers kept the threads of HTTP busy with signatures.
    #[tokio::test]
    async fn handshakes_are_not_computed_on_the_threads_of_http() {
        let threads = Arc::new(Threads::default());
        let mut listener = listener(&threads).await;
        let address = listener.address();
        let clients = thread::spawn(move || [(); 8].map(|()| begin_handshake(&address)));
        for _ in 0..8 {
            let (mut stream, _) = axum::serve::Listener::accept(&mut listener).await;
            // Without a certificate, the handshake fails at its expensive step.
            assert!(stream.read_u8().await.is_err());
        }
        drop(clients.join().unwrap());
        let threads = threads.0.lock().unwrap();
        assert_eq!((threads.len(), threads.contains(&thread::current().id())), (8, false));
    }

    #[tokio::test]
    async fn handshakes_are_not_computed_on_the_thread_of_the_commands() {
        let threads = Arc::new(Threads::default());
        let listener = listener(&threads).await;
        let address = listener.address();
        let clients = thread::spawn(move || [(); 8].map(|()| begin_handshake(&address)));
        let turns = Arc::new(Semaphore::new(2));
        for _ in 0..8 {
            // Without a certificate, the handshake fails at its expensive step.
            assert!(listener.accept().await.unwrap().open(&turns).await.is_err());
        }
        drop(clients.join().unwrap());
        let threads = threads.0.lock().unwrap();
        assert_eq!((threads.len(), threads.contains(&thread::current().id())), (8, false));
    }

    /// In the old state a client whose machine had gone without a word kept its place for ever. One
    /// that waited for a list took an element that came.
    #[tokio::test]
    async fn the_system_asks_whether_silent_clients_are_there() {
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), None, 0o600).await.unwrap();
        let client = TcpStream::connect(listener.address()).await.unwrap();
        let socket = listener.accept().await.unwrap().socket;
        let Socket::Open(Stream::Tcp(stream)) = socket else { panic!("it has no TLS") };
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), Duration::from_secs(300));
        drop(client);
    }

    #[test]
    fn only_errors_of_the_process_pause_the_clients() {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, OutOfMemory};
        for of_client in [ConnectionAborted, ConnectionRefused, ConnectionReset] {
            assert!(is_of_client(&of_client.into()), "{of_client}");
        }
        // No descriptors are left in the system, or in the process.
        let descriptors = [23, 24].map(io::Error::from_raw_os_error);
        for of_process in descriptors.into_iter().chain([OutOfMemory.into()]) {
            assert!(!is_of_client(&of_process), "{of_process}");
        }
    }

    #[test]
    fn addresses_are_ports_or_paths() {
        for good in ["127.0.0.1:0", "[::1]:6379", "localhost:6379", "unix:/tmp/x"] {
            assert_eq!(good.parse::<Address>().unwrap().to_string(), good);
        }
        for bad in ["", "6379", ":6379", "localhost", "localhost:x", "unix:"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
