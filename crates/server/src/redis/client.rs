//! A client: its identity, its requests, and its pending replies.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use brooklet::{Commit, Error};
use bytes::{Bytes, BytesMut};

use super::acl::User;
use super::commands::Spec;
use super::engine::Before;
use super::fail::{Fail, Portion, Wait};
use super::proto::Args;
use super::pubsub::Subscriptions;
use super::reply::{Reply, Version};

/// The number of a client; never reused.
pub type ClientId = u64;

/// A connected client.
#[derive(Debug)]
pub struct Client {
    /// Number of the client.
    pub id: ClientId,
    /// Address of the client.
    pub address: String,
    /// The address that it called.
    pub local: String,
    /// Name that the client gave itself.
    pub name: Bytes,
    /// Name and version of the client's library.
    pub library: (Bytes, Bytes),
    /// Time of the connection, by the steady clock, in milliseconds.
    pub since: u64,
    /// Time of the last request, by the steady clock, in milliseconds.
    pub last_seen: u64,
    /// Last command of the client.
    pub last_command: &'static str,
    /// Database that the client has selected.
    pub database: Bytes,
    /// User of the client; `None` before a required login.
    pub user: Option<Arc<User>>,
    /// Time since which the client has not been logged in, by the steady clock, in milliseconds.
    pub stranger_since: u64,
    /// Memory that the budget of all clients counts for this client, in bytes.
    pub charged: usize,
    /// Commands that are queued for a transaction.
    pub queue: Option<Queue>,
    /// What the transaction that runs has changed besides keys, as it was before.
    pub before: Option<Box<Before>>,
    /// Keys that the client watches, by their plain logs, with the time at which each expires.
    pub watched: BTreeMap<Bytes, Option<u64>>,
    /// Memory of these keys, in bytes.
    pub watched_bytes: usize,
    /// Whether a watched key has changed.
    pub is_stale: bool,
    /// Event that the client waits for.
    pub wait: Option<Wait>,
    /// Command of the client that runs in portions.
    pub work: Option<Box<Work>>,
    /// Memory that this command holds between two portions, in bytes.
    pub work_bytes: usize,
    /// Pushes that came while this command ran, and the epoch that they wait for. They follow its
    /// reply, which may be older than they are.
    pub late: (BytesMut, u64),
    /// Number of posts of all clients that were looked at for messages to this client.
    pub posts_seen: u64,
    /// Whether messages of the client are not delivered yet.
    pub has_posted: bool,
    /// Whether a pause holds back the client's requests.
    pub is_held_back: bool,
    /// Whether the client's requests wait until the store has a long commit.
    pub is_behind: bool,
    /// Whether the client's command waits until the store has prepared a long commit: its own, or
    /// one before it.
    pub prepares: bool,
    /// The client's long commit, which the store has prepared.
    pub prepared: Option<Result<Commit, Error>>,
    /// The end of the client's long commit.
    pub handed: Option<Result<(), Error>>,
    /// Epoch of the client's last write.
    pub wrote: u64,
    /// Last epoch that the client's requests depended on. Its messages wait for this epoch, too.
    pub depends_on: u64,
    /// Channels and patterns that the client subscribes to.
    pub subscriptions: Subscriptions,
    /// Whether the client tracks keys.
    pub is_tracking: bool,
    /// Memory of the prefixes that the client tracks, in bytes.
    pub prefix_bytes: usize,
    /// Replies that the client wants.
    pub replies: Replies,
    /// Whether to disconnect the client once its replies have been sent.
    pub is_leaving: bool,
    /// Whether to disconnect the client immediately.
    pub is_killed: bool,
    /// Whether the client is exempt from disconnection when memory is short, or when it is idle.
    pub no_evict: bool,
    /// Whether the client's transaction runs now.
    pub is_in_exec: bool,
    /// Whether a script of the client runs now.
    pub is_in_script: bool,
    /// Whether pending replies depend on the data of a store that another host may take over.
    pub needs_lease: bool,
    /// Replies that are not sent yet.
    pub reply: Reply,
    /// Epochs that replies wait for, each with the end of these replies, counted in bytes since the
    /// connection.
    marks: VecDeque<(u64, u64)>,
    /// Number of bytes of replies sent.
    left: u64,
    noted: u64,
    /// Memory of the requests that are not run yet, whole or not, in bytes.
    pub unread: usize,
    /// Number of bytes of replies in the socket's output at the last check.
    pub outgoing: usize,
    /// Memory of the connection's buffers beyond their bytes, at the last check.
    pub spare: usize,
    /// Time since which more replies wait than a client may have for long, and the client has not
    /// taken those that it was sent, by the steady clock, in milliseconds.
    pub slow_since: Option<u64>,
    /// Waker of the client's connection.
    pub waker: Option<Waker>,
}

