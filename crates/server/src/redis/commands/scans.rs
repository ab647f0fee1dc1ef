//! Scans of keys, and of the fields of a hash, a portion at a time.
//!
//! A cursor is the number of the last key in this server's memory. Keys come in the order of their
//! names, so a key that exists all the while is returned once. The last step of a scan may be
//! repeated. An abandoned scan is dropped after many others of the same user have begun.
//!
//! A scan that met damage ends with this error, and not with the cursor 0: keys may be missing.

use brooklet::Error;
use bytes::Bytes;

use super::super::fail::Fail;
use super::super::glob::{matches, matches_within};
use super::hashes;
use super::keys::steps_of;
use super::portions::BYTES;
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
            "MATCH" => wanted.pattern = Some(super::pattern(call, at + 1)?),
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
/// meanwhile. To know the type of a key, the server reads its value.
const MOST: usize = 10_000;
const MOST_WITH_TYPE: usize = 2_000;
/// Most steps of the comparison of names with a pattern.
const MOST_STEPS: usize = 1 << 22;
/// Most steps of the comparison of all fields of a hash with a pattern: a fraction of a second.
const MOST_STEPS_OF_FIELDS: usize = 1 << 25;
/// One of this many parts of the memory of all clients is for the scans in progress.
const PART: usize = 32;
/// Most expired keys that one call deletes.
const MOST_EXPIRED: usize = 100;

pub fn scan(call: &mut Call<'_>) -> Done {
    let cursor = cursor(call, 1)?;
    let wanted = wanted(call, 2, true)?;
    let database = call.client.database.clone();
    let (after, mut damage) = match cursor {
        0 => (None, None),
        at => {
            let error = "invalid cursor: the server ended this scan; start again with 0";
            let user = call.client.user.as_ref().map_or("", |user| &user.name);
            let found = call.engine.scans.find(at, &database, user);
            let (after, damage) = found.ok_or_else(|| Fail::err(error))?;
            (Some(after), damage)
        }
    };
    // Those of another database must not be in the same commit as keys that are opened below.
    call.keys().expire_due(Some(&database[..]), MOST_EXPIRED)?;
    let may_be_gone = call.keys().has_due() || call.keys().is_clearing(&database) || call.keys().is_replica();
    let opens = wanted.kind.is_some() || may_be_gone;
    let mut keys = call.keys().keys_after(&database, after.as_deref())?;
    let (mut found, mut last, mut is_over, mut steps, mut loaded) = (Vec::new(), None, false, 0, 0);
    for _ in 0..wanted.count.min(if opens { MOST_WITH_TYPE } else { MOST }) {
        if steps > MOST_STEPS || loaded > BYTES {
            break;
        }
        let key = match keys.next().transpose() {
            Err(error @ Error::Damaged { .. }) => {
                damage = damage.or(Some(error));
                None
            }
            key => key?,
        };
        is_over = key.is_none();
        let Some(key) = key else { break };
        last = Some(key.clone());
        steps += wanted.pattern.as_ref().map_or(0, |pattern| steps_of(pattern, &key));
        if wanted.pattern.as_ref().is_some_and(|pattern| !matches(pattern, &key)) {
            continue;
        }
        if opens {
            let before = call.engine.keys.cached().1;
            let value = call.keys().kind_of(&database, &key)?;
            let is_wanted = wanted.kind.as_ref().is_none_or(|kind| value.kind() == kind);
            let is_found = value.is_there() && is_wanted;
            loaded += call.engine.keys.cached().1.saturating_sub(before);
            call.keys().make_room();
            if !is_found {
                continue;
            }
        }
        found.push(key);
    }
    call.keys().see_all();
    damage = damage.or_else(|| keys.take_damage());
    let next = match (last, damage) {
        // The client gets the keys of this step before the error.
        (_, Some(damage)) if is_over && found.is_empty() => return Err(damage.into()),
        (Some(last), damage) if !is_over || damage.is_some() => {
            let user = call.client.user.as_ref().map_or("", |user| &user.name);
            let most = call.engine.settings.client_memory / PART;
            call.engine.scans.leave((&last[..], damage), &database, user, cursor, most)
        }
        _ => 0,
    };
    call.reply().array(2);
    call.reply().bulk(next.to_string());
    call.reply().bulks(&found);
    Ok(())
}

const TOO_LONG: &str = "the comparison of the pattern with all fields takes too long";

/// Returns all fields at once: a hash is in memory as a whole.
pub fn hscan(call: &mut Call<'_>) -> Done {
    cursor(call, 2)?;
    let wanted = wanted(call, 3, false)?;
    let id = hashes::open(call)?;
    let (mut found, mut steps) = (Vec::new(), MOST_STEPS_OF_FIELDS);
    for (field, value) in hashes::fields(call, id) {
        let is_match = wanted.pattern.as_ref().map(|pattern| matches_within(pattern, field, &mut steps));
        if is_match.unwrap_or(Some(true)).ok_or_else(|| Fail::err(TOO_LONG))? {
            found.extend([field.clone(), value.clone()]);
        }
    }
    call.reply().array(2);
    call.reply().bulk("0");
    call.reply().bulks(&found);
    Ok(())
}
