//! Descriptions of streams, groups and consumers.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::keys::stream::{Entry, Group, Id, Pending, Stream};
use super::super::keys::{Keyspace, SlotId};
use super::super::reply::Reply;
use super::groups::{distance, last_gap, no_such_group, pending_of};
use super::portions::{BYTES, PARTS};
use super::streams::tell_entry;
use super::{Call, Done};

/// Entries of a stream that a full description reads at once.
const ENTRIES: usize = 100;

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
    let id = there(call)?;
    match sub.as_str() {
        "STREAM" => tell_stream(call, id),
        "GROUPS" => {
            tell_groups(&call.engine.keys, id, &mut call.client.reply);
            Ok(())
        }
        _ => tell_consumers(call, id),
    }
}

/// The stream that the command names. In portions, it may have expired since the last one.
fn there(call: &mut Call<'_>) -> Result<SlotId, Fail> {
    let (id, is_there) = call.stream(2)?;
    if is_there { Ok(id) } else { Err(Fail::err("no such key")) }
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
    // As in Redis, the difference is one of numbers without a sign, which is then shown with one.
    if added == 0 { Some(0) } else { read.map(|read| added.wrapping_sub(read) as i64) }
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
    for (name, seen) in group.consumers.iter() {
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
            return Err(call.wrong_subcommand());
        }
        count = Some(10);
        if call.args.len() > 4 {
            if call.args.len() != 6 || !call.is(4, "COUNT") {
                return Err(call.wrong_subcommand());
            }
            let n = call.integer(5)?;
            count = Some(if n < 0 { 10 } else { n as usize });
        }
    }
    if let Some(count) = count {
        let most = if count == 0 { usize::MAX } else { count };
        return call.at_one_moment(
            2..3,
            move |call, told: &mut Told| {
                let id = there(call)?;
                told.go_on(call, id, most)
            },
            |call, told| {
                call.reply().take_in(told.reply);
                call.client.has_room().map(drop)
            },
        );
    }
    let all = (Id::MIN, Id::MAX);
    let first = call.engine.keys.entries(id, all, 1, false)?.pop();
    let portion = call.engine.settings.stream_portion();
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

/// A full description, as far as it is written.
#[derive(Default)]
struct Told {
    reply: Reply,
    at: Place,
}

/// The next part of a full description.
#[derive(Clone, Default)]
enum Place {
    /// The stream itself.
    #[default]
    Outline,
    /// The entries from an id on, and so many.
    Entries(Id, usize),
    /// The group with this name, or the next one.
    Group(Bytes),
    /// The pending entries of a group from an id on, and so many.
    Pending(Bytes, Id, usize),
    /// The consumer of a group with this name, or the next one.
    Consumer(Bytes, Bytes),
    /// The pending entries of a consumer of a group from an id on, and so many.
    PendingOf(Bytes, Bytes, Id, usize),
    End,
}

impl Told {
    /// Writes a portion; returns the memory so far, if something is left.
    fn go_on(&mut self, call: &mut Call<'_>, id: SlotId, most: usize) -> Result<Option<usize>, Fail> {
        if matches!(self.at, Place::Outline) {
            self.reply.version = call.client.reply.version;
            self.reply.begin(call.client.reply.room());
        }
        let (end, mut parts) = (self.reply.len() + BYTES, PARTS);
        while parts > 0 && self.reply.len() < end && !matches!(self.at, Place::End) {
            let written = self.write(call, id, most, parts)?;
            parts = parts.saturating_sub(written.max(1));
            if self.reply.is_full() {
                call.reply().fill();
                return call.client.has_room().map(|_| None);
            }
        }
        Ok((!matches!(self.at, Place::End)).then(|| self.reply.len()))
    }

