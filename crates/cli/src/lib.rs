//! The `brooklet` command: one store's logs, what the store is made of, and trials of it.
//!
//! `logs` and `inspect` hold the everyday commands, `replay`, `bench`, `probe` and `demo` the trials; `out` prints, `failure` tells what
//! went wrong and gives the exit code.

#![expect(clippy::disallowed_methods, reason = "a command drives real time and threads")]
#![forbid(unsafe_code)]

mod bench;
mod demo;
mod device;
mod failure;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod inspect;
mod latency;
mod logs;
mod out;
mod probe;
mod replay;
mod size;

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use failure::{EXIT_CODES, Failure};
use out::Out;

/// A store for millions of small append-only logs, in one file
#[derive(Parser)]
#[command(name = "brooklet", version, after_help = EXIT_CODES)]
struct Cli {
    /// Print JSON: one document, or one line for each row of `read` and `list`
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Append entries to a log, creating both if need be; prints their numbers once they are safe
    Append(logs::Append),
    /// Print entries of a log
    Read(logs::Read),
    /// Drop a log's oldest entries
    Trim(logs::Trim),
    /// Drop a log's newest entries
    Truncate(logs::Truncate),
    /// Drop a log
    Delete(logs::Log),
    /// List the logs
    List(logs::List),
    /// Show what a store is made of, or the bounds of a log
    Inspect(inspect::Inspect),
    /// Check every checksum and invariant of a closed store
    Check(inspect::Only),
    /// Write what is recent to a run, and free the ring behind it
    Checkpoint(inspect::Only),
    /// Merge all runs into one, and free what was trimmed and deleted
    Compact(inspect::Only),
    /// Append what people really typed or committed, as fast as it goes; read it back and compare
    Replay(replay::Args),
    /// Measure the store, and others beside it, on one load
    Bench(bench::Args),
    /// Measure what a disk can do, as a table and as curves, and tell the settings that follow
    Probe(probe::Args),
    /// Kill a store while it is written to, three times, and show that nothing acknowledged is lost
    Demo,
    /// The process that the demo kills
    #[command(hide = true)]
    DemoWriter(demo::victim::Args),
}

/// Runs the command that the process's arguments ask for.
pub fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let ansi = stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(ansi).init();
    let Cli { json, command } = Cli::parse();
    match run(command, &mut Out::new(json)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.end(json),
    }
}

fn run(command: Command, out: &mut Out) -> Result<(), Failure> {
    let done = match command {
        Command::Append(args) => logs::append(args, out),
        Command::Read(args) => logs::read(args, out),
        Command::Trim(args) => logs::trim(args, out),
        Command::Truncate(args) => logs::truncate(args, out),
        Command::Delete(log) => logs::delete(log, out),
        Command::List(args) => logs::list(args, out),
        Command::Inspect(args) => inspect::inspect(args, out),
        Command::Check(args) => inspect::check(args, out),
        Command::Checkpoint(args) => inspect::checkpoint(args, out),
        Command::Compact(args) => inspect::compact(args, out),
        Command::Replay(args) => replay::run(args, out),
        Command::Bench(args) => bench::run(args, out),
        Command::Probe(args) => probe::run(args, out),
        Command::Demo => demo::run(out),
        Command::DemoWriter(args) => demo::victim::run(&args),
    };
    // What was found before a failure is printed in any case.
    let flushed = out.flush();
    done.and(flushed)
}
