//! The bytes of the table of spaces, and of changes to it. Only this module describes them.
//!
//! ```text
//! table   = version (1 byte: 1), number that the next space gets (varint), number of spaces (varint), spaces by name
//! changes = version (1 byte: 2), number that the next space gets (varint), changes up to the end
//!           (since format 7 of the store)
//! change  = kind (1 byte: 1 adds or replaces, 2 removes); space (adds), or length of the name (1 byte), name (removes)
//! space   = length of the name (1 byte), name, its own number (varint),
//!           class (1 byte: 0 durable, 1 deferred, 2 in memory), [bound in milliseconds (varint): deferred],
//!           [bytes of memory (varint), 1 byte: 0 refuses when that is full, 1 drops the oldest, milliseconds from one dump to
//!           the next (varint; 0: none): in memory],
//!           flags (1 byte: 1 most logs, 2 most bytes, 4 most entries of a log, 8 most bytes of a log, 16 age in a log,
//!           32 all of its logs are counted, 64 it has rules, since format 7 of the store),
//!           a varint for each of the first five (the age in milliseconds), [number of rules (varint), rules],
//!           logs counted, bytes counted (varints; 0 in a change)
//! rule    = length of the pattern (varint), pattern, flags (1 byte: 1 most entries, 2 most bytes, 4 age),
//!           a varint for each of them (the age in milliseconds)
//! ```

use std::time::Duration;

use brooklet_io::seeded::bug;
use brooklet_wal::{put_varint, take_varint};

use crate::model::retention::Retention;
use crate::model::retention_rule::{MAX_RULES, RetentionRule};
use crate::model::space_config::{Class, MAX_SPACES, MemoryConfig, SpaceConfig, WhenFull};
use crate::state::spaces::{Space, Totals};

const TABLE: u8 = 1;
const CHANGES: u8 = 2;
const PUT: u8 = 1;
const REMOVE: u8 = 2;

/// Maximum bytes of the two totals of a space.
const TOTALS: usize = 2 * 10;
/// Maximum bytes of a table before its spaces.
const HEAD: usize = 1 + 2 * 10;

/// A change to the table.
#[derive(Debug)]
pub(crate) enum Change {
    Put(Box<Space>),
    Remove(Box<[u8]>),
}

/// Decoded bytes of the table's log, with the number that the next space gets.
pub(super) enum Decoded {
    Table(u64, Vec<Space>),
    Changes(u64, Vec<Change>),
}

/// Returns the maximum bytes of a table whose spaces take `fixed` bytes without their totals.
pub(super) fn bound(spaces: usize, fixed: usize) -> usize {
    HEAD + fixed + spaces * TOTALS
}

/// Returns the bytes that a space takes without its totals.
pub(super) fn fixed_len(space: &Space) -> usize {
    let mut len = 0;
    put_fixed(&mut |bytes| len += bytes.len(), space);
    len
}

pub(super) fn encode_table<'a>(next: u64, spaces: impl ExactSizeIterator<Item = &'a Space>) -> Vec<u8> {
    let mut out = vec![TABLE];
    put(&mut out, next);
    put(&mut out, spaces.len() as u64);
    for space in spaces {
        put_space(&mut out, space, space.count.totals);
    }
    out
}

pub(super) fn encode_changes(next: u64, changes: &[Change]) -> Vec<u8> {
    let mut out = vec![CHANGES];
    put(&mut out, next);
    for change in changes {
        match change {
            Change::Put(space) => {
                out.push(PUT);
                put_space(&mut out, space, Totals::default());
            }
            Change::Remove(name) => {
                out.extend_from_slice(&[REMOVE, name.len() as u8]);
                out.extend_from_slice(name);
            }
        }
    }
    out
}

/// Decodes an entry of the table's log. Returns `None` if the entry is malformed.
pub(super) fn decode(entry: &[u8]) -> Option<Decoded> {
    let (version, mut rest) = entry.split_first()?;
    let rest = &mut rest;
    let next = take_varint(rest)?;
    match *version {
        TABLE => {
            let count = take_varint(rest)?;
            let mut spaces: Vec<Space> = Vec::with_capacity(count.min(MAX_SPACES as u64) as usize);
            for _ in 0..count {
                let space = take_space(rest)?;
                let in_order = spaces.last().is_none_or(|last| *last.name < *space.name);
                if !in_order || !(1..next).contains(&space.number()) {
                    return None;
                }
                spaces.push(space);
            }
            rest.is_empty().then_some(Decoded::Table(next, spaces))
        }
        CHANGES => {
            let mut changes = Vec::new();
            while !rest.is_empty() {
                changes.push(match take_byte(rest)? {
                    PUT => {
                        let space = take_space(rest).filter(|space| (1..next).contains(&space.number()))?;
                        Change::Put(space.into())
                    }
                    REMOVE => Change::Remove(take_name(rest)?.into()),
                    _ => return None,
                });
            }
            Some(Decoded::Changes(next, changes))
        }
        _ => None,
    }
}

fn put(out: &mut Vec<u8>, number: u64) {
    put_varint(&mut |bytes| out.extend_from_slice(bytes), number);
}

