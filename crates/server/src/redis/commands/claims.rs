//! Claims of pending entries for another consumer. The entries are looked for in portions.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::keys::stream::{Delta, Entry, Id, Pending};
use super::super::keys::{Finder, SlotId};
use super::groups::{group, see_consumer};
use super::portions::{BYTES, PARTS};
use super::streams::{parse_id, parse_start, tell_entry};
use super::{Call, Done, integer};

/// What XCLAIM is told besides the ids.
struct Claim {
    /// When the entries count as delivered.
    at: u64,
    times: Option<u64>,
    forces: bool,
    ids_only: bool,
    last: Option<Id>,
}

fn claim_options(call: &Call<'_>, mut at: usize) -> Result<Claim, Fail> {
    let now = call.engine.keys.now;
    let mut claim = Claim { at: now, times: None, forces: false, ids_only: false, last: None };
    while at < call.args.len() {
        let more = call.args.len() - at - 1;
        match call.word(at).as_str() {
            "FORCE" => claim.forces = true,
            "JUSTID" => claim.ids_only = true,
            option @ ("IDLE" | "TIME" | "RETRYCOUNT" | "LASTID") if more > 0 => {
                at += 1;
                let number = |what: &'static str| {
                    integer(&call.args[at])
                        .ok_or_else(|| Fail::err(format!("Invalid {what} option argument for XCLAIM")))
                };
                match option {
                    "IDLE" => claim.at = now.saturating_sub(number("IDLE")?.max(0) as u64),
                    "TIME" => claim.at = (number("TIME")?.max(0) as u64).min(now),
                    "RETRYCOUNT" => claim.times = Some(number("RETRYCOUNT")?.max(0) as u64),
                    _ => claim.last = Some(parse_id(&call.args[at], 0)?),
                }
            }
            _ => {
                let option = String::from_utf8_lossy(&call.args[at]).into_owned();
                return Err(Fail::err(format!("Unrecognized XCLAIM option '{option}'")));
            }
        }
        at += 1;
    }
    Ok(claim)
}

/// What was found so far.
#[derive(Default)]
struct Found {
    /// Ids of the entries to claim, each with the time and the number of its deliveries.
    claimed: Vec<(Id, u64, u64)>,
    /// Those of XCLAIM, by id: an id may come twice.
    taken: BTreeMap<Id, (u64, u64)>,
    /// The entries; none if the client wants the ids alone.
    entries: Vec<Entry>,
    /// Pending entries that were deleted.
    gone: Vec<Id>,
    /// Number of ids that had their turn.
    looked: usize,
    /// The next id.
    next: Option<Id>,
    bytes: usize,
}

impl Found {
    /// Adds an entry to claim.
    fn claim(&mut self, entry: Entry, at: u64, times: u64, ids_only: bool) {
        self.claimed.push((entry.id, at, times));
        if ids_only {
            self.bytes += 4 * size_of::<(Id, u64, u64)>();
        } else {
            self.bytes += entry.cost();
            self.entries.push(entry);
        }
    }

    /// Returns whether a portion that began at so many bytes, and has looked at so many ids, is
    /// long enough.
    fn is_enough(&self, looks: usize, began: usize) -> bool {
        looks == PARTS || self.bytes > began + BYTES
    }
}

/// `XCLAIM key group consumer min-idle-time id [id …] [options]`.
pub fn xclaim(call: &mut Call<'_>) -> Done {
    let least_idle = integer(&call.args[4])
        .ok_or_else(|| Fail::err("Invalid min-idle-time argument for XCLAIM"))?
        .max(0) as u64;
    let ids: Vec<Id> = call.args[5..].iter().map_while(|text| parse_id(text, 0).ok()).collect();
    let claim = claim_options(call, 5 + ids.len())?;
    let Claim { at, times, forces, ids_only, last } = claim;
    let look = move |call: &mut Call<'_>, found: &mut Found| {
        let (id, name, _) = group(call, "")?;
        let (mut finder, began, now) = (Finder::default(), found.bytes, call.engine.keys.now);
        for looks in 0.. {
            let Some(&entry) = ids.get(found.looked) else { break };
            if found.is_enough(looks, began) {
                return Ok(Some(found.bytes + size_of_val(&ids[..])));
            }
            found.looked += 1;
            let stream = call.engine.keys.stream(id).expect("it has the group");
            let pending = stream.kept.groups[&name].pending.get(&entry).cloned();
            let Some(there) = call.engine.keys.find_entry(&mut finder, id, entry)? else {
                // What was deleted is not to be claimed, and pending no more.
                found.gone.extend(pending.map(|_| entry));
                continue;
            };
            let unknown = || Pending { consumer: Bytes::new(), at: 0, times: 1 };
            let Some(mut pending) = pending.or_else(|| forces.then(unknown)) else { continue };
            if let Some(&taken) = found.taken.get(&entry) {
                (pending.at, pending.times) = taken;
            }
            if now.saturating_sub(pending.at) >= least_idle {
                let times = times.unwrap_or(pending.times + u64::from(!ids_only));
                found.taken.insert(entry, (at, times));
                found.claim(there, at, times, ids_only);
                check_room(call, found)?;
            }
        }
        Ok(None)
    };
    call.at_one_moment(1..2, look, move |call, found| {
        let (id, name, kept) = group(call, "")?;
        if let Some(last) = last.filter(|last| *last > kept.last) {
            let read = kept.read;
            call.keys().change_stream(id, Delta::Group { name: name.clone(), last, read });
        }
        take_over(call, id, &name, &found);
        let start = call.client.written();
        tell(call, start, found, false)
    })
}

