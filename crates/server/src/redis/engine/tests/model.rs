//! What keys are and what commands do to them, said as plainly as can be: everything in memory,
//! nothing on its way.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::lists;
use super::streams;
use crate::redis::keys::stream::Id;
use crate::redis::reply::Reply;

/// What a command is refused with.
pub type Refused = Result<(), String>;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Held {
    List(Vec<Bytes>),
    String(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    Stream(Flow),
}

/// A stream. How many entries a group has read is told by guesses, and left out here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    pub entries: BTreeMap<Id, Vec<Bytes>>,
    pub last: Id,
    pub max_deleted: Id,
    pub added: u64,
    pub groups: BTreeMap<Bytes, Group>,
}

/// A consumer group: what is pending, each with its consumer, when it was delivered, and how often.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    pub last: Id,
    pub pending: BTreeMap<Id, (Bytes, u64, u64)>,
    pub consumers: BTreeSet<Bytes>,
}

/// A key.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    pub held: Held,
    pub expire: Option<u64>,
}

/// All keys at some moment.
pub type State = BTreeMap<Bytes, Key>;

/// The keys, and what was done to them since somebody asked.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub keys: State,
    pub now: u64,
    /// Keys that were changed, in the order in which they first were.
    pub touched: Vec<Bytes>,
    /// Those of which more than groups were changed.
    pub modified: BTreeSet<Bytes>,
}

pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// A word that must be a number.
pub fn number(word: &[u8]) -> i64 {
    std::str::from_utf8(word).unwrap().parse().unwrap()
}

impl Model {
    pub fn touch(&mut self, key: &Bytes) {
        self.modified.insert(key.clone());
        self.touch_groups(key);
    }

    pub fn touch_groups(&mut self, key: &Bytes) {
        if !self.touched.contains(key) {
            self.touched.push(key.clone());
        }
    }

    /// Drops the keys whose time has come.
    pub fn expire(&mut self) {
        let is_due = |key: &Key| key.expire.is_some_and(|at| at <= self.now);
        let due: Vec<Bytes> =
            self.keys.iter().filter(|(_, key)| is_due(key)).map(|(name, _)| name.clone()).collect();
        for name in due {
            self.remove(&name);
        }
    }

    pub fn remove(&mut self, key: &Bytes) -> bool {
        let is_gone = self.keys.remove(key).is_some();
        if is_gone {
            self.touch(key);
        }
        is_gone
    }

    /// Puts a new value in the place of whatever a key was.
    pub fn put(&mut self, key: &Bytes, held: Held, expire: Option<u64>) {
        self.touch(key);
        self.keys.insert(key.clone(), Key { held, expire });
    }

    /// Does a command that does not wait.
    pub fn call(&mut self, args: &[Bytes], out: &mut Reply) -> Refused {
        let name = String::from_utf8(args[0].to_vec()).unwrap();
        match name.as_str() {
            "SET" | "GET" | "APPEND" | "INCR" | "GETDEL" | "MSET" => self.text(&name, args, out),
            "HSET" | "HDEL" | "HGETALL" | "HINCRBY" => self.hash(&name, args, out),
            "DEL" => {
                let gone = args[1..].iter().filter(|key| self.remove(key)).count();
                out.count(gone);
                Ok(())
            }
            "EXISTS" | "TYPE" | "PEXPIRE" | "PERSIST" | "PEXPIRETIME" => self.any(&name, args, out),
            "RENAME" | "COPY" => self.copy(&name, args, out),
            "FLUSHDB" => {
                let all: Vec<Bytes> = self.keys.keys().cloned().collect();
                for key in all {
                    self.remove(&key);
                }
                out.ok();
                Ok(())
            }
            "DBSIZE" => {
                out.count(self.keys.len());
                Ok(())
            }
            _ if name.starts_with('X') => streams::call(self, &name, args, out),
            _ => lists::call(self, &name, args, out),
        }
    }