    /// Writes up to `parts` parts of what is next; returns their number.
    fn write(&mut self, call: &mut Call<'_>, id: SlotId, most: usize, parts: usize) -> Result<usize, Fail> {
        let (reply, portion, keys) =
            (&mut self.reply, call.engine.settings.stream_portion(), &call.engine.keys);
        let groups = &found(keys, id).kept.groups;
        let mut written = 1;
        self.at = match std::mem::take(&mut self.at) {
            Place::Outline => {
                let first = keys.entries(id, (Id::MIN, Id::MAX), 1, false)?.pop();
                let stream = found(keys, id);
                reply.map(9);
                tell_outline(reply, stream, portion, first.as_ref());
                reply.bulk("entries");
                let count = most.min(stream.len() as usize);
                reply.array(count);
                Place::Entries(Id::MIN, count)
            }
            Place::Entries(_, 0) => {
                reply.bulk("groups");
                reply.array(groups.len());
                next_group(groups, None)
            }
            Place::Entries(from, count) => {
                let most = count.min(parts).min(ENTRIES);
                let entries = keys.entries_within(id, (from, Id::MAX), most, false, reply.room())?;
                let entries = entries.unwrap_or_else(|| no_room(reply));
                entries.iter().for_each(|entry| tell_entry(reply, entry));
                written = entries.len();
                match entries.last().and_then(|last| last.id.after()) {
                    Some(next) => Place::Entries(next, count - entries.len()),
                    None => Place::Entries(from, 0),
                }
            }
            Place::Group(name) => {
                let group = &groups[&name];
                tell_group_outline(keys, id, reply, &name, group);
                let count = most.min(group.pending.len());
                reply.array(count);
                Place::Pending(name, Id::MIN, count)
            }
            Place::Pending(name, _, 0) => {
                let consumers = &groups[&name].consumers;
                reply.bulk("consumers");
                reply.array(consumers.len());
                next_consumer(groups, name, None)
            }
            Place::Pending(name, from, count) => {
                let rows = groups[&name].pending.range(from..).map(|(id, pending)| (*id, pending));
                let next = tell_pending(reply, rows.take(count.min(parts)), true, &mut written);
                match next {
                    Some(next) => Place::Pending(name, next, count - written),
                    None => Place::Pending(name, from, 0),
                }
            }
            Place::Consumer(name, consumer) => {
                let len = tell_consumer_outline(reply, &groups[&name], &consumer, most);
                Place::PendingOf(name, consumer, Id::MIN, len)
            }
            Place::PendingOf(name, consumer, _, 0) => next_consumer(groups, name, Some(&consumer)),
            Place::PendingOf(name, consumer, from, count) => {
                let rows = groups[&name].pending.of(&consumer, from);
                match tell_pending(reply, rows.take(count.min(parts)), false, &mut written) {
                    Some(next) => Place::PendingOf(name, consumer, next, count - written),
                    None => next_consumer(groups, name, Some(&consumer)),
                }
            }
            Place::End => Place::End,
        };
        Ok(written)
    }
}

/// Marks a reply as one that does not fit; returns no entries for it.
fn no_room(reply: &mut Reply) -> Vec<Entry> {
    reply.fill();
    Vec::new()
}

/// Returns the place of the group that follows one, or of the first.
fn next_group(groups: &BTreeMap<Bytes, Group>, after: Option<&Bytes>) -> Place {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let next = groups.range::<Bytes, _>((from, Bound::Unbounded)).next();
    next.map_or(Place::End, |(name, _)| Place::Group(name.clone()))
}

/// Returns the place of the consumer that follows one, or of the first; after the last, that of the
/// next group.
fn next_consumer(groups: &BTreeMap<Bytes, Group>, name: Bytes, after: Option<&Bytes>) -> Place {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    match groups[&name].consumers.range::<Bytes, _>((from, Bound::Unbounded)).next() {
        Some((consumer, _)) => Place::Consumer(name, consumer.clone()),
        None => next_group(groups, Some(&name)),
    }
}

/// Writes what comes first of a group in a full description.
fn tell_group_outline(keys: &Keyspace, id: SlotId, reply: &mut Reply, name: &Bytes, group: &Group) {
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
}

/// Writes what comes first of a consumer in a full description; returns the number of its pending
/// entries that follow.
fn tell_consumer_outline(reply: &mut Reply, group: &Group, consumer: &Bytes, most: usize) -> usize {
    let len = group.pending.len_of(consumer);
    reply.map(4);
    reply.bulk("name");
    reply.bulk(consumer);
    reply.bulk("seen-time");
    reply.int(group.consumers[consumer] as i64);
    reply.bulk("pel-count");
    reply.count(len);
    reply.bulk("pending");
    reply.array(len.min(most));
    len.min(most)
}

/// Writes pending entries, and counts them; returns the id behind the last one.
fn tell_pending<'a>(
    reply: &mut Reply,
    rows: impl Iterator<Item = (Id, &'a Pending)>,
    names_consumer: bool,
    written: &mut usize,
) -> Option<Id> {
    let mut next = None;
    *written = 0;
    for (entry, pending) in rows {
        reply.array(3 + usize::from(names_consumer));
        reply.bulk(entry.to_string());
        if names_consumer {
            reply.bulk(&pending.consumer);
        }
        reply.int(pending.at as i64);
        reply.int(pending.times as i64);
        *written += 1;
        next = entry.after();
    }
    next
}
