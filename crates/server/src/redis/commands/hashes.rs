//! Hashes: the head is a log of the fields that were set and removed; a long one is rewritten. A
//! hash in use is whole in memory, so hashes are for some hundred fields, and not for millions.

use std::collections::BTreeMap;

use bytes::Bytes;
use hashbrown::HashMap;

use super::super::fail::Fail;
use super::super::keys::{NewFields, SlotId, Value};
use super::super::reply::{Reply, Version};
use super::decimals::{float, float_sum};
use super::{Call, Done, integer};

static NONE: BTreeMap<Bytes, Bytes> = BTreeMap::new();

/// A key that is a hash, or is not there.
pub fn open(call: &mut Call<'_>) -> Result<SlotId, Fail> {
    let id = call.open(1)?;
    match call.value(id) {
        Value::Hash(_) | Value::Absent => Ok(id),
        _ => Err(Fail::wrong_type()),
    }
}

/// Its fields.
pub fn fields<'a>(call: &'a Call<'_>, id: SlotId) -> &'a BTreeMap<Bytes, Bytes> {
    if let Value::Hash(fields) = call.value(id) { fields } else { &NONE }
}

/// Pairs of fields and values that one portion prepares.
const PAIRS: usize = 2_000;

/// Sets fields by pairs of words, all at once, and tells how many were not there. Many fields are
/// prepared in portions before.
fn put(call: &mut Call<'_>, tell: fn(&mut Reply, usize)) -> Done {
    if !call.args.len().is_multiple_of(2) {
        let name = call.word(0).to_ascii_lowercase();
        return Err(Fail::err(format!("wrong number of arguments for '{name}' command")));
    }
    let id = open(call)?;
    if call.args.len() > 2 * PAIRS && !call.is_whole() {
        let look = |call: &mut Call<'_>, (at, new): &mut (usize, NewFields)| {
            let id = open(call)?;
            let rest = call.args.get(2 + *at..).unwrap_or(&[]);
            let next = &rest[..rest.len().min(2 * PAIRS)];
            let is_done = if next.is_empty() {
                new.keep_some(fields(call, id), 2 * PAIRS)
            } else {
                new.add(next.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect());
                *at += next.len();
                false
            };
            Ok((!is_done).then(|| new.memory()))
        };
        return call.at_one_moment(1..2, look, move |call, (_, new)| {
            let id = open(call)?;
            let before = fields(call, id).len();
            call.keys().put_prepared(id, new);
            let added = fields(call, id).len() - before;
            tell(call.reply(), added);
            Ok(())
        });
    }
    let before = fields(call, id).len();
    let pairs = call.args[2..].chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    call.keys().put_fields(id, pairs);
    let added = fields(call, id).len() - before;
    tell(call.reply(), added);
    Ok(())
}

pub fn hset(call: &mut Call<'_>) -> Done {
    put(call, Reply::count)
}

pub fn hmset(call: &mut Call<'_>) -> Done {
    put(call, |reply, _| reply.ok())
}

pub fn hsetnx(call: &mut Call<'_>) -> Done {
    let id = open(call)?;
    let is_there = fields(call, id).contains_key(&call.args[2]);
    if !is_there {
        let pair = (call.args[2].clone(), call.args[3].clone());
        call.keys().put_fields(id, vec![pair]);
    }
    call.reply().flag(!is_there);
    Ok(())
}

pub fn hget(call: &mut Call<'_>) -> Done {
    let id = open(call)?;
    let value = fields(call, id).get(&call.args[2]).cloned();
    call.reply().bulk_or_null(value);
    Ok(())
}

pub fn hmget(call: &mut Call<'_>) -> Done {
    let id = open(call)?;
    let all = fields(call, id);
    let values: Vec<Option<Bytes>> = call.args[2..].iter().map(|field| all.get(field).cloned()).collect();
    call.reply().array(values.len());
    values.iter().for_each(|value| call.reply().bulk_or_null(value.as_ref()));
    Ok(())
}