/// Ends the command if its reply would be too large: what was claimed could not be undone later.
fn check_room(call: &mut Call<'_>, found: &Found) -> Done {
    if found.bytes > call.client.reply.room() {
        call.reply().fill();
        call.client.has_room()?;
    }
    Ok(())
}

/// Makes entries pending for the consumer, and others pending no more.
fn take_over(call: &mut Call<'_>, id: SlotId, group: &Bytes, found: &Found) {
    let consumer = call.args[3].clone();
    if !found.gone.is_empty() {
        call.keys().change_stream(id, Delta::Ack { group: group.clone(), ids: found.gone.clone() });
    }
    if !found.claimed.is_empty() {
        see_consumer(call, id, group, &consumer);
        let (group, ids) = (group.clone(), found.claimed.clone());
        call.keys().change_stream(id, Delta::Deliver { group, consumer, ids });
    }
}

/// Replies with the claimed entries, and then with the ids of lost entries if these are requested.
/// The reply begins at `start`.
fn tell(call: &mut Call<'_>, start: usize, found: Found, tells_gone: bool) -> Done {
    let Found { claimed, entries, gone, bytes, .. } = found;
    call.reply().array(claimed.len());
    let (mut claimed, mut entries, mut gone) = (claimed.into_iter(), entries.into_iter(), gone.into_iter());
    let mut has_told = !tells_gone;
    call.tell_parts(start, bytes, move |reply| {
        if let Some((id, ..)) = claimed.next() {
            match entries.next() {
                Some(entry) => tell_entry(reply, &entry),
                None => reply.bulk(id.to_string()),
            }
        } else if !std::mem::replace(&mut has_told, true) {
            reply.array(gone.len());
        } else {
            reply.bulk(gone.next().filter(|_| tells_gone)?.to_string());
        }
        Some(1)
    })
}

/// `XAUTOCLAIM key group consumer min-idle-time start [COUNT n] [JUSTID]`.
pub fn xautoclaim(call: &mut Call<'_>) -> Done {
    /// Pending entries that are looked at for each that may be claimed.
    const LOOKS: usize = 10;
    let least_idle = integer(&call.args[4])
        .ok_or_else(|| Fail::err("Invalid min-idle-time argument for XAUTOCLAIM"))?
        .max(0) as u64;
    let start = parse_start(&call.args[5])?;
    let (mut count, mut ids_only) = (100, false);
    let mut at = 6;
    while at < call.args.len() {
        if call.is(at, "COUNT") && at + 1 < call.args.len() {
            let most = i64::MAX / 16;
            let n = integer(&call.args[at + 1]).filter(|n| (1..=most).contains(n));
            count = n.ok_or_else(|| Fail::err("COUNT must be > 0"))? as usize;
            at += 1;
        } else if call.is(at, "JUSTID") {
            ids_only = true;
        } else {
            return Err(Fail::syntax());
        }
        at += 1;
    }
    let (all, now) = (count.saturating_mul(LOOKS), call.engine.keys.now);
    let look = move |call: &mut Call<'_>, found: &mut Found| {
        let (id, _, kept) = group(call, "")?;
        let most = PARTS.min(all - found.looked) + 1;
        let rest = kept.pending.range(found.next.unwrap_or(start)..).take(most);
        let candidates: Vec<(Id, u64, u64)> = rest.map(|(id, p)| (*id, p.at, p.times)).collect();
        let (mut finder, began) = (Finder::default(), found.bytes);
        for (looks, (entry, delivered, times)) in candidates.into_iter().enumerate() {
            found.next = Some(entry);
            if found.looked == all || found.claimed.len() + found.gone.len() == count {
                return Ok(None);
            }
            if found.is_enough(looks, began) {
                return Ok(Some(found.bytes));
            }
            found.looked += 1;
            let there = call.engine.keys.find_entry(&mut finder, id, entry)?;
            match there {
                None => found.gone.push(entry),
                Some(there) if now.saturating_sub(delivered) >= least_idle => {
                    found.claim(there, now, times + u64::from(!ids_only), ids_only);
                    check_room(call, found)?;
                }
                Some(_) => {}
            }
        }
        found.next = None;
        Ok(None)
    };
    call.at_one_moment(1..2, look, |call, found| {
        let (id, name, _) = group(call, "")?;
        take_over(call, id, &name, &found);
        let start = call.client.written();
        call.reply().array(3);
        call.reply().bulk(found.next.unwrap_or(Id::MIN).to_string());
        tell(call, start, found, true)
    })
}
