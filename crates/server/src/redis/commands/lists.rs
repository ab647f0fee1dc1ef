//! Lists.

use std::ops::{ControlFlow, Range};

use brooklet::Error;
use bytes::Bytes;

use super::super::client::Client;
use super::super::fail::Fail;
use super::super::keys::{End, SlotId, Value, collect};
use super::blocking::{check_waited, seconds, waits_for};
use super::drafts::{Part, Progress};
use super::lookups::{Lookups, READS};
use super::{Call, Done, splices};

/// Elements that one portion pushes.
const PUSHED: usize = 4_000;

fn push(call: &mut Call<'_>, part: Part) -> Done {
    call.in_parts(call.args.len() > PUSHED, part)
}

/// Pushes the next elements; returns whether they were the last.
fn push_some(
    call: &mut Call<'_>,
    progress: &mut Progress,
    end: End,
    only_if_there: bool,
) -> Result<bool, Fail> {
    let (id, len) = call.list(1)?;
    if len == 0 && only_if_there {
        call.reply().int(0);
        return Ok(true);
    }
    let elements = &call.args[2 + progress.at..];
    let elements = &elements[..elements.len().min(PUSHED)];
    call.engine.keys.push(id, end, elements.iter().cloned());
    progress.at += elements.len();
    let is_done = 2 + progress.at == call.args.len();
    if is_done {
        call.client.reply.count(len + elements.len());
    }
    Ok(is_done)
}

pub fn lpush(call: &mut Call<'_>) -> Done {
    push(call, |call, progress| push_some(call, progress, End::Left, false))
}

pub fn rpush(call: &mut Call<'_>) -> Done {
    push(call, |call, progress| push_some(call, progress, End::Right, false))
}

pub fn lpushx(call: &mut Call<'_>) -> Done {
    push(call, |call, progress| push_some(call, progress, End::Left, true))
}

pub fn rpushx(call: &mut Call<'_>) -> Done {
    push(call, |call, progress| push_some(call, progress, End::Right, true))
}

pub fn llen(call: &mut Call<'_>) -> Done {
    let (_, len) = call.list(1)?;
    call.reply().count(len);
    Ok(())
}

/// Where `n` elements at an end are.
fn at_end(end: End, n: usize, len: usize) -> Range<usize> {
    if end == End::Left { 0..n } else { len - n..len }
}

/// Writes elements to the reply, as far as they fit.
fn write(client: &mut Client, mut elements: impl Iterator<Item = Result<Bytes, Error>>) -> Done {
    // The elements are chained from several sources: a loop inside of them costs less.
    let ended = elements.try_for_each(|element| {
        let has_room = element.map_err(Fail::from).and_then(|element| {
            client.reply.bulk(element);
            client.has_room()
        });
        match has_room {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(Ok(())),
            Err(fail) => ControlFlow::Break(Err(fail)),
        }
    });
    ended.break_value().unwrap_or(Ok(()))
}

/// Takes elements off an end, the outermost first, and writes them to the reply.
fn take(call: &mut Call<'_>, id: SlotId, end: End, n: usize, len: usize) -> Done {
    let elements = call.engine.keys.elements(id, at_end(end, n, len))?;
    match end {
        End::Left => write(call.client, elements)?,
        End::Right => write(call.client, elements.rev())?,
    }
    call.engine.keys.drop_elements(id, end, n);
    Ok(())
}

fn pop(call: &mut Call<'_>, end: End) -> Done {
    if call.args.len() > 3 {
        let name = call.word(0).to_ascii_lowercase();
        return Err(Fail::err(format!("wrong number of arguments for '{name}' command")));
    }
    let count = match call.args.get(2) {
        None => None,
        Some(_) => Some(non_negative(call, 2, "value is out of range, must be positive")?),
    };
    let (id, len) = call.list(1)?;
    match count {
        None if len == 0 => call.reply().null(),
        None => take(call, id, end, 1, len)?,
        Some(_) if len == 0 => call.reply().null_array(),
        Some(0) => call.reply().array(0),
        Some(n) => {
            let n = n.min(len);
            call.reply().array(n);
            take(call, id, end, n, len)?;
        }
    }
    Ok(())
}

/// A word that must be a number, and not less than 0.
fn non_negative(call: &Call<'_>, at: usize, error: &'static str) -> Result<usize, Fail> {
    let n = super::integer(&call.args[at]).filter(|n| *n >= 0).ok_or_else(|| Fail::err(error))?;
    Ok(n as usize)
}

pub fn lpop(call: &mut Call<'_>) -> Done {
    pop(call, End::Left)
}

pub fn rpop(call: &mut Call<'_>) -> Done {
    pop(call, End::Right)
}

