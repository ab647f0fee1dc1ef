//! Rights to commands, keys and channels. A user has one set of them, and further ones in
//! parentheses.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::redis::commands::{self, CATEGORIES, Channels, Spec, TABLE};
use crate::redis::glob::matches;

/// Rights to commands, keys and channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Whether the user may run each command, in the order of the table.
    commands: Vec<bool>,
    /// First arguments with which the user may run a command, by its place in the table.
    first_args: BTreeMap<usize, Vec<String>>,
    /// The rules of the commands, as `ACL` shows them.
    rules: Vec<String>,
    /// Whether the user may read and write all keys. The list of patterns is empty then.
    all_keys: bool,
    keys: Vec<Pattern>,
    /// Whether the user may use all channels. The list of channels is empty then.
    all_channels: bool,
    channels: Vec<String>,
}

/// A pattern of keys that a user may read, write, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    glob: String,
    reads: bool,
    writes: bool,
}

/// Reason why a user may not run a request. A later reason is nearer to a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The user may not run the command.
    Command,
    /// The user may not use a key as the command does.
    Key {
        /// Place of the key among the keys of the command.
        at: usize,
        /// Name of the key.
        name: Bytes,
    },
    /// The user may not use a channel.
    Channel {
        /// Place of the channel among the words of the request.
        at: usize,
        /// Name of the channel.
        name: Bytes,
    },
}

impl Denied {
    /// Returns the name of the reason, and the command, the key or the channel.
    pub fn told<'a>(&'a self, spec: &'a Spec) -> (&'static str, &'a [u8]) {
        match self {
            Self::Command => ("command", spec.name.as_bytes()),
            Self::Key { name, .. } => ("key", name),
            Self::Channel { name, .. } => ("channel", name),
        }
    }

    /// Returns how near the request came to a permission.
    pub fn nearness(&self) -> (u8, usize) {
        match self {
            Self::Command => (0, 0),
            Self::Key { at, .. } => (1, *at),
            Self::Channel { at, .. } => (2, *at),
        }
    }
}

const AFTER_ALL_KEYS: &str = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns";
const AFTER_ALL_CHANNELS: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels";
const SYNTAX: &str = "Syntax error";
const UNKNOWN: &str = "Unknown command or category name in ACL";

impl Selector {
    /// Creates a selector without any right.
    pub fn new() -> Self {
        Self {
            commands: vec![false; TABLE.len()],
            first_args: BTreeMap::new(),
            rules: vec!["-@all".into()],
            all_keys: false,
            keys: Vec::new(),
            all_channels: false,
            channels: Vec::new(),
        }
    }

    /// Returns whether all commands may run on all keys.
    pub fn may_all(&self) -> bool {
        self.commands.iter().all(|may| *may) && self.all_keys
    }

    /// Returns an error if a request may not run.
    pub fn check(&self, spec: &Spec, request: &[Bytes]) -> Result<(), Denied> {
        if !self.may_run(spec, request) {
            return Err(Denied::Command);
        }
        if !self.all_keys {
            let mut accesses = spec.accesses(request).enumerate();
            let denied = accesses.find(|(_, (key, access))| !self.may_key(key, access.needs(request)));
            if let Some((at, (name, _))) = denied {
                return Err(Denied::Key { at, name: name.clone() });
            }
        }
        let is_pattern = spec.channels == Channels::Patterns;
        match spec.channels.of(request).find(|(_, name)| !self.may_channel(name, is_pattern)) {
            Some((at, name)) => Err(Denied::Channel { at, name: name.clone() }),
            None => Ok(()),
        }
    }