/// The commands that are queued for a transaction.
#[derive(Debug, Default)]
pub struct Queue {
    /// Queued requests.
    pub requests: Vec<Args>,
    /// Whether a command was refused; EXEC then runs none.
    pub is_broken: bool,
    /// Size of the requests, in bytes.
    pub bytes: usize,
}

/// A command that runs in portions. Other clients have their turns between two portions.
pub struct Work {
    /// Command of the request.
    pub spec: &'static Spec,
    /// The request.
    pub request: Vec<Bytes>,
    /// Rest of the command.
    pub rest: Portion,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.spec.name).finish()
    }
}

/// The replies that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// All replies.
    On,
    /// No replies.
    Off,
    /// All replies except the reply to the next command.
    SkipNext,
    /// All replies except the reply to this command.
    Skip,
}

/// Size of a buffer, in bytes, that a client does not keep once it is empty.
const LARGE: usize = 64 << 10;
/// Number of epochs that a client has room for, whatever it does.
const MARKS: usize = 64;

impl Client {
    /// Creates a newly connected client.
    pub fn new(id: ClientId, address: String, local: String, user: Option<Arc<User>>, now: u64) -> Self {
        Self {
            id,
            address,
            local,
            name: Bytes::new(),
            library: Default::default(),
            since: now,
            last_seen: now,
            last_command: "NULL",
            database: Bytes::from_static(b"0"),
            user,
            stranger_since: now,
            charged: 0,
            queue: None,
            before: None,
            watched: BTreeMap::new(),
            watched_bytes: 0,
            is_stale: false,
            wait: None,
            work: None,
            work_bytes: 0,
            late: (BytesMut::new(), 0),
            posts_seen: 0,
            has_posted: false,
            is_held_back: false,
            is_behind: false,
            prepares: false,
            prepared: None,
            handed: None,
            wrote: 0,
            depends_on: 0,
            subscriptions: Subscriptions::default(),
            is_tracking: false,
            prefix_bytes: 0,
            replies: Replies::On,
            is_leaving: false,
            is_killed: false,
            no_evict: false,
            is_in_exec: false,
            is_in_script: false,
            needs_lease: false,
            reply: Reply::new(),
            marks: VecDeque::new(),
            left: 0,
            noted: 0,
            unread: 0,
            outgoing: 0,
            spare: 0,
            slow_since: None,
            waker: None,
        }
    }

    /// Returns whether more of the current reply fits. If not, a command stops; but a transaction
    /// is completed, without replies.
    pub fn has_room(&self) -> Result<bool, Fail> {
        match (self.reply.is_full(), self.is_in_exec) {
            (false, _) => Ok(true),
            (true, true) => Ok(false),
            (true, false) => Err(Fail::TooLarge),
        }
    }

    /// Returns whether the client may only change its subscriptions: RESP2 cannot distinguish
    /// messages from replies.
    pub fn is_subscriber_only(&self) -> bool {
        self.subscriptions.is_any() && self.reply.version == Version::Two
    }

    /// Notes the epoch that the current reply waits for.
    pub fn note_epoch(&mut self, epoch: u64) {
        self.noted = self.noted.max(epoch);
    }

