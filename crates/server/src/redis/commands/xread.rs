//! Reads of streams from the last position, alone or in a group.

use bytes::Bytes;

use super::super::fail::{Fail, TimeoutReply, Wait};
use super::super::keys::stream::{Delta, Entry, Group, Id};
use super::super::keys::{Finder, SlotId};
use super::super::reply::{Reply, Version};
use super::blocking::{milliseconds, waited_logs};
use super::groups::{distance, last_gap};
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

/// Where to read each stream from.
fn starts(call: &mut Call<'_>, asked: &Asked) -> Result<Vec<(usize, SlotId, From)>, Fail> {
    let mut starts = Vec::with_capacity(asked.streams);
    for i in (0..asked.streams).filter(|i| call.asks_for(asked.first + i)).collect::<Vec<_>>() {
        let at = asked.first + i;
        let (id, _) = call.stream(at)?;
        let stream = call.engine.keys.stream(id);
        if let Some((group, _)) = &asked.group
            && stream.is_none_or(|stream| !stream.kept.groups.contains_key(group))
        {
            return Err(no_group(call, at, group, "XREADGROUP"));
        }
        let text = &call.args[at + asked.streams];
        let from = match (&text[..], &asked.group) {
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
        };
        starts.push((i, id, from));
    }
    Ok(starts)
}

/// What a stream gives: entries, of which those of a consumer's history may be gone.
type Given = Vec<(Id, Option<Entry>)>;

pub fn xread(call: &mut Call<'_>) -> Done {
    read(call, false)
}

pub fn xreadgroup(call: &mut Call<'_>) -> Done {
    read(call, true)
}

fn read(call: &mut Call<'_>, of_group: bool) -> Done {
    let asked = parse(call, of_group)?;
    let starts = starts(call, &asked)?;
    let mut given: Vec<(usize, Given)> = Vec::new();
    for (i, id, from) in &starts {
        let entries = match (&asked.group, from) {
            (None, From::After(after)) => Some(read_after(call, *id, *after, asked.count)?),
            (Some((group, consumer)), from) => read_as(call, *id, group, consumer, *from, &asked)?,
            (None, From::New) => None,
        };
        // A consumer's own history is told even where it is empty.
        let is_history = of_group && *from != From::New;
        if let Some(entries) = entries.filter(|entries| is_history || !entries.is_empty()) {
            given.push((asked.first + i, entries));
        }
    }
    if given.is_empty() {
        return wait_for(call, &asked, &starts);
    }
    tell(call, given)
}

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
            Self::Gone(_) => 100,
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

fn read_after(call: &mut Call<'_>, id: SlotId, after: Id, count: usize) -> Result<Given, Fail> {
    let Some(first) = after.after() else { return Ok(Vec::new()) };
    let entries = call.entries(id, (first, Id::MAX), count, false)?;
    Ok(entries.into_iter().map(|entry| (entry.id, Some(entry))).collect())
}

/// Reads as a consumer of a group.
fn read_as(
    call: &mut Call<'_>,
    id: SlotId,
    group: &Bytes,
    consumer: &Bytes,
    from: From,
    asked: &Asked,
) -> Result<Option<Given>, Fail> {
    super::groups::see_consumer(call, id, group, consumer);
    let kept = &call.engine.keys.stream(id).expect("it has the group").kept.groups[group];
    match from {
        From::After(after) => {
            let mine = after.after().into_iter().flat_map(|from| kept.pending.of(consumer, from));
            let mine = mine.take(asked.count).map(|(id, pending)| (id, pending.times));
            let mine: Vec<(Id, u64)> = mine.collect();
            let mut history = Vec::with_capacity(mine.len());
            let (now, mut ids, mut finder) = (call.engine.keys.now, Vec::new(), Finder::default());
            for (entry, times) in mine {
                let found = call.engine.keys.find_entry(&mut finder, id, entry)?;
                ids.extend(found.is_some().then_some((entry, now, times + 1)));
                history.push((entry, found));
            }
            // To tell an entry again is to deliver it again.
            if !ids.is_empty() {
                let delta = Delta::Deliver { group: group.clone(), consumer: consumer.clone(), ids };
                call.keys().change_stream(id, delta);
            }
            Ok(Some(history))
        }
        From::New => {
            let last = kept.last;
            let given = read_after(call, id, last, asked.count)?;
            if !given.is_empty() {
                deliver(call, id, group, consumer, &given, asked.no_ack);
            }
            Ok(Some(given))
        }
    }
}

/// Takes note that a consumer was given entries.
fn deliver(call: &mut Call<'_>, id: SlotId, group: &Bytes, consumer: &Bytes, given: &Given, no_ack: bool) {
    let stream = call.engine.keys.stream(id).expect("it has the group");
    let Group { mut last, mut read, .. } = stream.kept.groups[group];
    let gap = last_gap(&call.engine.keys, id);
    for (entry, _) in given {
        read = match read {
            Some(read) if gap.is_none_or(|gap| *entry > gap) => Some(read + 1),
            _ => distance(&call.engine.keys, id, *entry),
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
fn wait_for(call: &mut Call<'_>, asked: &Asked, starts: &[(usize, SlotId, From)]) -> Done {
    if !asked.waits || !call.may_wait {
        call.reply().null_array();
        return Ok(());
    }
    if call.woken_by.is_some() {
        // The engine keeps the wait that there is.
        return Err(Fail::Wait(Wait {
            keys: Vec::new(),
            until: None,
            request: Vec::new(),
            timeout_reply: TimeoutReply::NullArray,
            of_group: false,
            bytes: 0,
        }));
    }
    let keys = waited_logs(call, asked.first..asked.first + asked.streams)?;
    let mut request = call.args.to_vec();
    for (i, _, from) in starts {
        // What was the last entry when it was asked for stays so.
        if let From::After(after) = from {
            request[asked.first + asked.streams + i] = after.to_string().into();
        }
    }
    let of_group = asked.group.is_some();
    Err(Fail::Wait(Wait {
        keys,
        until: asked.until,
        request,
        timeout_reply: TimeoutReply::NullArray,
        of_group,
        bytes: 0,
    }))
}
