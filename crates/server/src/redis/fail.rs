//! The errors of commands, and their replies.

use std::borrow::Cow;

use brooklet::{Error, ErrorKind};
use bytes::Bytes;

/// Why a command gives no reply of its own.
#[derive(Debug)]
pub enum Fail {
    /// It is wrong, or does not fit what there is: the error as it is told, its kind first. Nothing
    /// was done.
    Reply(Cow<'static, str>),
    /// The store failed at it. Nothing was done.
    Store(Error),
    /// There is nothing yet: the client waits.
    Wait(Wait),
}

/// What a client waits for.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The plain logs of the keys that it waits for, one after another.
    pub keys: Vec<Bytes>,
    /// Until when, by the steady clock; `None`: for ever.
    pub until: Option<u64>,
    /// What is asked again when one of them changes.
    pub request: Vec<Bytes>,
    /// What it is told when the time is up.
    pub timeout_reply: TimeoutReply,
    /// Whether it waits as a member of a group, which may go.
    pub of_group: bool,
}

/// What a client is told that waited in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutReply {
    /// Nothing, where an array could be.
    NullArray,
    /// Nothing, where bytes could be.
    Null,
    /// That there are no replicas.
    Replicas,
    /// Whether this server has the client's writes on stable media, and that no replica has.
    Media {
        /// The epoch of its last write.
        wrote: u64,
        /// Whether that becoming durable is all that is waited for.
        is_all: bool,
    },
}

impl Fail {
    /// `ERR …`.
    pub fn err(text: impl Into<Cow<'static, str>>) -> Self {
        match text.into() {
            Cow::Borrowed(text) => Self::Reply(format!("ERR {text}").into()),
            Cow::Owned(text) => Self::Reply(format!("ERR {text}").into()),
        }
    }

    /// The words of the command make no sense.
    pub fn syntax() -> Self {
        Self::Reply("ERR syntax error".into())
    }

    /// A word should be a number.
    pub fn not_an_integer() -> Self {
        Self::Reply("ERR value is not an integer or out of range".into())
    }

    /// The key holds something else.
    pub fn wrong_type() -> Self {
        Self::Reply("WRONGTYPE Operation against a key holding the wrong kind of value".into())
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// How an error of the store is told: what clients know by Redis's kinds has one of those.
pub fn told(error: &Error) -> String {
    let kind = match error.kind() {
        // Redis says this where its memory is full: nothing is taken until something is deleted.
        ErrorKind::Full => "OOM command not allowed: ",
        ErrorKind::Stopped => "MISCONF ",
        ErrorKind::Damaged => "ERR the store is damaged: ",
        _ => "ERR ",
    };
    format!("{kind}{error}")
}
