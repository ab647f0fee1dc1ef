//! `demo --failover`: a host is killed and its disk is lost; a standby takes the store over, from a
//! folder in place of a bucket, with every acknowledged entry.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::HumanCount;
use serde::Serialize;

use crate::evidence::Folder;
use crate::failure::{Failure, Kind};
use crate::output::Output;

/// Clients that push elements, each to a list of its own, and wait for each.
const CLIENTS: usize = 32;
/// How long they push before the host is killed.
const SPAN: Duration = Duration::from_secs(3);

/// Tells the story.
pub fn run(out: &mut Output) -> Result<(), Failure> {
    let folder = Folder::new(Path::new("."), "brooklet-demo-")?;
    let done = play(folder.path(), out);
    folder.end(&done, |_| false);
    out.put(&done?)
}

fn play(dir: &Path, out: &mut Output) -> Result<Report, Failure> {
    let name = dir.file_name().unwrap_or_default().display();
    out.tell(format_args!(
        "Two hosts and a bucket, as folders of ./{name}, removed at the end unless the demo fails."
    ))?;
    let mut owner = Host::start(dir, "owner", false)?;
    owner.wait_ready()?;
    let mut standby = Host::start(dir, "standby", true)?;
    out.tell(format_args!(
        "\nThe owner serves Redis clients, and keeps its log in the bucket. {CLIENTS} clients push elements;"
    ))?;
    out.tell("each waits until its element is on the owner's disk and in the bucket. A standby waits.")?;

    let socket = owner.socket();
    let acknowledged: Vec<u64> = thread::scope(|scope| {
        let pushing: Vec<_> = (0..CLIENTS)
            .map(|list| {
                scope.spawn({
                    let socket = &socket;
                    move || push(socket, list)
                })
            })
            .collect();
        thread::sleep(SPAN);
        owner.kill();
        pushing.into_iter().map(|client| client.join().expect("no panics")).collect()
    });
    let killed = Instant::now();
    std::fs::remove_dir_all(&owner.dir).map_err(Failure::io("removing the owner's disk"))?;
    let all: u64 = acknowledged.iter().sum();
    out.tell(format_args!(
        "  ✓ the owner is killed (SIGKILL) in mid-flight, and its disk is removed: {} elements acknowledged",
        HumanCount(all)
    ))?;

    standby.wait_ready()?;
    let mut client = Client::at(&standby.socket()).map_err(Failure::io("connecting to the standby"))?;
    let mut ask = |request: &str| client.ask(request).map_err(Failure::io("asking the standby"));
    ask("RPUSH first 1")?;
    let back = killed.elapsed().as_secs_f64();
    out.tell(format_args!(
        "  ✓ {back:.1} s later the standby has taken over, and acknowledges its first element"
    ))?;
    let mut found = 0;
    for (list, told) in acknowledged.iter().enumerate() {
        let elements = ask(&format!("LRANGE list:{list} 0 -1"))?;
        let in_order = elements.iter().enumerate().all(|(n, element)| *element == n.to_string());
        // The last element of each client may be there without an acknowledgement.
        if !in_order || !(*told..=*told + 1).contains(&(elements.len() as u64)) {
            let have = elements.len();
            return Err(Failure::no(format!(
                "list {list} has {have} elements, of which {told} were acknowledged"
            )));
        }
        found += elements.len() as u64;
    }
    out.tell("  ✓ every acknowledged element is there, in order, without a gap\n")?;
    standby.kill();
    Ok(Report { acknowledged: all, found, lost: 0, seconds_until_served: back })
}

/// A host: a folder for its store, and a process that serves the store.
struct Host {
    dir: PathBuf,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Host {
    fn start(dir: &Path, name: &str, is_standby: bool) -> Result<Self, Failure> {
        let dir = dir.join(name);
        std::fs::create_dir(&dir).map_err(Failure::io("making a folder"))?;
        let own = std::env::current_exe().map_err(Failure::io("finding this program"))?;
        let mut command = Command::new(own);
        command.args(["serve", "store.brooklet", "--listen", "unix:socket", "--http", ""]);
        command.args(["--ring-size", "16M", "--replicate", "../bucket"]);
        command.args(is_standby.then_some("--standby"));
        command.current_dir(&dir).env("RUST_LOG", "off");
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(Failure::io("starting a server"))?;
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        Ok(Self { dir, child, output })
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// Waits until the host serves.
    fn wait_ready(&mut self) -> Result<(), Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(Failure::io("waiting for a server"))?;
        match line.is_empty() {
            true => Err(Failure::new(Kind::Io, "a server of the demo ended before it served")),
            false => Ok(()),
        }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Pushes elements to a list until the host is gone; returns how many were acknowledged.
fn push(socket: &Path, list: usize) -> u64 {
    let Ok(mut client) = Client::at(socket) else { return 0 };
    let mut next = 0;
    while client.ask(&format!("RPUSH list:{list} {next}")).is_ok() {
        next += 1;
    }
    next
}

/// A Redis client.
struct Client(BufReader<UnixStream>);

impl Client {
    fn at(socket: &Path) -> io::Result<Self> {
        UnixStream::connect(socket).map(|stream| Self(BufReader::new(stream)))
    }

    /// Sends a request, in words with spaces between; returns the elements of the reply.
    fn ask(&mut self, request: &str) -> io::Result<Vec<String>> {
        self.0.get_mut().write_all(format!("{request}\r\n").as_bytes())?;
        let line = self.line()?;
        let Some(count) = line.strip_prefix('*') else { return Ok(vec![line]) };
        (0..number(count)?).map(|_| self.element()).collect()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(error) if error.starts_with('-') => Err(io::Error::other(error)),
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn element(&mut self) -> io::Result<String> {
        let len = number(self.line()?.trim_start_matches('$'))?;
        let mut bytes = vec![0; len + 2];
        self.0.read_exact(&mut bytes)?;
        bytes.truncate(len);
        String::from_utf8(bytes).map_err(io::Error::other)
    }
}

fn number(text: &str) -> io::Result<usize> {
    text.parse().map_err(io::Error::other)
}

#[derive(Serialize)]
struct Report {
    acknowledged: u64,
    found: u64,
    lost: u64,
    seconds_until_served: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (acknowledged, found) = (HumanCount(self.acknowledged), HumanCount(self.found));
        writeln!(f, "  acknowledged       {acknowledged} elements, found {found}, lost {}", self.lost)?;
        writeln!(
            f,
            "  without an owner   {:.1} s, 3 s of it to be sure that it is gone",
            self.seconds_until_served
        )?;
        write!(
            f,
            "\nA bucket replaces the folder by `serve --replicate s3://bucket/path`: see docs/replication.md."
        )
    }
}
