//! A server process that is killed and started again, and a client of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Place, unlocked};

/// Numbers by chance.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A server, at a Unix socket beside its store.
pub struct Process {
    place: Place,
    child: Option<Child>,
    has_http: bool,
}

impl Process {
    pub fn new() -> Self {
        Self::with(false)
    }

    /// Serves HTTP, too, at a socket of its own.
    pub fn with_http() -> Self {
        Self::with(true)
    }

    fn with(has_http: bool) -> Self {
        let mut process = Self { place: Place::new(), child: None, has_http };
        process.start();
        process
    }

    /// Where its store is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn http_socket(&self) -> PathBuf {
        self.place.dir.path().join("http")
    }

    pub fn socket(&self) -> PathBuf {
        self.place.dir.path().join("socket")
    }

    pub fn start(&mut self) {
        let listen = format!("unix:{}", self.socket().display());
        let http =
            if self.has_http { format!("unix:{}", self.http_socket().display()) } else { String::new() };
        let args =
            ["serve", "STORE", "--listen", &listen, "--http", &http, "--ring-size", "4M", "--memory", "4M"];
        let mut child =
            self.place.command(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("Redis at unix:"), "{line}");
        self.child = Some(child);
    }

    /// Kills it wherever it is.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
            unlocked(&self.place.store);
        }
    }

    pub fn client(&self) -> Client {
        Client::at(&self.socket())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A client that knows that the server may go.
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    pub fn at(socket: &std::path::Path) -> Self {
        let begin = Instant::now();
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                    return Self { stream: BufReader::new(stream) };
                }
                Err(error) => assert!(begin.elapsed() < Duration::from_secs(60), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends requests in words with spaces between; whether all have left.
    pub fn send(&mut self, requests: &[String]) -> bool {
        let mut bytes = Vec::new();
        for request in requests {
            let words: Vec<&str> = request.split(' ').collect();
            write!(bytes, "*{}\r\n", words.len()).unwrap();
            words.iter().for_each(|word| write!(bytes, "${}\r\n{word}\r\n", word.len()).unwrap());
        }
        self.stream.get_mut().write_all(&bytes).is_ok()
    }

    /// The first line of a reply, which may be an error; `None` once the server has gone.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).ok()?;
        line.strip_suffix("\r\n").map(str::to_owned)
    }

    /// A reply as text, arrays with spaces between; `None` once the server has gone.
    pub fn reply(&mut self) -> Option<String> {
        let line = self.line()?;
        let (sign, rest) = line.split_at(1);
        Some(match sign {
            "$" if rest != "-1" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes).ok()?;
                String::from_utf8(bytes[..bytes.len() - 2].to_vec()).unwrap()
            }
            "*" if rest != "-1" => {
                let all: Option<Vec<String>> =
                    (0..rest.parse::<u64>().unwrap()).map(|_| self.reply()).collect();
                all?.join(" ")
            }
            "$" | "*" => "nil".into(),
            "-" => panic!("{line}"),
            _ => rest.into(),
        })
    }

    /// Takes a reply, which may be an error, and forgets it.
    pub fn any(&mut self) -> Option<()> {
        let line = self.line()?;
        let (sign, rest) = line.split_at(1);
        let count = rest.parse::<usize>();
        match (sign, count) {
            ("$", Ok(len)) => self.stream.read_exact(&mut vec![0; len + 2]).ok()?,
            ("*", Ok(count)) => (0..count).try_for_each(|_| self.any())?,
            ("%", Ok(count)) => (0..2 * count).try_for_each(|_| self.any())?,
            _ => {}
        }
        Some(())
    }

    /// Asks, and forgets the reply.
    pub fn any_of(&mut self, request: &str) {
        assert!(self.send(&[request.to_owned()]));
        self.any().expect("a reply");
    }

    /// Asks, of a server that stays.
    pub fn ask(&mut self, request: &str) -> String {
        self.try_ask(request).expect("a reply")
    }

    /// Asks; `None` where the server goes meanwhile.
    pub fn try_ask(&mut self, request: &str) -> Option<String> {
        if self.send(&[request.to_owned()]) { self.reply() } else { None }
    }

    /// The elements of a list.
    pub fn list(&mut self, key: &str) -> Vec<String> {
        let all = self.ask(&format!("LRANGE {key} 0 -1"));
        all.split(' ').filter(|element| !element.is_empty()).map(str::to_owned).collect()
    }
}
