//! The changes of a map, each decided by the map that it changes.

use crate::fields::TEXT;
use crate::map::{MOST, Map, Moving, Shard, is_name, is_space};
use crate::place::Place;
use crate::refusal::Refusal;

/// A change of a map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Makes the first map, if there is none.
    Begin,
    /// Adds a shard. The first host that registers is wanted.
    AddShard {
        /// Its name.
        shard: String,
    },
    /// Says that a host can serve a shard.
    Register {
        /// The shard.
        shard: String,
        /// The host.
        host: String,
        /// URL at which clients reach the host for this shard; it may be empty.
        url: String,
    },
    /// Takes a host back that cannot serve a shard any more.
    Forget {
        /// The shard.
        shard: String,
        /// The host.
        host: String,
    },
    /// Gives a space to a shard.
    Assign {
        /// The space.
        space: String,
        /// The shard.
        shard: String,
    },
    /// Asks for a move of a shard to a host, in place of one that is under way.
    Move {
        /// The shard.
        shard: String,
        /// The target.
        to: String,
    },
    /// Ends a move that is under way.
    Cancel {
        /// The shard.
        shard: String,
    },
    /// Ends a move to a host that took the shard over, and did not serve it.
    GiveUp {
        /// The shard.
        shard: String,
        /// The target.
        host: String,
    },
    /// Says that the target of a move has reached the end of the log.
    Ready {
        /// The shard.
        shard: String,
        /// The target.
        host: String,
        /// The place behind the objects that the target has read.
        at: Place,
    },
    /// Asks the target of a move to say again that it is ready: the log was trimmed past the place
    /// at which it was.
    Wait {
        /// The shard.
        shard: String,
    },
    /// Says that a host serves a shard. If the shard was to move there, the move is done.
    Serves {
        /// The shard.
        shard: String,
        /// The host.
        host: String,
    },
}

impl Change {
    /// Changes a map, which is `None` if there is none. Leaves the number and the drawn number as
    /// they are. Returns `None` if the map is as the change wants it.
    ///
    /// # Errors
    /// A [`Refusal`]: the change does not fit the map.
    pub fn apply(&self, map: Option<&Map>) -> Result<Option<Map>, Refusal> {
        let Some(before) = map else { return Err(Refusal::NoMap) };
        let mut map = before.clone();
        match self {
            Self::Begin => {}
            Self::AddShard { shard } => {
                expect(is_name(shard), || Refusal::NoName(shard.clone()))?;
                expect(!map.shards.contains_key(shard), || Refusal::HasShard(shard.clone()))?;
                expect(map.shards.len() < MOST, || Refusal::Full)?;
                map.shards.insert(shard.clone(), <_>::default());
                if map.default.is_empty() {
                    map.default.clone_from(shard);
                }
            }
            Self::Register { shard, host, url } => {
                expect(is_name(host), || Refusal::NoName(host.clone()))?;
                expect(url.len() <= TEXT, || Refusal::LongUrl)?;
                let shard = find(&mut map, shard)?;
                shard.hosts.insert(host.clone(), url.clone());
                expect(shard.hosts.len() <= MOST, || Refusal::Full)?;
                if shard.wanted.is_empty() {
                    shard.wanted.clone_from(host);
                }
            }
            Self::Forget { shard: name, host } => {
                let shard = find(&mut map, name)?;
                let is_target = shard.moving.as_ref().is_some_and(|moving| moving.to == *host);
                let needed = || Refusal::IsNeeded { shard: name.clone(), host: host.clone() };
                expect(shard.wanted != *host && !is_target, needed)?;
                shard.hosts.remove(host);
            }
            Self::Assign { space, shard } => {
                expect(is_space(space), || Refusal::NoName(space.clone()))?;
                find(&mut map, shard)?;
                map.spaces.insert(space.clone(), shard.clone());
                expect(map.spaces.len() <= MOST, || Refusal::Full)?;
            }
            Self::Move { shard: name, to } => {
                let shard = find(&mut map, name)?;
                let none = || Refusal::NoHost { shard: name.clone(), host: to.clone() };
                expect(shard.hosts.contains_key(to), none)?;
                if shard.moving.as_ref().is_none_or(|moving| moving.to != *to) {
                    shard.moving = Some(Moving { to: to.clone(), ready: None });
                }
            }
            Self::Cancel { shard } => find(&mut map, shard)?.moving = None,
            Self::GiveUp { shard, host } => {
                let shard = find(&mut map, shard)?;
                shard.moving = shard.moving.take().filter(|moving| moving.to != *host);
            }
            Self::Ready { shard, host, at } => {
                // The move may have been cancelled meanwhile.
                let moving = find(&mut map, shard)?.moving.as_mut();
                if let Some(moving) = moving.filter(|moving| moving.to == *host) {
                    moving.ready = Some(*at);
                }
            }
            Self::Wait { shard } => {
                if let Some(moving) = &mut find(&mut map, shard)?.moving {
                    moving.ready = None;
                }
            }
            Self::Serves { shard, host } => {
                let shard = find(&mut map, shard)?;
                if shard.moving.as_ref().is_some_and(|moving| moving.to == *host) {
                    (shard.wanted, shard.moving) = (host.clone(), None);
                }
            }
        }
        Ok((map != *before).then_some(map))
    }
}

fn expect(holds: bool, refusal: impl FnOnce() -> Refusal) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(refusal()) }
}

fn find<'a>(map: &'a mut Map, shard: &str) -> Result<&'a mut Shard, Refusal> {
    map.shards.get_mut(shard).ok_or_else(|| Refusal::NoShard(shard.into()))
}
