//! The process that is killed: writers that each go through their story, readers, and somebody who
//! asks for checkpoints, compactions, scans and figures. It takes over the logs as they must be on
//! its standard input, and closes the store when that ends; what it tells, it tells in lines on its
//! standard output.

use std::collections::VecDeque;
use std::io::{BufReader, Read, Write, stdin, stdout};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use brooklet::io::Rng;
use brooklet::{Commit, Create, Durability, Options, Store, Ticket};

use super::acks::Line;
use super::audit::Eyes;
use super::log::{Log, Step};
use super::payload::{Mix, Payloads};
use super::story::{Op, Operation, Story, key};
use crate::failure::{Failure, Kind};

/// Operations of a writer that are begun and not told to be done.
pub const OPEN: u64 = 32;
/// The bound of deferred commits.
const BOUND: Duration = Duration::from_millis(50);
/// Time between two looks at the whole.
const TICK: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Args {
    /// The store
    pub store: PathBuf,
    #[arg(long)]
    pub logs: u32,
    #[arg(long)]
    pub seed: u64,
    #[arg(long)]
    pub round: u16,
    #[arg(long)]
    pub threads: u32,
    #[arg(long)]
    pub payloads: Mix,
}

/// How a round opens the store: small budgets and the plain ways of writing have their turn.
pub fn options(seed: u64, round: u16) -> Options {
    let mut rng = Rng::new(seed ^ u64::from(round) << 16);
    let mut one_of = |sizes: [usize; 3]| sizes[rng.below(3) as usize] << 20;
    let (memory, cache) = (one_of([16, 64, 128]), one_of([2, 16, 64]));
    let options = Options::new().memory_budget(memory).cache_budget(cache).create(Create::Never);
    options.io_uring(!rng.percent(20)).direct(!rng.percent(20))
}

/// Writes until it is killed, or until its standard input ends.
pub fn run(args: &Args) -> Result<(), Failure> {
    // A panic, in the store's own threads too: others would wait for ever for what that thread
    // held.
    std::panic::set_hook(Box::new(|panic| give_up(&panic.to_string())));
    let done = write(args);
    match &done {
        Ok(()) => tell(Line::Closed)?,
        Err(failure) => tell(Line::Wrong(failure.message.clone()))?,
    }
    done
}

/// Tells what is wrong and ends the process, whatever its threads are at.
fn give_up(what: &str) {
    let _ = tell(Line::Wrong(what.to_owned()));
    eprintln!("brooklet: {what}");
    std::process::exit(i32::from(Kind::No as u8));
}

fn write(args: &Args) -> Result<(), Failure> {
    let mut input = BufReader::with_capacity(1 << 20, stdin());
    let mut parts: Vec<Vec<Log>> = (0..args.threads).map(|_| Vec::new()).collect();
    for i in 0..args.logs {
        parts[(i % args.threads) as usize].push(Log::take(&mut input)?);
    }
    let begin = Instant::now();
    let store = options(args.seed, args.round).open(&args.store)?;
    tell(Line::Opened(begin.elapsed()))?;
    let payloads = Payloads::new(args.seed, args.payloads);
    let (stop, first) = (AtomicBool::new(false), AtomicBool::new(false));
    let stage =
        Stage { eyes: Eyes { store: &store, payloads: &payloads }, args, stop: &stop, first: &first, begin };
    thread::scope(|scope| {
        let stage = &stage;
        for (writer, logs) in (0..).zip(parts) {
            let mut story = Story::new(writer, args.threads, logs);
            story.begin(args.seed, args.round);
            stage.spawn(scope, move || stage.write(story));
        }
        stage.spawn(scope, || stage.read());
        stage.spawn(scope, || stage.keep());
        let ended = input.read(&mut [0]);
        stop.store(true, Ordering::Relaxed);
        ended
    })?;
    Ok(store.close()?)
}

/// What all threads share.
struct Stage<'a> {
    eyes: Eyes<'a>,
    args: &'a Args,
    stop: &'a AtomicBool,
    /// Something was acknowledged.
    first: &'a AtomicBool,
    begin: Instant,
}

