//! Keyspace notifications: messages about what commands did to keys.
//!
//! They leave after the commit, like other messages of the command. While no class is switched on,
//! or nobody subscribes, commands record nothing for them.

use bytes::Bytes;

use super::Engine;
use crate::redis::commands::Spec;
use crate::redis::commands::flags::READ;
use crate::redis::events::{
    COMMANDS, EXPIRED, Events, GENERIC, HASH, KEYEVENT, KEYSPACE, LIST, MISS, NEW, STREAM, STRING,
};
use crate::redis::keys::{Traced, names};
use crate::redis::pubsub::Kind;

impl Engine {
    /// Returns whether somebody may hear of what commands do to keys.
    pub fn has_listeners(&self) -> bool {
        self.settings.events != Events::NONE
            && self.topics.len(Kind::Channel) + self.topics.len(Kind::Pattern) > 0
    }

    /// Returns whether somebody may hear of what commands do to keys, and not only of the keys that
    /// expire.
    pub fn has_listeners_to_commands(&self) -> bool {
        self.has_listeners() && self.settings.events.has(COMMANDS)
    }

    /// Begins to record what a command does to keys, if somebody listens.
    pub(super) fn begin_events(&mut self) {
        let has_listeners = self.has_listeners();
        self.keys.set_trace(has_listeners);
    }

    /// Publishes what a command did to keys.
    pub fn note_events(&mut self, spec: &Spec, request: &[Bytes]) {
        if !self.has_listeners() {
            return;
        }
        let (mut changed, missed) = self.keys.take_trace();
        self.note_expired(&changed);
        if spec.has(READ) {
            for key in missed {
                self.notify(MISS, "keymiss", names::database(&key), names::name(&key));
            }
        }
        if spec.name.starts_with("flush") {
            return;
        }
        changed.retain(|key| !key.only_expired);
        if moves(spec.name) || renames(spec.name) {
            // As in Redis: the new key is there before anything is told of the two keys.
            changed.iter().for_each(|key| self.note_new(key));
            changed.reverse();
            return changed.iter().for_each(|key| self.note_event(spec, request, key));
        }
        for key in changed {
            self.note_new(&key);
            self.note_event(spec, request, &key);
        }
    }

    /// Publishes that keys have expired.
    fn note_expired(&mut self, changed: &[Traced]) {
        for key in changed.iter().filter(|key| key.has_expired) {
            self.notify(EXPIRED, "expired", key.database(), key.name());
        }
    }

    /// Publishes the keys that expired without a command.
    pub(super) fn note_expired_aside(&mut self) {
        if self.has_listeners() {
            let (changed, _) = self.keys.take_trace();
            self.note_expired(&changed);
        }
    }

    fn note_new(&mut self, key: &Traced) {
        if !key.was_there && key.is_there {
            self.notify(NEW, "new", key.database(), key.name());
        }
    }

    fn note_event(&mut self, spec: &Spec, request: &[Bytes], key: &Traced) {
        let mut tell = |class, event: &str| self.notify(class, event, key.database(), key.name());
        if key.is_joined && spec.name != "xgroup|createconsumer" {
            tell(STREAM, "xgroup-createconsumer");
        }
        let is_first = request.get(1).is_some_and(|word| word == key.name());
        let (pushed, popped) = ends(spec.name, request);
        if moves(spec.name) {
            let is_second = request.get(2).is_some_and(|word| word == key.name());
            if is_second {
                tell(LIST, pushed);
            }
            if is_first {
                tell(LIST, popped);
            }
        } else if renames(spec.name) {
            let names = match spec.name {
                "move" => ["move_from", "move_to"],
                _ => ["rename_from", "rename_to"],
            };
            return tell(GENERIC, names[usize::from(key.is_there)]);
        } else if let Some((class, event)) = event(spec.name, popped, request)
            && (key.is_there || shrinks(spec.name))
            && (event != "xtrim" || key.is_trimmed)
        {
            tell(class, event);
        }
        if spec.name == "xadd" && key.is_trimmed {
            tell(STREAM, "xtrim");
        }
        if sets_expiry(spec.name, request) && key.is_there {
            tell(GENERIC, "expire");
        }
        if key.was_there && !key.is_there {
            tell(GENERIC, "del");
        }
    }

