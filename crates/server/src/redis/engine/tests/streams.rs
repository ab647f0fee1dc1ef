//! Streams of the [model](super::model).

use std::ops::Bound::{Excluded, Unbounded};

use bytes::Bytes;

use super::model::{Flow, Group, Held, Key, Model, Refused, WRONG_TYPE, number};
use crate::redis::keys::stream::Id;
use crate::redis::reply::Reply;

const NO_STREAM: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.";
const TOO_SMALL: &str = "ERR The ID specified in XADD is equal or smaller than the target stream top item";

fn id(word: &[u8]) -> Id {
    let text = std::str::from_utf8(word).unwrap();
    let (ms, seq) = text.split_once('-').unwrap_or((text, "0"));
    Id { ms: ms.parse().unwrap(), seq: seq.parse().unwrap() }
}

fn tell(entry: (&Id, &Vec<Bytes>), out: &mut Reply) {
    out.array(2);
    out.bulk(entry.0.to_string());
    out.bulks(entry.1);
}

/// The stream of a key; `None` where it is not there.
fn stream(model: &Model, key: &Bytes) -> Result<Option<Flow>, String> {
    match model.keys.get(key) {
        None => Ok(None),
        Some(Key { held: Held::Stream(flow), .. }) => Ok(Some(flow.clone())),
        Some(_) => Err(WRONG_TYPE.into()),
    }
}

fn put(model: &mut Model, key: &Bytes, flow: Flow) {
    let expire = model.keys.get(key).and_then(|key| key.expire);
    model.put(key, Held::Stream(flow), expire);
}

/// Puts a stream whose groups alone have changed.
fn put_groups(model: &mut Model, key: &Bytes, flow: Flow) {
    match model.keys.get_mut(key) {
        None => put(model, key, flow),
        Some(kept) => {
            kept.held = Held::Stream(flow);
            model.touch_groups(key);
        }
    }
}

/// Drops the oldest entries but so many, or those before an id; how many went.
fn trim(flow: &mut Flow, how: &[u8], to: &[u8]) -> usize {
    let before = flow.entries.len();
    if how == b"MAXLEN" {
        while flow.entries.len() as i64 > number(to) {
            flow.entries.pop_first();
        }
    } else {
        flow.entries = flow.entries.split_off(&id(to));
    }
    before - flow.entries.len()
}

#[expect(clippy::too_many_lines, reason = "one arm a command")]
pub fn call(model: &mut Model, name: &str, args: &[Bytes], out: &mut Reply) -> Refused {
    match name {
        "XGROUP" => return group(model, args, out),
        "XREADGROUP" => return read(model, args, out),
        _ => {}
    }
    let key = &args[1];
    let found = stream(model, key)?;
    let is_there = found.is_some();
    let mut flow = found.unwrap_or_default();
    match name {
        "XLEN" => out.count(flow.entries.len()),
        "XRANGE" => {
            out.array(flow.entries.len());
            flow.entries.iter().for_each(|entry| tell(entry, out));
        }
        "XADD" => {
            let at = if args[2] == "MAXLEN" { 4 } else { 2 };
            let now = model.now;
            let new = match &args[at][..] {
                b"*" if now > flow.last.ms => Id { ms: now, seq: 0 },
                b"*" => flow.last.after().unwrap(),
                word => id(word),
            };
            if new <= flow.last {
                return Err(TOO_SMALL.into());
            }
            (flow.last, flow.added) = (new, flow.added + 1);
            flow.entries.insert(new, args[at + 1..].to_vec());
            if at > 2 {
                trim(&mut flow, &args[2], &args[3]);
            }
            out.bulk(new.to_string());
            put(model, key, flow);
        }
        "XTRIM" => {
            let gone = trim(&mut flow, &args[2], &args[3]);
            out.count(gone);
            if gone > 0 {
                put(model, key, flow);
            }
        }
        "XDEL" => {
            let gone: Vec<Id> = args[2..]
                .iter()
                .map(|word| id(word))
                .filter(|id| flow.entries.remove(id).is_some())
                .collect();
            out.count(gone.len());
            if let Some(largest) = gone.iter().max() {
                flow.max_deleted = flow.max_deleted.max(*largest);
                put(model, key, flow);
            }
        }
        "XACK" => {
            let pending = flow.groups.get_mut(&args[2]).map(|group| &mut group.pending);
            let gone = pending.map_or(0, |pending| {
                args[3..].iter().filter(|word| pending.remove(&id(word)).is_some()).count()
            });
            out.count(gone);
            if gone > 0 {
                put_groups(model, key, flow);
            }
        }
        "XAUTOCLAIM" => {
            let no_group = format!(
                "NOGROUP No such key '{}' or consumer group '{}'",
                String::from_utf8_lossy(key),
                String::from_utf8_lossy(&args[2])
            );
            let kept = flow.groups.get_mut(&args[2]).filter(|_| is_there).ok_or(no_group)?;
            let (claimed, gone): (Vec<Id>, Vec<Id>) =
                kept.pending.keys().partition(|id| flow.entries.contains_key(id));
            for id in &claimed {
                let times = kept.pending[id].2 + 1;
                kept.pending.insert(*id, (args[3].clone(), model.now, times));
            }
            gone.iter().for_each(|id| drop(kept.pending.remove(id)));
            if !claimed.is_empty() {
                kept.consumers.insert(args[3].clone());
            }
            out.array(3);
            out.bulk("0-0");
            out.array(claimed.len());
            claimed.iter().for_each(|id| tell((id, &flow.entries[id]), out));
            out.bulks(&gone.iter().map(Id::to_string).collect::<Vec<_>>());
            if !claimed.is_empty() || !gone.is_empty() {
                put_groups(model, key, flow);
            }
        }
        _ => panic!("the model does not know {name}"),
    }
    Ok(())
}

