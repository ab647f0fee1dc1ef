//! Rules of a space: the retention of the logs whose keys match a pattern.

use crate::error::Error;
use crate::model::retention::Retention;

/// The most rules of a space. Each new log is matched with all of them.
pub(crate) const MAX_RULES: usize = 32;
/// The longest pattern of a rule, in bytes.
pub(crate) const MAX_PATTERN: usize = 128;
/// The byte of a pattern that matches any bytes.
const ANY: u8 = b'*';

/// The retention of the logs of a space whose keys match a pattern. See
/// [`SpaceConfig::retention_for`](crate::SpaceConfig::retention_for).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionRule {
    /// The pattern of the keys, without the name of the space and the slash: from 1 to 128 bytes.
    /// A `*` matches any number of bytes, also none, and also slashes. All other bytes match
    /// themselves.
    pub pattern: Vec<u8>,
    /// The retention of each log whose key matches. It may be without a limit.
    pub retention: Retention,
}

impl RetentionRule {
    /// Returns whether the key of a log, without the name of its space, matches.
    pub(crate) fn matches(&self, key: &[u8]) -> bool {
        let mut pieces = self.pattern.split(|byte| *byte == ANY);
        let Some(mut rest) = pieces.next().and_then(|first| key.strip_prefix(first)) else { return false };
        let Some(last) = pieces.next_back() else { return rest.is_empty() };
        let Some(middle) = rest.strip_suffix(last) else { return false };
        rest = middle;
        // The leftmost match of a piece leaves the most bytes to the pieces after it.
        pieces.filter(|piece| !piece.is_empty()).all(|piece| {
            let at = rest.windows(piece.len()).position(|bytes| bytes == piece);
            rest = at.map_or(&[], |at| &rest[at + piece.len()..]);
            at.is_some()
        })
    }

    /// Returns an error if the rules of space `name` are invalid.
    pub(crate) fn check_all(rules: &[Self], name: &str) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::InvalidSpace(why));
        if rules.len() > MAX_RULES {
            let n = rules.len();
            return wrong(format!("{n} retention rules for space {name}: use at most {MAX_RULES}"));
        }
        for (n, Self { pattern, retention }) in rules.iter().enumerate() {
            let shown = pattern.escape_ascii();
            if pattern.is_empty() || pattern.len() > MAX_PATTERN {
                let len = pattern.len();
                return wrong(format!(
                    "a pattern of {len} bytes for space {name}: use 1 to {MAX_PATTERN} bytes"
                ));
            }
            if rules[..n].iter().any(|other| other.pattern == *pattern) {
                return wrong(format!(
                    "the pattern \"{shown}\" occurs twice for space {name}: the second rule has no effect"
                ));
            }
            retention.check()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, key: &str) -> bool {
        let rule = RetentionRule { pattern: pattern.into(), retention: Retention::new() };
        rule.matches(key.as_bytes())
    }

    #[test]
    fn a_star_matches_any_bytes() {
        for (pattern, key, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a", "", false),
            ("*", "", true),
            ("*", "a/b", true),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*a", "aba", true),
            ("a*b*a", "aa", false),
            ("a*bb*b", "abbb", true),
            ("a*bb*b", "abb", false),
            ("**", "x", true),
            ("a**b", "ab", true),
            ("*/feed/*", "x/feed/y", true),
            ("*/feed/*", "feed/y", false),
        ] {
            assert_eq!(matches(pattern, key), expected, "{pattern:?} {key:?}");
        }
    }

    /// Matches as the definition says.
    fn by_definition(pattern: &[u8], key: &[u8]) -> bool {
        match pattern.split_first() {
            None => key.is_empty(),
            Some((&ANY, rest)) => (0..=key.len()).any(|from| by_definition(rest, &key[from..])),
            Some((byte, rest)) => {
                key.split_first().is_some_and(|(first, key)| first == byte && by_definition(rest, key))
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn patterns_match_as_defined(pattern in "[ab*]{0,6}", key in "[ab]{0,8}") {
            let expected = by_definition(pattern.as_bytes(), key.as_bytes());
            assert_eq!(matches(&pattern, &key), expected, "{pattern:?} {key:?}");
        }
    }
}
