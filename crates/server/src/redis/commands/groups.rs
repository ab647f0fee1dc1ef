//! Consumer groups.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::keys::stream::{Delta, Group, Id, Pending};
use super::super::keys::{Keyspace, SlotId};
use super::streams::{parse_id, parse_range};
use super::{Call, Done};

/// Pending entries that one portion looks at.
pub const LOOKS: usize = 4_000;

/// The largest id that was deleted from the midst of a stream: from later ids on, it has no gaps.
pub fn last_gap(keys: &Keyspace, id: SlotId) -> Option<Id> {
    let stream = keys.stream(id).filter(|stream| !stream.is_empty())?;
    let largest = Some(stream.kept.meta.max_deleted).filter(|largest| *largest != Id::MIN)?;
    let first = keys.entry_at(id, stream.seqs().start).ok()?.id;
    (first <= largest).then_some(largest)
}

/// How many entries were ever added up to one, where that can be told.
pub fn distance(keys: &Keyspace, id: SlotId, entry: Id) -> Option<u64> {
    distance_behind(keys, id, entry, &mut None)
}

/// The same for one of several entries: `first` keeps the id of the stream's first entry, which the
/// store is asked for once. It is `None` until then.
pub fn distance_behind(
    keys: &Keyspace,
    id: SlotId,
    entry: Id,
    first: &mut Option<Option<Id>>,
) -> Option<u64> {
    let stream = keys.stream(id)?;
    let (added, len, meta) = (stream.added(), stream.len(), stream.kept.meta);
    if added == 0 {
        return Some(0);
    }
    if entry == meta.last || (len == 0 && entry < meta.last) {
        return Some(added);
    }
    if entry > meta.last {
        return None;
    }
    let find = || keys.entry_at(id, stream.seqs().start).ok().map(|entry| entry.id);
    let first = (*first.get_or_insert_with(find))?;
    if meta.max_deleted != Id::MIN && meta.max_deleted >= first {
        return None;
    }
    match entry.cmp(&first) {
        std::cmp::Ordering::Less => Some(added - len),
        std::cmp::Ordering::Equal => Some(added - len + 1),
        std::cmp::Ordering::Greater => None,
    }
}

/// The error of a group that a stream does not have.
pub fn no_such_group(group: &[u8], key: &[u8]) -> Fail {
    let (group, key) = (String::from_utf8_lossy(group), String::from_utf8_lossy(key));
    Fail::Reply(format!("NOGROUP No such consumer group '{group}' for key name '{key}'").into())
}

/// Takes note that a consumer was here, which it becomes if it was not one.
pub fn see_consumer(call: &mut Call<'_>, id: SlotId, group: &Bytes, name: &Bytes) -> bool {
    let seen = call.engine.keys.now;
    let stream = call.engine.keys.stream(id).expect("it has the group");
    let is_new = !stream.kept.groups[group].consumers.contains_key(name);
    if is_new {
        let delta = Delta::Consumer { group: group.clone(), name: name.clone(), seen };
        call.keys().change_stream(id, delta);
    } else {
        call.keys().see_consumer(id, group, name);
    }
    is_new
}

/// The stream and its group that a command names, which have to be there.
pub fn group<'a>(call: &'a mut Call<'_>, what: &str) -> Result<(SlotId, Bytes, &'a Group), Fail> {
    let (id, _) = call.stream(1)?;
    let name = call.args[2].clone();
    let missing = {
        let (key, group) = (String::from_utf8_lossy(&call.args[1]), String::from_utf8_lossy(&name));
        Fail::Reply(format!("NOGROUP No such key '{key}' or consumer group '{group}'{what}").into())
    };
    let kept = call.engine.keys.stream(id).and_then(|stream| stream.kept.groups.get(&name));
    kept.map(|kept| (id, name, kept)).ok_or(missing)
}

const HELP: [&str; 14] = [
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter.",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
];

