//! Backups of [Brooklet](brooklet) stores in object storage: S3, Google Cloud Storage, Azure, or a
//! folder.
//!
//! An [`Archive`] backs up a store while it is in use. A backup is all logs as they were at one
//! moment; only what the store wrote since the one before is uploaded, in objects of 16 MiB, so
//! that requests are in proportion to bytes and not to logs. An [`Archiver`] does so every half an
//! hour in a thread of its own, and removes what is too old.
//!
//! Between backups commits can be [shipped](Schedule::ship), every few seconds: that is then what a
//! lost machine costs, and logs come back as of any moment. A moment of which the archive knows
//! nothing is an error that says from when to when it does not: [`Error::Hole`].
//!
//! What is old may leave the store's own disk once it is in a backup: it is then read [from
//! there](Parts), with a local cache.
//!
//! A [`Backup`] is read from the bucket as a [`View`](brooklet::View): single logs by small reads,
//! or into a store in use, by [`Store::import`](brooklet::Store::import), or all of it as a new
//! store, by [`Options::copy`](brooklet::Options::copy). Every byte lies under a checksum, and what
//! is missing or damaged is an error that names the object.
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
//! # Whose an archive is
//!
//! One store has one archive, and one host writes to it. Each backup has the next number, and its
//! record is created only if there is none of that number, which all services named above decide
//! for one of several who try at the same moment. A host notes in a file which backups are its own.
//! Where it meets another's, it gets [`Error::Owned`] and writes no more, until it is told to [take
//! the archive over](Archive::take_over); from then on, the other one gets that.

#![forbid(unsafe_code)]

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
