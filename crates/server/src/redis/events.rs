//! The classes of keyspace notifications, in Redis's letters.

use std::fmt;

/// A set of classes, and of the two kinds of channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(u32);

/// Channels of keys: `__keyspace@0__:key`, with events as messages.
pub const KEYSPACE: Events = Events(1);
/// Channels of events: `__keyevent@0__:event`, with keys as messages.
pub const KEYEVENT: Events = Events(2);
/// Commands for keys of any type.
pub const GENERIC: Events = Events(4);
/// Commands for strings.
pub const STRING: Events = Events(8);
/// Commands for lists.
pub const LIST: Events = Events(16);
/// Commands for hashes.
pub const HASH: Events = Events(64);
/// Keys that expire.
pub const EXPIRED: Events = Events(256);
/// Commands for streams.
pub const STREAM: Events = Events(1024);
/// Commands that read a key that does not exist.
pub const MISS: Events = Events(2048);
/// New keys.
pub const NEW: Events = Events(16384);
/// What only commands do to keys.
pub const COMMANDS: Events = Events(4 + 8 + 16 + 64 + 1024 + 2048 + 16384);

/// The classes that `A` means.
const ALL: Events = Events(4 + 8 + 16 + 32 + 64 + 128 + 256 + 512 + 1024 + 8192);

/// The letters in the order of Redis, with the classes that have no events here.
const LETTERS: [(char, Events); 14] = [
    ('g', GENERIC),
    ('$', STRING),
    ('l', LIST),
    ('s', Events(32)),
    ('h', HASH),
    ('z', Events(128)),
    ('x', EXPIRED),
    ('e', Events(512)),
    ('t', STREAM),
    ('d', Events(8192)),
    ('n', NEW),
    ('K', KEYSPACE),
    ('E', KEYEVENT),
    ('m', MISS),
];

impl Events {
    /// No events.
    pub const NONE: Self = Self(0);

    /// Returns the classes of these letters; `None` if a letter is unknown.
    pub fn parse(text: &str) -> Option<Self> {
        let class = |letter| match letter {
            'A' => Some(ALL.0),
            _ => LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, class)| class.0),
        };
        text.chars().map(class).try_fold(0, |all, one| Some(all | one?)).map(Self)
    }

    /// Returns whether any of some classes is in this set.
    pub fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_all = self.0 & ALL.0 == ALL.0;
        if has_all {
            f.write_str("A")?;
        }
        let shown = LETTERS.iter().filter(|(_, class)| self.has(*class) && !(has_all && ALL.has(*class)));
        shown.into_iter().try_for_each(|(letter, _)| write!(f, "{letter}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Redis 7.0.15 answers, except that `An` keeps its `n`.
    #[test]
    fn letters_are_told_as_redis_tells_them() {
        for (given, told) in [
            ("", ""),
            ("KEA", "AKE"),
            ("Kx", "xK"),
            ("Elg", "glE"),
            ("Kh$", "$hK"),
            ("Kn", "nK"),
            ("Km", "Km"),
            ("KEg$lshzxetdmn", "AnKEm"),
        ] {
            assert_eq!(
                Events::parse(given).map(|events| events.to_string()).as_deref(),
                Some(told),
                "{given}"
            );
        }
        assert_eq!(Events::parse("Ky"), None);
    }
}