impl Stage<'_> {
    /// Starts a thread, whose failure ends the process.
    fn spawn<'scope>(
        &self,
        scope: &'scope thread::Scope<'scope, '_>,
        work: impl FnOnce() -> Result<(), Failure> + Send + 'scope,
    ) {
        scope.spawn(move || work().unwrap_or_else(|failure| give_up(&failure.message)));
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Goes through a story.
    fn write(&self, mut story: Story) -> Result<(), Failure> {
        let mut line = Told {
            stage: self,
            writer: story.number(0),
            done: 0,
            told: 0,
            bytes: 0,
            waiting: VecDeque::new(),
        };
        while !self.stopped() {
            let operation = story.next();
            story.apply(&operation);
            match &operation {
                Operation::Commit { ops, deferred } => line.commit(&story, ops, *deferred)?,
                Operation::Refused { ops, with } => match line.hand_in(&story, ops, false) {
                    Err(error) if error.kind() == *with => {}
                    other => {
                        let told = other.map(|(ticket, _)| ticket.seqs().to_vec());
                        return Err(Failure::no(format!("{operation:?} was not refused: {told:?}")));
                    }
                },
                Operation::Look(log) => {
                    line.waiting.iter().try_for_each(|(ticket, _)| ticket.wait())?;
                    let found = self.eyes.look(story.number(*log));
                    let fits =
                        found.and_then(|found| found.compare(story.number(*log), &story.logs[*log as usize]));
                    fits.map_err(Failure::no)?;
                }
                Operation::Flush => self.eyes.store.flush()?,
            }
            line.done += 1;
            line.drain(OPEN)?;
        }
        line.drain(1)
    }

    /// Reads logs that others write to.
    fn read(&self) -> Result<(), Failure> {
        let mut rng = Rng::new(self.args.seed ^ u64::from(self.args.round) << 32);
        while !self.stopped() {
            self.eyes.entries(rng.below(self.args.logs.into()) as u32).map_err(Failure::no)?;
            thread::sleep(Duration::from_micros(300));
        }
        Ok(())
    }

    /// Looks after the whole: figures each second; now and then a scan, a checkpoint, a compaction.
    fn keep(&self) -> Result<(), Failure> {
        let mut rng = Rng::new(self.args.seed ^ u64::from(self.args.round) << 48);
        let store = self.eyes.store;
        let mut next = TICK;
        while !self.stopped() {
            thread::sleep(TICK / 50);
            if self.begin.elapsed() < next {
                continue;
            }
            next = self.begin.elapsed() + TICK;
            match rng.below(40) {
                0 => store.compact()?,
                1..4 => store.checkpoint()?,
                4..14 => scan(store, rng.below(256))?,
                _ => {}
            }
            let info = store.info()?;
            tell(Line::Figures(info.maintenance.into(), info.wal.written_bytes))?;
        }
        Ok(())
    }
}

/// Lists some of the logs; their keys must come in order.
fn scan(store: &Store, part: u64) -> Result<(), Failure> {
    let mut before = Vec::new();
    for log in store.scan(format!("soak/{part:02x}"))? {
        let log = log?;
        if log.key <= before || log.bounds.first > log.bounds.next {
            return Err(Failure::no(format!("a scan gave {log:?} after {}", before.escape_ascii())));
        }
        before = log.key;
    }
    Ok(())
}

/// How far a writer is, and how far it has told so.
struct Told<'a> {
    stage: &'a Stage<'a>,
    writer: u32,
    done: u64,
    told: u64,
    bytes: u64,
    /// Commits in flight, and the numbers of their operations.
    waiting: VecDeque<(Ticket, u64)>,
}

