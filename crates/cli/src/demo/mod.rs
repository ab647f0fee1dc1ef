//! `demo`: kills a store again and again while the store writes, and compares every acknowledged
//! entry.
//!
//! `failover` is another demo, of two hosts.
//!
//! `story` determines the entries, `victim` writes them in a process of its own, `oracle` compares,
//! `measure` times. The acknowledgements are outside of the victim, so that its end cannot change
//! them.

#[cfg(feature = "replicate")]
mod failover;
mod measure;
mod oracle;
mod story;
pub mod victim;

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use brooklet::io::{Rng, system_seed};
use brooklet::{Create, End, Error, Store};
use indicatif::HumanCount;
use serde::Serialize;

use crate::evidence::Folder;
use crate::failure::{Failure, Kind};
use crate::latency::Micros;
use crate::output::Output;
use oracle::Oracle;

/// The store's name in its directory.
const STORE: &str = "demo.brooklet";
/// How often the victim is killed.
const ROUNDS: u32 = 3;
/// Writers that wait at once, in the measurement.
const MANY: usize = 64;

/// Arguments of `brooklet demo`.
#[derive(clap::Args)]
pub struct Args {
    /// Kill a host instead, and let another one go on with its store
    #[arg(long)]
    failover: bool,
}

/// Runs the demo.
pub fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    #[cfg(feature = "replicate")]
    if args.failover {
        return failover::run(out);
    }
    #[cfg(not(feature = "replicate"))]
    if args.failover {
        return Err(crate::missing::refuse("replication", "replicate"));
    }
    let folder = Folder::new(Path::new("."), "brooklet-demo-")?;
    let done = play(folder.path(), out);
    folder.end(&done, |_| false);
    out.put(&done?)
}

/// Plays all rounds, and measures.
fn play(dir: &Path, out: &mut Output) -> Result<Report, Failure> {
    let name = dir.file_name().unwrap_or_default().display();
    out.tell(format_args!(
        "A store in ./{name}, removed at the end unless the demo fails: a ring of 4 MiB, 10,000 logs."
    ))?;
    victim::options().create(Create::New).open(dir.join(STORE))?.close()?;

    let mut rng = Rng::new(system_seed());
    let mut oracle = Oracle::new();
    let rounds = (1..=ROUNDS).map(|round| {
        out.tell(format_args!("\nRound {round}: a process starts 8 writers. They append, snapshot, trim,"))?;
        out.tell("and commit to two logs at once; each acknowledgement is kept outside of that process.")?;
        let time = Duration::from_millis(1_000 + rng.below(2_000));
        kill_and_check(dir, round, time, &mut oracle, out)
    });
    let rounds = rounds.collect::<Result<Vec<_>, _>>()?;

    out.tell("\nLast, the cost of waiting: the device alone, one waiting writer, many waiting writers.")?;
    let store = victim::options().create(Create::Never).open(dir.join(STORE))?;
    let [device, one] = measure::device_and_one_writer(&dir.join("plain"), &store)?;
    let many = measure::waiting_writers(&store, MANY)?;
    store.close()?;
    out.tell("")?;
    Ok(Report {
        acknowledged: oracle.acknowledged,
        lost: 0,
        rounds,
        device_micros: Micros::from(&device),
        device_per_second: measure::per_second(&device),
        one_micros: Micros::from(&one),
        one_per_second: measure::per_second(&one),
        many_micros: Micros::from(&many),
        many_per_second: measure::per_second(&many),
    })
}

