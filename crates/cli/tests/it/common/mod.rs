//! A place with a store, and the command at work on it.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use brooklet::{Options, Store};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use tempfile::TempDir;

/// A directory to work in, with a store's path.
pub struct Place {
    pub dir: TempDir,
    pub store: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("s.brooklet");
        Self { dir, store }
    }

    /// With a small store, open.
    pub fn with_store() -> (Self, Store) {
        let place = Self::new();
        let store = Options::new().ring_size(1 << 20).open(&place.store).unwrap();
        (place, store)
    }

    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brooklet"));
        let store = self.store.to_str().unwrap();
        command.args(args.iter().map(|arg| if *arg == "STORE" { store } else { arg }));
        command.current_dir(self.dir.path()).env_remove("RUST_LOG").stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command with an input.
    pub fn fed(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(args);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // A command that refuses its arguments does not read its input.
            scope.spawn(move || drop(stdin.write_all(input)));
            child.wait_with_output().unwrap()
        })
    }

    /// Runs what must work; gives what it printed.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{args:?}");
        text(&output.stdout).to_owned()
    }

    /// Runs what must work in JSON; gives the values, one a line.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Vec<Value> {
        let args: Vec<_> = args.iter().chain(&["--json"]).copied().collect();
        self.ok(&args).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs what must fail with this code; gives the message.
    #[track_caller]
    pub fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
        let line = message.lines().last().unwrap_or_default();
        assert!(line.starts_with("brooklet: "), "{message}");
        line.to_owned()
    }
}

/// Waits until a killed process holds a store no more: the kernel keeps its lock until its last
/// write has ended, which a busy disk may end late.
pub fn unlocked(store: &Path) {
    if let Ok(file) = File::open(store) {
        file.lock().unwrap();
        // Not by its end alone: a process that another test starts may have inherited it.
        file.unlock().unwrap();
    }
}

/// Returns a port where nobody listens. It is none of those that the system gives to who asks for
/// any, so that nobody takes it before it is used.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 100) as u16 * 100;
    let mut ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed) % 100);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("ports do not end")
}

/// What a program printed.
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Returns both ends of a new terminal: the end of the person, and the end of the program.
pub fn terminal() -> (File, File) {
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap();
    let program = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (person.into(), program.into())
}
