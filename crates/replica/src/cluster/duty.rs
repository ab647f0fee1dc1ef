//! What the map asks of a host, while it owns a shard, and while it stands by.

use crate::map::Map;
use crate::place::Place;

/// What the map asks of the owner of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Duty<'a> {
    /// Serve on.
    Serve,
    /// Serve on, and keep the log short: the shard is about to move to this host.
    Prepare(&'a str),
    /// Leave the shard to this host, which is at the end of the log.
    Leave(&'a str),
    /// Serve on, and let the target say again that it is ready.
    Wait,
    /// Serve on, and say so: the shard has arrived here.
    Arrived,
}

/// What the map asks of a host that stands by for a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// Wait.
    Wait,
    /// Follow the log closely: the shard is about to move.
    Follow,
    /// Follow the log closely, and say so at its end: the shard is about to move here.
    Approach {
        /// The place at which this host has said to be ready.
        said: Option<Place>,
    },
}

impl Map {
    /// Returns what the map asks of the owner of a shard, whose epoch begins, or whose log was
    /// trimmed up to, this place.
    pub fn duty(&self, shard: &str, host: &str, begin: Place) -> Duty<'_> {
        let Some(moving) = self.shards.get(shard).and_then(|shard| shard.moving.as_ref()) else {
            return Duty::Serve;
        };
        match (&*moving.to, moving.ready.filter(|ready| ready.epoch == begin.epoch)) {
            (to, _) if to == host => Duty::Arrived,
            (to, None) => Duty::Prepare(to),
            (to, Some(ready)) if ready >= begin => Duty::Leave(to),
            // Its file ends before the log begins.
            (_, Some(_)) => Duty::Wait,
        }
    }

    /// Returns what the map asks of a host that stands by for a shard.
    pub fn turn(&self, shard: &str, host: &str) -> Turn {
        match self.shards.get(shard).and_then(|shard| shard.moving.as_ref()) {
            None => Turn::Wait,
            Some(moving) if moving.to == host => Turn::Approach { said: moving.ready },
            Some(_) => Turn::Follow,
        }
    }

    /// Returns whether a host is to begin a shard that has no log yet.
    pub fn begins(&self, shard: &str, host: &str) -> bool {
        self.shards.get(shard).is_some_and(|shard| shard.wanted == host)
    }

    /// Returns whether a host takes a shard at once that its owner has left to the host `to`. The
    /// other hosts give that one some time. They take over if it is silent.
    pub fn takes(&self, shard: &str, host: &str, to: &str) -> bool {
        let is_known = self.shards.get(shard).is_some_and(|shard| shard.hosts.contains_key(to));
        to == host || (!is_known && self.begins(shard, host))
    }
}
