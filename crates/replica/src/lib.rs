//! The log of a [Brooklet](brooklet) store in object storage: it survives its host, and one host at
//! a time writes it.
//!
//! [`Replica`] is the log as the mirror of a store: an acknowledgement then means that the commit
//! survives its host. `brooklet serve --replicate` uses it. The page `docs/replication.md` of the
//! repository has the modes, and lists the missing parts.
//!
//! An owner appends objects under numbers, each created only if its name is free. Another host that
//! takes the store over claims the next epoch, and creates an object of its own, a *fence*, under
//! the first free number. The old owner meets the fence, and stops. So the storage has to ensure
//! one thing only: of several creations of one name, exactly one succeeds. A [`Probe`] tests this.
//!
//! - [`Takeover`], [`Owner`], [`Recorder`], [`Follower`], [`reconcile`]: the decisions, as state
//!   machines.
//! - [`Journal`], [`BucketJournal`], `JetStream`: the requests to the storage.
//! - [`Shipper`]: a thread that plays owner and recorder over a journal.
//! - [`Replica`]: the mirror of a store; and the wait of a standby.
//! - [`Cluster`]: a map of many stores on many hosts, and [`Changer`], which changes it.
//! - [`ReadReplica`]: a store that follows the log, and serves reads.
//! - [`Making`]: the file of a host that reads the log on while the file is made.

#![forbid(unsafe_code)]

mod any;
mod backup;
mod bucket;
mod claim;
mod cluster;
mod cutter;
mod drive;
mod error;
mod fields;
mod followed;
#[cfg(feature = "jetstream")]
mod jetstream;
mod journal;
mod machine;
mod making;
mod map;
mod object;
mod place;
mod probe;
mod read_replica;
mod reconcile;
mod record;
mod refusal;
mod replica;
mod shipper;
mod standby;

pub use any::AnyJournal;
pub use bucket::BucketJournal;
pub use claim::Claim;
pub use cluster::{
    Asked, Change, Changed, Changer, Cluster, Duty, Health, Heard, Observer, Part, Turn, doctor,
};
pub use cutter::{Cut, Cuts, Cutter, blocks};
pub use drive::{follow, take_over};
pub use error::Error;
pub use fields::Defect;
pub use followed::Followed;
#[cfg(feature = "jetstream")]
pub use jetstream::JetStream;
pub use journal::{Created, Journal, Key};
pub use machine::follower::{Follower, FollowerState};
pub use machine::owner::{Owner, OwnerLimits, OwnerState};
pub use machine::recorder::Recorder;
pub use machine::takeover::{Found, Opened, Takeover, TakeoverEnd, TakeoverLimits};
pub use machine::{Reply, Request};
pub use making::Making;
pub use map::{Map, Moving, Shard};
pub use object::{Kind, Object, Payload};
pub use place::{Drawn, Epoch, Mark, Place, StoreId, Writer};
pub use probe::Probe;
pub use read_replica::{Lag, ReadReplica, ReadReplicaOptions};
pub use reconcile::{Link, Local, Mode, Plan, Remote, reconcile};
pub use record::Record;
pub use refusal::Refusal;
pub use replica::Replica;
pub use shipper::{Shipper, ShipperOptions, ShipperStatus};
pub use standby::{Standing, stand_by};
