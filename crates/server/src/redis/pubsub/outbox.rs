//! What the server sends to clients that did not ask for it just then.

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

    /// Returns the bytes that the delivery to all receivers writes, about.
    pub fn cost(&self) -> usize {
        self.to.len() * (self.body.size() + DELIVERY)
    }
}

/// The posts that are not delivered yet. They leave at the end of the request that made them.
#[derive(Debug, Default)]
pub struct Outbox {
    posts: Vec<Post>,
    /// Cost of the posts.
    cost: usize,
}

impl Outbox {
    /// Returns whether there is no post.
    pub fn is_empty(&self) -> bool {
        self.posts.is_empty()
    }

    /// Returns the cost of all posts, in bytes.
    pub fn cost(&self) -> usize {
        self.cost
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

    /// Takes all posts.
    pub fn take(&mut self) -> Vec<Post> {
        self.cost = 0;
        std::mem::take(&mut self.posts)
    }
}
