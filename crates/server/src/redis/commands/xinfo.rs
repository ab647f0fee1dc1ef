//! Descriptions of streams, groups and consumers.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::keys::stream::{Entry, Group, Id, Pending, Stream};
use super::super::keys::{Keyspace, SlotId};
use super::super::reply::Reply;
use super::groups::{distance, last_gap, no_such_group, pending_of};
use super::streams::{tell_entries, tell_entry};
use super::{Call, Done};

const HELP: [&str; 6] = [
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
];

pub fn xinfo(call: &mut Call<'_>) -> Done {
    let sub = call.word(1);
    if sub == "HELP" {
        call.help(&HELP);
        return Ok(());
    }
    let (id, is_there) = call.stream(2)?;
    if !is_there {
        return Err(Fail::err("no such key"));
    }
    match sub.as_str() {
        "STREAM" => tell_stream(call, id),
        "GROUPS" => {
            tell_groups(&call.engine.keys, id, &mut call.client.reply);
            Ok(())
        }
        _ => tell_consumers(call, id),
    }
}

/// A stream that is there.
fn found(keys: &Keyspace, id: SlotId) -> &Stream {
    keys.stream(id).expect("it is there")
}

/// Entries that a group has before it, where that can be told; below zero where a client told that
/// the group had read more than there ever was.
fn lag(keys: &Keyspace, id: SlotId, group: &Group) -> Option<i64> {
    let added = found(keys, id).added();
    let read = match group.read {
        Some(read) if last_gap(keys, id).is_none_or(|gap| group.last > gap) => Some(read),
        _ => distance(keys, id, group.last),
    };
    if added == 0 { Some(0) } else { read.map(|read| added as i64 - read as i64) }
}

fn count_or_null(reply: &mut Reply, n: Option<i64>) {
    match n {
        Some(n) => reply.int(n),
        None => reply.null(),
    }
}

fn tell_groups(keys: &Keyspace, id: SlotId, reply: &mut Reply) {
    let groups = &found(keys, id).kept.groups;
    reply.array(groups.len());
    for (name, group) in groups {
        reply.map(6);
        reply.bulk("name");
        reply.bulk(name);
        reply.bulk("consumers");
        reply.count(group.consumers.len());
        reply.bulk("pending");
        reply.count(group.pending.len());
        reply.bulk("last-delivered-id");
        reply.bulk(group.last.to_string());
        reply.bulk("entries-read");
        count_or_null(reply, group.read.map(|read| read as i64));
        reply.bulk("lag");
        count_or_null(reply, lag(keys, id, group));
    }
}

fn tell_consumers(call: &mut Call<'_>, id: SlotId) -> Done {
    let Some(group) = found(&call.engine.keys, id).kept.groups.get(&call.args[3]) else {
        return Err(no_such_group(&call.args[3], &call.args[2]));
    };
    let (now, reply) = (call.engine.keys.now, &mut call.client.reply);
    let pending = pending_of(group);
    reply.array(group.consumers.len());
    for (name, seen) in &group.consumers {
        reply.map(3);
        reply.bulk("name");
        reply.bulk(name);
        reply.bulk("pending");
        reply.count(pending.get(name).copied().unwrap_or(0));
        reply.bulk("idle");
        reply.int(now.saturating_sub(*seen) as i64);
    }
    Ok(())
}

/// What both forms of `XINFO STREAM` tell first.
fn tell_outline(reply: &mut Reply, stream: &Stream, portion: u64, first: Option<&Entry>) {
    let meta = stream.kept.meta;
    reply.bulk("length");
    reply.int(stream.len() as i64);
    // What Redis has in the leaves of a tree are here the portions of the log that are trimmed
    // together.
    let seqs = stream.seqs();
    let portions = if seqs.is_empty() { 0 } else { (seqs.end - 1) / portion - seqs.start / portion + 1 };
    for (name, n) in [("radix-tree-keys", portions), ("radix-tree-nodes", portions + 1)] {
        reply.bulk(name);
        reply.int(n as i64);
    }
    let first = first.map_or(Id::MIN, |entry| entry.id);
    for (name, id) in [("last-generated-id", meta.last), ("max-deleted-entry-id", meta.max_deleted)] {
        reply.bulk(name);
        reply.bulk(id.to_string());
    }
    reply.bulk("entries-added");
    reply.int(stream.added() as i64);
    reply.bulk("recorded-first-entry-id");
    reply.bulk(first.to_string());
}

