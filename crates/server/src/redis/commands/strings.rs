//! Strings: logs of one entry, the head, which each change writes anew.

use bytes::{Bytes, BytesMut};

use super::super::fail::Fail;
use super::super::keys::{SlotId, Value};
use super::decimals::float_sum;
use super::drafts::Progress;
use super::lookups::{Lookups, READS};
use super::{Call, Done, integer};

/// A key that is a string; `None` where it is not there.
fn text(call: &mut Call<'_>, at: usize) -> Result<(SlotId, Option<Bytes>), Fail> {
    let id = call.open(at)?;
    match call.value(id) {
        Value::String(text) => Ok((id, Some(text.clone()))),
        Value::Absent => Ok((id, None)),
        _ => Err(Fail::wrong_type()),
    }
}

pub fn get(call: &mut Call<'_>) -> Done {
    let (_, text) = text(call, 1)?;
    call.reply().bulk_or_null(text);
    Ok(())
}

pub fn getdel(call: &mut Call<'_>) -> Done {
    let (id, text) = text(call, 1)?;
    call.keys().delete(id);
    call.reply().bulk_or_null(text);
    Ok(())
}

pub fn getset(call: &mut Call<'_>) -> Done {
    let (id, old) = text(call, 1)?;
    let new = call.args[2].clone();
    call.keys().set_text(id, new, None);
    call.reply().bulk_or_null(old);
    Ok(())
}

/// When something expires that is given as a number: `EX`, `PX` from now on, `EXAT`, `PXAT` by the
/// clock.
pub fn expiry(call: &Call<'_>, unit: &str, at: usize) -> Result<u64, Fail> {
    let n = call.integer(at)?;
    let millis = if unit.starts_with('P') { Some(n) } else { n.checked_mul(1000) };
    let base = if unit.ends_with("AT") { 0 } else { call.engine.keys.now as i64 };
    let time = millis.filter(|_| n > 0).and_then(|millis| millis.checked_add(base));
    let name = call.word(0).to_ascii_lowercase();
    time.map(|at| at as u64).ok_or_else(|| Fail::err(format!("invalid expire time in '{name}' command")))
}

pub fn getex(call: &mut Call<'_>) -> Done {
    let (word, len) = (call.word(2), call.args.len());
    if !matches!((word.as_str(), len), (_, 2) | ("PERSIST", 3) | ("EX" | "PX" | "EXAT" | "PXAT", 4)) {
        return Err(Fail::syntax());
    }
    let (id, text) = text(call, 1)?;
    if text.is_some() && len > 2 {
        let expire = if len == 4 { Some(expiry(call, &word, 3)?) } else { None };
        set_or_delete(call, id, expire);
    }
    call.reply().bulk_or_null(text);
    Ok(())
}

/// Sets when a key expires, or deletes it where that has passed.
pub fn set_or_delete(call: &mut Call<'_>, id: SlotId, expire: Option<u64>) {
    if expire.is_some_and(|at| at <= call.engine.keys.now) {
        call.keys().delete(id);
    } else if expire != call.engine.keys.expire(id) {
        call.keys().set_expire(id, expire);
    }
}

pub fn set(call: &mut Call<'_>) -> Done {
    let (mut expire, mut keeps, mut gives) = (None, false, false);
    let mut only = None;
    let mut at = 3;
    while at < call.args.len() {
        match call.word(at).as_str() {
            "NX" if only != Some(true) => only = Some(false),
            "XX" if only != Some(false) => only = Some(true),
            "GET" => gives = true,
            "KEEPTTL" if expire.is_none() => keeps = true,
            unit @ ("EX" | "PX" | "EXAT" | "PXAT")
                if expire.is_none() && !keeps && at + 1 < call.args.len() =>
            {
                at += 1;
                expire = Some(expiry(call, unit, at)?);
            }
            _ => return Err(Fail::syntax()),
        }
        at += 1;
    }
    let id = call.open(1)?;
    let old = match call.value(id) {
        Value::String(text) => Some(text.clone()),
        Value::Absent => None,
        _ if gives => return Err(Fail::wrong_type()),
        _ => None,
    };
    let is_there = call.value(id).is_there();
    let is_set = only.is_none_or(|must_be_there| must_be_there == is_there);
    if is_set {
        let expire = if keeps { call.engine.keys.expire(id) } else { expire };
        let new = call.args[2].clone();
        call.keys().set_text(id, new, expire);
        if expire.is_some_and(|at| at <= call.engine.keys.now) {
            call.keys().delete(id);
        }
    }
    match (gives, is_set) {
        (true, _) => call.reply().bulk_or_null(old),
        (false, true) => call.reply().ok(),
        (false, false) => call.reply().null(),
    }
    Ok(())
}