/// The place of an element that is counted from the left, or with a negative number from the right.
pub fn place(index: i64, len: usize) -> Option<usize> {
    let at = if index < 0 { index.checked_add(len as i64)? } else { index };
    usize::try_from(at).ok().filter(|at| *at < len)
}

/// The places from one to another, both included, as Redis counts them.
fn places(start: i64, stop: i64, len: usize) -> Range<usize> {
    let len = len as i64;
    let from = if start < 0 { (start + len).max(0) } else { start };
    let to = if stop < 0 { stop + len } else { stop.min(len - 1) };
    if from > to { 0..0 } else { from as usize..to as usize + 1 }
}

pub fn lindex(call: &mut Call<'_>) -> Done {
    let (id, len) = call.list(1)?;
    let at = if len == 0 { None } else { place(call.integer(2)?, len) };
    let element = at.map(|at| call.engine.keys.element(id, at)).transpose()?;
    call.reply().bulk_or_null(element);
    Ok(())
}

pub fn lrange(call: &mut Call<'_>) -> Done {
    let (start, stop) = (call.integer(2)?, call.integer(3)?);
    let (id, len) = call.list(1)?;
    let places = places(start, stop, len);
    call.reply().array(places.len());
    write(call.client, call.engine.keys.elements(id, places)?)
}

pub fn ltrim(call: &mut Call<'_>) -> Done {
    let (start, stop) = (call.integer(2)?, call.integer(3)?);
    let (id, len) = call.list(1)?;
    let kept = places(start, stop, len);
    if kept.is_empty() {
        call.keys().delete(id);
    } else if kept.len() < len {
        let (left, right) = (kept.start, len - kept.end);
        if left > 0 {
            call.keys().drop_elements(id, End::Left, left);
        }
        if right > 0 {
            call.keys().drop_elements(id, End::Right, right);
        }
    }
    call.reply().ok();
    Ok(())
}

pub fn lset(call: &mut Call<'_>) -> Done {
    let (_, len) = call.list(1)?;
    let at = super::integer(&call.args[2]).and_then(|index| place(index, len));
    let is_far = at.is_some_and(|at| splices::is_long(at.min(len - at)));
    call.in_parts_or(is_far, splices::set, lset_now)
}

fn lset_now(call: &mut Call<'_>) -> Done {
    let (id, len) = call.list(1)?;
    if len == 0 {
        return Err(Fail::err("no such key"));
    }
    let at = place(call.integer(2)?, len).ok_or_else(|| Fail::err("index out of range"))?;
    let new = [call.args[3].clone()];
    call.keys().splice(id, at..at + 1, &new)?;
    call.reply().ok();
    Ok(())
}

pub fn linsert(call: &mut Call<'_>) -> Done {
    behind(call)?;
    let (_, len) = call.list(1)?;
    call.in_parts_or(splices::is_long(len), splices::insert, linsert_now)
}

/// Returns how far behind an element LINSERT puts another.
pub fn behind(call: &Call<'_>) -> Result<usize, Fail> {
    match call.word(2).as_str() {
        "AFTER" => Ok(1),
        "BEFORE" => Ok(0),
        _ => Err(Fail::syntax()),
    }
}

fn linsert_now(call: &mut Call<'_>) -> Done {
    let after = behind(call)?;
    let (id, len) = call.list(1)?;
    let found = matching(call.engine.keys.elements(id, 0..len)?, &call.args[3]).next().transpose()?;
    let Some(at) = found else {
        call.reply().int(if len == 0 { 0 } else { -1 });
        return Ok(());
    };
    let new = [call.args[4].clone()];
    call.keys().splice(id, at + after..at + after, &new)?;
    call.reply().count(len + 1);
    Ok(())
}

pub fn lrem(call: &mut Call<'_>) -> Done {
    call.integer(2)?;
    let (_, len) = call.list(1)?;
    call.in_parts_or(splices::is_long(len), splices::remove, lrem_now)
}

fn lrem_now(call: &mut Call<'_>) -> Done {
    let count = call.integer(2)?;
    let (id, len) = call.list(1)?;
    let elements = call.engine.keys.elements(id, 0..len)?;
    let most =
        if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
    let found: Vec<usize> = if count < 0 {
        let from_the_end = matching(elements.rev(), &call.args[3]).take(most);
        let mut found: Vec<usize> = from_the_end.collect::<Result<_, _>>()?;
        found.iter_mut().for_each(|at| *at = len - 1 - *at);
        found.reverse();
        found
    } else {
        matching(elements, &call.args[3]).take(most).collect::<Result<_, _>>()?
    };
    if let (Some(&first), Some(&last)) = (found.first(), found.last()) {
        // All between the first and the last is written anew, without them.
        let between = call.engine.keys.elements(id, first..last + 1)?.zip(first..);
        let kept = between.filter(|(_, at)| found.binary_search(at).is_err()).map(|(element, _)| element);
        let kept = collect(kept)?;
        call.keys().splice(id, first..last + 1, &kept)?;
    }
    call.reply().count(found.len());
    Ok(())
}