fn tell_stream(call: &mut Call<'_>, id: SlotId) -> Done {
    let mut count = None;
    if call.args.len() > 3 {
        if !call.is(3, "FULL") {
            return Err(Fail::syntax());
        }
        count = Some(10);
        if call.args.len() > 4 {
            if call.args.len() != 6 || !call.is(4, "COUNT") {
                return Err(Fail::syntax());
            }
            let n = call.integer(5)?;
            count = Some(if n < 0 { 10 } else { n as usize });
        }
    }
    let all = (Id::MIN, Id::MAX);
    let first = call.engine.keys.entries(id, all, 1, false)?.pop();
    let portion = call.engine.settings.stream_portion();
    if let Some(count) = count {
        let most = if count == 0 { usize::MAX } else { count };
        let entries = call.entries(id, all, most, false)?;
        let (keys, reply) = (&call.engine.keys, &mut call.client.reply);
        reply.map(9);
        tell_outline(reply, found(keys, id), portion, first.as_ref());
        reply.bulk("entries");
        tell_entries(reply, &entries);
        reply.bulk("groups");
        tell_groups_in_full(keys, id, reply, most);
        return Ok(());
    }
    let last = call.engine.keys.entries(id, all, 1, true)?.pop();
    let (stream, reply) = (found(&call.engine.keys, id), &mut call.client.reply);
    reply.map(10);
    tell_outline(reply, stream, portion, first.as_ref());
    reply.bulk("groups");
    reply.count(stream.kept.groups.len());
    for (name, entry) in [("first-entry", first), ("last-entry", last)] {
        reply.bulk(name);
        match entry {
            Some(entry) => tell_entry(reply, &entry),
            None => reply.null(),
        }
    }
    Ok(())
}

fn tell_groups_in_full(keys: &Keyspace, id: SlotId, reply: &mut Reply, most: usize) {
    let groups = &found(keys, id).kept.groups;
    reply.array(groups.len());
    for (name, group) in groups {
        reply.map(7);
        reply.bulk("name");
        reply.bulk(name);
        reply.bulk("last-delivered-id");
        reply.bulk(group.last.to_string());
        reply.bulk("entries-read");
        count_or_null(reply, group.read.map(|read| read as i64));
        reply.bulk("lag");
        count_or_null(reply, lag(keys, id, group));
        reply.bulk("pel-count");
        reply.count(group.pending.len());
        reply.bulk("pending");
        let pending: Vec<(&Id, &Pending)> = group.pending.iter().take(most).collect();
        reply.array(pending.len());
        for (entry, pending) in pending {
            reply.array(4);
            reply.bulk(entry.to_string());
            reply.bulk(&pending.consumer);
            reply.int(pending.at as i64);
            reply.int(pending.times as i64);
        }
        reply.bulk("consumers");
        reply.array(group.consumers.len());
        let mut pending: BTreeMap<&Bytes, Vec<(&Id, &Pending)>> = BTreeMap::new();
        for (id, entry) in group.pending.iter() {
            pending.entry(&entry.consumer).or_default().push((id, entry));
        }
        for (consumer, seen) in &group.consumers {
            let mine = pending.remove(consumer).unwrap_or_default();
            tell_consumer_in_full(reply, (consumer, *seen), &mine, most);
        }
    }
}

fn tell_consumer_in_full(
    reply: &mut Reply,
    (name, seen): (&Bytes, u64),
    mine: &[(&Id, &Pending)],
    most: usize,
) {
    reply.map(4);
    reply.bulk("name");
    reply.bulk(name);
    reply.bulk("seen-time");
    reply.int(seen as i64);
    reply.bulk("pel-count");
    reply.count(mine.len());
    reply.bulk("pending");
    reply.array(mine.len().min(most));
    for (entry, pending) in mine.iter().take(most) {
        reply.array(3);
        reply.bulk(entry.to_string());
        reply.int(pending.at as i64);
        reply.int(pending.times as i64);
    }
}
