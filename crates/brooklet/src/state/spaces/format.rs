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
//!           32 all of its logs are counted), a varint for each of the first five (the age in milliseconds),
//!           logs counted, bytes counted (varints; 0 in a change)
//! ```

use std::time::Duration;

use brooklet_wal::{put_varint, take_varint};

use crate::model::retention::Retention;
use crate::model::space_config::{Class, MemoryConfig, SpaceConfig, WhenFull};
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
    let mut out = Vec::new();
    put_fixed(&mut out, space);
    out.len()
}

pub(super) fn encode_table<'a>(next: u64, spaces: impl ExactSizeIterator<Item = &'a Space>) -> Vec<u8> {
    let mut out = vec![TABLE];
    put(&mut out, next);
    put(&mut out, spaces.len() as u64);
    for space in spaces {
        put_space(&mut out, space, space.totals);
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
            let mut spaces: Vec<Space> = Vec::new();
            for _ in 0..take_varint(rest)? {
                let space = take_space(rest)?;
                let in_order = spaces.last().is_none_or(|last| *last.name < *space.name);
                if !in_order || !(1..next).contains(&space.number) {
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
                        let space = take_space(rest).filter(|space| (1..next).contains(&space.number))?;
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

fn put_fixed(out: &mut Vec<u8>, Space { name, number, config, counted, .. }: &Space) {
    out.push(name.len() as u8);
    out.extend_from_slice(name);
    put(out, *number);
    match config.class {
        Class::Durable => out.push(0),
        Class::Deferred(bound) => {
            out.push(1);
            put(out, bound.as_millis() as u64);
        }
        Class::Memory(MemoryConfig { bytes, when_full, dump_every }) => {
            out.push(2);
            put(out, bytes);
            out.push(u8::from(when_full == WhenFull::DropOldest));
            put(out, dump_every.map_or(0, |every| every.as_millis() as u64));
        }
    }
    let Retention { entries, bytes, age } = config.retention;
    let age = age.map(|age| age.as_millis() as u64);
    let limits = [config.max_logs, config.max_bytes, entries, bytes, age];
    let flags = limits.iter().zip(0..).map(|(limit, bit)| u8::from(limit.is_some()) << bit).sum::<u8>();
    out.push(flags | u8::from(*counted) << 5);
    limits.into_iter().flatten().for_each(|limit| put(out, limit));
}

fn put_space(out: &mut Vec<u8>, space: &Space, totals: Totals) {
    put_fixed(out, space);
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
    let mut limit = |bit: u8| match flags >> bit & 1 {
        0 => Some(None),
        _ => take_varint(rest).map(Some),
    };
    let (max_logs, max_bytes) = (limit(0)?, limit(1)?);
    let (entries, bytes, age) = (limit(2)?, limit(3)?, limit(4)?);
    let retention = Retention { entries, bytes, age: age.map(Duration::from_millis) };
    let config = SpaceConfig { class, max_logs, max_bytes, retention };
    let totals = Totals { logs: take_varint(rest)?, bytes: take_varint(rest)? };
    let lawful = config.check(std::str::from_utf8(name).ok()?).is_ok() && flags < 64;
    lawful.then(|| Space { totals, ..Space::new(name, number, config, flags & 32 != 0) })
}