pub fn setnx(call: &mut Call<'_>) -> Done {
    let id = call.open(1)?;
    let is_there = call.value(id).is_there();
    if !is_there {
        let new = call.args[2].clone();
        call.keys().set_text(id, new, None);
    }
    call.reply().flag(!is_there);
    Ok(())
}

fn set_for(call: &mut Call<'_>, unit: &str) -> Done {
    let expire = expiry(call, unit, 2)?;
    let id = call.open(1)?;
    let new = call.args[3].clone();
    call.keys().set_text(id, new, Some(expire));
    call.reply().ok();
    Ok(())
}

pub fn setex(call: &mut Call<'_>) -> Done {
    set_for(call, "EX")
}

pub fn psetex(call: &mut Call<'_>) -> Done {
    set_for(call, "PX")
}

pub fn mget(call: &mut Call<'_>) -> Done {
    if call.args.len() > READS && !call.is_whole() {
        return mget_long(call);
    }
    call.client.reply.array(call.args.len() - 1);
    for at in 1..call.args.len() {
        let id = call.open(at)?;
        let text = if let Value::String(text) = call.engine.keys.value(id) { Some(text) } else { None };
        call.client.reply.bulk_or_null(text);
        if !call.client.has_room()? {
            break;
        }
        call.keys().make_room();
    }
    Ok(())
}

/// Reads many keys in portions, and then writes the reply in portions.
fn mget_long(call: &mut Call<'_>) -> Done {
    let texts = |value: &Value| if let Value::String(text) = value { Some(text.clone()) } else { None };
    let mut all = Some(Lookups::of_words(call, texts)?);
    call.in_portions(move |call| {
        let Some(lookups) = &mut all else { return Ok(true) };
        let is_done = lookups.go_on(call)?;
        call.client.work_bytes = lookups.memory();
        if lookups.value_bytes() > call.client.reply.room() {
            call.reply().fill();
            return call.client.has_room().map(|_| true);
        }
        if !is_done {
            return Ok(false);
        }
        let (start, memory) = (call.client.written(), lookups.memory());
        call.client.reply.array(call.args.len() - 1);
        let (found, mut word) = (all.take(), 0);
        call.tell_parts(start, memory, move |reply| {
            let value = found.as_ref()?.of_word(word)?;
            reply.bulk_or_null(value.as_ref());
            word += 1;
            Some(1)
        })?;
        Ok(true)
    })
}

/// Checks that the words are keys with values.
fn check_pairs(call: &Call<'_>) -> Done {
    if call.args.len().is_multiple_of(2) {
        let name = call.word(0).to_ascii_lowercase();
        return Err(Fail::err(format!("wrong number of arguments for '{name}' command")));
    }
    super::check_names(call.args[1..].iter().step_by(2))
}

/// Sets the next pairs; returns whether they were the last.
fn set_pairs(call: &mut Call<'_>, progress: &mut Progress) -> Result<bool, Fail> {
    let (end, began) = (call.args.len().min(progress.at + 2 * READS), call.engine.keys.draft_cost());
    while progress.at < end && !call.has_drafted(began) {
        // The first word is that of the command.
        let at = progress.at + 1;
        if at < call.args.len() {
            let id = call.open_to_replace(at)?;
            let new = call.args[at + 1].clone();
            call.keys().set_text(id, new, None);
        }
        progress.at += 2;
    }
    Ok(progress.at >= call.args.len())
}

pub fn mset(call: &mut Call<'_>) -> Done {
    check_pairs(call)?;
    call.in_parts(call.args.len() > 2 * READS, |call, progress| {
        let is_done = set_pairs(call, progress)?;
        if is_done {
            call.reply().ok();
        }
        Ok(is_done)
    })
}

pub fn msetnx(call: &mut Call<'_>) -> Done {
    check_pairs(call)?;
    call.in_parts(call.args.len() > 2 * READS, set_if_none_is_there)
}

