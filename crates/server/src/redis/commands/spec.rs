//! The description of a command: its arguments, its keys, and its categories.

use std::sync::OnceLock;

use bytes::Bytes;
use hashbrown::HashMap;

use super::{Call, Done, TABLE, integer};

/// A command, or a subcommand.
pub struct Spec {
    /// Its name, in small letters. The name of a subcommand is `command|subcommand`.
    pub name: &'static str,
    /// Words that it takes, its name included; negative: so many or more.
    pub arity: i32,
    /// Who does it.
    pub handler: fn(&mut Call<'_>) -> Done,
    /// Its keys.
    pub(super) keys: Keys,
    /// Its channels.
    pub channels: Channels,
    pub(super) flags: u32,
    /// The categories that it is of, for users' rights.
    pub categories: u32,
}

/// The keys of a command.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// Where they are.
    pub place: Where,
    /// How the command uses the first key.
    pub first: Access,
    /// How the command uses the further keys.
    pub further: Access,
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
    /// The first word, and the one after the last `STORE`, as SORT has it.
    Sort,
    /// They follow the word `STREAMS`, and are half of what follows it.
    Streams,
}

/// The channels among a command's words, of which a user needs the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// It has none, or ends subscriptions, for which nobody needs a right.
    None,
    /// The first word.
    First,
    /// All words.
    All,
    /// All words, which are patterns.
    Patterns,
}

impl Channels {
    /// Returns the channels or patterns among a request's words, each with its place.
    pub fn of(self, request: &[Bytes]) -> impl Iterator<Item = (usize, &Bytes)> {
        let most = match self {
            Self::None => 0,
            Self::First => 1,
            Self::All | Self::Patterns => usize::MAX,
        };
        request.iter().enumerate().skip(1).take(most)
    }
}

/// How a command uses a key. This decides which rights a user needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The command returns whether the key exists, its type or its size. Any right is enough.
    Look,
    /// The command returns a part of the value, or depends on it.
    Read,
    /// The command changes the value, and returns nothing of it.
    Write,
    /// The command returns a part of the value, and changes the value.
    Both,
    /// The command is `SET`: it writes, and also reads if an option is `GET`.
    Set,
}

impl Access {
    /// Returns whether a user needs the right to read, and the right to write.
    pub fn needs(self, request: &[Bytes]) -> (bool, bool) {
        match self {
            Self::Look => (false, false),
            Self::Read => (true, false),
            Self::Write => (false, true),
            Self::Both => (true, true),
            Self::Set => (request.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"GET")), true),
        }
    }
}

/// The properties of a command.
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
    /// Redis counts it among the fast commands.
    pub const FAST: u32 = 128;
    /// It is not for administrators only, but can harm other clients.
    pub const DANGEROUS: u32 = 256;
    /// It has subcommands.
    pub const CONTAINER: u32 = 512;
    /// A client of RESP2 that subscribes to channels may send it.
    pub const FOR_SUBSCRIBERS: u32 = 1024;
    /// It has no reply, but reports changes by pushes.
    pub const PUSHES: u32 = 2048;
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

