//! Users, their passwords, and their rights to commands and keys.

mod log;
mod selector;
mod user;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::http::Access;
pub use log::{Entry, Log};
pub use selector::{Denied, Selector};
pub use user::User;

/// The users of a server. Clones are handles to the same users, so that both frontends see a change
/// at once.
#[derive(Clone, Debug)]
pub struct Users {
    all: Arc<RwLock<BTreeMap<String, Arc<User>>>>,
}

/// The user of clients that have not logged in.
pub const DEFAULT: &str = "default";

impl Users {
    /// Creates the default user only, who may run everything: without a password, or with this
    /// password. An empty password is none.
    pub fn new(password: Option<&str>) -> Self {
        let mut user = User::new(DEFAULT);
        let password = password.filter(|password| !password.is_empty());
        let password = password.map_or_else(|| "nopass".into(), |password| format!(">{password}"));
        user.apply(&["on", "allkeys", "allchannels", "allcommands", &password]).expect("rules");
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
        if name.bytes().any(|byte| byte == 0 || byte.is_ascii_whitespace() || byte == 0x0b) {
            return Err("Usernames can't contain spaces or null characters".into());
        }
        user.apply(&rules.into_iter().collect::<Vec<_>>())?;
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
    use bytes::Bytes;

    use super::*;
    use crate::redis::commands;

    fn ada(rules: &str) -> Arc<User> {
        let users = Users::new(None);
        users.set("ada", rules.split(' ')).unwrap();
        let ada = users.get("ada").unwrap();
        // The rules that are shown recreate the user.
        let again = Users::new(None);
        again.set("ada", ada.rules().split(' ')).unwrap();
        assert_eq!(again.get("ada").unwrap(), ada);
        ada
    }

    fn may(user: &User, request: &str) -> bool {
        let request: Vec<Bytes> = request.split(' ').map(|word| Bytes::from(word.to_owned())).collect();
        user.check(commands::resolve(&request).unwrap(), &request).is_ok()
    }

    #[test]
    fn a_user_may_what_the_rules_say() {
        let user = ada("on >secret ~doc:* %R~feed +@read +rpush +config|get -get");
        for request in ["LRANGE doc:7 0 1", "rpush doc:7 x", "lrange feed 0 1", "CONFIG GET x", "auth a b"] {
            assert!(may(&user, request), "{request}");
        }
        for request in
            ["get doc:7", "lpush doc:7 x", "rpush feed x", "lrange other 0 1", "config set a b", "config"]
        {
            assert!(!may(&user, request), "{request}");
        }
        assert!(!user.may_all());
    }

    #[test]
    fn a_right_to_a_key_is_for_reads_or_writes_or_both() {
        let user = ada("on nopass %R~r* %W~w* ~b* %R~two %W~two +@all -client|kill");
        let yes = [
            "get r",
            "set w 1",
            "get b",
            "set b 1",
            "getdel b",
            "set b 1 get",
            "exists w",
            "copy r w",
            "rename b w",
            "lmove b w left left",
            "lpop b",
            "xreadgroup group g c streams r >",
            "getdel two",
            "client list",
            "mget r b two",
            "del w",
            "memory usage w",
        ];
        let no = [
            "get w",
            "set r 1",
            "getdel w",
            "getdel r",
            "set w 1 get",
            "exists x",
            "copy w w",
            "copy r r",
            "rename w b",
            "rename r b",
            "lmove b r left left",
            "lpop w",
            "xreadgroup group g c streams w >",
            "client kill 1",
            "mget r b w",
            "del r",
            "object encoding x",
        ];
        yes.iter().for_each(|request| assert!(may(&user, request), "{request}"));
        no.iter().for_each(|request| assert!(!may(&user, request), "{request}"));
    }

    #[test]
    fn a_request_needs_one_selector_that_gives_all_of_it() {
        let user = ada("on ~a +get (~b* +set) (~c +get +set)");
        assert!(may(&user, "get a") && may(&user, "set b1 1") && may(&user, "set c 1"));
        assert!(!may(&user, "set a 1") && !may(&user, "get b1") && !may(&user, "lpop c"));
        let denied = |request: [&'static str; 2]| {
            let request = request.map(Bytes::from);
            user.check(commands::resolve(&request).unwrap(), &request).unwrap_err()
        };
        assert_eq!(denied(["lpop", "a"]), Denied::Command);
        assert_eq!(denied(["get", "x"]), Denied::Key { at: 0, name: "x".into() });
        assert!(ada("on (~* +@all)").may_all());
    }

    #[test]
    fn logins_take_the_password() {
        let users = Users::new(None);
        users.set("ada", ["on", ">secret", "~(", "+get"]).unwrap();
        assert!(users.log_in("ada", b"secret").is_some());
        assert!(users.log_in("ada", b"wrong").is_none() && users.log_in("bob", b"secret").is_none());
        users.set("ada", ["off"]).unwrap();
        assert!(users.log_in("ada", b"secret").is_none());
    }

    #[test]
    fn a_wrong_rule_changes_nothing() {
        let users = Users::new(Some("pw"));
        assert!(users.default_user().is_none() && users.log_in(DEFAULT, b"pw").is_some_and(|u| u.may_all()));
        let empty = format!("#{}", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        for wrong in [
            "x",
            "+nonsense",
            "+@nonsense",
            "%X~a",
            "%~a",
            "%R",
            "#abc",
            "<never",
            "!abc",
            "+get|x|y",
            "-get|x",
            "+config|x",
            "+config|get|x",
            ">",
            &empty,
            "(+get",
            "(x)",
            "~a b",
            "&a b",
        ] {
            assert!(users.set("eve", ["on", wrong]).is_err(), "{wrong}");
        }
        assert!(users.set("eve", ["~*", "~a"]).is_err() && users.set("eve", ["&*", "&a"]).is_err());
        assert!(users.set("e v", ["on"]).is_err() && users.get("eve").is_none());
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