    fn text(&mut self, name: &str, args: &[Bytes], out: &mut Reply) -> Refused {
        let key = &args[1];
        let (old, expire) = match self.keys.get(key) {
            None => (None, None),
            Some(Key { held: Held::String(text), expire }) => (Some(text.clone()), *expire),
            Some(Key { expire, .. }) if name == "SET" => (None, *expire),
            Some(_) if name == "MSET" => (None, None),
            Some(_) => return Err(WRONG_TYPE.into()),
        };
        match name {
            "GET" => out.bulk_or_null(old),
            "GETDEL" => {
                self.remove(key);
                out.bulk_or_null(old);
            }
            "APPEND" => {
                let new = [&old.unwrap_or_default()[..], &args[2]].concat();
                out.count(new.len());
                self.put(key, Held::String(new.into()), expire);
            }
            "INCR" => {
                let old = old.map_or(Ok(0), |old| String::from_utf8_lossy(&old).parse::<i64>());
                let new = old.map_err(|_| NOT_AN_INTEGER.to_owned())? + 1;
                out.int(new);
                self.put(key, Held::String(new.to_string().into()), expire);
            }
            "MSET" => {
                args[1..].chunks(2).for_each(|pair| self.put(&pair[0], Held::String(pair[1].clone()), None));
                out.ok();
            }
            _ => {
                let option = args.get(3).map_or(&b""[..], |word| word);
                let is_there = self.keys.contains_key(key);
                let expire = match option {
                    b"KEEPTTL" => expire,
                    b"PX" => Some(self.now + number(&args[4]) as u64),
                    _ => None,
                };
                if (option == b"NX" && is_there) || (option == b"XX" && !is_there) {
                    out.null();
                } else {
                    self.put(key, Held::String(args[2].clone()), expire);
                    out.ok();
                }
            }
        }
        Ok(())
    }

    fn hash(&mut self, name: &str, args: &[Bytes], out: &mut Reply) -> Refused {
        let key = &args[1];
        let (mut fields, expire) = match self.keys.get(key) {
            None => (BTreeMap::new(), None),
            Some(Key { held: Held::Hash(fields), expire }) => (fields.clone(), *expire),
            Some(_) => return Err(WRONG_TYPE.into()),
        };
        let before = fields.len();
        match name {
            "HGETALL" => {
                out.map(fields.len());
                fields.iter().for_each(|(field, value)| {
                    out.bulk(field);
                    out.bulk(value);
                });
                return Ok(());
            }
            "HSET" => {
                fields.extend(args[2..].chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())));
                out.count(fields.len() - before);
            }
            "HINCRBY" => {
                let old =
                    fields.get(&args[2]).map_or(Ok(0), |old| String::from_utf8_lossy(old).parse::<i64>());
                let old = old.map_err(|_| "ERR hash value is not an integer".to_owned())?;
                let new = old + number(&args[3]);
                fields.insert(args[2].clone(), new.to_string().into());
                out.int(new);
            }
            _ => {
                args[2..].iter().for_each(|field| drop(fields.remove(field)));
                out.count(before - fields.len());
                if fields.is_empty() {
                    self.remove(key);
                    return Ok(());
                }
                if fields.len() == before {
                    return Ok(());
                }
            }
        }
        self.put(key, Held::Hash(fields), expire);
        Ok(())
    }

    fn any(&mut self, name: &str, args: &[Bytes], out: &mut Reply) -> Refused {
        let key = self.keys.get(&args[1]);
        let expire = key.and_then(|key| key.expire);
        match name {
            "EXISTS" => out.flag(key.is_some()),
            "PEXPIRETIME" => out.int(match (key, expire) {
                (None, _) => -2,
                (_, None) => -1,
                (_, Some(at)) => at as i64,
            }),
            "TYPE" => out.simple(match key.map(|key| &key.held) {
                None => "none",
                Some(Held::List(_)) => "list",
                Some(Held::String(_)) => "string",
                Some(Held::Hash(_)) => "hash",
                Some(Held::Stream(_)) => "stream",
            }),
            _ => {
                let at = args.get(2).map(|word| self.now.saturating_add_signed(number(word)));
                let is_done = key.is_some() && (name == "PEXPIRE" || expire.is_some());
                if is_done && at.is_some_and(|at| at <= self.now) {
                    self.remove(&args[1]);
                } else if is_done && at != expire {
                    self.touch(&args[1]);
                    self.keys.get_mut(&args[1]).unwrap().expire = at;
                }
                out.flag(is_done);
            }
        }
        Ok(())
    }

    fn copy(&mut self, name: &str, args: &[Bytes], out: &mut Reply) -> Refused {
        let (from, to) = (&args[1], &args[2]);
        let is_copy = name == "COPY";
        if is_copy && from == to {
            return Err("ERR source and destination objects are the same".into());
        }
        let value = self.keys.get(from).cloned();
        let replaces = !is_copy || args.len() > 3 || !self.keys.contains_key(to);
        match value {
            None if !is_copy => return Err("ERR no such key".into()),
            Some(key) if replaces && from != to => {
                self.put(to, key.held, key.expire);
                if !is_copy {
                    self.remove(from);
                }
                if is_copy { out.flag(true) } else { out.ok() }
            }
            Some(_) if !is_copy => out.ok(),
            _ => out.flag(false),
        }
        Ok(())
    }
}