/// Tells of all fields.
fn tell(call: &mut Call<'_>, head: fn(&mut Reply, usize), names: bool, values: bool) -> Done {
    let id = open(call)?;
    let all = match call.engine.keys.value(id) {
        Value::Hash(fields) => fields,
        _ => &NONE,
    };
    let reply = &mut call.client.reply;
    head(reply, all.len());
    for (field, value) in all {
        if names {
            reply.bulk(field);
        }
        if values {
            reply.bulk(value);
        }
    }
    Ok(())
}

pub fn hgetall(call: &mut Call<'_>) -> Done {
    tell(call, Reply::map, true, true)
}

pub fn hkeys(call: &mut Call<'_>) -> Done {
    tell(call, Reply::array, true, false)
}

pub fn hvals(call: &mut Call<'_>) -> Done {
    tell(call, Reply::array, false, true)
}

pub fn hdel(call: &mut Call<'_>) -> Done {
    let id = open(call)?;
    let all = fields(call, id);
    let mut gone: Vec<Bytes> =
        call.args[2..].iter().filter(|field| all.contains_key(*field)).cloned().collect();
    gone.sort();
    gone.dedup();
    let count = gone.len();
    if count > 0 {
        call.keys().remove_fields(id, gone);
    }
    call.reply().count(count);
    Ok(())
}

pub fn hlen(call: &mut Call<'_>) -> Done {
    let id = open(call)?;
    let len = fields(call, id).len();
    call.reply().count(len);
    Ok(())
}

pub fn hexists(call: &mut Call<'_>) -> Done {
    let id = open(call)?;
    let is_there = fields(call, id).contains_key(&call.args[2]);
    call.reply().flag(is_there);
    Ok(())
}

pub fn hstrlen(call: &mut Call<'_>) -> Done {
    let id = open(call)?;
    let len = fields(call, id).get(&call.args[2]).map_or(0, |value| value.len());
    call.reply().count(len);
    Ok(())
}

pub fn hincrby(call: &mut Call<'_>) -> Done {
    let by = call.integer(3)?;
    let id = open(call)?;
    let old = fields(call, id).get(&call.args[2]).map_or(Some(0), |old| integer(old));
    let old = old.ok_or_else(|| Fail::err("hash value is not an integer"))?;
    let new = old.checked_add(by).ok_or_else(|| Fail::err("increment or decrement would overflow"))?;
    let pair = (call.args[2].clone(), new.to_string().into());
    call.keys().put_fields(id, vec![pair]);
    call.reply().int(new);
    Ok(())
}

pub fn hincrbyfloat(call: &mut Call<'_>) -> Done {
    let by = float(&call.args[3]).ok_or_else(|| Fail::err("value is not a valid float"))?;
    if by.is_infinite() {
        return Err(Fail::err("value is NaN or Infinity"));
    }
    let id = open(call)?;
    let old = fields(call, id).get(&call.args[2]).cloned();
    if old.as_ref().is_some_and(|old| float(old).is_none()) {
        return Err(Fail::err("hash value is not a float"));
    }
    let sum = float_sum(old.as_deref(), &call.args[3])?;
    let pair = (call.args[2].clone(), sum.clone().into());
    call.keys().put_fields(id, vec![pair]);
    call.reply().bulk(sum);
    Ok(())
}

/// Most fields that one pass over a hash takes.
const TAKEN: usize = 10_000;

