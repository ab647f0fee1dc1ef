//! The process that writes to a store on a full disk: several threads, each with its own logs and
//! habits.
//!
//! It prints lines to the standard output, each in one write: each commit before its submission,
//! and later its result.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use brooklet::io::Rng;
use brooklet::{ErrorKind, Options, Store, Ticket};
use serde::{Deserialize, Serialize};

use super::logs::{Act, Log, Logs, Op, commit, mark, read};
use crate::victim::STOPPED;

/// Number of refusals in a row after which the disk counts as full.
const REFUSALS: u32 = 10;

/// A line that the process prints; a number is a writer's.
#[derive(Debug, Serialize, Deserialize)]
pub enum Line {
    /// A commit is submitted.
    Try(usize, Vec<Op>),
    /// The last submitted commit found no room.
    Refused(usize, String),
    /// All submitted commits are acknowledged.
    Kept(usize),
    /// A compaction step of a merge was published, and the merge continues.
    Merged,
    /// A writer has finished.
    Done,
    /// The store has stopped, or an error occurred.
    Stopped(String),
}

/// The task of the writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Plan {
    /// Append until there is no room.
    Fill,
    /// Free something of most logs, in all ways.
    Thin,
    /// Delete all logs.
    Empty,
    /// Append and free for ever, more of the one than of the other.
    Churn,
}

/// The arguments of the process.
#[derive(clap::Args)]
pub struct Args {
    /// Where the store is, or is to be made
    path: PathBuf,
    /// What to do
    #[arg(long, value_enum)]
    plan: Plan,
    /// Where the writers' choices come from; it also marks the logs that are made
    #[arg(long)]
    seed: u64,
    /// Ends without closing the store, as a kill would
    #[arg(long)]
    abandon: bool,
}

/// The habits of one writer.
struct Habit {
    /// Number of logs that grow at once, and the size at which a log is replaced by another, in
    /// bytes.
    logs: usize,
    full: u64,
    /// Length of the logs' names.
    name: usize,
    /// Range of payload lengths, in bytes.
    payload: [u64; 2],
    /// Number of operations per commit, and number of commits that wait together.
    ops: usize,
    commits: usize,
}

/// Habits of the writers: many logs with long names and one small entry each; some medium logs; few
/// large logs; and many logs that grow by small entries, several per commit.
const HABITS: [Habit; 4] = [
    Habit { logs: 1, full: 1, name: 300, payload: [40, 200], ops: 1, commits: 16 },
    Habit { logs: 30, full: 60_000, name: 20, payload: [2_000, 2_500], ops: 1, commits: 8 },
    Habit { logs: 5, full: 100_000, name: 12, payload: [5_000, 30_000], ops: 1, commits: 2 },
    Habit { logs: 300, full: 3_000, name: 40, payload: [10, 600], ops: 4, commits: 16 },
];

/// Returns the options of the store: small sizes, so that checkpoints, merges and new laps of the
/// ring are frequent.
pub fn options() -> Options {
    Options::new().ring_size(512 << 10).memory_budget(512 << 10).cache_budget(256 << 10).max_payload(32 << 10)
}

/// Returns the prefix of the names of a writer's logs.
pub fn prefix(writer: usize) -> String {
    format!("{writer}/")
}

/// Runs the task.
pub fn run(args: &Args) -> ExitCode {
    // This process ends with the harness.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    live(args).unwrap_or_else(|error| give_up(&error));
    ExitCode::SUCCESS
}

/// Reports the error, and ends the process.
fn give_up(error: &anyhow::Error) -> ! {
    say(&Line::Stopped(format!("{error:#}")));
    std::process::exit(i32::from(STOPPED))
}

fn live(args: &Args) -> anyhow::Result<()> {
    let mut rng = Rng::new(args.seed);
    let store = &options().open(&args.path)?;
    let ended = &AtomicBool::new(false);
    let together = &Barrier::new(HABITS.len());
    thread::scope(|scope| {
        scope.spawn(move || tell_merges(store, ended));
        let writers = std::array::from_fn::<_, { HABITS.len() }, _>(|id| {
            let rng = Rng::new(rng.next());
            scope.spawn(move || {
                Writer::new(store, id, rng, args.seed)
                    .and_then(|mut writer| writer.work(args.plan, together))
                    .unwrap_or_else(|error| give_up(&error))
            })
        });
        writers.into_iter().for_each(|writer| writer.join().expect("no panics"));
        ended.store(true, Ordering::Relaxed);
    });
    if args.abandon {
        std::process::exit(0);
    }
    Ok(store.close()?)
}

