//! The map of a cluster: its shards, their hosts, and the spaces in each.
//!
//! ```text
//! map (little endian), `map/<number, 20 digits>`
//!    0  8  "BRKSHMAP"
//!    8  4  version: 1
//!   12  4  0
//!   16 16  id of the cluster
//!   32  8  number of the map; each has the next one, and the first has 1
//!   40 16  number that was drawn for the change that made the map
//!   56  4  count of shards, then each by ascending names:
//!           name, wanted host, host that the shard moves to or "", place at which that host was ready: epoch (8) or 0, number (8),
//!           count of hosts (4), then each by ascending names: name, URL
//!    …  4  count of spaces, then each by ascending names: space, shard
//!    …     shard of all other spaces, or ""
//!   then 8 XXH3-64 of all before
//! ```
//!
//! Each text has its length in 4 bytes before it. Maps are never removed: the newest is found by
//! its number, without a list.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::fields::{Defect, Reading, Writing};
use crate::place::{Drawn, Epoch, Place, StoreId};

const MAGIC: &[u8; 8] = b"BRKSHMAP";
/// Most shards, hosts of a shard, and spaces.
pub(crate) const MOST: usize = 100_000;
/// Stands for no place: epochs begin with 1.
const NOWHERE: Place = Place { epoch: Epoch(0), number: 0 };
/// Longest name, in bytes.
const LONGEST: usize = 255;

/// The map of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Map {
    /// The id of the cluster.
    pub id: StoreId,
    /// The number of the map.
    pub number: u64,
    /// The number that was drawn for the change that made it.
    pub drawn: Drawn,
    /// The shards, by name.
    pub shards: BTreeMap<String, Shard>,
    /// The shards of the spaces that are assigned, by space.
    pub spaces: BTreeMap<String, String>,
    /// The shard of all other spaces: the first one that was added. Empty until then.
    pub default: String,
}

/// A shard: a store of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shard {
    /// The host that is to serve the shard. Empty until a host has registered.
    pub wanted: String,
    /// The hosts that can serve it, each with the URL at which clients reach it for this shard.
    pub hosts: BTreeMap<String, String>,
    /// The move that is under way.
    pub moving: Option<Moving>,
}

/// A move of a shard to another host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moving {
    /// The target.
    pub to: String,
    /// The place of the log up to which the target has read, once that was its end. It counts only
    /// for the owner of that epoch: an owner that comes later does not leave for a host that was
    /// ready long ago.
    pub ready: Option<Place>,
}

impl Map {
    /// Returns the name of a map's object.
    pub fn name(number: u64) -> String {
        format!("map/{number:020}")
    }

    /// Returns the first map of a cluster.
    pub fn first(drawn: Drawn) -> Self {
        let (shards, spaces) = (BTreeMap::new(), BTreeMap::new());
        Self { id: StoreId(drawn.0), number: 1, drawn, shards, spaces, default: String::new() }
    }

    /// Returns the shard of a space; `None` if there is no shard.
    pub fn shard_of(&self, space: &str) -> Option<&str> {
        let shard = self.spaces.get(space).unwrap_or(&self.default);
        (!shard.is_empty()).then_some(shard)
    }

    /// Returns the map as bytes.
    pub fn encode(&self) -> Bytes {
        let mut fields = Writing::begin(MAGIC, [0; 4], self.id).number(self.number).drawn(self.drawn);
        fields = fields.count(self.shards.len());
        for (name, Shard { wanted, hosts, moving }) in &self.shards {
            let to = moving.as_ref().map_or("", |moving| &moving.to);
            let ready = moving.as_ref().and_then(|moving| moving.ready).unwrap_or(NOWHERE);
            fields = fields.text(name).text(wanted).text(to).place(ready).count(hosts.len());
            fields = hosts.iter().fold(fields, |fields, (host, url)| fields.text(host).text(url));
        }
        fields = fields.count(self.spaces.len());
        fields = self.spaces.iter().fold(fields, |fields, (space, shard)| fields.text(space).text(shard));
        fields.text(&self.default).end().into()
    }

    /// Returns the cluster of a map, if the bytes begin as one.
    pub fn cluster(data: &[u8]) -> Option<StoreId> {
        let id = data.strip_prefix(MAGIC)?.get(8..24)?;
        Some(StoreId(u128::from_le_bytes(id.try_into().ok()?)))
    }

    /// Reads the map of a number.
    ///
    /// # Errors
    /// A [`Defect`] if the bytes are not whole, or not of this cluster and number.
    pub fn decode(id: StoreId, number: u64, data: &[u8]) -> Result<Self, Defect> {
        let (mut fields, _) = Reading::begin(data, MAGIC, id)?;
        if fields.number()? != number {
            return Err("it is another map".into());
        }
        let drawn = fields.drawn()?;
        let mut shards = BTreeMap::new();
        for _ in 0..count(&mut fields)? {
            let (name, wanted, to) = (fields.text()?, fields.text()?, fields.text()?);
            let ready = Some(fields.place()?).filter(|place| *place != NOWHERE);
            let moving = (!to.is_empty()).then_some(Moving { to, ready });
            let hosts = pairs(&mut fields)?;
            insert(&mut shards, name, Shard { wanted, hosts, moving })?;
        }
        let (spaces, default) = (pairs(&mut fields)?, fields.text()?);
        fields.end()?;
        Ok(Self { id, number, drawn, shards, spaces, default })
    }
}

fn count(fields: &mut Reading<'_>) -> Result<usize, Defect> {
    let count = fields.count()?;
    if count > MOST { Err("it has too many parts".into()) } else { Ok(count) }
}

fn pairs(fields: &mut Reading<'_>) -> Result<BTreeMap<String, String>, Defect> {
    let mut pairs = BTreeMap::new();
    for _ in 0..count(fields)? {
        let (name, value) = (fields.text()?, fields.text()?);
        insert(&mut pairs, name, value)?;
    }
    Ok(pairs)
}

fn insert<T>(all: &mut BTreeMap<String, T>, name: String, value: T) -> Result<(), Defect> {
    if all.last_key_value().is_some_and(|(last, _)| *last >= name) {
        return Err("its names are not in order".into());
    }
    all.insert(name, value);
    Ok(())
}

/// Returns whether a text may be the name of a shard or a host. The name of a shard is a folder of
/// the bucket, and messages contain the name of a host.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= LONGEST && !name.starts_with('.') && name.bytes().all(fits)
}

/// Returns whether a text may be the name of a space.
pub(crate) fn is_space(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST
}
