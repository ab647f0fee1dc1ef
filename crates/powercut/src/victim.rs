//! The process whose power is cut: several threads write, each in its own way, and print the
//! acknowledged entries.
//!
//! It prints lines to the standard output, each in one write, so that they survive the process:
//! `try LOG SEQ` before an entry is submitted to the store, `ack LOG SEQ` after this entry and all
//! before it were acknowledged, `stopped WHY` if the store stopped. An acknowledgement of an entry
//! of a log with a twin covers the twin's entry, too.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use brooklet::io::{Rng, system_seed};
use brooklet::{Commit, Durability, Error, ErrorKind, Options, Store, Ticket};

use crate::story::{KEPT, options, payload, twin};

/// Exit code of a victim whose store stopped.
pub const STOPPED: u8 = 9;
/// Number of threads that wait for each commit.
const WAITING: usize = 3;
/// Number of logs of each thread.
const LOGS: u64 = 30;
/// Most appends that wait for their acknowledgement at once, in the thread that does not wait for
/// each.
const IN_FLIGHT: usize = 48;

/// The arguments of the victim.
#[derive(clap::Args)]
pub struct Args {
    /// Where the store is, or is to be made
    path: PathBuf,
    /// Number that marks what is written now
    #[arg(long)]
    round: u32,
    /// Where the writers' choices come from; a virtual machine that was thawed draws the same again
    /// and again
    #[arg(long)]
    seed: Option<u64>,
}

/// Writes until the power goes off.
pub fn run(args: &Args) -> ExitCode {
    // The victim ends with the harness.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let mut rng = Rng::new(args.seed.unwrap_or_else(system_seed));
    loop {
        // Some victims live long, others close their store again and again.
        let commits = if rng.percent(25) { 1 + rng.below(150) } else { u64::MAX };
        if let Err(error) = live(args, &mut rng, commits) {
            say(format_args!("stopped {error}"));
            return ExitCode::from(STOPPED);
        }
    }
}

/// Draws every way to write: rings and threads, direct and through the page cache.
fn vary(options: Options, rng: &mut Rng) -> Options {
    options.io_uring(!rng.percent(30)).direct(!rng.percent(20))
}

fn live(args: &Args, rng: &mut Rng, commits: u64) -> Result<(), Error> {
    let store = &vary(options(), rng).open(&args.path)?;
    let round = args.round;
    let mut own = || Rng::new(rng.next());
    let (waiting, later, deferred) = ([(); WAITING].map(|()| own()), own(), own());
    thread::scope(|scope| {
        let spawn = |(writer, rng)| scope.spawn(move || wait_for_each(store, writer, round, commits, rng));
        let mut writers: Vec<_> = waiting.into_iter().enumerate().map(spawn).collect();
        writers.push(scope.spawn(move || wait_later(store, round, commits, later)));
        writers.push(scope.spawn(move || flush_now_and_then(store, round, commits, deferred)));
        writers.into_iter().try_for_each(|writer| writer.join().expect("no panics"))
    })?;
    store.close()
}

/// Commits to a log and its twin, and waits.
fn wait_for_each(store: &Store, writer: usize, round: u32, commits: u64, mut rng: Rng) -> Result<(), Error> {
    for _ in 0..commits {
        let log = format!("w{writer}/{}", rng.below(LOGS));
        let twin = twin(&log);
        let seq = next(store, &log)?;
        let (bytes, twin_bytes) = (payload(&log, seq, round), payload(&twin, seq, round));
        let mut commit = Commit::new();
        commit.expect_next(&log, seq).append(&log, &bytes).append(&twin, &twin_bytes);
        if rng.percent(20) {
            commit.keep_last(&log, KEPT).keep_last(&twin, KEPT);
        }
        say(format_args!("try {log} {seq}"));
        if let Some(ticket) = unless_full(store.commit(&commit))? {
            ticket.wait()?;
            say(format_args!("ack {log} {seq}"));
        }
    }
    Ok(())
}

/// Appends without waiting, and checks the acknowledgements later.
fn wait_later(store: &Store, round: u32, commits: u64, mut rng: Rng) -> Result<(), Error> {
    let mut waiting: VecDeque<(Ticket, String)> = VecDeque::new();
    let mut nexts = BTreeMap::new();
    for _ in 0..commits {
        let log = format!("u/{}", rng.below(LOGS));
        let seq = next_of(&mut nexts, store, &log)?;
        say(format_args!("try {log} {seq}"));
        let Some(ticket) = unless_full(store.append(&log, payload(&log, seq, round)))? else { continue };
        assert_eq!(ticket.seq(), seq, "{log}: nobody else writes to it");
        nexts.insert(log.clone(), seq + 1);
        waiting.push_back((ticket, log.clone()));
        if rng.percent(5) {
            let _later = unless_full(store.keep_last(&log, KEPT))?;
        }
        while waiting.len() > IN_FLIGHT || waiting.front().is_some_and(|(ticket, _)| ticket.is_durable()) {
            acknowledge(waiting.pop_front())?;
        }
    }
    while !waiting.is_empty() {
        acknowledge(waiting.pop_front())?;
    }
    Ok(())
}

fn acknowledge(first: Option<(Ticket, String)>) -> Result<(), Error> {
    let Some((ticket, log)) = first else { return Ok(()) };
    ticket.wait()?;
    say(format_args!("ack {log} {}", ticket.seq()));
    Ok(())
}

/// Appends with deferred durability, which promises nothing, and flushes sometimes, which does.
fn flush_now_and_then(store: &Store, round: u32, commits: u64, mut rng: Rng) -> Result<(), Error> {
    let mut nexts = BTreeMap::new();
    for _ in 0..commits {
        let mut written = BTreeMap::new();
        for _ in 0..1 + rng.below(40) {
            let log = format!("d/{}", rng.below(LOGS));
            let seq = next_of(&mut nexts, store, &log)?;
            say(format_args!("try {log} {seq}"));
            let durability = Durability::Deferred(Duration::from_millis(rng.below(20)));
            let appended = store.append_with(&log, payload(&log, seq, round), durability);
            if unless_full(appended)?.is_some() {
                nexts.insert(log.clone(), seq + 1);
                written.insert(log, seq);
            }
        }
        if rng.percent(50) {
            thread::sleep(Duration::from_micros(rng.below(3_000)));
        }
        store.flush()?;
        for (log, seq) in written {
            say(format_args!("ack {log} {seq}"));
        }
    }
    Ok(())
}

/// A full store refuses a commit before it has any effect; the victim continues a little later.
fn unless_full(written: Result<Ticket, Error>) -> Result<Option<Ticket>, Error> {
    match written {
        Ok(ticket) => Ok(Some(ticket)),
        Err(error) if error.kind() == ErrorKind::Full => {
            thread::sleep(Duration::from_millis(2));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns the log's next number, and asks the store only once: that call makes deferred appends
/// durable.
fn next_of(nexts: &mut BTreeMap<String, u64>, store: &Store, log: &str) -> Result<u64, Error> {
    match nexts.get(log) {
        Some(seq) => Ok(*seq),
        None => next(store, log),
    }
}

fn next(store: &Store, log: &str) -> Result<u64, Error> {
    match store.bounds(log) {
        Ok(bounds) => Ok(bounds.next),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Prints a line and flushes it out of this process.
fn say(line: std::fmt::Arguments<'_>) {
    let mut out = stdout().lock();
    // Without a harness, the process ends.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(i32::from(STOPPED));
    }
}