fn put_fixed(out: &mut impl FnMut(&[u8]), space: &Space) {
    let Space { name, config, counted, .. } = space;
    out(&[name.len() as u8]);
    out(name);
    put_varint(out, space.number());
    match config.class {
        Class::Durable => out(&[0]),
        Class::Deferred(bound) => {
            out(&[1]);
            put_varint(out, bound.as_millis() as u64);
        }
        Class::Memory(MemoryConfig { bytes, when_full, dump_every }) => {
            out(&[2]);
            put_varint(out, bytes);
            out(&[u8::from(when_full == WhenFull::DropOldest)]);
            put_varint(out, dump_every.map_or(0, |every| every.as_millis() as u64));
        }
    }
    let [entries, bytes, age] = limits_of(config.retention);
    let rules = if bug("rules-are-not-stored") { &[] } else { &*config.rules };
    let more = u8::from(*counted) << 5 | u8::from(!rules.is_empty()) << 6;
    put_limits(out, &[config.max_logs, config.max_bytes, entries, bytes, age], more);
    if !rules.is_empty() {
        put_varint(out, rules.len() as u64);
    }
    for RetentionRule { pattern, retention } in rules {
        put_varint(out, pattern.len() as u64);
        out(pattern);
        put_limits(out, &limits_of(*retention), 0);
    }
}

fn limits_of(Retention { entries, bytes, age }: Retention) -> [Option<u64>; 3] {
    [entries, bytes, age.map(|age| age.as_millis() as u64)]
}

/// Writes flags, from bit 0 on for the limits that are set, and these limits.
fn put_limits(out: &mut impl FnMut(&[u8]), limits: &[Option<u64>], more_flags: u8) {
    let set = limits.iter().zip(0..).map(|(limit, bit)| u8::from(limit.is_some()) << bit).sum::<u8>();
    out(&[set | more_flags]);
    limits.iter().flatten().for_each(|limit| put_varint(out, *limit));
}

fn put_space(out: &mut Vec<u8>, space: &Space, totals: Totals) {
    put_fixed(&mut |bytes| out.extend_from_slice(bytes), space);
    put(out, totals.logs);
    put(out, totals.bytes);
}

fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    let (&byte, after) = rest.split_first()?;
    *rest = after;
    Some(byte)
}

fn take_name<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take_byte(rest)?;
    let (name, after) = rest.split_at_checked(len.into())?;
    *rest = after;
    Some(name)
}

fn take_space(rest: &mut &[u8]) -> Option<Space> {
    let name = take_name(rest)?;
    let number = take_varint(rest)?;
    let class = match take_byte(rest)? {
        0 => Class::Durable,
        1 => Class::Deferred(Duration::from_millis(take_varint(rest)?)),
        2 => {
            let bytes = take_varint(rest)?;
            let when_full =
                [WhenFull::Refuse, WhenFull::DropOldest].get(usize::from(take_byte(rest)?)).copied()?;
            let every = Some(take_varint(rest)?).filter(|every| *every > 0).map(Duration::from_millis);
            Class::Memory(MemoryConfig { bytes, when_full, dump_every: every })
        }
        _ => return None,
    };
    let flags = take_byte(rest)?;
    let [max_logs, max_bytes] = take_limits(rest, flags)?;
    let retention = take_retention(rest, flags >> 2)?;
    let rules = if flags & 64 != 0 { take_rules(rest)? } else { Vec::new() };
    let config = SpaceConfig { class, max_logs, max_bytes, retention, rules };
    let totals = Totals { logs: take_varint(rest)?, bytes: take_varint(rest)? };
    let lawful = config.check(std::str::from_utf8(name).ok()?).is_ok() && flags < 128;
    lawful.then(|| Space::new(name, number, config, flags & 32 != 0, totals))
}

/// Takes the limits that the flags name, from bit 0 on.
fn take_limits<const N: usize>(rest: &mut &[u8], flags: u8) -> Option<[Option<u64>; N]> {
    let mut limits = [None; N];
    for (bit, limit) in limits.iter_mut().enumerate() {
        if flags >> bit & 1 != 0 {
            *limit = Some(take_varint(rest)?);
        }
    }
    Some(limits)
}

fn take_retention(rest: &mut &[u8], flags: u8) -> Option<Retention> {
    let [entries, bytes, age] = take_limits(rest, flags)?;
    Some(Retention { entries, bytes, age: age.map(Duration::from_millis) })
}

fn take_rules(rest: &mut &[u8]) -> Option<Vec<RetentionRule>> {
    let count = take_varint(rest).filter(|count| (1..=MAX_RULES as u64).contains(count))?;
    let mut rules = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let len = usize::try_from(take_varint(rest)?).ok()?;
        let (pattern, after) = rest.split_at_checked(len)?;
        *rest = after;
        let flags = take_byte(rest).filter(|flags| *flags < 8)?;
        rules.push(RetentionRule { pattern: pattern.into(), retention: take_retention(rest, flags)? });
    }
    Some(rules)
}
