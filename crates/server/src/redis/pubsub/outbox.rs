//! The outbox: messages and invalidations, which clients get without a request.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::redis::client::ClientId;
use crate::redis::reply::{Reply, Version};

/// Content of a post.
#[derive(Clone, Debug)]
pub enum Body {
    /// A message of a channel.
    Message {
        /// Whether the channel is one of `SPUBLISH`.
        is_shard: bool,
        /// The channel.
        channel: Bytes,
        /// The message.
        message: Bytes,
    },
    /// A message of a channel whose name matches a pattern.
    PatternMessage {
        /// The pattern.
        pattern: Bytes,
        /// The channel.
        channel: Bytes,
        /// The message.
        message: Bytes,
    },
    /// Keys that have changed; `None`: all keys.
    Invalid(Option<Vec<Bytes>>),
    /// The client that gets the invalidations of the receiver has gone.
    BrokenRedirect(ClientId),
}

/// The channel of the invalidations for a client of RESP2.
const INVALIDATIONS: &str = "__redis__:invalidate";

impl Body {
    /// Writes the body. A push in RESP3 is an array in RESP2.
    pub fn write(&self, reply: &mut Reply) {
        match self {
            Self::Message { is_shard, channel, message } => {
                reply.push(3);
                reply.bulk(if *is_shard { "smessage" } else { "message" });
                reply.bulk(channel);
                reply.bulk(message);
            }
            Self::PatternMessage { pattern, channel, message } => {
                reply.push(4);
                reply.bulk("pmessage");
                reply.bulk(pattern);
                reply.bulk(channel);
                reply.bulk(message);
            }
            Self::Invalid(keys) => {
                if reply.version == Version::Three {
                    reply.push(2);
                    reply.bulk("invalidate");
                } else {
                    reply.push(3);
                    reply.bulk("message");
                    reply.bulk(INVALIDATIONS);
                }
                match keys {
                    Some(keys) => reply.bulks(keys),
                    None => reply.null(),
                }
            }
            Self::BrokenRedirect(id) => {
                reply.push(2);
                reply.bulk("tracking-redir-broken");
                reply.int(*id as i64);
            }
        }
    }

    /// Returns the body's bytes.
    pub fn encode(&self, version: Version) -> Bytes {
        let mut reply = Reply::new();
        reply.version = version;
        self.write(&mut reply);
        reply.bytes.freeze()
    }

    fn size(&self) -> usize {
        match self {
            Self::Message { channel, message, .. } => channel.len() + message.len(),
            Self::PatternMessage { pattern, channel, message } => {
                pattern.len() + channel.len() + message.len()
            }
            Self::Invalid(Some(keys)) => keys.iter().map(|key| key.len() + 8).sum(),
            Self::Invalid(None) | Self::BrokenRedirect(_) => 0,
        }
    }
}

/// A body, and its receivers.
#[derive(Debug)]
pub struct Post {
    /// The receivers.
    pub to: SmallVec<[ClientId; 1]>,
    /// The epoch that must be acknowledged before; `None` until it is known.
    pub epoch: Option<u64>,
    /// The content.
    pub body: Body,
}

/// Bytes of a delivery besides its content: marks, wake-ups.
const DELIVERY: usize = 64;

impl Post {
    /// Creates a post.
    pub fn new(to: impl IntoIterator<Item = ClientId>, body: Body) -> Self {
        Self { to: to.into_iter().collect(), epoch: None, body }
    }

    fn is_message(&self) -> bool {
        matches!(self.body, Body::Message { .. } | Body::PatternMessage { .. })
    }

    /// Returns the bytes that the delivery to all receivers writes, about.
    pub fn cost(&self) -> usize {
        self.to.len() * (self.body.size() + DELIVERY)
    }
}

/// The posts that are not delivered yet. They leave from the end of the request that made them on,
/// one after another.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Posts of the current request.
    posts: Vec<Post>,
    /// Cost of these posts.
    cost: usize,
    /// Posts of earlier requests. Those to whom they are delivered are no longer receivers.
    backlog: VecDeque<Post>,
    /// Bytes of the contents of these.
    held: usize,
    /// Number of posts that have left the backlog.
    left: u64,
}

impl Outbox {
    /// Returns whether the current request has no post.
    pub fn is_empty(&self) -> bool {
        self.posts.is_empty()
    }

    /// Returns whether the current request has messages.
    pub fn has_messages(&self) -> bool {
        self.posts.iter().any(Post::is_message)
    }

    /// Returns whether posts of earlier requests are not delivered yet.
    pub fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Returns the cost of the posts of the current request, in bytes.
    pub fn cost(&self) -> usize {
        self.cost
    }