fn group(model: &mut Model, args: &[Bytes], out: &mut Reply) -> Refused {
    let (key, name) = (&args[2], &args[3]);
    let found = stream(model, key)?;
    let makes = args.get(5).is_some_and(|word| word == "MKSTREAM");
    if found.is_none() && !makes {
        return Err(NO_STREAM.into());
    }
    let mut flow = found.unwrap_or_default();
    let is_there = flow.groups.contains_key(name);
    let start = |flow: &Flow| if &args[4] == "$" { flow.last } else { id(&args[4]) };
    match &args[1][..] {
        b"CREATE" if is_there => return Err("BUSYGROUP Consumer Group name already exists".into()),
        b"CREATE" => {
            let last = start(&flow);
            flow.groups.insert(name.clone(), Group { last, ..Group::default() });
            out.ok();
        }
        b"DESTROY" => {
            out.flag(is_there);
            if flow.groups.remove(name).is_none() {
                return Ok(());
            }
        }
        _ if !is_there => {
            let (key, name) = (String::from_utf8_lossy(key), String::from_utf8_lossy(name));
            return Err(format!("NOGROUP No such consumer group '{name}' for key name '{key}'"));
        }
        b"SETID" => {
            let last = start(&flow);
            flow.groups.get_mut(name).unwrap().last = last;
            out.ok();
        }
        b"CREATECONSUMER" => {
            let is_new = flow.groups.get_mut(name).unwrap().consumers.insert(args[4].clone());
            out.flag(is_new);
            if !is_new {
                return Ok(());
            }
        }
        _ => {
            let kept = flow.groups.get_mut(name).unwrap();
            let before = kept.pending.len();
            kept.pending.retain(|_, (consumer, ..)| *consumer != args[4]);
            out.count(before - kept.pending.len());
            if !kept.consumers.remove(&args[4]) {
                return Ok(());
            }
        }
    }
    put_groups(model, key, flow);
    Ok(())
}

/// `XREADGROUP GROUP group consumer COUNT n STREAMS key id`.
fn read(model: &mut Model, args: &[Bytes], out: &mut Reply) -> Refused {
    let (name, consumer, key) = (&args[2], &args[3], &args[7]);
    let mut flow = stream(model, key)?.unwrap_or_default();
    let now = model.now;
    let Some(kept) = flow.groups.get_mut(name) else {
        let (key, name) = (String::from_utf8_lossy(key), String::from_utf8_lossy(name));
        return Err(format!(
            "NOGROUP No such key '{key}' or consumer group '{name}' in XREADGROUP with GROUP option"
        ));
    };
    let mut is_changed = kept.consumers.insert(consumer.clone());
    let most = number(&args[5]) as usize;
    let is_new = &args[8] == ">";
    let given: Vec<Id> = if is_new {
        flow.entries.range((Excluded(kept.last), Unbounded)).take(most).map(|(id, _)| *id).collect()
    } else {
        let mine = kept.pending.iter().filter(|(at, (whose, ..))| whose == consumer && **at > id(&args[8]));
        mine.take(most).map(|(id, _)| *id).collect()
    };
    if is_new && let Some(last) = given.last() {
        is_changed = true;
        kept.last = *last;
        kept.pending.extend(given.iter().map(|id| (*id, (consumer.clone(), now, 1))));
    }
    if !is_new {
        for (id, (_, at, times)) in &mut kept.pending {
            if given.contains(id) && flow.entries.contains_key(id) {
                (*at, *times, is_changed) = (now, *times + 1, true);
            }
        }
    }
    if is_new && given.is_empty() {
        out.null_array();
    } else {
        out.array(1);
        out.array(2);
        out.bulk(key);
        out.array(given.len());
        for id in &given {
            match flow.entries.get(id) {
                Some(fields) => tell((id, fields), out),
                None => {
                    out.array(2);
                    out.bulk(id.to_string());
                    out.null_array();
                }
            }
        }
    }
    if is_changed {
        put_groups(model, key, flow);
    }
    Ok(())
}