    /// Publishes an event of a key. An event whose messages would take too much memory or time is
    /// left out.
    fn notify(&mut self, class: Events, event: &str, database: &[u8], name: &[u8]) {
        let on = self.settings.events;
        if !on.has(class) {
            return;
        }
        let channel =
            |kind: &[u8], rest: &[u8]| Bytes::from([b"__", kind, b"@", database, b"__:", rest].concat());
        let (name, event) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(event.as_bytes()));
        if on.has(KEYSPACE) {
            let _ = self.publish(Kind::Channel, &channel(b"keyspace", &name), &event);
        }
        if on.has(KEYEVENT) {
            let _ = self.publish(Kind::Channel, &channel(b"keyevent", &event), &name);
        }
    }
}

/// Returns whether a command moves an element from one list to another.
fn moves(command: &str) -> bool {
    matches!(command, "lmove" | "blmove" | "rpoplpush" | "brpoplpush")
}

/// Returns whether a command moves a key.
fn renames(command: &str) -> bool {
    matches!(command, "rename" | "renamenx" | "move")
}

/// Returns whether a command tells of its change also if that removes the last part of a value.
fn shrinks(command: &str) -> bool {
    matches!(command, "lpop" | "blpop" | "rpop" | "brpop" | "lmpop" | "blmpop" | "ltrim" | "lrem" | "hdel")
}

/// Returns whether a request also sets the expiry of the text that it sets.
fn sets_expiry(command: &str, request: &[Bytes]) -> bool {
    let is_expiry = |word: &Bytes| ["EX", "PX", "EXAT", "PXAT"].iter().any(|unit| is(word, unit));
    match command {
        "setex" | "psetex" => true,
        "set" => request.iter().skip(3).any(is_expiry),
        _ => false,
    }
}

fn is(word: &Bytes, text: &str) -> bool {
    word.eq_ignore_ascii_case(text.as_bytes())
}

/// Returns the events of the ends at which a command pushes and pops.
fn ends(command: &str, request: &[Bytes]) -> (&'static str, &'static str) {
    let is_left = |at: usize| request.get(at).is_some_and(|word| is(word, "LEFT"));
    let count = |at: usize| request.get(at).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
    let after = |at: usize| at + 1 + count(at).unwrap_or(0_usize);
    let (pushes_left, pops_left) = match command {
        "lmove" | "blmove" => (is_left(4), is_left(3)),
        "lmpop" => (false, is_left(after(1))),
        "blmpop" => (false, is_left(after(2))),
        "lpop" | "blpop" => (false, true),
        _ => (true, false),
    };
    (if pushes_left { "lpush" } else { "rpush" }, if pops_left { "lpop" } else { "rpop" })
}

/// Returns the event of a command that changes a key.
fn event(command: &'static str, popped: &'static str, request: &[Bytes]) -> Option<(Events, &'static str)> {
    Some(match command {
        "set" | "setnx" | "setex" | "psetex" | "mset" | "msetnx" | "getset" => (STRING, "set"),
        "incr" | "decr" | "incrby" | "decrby" => (STRING, "incrby"),
        "append" | "incrbyfloat" | "setrange" => (STRING, command),
        "lpush" | "lpushx" => (LIST, "lpush"),
        "rpush" | "rpushx" => (LIST, "rpush"),
        "lpop" | "blpop" | "rpop" | "brpop" | "lmpop" | "blmpop" => (LIST, popped),
        "linsert" | "lset" | "lrem" | "ltrim" => (LIST, command),
        "sort" => (LIST, "sortstore"),
        "hset" | "hmset" | "hsetnx" => (HASH, "hset"),
        "hincrby" | "hincrbyfloat" | "hdel" => (HASH, command),
        "expire" | "pexpire" | "expireat" | "pexpireat" => (GENERIC, "expire"),
        "getex" if request.iter().skip(2).any(|word| is(word, "PERSIST")) => (GENERIC, "persist"),
        "getex" => (GENERIC, "expire"),
        "persist" => (GENERIC, "persist"),
        "copy" => (GENERIC, "copy_to"),
        "xadd" | "xdel" | "xtrim" | "xsetid" => (STREAM, command),
        "xgroup|create" => (STREAM, "xgroup-create"),
        "xgroup|createconsumer" => (STREAM, "xgroup-createconsumer"),
        "xgroup|delconsumer" => (STREAM, "xgroup-delconsumer"),
        "xgroup|destroy" => (STREAM, "xgroup-destroy"),
        "xgroup|setid" => (STREAM, "xgroup-setid"),
        _ => return None,
    })
}
