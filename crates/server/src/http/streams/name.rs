//! The names of streams, and the keys of a stream's logs.
//!
//! A stream `a/b` is the log `streams/a/b`, whose entries are the stream's messages. Its metadata
//! is in the log `streams/__ds/about/a/b`. If the stream can expire, the log
//! `streams/__ds/due/<minute>/a/b` marks the minute. The protocol reserves names that begin with
//! `__ds`, so no stream conflicts with these logs. All of them are in one space, so that a commit
//! on several of them is possible in every class of the space; they also count together in its
//! quotas. A retention of the space applies to messages: metadata is exempt. But a retention that
//! is set later applies to all existing logs, also to metadata, and would remove entries that
//! streams need. So the retention must be set first.

use percent_encoding::percent_decode_str;

use crate::http::reply::Refusal;

/// The space that streams are in.
pub const SPACE: &str = "streams";
/// What the keys of all logs begin with that tell when a stream is due.
pub const DUE: &str = "streams/__ds/due/";
/// The first segment of names that the protocol keeps for itself.
const RESERVED: &str = "__ds";
/// Longest name, in bytes: the longest key that is made of it must be one.
const MAX_NAME: usize = brooklet::MAX_KEY - DUE.len() - 11;

/// The name of a stream: not empty, without control characters, and none of those that are
/// reserved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// The stream that a path of a URL names, if streams lie at `prefix`.
    pub fn of_path(path: &str, prefix: &str) -> Result<Self, Refusal> {
        let Some(rest) = path.strip_prefix(prefix) else {
            return Err(Refusal::invalid(format!(
                "{path} is not the path of a stream: begin it with {prefix}"
            )));
        };
        let name = percent_decode_str(rest).decode_utf8();
        let name =
            name.map_err(|_| Refusal::invalid(format!("{rest} is not UTF-8: encode the name as UTF-8")))?;
        Self::new(&name)
    }

    /// A name, if it is one.
    pub fn new(name: &str) -> Result<Self, Refusal> {
        if name.is_empty() || name.len() > MAX_NAME {
            let len = name.len();
            let why = format!("a name of {len} bytes is not allowed: use 1 to {MAX_NAME} bytes");
            return Err(Refusal::invalid(why));
        }
        if name.chars().any(char::is_control) {
            let why = format!("{name:?} holds a control character: leave it out");
            return Err(Refusal::invalid(why));
        }
        if name.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(Refusal::invalid(format!("{name} has a segment . or ..: leave it out")));
        }
        if name.split('/').next() == Some(RESERVED) {
            let why = format!(
                "{name} is reserved by the protocol for subscriptions, which this server does not offer"
            );
            return Err(Refusal::unsupported(why));
        }
        Ok(Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The log of its messages.
    pub fn data(&self) -> String {
        format!("{SPACE}/{}", self.0)
    }

    /// The log of what else is known of it.
    pub fn metadata(&self) -> String {
        format!("{SPACE}/{RESERVED}/about/{}", self.0)
    }

    /// The log that has it looked at in this minute since the Unix epoch.
    pub fn due(&self, minute: u64) -> String {
        format!("{DUE}{minute:010}/{}", self.0)
    }

    /// The stream that a log belongs to, if the log shows something of a stream.
    pub fn of_log(key: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(key).ok()?.strip_prefix(SPACE)?.strip_prefix('/')?;
        let about = name.strip_prefix(RESERVED).and_then(|rest| rest.strip_prefix("/about/"));
        Self::new(about.unwrap_or(name)).ok()
    }

    /// The stream and the minute that such a log tells.
    pub fn of_due(key: &[u8]) -> Option<(u64, Self)> {
        let (minute, name) = std::str::from_utf8(key).ok()?.strip_prefix(DUE)?.split_once('/')?;
        Some((minute.parse().ok()?, Self::new(name).ok()?))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_stream_or_says_why_not() {
        let of = |path| Name::of_path(path, "/v1/stream/");
        assert_eq!(of("/v1/stream/a%20b/c").unwrap().as_str(), "a b/c");
        for path in ["/v1/stream/", "/other/a", "/v1/stream/a/../b", "/v1/stream/%ff", "/v1/stream/a%00"] {
            assert_eq!(of(path).unwrap_err().status.as_u16(), 400, "{path}");
        }
        for path in ["/v1/stream/__ds", "/v1/stream/__ds%2Fabout/a"] {
            assert_eq!(of(path).unwrap_err().status.as_u16(), 501, "{path}");
        }
        assert!(of("/v1/stream/__dss").is_ok());
    }

    #[test]
    fn the_longest_name_makes_keys_that_are_allowed() {
        let name = Name::new(&"x".repeat(MAX_NAME)).unwrap();
        for key in [name.data(), name.metadata(), name.due(9_999_999_999)] {
            assert!(key.len() <= brooklet::MAX_KEY);
        }
        assert!(Name::new(&"x".repeat(MAX_NAME + 1)).is_err());
        assert_eq!(Name::of_due(name.due(7).as_bytes()), Some((7, name)));
    }
}
