//! `soak`: many logs, every operation from many threads at once, and a process that is killed again
//! and again. After each kill, the command compares all acknowledged entries.
//!
//! `log` is the model of a log, `story` determines the operations of writers, `payload` their
//! payloads; `writer` is the killed process, `acks` its reports; `round` starts it, reads its
//! reports and kills it; `audit` compares; `report` sums up. The acknowledgements are here, outside
//! of the killed process: for each writer, the number of its completed operations.

mod acks;
mod audit;
mod log;
mod payload;
mod report;
mod round;
mod story;
pub mod writer;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brooklet::io::{Rng, system_seed};
use brooklet::{Commit, Create, Options};

use crate::evidence::Folder;
use crate::failure::Failure;
use crate::output::Output;
use crate::size::{count, size};
use crate::time;
use audit::{Audit, Eyes};
use log::Log;
use payload::{Mix, Payloads};
use report::Report;
use round::End;
use story::{Story, key};

/// The store's name in its directory.
const STORE: &str = "soak.brooklet";
/// Logs of a commit that fills.
const COMMIT: u32 = 1000;
/// Number of logs of each writer that are compared after each kill, changed or not.
const SAMPLE: usize = 250;
/// Checks take one in this number of parts of the time, besides the last check.
const CHECKS: u32 = 6;
/// Most time for which a killed process may hold the store.
const LOCKED: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub struct Args {
    /// Minutes to run, or a time with a unit (s, m, h and d are understood), without the last round
    /// and the last comparison
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = minutes)]
    minutes: Duration,
    /// Number of logs
    #[arg(long, value_name = "N", default_value = "1e6", value_parser = logs)]
    logs: u32,
    /// Seed of the random choices; the times of the kills depend on the machine, too [default: a
    /// new one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// The folder of the store, which is removed at the end unless the store may have a defect
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Sizes of payloads
    #[arg(long, default_value = "mixed")]
    payloads: Mix,
    /// Number of threads that write
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Seconds between kills, or a time with a unit (ms, s, m), on average
    #[arg(long, default_value = "10", value_parser = seconds)]
    kill_every: Duration,
    /// Size of the store's ring in bytes (K, M and G are understood)
    #[arg(long, default_value = "64M", value_parser = size)]
    ring_size: u64,
}

fn minutes(text: &str) -> Result<Duration, String> {
    let range = Duration::ZERO..=Duration::from_secs(100_000 * 60);
    let plain = text.parse().ok().and_then(|n: f64| Duration::try_from_secs_f64(n * 60.0).ok());
    let time = plain.or_else(|| time::age(text).ok()).filter(|time| range.contains(time));
    time.ok_or_else(|| "use 0 to 100000, or a time with a unit".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(10)..=Duration::from_secs(3600);
    time::seconds(text, range).ok_or_else(|| "use 0.01 to 3600".to_owned())
}

fn logs(text: &str) -> Result<u32, String> {
    count(text).map(|n| n as u32)
}

impl Args {
    /// Threads that write: each has a log at least.
    fn writers(&self) -> u32 {
        self.threads.min(self.logs)
    }
}

/// The plan that all rounds share.
struct Plan<'a> {
    args: &'a Args,
    seed: u64,
    store: &'a Path,
}

/// Fills, kills, compares, and reports the result.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    let seed = args.seed.unwrap_or_else(system_seed);
    let folder = Folder::new(&args.dir, "brooklet-soak-")?;
    let store = folder.path().join(STORE);
    let done = Soak::new(Plan { args: &args, seed, store: &store }).and_then(Soak::run);
    folder.end(&done, |report| !report.wrong.is_empty());
    let report = done?;
    out.put(&report)?;
    report.wrong.first().map_or(Ok(()), |what| Err(Failure::no(what)))
}

struct Soak<'a> {
    plan: Plan<'a>,
    payloads: Payloads,
    stories: Vec<Story>,
    rng: Rng,
    begin: Instant,
    /// Time that checks took.
    checking: Duration,
    audit: Audit,
    report: Report,
}

impl<'a> Soak<'a> {
    /// Makes the store and fills it: an entry in each log.
    fn new(plan: Plan<'a>) -> Result<Self, Failure> {
        let (args, begin) = (plan.args, Instant::now());
        let payloads = Payloads::new(plan.seed, args.payloads);
        let store = Options::new().ring_size(args.ring_size).create(Create::New).open(plan.store)?;
        for from in (0..args.logs).step_by(COMMIT as usize) {
            let logs = from..(from + COMMIT).min(args.logs);
            // Large payloads are more than a commit takes.
            let entries: Vec<_> = logs.map(|log| (key(log), payloads.of(log, 0, 0))).collect();
            for entries in entries.chunk_by(|_, (_, payload)| payload.len() < 4096) {
                let mut commit = Commit::new();
                for (key, payload) in entries {
                    commit.append(key, payload);
                }
                drop(store.commit(&commit)?);
            }
        }
        store.close()?;
        eprintln!(
            "{:.0} s: filled with {} logs; seed {}",
            begin.elapsed().as_secs_f64(),
            args.logs,
            plan.seed
        );
        let writers = args.writers();
        let own = |writer: u32| (args.logs - writer).div_ceil(writers) as usize;
        let story = |writer| Story::new(writer, writers, vec![Log::filled(); own(writer)]);
        Ok(Self {
            payloads,
            stories: (0..writers).map(story).collect(),
            rng: Rng::new(plan.seed),
            begin,
            checking: Duration::ZERO,
            audit: Audit::default(),
            report: Report::new(args, plan.seed),
            plan,
        })
    }

