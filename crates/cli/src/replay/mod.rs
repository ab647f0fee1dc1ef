//! `replay`: what people really typed and committed, appended as fast as it goes, and read back.

mod drive;
mod flight;
pub mod history;
pub mod trace;

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brooklet::{Create, Durability, Options, StoreInfo};
use clap::ValueEnum;
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use crate::colours::{bad, good};
use crate::evidence::Folder;
use crate::failure::Failure;
use crate::latency::{Latencies, Micros};
use crate::output::{Output, progress};
use crate::size::size;
use drive::{Document, Manner};
use history::{History, Log};
use trace::Trace;

#[derive(clap::Args)]
pub struct Args {
    /// Keystroke traces: JSON with startContent, endContent and txns, gzipped or not
    #[arg(required_unless_present = "git")]
    files: Vec<PathBuf>,
    /// A history instead: lines `log TAB commit TAB JSON string`, gzipped or not; consecutive lines
    /// with the same commit are one atomic commit
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "copies", "writers"])]
    git: Option<PathBuf>,
    /// The store to create and keep [default: a temporary one in the current directory, removed at
    /// the end unless the store may have a defect]
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
    /// Size of its ring in bytes (K, M and G are understood)
    #[arg(long, value_parser = size, default_value = "64M")]
    ring_size: u64,
    /// Number of threads that append
    #[arg(long, value_name = "N", default_value = "16")]
    writers: NonZeroUsize,
    /// Number of documents made of each trace
    #[arg(long, value_name = "N", default_value = "1")]
    copies: NonZeroUsize,
    /// Most unacknowledged writes of each thread
    #[arg(long, value_name = "N", default_value = "64")]
    in_flight: NonZeroUsize,
    /// Number of transactions of each trace, or of commits of the history, to replay
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// The moment at which an append counts as acknowledged
    #[arg(long, value_enum, default_value = "durable")]
    durability: When,
}

#[derive(Clone, Copy, ValueEnum)]
enum When {
    /// When the append is on stable media
    Durable,
    /// At once; the append is on stable media within 100 ms
    Deferred,
}

/// Replays, reads back, compares.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    let (history, traces) = match &args.git {
        Some(path) => (Some(History::load(path, args.limit)?), Vec::new()),
        None => {
            let traces = args.files.iter().map(|path| Trace::load(path, args.limit));
            (None, traces.collect::<Result<Vec<_>, _>>()?)
        }
    };
    let documents = match &history {
        Some(history) => documents_of_history(history),
        None => documents_of_traces(&traces, args.copies.get()),
    };
    let folder = match &args.store {
        // The system's place for temporary files may be memory, which is no place to measure
        // durability.
        None => Some(Folder::new(Path::new("."), "brooklet-replay-")?),
        Some(_) => None,
    };
    let own = folder.as_ref().map(|folder| folder.path().join("replay.brooklet"));
    let path = args.store.clone().or(own).expect("one of the two is there");
    let done = replay(&args, &path, history.as_ref(), &documents);
    if let Some(folder) = folder {
        folder.end(&done, |report| !report.differing.is_empty());
    }
    let report = done?;
    out.put(&report)?;
    match report.differing.len() {
        0 => Ok(()),
        count => Err(Failure::no(format!("{count} logs have wrong contents"))),
    }
}

