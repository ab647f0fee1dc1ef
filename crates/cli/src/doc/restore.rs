//! Documents that come back from a backup.

use brooklet::Create;
use clap::Args;

use super::rows::Written;
use super::{Change, Place};
use crate::archive::WhichArgs;
use crate::bucket::open_to_read;
use crate::failure::Failure;
use crate::output::Output;
use crate::store_args::StoreArgs;

/// Bytes of memory for reading a document from a backup.
const MEMORY: usize = 16 << 20;

/// Arguments of `brooklet doc restore`.
#[derive(Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    place: Place,
    /// The place of the backups
    bucket: String,
    #[command(flatten)]
    which: WhichArgs,
    /// The version to bring back [default: the version of the backup]
    #[arg(long, value_name = "VERSION")]
    version: Option<u64>,
    #[command(flatten)]
    change: Change,
}

/// Brings a document back from a backup.
pub fn restore(args: &RestoreArgs, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let (place, change) = (&args.place, &args.change);
    let backup = open_to_read(&args.bucket)?.backup(args.which.which())?;
    let view = backup.view(MEMORY)?;
    let answer = place.write(Create::Never, store_args, |documents| {
        let head = match documents.version(place.name()) {
            // The restore expects no version of it.
            Err(error) if error.is_damage() => 0,
            head => head?.unwrap_or(0),
        };
        let expected = change.expect.unwrap_or(head);
        Ok(documents.restore(place.name(), expected, change.request(), &view, args.version)?)
    })?;
    out.put(&Written::new(place.name(), answer))
}
