//! A writer at work on a store through the command, and what it was promised.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use brooklet::io::Rng;
use serde_json::Value;

pub const BROOKLET: &str = env!("CARGO_BIN_EXE_brooklet");
/// Lines that are sent before their acknowledgements are waited for: what a pipe takes in one
/// piece.
const BATCH: u64 = 16;

/// Entry `seq` of the log: a thousand bytes that do not compress.
pub fn line(seq: u64) -> String {
    let mut rng = Rng::new(seq);
    (0..62).map(|_| format!("{:016x}", rng.next())).collect::<String>() + &format!("{seq:08}")
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    fn new(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let Output { status, stdout, stderr } = output;
        Self { code: status.code(), signal: status.signal(), stdout: text(&stdout), stderr: text(&stderr) }
    }

    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// It was refused with one of these codes, in one line that holds these words.
    #[track_caller]
    pub fn refused(&self, codes: &[i32], words: &str) {
        let last = self.stderr.lines().last().unwrap_or_default();
        assert!(self.code.is_some_and(|code| codes.contains(&code)), "{self:?}");
        assert!(last.starts_with("brooklet: ") && last.contains(words), "no {words:?} in {:?}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }
}

/// A log of a store, written to from outside.
pub struct Log {
    pub store: PathBuf,
    /// The first entry that is kept, and how many were acknowledged.
    pub first: u64,
    pub acked: u64,
}

impl Log {
    /// A store at `path` whose log has some entries, some of them in runs.
    pub fn create(path: impl Into<PathBuf>, entries: u64) -> Self {
        let mut log = Self { store: path.into(), first: 0, acked: 0 };
        log.append(&[], entries).ok();
        log
    }

    /// The command, perhaps under another that prepares its fate. Whatever hangs is killed.
    pub fn command(&self, under: &[&str], args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "300"]).args(under).arg(BROOKLET).arg(args[0]).arg(&self.store);
        command.args(&args[1..]).env("RUST_LOG", "error").stdin(Stdio::null());
        command
    }

    pub fn run(&self, under: &[&str], args: &[&str]) -> Ended {
        Ended::new(self.command(under, args).output().unwrap())
    }

    /// Starts a writer without anything around it, so that its process is ours to stop and kill.
    pub fn start(&self) -> Writer {
        let mut command = Command::new(BROOKLET);
        command.arg("append").arg(&self.store).args(["log", "--ring-size", "1M"]).env("RUST_LOG", "error");
        Writer::start(command, self.next())
    }

    /// The number that the next entry gets, asked under good conditions.
    pub fn next(&self) -> u64 {
        if !self.store.exists() {
            return 0;
        }
        let bounds = self.run(&[], &["inspect", "log", "--json"]);
        if bounds.code == Some(3) {
            return 0;
        }
        serde_json::from_str::<Value>(&bounds.ok()).unwrap()["next"].as_u64().unwrap()
    }

    /// Appends lines until all are acknowledged or something happens.
    pub fn append(&mut self, under: &[&str], lines: u64) -> Ended {
        let command = self.command(under, &["append", "log", "--ring-size", "1M"]);
        let mut writer = Writer::start(command, self.next());
        writer.append(lines);
        self.take(writer)
    }

    /// Lets a writer end, and remembers what it was promised.
    pub fn take(&mut self, writer: Writer) -> Ended {
        let (acked, ended) = writer.end();
        self.acked = self.acked.max(acked);
        ended
    }

    /// Conditions are good: the store is sound, holds all it promised byte for byte, and goes on.
    #[track_caller]
    pub fn holds(&mut self) {
        let check = self.run(&[], &["check"]);
        assert!(check.stdout.starts_with("sound: ") || check.stdout.starts_with("harmless: "), "{check:?}");
        self.reads();
        self.append(&[], 1).ok();
    }

    /// What was promised is read, whatever else does not work.
    #[track_caller]
    pub fn reads(&self) {
        let rows = self.run(&[], &["read", "log", "--json"]).ok();
        let mut next = self.first;
        for row in rows.lines() {
            let row: Value = serde_json::from_str(row).unwrap();
            assert!(row["seq"] == next && row["text"] == *line(next), "entry {next} is not what was written");
            next += 1;
        }
        assert!(next >= self.acked, "{} entries were acknowledged, {next} are there", self.acked);
    }
}

/// A process that appends lines as it is given them.
pub struct Writer {
    pub child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    sent: u64,
    acked: u64,
}

impl Writer {
    pub fn start(mut command: Command, next: u64) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output, sent: next, acked: next }
    }

    /// Sends lines in batches and takes down what is acknowledged; `false` once the process has
    /// gone.
    pub fn append(&mut self, lines: u64) -> bool {
        let until = self.sent + lines;
        while self.sent < until {
            let batch = BATCH.min(until - self.sent);
            let text: String = (self.sent..self.sent + batch).map(|seq| line(seq) + "\n").collect();
            self.sent += batch;
            if self.input.write_all(text.as_bytes()).is_err() || !self.listen(self.sent) {
                return false;
            }
        }
        true
    }

    /// Waits for the acknowledgement of everything before `until`.
    fn listen(&mut self, until: u64) -> bool {
        while self.acked < until {
            let mut seq = String::new();
            if self.output.read_line(&mut seq).unwrap() == 0 || !seq.ends_with('\n') {
                return false;
            }
            assert_eq!(seq.trim_end().parse(), Ok(self.acked), "acknowledged out of turn");
            self.acked += 1;
        }
        true
    }

    /// How many entries are acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Ends the input, waits for the end, and gives what was acknowledged.
    pub fn end(mut self) -> (u64, Ended) {
        drop(self.input);
        while self.acked < self.sent {
            let mut seq = String::new();
            if self.output.read_line(&mut seq).unwrap() == 0 || !seq.ends_with('\n') {
                break;
            }
            self.acked += 1;
        }
        (self.acked, Ended::new(self.child.wait_with_output().unwrap()))
    }
}

/// The words of a copy that is made while nothing is being written: as good as the store.
pub fn copy(from: &Path, to: &Path) {
    let mut from = File::open(from).unwrap();
    std::io::copy(&mut from, &mut File::create(to).unwrap()).unwrap();
}