/// Reports each compaction step of a merge, so that the harness can fill the disk during a merge.
fn tell_merges(store: &Store, ended: &AtomicBool) {
    let mut last = 0;
    while !ended.load(Ordering::Relaxed) {
        if let Ok(info) = store.info()
            && info.compacting
            && std::mem::replace(&mut last, info.maintenance.compaction_steps)
                != info.maintenance.compaction_steps
        {
            say(&Line::Merged);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

struct Writer<'a> {
    store: &'a Store,
    id: usize,
    habit: &'static Habit,
    rng: Rng,
    /// Expected contents of the logs, with all waiting commits applied.
    logs: Logs,
    /// Names of the growing logs.
    growing: Vec<String>,
    /// Prefix of the names of new logs, and number of new logs.
    mark: String,
    made: u64,
    waiting: Vec<Ticket>,
}

impl<'a> Writer<'a> {
    fn new(store: &'a Store, id: usize, rng: Rng, seed: u64) -> anyhow::Result<Self> {
        let habit = &HABITS[id];
        let logs = read(store, &prefix(id))?;
        let small = logs.iter().filter(|(_, log)| log.bytes() < habit.full);
        let growing = small.map(|(name, _)| name.clone()).take(habit.logs).collect();
        let mark = format!("{}{seed:x}", prefix(id));
        Ok(Self { store, id, habit, rng, logs, growing, mark, made: 0, waiting: Vec::new() })
    }

    /// Runs the task. All writers read before any writer writes, and read again after all have
    /// written: a reader keeps the space of the entries that it reads, so a delete during a read
    /// may free none.
    fn work(&mut self, plan: Plan, together: &Barrier) -> anyhow::Result<()> {
        together.wait();
        match plan {
            Plan::Fill => self.fill()?,
            Plan::Thin => self.free_all(|writer, log| writer.rng.percent(75).then(|| writer.less(log)))?,
            Plan::Empty => self.free_all(|_, _| Some(Act::Delete))?,
            Plan::Churn => self.churn()?,
        }
        self.settle()?;
        together.wait();
        // Reads succeed on a full disk.
        ensure!(read(self.store, &prefix(self.id))? == self.logs, "writer {} reads something else", self.id);
        say(&Line::Done);
        Ok(())
    }

    fn fill(&mut self) -> anyhow::Result<()> {
        let mut refusals = 0;
        while refusals < REFUSALS {
            let ops = (0..self.habit.ops).map(|_| self.more()).collect();
            if self.commit(ops)? {
                refusals = 0;
            } else {
                refusals += 1;
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Commits a freeing operation on each log for which `act` returns one, several per commit.
    fn free_all(&mut self, mut act: impl FnMut(&mut Self, &Log) -> Option<Act>) -> anyhow::Result<()> {
        let mut ops = Vec::new();
        for (log, held) in self.logs.clone() {
            ops.extend(act(self, &held).map(|act| Op { log, act }));
            if ops.len() >= self.habit.ops {
                self.commit(std::mem::take(&mut ops))?;
            }
        }
        if ops.is_empty() { Ok(()) } else { self.commit(ops).map(drop) }
    }

    fn churn(&mut self) -> anyhow::Result<()> {
        loop {
            let any = self.rng.below(self.logs.len().max(1) as u64) as usize;
            let ops = match self.logs.iter().nth(any).filter(|_| self.rng.percent(20)) {
                Some((log, held)) => {
                    let (log, held) = (log.clone(), held.clone());
                    vec![Op { log, act: self.less(&held) }]
                }
                None => (0..self.habit.ops).map(|_| self.more()).collect(),
            };
            if !self.commit(ops)? {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Draws an append, or a snapshot, to a growing log.
    fn more(&mut self) -> Op {
        let full = |name: &String| self.logs.get(name).is_some_and(|log| log.bytes() >= self.habit.full);
        if let Some(at) = self.growing.iter().position(full) {
            self.growing.swap_remove(at);
        }
        let log = if self.growing.len() < self.habit.logs {
            self.made += 1;
            let name = format!("{}/{}/", self.mark, self.made);
            let name = format!("{name:x<width$}", width = self.habit.name);
            self.growing.push(name.clone());
            name
        } else {
            self.growing[self.rng.below(self.growing.len() as u64) as usize].clone()
        };
        let [least, most] = self.habit.payload;
        let mark = mark(least.max(8) + self.rng.below(most - least), &mut self.rng);
        let act = if self.rng.percent(1) { Act::Snapshot(mark) } else { Act::Append(mark) };
        Op { log, act }
    }

    /// Draws an operation that only frees.
    fn less(&mut self, log: &Log) -> Act {
        let between = log.first + self.rng.below(log.marks.len() as u64 + 1);
        match self.rng.below(4) {
            0 => Act::Delete,
            1 => Act::Trim(between),
            2 => Act::Truncate(between),
            _ => Act::KeepLast(self.rng.below(3)),
        }
    }

    /// Commits; returns `false` if the store has no room.
    fn commit(&mut self, ops: Vec<Op>) -> anyhow::Result<bool> {
        say(&Line::Try(self.id, ops.clone()));
        match commit(self.store, &ops) {
            Ok(ticket) => {
                ops.iter().for_each(|op| op.apply(&mut self.logs));
                self.waiting.push(ticket);
                if self.waiting.len() >= self.habit.commits {
                    self.settle()?;
                }
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Full => {
                say(&Line::Refused(self.id, error.to_string()));
                // Waiting commits need not wait for a commit that found no room.
                self.settle()?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for all waiting commits.
    fn settle(&mut self) -> anyhow::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        for ticket in self.waiting.drain(..) {
            ticket.wait()?;
        }
        say(&Line::Kept(self.id));
        Ok(())
    }
}

/// Prints a line and flushes it out of this process.
fn say(line: &Line) {
    let mut text = serde_json::to_string(line).expect("plain data");
    text.push('\n');
    // Without a harness, the process ends.
    if stdout().lock().write_all(text.as_bytes()).and_then(|()| stdout().flush()).is_err() {
        std::process::exit(i32::from(STOPPED));
    }
}
