//! The address of a log in JetStream.

use std::fmt;
use std::path::PathBuf;

use async_nats::{ConnectOptions, ServerAddr};

use crate::error::Error;

/// Copies of a stream, unless the address says otherwise: a server may be lost, and none of what
/// was acknowledged.
const REPLICAS: usize = 3;
/// Most copies of a stream.
const MOST_REPLICAS: usize = 5;

/// A place for a log:
/// `nats://[USER:PASSWORD@|TOKEN@]HOST:PORT[,HOST:PORT…]/STREAM[?SETTING=VALUE&…]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub servers: Vec<String>,
    pub stream: String,
    pub replicas: usize,
    pub needs_tls: bool,
    /// A file with certificates that count as roots, in place of those of the system.
    pub roots: Option<PathBuf>,
    login: Login,
}

#[derive(Clone, Default, PartialEq, Eq)]
enum Login {
    #[default]
    None,
    Token(String),
    User(String, String),
}

impl Address {
    /// Returns whether a text is meant as an address of a log in JetStream.
    pub fn is_one(text: &str) -> bool {
        split(text).is_some()
    }

    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Address { address: shown(text), why: why.into() };
        let (scheme, rest) = split(text).ok_or_else(|| wrong("it begins neither with nats:// nor tls://"))?;
        let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(login, rest)| (Some(login), rest));
        let (hosts, stream) = rest.split_once('/').ok_or_else(|| wrong("it names no stream"))?;
        let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
        if stream.is_empty() || stream.len() > 64 || !stream.chars().all(is_name) {
            return Err(wrong("the name of a stream has 1 to 64 letters, digits, - and _"));
        }
        let mut servers = Vec::new();
        for host in hosts.split(',') {
            let server = format!("{scheme}://{host}");
            if host.is_empty() || server.parse::<ServerAddr>().is_err() {
                return Err(wrong("it needs HOST:PORT, or several, with commas between them"));
            }
            servers.push(server);
        }
        let login = match login.map(|login| login.split_once(':').ok_or(login)) {
            None => Login::None,
            Some(Ok((user, password))) => Login::User(plain(user), plain(password)),
            Some(Err(token)) => Login::Token(plain(token)),
        };
        let stream = stream.to_owned();
        let needs_tls = scheme == "tls";
        let mut address = Self { servers, stream, replicas: REPLICAS, needs_tls, roots: None, login };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some(("replicas", number)) => {
                    let number = number.parse().ok().filter(|number| (1..=MOST_REPLICAS).contains(number));
                    address.replicas = number.ok_or_else(|| wrong("replicas is a number from 1 to 5"))?;
                }
                Some(("ca", file)) if !file.is_empty() => address.roots = Some(plain(file).into()),
                _ => return Err(wrong("its settings are replicas=N and ca=FILE")),
            }
        }
        Ok(address)
    }

    /// Returns the settings of a connection.
    pub fn connection(&self) -> ConnectOptions {
        let options = match self.login.clone() {
            Login::None => ConnectOptions::new(),
            Login::Token(token) => ConnectOptions::with_token(token),
            Login::User(user, password) => ConnectOptions::with_user_and_password(user, password),
        };
        let options = options.require_tls(self.needs_tls);
        match &self.roots {
            Some(file) => options.add_root_certificates(file.clone()),
            None => options,
        }
    }
}

/// Shows no password and no token.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.servers.iter().filter_map(|server| server.split("://").nth(1)).collect();
        let scheme = if self.needs_tls { "tls" } else { "nats" };
        write!(f, "{scheme}://{}/{}", hosts.join(","), self.stream)
    }
}

/// Returns an address without the password or token in it.
fn shown(text: &str) -> String {
    match split(text).and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?))) {
        Some((scheme, (_, rest))) => format!("{scheme}://(hidden)@{rest}"),
        None => text.into(),
    }
}

fn split(text: &str) -> Option<(&str, &str)> {
    text.split_once("://").filter(|(scheme, _)| matches!(*scheme, "nats" | "tls"))
}

/// Decodes `%40` and the like.
fn plain(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
        Address::parse(text).map(|address| address.to_string()).unwrap_err().to_string()
    }

    #[test]
    fn addresses_name_servers_and_a_stream() {
        let address = Address::parse("nats://a:4222,[::1]:4223/logs").unwrap();
        assert_eq!(address.servers, ["nats://a:4222", "nats://[::1]:4223"]);
        assert_eq!((&address.stream[..], address.replicas, address.needs_tls), ("logs", 3, false));
        assert_eq!(address.to_string(), "nats://a:4222,[::1]:4223/logs");
        let address = Address::parse("tls://t%6Fken@a/l-1_2?replicas=1&ca=/etc/a%20b.pem").unwrap();
        assert_eq!((address.replicas, address.needs_tls), (1, true));
        assert_eq!(address.roots, Some("/etc/a b.pem".into()));
        assert!(address.login == Login::Token("token".into()));
        let address = Address::parse("nats://me:p%40ss:w@rd@a/logs").unwrap();
        assert!(address.login == Login::User("me".into(), "p@ss:w@rd".into()));
        assert!(Address::is_one("tls://") && !Address::is_one("s3://a/b") && !Address::is_one("nats/a"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for (text, expected) in [
            ("s3://bucket/logs", "neither with nats:// nor tls://"),
            ("nats://a:4222", "names no stream"),
            ("nats://a:4222/", "1 to 64 letters"),
            ("nats://a:4222/two.parts", "1 to 64 letters"),
            ("nats://a:4222/two/parts", "1 to 64 letters"),
            ("nats:///logs", "needs HOST:PORT"),
            ("nats://a:4222,/logs", "needs HOST:PORT"),
            ("nats://a:port/logs", "needs HOST:PORT"),
            ("nats://a/logs?replicas=6", "from 1 to 5"),
            ("nats://a/logs?replica=1", "replicas=N and ca=FILE"),
        ] {
            assert!(why(text).contains(expected), "{text}: {}", why(text));
        }
    }

    #[test]
    fn passwords_and_tokens_are_hidden() {
        for text in ["nats://me:sesame@a/b.c", "nats://sesame@a/b.c", "tls://me:s@sesame@a/b.c"] {
            let why = why(text);
            assert!(!why.contains("sesame") && why.contains("://(hidden)@a/b.c"), "{why}");
        }
        let address = Address::parse("nats://me:sesame@a/b").unwrap();
        assert_eq!(address.to_string(), "nats://a/b");
        assert_eq!(shown("s3://a@b/c"), "s3://a@b/c");
    }
}
