//! The `brooklet` command.
//!
//! - Logs: `append`, `logs`, `space`, `tags`, `doc`.
//! - Whole stores: `format` (stores on devices), `inspect` (structure, checks, checkpoints),
//!   `export` and `import` (whole logs), `archive` (object storage), `top` (a store at work).
//! - Servers: `serve`, `cluster`.
//! - Sorted files: `codex`.
//! - Measurements and trials: `bench`, `probe`, `replay`, `demo`, `soak`.
//! - Parts of all subcommands: `store_args` (opening stores), `beside` (reading beside a writer),
//!   `output` (printing), `target` (names of new files), `evidence` (folders of trials), `failure`
//!   (failures and exit codes), `help` (examples), `missing` (subcommands that this build lacks).

#![expect(clippy::disallowed_methods, reason = "a command drives real time and threads")]
#![forbid(unsafe_code)]

mod append;
#[cfg(feature = "archive")]
mod archive;
mod bench;
mod beside;
#[cfg(feature = "archive")]
mod bucket;
#[cfg(feature = "replicate")]
mod cluster;
mod codex;
mod colours;
mod demo;
#[cfg(feature = "serve")]
mod descriptors;
mod device;
mod doc;
mod evidence;
mod export;
mod failure;
mod format;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod help;
mod import;
mod input_file;
mod inspect;
mod latency;
mod lines;
mod log_writer;
mod logs;
#[cfg(not(feature = "jetstream"))]
mod missing;
mod mode;
mod output;
mod payload;
mod plot;
mod prefix;
mod probe;
mod replay;
#[cfg(feature = "serve")]
mod serve;
mod signals;
mod size;
mod soak;
mod space;
mod space_rules;
mod store_args;
mod tags;
mod target;
#[cfg(test)]
mod testing;
mod time;
mod top;

use std::io::stderr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use rustix::fs::Mode;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use failure::{EXIT_CODES, Failure, Kind};
use log_writer::LogWriter;
use output::Output;
use store_args::StoreArgs;

/// A store for millions of small append-only logs, in one file
#[derive(Parser)]
#[command(name = "brooklet", version, after_help = EXIT_CODES)]
struct Cli {
    /// Print JSON: one document, or one line for each row (docs/json.md lists the fields)
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    store_args: StoreArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make an empty store on a block device, or in a new file
    Format(format::Args),
    /// Append entries to a log, created if missing; print their numbers once durable
    Append(append::Append),
    /// Print entries of a log
    Read(logs::Read),
    /// Drop a log's oldest entries
    Trim(logs::Trim),
    /// Drop a log's newest entries
    Truncate(logs::Truncate),
    /// Set a log's limits for entries, bytes and age; create the log if missing
    Retain(logs::Retain),
    /// Drop a log
    Delete(logs::Log),
    /// List the logs of a store
    List(logs::List),
    /// Write logs as of one moment, as lines of JSON or as a codex file
    Export(export::Args),
    /// Import whole logs: from lines of JSON or CSV, a codex file, or another store
    Import(import::Args),
    /// Back up a store in object storage: the data that it wrote since the last backup
    #[cfg(feature = "archive")]
    Archive(archive::Args),
    /// List the backups of a store, or show or verify one
    #[cfg(feature = "archive")]
    Backups(archive::BackupsArgs),
    /// Restore logs from a backup: all, a prefix or one
    #[cfg(feature = "archive")]
    Restore(archive::RestoreArgs),
    /// Not in this build: see `--features archive`
    #[cfg(not(feature = "archive"))]
    #[command(visible_aliases = ["backups", "restore"])]
    Archive(missing::Args),
    /// Manage spaces: groups of logs with a storage class, quotas and limits of their own
    #[command(subcommand)]
    Space(space::Command),
    /// Manage tagged records: put them, find them by their tags, import the lines of a file
    #[command(subcommand)]
    Tags(tags::Command),
    /// Manage JSON documents with versions: put, patch, rewind, read and watch them
    #[command(subcommand)]
    Doc(doc::Command),
    /// Show the structure of a store, or the bounds of a log
    Inspect(inspect::Inspect),
    /// Watch a running store: rates, latencies by stage, queues, stalls and their reasons
    Top(top::Args),
    /// Check every checksum and invariant of a closed store
    Check(inspect::Only),
    /// Write recent entries to a run, and free the ring behind it
    Checkpoint(inspect::Only),
    /// Merge all runs into one, and free the space of trimmed and deleted entries
    Compact(inspect::Only),
    /// Serve a store to Redis clients and over HTTP, until a signal stops the server
    #[cfg(feature = "serve")]
    Serve(Box<serve::Args>),
    /// Not in this build: see `--features serve`
    #[cfg(not(feature = "serve"))]
    Serve(missing::Args),
    /// Manage a cluster: many stores on many hosts, by a map in a bucket
    #[cfg(feature = "replicate")]
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Not in this build: see `--features replicate`
    #[cfg(not(feature = "replicate"))]
    Cluster(missing::Args),
    /// Build sorted files from entries in any order, and read them
    #[command(subcommand)]
    Codex(codex::Args),
    /// Append recorded keystrokes or commits at full speed, then read them back and compare
    Replay(replay::Args),
    /// Measure the store, and compare it with the device in the same run
    Bench(bench::Args),
    /// Measure a disk, as a table and as curves, and print the settings that follow
    Probe(probe::Args),
    /// Print the completions of this command for a shell
    Completions(help::CompletionsArgs),
    /// Write a man page for each command
    Man(help::ManArgs),
    /// Kill a store three times during writes, and show that no acknowledged entry is lost
    Demo(demo::Args),
    /// Write in the process that the demo kills
    #[command(hide = true)]
    DemoWriter(demo::victim::Args),
    /// Run all operations on many logs, kill the store repeatedly, and compare acknowledged data
    Soak(soak::Args),
    /// Write in the process that soak kills
    #[command(hide = true)]
    SoakWriter(soak::writer::Args),
}