    /// Returns the bytes of the contents of the posts of earlier requests.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Adds a post.
    pub fn push(&mut self, post: Post) {
        self.cost += post.cost();
        self.posts.push(post);
    }

    /// Makes the posts of the current request wait for an epoch.
    pub fn stamp(&mut self, epoch: u64) {
        for post in &mut self.posts {
            post.epoch.get_or_insert(epoch);
        }
    }

    /// Removes the posts of the current request, which was undone.
    pub fn undo(&mut self) {
        self.posts.retain(|post| post.epoch.is_some());
        self.cost = self.posts.iter().map(Post::cost).sum();
    }

    /// Takes the receivers off all posts that wait for a later epoch: it never comes.
    pub fn drop_after(&mut self, epoch: u64) {
        let is_late = |post: &&mut Post| post.epoch.is_some_and(|at| at > epoch);
        // Their places in the order stay.
        self.posts.iter_mut().chain(&mut self.backlog).filter(is_late).for_each(|post| post.to.clear());
    }

    /// Ends the request: its messages join the backlog. Returns its invalidations, which nothing
    /// holds up.
    pub fn end_request(&mut self) -> Vec<Post> {
        self.cost = 0;
        let posts = std::mem::take(&mut self.posts);
        let (messages, others): (Vec<Post>, Vec<Post>) = posts.into_iter().partition(Post::is_message);
        self.held += messages.iter().map(|post| post.body.size()).sum::<usize>();
        self.backlog.extend(messages);
        others
    }

    /// Returns the size of the next delivery, in bytes.
    pub fn next_size(&self) -> usize {
        self.backlog.front().map_or(0, |post| post.body.size())
    }

    /// Takes the next deliveries: a post to up to `most` of its receivers.
    pub fn next(&mut self, most: usize) -> Option<Post> {
        let post = self.backlog.front_mut()?;
        if post.to.len() <= most {
            self.left += 1;
            self.held -= post.body.size();
            return self.backlog.pop_front();
        }
        let to = post.to.drain(post.to.len() - most..).collect();
        Some(Post { to, epoch: post.epoch, body: post.body.clone() })
    }

    /// Takes the deliveries to one client, in their order. `seen` is the number of posts that the
    /// last such call for the client has seen, at first 0: no call looks at a post again.
    pub fn next_to(&mut self, id: ClientId, seen: &mut u64) -> Vec<Post> {
        let mut taken = Vec::new();
        let start = seen.saturating_sub(self.left) as usize;
        *seen = self.left + self.backlog.len() as u64;
        for post in self.backlog.range_mut(start.min(self.backlog.len())..) {
            // Receivers are in the order of their numbers.
            if let Ok(at) = post.to.binary_search(&id) {
                post.to.remove(at);
                taken.push(Post { epoch: post.epoch, ..Post::new([id], post.body.clone()) });
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(to: &[ClientId], text: &str) -> Post {
        let (channel, message) = (Bytes::from_static(b"c"), Bytes::from(text.to_owned()));
        Post::new(to.iter().copied(), Body::Message { is_shard: false, channel, message })
    }

    fn texts(posts: &[Post]) -> Vec<Bytes> {
        let text = |post: &Post| match &post.body {
            Body::Message { message, .. } => message.clone(),
            _ => Bytes::new(),
        };
        posts.iter().map(text).collect()
    }

    /// A client that asks again and again while a message leaves to many costs little each time.
    #[test]
    fn no_post_is_looked_at_again_for_the_same_client() {
        let (mut outbox, mut seen) = (Outbox::default(), 0);
        ["a", "b"].iter().for_each(|text| outbox.push(post(&[1, 2, 3], text)));
        outbox.end_request();
        assert_eq!(texts(&outbox.next_to(2, &mut seen)), ["a", "b"]);
        assert_eq!(seen, 2);
        // It is looked for among later posts alone.
        outbox.backlog[0] = post(&[1, 2, 3], "x");
        assert!(outbox.next_to(2, &mut seen).is_empty());
        outbox.push(post(&[2, 3], "c"));
        outbox.end_request();
        assert!(outbox.next(9).is_some_and(|post| post.to.len() == 3));
        assert_eq!(texts(&outbox.next_to(2, &mut seen)), ["c"]);
        assert_eq!(seen, 3);
        let mut late = 0;
        assert_eq!(texts(&outbox.next_to(3, &mut late)), ["b", "c"]);
        while outbox.next(9).is_some() {}
        assert!(outbox.next_to(2, &mut seen).is_empty() && seen == 3 && outbox.held() == 0);
        outbox.push(post(&[2], "d"));
        outbox.end_request();
        assert_eq!(texts(&outbox.next_to(2, &mut seen)), ["d"]);
    }
}
