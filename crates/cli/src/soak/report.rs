//! What came of it.

use std::fmt::{self, Display};
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use super::Args;
use super::acks::Work;
use super::audit::Audit;
use super::round::{End, Told};
use crate::bench::table::median;

/// What the command prints.
#[derive(Debug, Serialize)]
pub struct Report {
    logs: u32,
    writers: u32,
    seed: u64,
    seconds: f64,
    /// Operations that were acknowledged, and the bytes of payload that were handed in for them.
    operations: u64,
    payload_bytes: u64,
    kills: u64,
    closes: u64,
    pub checks: u64,
    /// What the store told each second; what it did in the last one before a kill is not known.
    work: Work,
    ring_written: u64,
    /// Milliseconds, of all openings; and from opening to the first acknowledgement.
    open_ms: Spread,
    first_ack_ms: Spread,
    /// Logs and entries that were compared.
    logs_compared: u64,
    entries_compared: u64,
    /// The call that does the same again.
    repeat: String,
    pub wrong: Vec<String>,
    #[serde(skip)]
    opened: Vec<Duration>,
    #[serde(skip)]
    first: Vec<Duration>,
}

/// The middle one and the largest of some times.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Spread {
    median: f64,
    max: f64,
}

impl From<&Vec<Duration>> for Spread {
    fn from(times: &Vec<Duration>) -> Self {
        if times.is_empty() {
            return Self::default();
        }
        let ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        Self { max: ms.iter().copied().fold(0.0, f64::max), median: median(ms) }
    }
}

impl Report {
    pub fn new(args: &Args, seed: u64) -> Self {
        let Args { minutes, logs, threads, kill_every, ring_size, payloads, .. } = args;
        let payloads = clap::ValueEnum::to_possible_value(payloads).expect("none is hidden");
        let (minutes, payloads) = (minutes.as_secs_f64() / 60.0, payloads.get_name().to_owned());
        let every = kill_every.as_secs_f64();
        Self {
            logs: *logs,
            writers: args.writers(),
            seed,
            seconds: 0.0,
            operations: 0,
            payload_bytes: 0,
            kills: 0,
            closes: 0,
            checks: 0,
            work: Work::default(),
            ring_written: 0,
            open_ms: Spread::default(),
            first_ack_ms: Spread::default(),
            logs_compared: 0,
            entries_compared: 0,
            repeat: format!(
                "brooklet soak --minutes {minutes} --logs {logs} --seed {seed} --payloads {payloads} --threads {threads} \
                 --kill-every {every} --ring-size {ring_size}"
            ),
            wrong: Vec::new(),
            opened: Vec::new(),
            first: Vec::new(),
        }
    }

    /// Adds a round.
    pub fn take(&mut self, told: &Told, end: End) {
        *match end {
            End::Kill(_) => &mut self.kills,
            End::Close(_) => &mut self.closes,
        } += 1;
        self.operations += told.operations();
        self.payload_bytes += told.bytes();
        self.ring_written += told.ring_written;
        let (all, Work { checkpoints, compactions, dead_runs, heap_written }) = (&mut self.work, told.work);
        all.checkpoints += checkpoints;
        all.compactions += compactions;
        all.dead_runs += dead_runs;
        all.heap_written += heap_written;
        self.opened.extend(told.opened);
        self.first.extend(told.first);
    }

    /// Adds an opening.
    pub fn opened(&mut self, took: Duration) {
        self.opened.push(took);
    }

    /// Sums up.
    pub fn end(&mut self, took: Duration, audit: Audit) {
        self.seconds = took.as_secs_f64();
        (self.open_ms, self.first_ack_ms) = ((&self.opened).into(), (&self.first).into());
        (self.logs_compared, self.entries_compared, self.wrong) = (audit.logs, audit.entries, audit.wrong);
    }

    /// Where it stands in the midst of a round.
    pub fn so_far(&self, told: &Told) -> String {
        let operations = HumanCount(self.operations + told.operations());
        let (bytes, kills) = (HumanBytes(self.payload_bytes + told.bytes()), self.kills);
        let (checkpoints, compactions) =
            (self.work.checkpoints + told.work.checkpoints, self.work.compactions + told.work.compactions);
        format!(
            "{operations} operations acknowledged, {bytes}; {kills} kills, {checkpoints} checkpoints, {compactions} compactions"
        )
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { logs, writers, seed, seconds, kills, closes, checks, work, .. } = self;
        let (count, bytes) = (HumanCount, HumanBytes);
        writeln!(f, "{} logs, {writers} writers, seed {seed}, {seconds:.0} s", count((*logs).into()))?;
        writeln!(
            f,
            "  acknowledged   {} operations, {} of payload",
            count(self.operations),
            bytes(self.payload_bytes)
        )?;
        writeln!(
            f,
            "  written        {} to the ring, {} to the heap",
            bytes(self.ring_written),
            bytes(work.heap_written)
        )?;
        let Work { checkpoints, compactions, dead_runs, .. } = work;
        writeln!(
            f,
            "  by itself      {checkpoints} checkpoints, {compactions} compactions, {dead_runs} dead runs freed"
        )?;
        writeln!(f, "  ended          {kills} times by SIGKILL, {closes} times by closing the store")?;
        let Spread { median, max } = self.open_ms;
        writeln!(f, "  opened again   in {median:.0} ms, at most {max:.0}")?;
        let Spread { median, max } = self.first_ack_ms;
        writeln!(f, "  first ack      {median:.0} ms after opening began, at most {max:.0}")?;
        let (compared, entries) = (count(self.logs_compared), count(self.entries_compared));
        writeln!(
            f,
            "  compared       {compared} logs, {entries} entries; {checks} checks of the whole store"
        )?;
        if self.wrong.is_empty() {
            return write!(f, "  everything acknowledged is there, and nothing else");
        }
        writeln!(f, "  WRONG:")?;
        self.wrong.iter().try_for_each(|what| writeln!(f, "    {what}"))?;
        write!(f, "  again by: {}", self.repeat)
    }
}
