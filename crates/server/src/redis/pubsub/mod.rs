//! Publish and subscribe: who receives the messages of which channels.
//!
//! This is state only. The [engine](super::engine) counts its memory, and delivers the messages.

mod outbox;

use std::collections::BTreeSet;

use bytes::Bytes;
use hashbrown::HashMap;

use super::client::ClientId;
use super::glob::matches_within;
pub use outbox::{Body, Outbox, Post};

/// Most patterns of all clients together. A message is compared with each of them.
const MAX_PATTERNS: usize = 100_000;
/// Most patterns of one client.
const MAX_OWN_PATTERNS: usize = 10_000;
/// Most bytes of the patterns of one client, and of all clients together: so many that a message of
/// a channel with a short name always gets through.
const MAX_OWN_PATTERN_BYTES: usize = 128 << 10;
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// Most channels of one client, of both kinds: its end takes a while for each.
const MAX_OWN_CHANNELS: usize = 100_000;
/// Most steps of the comparisons of the messages of one request with all patterns: a fraction of a
/// second.
pub const MAX_STEPS: usize = 30_000_000;
/// Longest name of a channel, in bytes.
pub const MAX_CHANNEL: usize = 64 << 10;
/// Memory of a subscription besides its name, in bytes.
const SUBSCRIPTION: usize = 256;

/// The kinds of topics that a client subscribes to. Each has names of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A channel.
    Channel,
    /// All channels whose names match a pattern.
    Pattern,
    /// A channel of `SPUBLISH`.
    Shard,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];

    /// Returns the names of the commands that begin and end a subscription.
    pub fn commands(self) -> (&'static str, &'static str) {
        match self {
            Self::Channel => ("subscribe", "unsubscribe"),
            Self::Pattern => ("psubscribe", "punsubscribe"),
            Self::Shard => ("ssubscribe", "sunsubscribe"),
        }
    }
}

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub struct Subscriptions {
    names: [BTreeSet<Bytes>; 3],
    bytes: usize,
    /// Bytes of the patterns.
    pattern_bytes: usize,
}

impl Subscriptions {
    /// Returns the topics of a kind.
    pub fn of(&self, kind: Kind) -> &BTreeSet<Bytes> {
        &self.names[kind as usize]
    }

    /// Returns whether the client has a subscription.
    pub fn is_any(&self) -> bool {
        self.bytes > 0
    }

    /// Returns the number of subscriptions that the reply to a change of this kind reports.
    pub fn count(&self, kind: Kind) -> usize {
        let len = |kind| self.of(kind).len();
        if kind == Kind::Shard { len(kind) } else { len(Kind::Channel) + len(Kind::Pattern) }
    }

    /// Returns the memory of the subscriptions, in bytes.
    pub fn memory(&self) -> usize {
        self.bytes
    }

    /// Returns the memory with further subscriptions, in bytes.
    pub fn memory_with<'a>(&self, more: impl IntoIterator<Item = &'a Bytes>) -> usize {
        self.bytes + more.into_iter().map(|name| size(name)).sum::<usize>()
    }
}

fn size(name: &[u8]) -> usize {
    name.len() + SUBSCRIPTION
}

/// The subscribers of all topics.
#[derive(Debug, Default)]
pub struct Topics {
    subscribers: [HashMap<Bytes, BTreeSet<ClientId>>; 3],
    /// Bytes of all patterns.
    pattern_bytes: usize,
}

impl Topics {
    /// Returns the number of topics of a kind that have subscribers.
    pub fn len(&self, kind: Kind) -> usize {
        self.subscribers[kind as usize].len()
    }

    /// Returns the topics of a kind that have subscribers, and match a pattern.
    ///
    /// # Errors
    /// The comparison with the pattern takes too long.
    pub fn names(&self, kind: Kind, pattern: Option<&Bytes>) -> Result<Vec<Bytes>, String> {
        let (mut steps, mut found) = (MAX_STEPS, Vec::new());
        for name in self.subscribers[kind as usize].keys() {
            let is_match = pattern.map_or(Some(true), |pattern| matches_within(pattern, name, &mut steps));
            if is_match.ok_or("the comparison of the pattern with all channels takes too long")? {
                found.push(name.clone());
            }
        }
        Ok(found)
    }

    /// Returns the number of subscribers of a topic.
    pub fn subscriber_count(&self, kind: Kind, name: &[u8]) -> usize {
        self.subscribers[kind as usize].get(name).map_or(0, BTreeSet::len)
    }

