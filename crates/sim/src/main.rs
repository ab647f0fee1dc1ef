//! The simulator's command.

mod counts;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use brooklet_sim::budget::Budget;
use brooklet_sim::campaign::{self, Totals};
use brooklet_sim::mutations::{self, BUGS, Bug, Caught};
use brooklet_sim::oracle::Violation;
use brooklet_sim::plan::Plan;
use brooklet_sim::shrink::shrink;
use brooklet_sim::sweep::damage::{Flips, Sectors};
use brooklet_sim::sweep::errors::Errors;
use brooklet_sim::sweep::{self, Sweep};
use clap::{Parser, Subcommand};
use counts::Counts;
use serde_json::json;

/// Runs the real Brooklet store on a disk that fails, deterministically, against a plain model.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Replays this one seed, and prints its story; a failing run is shrunk first
    #[arg(long)]
    seed: Option<u64>,
    #[command(subcommand)]
    command: Option<Command>,
    /// Number of threads
    #[arg(long, global = true, default_value_t = threads())]
    threads: usize,
    /// Ends within about this many seconds, whatever is left to try; the counts report how much was
    /// tried
    #[arg(long, global = true)]
    seconds: Option<u64>,
}

#[derive(Subcommand)]
enum Command {
    /// Runs many seeds
    Run {
        /// First seed
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Least number of seeds; with --seconds, as many as the time allows
        #[arg(long)]
        seeds: Option<u64>,
        /// Least number of crash points
        #[arg(long, default_value_t = 0)]
        points: u64,
    },
    /// Fails every operation of some scripts, in every way
    Errors {
        /// Number of scripts
        #[arg(long, default_value_t = 4)]
        scripts: u64,
    },
    /// Flips every bit of two small stores
    Flips {
        /// Tries only one case in this many
        #[arg(long, default_value_t = 1)]
        stride: u64,
    },
    /// Replaces every sector of small stores by zeros, older data or another sector
    Sectors {
        /// Tries only one case in this many
        #[arg(long, default_value_t = 1)]
        stride: u64,
    },
    /// Plants deliberate defects, one at a time, and checks that each is caught (needs a build with
    /// --features seeded-bugs)
    Mutations {
        /// Only this defect, and the story of the run that catches it
        name: Option<String>,
    },
    /// Prints the counts that were collected in a file, as tables
    Report {
        /// The file that BROOKLET_COUNTS named
        file: PathBuf,
        /// Writes them into this page, between its marks, instead
        #[arg(long)]
        into: Option<PathBuf>,
    },
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let budget = Budget::new(args.seconds);
    let job = Job { counts: Counts::new(budget), budget, seconds: args.seconds, threads: args.threads };
    let done = match (args.seed, args.command) {
        (Some(seed), _) => replay(seed),
        (None, Some(Command::Run { from, seeds, points })) => job.run(from, seeds, points),
        (None, Some(Command::Errors { scripts })) => {
            job.sweep("error-sweep", Errors::new(scripts), &format!("errors --scripts {scripts}"))
        }
        (None, Some(Command::Flips { stride })) => {
            job.sweep("flip-sweep", Flips::new(stride), &format!("flips --stride {stride}"))
        }
        (None, Some(Command::Sectors { stride })) => {
            job.sweep("sector-sweep", Sectors::new(stride), &format!("sectors --stride {stride}"))
        }
        (None, Some(Command::Mutations { name })) => job.mutations(name.as_deref()),
        (None, Some(Command::Report { file, into })) => counts::report(&file, into.as_deref()),
        (None, None) => job.run(0, None, 0),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

/// Shows a seed's story; for a failing run, the story of the shortest run that still fails.
fn replay(seed: u64) -> Result<(), String> {
    let plan = Plan::draw(seed);
    println!("seed {seed}: {:?}, {:?}, {:?}", plan.class, plan.shape, plan.habits);
    if let Some((short, failure)) = shrink(&plan) {
        println!("{} of {} steps are enough to see it fail:", short.steps.len(), plan.steps.len());
        failure.story.iter().for_each(|line| println!("  {line}"));
        return Err(format!("seed {seed}: {}", failure.what));
    }
    let (story, stats) = campaign::tell(&Arc::new(plan)).map_err(|failure| failure.what)?;
    story.iter().for_each(|line| println!("  {line}"));
    println!(
        "all is well: {} steps, {} commits acknowledged, {} crash points, trace {:016x}",
        stats.steps,
        stats.acknowledged,
        stats.counts.total(),
        stats.trace
    );
    Ok(())
}

/// A job: its number of threads, its time limit, and the collector of its counts.
struct Job {
    counts: Counts,
    budget: Budget,
    seconds: Option<u64>,
    threads: usize,
}

impl Job {
    /// Returns the command that repeats the job.
    fn command(&self, command: &str) -> String {
        let seconds = self.seconds.map_or(String::new(), |seconds| format!(" --seconds {seconds}"));
        let feature = if command.starts_with("mutations") { " --features seeded-bugs" } else { "" };
        format!("cargo run --release -p brooklet-sim{feature} -- {command}{seconds}")
    }

    fn run(&self, from: u64, seeds: Option<u64>, points: u64) -> Result<(), String> {
        let wanted = seeds.unwrap_or(if self.seconds.is_some() { u64::MAX } else { 1000 });
        let enough = |totals: &Totals| {
            if totals.seeds.is_multiple_of(500) {
                eprintln!("{} seeds, {} crash points ...", totals.seeds, totals.counts.total());
            }
            totals.seeds >= wanted && totals.counts.total() >= points || self.budget.is_spent()
        };
        let totals = campaign::run_many(from, self.threads, enough).map_err(|(seed, failure)| {
            format!(
                "seed {seed} fails: {}\nits story: cargo run -p brooklet-sim -- --seed {seed}",
                failure.what
            )
        })?;
        let around = totals.around;
        let rate = totals.counts.total() as f64 / self.counts.seconds() / self.threads as f64;
        println!(
            "{} seeds from {from} on ({} run twice, with equal traces): {} steps, {} commits acknowledged; {} crash \
             points ({:?} by depth of recovery), {:.0} a second a core; {} restarts on a disk that failed; {} entries read back after crashes; the store \
             stopped in {} runs, was full in {}, met damage in {}; 0 lost; {} readers beside the store opened it on a damaged ring: {} \
             named the damage, {} had no block to miss or one that the superblock did not know, {} were overtaken; 0 wrong",
            totals.seeds,
            totals.repeated,
            totals.steps,
            totals.acknowledged,
            totals.counts.total(),
            totals.counts.points,
            rate,
            totals.counts.restarts,
            totals.counts.entries,
            totals.stopped,
            totals.full,
            totals.damaged,
            around.openings,
            around.named,
            around.quiet,
            around.late
        );
        let seeds = seeds.map_or(String::new(), |seeds| format!(" --seeds {seeds}"));
        self.counts.add(json!({
            "kind": "simulation", "name": "seeds", "from": from, "seeds": totals.seeds, "repeated": totals.repeated,
            "steps": totals.steps, "acknowledged": totals.acknowledged, "points": totals.counts.total(),
            "depths": totals.counts.points, "restarts": totals.counts.restarts, "entries": totals.counts.entries, "damaged_rings": around.openings,
            "named": around.named, "per_second_per_core": rate.round(),
            "command": self.command(&format!("run --from {from}{seeds} --points {points}")),
        }))
    }

    fn sweep<S: Sweep>(&self, name: &str, all: Result<S, Violation>, command: &str) -> Result<(), String> {
        let all = all.map_err(|violation| format!("{name}: {}", violation.0))?;
        let swept = sweep::run(&all, self.threads as u64, &self.budget);
        let swept = swept.map_err(|(_, violation)| format!("{name}: {}", violation.0))?;
        println!(
            "{name}: {} cases: {} harmless, {} reported, {} met by a read or stopped the store; 0 wrong answers; {} of \
             {} places tried",
            swept.cases,
            swept.harmless,
            swept.checked,
            swept.met,
            all.places() - swept.left_out,
            all.places()
        );
        self.counts.add(json!({
            "kind": "sweep", "name": name, "cases": swept.cases, "harmless": swept.harmless,
            "reported": swept.checked, "met": swept.met, "left_out": swept.left_out, "command": self.command(command),
        }))
    }

    fn mutations(&self, name: Option<&str>) -> Result<(), String> {
        if !mutations::can_plant() {
            return Err("this build cannot plant bugs: build it with --features seeded-bugs".into());
        }
        let chosen: Vec<_> =
            BUGS.iter().filter(|bug| name.is_none_or(|name| bug.name == name)).copied().collect();
        if chosen.is_empty() {
            return Err("there is no bug of that name".into());
        }
        let failed = Mutex::new(Vec::new());
        let fail = |what: String| failed.lock().expect("no panics").push(what);
        let note = |bug: Bug, hunted: Result<Caught, String>| match hunted {
            Ok(caught) => self.note_caught(bug, &caught).unwrap_or_else(&fail),
            Err(why) => {
                println!("NOT CAUGHT {:<30} {}: {why}", bug.name, bug.what);
                fail(format!("not caught: {}", bug.name));
            }
        };
        mutations::hunt_all(&chosen, self.threads, &self.budget, name.is_some(), &note);
        let failed = failed.into_inner().expect("no panics");
        println!(
            "{} of {} seeded bugs caught in {:.0} s",
            chosen.len() - failed.len(),
            chosen.len(),
            self.counts.seconds()
        );
        if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
    }

    fn note_caught(&self, bug: Bug, caught: &Caught) -> Result<(), String> {
        let first = caught.what.lines().next().unwrap_or_default();
        let drifted = if caught.by == bug.soonest { "" } else { " (and not by what caught it before)" };
        println!(
            "caught by {:<14} {:<32} {}{drifted}\n{:28} {first}",
            caught.by.to_string(),
            bug.name,
            bug.what,
            ""
        );
        caught.story.iter().for_each(|line| println!("    {line}"));
        self.counts.add(json!({
            "kind": "bug", "name": bug.name, "what": bug.what, "by": caught.by.to_string(), "said": first,
            "command": self.command(&format!("mutations {}", bug.name)),
        }))
    }
}