    /// Returns whether the user may use a channel; or a pattern, which one of the rules must name
    /// as it is.
    pub fn may_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        let gives = |glob: &String| {
            if is_pattern { glob.as_bytes() == name } else { matches(glob.as_bytes(), name) }
        };
        self.all_channels || self.channels.iter().any(gives)
    }

    /// Returns whether a request may run, and could read any key.
    pub fn may_read_all(&self, spec: &Spec, request: &[Bytes]) -> bool {
        let is_all = |pattern: &Pattern| pattern.reads && pattern.glob == "*";
        self.may_run(spec, request) && (self.all_keys || self.keys.iter().any(is_all))
    }

    fn may_run(&self, spec: &Spec, request: &[Bytes]) -> bool {
        let is_first =
            |arg: &String| request.get(1).is_some_and(|word| word.eq_ignore_ascii_case(arg.as_bytes()));
        self.commands[spec.index()]
            || spec.has(commands::flags::WITHOUT_AUTH)
            || self.first_args.get(&spec.index()).is_some_and(|args| args.iter().any(is_first))
    }

    /// Returns whether one pattern gives all rights to a key that a command needs.
    fn may_key(&self, key: &[u8], (reads, writes): (bool, bool)) -> bool {
        let gives = |pattern: &Pattern| pattern.reads >= reads && pattern.writes >= writes;
        self.all_keys
            || self.keys.iter().any(|pattern| gives(pattern) && matches(pattern.glob.as_bytes(), key))
    }

    /// Applies a rule in Redis's language.
    pub fn apply(&mut self, rule: &str) -> Result<(), &'static str> {
        match rule.to_ascii_lowercase().as_str() {
            "allkeys" | "~*" => (self.all_keys, self.keys) = (true, Vec::new()),
            "resetkeys" => (self.all_keys, self.keys) = (false, Vec::new()),
            "allchannels" | "&*" => (self.all_channels, self.channels) = (true, Vec::new()),
            "resetchannels" => (self.all_channels, self.channels) = (false, Vec::new()),
            "allcommands" => self.set_commands("+@all", true, |_| true),
            "nocommands" => self.set_commands("-@all", false, |_| true),
            lower => {
                let (sign, rest) = rule.split_at_checked(1).ok_or(SYNTAX)?;
                match sign {
                    "~" | "%" => return self.add_keys(rule),
                    "&" => return self.add_channel(rest),
                    "+" | "-" => return self.apply_to_commands(lower, sign == "+"),
                    _ => return Err(SYNTAX),
                }
            }
        }
        Ok(())
    }

    fn apply_to_commands(&mut self, rule: &str, may: bool) -> Result<(), &'static str> {
        let name = &rule[1..];
        if name == "@all" {
            self.set_commands(rule, may, |_| true);
        } else if let Some(category) = name.strip_prefix('@') {
            let (_, bit) = CATEGORIES.iter().find(|(name, _)| *name == category).ok_or(UNKNOWN)?;
            self.set_commands(rule, may, |spec| spec.categories & bit != 0);
        } else if let Some(known) = commands::find(name.as_bytes()) {
            let is_of = |spec: &Spec| {
                spec.index() == known.index() || known.subs().any(|sub| sub.index() == spec.index())
            };
            let subs = format!("{name}|");
            self.rules.retain(|other| !other[1..].starts_with(&subs));
            self.set_commands(rule, may, is_of);
        } else {
            return self.add_first_arg(rule, may);
        }
        Ok(())
    }

    /// Applies a rule `+command|argument`.
    fn add_first_arg(&mut self, rule: &str, may: bool) -> Result<(), &'static str> {
        let (name, arg) = rule[1..].split_once('|').filter(|_| may).ok_or(UNKNOWN)?;
        let spec = commands::find(name.as_bytes()).ok_or(UNKNOWN)?;
        match (spec.has(commands::flags::CONTAINER), arg.contains('|')) {
            (true, true) => Err("Allowing first-arg of a subcommand is not supported"),
            (true, false) | (false, true) => Err(UNKNOWN),
            (false, false) => {
                let args = self.first_args.entry(spec.index()).or_default();
                if !args.iter().any(|known| known == arg) {
                    args.push(arg.into());
                }
                self.rules.retain(|other| other != rule);
                self.rules.push(rule.into());
                Ok(())
            }
        }
    }

    fn set_commands(&mut self, rule: &str, may: bool, of: impl Fn(&Spec) -> bool) {
        for spec in TABLE.iter().filter(|spec| of(spec)) {
            self.commands[spec.index()] = may;
            self.first_args.remove(&spec.index());
        }
        if rule.ends_with("@all") {
            self.rules.clear();
        }
        self.rules.retain(|other| other[1..] != rule[1..]);
        self.rules.push(rule.to_owned());
    }

    fn add_keys(&mut self, rule: &str) -> Result<(), &'static str> {
        if self.all_keys {
            return Err(AFTER_ALL_KEYS);
        }
        let (access, glob) = rule.split_once('~').ok_or(SYNTAX)?;
        let access = if access.is_empty() { "rw".into() } else { access[1..].to_ascii_lowercase() };
        let is_access = !access.is_empty() && access.bytes().all(|byte| b"rw".contains(&byte));
        if !is_access || has_space(glob) {
            return Err(SYNTAX);
        }
        let (reads, writes) = (access.contains('r'), access.contains('w'));
        match self.keys.iter_mut().find(|pattern| pattern.glob == glob) {
            Some(known) => {
                known.reads |= reads;
                known.writes |= writes;
            }
            None => self.keys.push(Pattern { glob: glob.into(), reads, writes }),
        }
        Ok(())
    }

    fn add_channel(&mut self, glob: &str) -> Result<(), &'static str> {
        if self.all_channels {
            return Err(AFTER_ALL_CHANNELS);
        }
        if has_space(glob) {
            return Err(SYNTAX);
        }
        if !self.channels.iter().any(|known| known == glob) {
            self.channels.push(glob.into());
        }
        Ok(())
    }

    /// Returns the rules of the commands.
    pub fn command_rules(&self) -> String {
        self.rules.join(" ")
    }

    /// Returns the rules of the keys.
    pub fn key_rules(&self) -> String {
        if self.all_keys {
            return "~*".into();
        }
        self.keys.iter().map(Pattern::rule).collect::<Vec<_>>().join(" ")
    }

    /// Returns the rules of the channels.
    pub fn channel_rules(&self) -> String {
        if self.all_channels {
            return "&*".into();
        }
        self.channels.iter().map(|glob| format!("&{glob}")).collect::<Vec<_>>().join(" ")
    }

    /// Returns rules that recreate the selector.
    pub fn all_rules(&self) -> String {
        let mut rules = vec![self.key_rules()];
        if !self.all_channels {
            rules.push("resetchannels".into());
        }
        rules.extend([self.channel_rules(), self.command_rules()]);
        rules.retain(|rule| !rule.is_empty());
        rules.join(" ")
    }
}

impl Pattern {
    fn rule(&self) -> String {
        match (self.reads, self.writes) {
            (true, true) => format!("~{}", self.glob),
            (true, false) => format!("%R~{}", self.glob),
            _ => format!("%W~{}", self.glob),
        }
    }
}

/// Returns whether a pattern has a character that separates rules.
fn has_space(glob: &str) -> bool {
    glob.bytes().any(|byte| byte == 0 || byte == 0x0b || byte.is_ascii_whitespace())
}
