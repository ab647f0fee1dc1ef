//! A client: its identity, its requests, and its pending replies.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::{Bytes, BytesMut};

use super::acl::User;
use super::fail::Wait;
use super::proto::Args;
use super::reply::Reply;

/// The number of a client, which no other ever has.
pub type ClientId = u64;

/// A client that is connected.
#[derive(Debug)]
pub struct Client {
    /// Its number.
    pub id: ClientId,
    /// Where it calls from, and where it called.
    pub address: String,
    /// The address that it called.
    pub local: String,
    /// What it calls itself.
    pub name: Bytes,
    /// The library that it uses, and of which version.
    pub library: (Bytes, Bytes),
    /// When it came, and when it asked for something last, in milliseconds since the Unix epoch.
    pub since: u64,
    /// When it asked for something last.
    pub last_seen: u64,
    /// The command that it gave last.
    pub last_command: &'static str,
    /// The database that it has selected.
    pub database: Bytes,
    /// Who it has said it is; `None`: nobody yet, where it must.
    pub user: Option<Arc<User>>,
    /// Commands that are gathered for a transaction.
    pub queue: Option<Queue>,
    /// Keys that it watches, by their plain logs.
    pub watched: Vec<Bytes>,
    /// Whether one of them was changed.
    pub is_stale: bool,
    /// What it waits for.
    pub wait: Option<Wait>,
    /// The epoch of its last write.
    pub wrote: u64,
    /// Which replies it wants.
    pub replies: Replies,
    /// Whether it is to be let go of once its replies have left.
    pub is_leaving: bool,
    /// Whether it is to be let go of at once.
    pub is_killed: bool,
    /// Whether it stays when memory is short and when idle ones are let go of.
    pub no_evict: bool,
    /// Where its replies are written.
    pub reply: Reply,
    /// Which epochs replies wait for: up to these bytes of all that were ever written.
    marks: VecDeque<(u64, u64)>,
    /// Bytes of replies that have left.
    left: u64,
    noted: u64,
    /// Bytes that have come and make no whole request yet.
    pub unread: usize,
    /// Bytes of replies that were on their way to the socket when it was looked at last.
    pub outgoing: usize,
    /// Since when more replies are waiting than a client may have for long, in milliseconds since
    /// the Unix epoch.
    pub slow_since: Option<u64>,
    /// Who is woken when there is something for it.
    pub waker: Option<Waker>,
}

/// Commands that are gathered for a transaction.
#[derive(Debug, Default)]
pub struct Queue {
    /// Them.
    pub requests: Vec<Args>,
    /// Whether one of them was refused, so that none will be done.
    pub is_broken: bool,
    /// Bytes of them.
    pub bytes: usize,
}

/// Which replies a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// All.
    On,
    /// None.
    Off,
    /// All but the one to the command after this.
    SkipNext,
    /// All but the one to this command.
    Skip,
}

impl Client {
    /// A client that has just come.
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
            queue: None,
            watched: Vec::new(),
            is_stale: false,
            wait: None,
            wrote: 0,
            replies: Replies::On,
            is_leaving: false,
            is_killed: false,
            no_evict: false,
            reply: Reply::new(),
            marks: VecDeque::new(),
            left: 0,
            noted: 0,
            unread: 0,
            outgoing: 0,
            slow_since: None,
            waker: None,
        }
    }

    /// Takes note of the epoch that the reply at hand waits for.
    pub fn note_epoch(&mut self, epoch: u64) {
        self.noted = self.noted.max(epoch);
    }

    /// The epoch that the reply at hand waits for.
    pub fn take_epoch(&mut self) -> u64 {
        std::mem::take(&mut self.noted)
    }

    /// Takes back what was written since there were so many bytes.
    pub fn cut(&mut self, to: usize) {
        self.reply.bytes.truncate(to);
    }

    /// Bytes of replies so far.
    pub fn written(&self) -> usize {
        self.reply.bytes.len()
    }

    /// Has what was written since the last call wait for an epoch; whether that is one more to wait
    /// for.
    pub fn mark(&mut self, epoch: u64) -> bool {
        let end = self.left + self.reply.bytes.len() as u64;
        match self.marks.back_mut() {
            // Replies leave in order, so one that need not wait waits for those in front.
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

    /// Takes the replies that may leave, where all up to an epoch is acknowledged.
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
        self.left = end;
        ready
    }

    /// Whether no reply is on its way.
    pub fn is_done(&self) -> bool {
        self.reply.bytes.is_empty()
    }

    /// Has whoever drives it look again.
    pub fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.reply.bytes.capacity()
            + self.unread
            + self.queue.as_ref().map_or(0, |queue| queue.bytes)
            + self.watched.iter().map(|key| key.len() + 32).sum::<usize>()
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
