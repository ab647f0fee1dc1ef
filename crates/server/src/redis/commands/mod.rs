//! The commands: their arguments, their keys, and their functions.

mod acl;
mod blocking;
mod connection;
mod groups;
mod hashes;
mod keys;
mod lists;
mod scans;
mod server;
mod streams;
mod strings;
mod table;
mod transactions;
mod xinfo;
mod xread;

use std::sync::OnceLock;

use bytes::Bytes;
use hashbrown::HashMap;

use super::client::Client;
use super::engine::Engine;
use super::fail::Fail;
use super::keys::stream::{Entry, Id};
use super::keys::{Keyspace, SlotId, Value, names};
use super::proto::integer;
use super::reply::Reply;
pub use table::TABLE;

/// What a command comes to.
pub type Done = Result<(), Fail>;

/// A command.
pub struct Spec {
    /// Its name.
    pub name: &'static str,
    /// Words that it takes, its name included; negative: so many or more.
    pub arity: i32,
    /// Who does it.
    pub handler: fn(&mut Call<'_>) -> Done,
    /// Where its keys are.
    keys: Where,
    flags: u32,
    /// The categories that it is of, for users' rights.
    pub categories: u32,
}

/// Where a command's keys are among its words.
#[derive(Clone, Copy, Debug)]
pub enum Where {
    /// It has none.
    Nowhere,
    /// From a word to a word, each so many words after the last; a negative end counts from the
    /// last word.
    Range(usize, i32, usize),
    /// Their number is this word, and they follow it.
    Counted(usize),
    /// They follow the word `STREAMS`, and are half of what follows it.
    Streams,
}

/// What is particular about a command.
pub mod flags {
    /// It changes keys.
    pub const WRITE: u32 = 1;
    /// It reads keys.
    pub const READ: u32 = 2;
    /// It is done for those who have not said who they are.
    pub const WITHOUT_AUTH: u32 = 4;
    /// It is about the transaction, and not part of it.
    pub const CONTROLS_TRANSACTION: u32 = 8;
    /// It cannot be part of a transaction.
    pub const NOT_IN_TRANSACTION: u32 = 16;
    /// It may wait.
    pub const BLOCKING: u32 = 32;
    /// It is for administrators.
    pub const ADMIN: u32 = 64;
}

/// The categories of commands, for users' rights.
pub const CATEGORIES: [(&str, u32); 21] = [
    ("keyspace", 1),
    ("read", 1 << 1),
    ("write", 1 << 2),
    ("set", 1 << 3),
    ("sortedset", 1 << 4),
    ("list", 1 << 5),
    ("hash", 1 << 6),
    ("string", 1 << 7),
    ("bitmap", 1 << 8),
    ("hyperloglog", 1 << 9),
    ("geo", 1 << 10),
    ("stream", 1 << 11),
    ("pubsub", 1 << 12),
    ("admin", 1 << 13),
    ("fast", 1 << 14),
    ("slow", 1 << 15),
    ("blocking", 1 << 16),
    ("dangerous", 1 << 17),
    ("connection", 1 << 18),
    ("transaction", 1 << 19),
    ("scripting", 1 << 20),
];

impl Spec {
    /// Its place in the table.
    pub fn index(&self) -> usize {
        (std::ptr::from_ref(self).addr() - TABLE.as_ptr().addr()) / size_of::<Self>()
    }

    /// Whether it takes so many words.
    pub fn takes(&self, words: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { words >= arity } else { words == arity }
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether it reads or writes keys, and does nothing else.
    pub fn is_plain(&self) -> bool {
        self.flags == flags::READ || self.flags == flags::WRITE
    }

    /// Whether it is of a category.
    pub fn is_of(&self, category: &str) -> bool {
        CATEGORIES.iter().any(|(name, bit)| *name == category && self.categories & bit != 0)
    }

    /// The names of its flags, as Redis tells them.
    pub fn flag_names(&self) -> Vec<&'static str> {
        let all = [
            (flags::WRITE, "write"),
            (flags::READ, "readonly"),
            (flags::ADMIN, "admin"),
            (flags::WITHOUT_AUTH, "no_auth"),
            (flags::BLOCKING, "blocking"),
            (flags::NOT_IN_TRANSACTION, "no_multi"),
        ];
        all.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| *name).collect()
    }

