//! The duties of a host by the map: as the owner of a shard, and as a standby.

use crate::map::Map;
use crate::place::Place;

/// The duty of the owner of a shard, by the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Duty<'a> {
    /// Serve on.
    Serve,
    /// Serve on, and keep the log short: the shard is about to move to this host.
    Prepare(&'a str),
    /// Leave the shard to this host, which is at the end of the log.
    Leave(&'a str),
    /// Serve on, and wait until the target reports again that it is ready.
    Wait,
    /// Serve on, and report this: the shard has arrived here.
    Arrived,
}

/// The duty of a host that stands by for a shard, by the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// Wait.
    Wait,
    /// Follow the log closely: the shard is about to move.
    Follow,
    /// Follow the log closely, and report its end once reached: the shard is about to move here.
    Approach {
        /// The place at which this host has reported that it is ready.
        said: Option<Place>,
    },
}

impl Map {
    /// Returns the duty of the owner of a shard. `begin` is the begin of the owner's epoch, or the
    /// place up to which the log was trimmed.
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

    /// Returns the duty of a host that stands by for a shard.
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
    /// other hosts wait for some time. They take over if `to` is silent.
    pub fn takes(&self, shard: &str, host: &str, to: &str) -> bool {
        let is_known = self.shards.get(shard).is_some_and(|shard| shard.hosts.contains_key(to));
        to == host || (!is_known && self.begins(shard, host))
    }
}