/// Appends all of it to a new store at `path`, and reads it back.
fn replay(
    args: &Args,
    path: &Path,
    history: Option<&History>,
    documents: &[Document<'_>],
) -> Result<Report, Failure> {
    let options = Options::new().ring_size(args.ring_size);
    let store = options.clone().create(Create::New).open(path)?;

    let durability = match args.durability {
        When::Durable => Durability::Durable,
        When::Deferred => Durability::Deferred(Duration::from_millis(100)),
    };
    let manner = Manner { writers: args.writers.get(), in_flight: args.in_flight.get(), durability };
    let appends = documents.iter().map(|document| document.entries.len()).sum::<usize>();
    let commits = history.map_or(appends, |history| history.commits.len());
    let bar = progress(commits as u64, "appending");
    let start = Instant::now();
    let latencies = match history {
        Some(history) => drive::commit(&store, history, manner, &bar)?,
        None => drive::append(&store, documents, manner, &bar)?,
    };
    store.flush()?;
    let took = start.elapsed();
    bar.finish_and_clear();
    let info = store.info()?;
    store.close()?;
    drop(store);

    let start = Instant::now();
    let store = options.create(Create::Never).open(path)?;
    let opened = start.elapsed();
    let bar = progress(documents.len() as u64, "reading back");
    let start = Instant::now();
    let differing = drive::verify(&store, documents, manner.writers, &bar);
    let read = start.elapsed();
    bar.finish_and_clear();
    store.close()?;

    let mut report = Report::new(documents, commits, took, &latencies, &info);
    report.open_ms = opened.as_secs_f64() * 1e3;
    report.read_seconds = read.as_secs_f64();
    report.differing = differing;
    Ok(report)
}

fn documents_of_history<'a>(history: &'a History) -> Vec<Document<'a>> {
    let document = |log: &'a Log| Document { key: log.key.clone(), entries: &log.entries, text: None };
    history.logs.iter().map(document).collect()
}

fn documents_of_traces<'a>(traces: &'a [Trace], copies: usize) -> Vec<Document<'a>> {
    let document = |trace: &'a Trace, copy| Document {
        key: format!("{}/{copy}", trace.name),
        entries: &trace.payloads,
        text: trace.end.as_deref(),
    };
    (0..copies).flat_map(|copy| traces.iter().map(move |trace| document(trace, copy))).collect()
}

#[derive(Serialize)]
struct Report {
    logs: usize,
    commits: usize,
    appends: usize,
    payload_bytes: u64,
    seconds: f64,
    appends_per_second: f64,
    ack_micros: Micros,
    written_bytes: u64,
    written_per_payload_byte: f64,
    checkpoints: u64,
    compactions: u64,
    open_ms: f64,
    read_seconds: f64,
    differing: Vec<String>,
}

impl Report {
    fn new(
        documents: &[Document<'_>],
        commits: usize,
        took: Duration,
        latencies: &Latencies,
        info: &StoreInfo,
    ) -> Self {
        let appends = documents.iter().map(|document| document.entries.len()).sum();
        let bytes = |document: &Document<'_>| document.entries.iter().map(|e| e.len() as u64).sum::<u64>();
        let payload_bytes = documents.iter().map(bytes).sum();
        let written_bytes = info.wal.written_bytes + info.maintenance.heap_written_bytes;
        Self {
            logs: documents.len(),
            commits,
            appends,
            payload_bytes,
            seconds: took.as_secs_f64(),
            appends_per_second: appends as f64 / took.as_secs_f64(),
            ack_micros: latencies.into(),
            written_bytes,
            written_per_payload_byte: written_bytes as f64 / payload_bytes.max(1) as f64,
            checkpoints: info.maintenance.checkpoints,
            compactions: info.maintenance.compactions,
            open_ms: 0.0,
            read_seconds: 0.0,
            differing: Vec::new(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: usize| HumanCount(n as u64);
        let (appends, commits, logs) = (count(self.appends), count(self.commits), count(self.logs));
        writeln!(
            f,
            "appended   {appends} entries in {commits} commits to {logs} logs in {:.2} s",
            self.seconds
        )?;
        writeln!(f, "rate       {} appends/s", HumanCount(self.appends_per_second as u64))?;
        writeln!(f, "ack        {}", self.ack_micros)?;
        let (payload, written) = (HumanBytes(self.payload_bytes), HumanBytes(self.written_bytes));
        let ratio = self.written_per_payload_byte;
        writeln!(f, "written    {written} for {payload} of payload: {ratio:.2} bytes each")?;
        writeln!(f, "upkeep     {} checkpoints, {} compactions", self.checkpoints, self.compactions)?;
        writeln!(f, "reopened   in {:.1} ms, all read back in {:.2} s", self.open_ms, self.read_seconds)?;
        match &*self.differing {
            [] => write!(f, "{} every log reads as it was appended, every text as it was typed", good("✓")),
            differing => {
                let lines = differing.iter().map(|line| format!("{} {line}", bad("✗")));
                f.write_str(&lines.collect::<Vec<_>>().join("\n"))
            }
        }
    }
}
