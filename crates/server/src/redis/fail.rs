//! The errors of commands, and their replies.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use brooklet::{Error, ErrorKind};
use bytes::Bytes;

use super::acl::User;
use super::commands::{Call, Places};

/// The outcome of a command without a reply of its own.
#[derive(Debug)]
pub enum Fail {
    /// The command is wrong, or does not match the key: the error message, with its kind first. The
    /// command had no effect; a script had the effects of its commands before the error.
    Reply(Cow<'static, str>),
    /// The store failed. The command had no effect.
    Store(Error),
    /// A limit stopped the command: the error message, with its kind first. The command, and the
    /// transaction that it belongs to, had no effect.
    Undone(Cow<'static, str>),
    /// The reply is over the limit of pending replies. The command had no effect.
    TooLarge,
    /// No data is available yet: the client waits.
    Wait(Wait),
    /// The command has run in part, and goes on once other clients have had a turn.
    Long(Portion),
}

type Rest = dyn FnMut(&mut Call<'_>) -> Result<bool, Fail> + Send;

/// The rest of a long command. Each call runs a portion of it, and returns whether that was the
/// last.
pub struct Portion(pub Box<Rest>);

impl fmt::Debug for Portion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Portion")
    }
}

/// The wait of a client.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Plain logs of the keys that the client waits for, each with the place of the word that names
    /// it; in the order of their bytes once the client waits.
    pub keys: Vec<(Bytes, usize)>,
    /// End of the wait, by the steady clock; `None`: no end.
    pub until: Option<u64>,
    /// Request that is retried when one of the keys changes.
    pub request: Vec<Bytes>,
    /// Reply at the end of the time.
    pub timeout_reply: TimeoutReply,
    /// Whether the client waits as a member of a group, which may be deleted.
    pub of_group: bool,
    /// Memory of the wait, in bytes; the engine sets it.
    pub bytes: usize,
    /// Number of the wait in the order of all waits; the engine sets it.
    pub turn: u64,
    /// The user whose rights were checked before the wait; the engine sets it.
    pub user: Option<Arc<User>>,
}

impl Wait {
    /// Creates a wait for keys; the client retries the request then.
    pub fn of(keys: Vec<(Bytes, usize)>, request: Vec<Bytes>, timeout_reply: TimeoutReply) -> Self {
        let (until, of_group, bytes, turn, user) = (None, false, 0, 0, None);
        Self { keys, until, request, timeout_reply, of_group, bytes, turn, user }
    }

    /// Returns the keys, each once, in the order of their bytes.
    pub fn each_key(&self) -> impl Iterator<Item = &Bytes> {
        self.keys.chunk_by(|a, b| a.0 == b.0).map(|same| &same[0].0)
    }

    /// Returns the places of the words that name a key.
    pub fn places(&self, key: &Bytes) -> Places {
        let start = self.keys.partition_point(|(other, _)| other < key);
        self.keys[start..].iter().take_while(|(other, _)| other == key).map(|(_, at)| *at).collect()
    }
}

/// The reply to a client whose wait timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutReply {
    /// A null array.
    NullArray,
    /// The number of copies elsewhere that have the client's writes.
    Copies {
        /// The epoch of the client's last write.
        wrote: u64,
        /// The number of copies that end the wait.
        wanted: u64,
    },
    /// Whether this server has the client's writes on stable media, and the number of copies
    /// elsewhere that have them.
    Media {
        /// The epoch of the client's last write.
        wrote: u64,
        /// Whether the wait needs this server's media.
        here: bool,
        /// The number of copies that the wait needs.
        elsewhere: u64,
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

    /// Returns the error of a word that is not a number.
    pub fn not_an_integer() -> Self {
        Self::Reply("ERR value is not an integer or out of range".into())
    }

    /// Returns the error of a key with a value of another type.
    pub fn wrong_type() -> Self {
        Self::Reply("WRONGTYPE Operation against a key holding the wrong kind of value".into())
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Returns the message of a reply that is over a limit of bytes.
pub fn too_large(limit: usize) -> String {
    format!("ERR the reply is over {limit} bytes (client-output-buffer-limit): ask for less at once")
}

/// Returns the message of an error of the store, with the matching kind of Redis, if one exists.
pub fn told(error: &Error) -> String {
    let kind = match error.kind() {
        // Redis uses this error when its memory is full: it accepts nothing until something is
        // deleted.
        ErrorKind::Full => "OOM command not allowed: ",
        ErrorKind::Stopped => "MISCONF ",
        ErrorKind::Damaged => "ERR the store is damaged: ",
        _ => "ERR ",
    };
    format!("{kind}{error}")
}

/// Returns the error of an unknown command or subcommand.
pub fn unknown(name: &[u8], args: &[Bytes]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned();
    if let (Some(spec), Some(sub)) = (super::commands::find(name).filter(|spec| !spec.is_sub()), args.first())
    {
        let command = spec.name.to_ascii_uppercase();
        return format!("ERR unknown subcommand '{}'. Try {command} HELP.", text(sub));
    }
    let mut shown = String::new();
    for arg in args {
        if shown.len() >= 128 {
            break;
        }
        shown += &format!("'{}' ", text(arg));
    }
    format!("ERR unknown command '{}', with args beginning with: {shown}", text(name))
}