    /// Subscribes a client to a topic; returns whether the subscription is new.
    ///
    /// # Errors
    /// The client has too many channels, or it or all clients together have too many patterns.
    pub fn subscribe(
        &mut self,
        id: ClientId,
        own: &mut Subscriptions,
        kind: Kind,
        name: &Bytes,
    ) -> Result<bool, String> {
        if own.of(kind).contains(name) {
            return Ok(false);
        }
        self.check(own, kind, std::slice::from_ref(name))?;
        let all = &mut self.subscribers[kind as usize];
        // Copied, so that the rest of the packet does not stay in memory with the name.
        let known = all.get_key_value(name).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| Bytes::copy_from_slice(name));
        own.bytes += size(&name);
        if kind == Kind::Pattern {
            own.pattern_bytes += name.len();
            self.pattern_bytes += if all.contains_key(&name) { 0 } else { name.len() };
        }
        own.names[kind as usize].insert(name.clone());
        all.entry(name).or_default().insert(id);
        Ok(true)
    }

    /// Refuses subscriptions to names, if the client or all clients together had too many.
    ///
    /// # Errors
    /// As for [`subscribe`](Self::subscribe).
    pub fn check(&self, own: &Subscriptions, kind: Kind, names: &[Bytes]) -> Result<(), String> {
        let new: BTreeSet<&Bytes> = names.iter().filter(|name| !own.of(kind).contains(*name)).collect();
        if kind != Kind::Pattern {
            let count = own.of(Kind::Channel).len() + own.of(Kind::Shard).len() + new.len();
            let is_within = count <= MAX_OWN_CHANNELS || new.is_empty();
            return is_within
                .then_some(())
                .ok_or_else(|| format!("a client subscribes to at most {MAX_OWN_CHANNELS} channels"));
        }
        let bytes = |names: &BTreeSet<&Bytes>| names.iter().map(|name| name.len()).sum::<usize>();
        let all = &self.subscribers[Kind::Pattern as usize];
        let new_to_all: BTreeSet<&Bytes> =
            new.iter().copied().filter(|name| !all.contains_key(*name)).collect();
        let why = if own.of(Kind::Pattern).len() + new.len() > MAX_OWN_PATTERNS {
            format!("a client subscribes to at most {MAX_OWN_PATTERNS} patterns")
        } else if own.pattern_bytes + bytes(&new) > MAX_OWN_PATTERN_BYTES {
            format!("the patterns of a client have at most {MAX_OWN_PATTERN_BYTES} bytes")
        } else if all.len() + new_to_all.len() > MAX_PATTERNS {
            format!("all clients together subscribe to at most {MAX_PATTERNS} patterns")
        } else if self.pattern_bytes + bytes(&new_to_all) > MAX_PATTERN_BYTES {
            format!("the patterns of all clients have at most {MAX_PATTERN_BYTES} bytes")
        } else {
            return Ok(());
        };
        if new.is_empty() { Ok(()) } else { Err(why) }
    }

    /// Ends a subscription; returns whether there was one.
    pub fn unsubscribe(&mut self, id: ClientId, own: &mut Subscriptions, kind: Kind, name: &[u8]) -> bool {
        if !own.names[kind as usize].remove(name) {
            return false;
        }
        own.bytes -= size(name);
        let all = &mut self.subscribers[kind as usize];
        if let Some(ids) = all.get_mut(name) {
            ids.remove(&id);
            if ids.is_empty() {
                all.remove(name);
                self.pattern_bytes -= if kind == Kind::Pattern { name.len() } else { 0 };
            }
        }
        own.pattern_bytes -= if kind == Kind::Pattern { name.len() } else { 0 };
        true
    }

    /// Ends all subscriptions of a client.
    pub fn leave(&mut self, id: ClientId, own: &mut Subscriptions) {
        for kind in Kind::ALL {
            while let Some(name) = own.of(kind).first().cloned() {
                self.unsubscribe(id, own, kind, &name);
            }
        }
    }

    /// Returns the posts of a message, without the time at which they may leave: one for the
    /// channel, and one for each pattern. Takes the steps of comparisons from `steps`.
    ///
    /// # Errors
    /// The comparison with the patterns takes too long.
    pub fn posts(
        &self,
        kind: Kind,
        channel: &Bytes,
        message: &Bytes,
        steps: &mut usize,
    ) -> Result<Vec<Post>, String> {
        let mut posts = Vec::new();
        let mut post = |ids: &BTreeSet<ClientId>, body| posts.push(Post::new(ids.iter().copied(), body));
        if let Some(ids) = self.subscribers[kind as usize].get(channel) {
            let (is_shard, channel, message) = (kind == Kind::Shard, channel.clone(), message.clone());
            post(ids, Body::Message { is_shard, channel, message });
        }
        if kind == Kind::Channel {
            for (pattern, ids) in &self.subscribers[Kind::Pattern as usize] {
                let is_match = matches_within(pattern, channel, steps);
                let is_match = is_match.ok_or(
                    "the comparison of the channel with the patterns of all subscribers takes too long",
                )?;
                if is_match {
                    let (pattern, channel, message) = (pattern.clone(), channel.clone(), message.clone());
                    post(ids, Body::PatternMessage { pattern, channel, message });
                }
            }
        }
        Ok(posts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_to_its_channel_and_to_each_pattern_that_matches() {
        let (mut topics, mut ada, mut bob) =
            (Topics::default(), Subscriptions::default(), Subscriptions::default());
        let name = |text: &'static str| Bytes::from(text);
        assert_eq!(topics.subscribe(1, &mut ada, Kind::Channel, &name("news")), Ok(true));
        assert_eq!(topics.subscribe(1, &mut ada, Kind::Channel, &name("news")), Ok(false));
        for pattern in ["n*", "*s", "x*"] {
            topics.subscribe(1, &mut ada, Kind::Pattern, &name(pattern)).unwrap();
        }
        topics.subscribe(2, &mut bob, Kind::Channel, &name("news")).unwrap();
        topics.subscribe(2, &mut bob, Kind::Shard, &name("news")).unwrap();
        assert_eq!((ada.count(Kind::Channel), ada.count(Kind::Shard), bob.count(Kind::Shard)), (4, 0, 1));
        let receivers = |topics: &Topics, kind| -> Vec<usize> {
            let posts = topics.posts(kind, &name("news"), &name("hi"), &mut { MAX_STEPS }).unwrap();
            let mut counts: Vec<usize> = posts.iter().map(|post| post.to.len()).collect();
            counts.sort_unstable();
            counts
        };
        assert_eq!(receivers(&topics, Kind::Channel), [1, 1, 2]);
        assert_eq!(receivers(&topics, Kind::Shard), [1]);
        topics.leave(1, &mut ada);
        assert!(!ada.is_any() && topics.len(Kind::Pattern) == 0);
        assert_eq!(receivers(&topics, Kind::Channel), [1]);
        topics.leave(2, &mut bob);
        assert_eq!((topics.len(Kind::Channel), topics.len(Kind::Shard), bob.memory()), (0, 0, 0));
    }

    #[test]
    fn patterns_are_few_and_their_comparison_ends() {
        let (mut topics, mut ada) = (Topics::default(), Subscriptions::default());
        for n in 0..MAX_OWN_PATTERNS {
            topics.subscribe(1, &mut ada, Kind::Pattern, &format!("{n}").into()).unwrap();
        }
        assert!(topics.subscribe(1, &mut ada, Kind::Pattern, &"more".into()).is_err());
        topics.leave(1, &mut ada);
        for n in 0..100 {
            let slow = format!("*{}{n:03}", "a".repeat(1000));
            topics.subscribe(1, &mut ada, Kind::Pattern, &slow.into()).unwrap();
        }
        let channel = Bytes::from("a".repeat(4000));
        let mut steps = MAX_STEPS;
        assert!(topics.posts(Kind::Channel, &channel, &"x".into(), &mut steps).is_err());
        assert!(topics.posts(Kind::Channel, &"abc".into(), &"x".into(), &mut { MAX_STEPS }).is_ok());
        for n in 0..MAX_OWN_PATTERN_BYTES {
            let long = format!("{n:04000}");
            if topics.subscribe(1, &mut ada, Kind::Pattern, &long.into()).is_err() {
                break;
            }
        }
        assert!((124 << 10..=128 << 10).contains(&ada.pattern_bytes), "{}", ada.pattern_bytes);
        assert_eq!(topics.pattern_bytes, ada.pattern_bytes);
        for n in 0..100 {
            let name = format!("{}{n:03}", "a".repeat(4000));
            topics.subscribe(1, &mut ada, Kind::Channel, &name.into()).unwrap();
        }
        let slow = format!("*{}b", "a".repeat(1000)).into();
        assert!(topics.names(Kind::Channel, Some(&slow)).is_err());
        let found = |pattern: &str| topics.names(Kind::Channel, Some(&pattern.to_owned().into())).unwrap();
        assert_eq!((found("*007").len(), found("b*").len()), (1, 0));
        assert_eq!(topics.names(Kind::Channel, None).unwrap().len(), 100);
    }
}
