//! The catalogue of seeded bugs: deliberate breaks of the store, each of which the simulator must
//! catch.
//!
//! A build with `--features seeded-bugs` can plant them ([`brooklet::io::seeded`]); every other
//! build reports that it cannot.
//!
//! The simulator has one thread, so it cannot meet bugs that need two threads inside the log at
//! once. `crates/wal/tests/it/waiting.rs` tests a block that is sealed while another thread still
//! copies a record into it. `crates/wal/tests/it/logs/mutations.rs` plants the bugs of
//! `brooklet_wal::Log`, which no store uses.

mod hunt;

pub use hunt::{Caught, Trial, can_plant, hunt, hunt_all};

use Trial::{Error, Flip, Sector, Seed};

/// A deliberate break.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// Name of the bug in the code.
    pub name: &'static str,
    /// Description of the defect.
    pub what: &'static str,
    /// Trial that caught the bug last; tried first.
    pub soonest: Trial,
}

const fn bug(name: &'static str, what: &'static str, soonest: Trial) -> Bug {
    Bug { name, what, soonest }
}

/// All seeded bugs.
pub const BUGS: &[Bug] = &[
    // The log.
    bug("lone-write-is-cached", "a waiting thread writes its block without making it durable", Seed(2)),
    bug("queued-write-is-cached", "the committer writes blocks without making them durable", Seed(0)),
    bug("acknowledged-in-flight", "blocks are acknowledged while they are still being written", Seed(3)),
    bug("failed-write-is-acknowledged", "a block whose write failed is acknowledged", Error(0)),
    bug("short-write-is-whole", "what a short write left is not written", Seed(22)),
    bug("short-read-is-whole", "what a short read left is not read", Error(171)),
    bug(
        "block-tells-too-much",
        "a block says that the one before it was acknowledged, which it was not",
        Seed(3),
    ),
    bug(
        "trimmed-beyond-checkpoint",
        "the ring is trimmed up to its head, not to where the checkpoint ends",
        Seed(3),
    ),
    bug("closing-drops-the-rest", "closing does not write what is still in memory", Seed(543)),
    bug("ring-is-trimmed-early", "the ring is trimmed before the superblock says so", Seed(12)),
    bug(
        "ring-growth-is-not-recorded",
        "the ring continues in a larger ring that the superblock does not know",
        Seed(100),
    ),
    // Recovery.
    bug(
        "superblock-is-no-witness",
        "a missing block that the superblock knows of is taken for a torn end",
        Flip(3781),
    ),
    bug(
        "cut-instead-of-error",
        "a missing block that later ones know of is taken for a torn end",
        Sector(4270),
    ),
    bug("epoch-stays", "an opening does not count the epoch up", Seed(0)),
    bug("payload-sum-is-ignored", "a block's payload is not checked", Seed(0)),
    bug("no-flush-at-opening", "what was read is relied on without making it durable", Seed(3)),
    bug(
        "window-is-not-written-again",
        "what an opening finds in the cache is relied on, though a failed flush may have dropped it",
        Seed(76),
    ),
    bug("open-store-says-clean", "an open store's superblock says that it was closed", Seed(0)),
    bug("record-forgets-bounds", "records do not say what their log was before", Seed(0)),
    bug("manifest-is-free-space", "after opening, the manifest's place counts as free", Seed(0)),
    // Damage.
    bug("a-hole-is-kept-quiet", "what is missing of the ring is told to nobody who reads", Flip(3781)),
    // The superblock and the manifest.
    bug("superblock-is-cached", "copies of the superblock are written without making them durable", Seed(0)),
    bug(
        "capacity-is-forgotten",
        "the superblock does not say how much of its volume the store may use",
        Seed(1),
    ),
    bug("no-flush-before-superblock", "the superblock points at what was not flushed", Seed(0)),
    bug("failed-flush-is-tried-again", "a flush that failed is tried again, and believed", Seed(54)),
    bug(
        "failed-superblock-is-let-pass",
        "a superblock that could not be written counts as written",
        Seed(34),
    ),
    bug(
        "manifest-goes-early",
        "the old manifest is overwritten before the superblock points at the new one",
        Seed(0),
    ),
    // Checkpoints and compaction.
    bug("checkpoint-does-not-wait", "a checkpoint is written before all of its tier is visible", Seed(0)),
    bug("frozen-tier-goes-early", "the frozen tier is dropped before its run is there", Seed(9)),
    bug(
        "runs-are-freed-early",
        "merged runs are given back before the superblock points elsewhere",
        Seed(24),
    ),
    bug(
        "compaction-step-frees-early",
        "what a compaction step merged is given back before the superblock points elsewhere",
        Seed(105),
    ),
    bug(
        "compaction-step-forgets-the-others",
        "a compaction step of a merge drops what the ones before it made",
        Seed(1),
    ),
    bug(
        "merge-key-off-by-one",
        "the next compaction step of a merge begins with the last log of the one before",
        Seed(3),
    ),
    bug(
        "newer-run-hides-too-much",
        "a merge leaves out an entry more than newer runs have made irrelevant",
        Seed(63),
    ),
    bug(
        "resumed-merge-starts-over",
        "after an opening nobody knows of the merge that was going on",
        Seed(63),
    ),
    bug("readers-do-not-pin", "runs are given back although somebody reads them", Seed(67)),
    bug("merged-run-is-the-oldest", "a merged run takes the wrong place among the others", Seed(3)),
    bug("tombstones-go-early", "a merge drops deletions that older runs still need", Seed(3)),
    bug("live-run-is-freed", "a run is freed unread although an entry in it lives", Seed(0)),
    bug("copy-counts-the-living", "a copy of a view counts living entries as dead", Seed(0)),
    bug(
        "bare-logs-do-not-count",
        "a run is freed unread although it tells that logs are there, or gone",
        Seed(0),
    ),
    bug("losses-count-twice", "a run is said to have lost twice what a checkpoint made irrelevant", Seed(0)),
    bug(
        "merge-keeps-its-dead",
        "a merged run is said to hold the dead entries that the merge dropped",
        Seed(0),
    ),
    bug("filter-forgets", "a run's filter does not know some of its logs", Seed(0)),
    bug("note-forgets-an-entry", "the note of a log in a run ends before its last entry", Seed(0)),
    // The logs that were read lately.
    bug(
        "newer-runs-are-not-asked",
        "a log that was read lately is returned without the entries of later runs",
        Seed(0),
    ),
    bug(
        "kept-logs-outlive-their-runs",
        "a log that was read lately is returned though its runs were merged since",
        Seed(0),
    ),
    // The remembered bounds of resting logs.
    bug(
        "remembers-after-delete",
        "a log that was deleted keeps the bounds that are remembered of it",
        Seed(0),
    ),
    bug("remembered-before-visible", "bounds are remembered before all of their tier is visible", Seed(0)),
    bug("remembered-before-frozen", "what is remembered counts for more than the frozen tier", Seed(0)),
    bug(
        "last-is-not-remembered",
        "a checkpoint leaves the bounds of some log as they were remembered before",
        Seed(0),
    ),
    // Retention.
    bug("retention-forgets-bytes", "how many bytes a log holds is not written down with its limits", Seed(7)),
    bug("age-comes-back", "a commit does not drop for good what readers left out for its age", Seed(2)),
    bug("retention-stays-in-memory", "a run does not say what a log keeps", Seed(2)),
    // Imports.
    bug(
        "import-lets-new-logs-pass",
        "commits make logs while an import that may have them is adopted",
        Seed(163),
    ),
    bug(
        "import-is-not-looked-through",
        "what commits made just before an import is adopted is not looked at",
        Seed(143),
    ),
    bug(
        "import-is-not-checked-again",
        "runs that came while an import was written are not asked for its logs",
        Seed(68),
    ),
    // Offloading.
    bug(
        "run-goes-early",
        "the space of a run is free before the superblock says that it lies elsewhere",
        Seed(38),
    ),
    // Memory.
    bug(
        "failed-dump-counts",
        "a dump that failed counts as one, and what was to be in it is not written again",
        Error(302),
    ),
    bug(
        "moved-logs-are-remembered",
        "logs that come out of memory have the bounds that they had before they were there",
        Seed(29),
    ),
    bug("dump-forgets-the-deleted", "a dump does not say which logs are no more", Seed(254)),
    bug("move-does-not-dump", "a space that leaves memory is not dumped", Seed(29)),
    bug("stale-log-is-brought", "a log is brought into memory though it was deleted there", Seed(516)),
    // Behaviour that callers see.
    bug("plans-are-not-checked", "the plan of a commit is used though its logs have changed", Seed(0)),
    bug("refused-commit-leaves-traces", "a refused commit is not undone", Seed(0)),
    bug("refusal-before-durable", "a refusal rests on what a power cut may take back", Seed(4)),
    bug(
        "deferred-ignores-the-pace",
        "a deferred commit is acknowledged, however much later its block may be written",
        Seed(2),
    ),
    bug(
        "pace-forgets-the-time",
        "a pace that was not used is taken to be one that lets several blocks go at once",
        Seed(339),
    ),
    bug("panic-of-a-callback-escapes", "a callback's panic hits whoever drives the log", Seed(0)),
    bug("deferred-stay-unseen", "a deferred commit that was acknowledged is not visible", Seed(3)),
    // Tails and watches.
    bug("watchers-are-not-told", "a commit that becomes visible wakes nobody who follows its log", Seed(1)),
    bug("tail-misses-a-truncation", "a tail does not notice that its log was truncated", Seed(42)),
    bug(
        "wait-misses-what-is-gone",
        "a wait does not notice a number whose entry was dropped before it looked",
        Seed(10),
    ),
    bug("watch-forgets-the-first", "a watch does not return the first number of a log", Seed(1)),
    bug("watch-misses-too-early", "a watch misses logs that it has room for", Seed(3)),
    bug(
        "tail-trusts-its-view",
        "a tail returns entries of its view that were truncated meanwhile",
        Seed(122),
    ),
    bug(
        "reading-back-mixes-entries",
        "a read of what is not durable keeps the wrong entries after a truncation",
        Seed(24),
    ),
    bug(
        "reading-back-forgets-the-frozen-memtable",
        "a read of what is not durable does not look into the memtable of a checkpoint",
        Seed(12),
    ),
    bug("begin-forgets-its-number", "the ring does not record at which number a log begins", Seed(0)),
    // A reader beside the store.
    bug("freed-space-is-read", "a reader beside the store reads space that the store has freed", Seed(36)),
    bug(
        "reader-beside-ends-at-damage",
        "a reader beside the store takes a damaged block that the superblock knows for the end of the log",
        Seed(0),
    ),
    bug(
        "trimmed-entries-stay-trimmed",
        "a log in doubt reads without an error if all of it was trimmed before the damage",
        Seed(188),
    ),
    // Effects.
    bug("deleted-log-lives-on", "the entries of a deleted log stay", Seed(0)),
    bug("truncation-keeps-older-tiers", "a truncation does not reach what older tiers hold", Seed(0)),
];
