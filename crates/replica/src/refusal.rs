//! Why the map of a cluster cannot be changed as somebody wants it.

use std::fmt;

use crate::fields::TEXT;
use crate::map::MOST;

/// Why a map cannot be changed so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The place has no map.
    NoMap,
    /// The map has no shard of this name.
    NoShard(String),
    /// The map has a shard of this name.
    HasShard(String),
    /// The shard has no such host.
    NoHost {
        /// The shard.
        shard: String,
        /// The host.
        host: String,
    },
    /// The host is wanted, or the target of a move.
    IsNeeded {
        /// The shard.
        shard: String,
        /// The host.
        host: String,
    },
    /// The text is no name of a shard, a host or a space.
    NoName(String),
    /// The URL is too long.
    LongUrl,
    /// The map has too many shards, hosts or spaces.
    Full,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMap => {
                f.write_str("the place has no map of a cluster: `brooklet cluster init` makes one")
            }
            Self::NoShard(shard) => {
                write!(f, "the map has no shard {shard:?}: `brooklet cluster add-shard` adds one")
            }
            Self::HasShard(shard) => write!(f, "the map has a shard {shard:?} already: choose another name"),
            Self::NoHost { shard, host } => write!(
                f,
                "host {host:?} does not serve shard {shard}: start `brooklet serve --cluster PLACE --shard {shard} --host {host}` there first"
            ),
            Self::IsNeeded { shard, host } => {
                write!(f, "shard {shard} is to be on host {host}: move the shard to another host first")
            }
            Self::NoName(name) => write!(
                f,
                "{name:?} is no name: use 1 to 255 letters, digits, hyphens, underscores and dots, and no dot at the beginning"
            ),
            Self::LongUrl => write!(f, "the URL is longer than {TEXT} bytes: use a shorter one"),
            Self::Full => write!(f, "the map has {MOST} parts of this kind: use a second cluster"),
        }
    }
}
