//! The process that is killed: eight threads write, and print an entry's log and number once its
//! ticket said so.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use brooklet::io::{Rng, system_seed};
use brooklet::{Commit, Create, Error, ErrorKind, Options, Store, Ticket};

use crate::demo::STORE;
use crate::demo::story::{LOGS, Step, key};
use crate::failure::{Failure, Kind};

/// Threads that write; each owns the logs whose numbers leave its own when divided by this.
const WRITERS: u32 = 8;
/// Commits of each in flight.
const IN_FLIGHT: usize = 24;

#[derive(clap::Args)]
pub struct Args {
    /// The folder of the store
    dir: PathBuf,
    /// The number that marks the writes of this round
    #[arg(long)]
    round: u32,
}

/// How the demo opens its store: small, so that a few seconds see checkpoints and compactions.
pub fn options() -> Options {
    Options::new().ring_size(4 << 20).memory_budget(4 << 20).max_payload(64 << 10)
}

/// Writes until it is killed.
pub fn run(args: &Args) -> Result<(), Failure> {
    let store = options().create(Create::Never).open(args.dir.join(STORE))?;
    let (failed, failure) = mpsc::channel();
    for writer in 0..WRITERS {
        let (store, round, failed) = (store.clone(), args.round, failed.clone());
        thread::spawn(move || {
            if let Err(failure) = write(&store, writer, round) {
                let _ = failed.send(failure);
            }
        });
    }
    Err(failure.recv().expect("a sender is here"))
}

fn write(store: &Store, writer: u32, round: u32) -> Result<(), Failure> {
    let mut rng = Rng::new(system_seed());
    let mine = (0..LOGS / WRITERS).map(|i| i * WRITERS + writer);
    let mut next = mine.map(|log| next_of(store, log)).collect::<Result<Vec<u64>, Error>>()?;
    let mut waiting: VecDeque<(Ticket, Vec<Step>)> = VecDeque::new();
    let mut lines = String::new();
    loop {
        let size = if rng.percent(20) { 2 } else { 1 };
        let step = |_| {
            // A few logs are busy, most are not.
            let among = if rng.percent(50) { 20 } else { next.len() as u64 };
            let i = rng.below(among) as usize;
            next[i] += 1;
            Step { log: i as u32 * WRITERS + writer, seq: next[i] - 1 }
        };
        let steps: Vec<Step> = (0..size).map(step).collect();
        waiting.push_back((commit(store, round, &steps)?, steps));
        lines.clear();
        while waiting.len() >= IN_FLIGHT || waiting.front().is_some_and(|(ticket, _)| ticket.is_durable()) {
            let Some((ticket, steps)) = waiting.pop_front() else { break };
            ticket.wait()?;
            for Step { log, seq } in steps {
                writeln!(lines, "{log} {seq}").expect("a string takes all");
            }
        }
        // Out of this process, so that it is known after its end.
        stdout().write_all(lines.as_bytes())?;
    }
}

fn commit(store: &Store, round: u32, steps: &[Step]) -> Result<Ticket, Failure> {
    let partner = |i: usize| (steps.len() == 2).then(|| steps[1 - i]);
    let half = |(i, step): (usize, &Step)| (*step, key(step.log), step.payload(round, partner(i)));
    let halves: Vec<_> = steps.iter().enumerate().map(half).collect();
    let mut commit = Commit::new();
    for (step, key, payload) in &halves {
        step.put(key, payload, &mut commit);
    }
    let ticket = store.commit(&commit)?;
    let seqs = steps.iter().map(|step| step.seq);
    if seqs.eq(ticket.seqs().iter().copied()) {
        Ok(ticket)
    } else {
        let what = format!("{steps:?} were given the numbers {:?}", ticket.seqs());
        Err(Failure::new(Kind::Damaged, what))
    }
}

fn next_of(store: &Store, log: u32) -> Result<u64, Error> {
    match store.bounds(key(log)) {
        Ok(bounds) => Ok(bounds.next),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}