/// Commands that scripts may not run, as in Redis; with all their subcommands.
const NOT_IN_SCRIPTS: [&str; 40] = [
    "acl",
    "auth",
    "bgrewriteaof",
    "bgsave",
    "blmove",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzpopmax",
    "bzpopmin",
    "client",
    "config",
    "discard",
    "eval",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "exec",
    "function",
    "hello",
    "latency",
    "module",
    "monitor",
    "multi",
    "psubscribe",
    "punsubscribe",
    "quit",
    "reset",
    "role",
    "save",
    "script",
    "shutdown",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
    "unwatch",
    "wait",
    "waitaof",
    "watch",
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
        matches!(self.flags & !flags::FAST, flags::READ | flags::WRITE)
    }

    /// Whether it has keys among its words.
    pub fn has_keys(&self) -> bool {
        !matches!(self.keys.place, Where::Nowhere)
    }

    /// Whether a script may run it.
    pub fn may_be_scripted(&self) -> bool {
        let command = self.name.split('|').next().unwrap_or_default();
        NOT_IN_SCRIPTS.binary_search(&command).is_err()
    }

    /// Whether it is of a category.
    pub fn is_of(&self, category: &str) -> bool {
        CATEGORIES.iter().any(|(name, bit)| *name == category && self.categories & bit != 0)
    }

    /// Whether it is a subcommand.
    pub fn is_sub(&self) -> bool {
        self.name.contains('|')
    }

    /// Its subcommands.
    pub fn subs(&self) -> impl Iterator<Item = &'static Self> {
        let is_sub = |sub: &&Self| sub.name.strip_prefix(self.name).is_some_and(|rest| rest.starts_with('|'));
        TABLE[self.index()..].iter().skip(1).take_while(is_sub)
    }

    /// Returns the names of its flags, as Redis reports them.
    pub fn flag_names(&self) -> Vec<&'static str> {
        let all = [
            (flags::WRITE, "write"),
            (flags::READ, "readonly"),
            (flags::ADMIN, "admin"),
            (flags::FAST, "fast"),
            (flags::WITHOUT_AUTH, "no_auth"),
            (flags::BLOCKING, "blocking"),
            (flags::NOT_IN_TRANSACTION, "no_multi"),
        ];
        let own = all.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| *name);
        let own = own.chain((!self.may_be_scripted()).then_some("noscript"));
        own.chain(self.is_of("pubsub").then_some("pubsub")).collect()
    }

    /// Returns first key, last key and step, as Redis reports them.
    pub fn key_range(&self) -> (i64, i64, i64) {
        match self.keys.place {
            Where::Range(first, last, step) => (first as i64, i64::from(last), step as i64),
            Where::Sort => (1, 1, 1),
            _ => (0, 0, 0),
        }
    }

    /// The keys among a request's words.
    pub fn keys<'a>(&self, request: &'a [Bytes]) -> Vec<&'a Bytes> {
        let end = request.len();
        match self.keys.place {
            Where::Nowhere => Vec::new(),
            Where::Range(first, last, step) => {
                let last = if last < 0 { end.saturating_add_signed(last as isize) } else { last as usize };
                (first..=last.min(end.saturating_sub(1))).step_by(step).map(|i| &request[i]).collect()
            }
            Where::Counted(at) => {
                let count = request.get(at).and_then(|n| integer(n)).unwrap_or(0).max(0) as usize;
                request.iter().skip(at + 1).take(count).collect()
            }
            Where::Sort => {
                let is = |at: usize, word: &str| request[at].eq_ignore_ascii_case(word.as_bytes());
                let (mut at, mut store) = (2, None);
                while at < end {
                    at += if is(at, "LIMIT") {
                        3
                    } else if is(at, "BY") || is(at, "GET") {
                        2
                    } else if is(at, "STORE") {
                        store = request.get(at + 1);
                        2
                    } else {
                        1
                    };
                }
                request.get(1).into_iter().chain(store).collect()
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

    /// The keys among a request's words, and how the command uses each.
    pub fn accesses<'a>(&self, request: &'a [Bytes]) -> impl Iterator<Item = (&'a Bytes, Access)> {
        let Keys { first, further, .. } = self.keys;
        let access = move |at| if at == 0 { first } else { further };
        self.keys(request).into_iter().enumerate().map(move |(at, key)| (key, access(at)))
    }
}

/// Returns a command by its name, or a subcommand by `command|subcommand`, whatever the case.
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    static INDEX: OnceLock<HashMap<&'static [u8], &'static Spec>> = OnceLock::new();
    let index = INDEX.get_or_init(|| TABLE.iter().map(|spec| (spec.name.as_bytes(), spec)).collect());
    let mut lower = [0; 32];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    index.get(&*lower).copied()
}

/// Returns the command of a request: the subcommand, if the command has some.
pub fn resolve(request: &[Bytes]) -> Option<&'static Spec> {
    let command = find(request.first()?).filter(|spec| !spec.is_sub())?;
    match request.get(1) {
        Some(sub) if command.has(flags::CONTAINER) => {
            if sub.contains(&b'|') || sub.len() > 32 {
                return None;
            }
            find(&[command.name.as_bytes(), b"|", sub].concat())
        }
        _ => Some(command),
    }
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
            let spec = resolve(&words).unwrap();
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
        assert_eq!(keys("sort a by store get store limit 0 1 store b alpha store c"), ["a", "c"]);
        assert_eq!(keys("sort a store"), ["a"]);
        assert_eq!(keys("ping"), [""; 0]);
        assert!(find(b"nonsense").is_none() && find(&[b'a'; 100]).is_none());
    }
}
