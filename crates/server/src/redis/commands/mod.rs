//! The commands: their arguments, their keys, and their functions.

mod acl;
mod blocking;
mod claims;
mod clients;
mod command;
mod connection;
mod decimals;
mod drafts;
mod groups;
mod hashes;
mod info;
mod key_flags;
mod keys;
mod latency;
mod lists;
mod lookups;
mod portions;
mod pubsub;
mod scans;
mod scripts;
mod server;
mod sort;
mod spec;
mod splices;
mod streams;
mod strings;
mod table;
mod tracking;
mod transactions;
mod xinfo;
mod xread;

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::client::Client;
use super::engine::Engine;
use super::fail::Fail;
use super::keys::stream::{Entry, Id};
use super::keys::{Keyspace, SlotId, Value, names};
use super::proto::integer;
use super::reply::Reply;
pub use clients::describe;
pub use portions::after_load;
pub use spec::{Access, CATEGORIES, Channels, Spec, find, flags, resolve};
pub use table::TABLE;

/// The result of a command.
pub type Done = Result<(), Fail>;

/// A command that is being done.
pub struct Call<'a> {
    /// What clients share.
    pub engine: &'a mut Engine,
    /// Whose it is.
    pub client: &'a mut Client,
    /// Its words.
    pub args: &'a [Bytes],
    /// Whether it may wait, or must reply at once that there is nothing.
    pub may_wait: bool,
    /// Where a client that waits asks again: the places of the words that name the changed key.
    pub woken_by: Option<Places>,
}

/// Places of words in a request.
pub type Places = SmallVec<[usize; 1]>;

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

    /// The key that a word names, which is then deleted or gets another value.
    fn open_to_replace(&mut self, at: usize) -> Result<SlotId, Fail> {
        let name = &self.args[at];
        check_name(name)?;
        Ok(self.engine.keys.open_to_replace(&self.client.database, name)?)
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

    /// The place of the `n`th key that is asked for, of those that some words name: all are at
    /// first, and then the one that has changed.
    fn asked_key(&self, words: &Range<usize>, n: usize) -> Option<usize> {
        match &self.woken_by {
            None => words.clone().nth(n),
            Some(places) => places.get(n).copied(),
        }
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

    /// Refuses a command with too many words: each of its words takes a while.
    fn check_words(&self) -> Done {
        if self.args.len() > MAX_WORDS {
            let name = self.word(0).to_ascii_lowercase();
            return Err(Fail::err(format!("'{name}' takes at most {MAX_WORDS} words")));
        }
        Ok(())
    }

    /// Returns the error of a subcommand with too many words, or with a wrong one.
    fn wrong_subcommand(&self) -> Fail {
        let (command, sub) = (self.word(0), String::from_utf8_lossy(&self.args[1]));
        let why = "unknown subcommand or wrong number of arguments for";
        Fail::err(format!("{why} '{sub}'. Try {command} HELP."))
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
}

/// Checks all keys of a command before it changes the first.
fn check_names<'a>(names: impl IntoIterator<Item = &'a Bytes>) -> Done {
    names.into_iter().try_for_each(|name| check_name(name))
}

/// Most words of a command about the server itself.
const MAX_WORDS: usize = 512;

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