/// `HRANDFIELD key [count [WITHVALUES]]`: a negative count may give a field more than once.
pub fn hrandfield(call: &mut Call<'_>) -> Done {
    let with_values = match call.args.len() {
        2 | 3 => false,
        4 if call.is(3, "WITHVALUES") => true,
        _ => return Err(Fail::syntax()),
    };
    let count = if call.args.len() > 2 { Some(call.integer(2)?) } else { None };
    // A field may come many times, but not more often than memory lasts.
    if count.is_some_and(|n| n.unsigned_abs() > (1 << 22)) {
        return Err(Fail::err("value is out of range"));
    }
    let id = open(call)?;
    let len = fields(call, id).len();
    let Some(count) = count else {
        let at = (call.engine.next_random() % (len.max(1) as u64)) as usize;
        let field = fields(call, id).keys().nth(at).cloned();
        call.client.reply.bulk_or_null(field);
        return Ok(());
    };
    let chosen = if count < 0 {
        let times = if len == 0 { 0 } else { count.unsigned_abs() as usize };
        (0..times).map(|_| (call.engine.next_random() % len as u64) as usize).collect()
    } else {
        distinct(call, len, (count as usize).min(len))
    };
    let in_pairs = with_values && call.client.reply.version == Version::Three;
    let mut found = Reply::new();
    found.version = call.client.reply.version;
    found.begin(call.client.reply.room());
    found.array(chosen.len() * if with_values && !in_pairs { 2 } else { 1 });
    if chosen.len() <= TAKEN {
        let taken = taken(fields(call, id), &chosen);
        taken.iter().for_each(|pair| tell_pair(&mut found, pair, with_values, in_pairs));
        call.reply().take_in(found);
        return Ok(());
    }
    // The fields of this moment; the reply is written in portions.
    let all: Vec<(Bytes, Bytes)> = fields(call, id).iter().map(|(f, v)| (f.clone(), v.clone())).collect();
    let memory = size_of_val(&all[..]) + size_of_val(&chosen[..]);
    let mut chosen = chosen.into_iter();
    call.in_portions(move |call| {
        for at in chosen.by_ref().take(TAKEN) {
            tell_pair(&mut found, &all[at], with_values, in_pairs);
        }
        call.client.work_bytes = memory + found.bytes.len();
        let is_done = chosen.len() == 0 || found.is_full();
        if found.is_full() {
            call.reply().fill();
        } else if is_done {
            call.reply().take_in(std::mem::take(&mut found));
        }
        call.client.has_room().map(|_| is_done)
    })
}

/// Chooses so many distinct numbers below `len`, in a random order.
fn distinct(call: &mut Call<'_>, len: usize, count: usize) -> Vec<usize> {
    // The numbers that left their places in the row of all numbers.
    let (mut moved, mut chosen) = (HashMap::new(), Vec::with_capacity(count));
    for at in 0..count {
        let other = at + (call.engine.next_random() % (len - at) as u64) as usize;
        let here = moved.get(&at).copied().unwrap_or(at);
        chosen.push(moved.insert(other, here).unwrap_or(other));
    }
    chosen
}

/// Returns the fields at these places, in the order of the places: one pass over the hash.
fn taken(all: &BTreeMap<Bytes, Bytes>, places: &[usize]) -> Vec<(Bytes, Bytes)> {
    let mut order: Vec<(usize, usize)> = places.iter().copied().zip(0..).collect();
    order.sort_unstable();
    let mut found = vec![(Bytes::new(), Bytes::new()); places.len()];
    let (mut fields, mut next, mut current) = (all.iter(), 0, None);
    for (place, at) in order {
        if place >= next {
            current = fields.nth(place - next);
            next = place + 1;
        }
        if let Some((field, value)) = current {
            found[at] = (field.clone(), value.clone());
        }
    }
    found
}

fn tell_pair(reply: &mut Reply, (field, value): &(Bytes, Bytes), with_values: bool, in_pairs: bool) {
    if in_pairs {
        reply.array(2);
    }
    reply.bulk(field);
    if with_values {
        reply.bulk(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pass_takes_the_fields_at_their_places() {
        let all: BTreeMap<Bytes, Bytes> =
            (0..100_u32).map(|n| (format!("{n:03}").into(), n.to_string().into())).collect();
        let places = [7, 99, 0, 7, 50, 0];
        let found = taken(&all, &places);
        let expected: Vec<(Bytes, Bytes)> =
            places.iter().map(|n| (format!("{n:03}").into(), n.to_string().into())).collect();
        assert_eq!(found, expected);
    }
}
