//! Lists of the [model](super::model).

use bytes::Bytes;

use super::model::{Held, Key, Model, Refused, WRONG_TYPE, number};
use crate::redis::reply::Reply;

/// The elements of a list, which has none where it is not there.
pub fn list(model: &Model, key: &Bytes) -> Result<Vec<Bytes>, String> {
    match model.keys.get(key) {
        None => Ok(Vec::new()),
        Some(Key { held: Held::List(all), .. }) => Ok(all.clone()),
        Some(_) => Err(WRONG_TYPE.into()),
    }
}

fn put(model: &mut Model, key: &Bytes, all: Vec<Bytes>) {
    if all.is_empty() {
        model.remove(key);
    } else {
        let expire = model.keys.get(key).and_then(|key| key.expire);
        model.put(key, Held::List(all), expire);
    }
}

/// Takes an element off an end, which must be there.
fn take(all: &mut Vec<Bytes>, is_left: bool) -> Bytes {
    if is_left { all.remove(0) } else { all.pop().unwrap() }
}

fn add(all: &mut Vec<Bytes>, is_left: bool, element: Bytes) {
    let at = if is_left { 0 } else { all.len() };
    all.insert(at, element);
}

fn is_left(word: &[u8]) -> bool {
    word.starts_with(b"L")
}

/// The elements from one place to another, both included and counted from the end where they are
/// negative.
fn places(args: &[Bytes], len: usize) -> (usize, usize) {
    let at = |word: &Bytes| {
        let n = number(word);
        if n < 0 { n + len as i64 } else { n }
    };
    let (from, to) = (at(&args[2]).max(0) as usize, (at(&args[3]) + 1).clamp(0, len as i64) as usize);
    (from.min(to), to)
}

#[expect(clippy::too_many_lines, reason = "one arm a command")]
pub fn call(model: &mut Model, name: &str, args: &[Bytes], out: &mut Reply) -> Refused {
    let key = &args[1];
    let mut all = list(model, key)?;
    let len = all.len();
    match name {
        "LLEN" => out.count(len),
        "LRANGE" => {
            let (from, to) = places(args, len);
            out.bulks(&all[from..to]);
        }
        "RPUSH" | "LPUSH" | "RPUSHX" | "LPUSHX" => {
            if name.ends_with('X') && all.is_empty() {
                out.int(0);
                return Ok(());
            }
            args[2..].iter().for_each(|element| add(&mut all, is_left(&args[0]), element.clone()));
            out.count(all.len());
            put(model, key, all);
        }
        "LPOP" | "RPOP" => {
            let n = args.get(2).map_or(1, |n| number(n) as usize).min(len);
            let taken: Vec<Bytes> = (0..n).map(|_| take(&mut all, is_left(&args[0]))).collect();
            match (args.len(), len) {
                (2, 0) => out.null(),
                (_, 0) => out.null_array(),
                (2, _) => out.bulk(&taken[0]),
                _ => out.bulks(&taken),
            }
            if n > 0 {
                put(model, key, all);
            }
        }
        "LTRIM" => {
            let (from, to) = places(args, len);
            if to - from < len {
                put(model, key, all[from..to].to_vec());
            }
            out.ok();
        }
        "LSET" => {
            let n = number(&args[2]);
            let at = if n < 0 { n + len as i64 } else { n };
            match all.get_mut(usize::try_from(at).unwrap_or(usize::MAX)) {
                Some(element) => *element = args[3].clone(),
                None if len == 0 => return Err("ERR no such key".into()),
                None => return Err("ERR index out of range".into()),
            }
            put(model, key, all);
            out.ok();
        }
        "LINSERT" => match all.iter().position(|element| *element == args[3]) {
            None => out.int(if len == 0 { 0 } else { -1 }),
            Some(at) => {
                all.insert(at + usize::from(&args[2] == "AFTER"), args[4].clone());
                out.count(all.len());
                put(model, key, all);
            }
        },
        "LREM" => {
            let n = number(&args[2]);
            let most = if n == 0 { usize::MAX } else { n.unsigned_abs() as usize };
            let matching = (0..len).filter(|at| all[*at] == args[3]);
            let gone: Vec<usize> =
                if n < 0 { matching.rev().take(most).collect() } else { matching.take(most).collect() };
            out.count(gone.len());
            let kept = (0..len).filter(|at| !gone.contains(at)).map(|at| all[at].clone()).collect();
            if !gone.is_empty() {
                put(model, key, kept);
            }
        }
        "LMOVE" => {
            if !move_one(model, args, out)? {
                out.null();
            }
        }
        _ => panic!("the model does not know {name}"),
    }
    Ok(())
}

/// Moves an element between two ends; whether there was one.
fn move_one(model: &mut Model, args: &[Bytes], out: &mut Reply) -> Result<bool, String> {
    let mut from = list(model, &args[1])?;
    if from.is_empty() {
        return Ok(false);
    }
    list(model, &args[2])?;
    let element = take(&mut from, is_left(&args[3]));
    out.bulk(&element);
    if args[1] == args[2] {
        add(&mut from, is_left(&args[4]), element);
        put(model, &args[1], from);
    } else {
        put(model, &args[1], from);
        let mut to = list(model, &args[2])?;
        add(&mut to, is_left(&args[4]), element);
        put(model, &args[2], to);
    }
    Ok(true)
}

/// Does a command that waits where there is nothing; whether there was something. One that was
/// woken by a key looks there alone.
pub fn call_or_wait(
    model: &mut Model,
    args: &[Bytes],
    woken_by: Option<&Bytes>,
    out: &mut Reply,
) -> Result<bool, String> {
    if args[0] == "BLMOVE" {
        return move_one(model, args, out);
    }
    for key in args[1..args.len() - 1].iter().filter(|key| woken_by.is_none_or(|by| by == *key)) {
        let mut all = list(model, key)?;
        if !all.is_empty() {
            let element = take(&mut all, args[0] == "BLPOP");
            out.bulks(&[key.clone(), element]);
            put(model, key, all);
            return Ok(true);
        }
    }
    Ok(false)
}