pub fn xgroup(call: &mut Call<'_>) -> Done {
    let sub = call.word(1);
    if sub == "HELP" {
        call.help(&HELP);
        return Ok(());
    }
    let (makes, read) = group_options(call, &sub)?;
    let (id, is_there) = call.stream(2)?;
    if !is_there && !makes {
        return Err(Fail::err(
            "The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
        ));
    }
    let name = call.args[3].clone();
    let has_group = call.engine.keys.stream(id).is_some_and(|stream| stream.kept.groups.contains_key(&name));
    if !has_group && matches!(sub.as_str(), "SETID" | "CREATECONSUMER" | "DELCONSUMER") {
        return Err(no_such_group(&name, &call.args[2]));
    }
    match sub.as_str() {
        "CREATE" => {
            let last = group_start(call, id)?;
            if has_group {
                return Err(Fail::Reply("BUSYGROUP Consumer Group name already exists".into()));
            }
            call.keys().make_stream(id);
            call.keys().change_stream(id, Delta::Group { name, last, read });
            call.reply().ok();
        }
        "SETID" => {
            // A group is made at an id, and may be moved to either end of all ids.
            let last = match &call.args[4][..] {
                b"-" => Id::MIN,
                b"+" => Id::MAX,
                _ => group_start(call, id)?,
            };
            call.keys().change_stream(id, Delta::Group { name, last, read });
            call.reply().ok();
        }
        "DESTROY" => {
            if has_group {
                call.keys().change_stream(id, Delta::NoGroup(name));
            }
            call.reply().flag(has_group);
        }
        "CREATECONSUMER" => {
            let consumer = call.args[4].clone();
            let is_new = see_consumer(call, id, &name, &consumer);
            call.reply().flag(is_new);
        }
        _ => {
            let consumer = call.args[4].clone();
            let group = &call.engine.keys.stream(id).expect("it has the group").kept.groups[&name];
            let pending = group.pending.len_of(&consumer);
            if group.consumers.contains_key(&consumer) {
                call.keys().change_stream(id, Delta::NoConsumer { group: name, name: consumer });
            }
            call.reply().count(pending);
        }
    }
    Ok(())
}

/// Whether XGROUP may make the stream, and how many entries it is told that the group has read.
fn group_options(call: &Call<'_>, sub: &str) -> Result<(bool, Option<u64>), Fail> {
    let (mut makes, mut read) = (false, None);
    let mut at = 5;
    while at < call.args.len() && matches!(sub, "CREATE" | "SETID") {
        if sub == "CREATE" && call.is(at, "MKSTREAM") {
            makes = true;
            at += 1;
        } else if call.is(at, "ENTRIESREAD") && at + 1 < call.args.len() {
            let n = call.integer(at + 1)?;
            if n < -1 {
                return Err(Fail::err("value for ENTRIESREAD must be positive or -1"));
            }
            read = u64::try_from(n).ok();
            at += 2;
        } else {
            return Err(call.wrong_subcommand());
        }
    }
    Ok((makes, read))
}

/// Where a group is to stand: an id, or the last entry.
fn group_start(call: &Call<'_>, id: SlotId) -> Result<Id, Fail> {
    match &call.args[4][..] {
        b"$" => Ok(call.engine.keys.stream(id).map_or(Id::MIN, |stream| stream.kept.meta.last)),
        text => parse_id(text, 0),
    }
}

pub fn xack(call: &mut Call<'_>) -> Done {
    let (id, _) = call.stream(1)?;
    let name = call.args[2].clone();
    let group = call.engine.keys.stream(id).and_then(|stream| stream.kept.groups.get(&name));
    let Some(group) = group else {
        call.reply().count(0);
        return Ok(());
    };
    let ids = call.args[3..].iter().map(|text| parse_id(text, 0)).collect::<Result<Vec<Id>, Fail>>()?;
    let mut acked: Vec<Id> = ids.into_iter().filter(|id| group.pending.contains_key(id)).collect();
    acked.sort();
    acked.dedup();
    let count = acked.len();
    if count > 0 {
        call.keys().change_stream(id, Delta::Ack { group: name, ids: acked });
    }
    call.reply().count(count);
    Ok(())
}