/// Looks at all keys first, because a key may be named twice.
fn set_if_none_is_there(call: &mut Call<'_>, progress: &mut Progress) -> Result<bool, Fail> {
    if progress.is_second {
        let is_done = set_pairs(call, progress)?;
        if is_done {
            call.reply().flag(true);
        }
        return Ok(is_done);
    }
    let (end, began) = (call.args.len().min(progress.at + 2 * READS), call.engine.keys.draft_cost());
    while progress.at < end && !call.has_drafted(began) {
        let at = progress.at + 1;
        if at < call.args.len() {
            let id = call.open(at)?;
            if call.value(id).is_there() {
                call.reply().flag(false);
                return Ok(true);
            }
            call.keys().make_room();
        }
        progress.at += 2;
    }
    if progress.at >= call.args.len() {
        *progress = Progress { is_second: true, ..Progress::default() };
    }
    Ok(false)
}

/// Changes a string, which keeps when it expires.
fn change(call: &mut Call<'_>, id: SlotId, new: Bytes) -> Done {
    if new.len() > call.engine.settings.max_bulk {
        return Err(Fail::err("string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    let expire = call.engine.keys.expire(id);
    call.keys().set_text(id, new, expire);
    Ok(())
}

pub fn append(call: &mut Call<'_>) -> Done {
    let (id, old) = text(call, 1)?;
    let new: Bytes = match old {
        None => call.args[2].clone(),
        Some(old) => [&old[..], &call.args[2]].concat().into(),
    };
    let len = new.len();
    change(call, id, new)?;
    call.reply().count(len);
    Ok(())
}

pub fn strlen(call: &mut Call<'_>) -> Done {
    let (_, text) = text(call, 1)?;
    call.reply().count(text.map_or(0, |text| text.len()));
    Ok(())
}

pub fn getrange(call: &mut Call<'_>) -> Done {
    let (start, stop) = (call.integer(2)?, call.integer(3)?);
    let (_, text) = text(call, 1)?;
    let text = text.unwrap_or_default();
    let len = text.len() as i64;
    let from = if start < 0 { (start + len).max(0) } else { start };
    let to = if stop < 0 { (stop + len).max(0) } else { stop.min(len - 1) };
    let is_backwards = start < 0 && stop < 0 && start > stop;
    let part =
        if from > to || len == 0 || is_backwards { &[][..] } else { &text[from as usize..=to as usize] };
    call.reply().bulk(part);
    Ok(())
}

pub fn setrange(call: &mut Call<'_>) -> Done {
    let at = integer(&call.args[2]).ok_or_else(Fail::not_an_integer)?;
    let at = usize::try_from(at).map_err(|_| Fail::err("offset is out of range"))?;
    let (id, old) = text(call, 1)?;
    let part = call.args[3].clone();
    let len = old.as_ref().map_or(0, |old| old.len());
    if part.is_empty() {
        call.reply().count(len);
        return Ok(());
    }
    // Zeros come before the part: no memory is taken for more of them than a commit takes.
    let most = call.engine.settings.max_bulk.min(call.engine.keys.largest_value());
    if at.saturating_add(part.len()) > most {
        return Err(Fail::err("string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    let mut new = BytesMut::from(&old.unwrap_or_default()[..]);
    if new.len() < at + part.len() {
        new.resize(at + part.len(), 0);
    }
    new[at..at + part.len()].copy_from_slice(&part);
    let len = new.len();
    change(call, id, new.freeze())?;
    call.reply().count(len);
    Ok(())
}

fn add(call: &mut Call<'_>, by: i64) -> Done {
    let (id, old) = text(call, 1)?;
    let old = old.map_or(Some(0), |old| integer(&old)).ok_or_else(Fail::not_an_integer)?;
    let new = old.checked_add(by).ok_or_else(|| Fail::err("increment or decrement would overflow"))?;
    change(call, id, new.to_string().into())?;
    call.reply().int(new);
    Ok(())
}

pub fn incr(call: &mut Call<'_>) -> Done {
    add(call, 1)
}

pub fn decr(call: &mut Call<'_>) -> Done {
    add(call, -1)
}

pub fn incrby(call: &mut Call<'_>) -> Done {
    let by = call.integer(2)?;
    add(call, by)
}

pub fn decrby(call: &mut Call<'_>) -> Done {
    let by = call.integer(2)?.checked_neg().ok_or_else(|| Fail::err("decrement would overflow"))?;
    add(call, by)
}

pub fn incrbyfloat(call: &mut Call<'_>) -> Done {
    let (id, old) = text(call, 1)?;
    let sum = float_sum(old.as_deref(), &call.args[2])?;
    change(call, id, sum.clone().into())?;
    call.reply().bulk(sum);
    Ok(())
}
