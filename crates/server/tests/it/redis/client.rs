//! A server for a test, and a client of it that speaks RESP by hand.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use brooklet::Store;
use brooklet_server::{Addresses, CancellationToken, Config, Error, serve};

/// A server in this process, stopped when it is dropped.
pub struct Server {
    /// Where it listens.
    pub address: String,
    /// Where it listens for HTTP; empty if it does not.
    pub http: String,
    stop: CancellationToken,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Server {
    /// One with the defaults, at a port of its own.
    pub fn of(store: Store) -> Self {
        Self::with(store, Config::default())
    }

    /// One with a configuration, whose address is replaced.
    pub fn with(store: Store, mut config: Config) -> Self {
        config.redis = vec!["127.0.0.1:0".parse().unwrap()];
        Self::at(store, config).expect("it starts")
    }

    /// One with a configuration as it is.
    pub fn at(store: Store, config: Config) -> Result<Self, Error> {
        let stop = CancellationToken::new();
        let (tell, told) = mpsc::channel();
        let token = stop.clone();
        let thread = std::thread::spawn(move || {
            serve(store, &config, |addresses| tell.send(addresses.clone()).unwrap(), token)
        });
        match told.recv() {
            Ok(Addresses { mut redis, http }) => {
                let http = http.into_iter().next().unwrap_or_default();
                Ok(Self { address: redis.remove(0), http, stop, thread: Some(thread) })
            }
            Err(_) => Err(thread.join().unwrap().expect_err("it never was ready")),
        }
    }

    /// A client of it.
    pub fn client(&self) -> Client {
        Client::at(&self.address)
    }

    /// Tells it to stop.
    pub fn begin_to_stop(&self) {
        self.stop.cancel();
    }

    /// Stops it, and waits until it has.
    pub fn stop(mut self) -> Result<(), Error> {
        self.stop.cancel();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// What a client's bytes go over.
pub trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// A client.
pub struct Client {
    stream: BufReader<Box<dyn Wire>>,
}

impl Client {
    /// Of the server at an address.
    pub fn at(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }

    /// Over a stream that is there already.
    pub fn over(stream: impl Wire + 'static) -> Self {
        Self { stream: BufReader::new(Box::new(stream)) }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Asks, and gives the reply as text; see [`reply`](Self::reply).
    pub fn ask(&mut self, request: &[&str]) -> String {
        self.send(&encode(request));
        self.reply()
    }

    /// Asks in words with spaces between.
    pub fn say(&mut self, request: &str) -> String {
        self.ask(&request.split(' ').collect::<Vec<_>>())
    }

    /// Waits until INFO has a line.
    pub fn wait_for(&mut self, line: &str) {
        let is_so = (0..120_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            self.say("INFO").contains(&format!("{line}\\r\\n"))
        });
        assert!(is_so, "{line}: {}", self.say("INFO"));
    }

    /// A reply as text: errors after a minus, numbers after a colon, words and bytes as they are,
    /// nothing as `nil`, arrays in brackets, maps in braces, pushes in parentheses.
    pub fn reply(&mut self) -> String {
        self.try_reply().expect("a reply")
    }

    /// The same; `None` once the server has gone.
    pub fn try_reply(&mut self) -> Option<String> {
        let mut line = Vec::new();
        match self.stream.read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => {
                assert!(is_end(&error), "the server neither replies nor closes the connection: {error}");
                return None;
            }
        }
        let line =
            String::from_utf8_lossy(line.strip_suffix(b"\r\n").expect("an end of a line")).into_owned();
        let (sign, rest) = line.split_at(1);
        match sign {
            "+" => Some(rest.into()),
            "-" | ":" | "," => Some(line),
            "_" => Some("nil".into()),
            "$" | "=" => self.bulk(rest.parse().unwrap()),
            "*" | "~" => self.all("[", "]", rest.parse().unwrap()),
            "%" => self.all("{", "}", 2 * rest.parse::<i64>().unwrap()),
            ">" => self.all("(", ")", rest.parse().unwrap()),
            _ => panic!("no reply begins with {line}"),
        }
    }

    fn bulk(&mut self, len: i64) -> Option<String> {
        let Ok(len) = usize::try_from(len) else { return Some("nil".into()) };
        let mut bytes = vec![0; len + 2];
        self.stream.read_exact(&mut bytes).ok()?;
        assert_eq!(&bytes[len..], b"\r\n");
        Some(bytes[..len].escape_ascii().to_string())
    }

    fn all(&mut self, open: &str, close: &str, len: i64) -> Option<String> {
        let Ok(len) = usize::try_from(len) else { return Some("nil".into()) };
        let all: Option<Vec<String>> = (0..len).map(|_| self.try_reply()).collect();
        Some(format!("{open}{}{close}", all?.join(" ")))
    }

    /// Whether the server has closed the connection, and sent nothing more. A server that only
    /// stays silent has not.
    pub fn is_over(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => is_end(&error),
        }
    }
}

/// Whether an error of a read tells that the server has closed the connection; no timeout does.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// A request in bytes.
pub fn encode(request: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
    for word in request {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}
