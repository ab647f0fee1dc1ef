//! Users, their passwords, and their rights to commands and keys.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sha2::{Digest, Sha256};

use super::commands::{self, CATEGORIES, Spec, TABLE};
use super::glob::matches;
use crate::http::Access;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Name of the user.
    pub name: String,
    /// Whether the user may log in.
    pub is_on: bool,
    /// Whether every password is accepted.
    pub no_password: bool,
    /// Hashes of the passwords, in hexadecimal.
    pub passwords: Vec<String>,
    /// Whether the user may run each command, in the order of the table.
    commands: Vec<bool>,
    /// The rules of the commands, as `ACL` shows them.
    pub command_rules: Vec<String>,
    /// Keys that the user may read and write.
    pub keys: Vec<Pattern>,
}

/// A pattern of keys that a user may read, write, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    glob: String,
    reads: bool,
    writes: bool,
}

impl Pattern {
    /// Returns the pattern as a rule.
    pub fn rule(&self) -> String {
        match (self.reads, self.writes) {
            (true, true) => format!("~{}", self.glob),
            (true, false) => format!("%R~{}", self.glob),
            _ => format!("%W~{}", self.glob),
        }
    }
}

/// The users of a server. Clones are handles to the same users, so that both frontends see a change
/// at once.
#[derive(Clone, Debug)]
pub struct Users {
    all: Arc<RwLock<BTreeMap<String, Arc<User>>>>,
}

/// The user of clients that have not logged in.
pub const DEFAULT: &str = "default";