impl Told<'_> {
    fn commit(&mut self, story: &Story, ops: &[Op], deferred: bool) -> Result<(), Failure> {
        let (ticket, seqs) = self.hand_in(story, ops, deferred)?;
        if ticket.seqs() != seqs {
            return Err(Failure::no(format!(
                "{ops:?} were given the numbers {:?} instead of {seqs:?}",
                ticket.seqs()
            )));
        }
        self.waiting.push_back((ticket, self.done));
        Ok(())
    }

    /// Hands in a commit; gives the numbers too that its entries should get.
    fn hand_in(
        &mut self,
        story: &Story,
        ops: &[Op],
        deferred: bool,
    ) -> Result<(Ticket, Vec<u64>), brooklet::Error> {
        // The story is past it already: numbers are counted back from where its logs stand.
        let numbers = numbers(story, ops);
        let keys: Vec<String> = ops.iter().map(|(log, _)| key(story.number(*log))).collect();
        let payloads = ops.iter().zip(&numbers).map(|(&(log, step), seq)| match (step, seq) {
            (Step::Append(stamp) | Step::Snapshot(stamp), Some(seq)) => {
                self.stage.eyes.payloads.of(story.number(log), *seq, stamp)
            }
            _ => Vec::new(),
        });
        let payloads: Vec<Vec<u8>> = payloads.collect();
        let ticket = hand_in(self.stage.eyes.store, ops, &keys, &payloads, deferred)?;
        self.bytes += payloads.iter().map(|payload| payload.len() as u64).sum::<u64>();
        Ok((ticket, numbers.into_iter().flatten().map(u64::from).collect()))
    }

    /// Takes note of what is durable, until fewer than `most` operations are open, and tells of it.
    fn drain(&mut self, most: u64) -> Result<(), Failure> {
        let open = |front: Option<&(Ticket, u64)>, done: u64| front.map_or(0, |(_, number)| done - number);
        while let Some((ticket, _)) = self.waiting.front() {
            if open(self.waiting.front(), self.done) >= most {
                ticket.wait_durable()?;
            } else if !ticket.is_durable() {
                break;
            }
            self.waiting.pop_front();
        }
        let told = self.done - open(self.waiting.front(), self.done);
        if told > self.told {
            self.told = told;
            tell(Line::Done { writer: self.writer, operations: told, bytes: self.bytes })?;
            if !self.stage.first.swap(true, Ordering::Relaxed) {
                tell(Line::First(self.stage.begin.elapsed()))?;
            }
        }
        Ok(())
    }
}

/// The number that each step's entry gets, where it adds one.
pub fn numbers(story: &Story, ops: &[Op]) -> Vec<Option<u32>> {
    let adds = |step: &Step| matches!(step, Step::Append(_) | Step::Snapshot(_));
    let number = |(i, (log, step)): (usize, &Op)| {
        let later = ops[i..].iter().filter(|(other, step)| other == log && adds(step)).count() as u32;
        adds(step).then(|| story.logs[*log as usize].next.wrapping_sub(later))
    };
    ops.iter().enumerate().map(number).collect()
}

/// Hands it in by the plainest call there is for it.
fn hand_in(
    store: &Store,
    ops: &[Op],
    keys: &[String],
    payloads: &[Vec<u8>],
    deferred: bool,
) -> Result<Ticket, brooklet::Error> {
    let (key, payload, durability) =
        (&keys[0], &payloads[0], if deferred { Durability::Deferred(BOUND) } else { Durability::Durable });
    let same_log = ops.iter().all(|(log, step)| *log == ops[0].0 && matches!(step, Step::Append(_)));
    match ops {
        [(_, Step::Append(_))] => store.append_with(key, payload, durability),
        _ if same_log && !deferred => store.append_many(key, payloads),
        [(_, Step::Snapshot(_))] if !deferred => store.snapshot(key, payload),
        [(_, Step::Trim(before))] if !deferred => store.trim(key, (*before).into()),
        [(_, Step::KeepLast(n))] if !deferred => store.keep_last(key, (*n).into()),
        [(_, Step::Truncate(from))] if !deferred => store.truncate(key, (*from).into()),
        [(_, Step::Delete)] if !deferred => store.delete(key),
        _ => {
            let mut commit = Commit::new();
            commit.durability(durability);
            for ((key, payload), (_, step)) in keys.iter().zip(payloads).zip(ops) {
                match *step {
                    Step::Append(_) => commit.append(key, payload),
                    Step::Snapshot(_) => commit.snapshot(key, payload),
                    Step::Trim(before) => commit.trim(key, before.into()),
                    Step::KeepLast(n) => commit.keep_last(key, n.into()),
                    Step::Truncate(from) => commit.truncate(key, from.into()),
                    Step::Delete => commit.delete(key),
                    Step::ExpectNext(next) => commit.expect_next(key, next.into()),
                    Step::ExpectAbsent => commit.expect_absent(key),
                };
            }
            store.commit(&commit)
        }
    }
}

/// Tells something out of this process, so that it is known after its end.
fn tell(line: Line) -> Result<(), Failure> {
    Ok(stdout().write_all(format!("{line}\n").as_bytes())?)
}
