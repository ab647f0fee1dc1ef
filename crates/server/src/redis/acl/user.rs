//! A user: the passwords and the rights.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::selector::{Denied, Selector};
use crate::redis::commands::{Channels, Spec};
use crate::redis::pubsub::{Kind, Subscriptions};

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
    /// The rights that no parentheses enclose.
    pub root: Selector,
    /// The rights in parentheses.
    pub selectors: Vec<Selector>,
    may_all: bool,
}

const NO_PASSWORD: &str = "The password you are trying to remove from the user does not exist";
const EMPTY_PASSWORD: &str = "An empty password is no password: use nopass for a user without a password";
const NO_HASH: &str =
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters";

fn hash(password: &[u8]) -> String {
    Sha256::digest(password).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_hash(text: &str) -> Result<(), &'static str> {
    let is_hash = text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if is_hash { Ok(()) } else { Err(NO_HASH) }
}

impl User {
    /// Creates a user without rights and passwords.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            is_on: false,
            no_password: false,
            passwords: Vec::new(),
            root: Selector::new(),
            selectors: Vec::new(),
            may_all: false,
        }
    }

    /// Returns whether the user may run all commands on all keys.
    pub fn may_all(&self) -> bool {
        self.may_all
    }

    /// Returns whether the user may run a request, and could read any key with it.
    pub fn may_read_all(&self, spec: &Spec, request: &[Bytes]) -> bool {
        self.may_all
            || std::iter::once(&self.root)
                .chain(&self.selectors)
                .any(|selector| selector.may_read_all(spec, request))
    }

    /// Returns an error if the user may not run a request. Of several reasons, it is the reason of
    /// the selector that came nearest to a permission.
    pub fn check(&self, spec: &Spec, request: &[Bytes]) -> Result<(), Denied> {
        if self.may_all && spec.channels == Channels::None {
            return Ok(());
        }
        let mut nearest: Option<Denied> = None;
        for selector in self.all_selectors() {
            let Err(denied) = selector.check(spec, request) else { return Ok(()) };
            if nearest.as_ref().is_none_or(|nearest| denied.nearness() > nearest.nearness()) {
                nearest = Some(denied);
            }
        }
        nearest.map_or(Ok(()), Err)
    }

    fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Returns whether the user has the right to all of these subscriptions.
    pub fn may_keep(&self, subscriptions: &Subscriptions) -> bool {
        let may = |kind, name: &[u8]| {
            self.all_selectors().any(|selector| selector.may_channel(name, kind == Kind::Pattern))
        };
        Kind::ALL.into_iter().all(|kind| subscriptions.of(kind).iter().all(|name| may(kind, name)))
    }

    /// Returns whether the user accepts this password.
    pub fn accepts(&self, password: &[u8]) -> bool {
        // The comparison of hashes reveals nothing about the password's beginning.
        self.is_on && (self.no_password || self.passwords.contains(&hash(password)))
    }

    /// Applies rules in Redis's language.
    pub fn apply(&mut self, rules: &[&str]) -> Result<(), String> {
        for rule in joined(rules)? {
            self.apply_one(&rule).map_err(|why| format!("Error in ACL SETUSER modifier '{rule}': {why}"))?;
        }
        let may_all = self.all_selectors().any(Selector::may_all);
        self.may_all = may_all;
        Ok(())
    }

    fn apply_one(&mut self, rule: &str) -> Result<(), &'static str> {
        match rule.to_ascii_lowercase().as_str() {
            "" | "sanitize-payload" | "skip-sanitize-payload" => {}
            "on" => self.is_on = true,
            "off" => self.is_on = false,
            "nopass" => (self.no_password, self.passwords) = (true, Vec::new()),
            "resetpass" => (self.no_password, self.passwords) = (false, Vec::new()),
            "clearselectors" => self.selectors.clear(),
            "reset" => *self = Self::new(&self.name),
            _ => {
                let (sign, rest) = rule.split_at_checked(1).unwrap_or(("", ""));
                match sign {
                    ">" if rest.is_empty() => return Err(EMPTY_PASSWORD),
                    ">" => self.add_password(hash(rest.as_bytes())),
                    "<" => return self.remove_password(&hash(rest.as_bytes())),
                    "#" if rest == hash(b"") => return Err(EMPTY_PASSWORD),
                    "#" => {
                        check_hash(rest)?;
                        self.add_password(rest.into());
                    }
                    "!" => {
                        check_hash(rest)?;
                        return self.remove_password(rest);
                    }
                    "(" if rule.ends_with(')') => {
                        let mut selector = Selector::new();
                        let inner = rule[1..rule.len() - 1].split(' ').filter(|rule| !rule.is_empty());
                        for rule in inner {
                            selector.apply(rule)?;
                        }
                        self.selectors.push(selector);
                    }
                    _ => return self.root.apply(rule),
                }
            }
        }
        Ok(())
    }

    fn add_password(&mut self, hash: String) {
        self.no_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: &str) -> Result<(), &'static str> {
        let at = self.passwords.iter().position(|other| other == hash).ok_or(NO_PASSWORD)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// Returns the user as rules that recreate the user.
    pub fn rules(&self) -> String {
        let mut rules = vec![if self.is_on { "on" } else { "off" }.to_owned()];
        if self.no_password {
            rules.push("nopass".into());
        }
        rules.extend(self.passwords.iter().map(|hash| format!("#{hash}")));
        rules.push(self.root.all_rules());
        rules.extend(self.selectors.iter().map(|selector| format!("({})", selector.all_rules())));
        rules.join(" ")
    }
}

/// Joins the words of each selector in parentheses to one rule.
fn joined(rules: &[&str]) -> Result<Vec<String>, String> {
    let mut joined = Vec::new();
    let mut rules = rules.iter();
    while let Some(first) = rules.next() {
        let mut rule = (*first).to_owned();
        while rule.starts_with('(') && !rule.ends_with(')') {
            let Some(next) = rules.next() else {
                return Err(format!("Unmatched parenthesis in acl selector starting at '{first}'."));
            };
            rule.push(' ');
            rule.push_str(next);
        }
        joined.push(rule);
    }
    Ok(joined)
}
