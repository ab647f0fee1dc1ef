//! Descriptions of streams, groups and consumers.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::keys::SlotId;
use super::super::keys::stream::{Entry, Group, Id, Pending, Stream};
use super::groups::{distance, has_gaps, no_such_group, pending_of};
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
    match (sub.as_str(), call.args.len()) {
        ("HELP", 2) => {
            call.help(&HELP);
            return Ok(());
        }
        ("STREAM", n) if n >= 3 => {}
        ("GROUPS", 3) | ("CONSUMERS", 4) => {}
        ("STREAM" | "GROUPS" | "CONSUMERS" | "HELP", _) => return Err(call.wrong_arity()),
        _ => return Err(call.unknown_subcommand()),
    }
    let (id, is_there) = call.stream(2)?;
    if !is_there {
        return Err(Fail::err("no such key"));
    }
    // What is told was in memory at one moment.
    let stream = call.engine.keys.stream(id).expect("it is there").clone();
    match sub.as_str() {
        "STREAM" => tell_stream(call, id, &stream),
        "GROUPS" => tell_groups(call, id, &stream),
        _ => tell_consumers(call, &stream),
    }
}

/// Entries that a group has before it, where that can be told.
fn lag(call: &Call<'_>, id: SlotId, stream: &Stream, group: &Group) -> Option<u64> {
    let added = stream.added();
    let read = match group.read {
        Some(read) if !has_gaps(stream, group.last) => Some(read),
        _ => distance(&call.engine.keys, id, group.last),
    };
    if added == 0 { Some(0) } else { read.map(|read| added.saturating_sub(read)) }
}

fn count_or_null(call: &mut Call<'_>, n: Option<u64>) {
    match n {
        Some(n) => call.reply().int(n as i64),
        None => call.reply().null(),
    }
}

fn tell_groups(call: &mut Call<'_>, id: SlotId, stream: &Stream) -> Done {
    call.reply().array(stream.kept.groups.len());
    for (name, group) in &stream.kept.groups {
        call.reply().map(6);
        call.reply().bulk("name");
        call.reply().bulk(name);
        call.reply().bulk("consumers");
        call.reply().count(group.consumers.len());
        call.reply().bulk("pending");
        call.reply().count(group.pending.len());
        call.reply().bulk("last-delivered-id");
        call.reply().bulk(group.last.to_string());
        call.reply().bulk("entries-read");
        count_or_null(call, group.read);
        call.reply().bulk("lag");
        let lag = lag(call, id, stream, group);
        count_or_null(call, lag);
    }
    Ok(())
}

fn tell_consumers(call: &mut Call<'_>, stream: &Stream) -> Done {
    let Some(group) = stream.kept.groups.get(&call.args[3]) else {
        return Err(no_such_group(&call.args[3], &call.args[2]));
    };
    let now = call.engine.keys.now;
    let pending = pending_of(group);
    call.reply().array(group.consumers.len());
    for (name, seen) in &group.consumers {
        call.reply().map(3);
        call.reply().bulk("name");
        call.reply().bulk(name);
        call.reply().bulk("pending");
        call.reply().count(pending.get(name).copied().unwrap_or(0));
        call.reply().bulk("idle");
        call.reply().int(now.saturating_sub(*seen) as i64);
    }
    Ok(())
}

/// What both forms of `XINFO STREAM` tell first.
fn tell_outline(call: &mut Call<'_>, stream: &Stream, first: Option<&Entry>) {
    let meta = stream.kept.meta;
    call.reply().bulk("length");
    call.reply().int(stream.len() as i64);
    // What Redis has in the leaves of a tree are here the portions of the log that are trimmed
    // together.
    let (seqs, portion) = (stream.seqs(), call.engine.settings.stream_portion());
    let portions = if seqs.is_empty() { 0 } else { (seqs.end - 1) / portion - seqs.start / portion + 1 };
    for (name, n) in [("radix-tree-keys", portions), ("radix-tree-nodes", portions + 1)] {
        call.reply().bulk(name);
        call.reply().int(n as i64);
    }
    let first = first.map_or(Id::MIN, |entry| entry.id);
    for (name, id) in [("last-generated-id", meta.last), ("max-deleted-entry-id", meta.max_deleted)] {
        call.reply().bulk(name);
        call.reply().bulk(id.to_string());
    }
    call.reply().bulk("entries-added");
    call.reply().int(stream.added() as i64);
    call.reply().bulk("recorded-first-entry-id");
    call.reply().bulk(first.to_string());
}

