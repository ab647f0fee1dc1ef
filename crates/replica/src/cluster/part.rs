//! The part of a host in a shard: the changes of the map that the host wants, and its duties by the
//! map.

use crate::cluster::change::Change;
use crate::cluster::duty::{Duty, Turn};
use crate::map::Map;
use crate::place::{Epoch, Place};

/// The part of a host in a shard. It decides, and makes no request: the caller passes each new map
/// to it, and follows its decisions.
#[derive(Clone, Debug)]
pub struct Part {
    shard: String,
    host: String,
    url: String,
    map: Option<Map>,
    role: Role,
    /// Set once the map had this host with its URL.
    is_registered: bool,
    /// The place at which the host last said to be ready.
    said: Option<Place>,
    /// Whether the last map had another URL for this host, after its own.
    is_replaced: bool,
}

#[derive(Clone, Debug, Default)]
enum Role {
    #[default]
    Waits,
    /// It stands by. Its file has nearly all of the log, which ends at this place.
    Near(Place),
    Serves {
        /// The begin of its epoch, or of the log in it.
        begin: Place,
        /// Whether a takeover would read little of the log.
        is_short: bool,
        left_to: Option<String>,
        /// Whether clients can connect, and whether the log has an object of its epoch.
        is_open: bool,
        has_kept: bool,
        /// The host that claimed the shard just before.
        before: Option<String>,
    },
}

impl Part {
    /// Returns the part of a host that stands by for a shard. Clients reach the host at `url`.
    pub fn new(shard: &str, host: &str, url: &str) -> Self {
        let (shard, host, url) = (shard.into(), host.into(), url.into());
        let (map, role, is_registered, said, is_replaced) = (None, Role::Waits, false, None, false);
        Self { shard, host, url, map, role, is_registered, said, is_replaced }
    }

    /// Returns the change that registers the host.
    pub fn registration(&self) -> Change {
        let (shard, host, url) = (self.shard.clone(), self.host.clone(), self.url.clone());
        Change::Register { shard, host, url }
    }

    /// Takes the newest map. Returns the change that the host wants to make now.
    pub fn see(&mut self, map: Option<&Map>) -> Option<Change> {
        self.map = map.cloned();
        let map = map?;
        let known = map.shards.get(&self.shard).and_then(|shard| shard.hosts.get(&self.host));
        self.is_replaced = false;
        if known == Some(&self.url) {
            self.is_registered = true;
        } else if self.is_registered {
            // Both would else change the map for ever.
            self.is_replaced = true;
        } else {
            return Some(self.registration());
        }
        let (shard, host) = (self.shard.clone(), self.host.clone());
        match &mut self.role {
            Role::Waits => None,
            Role::Near(at) => match map.turn(&shard, &host) {
                // Not the same place twice: the owner has asked for a later one.
                Turn::Approach { said }
                    if said.is_none_or(|said| said.epoch != at.epoch) && self.said != Some(*at) =>
                {
                    self.said = Some(*at);
                    Some(Change::Ready { shard, host, at: *at })
                }
                _ => None,
            },
            Role::Serves { before, .. } if before.is_some() => {
                let moving = map.shards.get(&shard).and_then(|shard| shard.moving.as_ref());
                if moving.is_some_and(|moving| moving.to != host && Some(&moving.to) == before.as_ref()) {
                    return before.clone().map(|host| Change::GiveUp { shard, host });
                }
                *before = None;
                self.see_serving(map)
            }
            Role::Serves { .. } => self.see_serving(map),
        }
    }

    fn see_serving(&mut self, map: &Map) -> Option<Change> {
        let Role::Serves { begin, is_short, left_to, is_open, has_kept, .. } = &mut self.role else {
            return None;
        };
        let (shard, host) = (self.shard.clone(), self.host.clone());
        match map.duty(&shard, &host, *begin) {
            Duty::Wait => Some(Change::Wait { shard }),
            // A host that leaves the shard has it no more, whatever the map says now.
            Duty::Arrived => {
                let has_arrived = *is_open && *has_kept && left_to.is_none();
                has_arrived.then_some(Change::Serves { shard, host })
            }
            Duty::Leave(to) if *is_short && left_to.is_none() => {
                *left_to = Some(to.to_owned());
                None
            }
            _ => None,
        }
    }