/// `XPENDING key group [[IDLE min] start end count [consumer]]`.
pub fn xpending(call: &mut Call<'_>) -> Done {
    if call.args.len() == 3 {
        return tell_pending(call);
    }
    let (mut at, mut least_idle) = (3, 0);
    if call.is(3, "IDLE") {
        if call.args.len() < 8 {
            return Err(Fail::syntax());
        }
        least_idle = call.integer(4)?;
        at = 5;
    }
    if !(at + 3..=at + 4).contains(&call.args.len()) {
        return Err(Fail::syntax());
    }
    let count = call.integer(at + 2)?.max(0) as usize;
    let ids = parse_range(&call.args[at], &call.args[at + 1])?;
    let consumer = call.args.get(at + 3).cloned();
    let now = call.engine.keys.now;
    let is_wanted = move |pending: &Pending| {
        consumer.as_ref().is_none_or(|name| pending.consumer == *name)
            && now.saturating_sub(pending.at) as i64 >= least_idle
    };
    let look = move |call: &mut Call<'_>, (next, found): &mut (Option<Id>, Vec<(Id, Pending)>)| {
        let (_, _, group) = group(call, "")?;
        let first = Some(next.unwrap_or(ids.0)).filter(|first| *first <= ids.1);
        let mut rest = first.into_iter().flat_map(|first| group.pending.range(first..=ids.1));
        for _ in 0..LOOKS {
            let Some((id, pending)) = rest.next().filter(|_| found.len() < count) else { return Ok(None) };
            found.extend(is_wanted(pending).then(|| (*id, pending.clone())));
        }
        *next = rest.next().map(|(id, _)| *id);
        Ok(next.map(|_| size_of_val(&found[..])))
    };
    call.at_one_moment(1..2, look, move |call, (_, found)| {
        let (start, memory) = (call.client.written(), 2 * size_of_val(&found[..]));
        call.reply().array(found.len());
        let mut found = found.into_iter();
        call.tell_parts(start, memory, move |reply| {
            let (id, pending) = found.next()?;
            reply.array(4);
            reply.bulk(id.to_string());
            reply.bulk(&pending.consumer);
            reply.int(now.saturating_sub(pending.at) as i64);
            reply.int(pending.times as i64);
            Some(1)
        })
    })
}

/// Returns the number of pending entries of each consumer that has some.
pub fn pending_of(group: &Group) -> BTreeMap<&Bytes, usize> {
    group.pending.counts().collect()
}

/// How much is pending, from which to which, and for whom.
fn tell_pending(call: &mut Call<'_>) -> Done {
    let (_, _, group) = group(call, "")?;
    let ends = group.pending.first_key_value().zip(group.pending.last_key_value());
    let Some(((first, _), (last, _))) = ends.map(|((a, x), (b, y))| ((*a, x), (*b, y))) else {
        call.reply().array(4);
        call.reply().int(0);
        (0..2).for_each(|_| call.reply().null());
        call.reply().null_array();
        return Ok(());
    };
    let total = group.pending.len();
    let mut counts = pending_of(group);
    counts.retain(|name, _| group.consumers.contains_key(*name));
    let consumers: Vec<(Bytes, usize)> = counts.into_iter().map(|(name, n)| (name.clone(), n)).collect();
    call.reply().array(4);
    call.reply().count(total);
    call.reply().bulk(first.to_string());
    call.reply().bulk(last.to_string());
    call.reply().array(consumers.len());
    for (name, n) in consumers {
        call.reply().array(2);
        call.reply().bulk(name);
        call.reply().bulk(n.to_string());
    }
    Ok(())
}