fn tell_stream(call: &mut Call<'_>, id: SlotId, stream: &Stream) -> Done {
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
    if let Some(count) = count {
        let most = if count == 0 { usize::MAX } else { count };
        let entries = call.entries(id, all, most, false)?;
        call.reply().map(9);
        tell_outline(call, stream, first.as_ref());
        call.reply().bulk("entries");
        tell_entries(call.reply(), &entries);
        call.reply().bulk("groups");
        return tell_groups_in_full(call, id, stream, most);
    }
    let last = call.engine.keys.entries(id, all, 1, true)?.pop();
    call.reply().map(10);
    tell_outline(call, stream, first.as_ref());
    call.reply().bulk("groups");
    call.reply().count(stream.kept.groups.len());
    for (name, entry) in [("first-entry", first), ("last-entry", last)] {
        call.reply().bulk(name);
        match entry {
            Some(entry) => tell_entry(call.reply(), &entry),
            None => call.reply().null(),
        }
    }
    Ok(())
}

fn tell_groups_in_full(call: &mut Call<'_>, id: SlotId, stream: &Stream, most: usize) -> Done {
    call.reply().array(stream.kept.groups.len());
    for (name, group) in &stream.kept.groups {
        call.reply().map(7);
        call.reply().bulk("name");
        call.reply().bulk(name);
        call.reply().bulk("last-delivered-id");
        call.reply().bulk(group.last.to_string());
        call.reply().bulk("entries-read");
        count_or_null(call, group.read);
        call.reply().bulk("lag");
        let lag = lag(call, id, stream, group);
        count_or_null(call, lag);
        call.reply().bulk("pel-count");
        call.reply().count(group.pending.len());
        call.reply().bulk("pending");
        let pending: Vec<(&Id, &Pending)> = group.pending.iter().take(most).collect();
        call.reply().array(pending.len());
        for (entry, pending) in pending {
            call.reply().array(4);
            call.reply().bulk(entry.to_string());
            call.reply().bulk(&pending.consumer);
            call.reply().int(pending.at as i64);
            call.reply().int(pending.times as i64);
        }
        call.reply().bulk("consumers");
        call.reply().array(group.consumers.len());
        let mut pending: BTreeMap<&Bytes, Vec<(&Id, &Pending)>> = BTreeMap::new();
        for (id, entry) in &group.pending {
            pending.entry(&entry.consumer).or_default().push((id, entry));
        }
        for (consumer, seen) in &group.consumers {
            let mine = pending.remove(consumer).unwrap_or_default();
            tell_consumer_in_full(call, (consumer, *seen), &mine, most);
        }
    }
    Ok(())
}

fn tell_consumer_in_full(
    call: &mut Call<'_>,
    (name, seen): (&Bytes, u64),
    mine: &[(&Id, &Pending)],
    most: usize,
) {
    call.reply().map(4);
    call.reply().bulk("name");
    call.reply().bulk(name);
    call.reply().bulk("seen-time");
    call.reply().int(seen as i64);
    call.reply().bulk("pel-count");
    call.reply().count(mine.len());
    call.reply().bulk("pending");
    call.reply().array(mine.len().min(most));
    for (entry, pending) in mine.iter().take(most) {
        call.reply().array(3);
        call.reply().bulk(entry.to_string());
        call.reply().int(pending.at as i64);
        call.reply().int(pending.times as i64);
    }
}