    /// Returns whether the map has lost this host, or another process has taken its name.
    pub fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// Returns whether the host begins the shard if it has no log.
    pub fn begins(&self) -> bool {
        self.map.as_ref().is_some_and(|map| map.begins(&self.shard, &self.host))
    }

    /// Returns whether the host takes over at once after the owner has left the shard to the host
    /// `to`.
    pub fn takes(&self, to: &str) -> bool {
        self.map.as_ref().is_some_and(|map| map.takes(&self.shard, &self.host, to))
    }

    /// Returns the place of a space, in words, if another shard has it: the map assigns the space
    /// to that shard, or to none, and that shard is the first.
    pub fn elsewhere(&self, space: &str) -> Option<String> {
        let map = self.map.as_ref()?;
        let shard = map.shard_of(space).filter(|shard| *shard != self.shard)?;
        let entry = map.shards.get(shard)?;
        if entry.wanted.is_empty() {
            return Some(format!("space {space} is in shard {shard}, which has no host yet"));
        }
        let url = entry.hosts.get(&entry.wanted).filter(|url| !url.is_empty());
        let url = url.map_or_else(String::new, |url| format!(" at {url}"));
        Some(format!("space {space} is in shard {shard}, on host {}{url}", entry.wanted))
    }

    /// Returns whether the shard is about to move, so that each host looks often.
    pub fn is_moving(&self) -> bool {
        self.turn() != Turn::Wait
    }

    /// Returns whether the shard is about to move to this host.
    pub fn approaches(&self) -> bool {
        matches!(self.turn(), Turn::Approach { .. })
    }

    fn turn(&self) -> Turn {
        self.map.as_ref().map_or(Turn::Wait, |map| map.turn(&self.shard, &self.host))
    }

    /// Notes the end of the log at which the host stands by, if its file has nearly all of that.
    pub fn stand_by(&mut self, near: Option<Place>) {
        self.role = near.map_or(Role::Waits, Role::Near);
    }

    /// Notes that the host serves as the owner of an epoch.
    pub fn serve(&mut self, epoch: Epoch) {
        let begin = Place::first_of(epoch);
        let (is_short, left_to, is_open, has_kept, before) = (false, None, false, false, None);
        self.role = Role::Serves { begin, is_short, left_to, is_open, has_kept, before };
    }

    /// Notes that clients can connect to this host. A move to it is done then, once the log has an
    /// object of its epoch: a host that claims the log may not be able to serve.
    pub fn open(&mut self) {
        if let Role::Serves { is_open, .. } = &mut self.role {
            *is_open = true;
        }
    }

    /// Notes the host that claimed the shard just before this one. This cancels a move to that host
    /// that is under way: the host has taken the shard over, and served nobody.
    pub fn follows(&mut self, host: &str) {
        if let Role::Serves { before, .. } = &mut self.role {
            *before = Some(host.into());
        }
    }

    /// Notes whether a takeover would read little of the log, the end of what it has, and where it
    /// begins if it was trimmed. Returns whether it should be short, because the shard is about to
    /// move away.
    pub fn note_log(&mut self, short: bool, kept: Place, trimmed: Option<Place>) -> bool {
        let (Some(map), Role::Serves { begin, is_short, has_kept, .. }) = (&self.map, &mut self.role) else {
            return false;
        };
        *has_kept |= kept > Place::first_of(begin.epoch);
        (*is_short, *begin) = (short, trimmed.map_or(*begin, |trimmed| trimmed.max(*begin)));
        let duty = map.duty(&self.shard, &self.host, *begin);
        matches!(duty, Duty::Prepare(_) | Duty::Leave(_) | Duty::Wait)
    }

    /// Returns the host to which the shard is to be left now. It stays so until
    /// [`end_serving`](Self::end_serving).
    pub fn leaves_to(&self) -> Option<&str> {
        match &self.role {
            Role::Serves { left_to, .. } => left_to.as_deref(),
            _ => None,
        }
    }

    /// Notes that the host serves no more. Returns the host to which it leaves the shard.
    pub fn end_serving(&mut self) -> Option<String> {
        match std::mem::take(&mut self.role) {
            Role::Serves { left_to, .. } => left_to,
            _ => None,
        }
    }
}