    /// Takes the epoch that the current reply waits for.
    pub fn take_epoch(&mut self) -> u64 {
        std::mem::take(&mut self.noted)
    }

    /// Removes the output behind the first `to` bytes.
    pub fn cut(&mut self, to: usize) {
        let is_large = self.reply.bytes.len() > LARGE;
        self.reply.bytes.truncate(to);
        if is_large {
            self.reply.bytes = BytesMut::from(&self.reply.bytes[..]);
        }
    }

    /// Returns the number of unsent bytes of replies.
    pub fn written(&self) -> usize {
        self.reply.bytes.len()
    }

    /// Makes the output since the last call wait for an epoch; returns whether this adds a wait.
    pub fn mark(&mut self, epoch: u64) -> bool {
        let end = self.left + self.reply.bytes.len() as u64;
        match self.marks.back_mut() {
            // Replies leave in order, so a reply that need not wait still waits for the replies
            // before it.
            Some((last, to)) if *last >= epoch => {
                *to = end;
                false
            }
            _ => {
                self.marks.push_back((epoch, end));
                epoch > 0
            }
        }
    }

    /// Takes the replies that may be sent if all epochs up to `acknowledged` are acknowledged.
    pub fn take_ready(&mut self, acknowledged: u64) -> BytesMut {
        let mut end = self.left;
        while let Some((epoch, to)) = self.marks.front().copied() {
            if epoch > acknowledged {
                break;
            }
            end = to;
            self.marks.pop_front();
        }
        let ready = self.reply.bytes.split_to((end - self.left) as usize);
        if self.reply.bytes.is_empty() && ready.len() > LARGE {
            // Otherwise the memory of a large reply would stay with an idle client.
            self.reply.bytes = BytesMut::new();
        }
        if self.marks.capacity() > MARKS.max(4 * self.marks.len()) {
            self.marks.shrink_to(2 * self.marks.len());
        }
        self.left = end;
        ready
    }

    /// Returns whether the client's requests wait for another client, or for the end of a pause.
    pub fn waits(&self) -> bool {
        self.wait.is_some() || self.is_held_back
    }

    /// Returns whether no reply is pending.
    pub fn is_done(&self) -> bool {
        self.reply.bytes.is_empty()
    }

    /// Wakes the client's connection.
    pub fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Returns the memory of the epochs that replies wait for, in bytes, if they are many.
    fn marks_bytes(&self) -> usize {
        let kept = self.marks.capacity();
        if kept > MARKS { kept * size_of::<(u64, u64)>() } else { 0 }
    }

    /// Returns the memory of the client, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.reply.bytes.len()
            + self.marks_bytes()
            + self.outgoing
            + self.spare
            + self.unread
            + self.queue.as_ref().map_or(0, |queue| queue.bytes)
            + self.watched_bytes
            + self.subscriptions.memory()
            + self.prefix_bytes
            + self.wait.as_ref().map_or(0, |wait| wait.bytes)
            + self.work_bytes
            + self.late.0.len()
            + self.name.len()
            + self.library.0.len()
            + self.library.1.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_leave_in_order_and_not_before_what_they_tell_of() {
        let mut client = Client::new(1, String::new(), String::new(), None, 0);
        client.reply.int(1);
        assert!(!client.mark(0));
        client.reply.int(2);
        assert!(client.mark(5));
        client.reply.int(3);
        assert!(!client.mark(0), "it waits for the one in front");
        client.reply.int(4);
        assert!(client.mark(6));
        assert_eq!(&client.take_ready(4)[..], b":1\r\n");
        assert_eq!(&client.take_ready(4)[..], b"");
        assert_eq!(&client.take_ready(5)[..], b":2\r\n:3\r\n");
        client.reply.int(5);
        assert!(!client.mark(0));
        assert!(!client.is_done());
        assert_eq!(&client.take_ready(9)[..], b":4\r\n:5\r\n");
        assert!(client.is_done());
    }
}
