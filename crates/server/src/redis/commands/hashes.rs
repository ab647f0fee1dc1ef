//! Hashes: the head is a log of the fields that were set and removed; a long one is rewritten. A
//! hash in use is whole in memory, so hashes are for some hundred fields, and not for millions.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::keys::{SlotId, Value};
use super::super::reply::{Reply, Version};
use super::strings::float_sum;
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

/// Sets fields by pairs of words; how many were not there.
fn put(call: &mut Call<'_>) -> Result<usize, Fail> {
    if !call.args.len().is_multiple_of(2) {
        let name = call.word(0).to_ascii_lowercase();
        return Err(Fail::err(format!("wrong number of arguments for '{name}' command")));
    }
    let id = open(call)?;
    let before = fields(call, id).len();
    let pairs = call.args[2..].chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    call.keys().put_fields(id, pairs);
    Ok(fields(call, id).len() - before)
}

pub fn hset(call: &mut Call<'_>) -> Done {
    let added = put(call)?;
    call.reply().count(added);
    Ok(())
}

pub fn hmset(call: &mut Call<'_>) -> Done {
    put(call)?;
    call.reply().ok();
    Ok(())
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
    if super::strings::float(&call.args[3]).is_some_and(f64::is_infinite) {
        return Err(Fail::err("value is NaN or Infinity"));
    }
    let id = open(call)?;
    let old = fields(call, id).get(&call.args[2]).cloned();
    let sum = float_sum(old.as_deref(), &call.args[3])?;
    let pair = (call.args[2].clone(), sum.clone().into());
    call.keys().put_fields(id, vec![pair]);
    call.reply().bulk(sum);
    Ok(())
}

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
    let all: Vec<(Bytes, Bytes)> = fields(call, id).iter().map(|(f, v)| (f.clone(), v.clone())).collect();
    let Some(count) = count else {
        let chosen = (call.engine.next_random() % (all.len().max(1) as u64)) as usize;
        let field = all.get(chosen).map(|(field, _)| field);
        call.client.reply.bulk_or_null(field);
        return Ok(());
    };
    let chosen: Vec<usize> = if all.is_empty() {
        Vec::new()
    } else if count < 0 {
        (0..count.unsigned_abs()).map(|_| (call.engine.next_random() % all.len() as u64) as usize).collect()
    } else {
        let mut order: Vec<usize> = (0..all.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, (call.engine.next_random() % (i as u64 + 1)) as usize);
        }
        order.truncate(count as usize);
        order
    };
    let in_pairs = with_values && call.client.reply.version == Version::Three;
    call.reply().array(chosen.len() * if with_values && !in_pairs { 2 } else { 1 });
    for at in chosen {
        if in_pairs {
            call.reply().array(2);
        }
        call.reply().bulk(&all[at].0);
        if with_values {
            call.reply().bulk(&all[at].1);
        }
        if !call.client.has_room()? {
            break;
        }
    }
    Ok(())
}
