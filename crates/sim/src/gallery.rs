//! The gallery of seeded bugs: deliberate breaks of the store, each of which the simulator must catch.
//!
//! A build with `--features seeded-bugs` can plant them ([`brooklet::io::seeded`]); any other build says that it cannot.
//!
//! What takes two threads inside the log at once is beyond the simulator, which has one: a block that is sealed while
//! somebody still copies a record into it is met by `crates/wal/tests/it/waiting.rs`. Those of `brooklet_wal::Log`, on which no
//! store stands, are planted by `crates/wal/tests/it/logs/gallery.rs`.

use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::campaign::{self, Failure};
use crate::ledger::Violation;
use crate::plan::Plan;
use crate::shrink::shrink;
use crate::sweep::{damage, errors};

/// A deliberate break.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// Its name in the code.
    pub name: &'static str,
    /// What is broken, in words.
    pub what: &'static str,
}

/// How a bug was caught.
#[derive(Clone, Debug)]
pub struct Caught {
    /// What catches it: the first seed that does, or a sweep.
    pub by: String,
    /// What the simulator said.
    pub what: String,
    /// How it comes to that, in the fewest steps, where a story was asked for and a seed can tell it.
    pub story: Vec<String>,
}

const fn bug(name: &'static str, what: &'static str) -> Bug {
    Bug { name, what }
}

/// All of them.
pub const BUGS: &[Bug] = &[
    // The log.
    bug("lone-write-is-cached", "a waiting thread writes its block without making it durable"),
    bug("queued-write-is-cached", "the committer writes blocks without making them durable"),
    bug("acknowledged-in-flight", "blocks are acknowledged while they are still being written"),
    bug("failed-write-is-acknowledged", "a block whose write failed is acknowledged"),
    bug("short-write-is-whole", "what a short write left is not written"),
    bug("short-read-is-whole", "what a short read left is not read"),
    bug("block-tells-too-much", "a block says that the one before it was acknowledged, which it was not"),
    bug("trimmed-beyond-checkpoint", "the ring is trimmed up to its head, not to where the checkpoint ends"),
    bug("closing-drops-the-rest", "closing does not write what is still in memory"),
    bug("ring-is-trimmed-early", "the ring is trimmed before the superblock says so"),
    // Recovery.
    bug("superblock-is-no-witness", "a missing block that the superblock knows of is taken for a torn end"),
    bug("cut-instead-of-error", "a missing block that later ones know of is taken for a torn end"),
    bug("stale-blocks-are-believed", "a block need not name the one before it, nor be of this opening"),
    bug("epoch-stays", "an opening does not count the epoch up"),
    bug("payload-sum-is-ignored", "a block's payload is not checked"),
    bug("no-flush-at-opening", "what was read is relied on without making it durable"),
    bug("open-store-says-clean", "an open store's superblock says that it was closed"),
    bug("record-forgets-bounds", "records do not say what their log was before"),
    bug("manifest-is-free-space", "after opening, the manifest's place counts as free"),
    // Damage.
    bug("a-hole-hides-the-rest", "nothing behind a damaged block of the ring is read"),
    bug("damage-ends-all-merging", "a merge that meets damage is the last one, also of what is sound"),
    bug("what-is-damaged-is-passed-over", "the rest of a run is left out behind a damaged block"),
    bug("a-hole-is-kept-quiet", "what is missing of the ring is told to nobody who reads"),
    bug("numbers-that-go-on-prove-a-log", "a log whose numbers go on behind a hole is taken for whole"),
    // The superblock and the manifest.
    bug("superblock-is-cached", "copies of the superblock are written without making them durable"),
    bug("capacity-is-forgotten", "the superblock does not say how much of its volume the store may use"),
    bug("ring-apart-is-not-flushed", "of a store on two volumes only the data's is flushed"),
    bug("oldest-superblock-counts", "the oldest valid copy of the superblock is believed"),
    bug("no-flush-before-superblock", "the superblock points at what was not flushed"),
    bug("failed-flush-is-tried-again", "a flush that failed is tried again, and believed"),
    bug("failed-superblock-is-let-pass", "a superblock that could not be written counts as written"),
    bug("manifest-goes-early", "the old manifest is overwritten before the superblock points at the new one"),
    // Checkpoints and compaction.
    bug("checkpoint-does-not-wait", "a checkpoint is written before all of its tier is visible"),
    bug("frozen-tier-goes-early", "the frozen tier is dropped before its run is there"),
    bug("runs-are-freed-early", "merged runs are given back before the superblock points elsewhere"),
    bug(
        "instalment-frees-early",
        "what an instalment merged is given back before the superblock points elsewhere",
    ),
    bug("instalment-forgets-the-others", "an instalment of a merge drops what the ones before it made"),
    bug("merge-key-off-by-one", "the next instalment of a merge begins with the last log of the one before"),
    bug("newer-run-hides-too-much", "a merge leaves out an entry more than newer runs have made irrelevant"),
    bug("resumed-merge-starts-over", "after an opening nobody knows of the merge that was going on"),
    bug("readers-do-not-pin", "runs are given back although somebody reads them"),
    bug("merged-run-is-the-oldest", "a merged run takes the wrong place among the others"),
    bug("tombstones-go-early", "a merge drops deletions that older runs still need"),
    bug("live-run-is-freed", "a run is freed unread although an entry in it lives"),
    bug("bare-logs-do-not-count", "a run is freed unread although it tells that logs are there, or gone"),
    bug("losses-count-twice", "a run is said to have lost twice what a checkpoint made irrelevant"),
    bug("merge-keeps-its-dead", "a merged run is said to hold the dead entries that the merge dropped"),
    bug("filter-forgets", "a run's filter does not know some of its logs"),
    // What is remembered of resting logs.
    bug("remembers-after-delete", "a log that was deleted keeps the bounds that are remembered of it"),
    bug("remembered-before-visible", "bounds are remembered before all of their tier is visible"),
    bug("remembered-before-frozen", "what is remembered counts for more than the frozen tier"),
    bug(
        "last-is-not-remembered",
        "a checkpoint leaves the bounds of some log as they were remembered before",
    ),
    // Retention.
    bug("retention-forgets-bytes", "how many bytes a log holds is not written down with its limits"),
    bug("age-comes-back", "a commit does not drop for good what readers left out for its age"),
    bug("retention-stays-in-memory", "a run does not say what a log keeps"),
    // Imports.
    bug("import-lets-new-logs-pass", "commits make logs while an import that may have them is adopted"),
    bug(
        "import-is-not-looked-through",
        "what commits made just before an import is adopted is not looked at",
    ),
    bug(
        "import-is-not-checked-again",
        "runs that came while an import was written are not asked for its logs",
    ),
    // Offloading.
    bug("run-goes-early", "the space of a run is free before the superblock says that it lies elsewhere"),
    // Memory.
    bug(
        "failed-dump-counts",
        "a dump that failed counts as one, and what was to be in it is not written again",
    ),
    bug(
        "moved-logs-are-remembered",
        "logs that come out of memory have the bounds that they had before they were there",
    ),
    bug("dump-forgets-the-deleted", "a dump does not say which logs are no more"),
    bug("move-does-not-dump", "a space that leaves memory is not dumped"),
    bug("stale-log-is-brought", "a log is brought into memory though it was deleted there"),
    // What callers see.
    bug("refused-commit-leaves-traces", "a refused commit is not undone"),
    bug("deferred-stay-unseen", "a deferred commit that was acknowledged is not visible"),
    bug("deleted-log-lives-on", "the entries of a deleted log stay"),
    bug("truncation-keeps-older-tiers", "a truncation does not reach what older tiers hold"),
];

