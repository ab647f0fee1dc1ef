//! Brooklet: an embedded store for **millions of small append-only logs**.
//!
//! Append an entry to a log and wait until it is on stable media, read the log back, trim its head,
//! delete the log. A store is one file and needs no server.
//!
//! ```
//! use brooklet::{Commit, Options};
//!
//! # fn main() -> Result<(), brooklet::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("documents.brooklet");
//! # // The program can run again on its store.
//! # for _ in 0..2 {
//! # let options = Options::new().ring_size(1 << 20).max_payload(1 << 16);
//! let store = options.open(&path)?;                                // one file is one store
//! let first = store.append("doc/7", b"insert 'h' at 0")?;
//! first.wait()?;                                                   // returns once it is durable
//!
//! let mut commit = Commit::new();                                  // many logs, one atomic commit
//! commit.expect_next("doc/7", first.seq() + 1).append("doc/7", b"insert 'i' at 1").append("feed", b"doc 7");
//! let ticket = store.commit(&commit)?;                             // numbers at once, durability later:
//! ticket.wait()?;                                                  // a thread waits, a task awaits
//!
//! for entry in store.read("doc/7", ..)? {
//!     let entry = entry?;
//!     println!("{}: {}", entry.seq, String::from_utf8_lossy(&entry.payload));
//! }
//! store.snapshot("doc/7", b"hi")?.wait()?;                         // append, and trim all before it
//! assert_eq!(store.bounds("doc/7")?.first, first.seq() + 2);
//! store.close()?;
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! A log keeps all entries, or the newest ones within its [`Retention`]: by number of entries, by
//! bytes, by age; see [`Store::set_retention`].
//!
//! # Limits
//!
//! A key has 1 to 1,024 bytes ([`MAX_KEY`]). A payload has at most 16 MiB by default, and at most
//! about a third of the ring; so has a commit. Numbers of entries have 64 bits; a log begins at
//! most at number 2^62 ([`MAX_SEQ`]).
//!
//! # Features
//!
//! - `io-uring`, a default: several writes in flight by io_uring on Linux. Without it, or where the
//!   kernel forbids it, threads make these writes.
//! - `zstd`: the ring compresses by zstd where the device is slow. The default build compresses by
//!   LZ4 only. A build without this feature refuses a ring that has such blocks
//!   ([`Error::FeatureNeeded`]), until a checkpoint of a build with it has freed them.
//! - `metrics`: metrics for recorders of the crate `metrics`.
//! - `testing`: calls for simulations and crash tests, without a promise of stability.
//!
//! # Where things are
//!
//! Each folder is a layer and imports only the layers before it: `model` (logs, keys, commits),
//! `format` (the bytes of each structure), `options`, `volume` (files, locks, the allocator),
//! `memtable`, `run` (tables and their caches), `state` (the append step, and all state that
//! commits and readers share), `read`, `memory_space`, `maintenance` (checkpoints and compaction),
//! `engine` (the threads), `stats`, `store` (the public API), `transfer` (imports, exports, copies,
//! subscriptions).

#![forbid(unsafe_code)]

#[doc = include_str!("../../../README.md")]
#[cfg(doctest)]
struct Readme;

#[cfg(doctest)]
mod guide;

mod counters;
mod engine;
pub mod error;
mod format;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod limits;
mod maintenance;
mod memory_space;
mod memtable;
mod model;
mod options;
mod read;
mod run;
mod state;
mod stats;
mod store;
mod transfer;
mod volume;

pub use brooklet_codex as codex;
pub use brooklet_io as io;
pub(crate) use brooklet_wal::sync;
pub use brooklet_wal::{
    End, Histogram, LocalLog, Mirror, MirrorHandle, MirrorStats, Recovery, SealedBlock, Stages, Waits,
    WalStats,
};
pub use bytes::Bytes;
pub use counters::{ReadStats, StallReason, StallStats};
pub use engine::beside::Cut;
pub use engine::memory_dump::DumpReport;
pub use error::{Error, ErrorKind};
pub use format::manifest::PartName;
pub use limits::{MAX_KEY, MAX_SEQ};
pub use maintenance::MaintenanceStats;
pub use maintenance::snapshot::MaintenanceSnapshot;
pub use model::Bounds;
pub use model::commit::{Commit, Durability};
pub use model::progress::Progress;
pub use model::retention::Retention;
pub use model::retention_rule::RetentionRule;
pub use model::space_config::{Class, MemoryConfig, MemoryInfo, SpaceConfig, SpaceInfo, WhenFull};
pub use options::mirror::MirrorOptions;
pub use options::{Create, Options};
pub use read::scan::{LogInfo, Logs};
pub use read::{Entries, Entry};
pub use run::table_cache::LookupStats;
pub use state::subscribers::{Lost, Moment};
pub use stats::activity::Activity;
pub use stats::info::{RunInfo, StoreInfo};
pub use stats::metrics;
pub use store::Store;
#[doc(hidden)]
pub use store::check::check_volume_with_ring;
pub use store::check::{CheckReport, Finding, check, check_volume};
pub use store::committing::{Appending, Committing};
pub use store::damage::Damage;
pub use store::space::Space;
pub use store::tail::{Tail, TailEvent, TailStream};
pub use store::ticket::Ticket;
pub use store::view::View;
pub use store::wait_for::WaitingFor;
pub use store::walk::{Walk, WalkItem};
pub use store::watch::{Watch, WatchEvent, WatchStream};
pub use transfer::catch_up::CaughtUp;
pub use transfer::export::ExportReport;
pub use transfer::following::Following;
pub use transfer::import::unsorted::Unsorted;
pub use transfer::import::{Existing, Import, ImportReport};
pub use transfer::offload::OffloadReport;
pub use transfer::parts::Part;
pub use transfer::recall::RecallReport;
pub use transfer::salvage::Salvage;
pub use transfer::subscribe::{Commits, Subscription};
pub use transfer::succeed::Kept;
pub use volume::device::Formatted;
