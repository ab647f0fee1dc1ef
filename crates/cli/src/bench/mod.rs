//! `bench`: the store, or the write-ahead log alone, beside the device it stands on, measured in the same run.
//!
//! `table` judges figures by their marks, `load` makes payloads, `plain` is the group commit that both are compared with.

mod load;
mod plain;
mod store;
mod table;
mod wal;

use crate::failure::Failure;
use crate::out::Out;

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
    /// Measure the write-ahead log alone, beside the device and the plainest ways to do its work
    Wal(wal::Args),
}

/// Runs the measurements and prints the table.
pub fn run(args: Args, out: &mut Out) -> Result<(), Failure> {
    match args.what {
        Some(What::Wal(args)) => wal::run(args, out),
        None => store::run(args.store, out),
    }
}