/// Seeds that are tried for each bug.
pub const BUDGET: u64 = 12_000;
/// A run, with its story, that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// Whether this build can plant bugs.
pub const fn can_plant() -> bool {
    cfg!(feature = "seeded-bugs")
}

/// Plants a bug and runs seeds until one fails, and sweeps if none does. `Err` where nothing notices; it says how often
/// the bug was met.
///
/// With `story`, a seed that fails is shrunk to what is needed.
pub fn hunt(bug: Bug, budget: u64, story: bool) -> Result<Caught, String> {
    let (tell, hear) = mpsc::channel();
    let hunter = std::thread::Builder::new().name(bug.name.into()).spawn(move || {
        let seeds = (0..budget).map(Trial::Seed);
        for trial in seeds.chain([Trial::Flips, Trial::Sectors, Trial::Errors]) {
            let (mut failed, met) = planted(bug, || trial.run(story));
            // What fails without the bug, too, or without meeting it, has not caught it.
            if failed.is_some() && (met == 0 || trial.run(false).is_some()) {
                failed = None;
            }
            if tell.send((trial, failed, met)).is_err() {
                return;
            }
        }
    });
    hunter.map_err(|error| format!("no thread: {error}"))?;
    let (mut met, mut last) = (0, None);
    loop {
        match hear.recv_timeout(PATIENCE) {
            Ok((trial, Some(Failure { what, story }), _)) => {
                return Ok(Caught { by: trial.to_string(), what, story });
            }
            Ok((trial, None, more)) => (last, met) = (Some(trial), met + more),
            // A thread that hangs is left behind; the process ends soon.
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(format!("a run after {last:?} takes longer than {PATIENCE:?}"));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(format!("{budget} seeds and all sweeps; the bug was met {met} times"));
            }
        }
    }
}

/// What may catch a bug.
#[derive(Clone, Copy, Debug)]
enum Trial {
    Seed(u64),
    Flips,
    Sectors,
    Errors,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trial::Seed(seed) => write!(f, "seed {seed}"),
            Trial::Flips => write!(f, "the flip sweep"),
            Trial::Sectors => write!(f, "the sector sweep"),
            Trial::Errors => write!(f, "the error sweep"),
        }
    }
}

impl Trial {
    /// What fails, if anything does.
    fn run(self, story: bool) -> Option<Failure> {
        let swept = match self {
            Trial::Seed(seed) => {
                let plan = Plan::draw(seed);
                let failure = campaign::run(&Arc::new(plan.clone()), false).err()?;
                let shrunk = if story { shrink(&plan) } else { None };
                return Some(shrunk.map_or(failure, |(_, failure)| failure));
            }
            Trial::Flips => campaign::guarded(|| damage::flips(37, 1)),
            Trial::Sectors => campaign::guarded(|| damage::sectors(7, 1)),
            Trial::Errors => campaign::guarded(|| errors::sweep(1, 1)),
        };
        swept.err().map(|Violation(what)| Failure { what, story: Vec::new() })
    }
}

#[cfg(feature = "seeded-bugs")]
fn planted<T>(bug: Bug, deed: impl FnOnce() -> T) -> (T, u64) {
    use brooklet::io::seeded;
    seeded::plant(Some(bug.name));
    let done = deed();
    let met = seeded::met();
    seeded::plant(None);
    (done, met)
}

#[cfg(not(feature = "seeded-bugs"))]
fn planted<T>(_: Bug, deed: impl FnOnce() -> T) -> (T, u64) {
    (deed(), 0)
}