    /// Rounds until the time is over or something is wrong; then everything is compared once more.
    fn run(mut self) -> Result<Report, Failure> {
        let mut round = 0u16;
        while self.is_sound() && (round == 0 || self.begin.elapsed() < self.plan.args.minutes) {
            round = round.wrapping_add(1).max(1);
            self.round(round)?;
            if self.is_sound() && self.checking * CHECKS <= self.begin.elapsed() {
                self.check();
            }
        }
        if self.is_sound() {
            self.say("comparing all logs");
            self.compare(round, |audit, eyes, stories, _| {
                stories.iter().for_each(|story| audit.all(eyes, story))
            });
        }
        if self.is_sound() {
            self.check();
        }
        self.report.end(self.begin.elapsed(), self.audit);
        Ok(self.report)
    }

    fn is_sound(&self) -> bool {
        self.audit.wrong.is_empty()
    }

    fn say(&self, what: impl std::fmt::Display) {
        eprintln!("{:.0} s: {what}", self.begin.elapsed().as_secs_f64());
    }

    fn round(&mut self, round: u16) -> Result<(), Failure> {
        let end = End::by_chance(&mut self.rng, self.plan.args.kill_every);
        self.stories.iter_mut().for_each(|story| story.begin(self.plan.seed, round));
        let told =
            round::run(&self.plan, round, &self.stories, end, |told| self.say(self.report.so_far(told)))?;
        self.say(format_args!(
            "round {round}: {end:?}, {} operations acknowledged; comparing",
            told.operations()
        ));
        self.report.take(&told, end);
        if let Some(what) = &told.wrong {
            self.audit.wrong.push(format!("round {round}: {what}"));
            return Ok(());
        }
        let open = if matches!(end, End::Kill(_)) { writer::OPEN } else { 0 };
        self.compare(round, |audit, eyes, stories, rng| {
            for (story, (acknowledged, _)) in stories.iter_mut().zip(&told.done) {
                audit.writer(eyes, story, *acknowledged, open);
            }
            stories.iter().for_each(|story| audit.sample(eyes, story, SAMPLE, rng));
        });
        Ok(())
    }

    /// Opens the store and compares. Where nothing is to be written, the next round recovers it,
    /// else this does.
    fn compare(&mut self, round: u16, compare: impl FnOnce(&mut Audit, Eyes<'_>, &mut [Story], &mut Rng)) {
        let read_only = self.rng.percent(50);
        // The kernel may hold the file of a killed process longer than the process, until it has
        // ended what was in flight.
        let open = || Options::new().read_only(read_only).create(Create::Never).open(self.plan.store);
        let begin = Instant::now();
        let (opened, store) = loop {
            let (opened, store) = (Instant::now(), open());
            if !matches!(store, Err(brooklet::Error::Locked { .. })) || begin.elapsed() > LOCKED {
                break (opened, store);
            }
        };
        let store = match store {
            Ok(store) => store,
            Err(error) => return self.audit.wrong.push(format!("round {round}: opening the store: {error}")),
        };
        self.report.opened(opened.elapsed());
        let before = self.audit.wrong.len();
        let eyes = Eyes { store: &store, payloads: &self.payloads };
        compare(&mut self.audit, eyes, &mut self.stories, &mut self.rng);
        self.audit.wrong[before..].iter_mut().for_each(|what| *what = format!("after round {round}: {what}"));
        if !read_only {
            store.abandon();
        }
    }

    /// Every checksum and invariant.
    fn check(&mut self) {
        self.say("checking");
        let begin = Instant::now();
        match brooklet::check(self.plan.store, brooklet::Progress::ignore) {
            Ok(report) => {
                let flaws = report.findings.into_iter().filter(|finding| !finding.harmless);
                self.audit.wrong.extend(flaws.map(|finding| format!("check: {}", finding.what)));
                let all =
                    self.stories.iter().flat_map(|story| &story.logs).filter(|log| log.exists).count() as u64;
                if self.is_sound() && report.logs != all {
                    self.audit
                        .wrong
                        .push(format!("check: {} logs are there, and {all} must be", report.logs));
                }
            }
            Err(error) => self.audit.wrong.push(format!("check: {error}")),
        }
        self.report.checks += 1;
        self.checking += begin.elapsed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_may_have_another_unit() {
        assert_eq!([minutes("1.5"), minutes("0.02")], [minutes("90s"), minutes("1200ms")]);
        assert_eq!(minutes("2h"), Ok(Duration::from_secs(7200)));
        assert!(["-1", "100001", "x", "1y"].iter().all(|wrong| minutes(wrong).is_err()));
    }
}
