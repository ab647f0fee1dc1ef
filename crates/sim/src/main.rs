//! The simulator's command.

mod counts;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use brooklet_sim::campaign::{self, Totals};
use brooklet_sim::gallery::{self, BUDGET, BUGS};
use brooklet_sim::plan::Plan;
use brooklet_sim::shrink::shrink;
use brooklet_sim::sweep::{Swept, damage, errors};
use clap::{Parser, Subcommand};
use counts::Counts;
use serde_json::json;

/// Runs the real Brooklet store on a disk that fails, deterministically, against a plain model.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Replay this one seed, and tell its story; a run that fails is shrunk first
    #[arg(long)]
    seed: Option<u64>,
    #[command(subcommand)]
    command: Option<Command>,
    /// Threads
    #[arg(long, global = true, default_value_t = threads())]
    threads: usize,
}

#[derive(Subcommand)]
enum Command {
    /// Many seeds
    Run {
        /// The first of them
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// At least so many
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
        /// At least so many crash points
        #[arg(long, default_value_t = 0)]
        points: u64,
    },
    /// Every operation of some scripts fails, in every way
    Errors {
        /// Scripts
        #[arg(long, default_value_t = 4)]
        scripts: u64,
    },
    /// Every bit of a small store flips
    Flips {
        /// Only every so manieth
        #[arg(long, default_value_t = 1)]
        stride: u64,
    },
    /// Every sector of a small store is zeroed, stale, or another one
    Sectors {
        /// Only every so manieth
        #[arg(long, default_value_t = 1)]
        stride: u64,
    },
    /// Plants deliberate defects, one at a time, and sees each caught (needs a build with --features seeded-bugs)
    Gallery {
        /// Only this one, and the story of how it is caught
        name: Option<String>,
    },
    /// Prints the counts that were collected in a file, as tables for people
    Report {
        /// The file that BROOKLET_COUNTS named
        file: PathBuf,
        /// Put them into this page, between its marks, instead
        #[arg(long)]
        into: Option<PathBuf>,
    },
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn main() -> ExitCode {
    let args = Args::parse();
    #[expect(clippy::disallowed_methods, reason = "how long it took is for people, and decides nothing")]
    let began = Instant::now();
    let counts = Counts::new(move || began.elapsed());
    let threads = args.threads as u64;
    let done = match (args.seed, args.command) {
        (Some(seed), _) => replay(seed),
        (None, Some(Command::Run { from, seeds, points })) => run(&counts, from, seeds, points, args.threads),
        (None, Some(Command::Errors { scripts })) => {
            let swept = errors::sweep(scripts, threads);
            report(&counts, "error-sweep", swept, &format!("errors --scripts {scripts}"))
        }
        (None, Some(Command::Flips { stride })) => {
            report(&counts, "flip-sweep", damage::flips(stride, threads), &format!("flips --stride {stride}"))
        }
        (None, Some(Command::Sectors { stride })) => {
            let swept = damage::sectors(stride, threads);
            report(&counts, "sector-sweep", swept, &format!("sectors --stride {stride}"))
        }
        (None, Some(Command::Gallery { name })) => gallery(&counts, name.as_deref(), args.threads),
        (None, Some(Command::Report { file, into })) => counts::report(&file, into.as_deref()),
        (None, None) => run(&counts, 0, 1000, 0, args.threads),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

/// Tells a seed's story; of a run that fails, the shortest that still does.
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
        stats.tally.total(),
        stats.trace
    );
    Ok(())
}

fn run(counts: &Counts, from: u64, seeds: u64, points: u64, threads: usize) -> Result<(), String> {
    let enough = |totals: &Totals| {
        if totals.seeds.is_multiple_of(500) {
            eprintln!("{} seeds, {} crash points ...", totals.seeds, totals.tally.total());
        }
        totals.seeds >= seeds && totals.tally.total() >= points
    };
    let totals = campaign::run_many(from, threads, enough).map_err(|(seed, failure)| {
        format!("seed {seed} fails: {}\nits story: cargo run -p brooklet-sim -- --seed {seed}", failure.what)
    })?;
    let seconds = counts.seconds();
    let rate = totals.tally.total() as f64 / seconds / threads as f64;
    println!(
        "{} seeds from {from} on ({} run twice, with equal traces): {} steps, {} commits acknowledged; {} crash points \
         ({:?} by depth of recovery), {:.0} a second a core; {} entries read back after crashes; the store stopped in \
         {} runs, was full in {}, met damage in {}; 0 lost",
        totals.seeds,
        totals.repeated,
        totals.steps,
        totals.acknowledged,
        totals.tally.total(),
        totals.tally.points,
        rate,
        totals.tally.entries,
        totals.stopped,
        totals.full,
        totals.damaged
    );
    counts.add(json!({
        "kind": "simulation", "name": "seeds", "from": from, "seeds": totals.seeds, "repeated": totals.repeated,
        "steps": totals.steps, "acknowledged": totals.acknowledged, "points": totals.tally.total(),
        "depths": totals.tally.points, "entries": totals.tally.entries, "per_second_per_core": rate.round(),
        "command": format!("cargo run --release -p brooklet-sim -- run --from {from} --seeds {seeds} --points {points}"),
    }))
}

fn report(
    counts: &Counts,
    name: &str,
    swept: Result<Swept, brooklet_sim::ledger::Violation>,
    command: &str,
) -> Result<(), String> {
    let swept = swept.map_err(|violation| format!("{name}: {}", violation.0))?;
    println!(
        "{name}: {} cases: {} harmless, {} reported, {} met by a read or stopped the store; 0 wrong answers",
        swept.cases, swept.harmless, swept.checked, swept.met
    );
    counts.add(json!({
        "kind": "sweep", "name": name, "cases": swept.cases, "harmless": swept.harmless,
        "reported": swept.checked, "met": swept.met,
        "command": format!("cargo run --release -p brooklet-sim -- {command}"),
    }))
}

fn gallery(counts: &Counts, name: Option<&str>, threads: usize) -> Result<(), String> {
    if !gallery::can_plant() {
        return Err("this build cannot plant bugs: build it with --features seeded-bugs".into());
    }
    let chosen: Vec<_> = BUGS.iter().filter(|bug| name.is_none_or(|name| bug.name == name)).collect();
    if chosen.is_empty() {
        return Err("there is no bug of that name".into());
    }
    let mut missed = Vec::new();
    for bugs in chosen.chunks(threads.max(1)) {
        let hunts: Vec<_> = std::thread::scope(|scope| {
            let hunts: Vec<_> = bugs
                .iter()
                .map(|&&bug| scope.spawn(move || gallery::hunt(bug, BUDGET, name.is_some())))
                .collect();
            hunts.into_iter().map(|hunt| hunt.join().expect("a hunt does not panic")).collect()
        });
        for (bug, hunt) in bugs.iter().zip(hunts) {
            match hunt {
                Ok(caught) => {
                    let first = caught.what.lines().next().unwrap_or_default();
                    println!("caught by {:<18} {:<30} {}\n{:28} {first}", caught.by, bug.name, bug.what, "");
                    caught.story.iter().for_each(|line| println!("    {line}"));
                    counts.add(json!({
                        "kind": "bug", "name": bug.name, "what": bug.what, "by": caught.by, "said": first,
                        "command": format!("cargo run --release -p brooklet-sim -- gallery {}", bug.name),
                    }))?;
                }
                Err(why) => {
                    println!("NOT CAUGHT {:<30} {}: {why}", bug.name, bug.what);
                    missed.push(bug.name);
                }
            }
        }
    }
    println!("{} of {} seeded bugs caught", chosen.len() - missed.len(), chosen.len());
    if missed.is_empty() { Ok(()) } else { Err(format!("not caught: {}", missed.join(", "))) }
}
