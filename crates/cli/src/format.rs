//! `format`: an empty store on a block device, or in a new file.

use std::fmt;
use std::path::PathBuf;

use brooklet::{Formatted, Options};
use indicatif::HumanBytes;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;
use crate::size::size;
use crate::store_args::StoreArgs;

#[derive(clap::Args)]
pub struct Args {
    /// The place of the new store: a block device, or a new file
    place: PathBuf,
    /// Most bytes that the store may use, at most those of the device (K, M and G are understood)
    /// [default: the whole device; a file grows]
    #[arg(long, value_parser = size)]
    capacity: Option<u64>,
    /// Size of the ring in bytes (K, M and G are understood) [default: 64M]
    #[arg(long, value_parser = size)]
    ring_size: Option<u64>,
    /// Overwrite a device that holds data; a device that is mounted or in use, and an existing
    /// file, are refused even so
    #[arg(long)]
    force: bool,
}

/// Makes an empty store.
pub fn run(args: Args, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let mut options = Options::new();
    if let Some(bytes) = args.ring_size {
        options = options.ring_size(bytes);
    }
    if let Some(bytes) = args.capacity {
        options = options.capacity(bytes);
    }
    if let Some(ring) = &store_args.ring {
        options = options.ring_at(ring);
    }
    out.put(&Made::from(options.format(&args.place, args.force)?))
}

#[derive(Serialize)]
struct Made {
    name: String,
    id: String,
    capacity: u64,
    ring_size: u64,
    ring: Option<String>,
    overwritten: Vec<Overwritten>,
}

#[derive(Serialize)]
struct Overwritten {
    name: String,
    bore: String,
}

impl From<Formatted> for Made {
    fn from(made: Formatted) -> Self {
        let Formatted { name, id, capacity, ring_size, ring, overwritten, .. } = made;
        let overwritten = overwritten.into_iter().map(|(name, bore)| Overwritten { name, bore }).collect();
        Self { name, id: format!("{id:032x}"), capacity, ring_size, ring, overwritten }
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Overwritten { name, bore } in &self.overwritten {
            writeln!(f, "overwrote {bore}, on {name}")?;
        }
        let Self { name, id, capacity, ring_size, ring, .. } = self;
        write!(f, "made store {id} on {name}: a ring of {}", HumanBytes(*ring_size))?;
        if let Some(ring) = ring {
            write!(f, " on {ring}")?;
        }
        match capacity {
            0 => write!(f, ", growing as it needs"),
            _ => write!(f, ", {} in all", HumanBytes(*capacity)),
        }
    }
}
