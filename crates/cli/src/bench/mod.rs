//! `bench`: measures the store or one of its parts, together with the device and with simpler
//! programs, in the same run. Each subcommand is a module of its name; `store` is `bench` alone.
//!
//! `table` judges figures by their marks, `row` is a line of a table, `load` makes payloads,
//! `plain` is the group commit that store and log are compared with, `flying` appends without
//! waiting, `system` returns the figures of the operating system for a process.

#[cfg(feature = "archive")]
mod archive;
mod codex;
mod documents;
mod flying;
mod import;
pub mod load;
mod memory;
mod plain;
pub mod row;
mod scale;
mod spaces;
mod store;
mod system;
pub mod table;
mod tails;
mod wal;

use crate::failure::Failure;
use crate::output::Output;

/// Arguments of `brooklet bench`.
#[derive(clap::Args)]
// Its name, as a group of arguments, is that of the store's arguments.
#[group(skip)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    store: store::Args,
}

#[derive(clap::Subcommand)]
enum What {
    /// Measure the write-ahead log alone, and compare it with the device and the simplest
    /// implementations
    Wal(wal::Args),
    /// Measure the store from few logs to many, to find costs that grow with logs, and the effects
    /// of checkpoints and compaction
    Scale(scale::Args),
    /// Measure building sorted files from entries in any order and reading them, and compare that
    /// with sorting and writing alone
    Codex(codex::Args),
    /// Measure the import of whole logs past the write-ahead log, and compare it with appends
    Import(import::Args),
    /// Measure logs that are kept in memory: appends, dumps and loads, and compare them with the
    /// disk
    Memory(memory::Args),
    /// Measure the time from an append to a thread that follows the log, and the cost of tails that
    /// wait
    Tails(tails::Args),
    /// Measure what many spaces cost: to make one more, to commit, and to open the store
    Spaces(spaces::Args),
    /// Measure documents under the load of a collaborative service, and compare them with the
    /// store beneath
    Documents(documents::Args),
    /// Measure backups in object storage and restores, and compare them with the link and the disk
    #[cfg(feature = "archive")]
    Archive(archive::Args),
}

/// Runs the measurements and prints the table.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    match args.what {
        Some(What::Wal(args)) => wal::run(args, out),
        Some(What::Scale(args)) => scale::run(args, out),
        Some(What::Codex(args)) => codex::run(args, out),
        #[cfg(feature = "archive")]
        Some(What::Archive(args)) => archive::run(args, out),
        Some(What::Import(args)) => import::run(args, out),
        Some(What::Memory(args)) => memory::run(args, out),
        Some(What::Tails(args)) => tails::run(args, out),
        Some(What::Spaces(args)) => spaces::run(args, out),
        Some(What::Documents(args)) => documents::run(args, out),
        None => store::run(args.store, out),
    }
}