    /// First key, last key and step, as Redis tells them.
    pub fn key_range(&self) -> (i64, i64, i64) {
        match self.keys {
            Where::Range(first, last, step) => (first as i64, i64::from(last), step as i64),
            _ => (0, 0, 0),
        }
    }

    /// The keys among a request's words.
    pub fn keys<'a>(&self, request: &'a [Bytes]) -> Vec<&'a Bytes> {
        let end = request.len();
        match self.keys {
            Where::Nowhere => Vec::new(),
            Where::Range(first, last, step) => {
                let last = if last < 0 { end.saturating_add_signed(last as isize) } else { last as usize };
                (first..=last.min(end.saturating_sub(1))).step_by(step).map(|i| &request[i]).collect()
            }
            Where::Counted(at) => {
                let count = request.get(at).and_then(|n| integer(n)).unwrap_or(0).max(0) as usize;
                request.iter().skip(at + 1).take(count).collect()
            }
            Where::Streams => {
                // The word may be a group's or a consumer's name as well: options are passed as the
                // command passes them.
                let (mut at, is) =
                    (1, |at: usize, word: &str| request[at].eq_ignore_ascii_case(word.as_bytes()));
                while at < end && !is(at, "STREAMS") {
                    at += if is(at, "GROUP") {
                        3
                    } else if is(at, "NOACK") {
                        1
                    } else {
                        2
                    };
                }
                let after = &request[end.min(at + 1)..];
                after[..after.len() / 2].iter().collect()
            }
        }
    }
}

/// Looks a command up by its name, whatever the case.
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    static INDEX: OnceLock<HashMap<&'static [u8], &'static Spec>> = OnceLock::new();
    let index = INDEX.get_or_init(|| TABLE.iter().map(|spec| (spec.name.as_bytes(), spec)).collect());
    let mut lower = [0; 32];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    index.get(&*lower).copied()
}

/// A command that is being done.
pub struct Call<'a> {
    /// What clients share.
    pub engine: &'a mut Engine,
    /// Whose it is.
    pub client: &'a mut Client,
    /// Its words.
    pub args: &'a [Bytes],
    /// Whether it may wait, or must tell at once that there is nothing.
    pub may_wait: bool,
    /// The plain log of the key that has changed, where a client that waits asks again.
    pub woken_by: Option<Bytes>,
}

impl Call<'_> {
    fn keys(&mut self) -> &mut Keyspace {
        &mut self.engine.keys
    }

    fn reply(&mut self) -> &mut Reply {
        &mut self.client.reply
    }

    /// The key that a word names.
    fn open(&mut self, at: usize) -> Result<SlotId, Fail> {
        let name = &self.args[at];
        check_name(name)?;
        Ok(self.engine.keys.open(&self.client.database, name)?)
    }

    fn value(&self, id: SlotId) -> &Value {
        self.engine.keys.value(id)
    }

    /// A key that is a list, or is not there: then it has no elements.
    fn list(&mut self, at: usize) -> Result<(SlotId, usize), Fail> {
        let id = self.open(at)?;
        match self.value(id) {
            Value::List(list) => Ok((id, list.len())),
            Value::Absent => Ok((id, 0)),
            _ => Err(Fail::wrong_type()),
        }
    }

    /// A key that is a stream; `None` where it is not there.
    fn stream(&mut self, at: usize) -> Result<(SlotId, bool), Fail> {
        let id = self.open(at)?;
        match self.value(id) {
            Value::Stream(_) => Ok((id, true)),
            Value::Absent => Ok((id, false)),
            _ => Err(Fail::wrong_type()),
        }
    }

    /// Returns entries of a stream for the reply; none if the reply is full already.
    fn entries(
        &mut self,
        id: SlotId,
        ids: (Id, Id),
        count: usize,
        newest_first: bool,
    ) -> Result<Vec<Entry>, Fail> {
        let room = self.client.reply.room();
        match self.engine.keys.entries_within(id, ids, count, newest_first, room)? {
            Some(entries) => Ok(entries),
            None => {
                self.client.reply.fill();
                self.client.has_room()?;
                Ok(Vec::new())
            }
        }
    }

    /// Whether a key is asked for: all are at first, and then the one that has changed.
    fn asks_for(&self, at: usize) -> bool {
        self.woken_by.as_ref().is_none_or(|plain| names::name(plain) == self.args[at])
    }

    fn integer(&self, at: usize) -> Result<i64, Fail> {
        integer(&self.args[at]).ok_or_else(Fail::not_an_integer)
    }

    /// Whether a word is this one, whatever the case.
    fn is(&self, at: usize, word: &str) -> bool {
        self.args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// A word as text, in capitals.
    fn word(&self, at: usize) -> String {
        self.args.get(at).map_or_else(String::new, |arg| String::from_utf8_lossy(arg).to_ascii_uppercase())
    }

    fn unknown_subcommand(&self) -> Fail {
        let (command, sub) = (self.word(0), String::from_utf8_lossy(&self.args[1]));
        Fail::err(format!("unknown subcommand '{sub}'. Try {command} HELP."))
    }

    /// Tells which subcommands there are.
    fn help(&mut self, lines: &[&str]) {
        let command = self.word(0);
        let first = format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
        self.reply().array(lines.len() + 3);
        self.reply().simple(&first);
        lines.iter().for_each(|line| self.reply().simple(line));
        self.reply().simple("HELP");
        self.reply().simple("    Print this help.");
    }

    fn wrong_arity(&self) -> Fail {
        let (command, sub) = (self.word(0).to_ascii_lowercase(), self.word(1).to_ascii_lowercase());
        Fail::err(format!("wrong number of arguments for '{command}|{sub}' command"))
    }
}

