//! `cluster`: many stores on many hosts, by a map in a bucket.

mod doctor;
mod moving;
mod status;

use std::fmt::{self, Display};

use brooklet_archive::Bucket;
use brooklet_replica::{BucketJournal, Change, Cluster, Error, Map, Refusal};
use serde::Serialize;

use crate::bucket::is_missing;
use crate::failure::Failure;
use crate::output::{Output, counted};
use crate::serve::replicate::{refused, refused_at};
use crate::signals;

const PLACES: &str = "\
PLACE is s3://bucket/path, gs://bucket/path, az://container/path, or a folder that all hosts reach. The map lies below it in
`map`, and the log of each shard in `shards/NAME`.";

#[derive(clap::Subcommand)]
pub enum Command {
    /// Make the map of a new cluster
    Init(Place),
    /// Add a shard: a store of its own; the first host that serves it is wanted
    AddShard(Named),
    /// Give a space to a shard; its data is not moved
    Assign(Assign),
    /// Remove a host from a shard; the wanted host and the target of a move are refused
    Forget(Forget),
    /// List the shards: wanted host, owner, last sign, end of the log, move, spaces
    Status(Place),
    /// Move a shard to another host, without copying it
    Move(moving::Args),
    /// Look for what no host would notice in time: missing objects, shards without a host
    Doctor(doctor::Args),
}

#[derive(clap::Args)]
#[command(after_help = PLACES)]
pub struct Place {
    /// The place of the cluster
    place: String,
}

#[derive(clap::Args)]
pub struct Named {
    /// The place of the cluster
    place: String,
    /// The shard
    shard: String,
}

#[derive(clap::Args)]
pub struct Assign {
    /// The place of the cluster
    place: String,
    /// The space
    space: String,
    /// The shard
    shard: String,
}

#[derive(clap::Args)]
pub struct Forget {
    /// The place of the cluster
    place: String,
    /// The shard
    shard: String,
    /// The host
    host: String,
}

/// Runs a command on a cluster.
pub fn run(command: Command, out: &mut Output) -> Result<(), Failure> {
    signals::listen_quietly()?;
    match command {
        Command::Init(Place { place }) => change(&place, Change::Begin, out),
        Command::AddShard(Named { place, shard }) => change(&place, Change::AddShard { shard }, out),
        Command::Assign(Assign { place, space, shard }) => {
            change(&place, Change::Assign { space, shard }, out)
        }
        Command::Forget(Forget { place, shard, host }) => change(&place, Change::Forget { shard, host }, out),
        Command::Status(Place { place }) => status::run(&place, out),
        Command::Move(args) => moving::run(args, out),
        Command::Doctor(args) => doctor::run(args, out),
    }
}

/// A cluster in a bucket.
struct Opened {
    place: String,
    bucket: Bucket,
    cluster: Cluster<BucketJournal>,
}

impl Opened {
    /// Opens a cluster. A folder that does not exist has no map, and is not made.
    fn at(place: &str) -> Result<Self, Failure> {
        if is_missing(place)? {
            return Err(refused_at(place, Error::Map(Refusal::NoMap)));
        }
        Self::or_new(place)
    }

    /// Opens a cluster, or the place of a new one.
    fn or_new(place: &str) -> Result<Self, Failure> {
        let bucket = Bucket::open(place)?;
        let cluster = Cluster::new(BucketJournal::new(&bucket));
        Ok(Self { place: place.trim_end_matches('/').into(), bucket, cluster })
    }

    /// Returns the map.
    fn map(&self) -> Result<Map, Failure> {
        let map = self.cluster.look_now(None, &goes_on).map_err(refused)?;
        map.ok_or_else(|| self.refused(Error::Map(Refusal::NoMap)))
    }

    /// Returns the failure of a request.
    fn refused(&self, error: Error) -> Failure {
        refused_at(&self.place, error)
    }

    /// Opens the places of the log of a shard, and of its backups.
    fn shard(&self, name: &str) -> Result<(Bucket, Bucket), Failure> {
        let log = format!("shards/{name}");
        Ok((self.below(&log)?, self.below(&format!("{log}/backups"))?))
    }

    /// Opens a place below that of the cluster. A folder that does not exist is not made: nobody
    /// has served the shard yet, or this process may only read.
    fn below(&self, name: &str) -> Result<Bucket, Failure> {
        let address = format!("{}/{name}", self.place);
        if is_missing(&address)? {
            return Ok(Bucket::of(self.bucket.object_store(), name)?);
        }
        Ok(Bucket::open(&address)?)
    }
}

fn goes_on() -> bool {
    signals::go_on().is_continue()
}

fn change(place: &str, change: Change, out: &mut Output) -> Result<(), Failure> {
    let is_new = matches!(change, Change::Begin);
    let opened = if is_new { Opened::or_new(place)? } else { Opened::at(place)? };
    let map = opened.cluster.change_now(change, None, &goes_on).map_err(|error| opened.refused(error))?;
    out.put(&Changed { map: map.number, shards: map.shards.len() })
}

#[derive(Serialize)]
struct Changed {
    map: u64,
    shards: usize,
}

impl Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "map {} has {}", self.map, counted(self.shards as u64, "shard"))
    }
}
