//! Backups of [Brooklet](brooklet) stores in object storage: S3, Google Cloud Storage, Azure, or a
//! folder.
//!
//! An [`Archive`] backs up a store while it is in use. A backup has all logs as of one moment. It
//! uploads only the data that the store wrote since the previous backup, in objects of 16 MiB: the
//! number of requests depends on bytes, not on logs. An [`Archiver`] makes a backup every 30
//! minutes by default, in a thread of its own, and removes old backups if its [`Schedule`] has a
//! limit.
//!
//! Between backups an archiver can [ship](Schedule::ship) commits, every few seconds. A lost
//! machine then costs those seconds only, and logs can be restored as of any moment. A moment that
//! the archive does not know is [`Error::Hole`], with the bounds of the unknown time.
//!
//! Old data that is in a backup may leave the store's own disk. The store then reads that data
//! [from the archive](Parts), with a local cache.
//!
//! A [`Backup`] is read from the bucket as a [`View`](brooklet::View). A view reads single logs by
//! small reads. [`Store::import`](brooklet::Store::import) brings its logs into a store in use, and
//! [`Options::copy`](brooklet::Options::copy) makes a new store of it. Checksums cover every byte.
//! An error of a missing or damaged object names the object.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let folder = dir.path().join("bucket");
//! # let (address, note) = (folder.to_str().unwrap(), dir.path().join("note"));
//! # let (store, new) = (brooklet::Store::in_memory(1)?, brooklet::Store::in_memory(2)?);
//! use std::ops::ControlFlow;
//! use brooklet_archive::{Archive, Bucket, Which};
//!
//! let bucket = Bucket::open(address)?;                                 // such as s3://bucket/path
//! let mut archive = Archive::new(bucket.clone(), note, "this host")?;
//! store.append_many("doc/1", ["a", "b"])?.wait()?;
//! let archived = archive.backup(&store, brooklet::Progress::ignore)?;
//! assert_eq!((archived.number, archived.new_objects), (0, 1));
//!
//! // On another machine:
//! let view = bucket.backup(Which::Latest)?.view(64 << 20)?;
//! new.import().view(&view, "")?;
//! assert_eq!(new.bounds("doc/1")?.next, 2);
//! # Ok(())
//! # }
//! ```
//!
//! # The owner of an archive
//!
//! One store has one archive, and one host writes to it. Each backup has the next number. Its
//! record is created only if the bucket has no record of that number; all services named above
//! choose one winner when several hosts try at the same moment. A host notes in a file which
//! backups are its own. A host that meets another host's backup gets [`Error::Owned`] and stops
//! writing, until its caller [takes the archive over](Archive::take_over). Then the other host gets
//! [`Error::Owned`].

#![forbid(unsafe_code)]

/// The page of the guide, whose code compiles and runs with the tests.
#[doc = include_str!("../../../docs/guide/backups.md")]
#[cfg(doctest)]
struct Guide;

mod address;
mod archive;
mod archiver;
mod backups;
mod bucket;
mod cache;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod leftovers;
mod moments;
mod note;
mod objects;
mod parts;
mod prune;
mod record;
mod records;
mod remote;
mod request;
mod shipping;
mod upload;
mod which;

pub use archive::{Archive, Archived};
pub use archiver::{Archiver, Schedule, Status};
pub use backups::{Backup, BackupInfo, Verified};
pub use bucket::{Bucket, Costs};
pub use error::Error;
pub use object_store;
pub use parts::Parts;
pub use prune::Pruned;
pub use shipping::Shipped;
pub use which::Which;
