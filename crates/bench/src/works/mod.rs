//! What a child process does: one step of a workload with one store.
//!
//! Each step has a process of its own, so that no store meets the threads, the memory or the caches
//! of another.

mod data;
mod flight;
mod tasks;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::outcome::Result;
use crate::payloads::Payloads;
use crate::stores::Kind;

pub use data::{Data, Left};
pub use write::{How, Load, Until};

/// Figures by their names.
pub type Figures = BTreeMap<String, f64>;

/// A step, as it is handed to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The store.
    pub kind: Kind,
    /// Its directory.
    pub dir: PathBuf,
    /// What to do.
    pub step: Step,
}

/// What to do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Write to a new store.
    Write(Load),
    /// Make a store with data, and close it.
    Fill(Data),
    /// Open a store with data and read logs of it.
    Read(Data),
    /// Open a store with data.
    Open(Data),
    /// Open a store and append to new logs until killed; `0` sets these logs apart from others'.
    Die(u64),
    /// Open a store with data and look at the memory.
    Weigh(Data),
}

/// The line by which a process that waits to be killed says that it is time.
pub const READY: &str = "ready";

/// Carries out a step in this process.
pub fn run(task: &Task) -> Result<Figures> {
    let Task { kind, dir, step } = task;
    let payloads = Payloads::new();
    match step {
        Step::Write(load) => write::measure(*kind, dir, load, payloads),
        Step::Fill(data) => data.fill(*kind, dir, payloads),
        Step::Read(data) => data.read(*kind, dir),
        Step::Open(data) => data.open(*kind, dir),
        Step::Die(round) => die(*kind, dir, *round, payloads),
        Step::Weigh(data) => data.weigh(*kind, dir),
    }
}

/// Appends that are acknowledged before the process is killed.
const BEFORE_DEATH: u64 = 100_000;

fn die(kind: Kind, dir: &Path, round: u64, payloads: Payloads) -> Result<Figures> {
    let store = kind.open(dir)?;
    let mut load = Load {
        hot: false,
        cold: false,
        how: How::Flight(1024),
        until: Until::Count(BEFORE_DEATH),
        first_log: (round + 1) << 32,
        settle: false,
    };
    write::write(&*store, &load, payloads)?;
    println!("{READY}");
    load.until = Until::Seconds(600.0);
    load.first_log += 1 << 31;
    write::write(&*store, &load, payloads)?;
    Err("it was not killed".into())
}