pub fn lpos(call: &mut Call<'_>) -> Done {
    let (mut rank, mut count, mut most) = (1, None, 0);
    let mut at = 3;
    while at < call.args.len() {
        if at + 1 == call.args.len() {
            return Err(Fail::syntax());
        }
        match call.word(at).as_str() {
            "RANK" => rank = call.integer(at + 1)?,
            "COUNT" => count = Some(non_negative(call, at + 1, "COUNT can't be negative")?),
            "MAXLEN" => most = non_negative(call, at + 1, "MAXLEN can't be negative")?,
            _ => return Err(Fail::syntax()),
        }
        at += 2;
    }
    if rank == 0 || rank == i64::MIN {
        return Err(Fail::err(if rank == 0 {
            "RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list"
        } else {
            "value is out of range, must be greater than -9223372036854775808"
        }));
    }
    let (id, len) = call.list(1)?;
    let looked_at = if most == 0 { len } else { most.min(len) };
    let range = at_end(if rank < 0 { End::Right } else { End::Left }, looked_at, len);
    let elements = call.engine.keys.elements(id, range.clone())?;
    let (skipped, most) = (rank.unsigned_abs() as usize - 1, count.unwrap_or(1));
    let most = if most == 0 { usize::MAX } else { most };
    let found: Vec<usize> = if rank < 0 {
        let found = matching(elements.rev(), &call.args[2]).skip(skipped).take(most);
        found.map(|at| Ok(range.end - 1 - at?)).collect::<Result<_, Error>>()?
    } else {
        matching(elements, &call.args[2]).skip(skipped).take(most).collect::<Result<_, _>>()?
    };
    match count {
        None => match found.first() {
            Some(at) => call.reply().count(*at),
            None => call.reply().null(),
        },
        Some(_) => {
            call.reply().array(found.len());
            found.iter().for_each(|at| call.reply().count(*at));
        }
    }
    Ok(())
}

/// Returns the places of the elements that are equal to a word, in the order of the elements.
pub fn matching<'a>(
    elements: impl Iterator<Item = Result<Bytes, Error>> + 'a,
    word: &'a Bytes,
) -> impl Iterator<Item = Result<usize, Error>> + 'a {
    elements.enumerate().filter_map(move |(at, element)| match element {
        Ok(element) => (element == *word).then_some(Ok(at)),
        Err(error) => Some(Err(error)),
    })
}

fn end(call: &Call<'_>, at: usize) -> Result<End, Fail> {
    match call.word(at).as_str() {
        "LEFT" => Ok(End::Left),
        "RIGHT" => Ok(End::Right),
        _ => Err(Fail::syntax()),
    }
}

/// Moves an element from the end of one list to the end of another; whether there was one.
fn move_one(call: &mut Call<'_>, from: End, to: End) -> Result<bool, Fail> {
    let (source, len) = call.list(1)?;
    if len == 0 {
        return Ok(false);
    }
    let (target, _) = call.list(2)?;
    let at = at_end(from, 1, len).start;
    let element = call.engine.keys.element(source, at)?;
    // Pushed first, so that a list of one that is moved within itself is never gone.
    if source == target {
        if len > 1 {
            call.keys().drop_elements(source, from, 1);
            call.keys().push(target, to, [element.clone()]);
        } else {
            call.keys().splice(source, 0..1, std::slice::from_ref(&element))?;
        }
    } else {
        call.keys().drop_elements(source, from, 1);
        call.keys().push(target, to, [element.clone()]);
    }
    call.reply().bulk(&element);
    Ok(true)
}

fn move_or_null(call: &mut Call<'_>, from: End, to: End) -> Done {
    if !move_one(call, from, to)? {
        call.reply().null();
    }
    Ok(())
}

fn move_or_wait(call: &mut Call<'_>, from: End, to: End, timeout: usize) -> Done {
    let until = seconds(call, timeout)?;
    if move_one(call, from, to)? {
        return Ok(());
    }
    if !call.may_wait {
        // As in Redis, where only the end of a wait is a null array.
        call.reply().null();
        return Ok(());
    }
    waits_for(call, 1..2, until)
}

pub fn lmove(call: &mut Call<'_>) -> Done {
    let (from, to) = (end(call, 3)?, end(call, 4)?);
    move_or_null(call, from, to)
}