fn hash(password: &[u8]) -> String {
    Sha256::digest(password).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl User {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            is_on: false,
            no_password: false,
            passwords: Vec::new(),
            commands: vec![false; TABLE.len()],
            command_rules: vec!["-@all".into()],
            keys: Vec::new(),
        }
    }

    /// Returns whether the user may run all commands on all keys.
    pub fn may_all(&self) -> bool {
        self.commands.iter().all(|may| *may) && self.keys.iter().any(|p| p.glob == "*" && p.reads && p.writes)
    }

    /// Returns whether the user may run a command.
    pub fn may(&self, spec: &Spec) -> bool {
        self.commands[spec.index()]
    }

    /// Returns whether the user may read or write a key.
    pub fn may_key(&self, key: &[u8], writes: bool) -> bool {
        let allows = |pattern: &Pattern| if writes { pattern.writes } else { pattern.reads };
        self.keys.iter().any(|pattern| allows(pattern) && matches(pattern.glob.as_bytes(), key))
    }

    /// Returns whether the user accepts this password.
    pub fn accepts(&self, password: &[u8]) -> bool {
        // The comparison of hashes reveals nothing about the password's beginning.
        self.is_on && (self.no_password || self.passwords.contains(&hash(password)))
    }

    fn set_commands(&mut self, rule: &str, may: bool, of: impl Fn(&Spec) -> bool) {
        for spec in TABLE.iter().filter(|spec| of(spec)) {
            self.commands[spec.index()] = may;
        }
        if rule.ends_with("@all") {
            self.command_rules.clear();
        }
        self.command_rules.retain(|other| other[1..] != rule[1..]);
        self.command_rules.push(rule.to_owned());
    }

    /// Applies a rule in Redis's language.
    pub fn apply(&mut self, rule: &str) -> Result<(), String> {
        let wrong = |why: &str| Err(format!("Error in ACL SETUSER modifier '{rule}': {why}"));
        match rule {
            "on" => self.is_on = true,
            "off" => self.is_on = false,
            "nopass" => (self.no_password, self.passwords) = (true, Vec::new()),
            "resetpass" => (self.no_password, self.passwords) = (false, Vec::new()),
            "allkeys" => return self.apply("~*"),
            "resetkeys" => self.keys.clear(),
            "allcommands" => return self.apply("+@all"),
            "nocommands" => return self.apply("-@all"),
            "allchannels"
            | "resetchannels"
            | "clearselectors"
            | "sanitize-payload"
            | "skip-sanitize-payload" => {}
            "reset" => *self = Self::new(&self.name),
            _ => {
                let (sign, rest) = rule.split_at_checked(1).unwrap_or(("", ""));
                match sign {
                    ">" if rest.is_empty() => return wrong(EMPTY_PASSWORD),
                    ">" => self.add_password(hash(rest.as_bytes())),
                    "<" => {
                        return self.remove_password(&hash(rest.as_bytes())).map_or(wrong(NO_PASSWORD), Ok);
                    }
                    "#" if rest == hash(b"") => return wrong(EMPTY_PASSWORD),
                    "#" if is_hash(rest) => self.add_password(rest.into()),
                    "#" => {
                        return wrong(
                            "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters",
                        );
                    }
                    "!" => return self.remove_password(rest).map_or(wrong(NO_PASSWORD), Ok),
                    "~" => self.add_keys(rest, true, true),
                    "%" => {
                        let Some((access, glob)) = rest.split_once('~') else { return wrong("Syntax error") };
                        let access = access.to_ascii_uppercase();
                        if access.is_empty() || !access.chars().all(|c| "RW".contains(c)) {
                            return wrong("Syntax error");
                        }
                        self.add_keys(glob, access.contains('R'), access.contains('W'));
                    }
                    "&" => {}
                    "+" | "-" => {
                        return self
                            .apply_to_commands(rule, sign == "+", rest)
                            .map_or_else(|why| wrong(&why), Ok);
                    }
                    _ => return wrong("Syntax error"),
                }
            }
        }
        Ok(())
    }

    fn apply_to_commands(&mut self, rule: &str, may: bool, what: &str) -> Result<(), String> {
        let what = what.to_ascii_lowercase();
        let rule = rule.to_ascii_lowercase();
        if what == "@all" {
            self.set_commands(&rule, may, |_| true);
        } else if let Some(category) = what.strip_prefix('@') {
            let category = CATEGORIES
                .iter()
                .find(|(name, _)| *name == category)
                .ok_or("Unknown command or category name in ACL")?
                .1;
            self.set_commands(&rule, may, |spec| spec.categories & category != 0);
        } else {
            let command = what.split('|').next().unwrap_or_default();
            let known =
                commands::find(command.as_bytes()).ok_or("Unknown command or category name in ACL")?;
            if command != what {
                return Err("the rule does not distinguish subcommands: name the whole command".into());
            }
            self.set_commands(&rule, may, |spec| spec.name == known.name);
        }
        Ok(())
    }

    fn add_password(&mut self, hash: String) {
        self.no_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: &str) -> Option<()> {
        let at = self.passwords.iter().position(|other| other == hash)?;
        self.passwords.remove(at);
        Some(())
    }

    fn add_keys(&mut self, glob: &str, reads: bool, writes: bool) {
        let pattern = Pattern { glob: glob.into(), reads, writes };
        if !self.keys.contains(&pattern) {
            self.keys.push(pattern);
        }
    }

    /// Returns the user as rules that recreate the user.
    pub fn rules(&self) -> String {
        let mut rules = vec![if self.is_on { "on" } else { "off" }.to_owned()];
        if self.no_password {
            rules.push("nopass".into());
        }
        rules.extend(self.passwords.iter().map(|hash| format!("#{hash}")));
        rules.extend(self.keys.iter().map(Pattern::rule));
        rules.push("resetchannels".into());
        rules.extend(self.command_rules.iter().cloned());
        rules.join(" ")
    }
}

const NO_PASSWORD: &str = "The password you are trying to remove from the user does not exist";

const EMPTY_PASSWORD: &str = "An empty password is no password: use nopass for a user without a password";

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

impl Users {
    /// Creates the default user only, who may run everything: without a password, or with this
    /// password. An empty password is none.
    pub fn new(password: Option<&str>) -> Self {
        let mut user = User::new(DEFAULT);
        for rule in ["on", "allkeys", "allcommands", "nopass"] {
            user.apply(rule).expect("a rule");
        }
        if let Some(password) = password.filter(|password| !password.is_empty()) {
            user.add_password(hash(password.as_bytes()));
        }
        Self { all: Arc::new(RwLock::new([(DEFAULT.to_owned(), Arc::new(user))].into())) }
    }