/// Longest wait for the last lines of a server's log.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// Returns the description of the command, with its examples.
fn command() -> clap::Command {
    help::with_examples(Cli::command(), "")
}

/// Runs the command that the process's arguments ask for.
pub fn main() -> ExitCode {
    let matches = command().color(colours::choice()).get_matches();
    let Cli { json, store_args, command } =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let (level, as_json, is_server) = match &command {
        #[cfg(feature = "serve")]
        Command::Serve(args) => ("info", args.logs_json(), true),
        _ => ("warn", false, false),
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let writer = match is_server.then(|| LogWriter::start(stderr())).transpose() {
        Ok(writer) => writer,
        Err(error) => return Failure::io("starting the log's thread")(error).end(json),
    };
    let to = writer.clone().map_or_else(|| BoxMakeWriter::new(stderr), BoxMakeWriter::new);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(to);
    if as_json {
        log.json().init()
    } else {
        log.with_ansi(console::colors_enabled_stderr()).init()
    }
    keep_private(&command);
    let mut out = Output::new(json, !command.only_reads());
    let done = run(command, &store_args, &mut out);
    let is_read = writer.is_none_or(|writer| writer.finish(LOG_PATIENCE));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody reads the standard error of a server: the message would keep the process.
        Err(failure) if !is_read => failure.code(),
        Err(failure) => failure.end(json),
    }
}

impl Command {
    /// Returns whether the command has nothing more to do once nobody reads what it prints.
    fn only_reads(&self) -> bool {
        match self {
            Command::Read(_) | Command::List(_) | Command::Export(_) | Command::Inspect(_) => true,
            Command::Top(_) | Command::Check(_) | Command::Completions(_) => true,
            // They measure, and print their findings.
            Command::Bench(_) | Command::Probe(_) | Command::Replay(_) => true,
            #[cfg(feature = "archive")]
            Command::Backups(_) => true,
            Command::Space(command) => command.only_reads(),
            Command::Tags(command) => command.only_reads(),
            Command::Doc(command) => command.only_reads(),
            Command::Codex(args) => args.only_reads(),
            _ => false,
        }
    }
}

/// Makes all files that the command creates private to its user: stores, archives and exports hold
/// the same data. The man pages are for everybody.
fn keep_private(command: &Command) {
    if !matches!(command, Command::Man(_)) {
        rustix::process::umask(Mode::RWXG | Mode::RWXO);
    }
}

fn run(command: Command, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let done = match command {
        Command::Format(args) => format::run(args, store_args, out),
        Command::Append(args) => append::run(args, store_args, out),
        Command::Read(args) => logs::read(args, store_args, out),
        Command::Trim(args) => logs::trim(args, store_args, out),
        Command::Truncate(args) => logs::truncate(args, store_args, out),
        Command::Retain(args) => logs::retain(args, store_args, out),
        Command::Delete(log) => logs::delete(log, store_args, out),
        Command::List(args) => logs::list(args, store_args, out),
        Command::Export(args) => export::run(args, store_args, out),
        Command::Import(args) => import::run(args, store_args, out),
        #[cfg(feature = "archive")]
        Command::Archive(args) => archive::run(args, store_args, out),
        #[cfg(not(feature = "archive"))]
        Command::Archive(_) => Err(missing::refuse("archives", "archive")),
        #[cfg(feature = "archive")]
        Command::Restore(args) => archive::restore(args, store_args, out),
        Command::Space(args) => space::run(args, store_args, out),
        Command::Tags(args) => tags::run(args, store_args, out),
        Command::Doc(args) => doc::run(args, store_args, out),
        Command::Inspect(args) => inspect::inspect(args, store_args, out),
        Command::Check(args) => inspect::check(args, store_args, out),
        Command::Checkpoint(args) => inspect::checkpoint(args, store_args, out),
        Command::Compact(args) => inspect::compact(args, store_args, out),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(*args, store_args, out),
        #[cfg(not(feature = "serve"))]
        Command::Serve(_) => Err(missing::refuse("server", "serve")),
        _ if !store_args.is_empty() => {
            let what = "--ring, --archive, --metrics and --metrics-mode are for commands that open a store";
            Err(Failure::new(Kind::Usage, what))
        }
        Command::Top(args) => top::run(&args, out),
        #[cfg(feature = "archive")]
        Command::Backups(args) => archive::backups(args, out),
        #[cfg(feature = "replicate")]
        Command::Cluster(command) => cluster::run(command, out),
        #[cfg(not(feature = "replicate"))]
        Command::Cluster(_) => Err(missing::refuse("clusters", "replicate")),
        Command::Codex(args) => codex::run(args, out),
        Command::Replay(args) => replay::run(args, out),
        Command::Bench(args) => bench::run(args, out),
        Command::Probe(args) => probe::run(args, out),
        Command::Completions(args) => help::completions(&args, self::command(), out),
        Command::Man(args) => help::man(&args, self::command(), out),
        Command::Demo(args) => demo::run(&args, out),
        Command::DemoWriter(args) => demo::victim::run(&args),
        Command::Soak(args) => soak::run(args, out),
        Command::SoakWriter(args) => soak::writer::run(&args),
    };
    // Findings before a failure are printed in any case.
    let flushed = out.flush();
    done.and(flushed)
}
