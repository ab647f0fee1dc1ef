//! Reads of streams from the last position, alone or in a group.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::super::fail::{Fail, TimeoutReply, Wait};
use super::super::keys::stream::{Delta, Entry, Group, Id};
use super::super::keys::{Finder, SlotId};
use super::super::reply::{Reply, Version};
use super::blocking::{check_waited, milliseconds, waited_logs};
use super::groups::{distance_behind, last_gap};
use super::portions::{BYTES, PARTS};
use super::streams::{invalid_id, parse_id, tell_entry};
use super::{Call, Done};

/// Where to read a stream from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// After this entry.
    After(Id),
    /// What no consumer of the group was given yet.
    New,
}

/// What is asked for.
struct Asked {
    count: usize,
    until: Option<u64>,
    waits: bool,
    /// The group, and the consumer of it.
    group: Option<(Bytes, Bytes)>,
    no_ack: bool,
    /// Where the keys begin, and how many they are.
    first: usize,
    streams: usize,
}

impl Asked {
    /// The words that name the streams.
    fn keys(&self) -> Range<usize> {
        self.first..self.first + self.streams
    }
}

fn parse(call: &Call<'_>, of_group: bool) -> Result<Asked, Fail> {
    let mut asked = Asked {
        count: usize::MAX,
        until: None,
        waits: false,
        group: None,
        no_ack: false,
        first: 0,
        streams: 0,
    };
    let mut at = 1;
    while at < call.args.len() && asked.first == 0 {
        let more = call.args.len() - at - 1;
        match call.word(at).as_str() {
            "BLOCK" if more > 0 => {
                asked.until = milliseconds(call, at + 1)?;
                asked.waits = true;
                at += 2;
            }
            "COUNT" if more > 0 => {
                let count = call.integer(at + 1)?;
                asked.count = if count <= 0 { usize::MAX } else { count as usize };
                at += 2;
            }
            "GROUP" if more > 1 => {
                if !of_group {
                    return Err(Fail::err(
                        "The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                asked.group = Some((call.args[at + 1].clone(), call.args[at + 2].clone()));
                at += 3;
            }
            "NOACK" => {
                if !of_group {
                    return Err(Fail::err(
                        "The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                asked.no_ack = true;
                at += 1;
            }
            "STREAMS" if more > 0 => {
                if !more.is_multiple_of(2) {
                    return Err(Fail::err(
                        "Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
                    ));
                }
                (asked.first, asked.streams) = (at + 1, more / 2);
            }
            _ => return Err(Fail::syntax()),
        }
    }
    if asked.first == 0 {
        return Err(Fail::syntax());
    }
    if of_group && asked.group.is_none() {
        return Err(Fail::err("Missing GROUP option for XREADGROUP"));
    }
    Ok(asked)
}

/// The error of a group that is not there.
fn no_group(call: &Call<'_>, key: usize, group: &[u8], command: &str) -> Fail {
    if call.woken_by.is_some() {
        return Fail::Reply("NOGROUP the consumer group this client was blocked on no longer exists".into());
    }
    let (key, group) = (String::from_utf8_lossy(&call.args[key]), String::from_utf8_lossy(group));
    Fail::Reply(
        format!("NOGROUP No such key '{key}' or consumer group '{group}' in {command} with GROUP option")
            .into(),
    )
}

/// Opens the stream that a word names, with the group that is asked for.
fn open(call: &mut Call<'_>, asked: &Asked, at: usize) -> Result<SlotId, Fail> {
    let (id, _) = call.stream(at)?;
    if let Some((group, _)) = &asked.group
        && call.engine.keys.stream(id).is_none_or(|stream| !stream.kept.groups.contains_key(group))
    {
        return Err(no_group(call, at, group, "XREADGROUP"));
    }
    Ok(id)
}

/// Where to read a stream from that a word names.
fn start(call: &Call<'_>, asked: &Asked, at: usize, id: SlotId) -> Result<From, Fail> {
    let stream = call.engine.keys.stream(id);
    let text = &call.args[at + asked.streams];
    Ok(match (&text[..], &asked.group) {
        (b"$", None) => From::After(stream.map_or(Id::MIN, |stream| stream.kept.meta.last)),
        (b"$", Some(_)) => {
            return Err(Fail::err(
                "The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
            ));
        }
        (b">", None) => {
            return Err(Fail::err(
                "The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
            ));
        }
        (b">", Some(_)) => From::New,
        (text, _) => From::After(parse_id(text, 0).map_err(|_| invalid_id())?),
    })
}

/// The entries of a stream in a reply. Entries of a consumer's history may be gone.
type Given = Vec<(Id, Option<Entry>)>;

/// What was read so far.
#[derive(Default)]
struct Read {
    /// The words of the streams that were reached, and where the command reads each from.
    starts: Vec<(usize, From)>,
    /// The entries of the streams that were read.
    given: Vec<Given>,
    /// The last entry of the stream that is being read.
    last: Option<Id>,
    /// The last new entry of each stream, if there are several: one may be named twice.
    passed: BTreeMap<Bytes, Id>,
    entries: usize,
    bytes: usize,
}

impl Read {
    /// Returns the most entries that one portion reads.
    fn portion(&self) -> usize {
        (BYTES * self.entries.max(1) / self.bytes.max(1)).clamp(1, PARTS)
    }

    /// Returns the bytes that this takes.
    fn memory(&self) -> usize {
        let streams = self.starts.len() * size_of::<((usize, From), Given)>() + self.passed.len() * PASSED;
        self.bytes + self.entries * size_of::<(Id, Option<Entry>)>() + streams
    }
}

pub fn xread(call: &mut Call<'_>) -> Done {
    read(call, false)
}

pub fn xreadgroup(call: &mut Call<'_>) -> Done {
    read(call, true)
}

fn read(call: &mut Call<'_>, of_group: bool) -> Done {
    let asked = Arc::new(parse(call, of_group)?);
    let (keys, of) = (asked.keys(), asked.clone());
    if asked.waits {
        check_waited(&keys)?;
    }
    call.at_one_moment(
        keys,
        move |call, read| read_some(call, &of, read),
        move |call, read| end(call, &asked, read),
    )
}

/// Reads a portion of the streams; returns the memory of all that was read, if something is left.
fn read_some(call: &mut Call<'_>, asked: &Asked, read: &mut Read) -> Result<Option<usize>, Fail> {
    let mut room = read.portion();
    loop {
        // A stream of which some was read goes on.
        let next = read.given.len() - usize::from(read.last.is_some());
        let Some(at) = call.asked_key(&asked.keys(), next) else { return Ok(None) };
        call.keys().make_room();
        let id = open(call, asked, at)?;
        if read.starts.len() == next {
            read.starts.push((at, start(call, asked, at, id)?));
        }
        let from = read.starts[next].1;
        let most = asked.count - read.last.and(read.given.last()).map_or(0, Vec::len);
        let found = match from {
            From::New => {
                let (group, _) = asked.group.as_ref().expect("it was looked for");
                let last = call.engine.keys.stream(id).expect("it has the group").kept.groups[group].last;
                let last = read.passed.get(&call.args[at]).copied().unwrap_or(last);
                read_after(call, id, read.last.unwrap_or(last), room.min(most), read.bytes)?
            }
            From::After(after) => {
                let after = read.last.unwrap_or(after);
                match &asked.group {
                    None => read_after(call, id, after, room.min(most), read.bytes)?,
                    Some(_) => history(call, id, asked, after, room.min(most), read.bytes)?,
                }
            }
        };
        let Some(found) = found else {
            // The reply has no room, and only a transaction goes on.
            read.given = vec![Vec::new(); read.starts.len()];
            return Ok(None);
        };
        read.entries += found.len();
        read.bytes += found.iter().map(|(_, entry)| entry.as_ref().map_or(GONE, Entry::cost)).sum::<usize>();
        let is_over = found.len() == most || found.len() < room;
        room = room.saturating_sub(found.len() + OPENED);
        let last = found.last().map(|(id, _)| *id);
        if let Some(last) = last.filter(|_| from == From::New && asked.streams > 1) {
            read.passed.insert(call.args[at].clone(), last);
        }
        match read.given.last_mut().filter(|_| read.last.is_some()) {
            Some(given) => given.extend(found),
            None => read.given.push(found),
        }
        read.last = last.filter(|_| !is_over);
        let has_more = !is_over || call.asked_key(&asked.keys(), read.given.len()).is_some();
        if room == 0 && has_more {
            return Ok(Some(read.memory()));
        }
    }
}

/// Notes what was delivered, and tells it; waits if that is nothing.
fn end(call: &mut Call<'_>, asked: &Asked, read: Read) -> Done {
    let Read { starts, given: all, .. } = read;
    if asked.group.is_some() && starts.len() > 1 {
        // One may have expired since its turn. Then the others keep their entries, too.
        for (at, _) in &starts {
            call.keys().make_room();
            open(call, asked, *at)?;
        }
    }
    let mut given: Vec<(usize, Given)> = Vec::new();
    for ((at, from), entries) in starts.iter().zip(all) {
        if let Some((group, consumer)) = &asked.group {
            call.keys().make_room();
            let id = open(call, asked, *at)?;
            super::groups::see_consumer(call, id, group, consumer);
            match from {
                From::New if !entries.is_empty() => {
                    deliver(call, id, group, consumer, &entries, asked.no_ack);
                }
                From::New => {}
                From::After(_) => deliver_again(call, id, group, consumer, &entries),
            }
        }
        // A consumer's own history is told even where it is empty.
        let is_history = asked.group.is_some() && *from != From::New;
        if is_history || !entries.is_empty() {
            given.push((*at, entries));
        }
    }
    if given.is_empty() {
        return wait_for(call, asked, &starts);
    }
    tell(call, given)
}

/// To open a stream takes as long as to read so many entries.
const OPENED: usize = 2;
/// Bytes of a last entry of a stream.
const PASSED: usize = 100;
/// Most bytes that an entry that is gone takes in memory, or in the reply.
const GONE: usize = 100;

/// A part of the reply.
enum Part {
    /// A stream, by its key, with the number of its entries.
    Stream(Bytes, usize),
    /// An entry.
    Entry(Entry),
    /// An entry of a consumer's history that is gone.
    Gone(Id),
}

impl Part {
    fn write(&self, reply: &mut Reply) {
        match self {
            Self::Stream(key, len) => {
                if reply.version == Version::Two {
                    reply.array(2);
                }
                reply.bulk(key);
                reply.array(*len);
            }
            Self::Entry(entry) => tell_entry(reply, entry),
            Self::Gone(id) => {
                reply.array(2);
                reply.bulk(id.to_string());
                reply.null_array();
            }
        }
    }

    /// Returns the most bytes that the part takes in memory, or in the reply.
    fn cost(&self) -> usize {
        match self {
            Self::Stream(key, _) => key.len() + 100,
            Self::Entry(entry) => entry.cost(),
            Self::Gone(_) => GONE,
        }
    }
}

fn tell(call: &mut Call<'_>, given: Vec<(usize, Given)>) -> Done {
    let (start, streams) = (call.client.written(), given.len());
    let mut parts = Vec::with_capacity(streams + given.iter().map(|(_, all)| all.len()).sum::<usize>());
    for (at, entries) in given {
        parts.push(Part::Stream(call.args[at].clone(), entries.len()));
        let part = |(id, entry): (Id, Option<Entry>)| entry.map_or(Part::Gone(id), Part::Entry);
        parts.extend(entries.into_iter().map(part));
    }
    let memory = parts.iter().map(Part::cost).sum();
    if memory > call.client.reply.room() {
        // Later, what was delivered could no longer be undone.
        call.reply().fill();
        return call.client.has_room().map(drop);
    }
    if call.client.reply.version == Version::Three {
        call.reply().map(streams);
    } else {
        call.reply().array(streams);
    }
    let mut parts = parts.into_iter();
    call.tell_parts(start, memory, move |reply| parts.next().map(|part| part.write(reply)).map(|()| 1))
}

/// Returns up to `most` entries after one; `None` if the reply has no room for them, of which
/// `taken` bytes are taken.
fn read_after(
    call: &mut Call<'_>,
    id: SlotId,
    after: Id,
    most: usize,
    taken: usize,
) -> Result<Option<Given>, Fail> {
    let Some(first) = after.after() else { return Ok(Some(Vec::new())) };
    let room = call.client.reply.room().saturating_sub(taken);
    let Some(entries) = call.engine.keys.entries_within(id, (first, Id::MAX), most, false, room)? else {
        call.reply().fill();
        call.client.has_room()?;
        return Ok(None);
    };
    Ok(Some(entries.into_iter().map(|entry| (entry.id, Some(entry))).collect()))
}

/// Returns up to `most` entries after one that are pending for the consumer; `None` if the reply
/// has no room for them, of which `taken` bytes are taken.
fn history(
    call: &mut Call<'_>,
    id: SlotId,
    asked: &Asked,
    after: Id,
    most: usize,
    taken: usize,
) -> Result<Option<Given>, Fail> {
    let (group, consumer) = asked.group.as_ref().expect("it was looked for");
    let kept = &call.engine.keys.stream(id).expect("it has the group").kept.groups[group];
    let mine = after.after().into_iter().flat_map(|from| kept.pending.of(consumer, from));
    let (mut finder, mut found) = (Finder::default(), Vec::new());
    let mut room = Some(call.client.reply.room().saturating_sub(taken));
    for (entry, _) in mine.take(most) {
        let there = call.engine.keys.find_entry(&mut finder, id, entry)?;
        room = room.and_then(|room| room.checked_sub(there.as_ref().map_or(GONE, Entry::cost)));
        if room.is_none() {
            break;
        }
        found.push((entry, there));
    }
    if room.is_none() {
        call.reply().fill();
        call.client.has_room()?;
        return Ok(None);
    }
    Ok(Some(found))
}

/// Takes note that a consumer was told entries of its history: to tell an entry again is to deliver
/// it again.
fn deliver_again(call: &mut Call<'_>, id: SlotId, group: &Bytes, consumer: &Bytes, told: &Given) {
    let kept = &call.engine.keys.stream(id).expect("it has the group").kept.groups[group];
    let now = call.engine.keys.now;
    let there = told.iter().filter(|(_, entry)| entry.is_some());
    let ids: Vec<(Id, u64, u64)> =
        there.filter_map(|(id, _)| Some((*id, now, kept.pending.get(id)?.times + 1))).collect();
    if !ids.is_empty() {
        let delta = Delta::Deliver { group: group.clone(), consumer: consumer.clone(), ids };
        call.keys().change_stream(id, delta);
    }
}

/// Takes note that a consumer was given entries.
fn deliver(call: &mut Call<'_>, id: SlotId, group: &Bytes, consumer: &Bytes, given: &Given, no_ack: bool) {
    let stream = call.engine.keys.stream(id).expect("it has the group");
    let Group { mut last, mut read, .. } = stream.kept.groups[group];
    let (gap, mut first) = (last_gap(&call.engine.keys, id), None);
    for (entry, _) in given {
        read = match read {
            Some(read) if gap.is_none_or(|gap| *entry > gap) => Some(read + 1),
            _ => distance_behind(&call.engine.keys, id, *entry, &mut first),
        };
        last = *entry;
    }
    let now = call.engine.keys.now;
    call.keys().change_stream(id, Delta::Group { name: group.clone(), last, read });
    if !no_ack {
        let ids = given.iter().map(|(entry, _)| (*entry, now, 1)).collect();
        let delta = Delta::Deliver { group: group.clone(), consumer: consumer.clone(), ids };
        call.keys().change_stream(id, delta);
    }
}

/// Waits for entries, or tells at once that there are none.
fn wait_for(call: &mut Call<'_>, asked: &Asked, starts: &[(usize, From)]) -> Done {
    if !asked.waits || !call.may_wait {
        call.reply().null_array();
        return Ok(());
    }
    if call.woken_by.is_some() {
        // The engine keeps the wait that there is.
        return Err(Fail::Wait(Wait::of(Vec::new(), Vec::new(), TimeoutReply::NullArray)));
    }
    let keys = waited_logs(call, asked.keys())?;
    let mut request = call.args.to_vec();
    for (at, from) in starts {
        // What was the last entry when it was asked for stays so.
        if let From::After(after) = from {
            request[at + asked.streams] = after.to_string().into();
        }
    }
    let (until, of_group) = (asked.until, asked.group.is_some());
    Err(Fail::Wait(Wait { until, of_group, ..Wait::of(keys, request, TimeoutReply::NullArray) }))
}