/// Checks all keys of a command before it changes the first.
fn check_names<'a>(names: impl IntoIterator<Item = &'a Bytes>) -> Done {
    names.into_iter().try_for_each(|name| check_name(name))
}

/// Longest pattern, in bytes: a comparison takes the product of both lengths.
const MAX_PATTERN: usize = 4 << 10;

/// A pattern that a word is.
fn pattern(call: &Call<'_>, at: usize) -> Result<Bytes, Fail> {
    let pattern = &call.args[at];
    if pattern.len() > MAX_PATTERN {
        return Err(Fail::err(format!("a pattern has at most {MAX_PATTERN} bytes")));
    }
    Ok(pattern.clone())
}

fn check_name(name: &[u8]) -> Done {
    if name.len() > names::MAX_NAME {
        let (len, most) = (name.len(), names::MAX_NAME);
        return Err(Fail::err(format!("a key of {len} bytes is too long: use at most {most} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_and_says_where_its_keys_are() {
        for (i, spec) in TABLE.iter().enumerate() {
            let found = find(spec.name.to_ascii_uppercase().as_bytes()).unwrap();
            assert_eq!((found.name, found.index()), (spec.name, i));
        }
        let keys = |request: &str| {
            let words: Vec<Bytes> = request.split(' ').map(|word| Bytes::from(word.to_owned())).collect();
            let spec = find(&words[0]).unwrap();
            spec.keys(&words).iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(keys("rpush a x y"), ["a"]);
        assert_eq!(keys("del a b c"), ["a", "b", "c"]);
        assert_eq!(keys("mset a 1 b 2"), ["a", "b"]);
        assert_eq!(keys("blpop a b 0"), ["a", "b"]);
        assert_eq!(keys("lmove a b LEFT LEFT"), ["a", "b"]);
        assert_eq!(keys("lmpop 2 a b LEFT"), ["a", "b"]);
        assert_eq!(keys("lmpop 9 a b"), ["a", "b"]);
        assert_eq!(keys("blmpop 0 1 a LEFT"), ["a"]);
        assert_eq!(keys("xread count 1 streams a b 0 0"), ["a", "b"]);
        assert_eq!(keys("xreadgroup group streams streams streams a >"), ["a"]);
        assert_eq!(keys("xreadgroup group g"), [""; 0]);
        assert_eq!(keys("xgroup create a g 0"), ["a"]);
        assert_eq!(keys("ping"), [""; 0]);
        assert!(find(b"nonsense").is_none() && find(&[b'a'; 100]).is_none());
    }
}