pub fn rpoplpush(call: &mut Call<'_>) -> Done {
    move_or_null(call, End::Right, End::Left)
}

pub fn blmove(call: &mut Call<'_>) -> Done {
    let (from, to) = (end(call, 3)?, end(call, 4)?);
    move_or_wait(call, from, to, 5)
}

pub fn brpoplpush(call: &mut Call<'_>) -> Done {
    move_or_wait(call, End::Right, End::Left, 3)
}

/// The first of some lists that has elements: the place of its word, and its number of elements.
type First = Option<(usize, SlotId, usize)>;

/// Finds the first of some lists that has elements, and then ends the command at once. Looks at
/// many keys in portions.
fn with_first(
    call: &mut Call<'_>,
    keys: Range<usize>,
    end: impl Fn(&mut Call<'_>, First) -> Done + Send + 'static,
) -> Done {
    if keys.len() <= READS || call.woken_by.is_some() {
        let mut first = None;
        let mut n = 0;
        while let Some(at) = call.asked_key(&keys, n).filter(|_| first.is_none()) {
            let (id, len) = call.list(at)?;
            first = (len > 0).then_some((at, id, len));
            n += 1;
        }
        return end(call, first);
    }
    // A value of another type is an error where it comes before all lists.
    let is_there = |value: &Value| value.is_there().then(Bytes::new);
    let mut all = Lookups::of(call, keys.clone(), is_there)?;
    call.in_portions(move |call| {
        let is_done = all.go_on(call)?;
        call.client.work_bytes = all.memory();
        if !is_done {
            return Ok(false);
        }
        let at = all.found().position(Option::is_some).map(|n| keys.start + n);
        let first = at.map(|at| call.list(at).map(|(id, len)| (at, id, len))).transpose()?;
        end(call, first).map(|()| true)
    })
}

fn pop_first(call: &mut Call<'_>, from: End) -> Done {
    let last = call.args.len() - 1;
    let until = seconds(call, last)?;
    check_waited(&(1..last))?;
    with_first(call, 1..last, move |call, first| {
        let Some((at, id, len)) = first else {
            return waits_for(call, 1..last, until);
        };
        let key = call.args[at].clone();
        call.reply().array(2);
        call.reply().bulk(&key);
        take(call, id, from, 1, len)
    })
}

pub fn blpop(call: &mut Call<'_>) -> Done {
    pop_first(call, End::Left)
}

pub fn brpop(call: &mut Call<'_>) -> Done {
    pop_first(call, End::Right)
}

/// `numkeys key [key …] LEFT|RIGHT [COUNT n]`, from a word on: the keys, the end and the count.
fn keys_and_end(call: &Call<'_>, at: usize) -> Result<(Range<usize>, End, usize), Fail> {
    let count = super::integer(&call.args[at]).filter(|n| *n > 0);
    let count = count.ok_or_else(|| Fail::err("numkeys should be greater than 0"))?;
    let keys =
        at + 1..usize::try_from(count).ok().and_then(|n| n.checked_add(at + 1)).ok_or_else(Fail::syntax)?;
    if keys.end >= call.args.len() {
        return Err(Fail::syntax());
    }
    let from = end(call, keys.end)?;
    let rest = call.args.len() - keys.end - 1;
    let most = match rest {
        0 => 1,
        2 if call.is(keys.end + 1, "COUNT") => {
            let n = super::integer(&call.args[keys.end + 2]).filter(|n| *n > 0);
            n.ok_or_else(|| Fail::err("count should be greater than 0"))? as usize
        }
        _ => return Err(Fail::syntax()),
    };
    Ok((keys, from, most))
}

/// Pops up to `most` elements from a list.
fn pop_several(call: &mut Call<'_>, (at, id, len): (usize, SlotId, usize), from: End, most: usize) -> Done {
    let (key, n) = (call.args[at].clone(), most.min(len));
    call.reply().array(2);
    call.reply().bulk(&key);
    call.reply().array(n);
    take(call, id, from, n, len)
}

pub fn lmpop(call: &mut Call<'_>) -> Done {
    let (keys, from, most) = keys_and_end(call, 1)?;
    with_first(call, keys, move |call, first| match first {
        Some(first) => pop_several(call, first, from, most),
        None => {
            call.reply().null_array();
            Ok(())
        }
    })
}

pub fn blmpop(call: &mut Call<'_>) -> Done {
    let until = seconds(call, 1)?;
    let (keys, from, most) = keys_and_end(call, 2)?;
    check_waited(&keys)?;
    with_first(call, keys.clone(), move |call, first| match first {
        Some(first) => pop_several(call, first, from, most),
        None => waits_for(call, keys.clone(), until),
    })
}