fn kill_and_check(
    dir: &Path,
    round: u32,
    time: Duration,
    oracle: &mut Oracle,
    out: &mut Output,
) -> Result<Round, Failure> {
    let acknowledged = run_victim(dir, round, time, oracle)?;
    out.tell(format_args!(
        "  ✓ killed (SIGKILL) after {:.1} s in mid-flight: {} entries acknowledged",
        time.as_secs_f64(),
        HumanCount(acknowledged)
    ))?;

    let (store, recovery) = open_again(&dir.join(STORE))?;
    let recovery_ms = recovery.as_secs_f64() * 1e3;
    let info = store.info()?;
    let dropped = if let End::Torn(blocks) = info.recovery.end { blocks } else { 0 };
    out.tell(format_args!(
        "  ✓ opened again in {recovery_ms:.1} ms: {} ring blocks replayed, {dropped} unacknowledged dropped, {} runs",
        info.recovery.blocks,
        info.runs.len()
    ))?;

    let audit = oracle.audit(&store)?;
    store.close()?;
    drop(store);
    if let [first, ..] = &*audit.wrong {
        let (count, lost) = (audit.wrong.len(), audit.lost);
        return Err(Failure::no(format!(
            "{count} results are wrong, {lost} entries are lost; first: {first}"
        )));
    }
    let (entries, logs, pairs) = (HumanCount(audit.entries), HumanCount(audit.logs), HumanCount(audit.pairs));
    out.tell("  ✓ every acknowledged entry is there, in order, without a gap, byte for byte")?;
    out.tell(format_args!(
        "  ✓ {entries} entries in {logs} logs read; {pairs} commits over two, none half applied"
    ))?;

    let report = brooklet::check(dir.join(STORE), brooklet::Progress::ignore)?;
    if let Some(finding) = report.findings.first() {
        return Err(Failure::no(format!("the check found a defect: {}", finding.what)));
    }
    out.tell("  ✓ brooklet check: every checksum and invariant holds")?;
    let killed_after_seconds = time.as_secs_f64();
    Ok(Round { killed_after_seconds, acknowledged, recovery_ms, entries: audit.entries })
}

/// Opens the store, and returns the time of the opening. The kernel may hold the file of a killed
/// process a little longer than the process, until its last writes have ended. The call waits for
/// this, and does not count the wait.
fn open_again(path: &Path) -> Result<(Store, Duration), Failure> {
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        let start = Instant::now();
        match victim::options().create(Create::Never).open(path) {
            Ok(store) => return Ok((store, start.elapsed())),
            Err(Error::Locked { .. }) if start < give_up => thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Starts the victim, records its acknowledgements, and kills it.
fn run_victim(dir: &Path, round: u32, time: Duration, oracle: &mut Oracle) -> Result<u64, Failure> {
    let own = std::env::current_exe().map_err(Failure::io("finding this program"))?;
    let mut command = Command::new(own);
    command.arg("demo-writer").arg(dir).args(["--round", &round.to_string()]);
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut victim = started.map_err(Failure::io("starting the writing process"))?;
    let output = victim.stdout.take().expect("it was asked for");
    let (acknowledged, status) = thread::scope(|scope| {
        let taking = scope.spawn(|| oracle.take(output));
        thread::sleep(time);
        let killed = victim.kill().and_then(|()| victim.wait());
        (taking.join().expect("no panics"), killed)
    });
    let status = status.map_err(Failure::io("killing the writing process"))?;
    if status.signal().is_none() {
        return Err(Failure::new(
            Kind::Io,
            format!("the writing process ended before its time, with {status}"),
        ));
    }
    acknowledged.map_err(Failure::io("reading the acknowledgements"))
}

#[derive(Serialize)]
struct Round {
    killed_after_seconds: f64,
    acknowledged: u64,
    entries: u64,
    recovery_ms: f64,
}

#[derive(Serialize)]
struct Report {
    acknowledged: u64,
    lost: u64,
    rounds: Vec<Round>,
    device_micros: Micros,
    device_per_second: f64,
    one_micros: Micros,
    one_per_second: f64,
    many_micros: Micros,
    many_per_second: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recoveries: Vec<_> =
            self.rounds.iter().map(|round| format!("{:.1}", round.recovery_ms)).collect();
        writeln!(f, "  acknowledged       {} entries, lost {}", HumanCount(self.acknowledged), self.lost)?;
        writeln!(f, "  rounds             {}, recovered in {} ms", self.rounds.len(), recoveries.join(", "))?;
        let many = format!("{MANY} waiting writers");
        let rows = [
            ("device, 4 KiB", self.device_per_second, self.device_micros),
            ("1 waiting writer", self.one_per_second, self.one_micros),
            (&many, self.many_per_second, self.many_micros),
        ];
        for (what, rate, micros) in rows {
            writeln!(f, "  {what:<18} {:>9}/s, {micros}", HumanCount(rate as u64).to_string())?;
        }
        write!(
            f,
            "\nA kill is not a power cut: see `durable by` in `brooklet inspect` for how an ack becomes durable."
        )
    }
}
