//! Scans of keys, and of the fields of a hash, a portion at a time.
//!
//! A cursor is the number of a scan in this server's memory. The scan's keys are fixed when it
//! begins, so a key that exists all the while is returned once. An abandoned scan is dropped after
//! many others have begun.

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::glob::matches;
use super::hashes;
use super::{Call, Done};

/// The request of a scan.
struct Wanted {
    pattern: Option<Bytes>,
    count: usize,
    kind: Option<String>,
}

fn wanted(call: &Call<'_>, mut at: usize, knows_kinds: bool) -> Result<Wanted, Fail> {
    let mut wanted = Wanted { pattern: None, count: 10, kind: None };
    while at < call.args.len() {
        if at + 1 == call.args.len() {
            return Err(Fail::syntax());
        }
        match call.word(at).as_str() {
            "MATCH" => wanted.pattern = Some(call.args[at + 1].clone()),
            "COUNT" => {
                let count = call.integer(at + 1)?;
                wanted.count = usize::try_from(count).ok().filter(|n| *n > 0).ok_or_else(Fail::syntax)?;
            }
            "TYPE" if knows_kinds => wanted.kind = Some(call.word(at + 1).to_ascii_lowercase()),
            _ => return Err(Fail::syntax()),
        }
        at += 2;
    }
    Ok(wanted)
}

fn cursor(call: &Call<'_>, at: usize) -> Result<u64, Fail> {
    let text = std::str::from_utf8(&call.args[at]).unwrap_or_default();
    text.parse().map_err(|_| Fail::err("invalid cursor"))
}

/// Most keys that one call examines, whatever count the client requests: all other clients wait
/// meanwhile.
const MOST: usize = 10_000;

pub fn scan(call: &mut Call<'_>) -> Done {
    let cursor = cursor(call, 1)?;
    let wanted = wanted(call, 2, true)?;
    let database = call.client.database.clone();
    let walk = match cursor {
        0 => Some(call.keys().keys(&database)?),
        at => call.engine.scans.take(at),
    };
    let Some(mut walk) = walk else {
        return Err(Fail::err("invalid cursor: the server ended this scan; start again with 0"));
    };
    let mut found = Vec::new();
    let mut is_over = false;
    for _ in 0..wanted.count.min(MOST) {
        let Some(key) = walk.next() else {
            is_over = true;
            break;
        };
        let key = key?;
        if wanted.pattern.as_ref().is_some_and(|pattern| !matches(pattern, &key)) {
            continue;
        }
        if let Some(kind) = &wanted.kind
            && call.keys().kind_of(&database, &key)?.kind() != kind
        {
            continue;
        }
        found.push(key);
        call.keys().make_room();
    }
    call.keys().see_all();
    let next = if is_over { 0 } else { call.engine.scans.leave(walk) };
    call.reply().array(2);
    call.reply().bulk(next.to_string());
    call.reply().bulks(&found);
    Ok(())
}

/// Returns all fields at once: a hash is in memory as a whole.
pub fn hscan(call: &mut Call<'_>) -> Done {
    cursor(call, 2)?;
    let wanted = wanted(call, 3, false)?;
    let id = hashes::open(call)?;
    let is_wanted = |field: &Bytes| wanted.pattern.as_ref().is_none_or(|pattern| matches(pattern, field));
    let found = hashes::fields(call, id).iter().filter(|(field, _)| is_wanted(field));
    let found: Vec<Bytes> = found.flat_map(|(field, value)| [field.clone(), value.clone()]).collect();
    call.reply().array(2);
    call.reply().bulk("0");
    call.reply().bulks(&found);
    Ok(())
}