    // No change of a user is left half done by a panic: a user is replaced as a whole.
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Arc<User>>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Arc<User>>> {
        self.all.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes or creates a user by rules; changes nothing if a rule is invalid.
    pub fn set<'a>(&self, name: &str, rules: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
        let mut user = self.get(name).map_or_else(|| User::new(name), |user| User::clone(&user));
        for rule in rules {
            user.apply(rule)?;
        }
        self.write().insert(name.into(), Arc::new(user));
        Ok(())
    }

    /// Returns a user.
    pub fn get(&self, name: &str) -> Option<Arc<User>> {
        self.read().get(name).cloned()
    }

    /// Returns all users, by name.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.read().values().cloned().collect()
    }

    /// Removes a user; returns whether the user existed.
    pub fn remove(&self, name: &str) -> bool {
        name != DEFAULT && self.write().remove(name).is_some()
    }

    /// Returns the user of a client without login; `None` if a password is required.
    pub fn default_user(&self) -> Option<Arc<User>> {
        self.get(DEFAULT).filter(|user| user.is_on && user.no_password)
    }

    /// Returns a user who can log in without a password, if one exists.
    pub fn without_password(&self) -> Option<Arc<User>> {
        self.read().values().find(|user| user.is_on && user.no_password).cloned()
    }

    /// Returns the user with this name, if the password is right.
    pub fn log_in(&self, name: &str, password: &[u8]) -> Option<Arc<User>> {
        self.get(name).filter(|user| user.accepts(password))
    }
}

/// HTTP has no rights per key: it is for users who may do everything.
impl Access for Users {
    fn is_open(&self) -> bool {
        self.default_user().is_some_and(|user| user.may_all())
    }

    fn accepts(&self, name: &str, password: &[u8]) -> bool {
        self.get(name).is_some_and(|user| user.may_all() && user.accepts(password))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> &'static Spec {
        commands::find(name.as_bytes()).unwrap()
    }

    #[test]
    fn a_user_may_what_the_rules_say() {
        let users = Users::new(None);
        users.set("ada", "on >secret ~doc:* %R~feed +@read +rpush -get".split(' ')).unwrap();
        let ada = users.get("ada").unwrap();
        assert!(ada.may(spec("lrange")) && ada.may(spec("rpush")));
        assert!(!ada.may(spec("get")) && !ada.may(spec("lpush")) && !ada.may_all());
        assert!(ada.may_key(b"doc:7", true) && ada.may_key(b"feed", false));
        assert!(!ada.may_key(b"feed", true) && !ada.may_key(b"other", false));
        assert!(users.log_in("ada", b"secret").is_some());
        assert!(users.log_in("ada", b"wrong").is_none() && users.log_in("bob", b"secret").is_none());
        let rules = ada.rules();
        let again = Users::new(None);
        again.set("ada", rules.split(' ')).unwrap();
        assert_eq!(again.get("ada"), users.get("ada"));
        users.set("ada", ["off"]).unwrap();
        assert!(users.log_in("ada", b"secret").is_none());
    }

    #[test]
    fn a_wrong_rule_changes_nothing() {
        let users = Users::new(Some("pw"));
        assert!(users.default_user().is_none() && users.log_in(DEFAULT, b"pw").is_some_and(|u| u.may_all()));
        let empty = format!("#{}", hash(b""));
        for wrong in ["x", "+nonsense", "+@nonsense", "%X~a", "#abc", "<never", "", "+get|x", ">", &empty] {
            assert!(users.set("eve", ["on", wrong]).is_err(), "{wrong}");
        }
        assert!(users.get("eve").is_none());
    }

    #[test]
    fn an_empty_password_is_none() {
        let users = Users::new(Some(""));
        assert!(users.is_open() && users.without_password().is_some());
        let users = Users::new(Some("pw"));
        assert!(users.without_password().is_none());
        users.set("ada", ["nopass", "off"]).unwrap();
        assert!(users.without_password().is_none());
        users.set("ada", ["on"]).unwrap();
        assert_eq!(users.without_password().unwrap().name, "ada");
    }
}
