//! The functions of strings whose time grows faster than their arguments: here they can be stopped.

use std::sync::Arc;

use mlua::{Error, Function, Lua, LuaString as Text, MultiValue, Result, Table, Value};

use super::guard::Guard;
use super::patterns::{Captured, Fault, Matcher, is_plain};
use super::values::{Args, kind, raise};

/// Longest text that a function makes.
const MOST: usize = 1 << 30;

/// Returns the functions, by name.
pub fn functions(lua: &Lua, guard: &Arc<Guard>) -> Result<Table> {
    let all = lua.create_table()?;
    let g = guard.clone();
    all.set("find", lua.create_function(move |lua, args| find(lua, &g, args, true))?)?;
    let g = guard.clone();
    all.set("match", lua.create_function(move |lua, args| find(lua, &g, args, false))?)?;
    let g = guard.clone();
    all.set("gmatch", lua.create_function(move |lua, args| gmatch(lua, &g, args))?)?;
    let g = guard.clone();
    all.set("gsub", lua.create_function(move |lua, args| gsub(lua, &g, args))?)?;
    let g = guard.clone();
    all.set("rep", lua.create_function(move |lua, args| rep(lua, &g, args))?)?;
    Ok(all)
}

type Matching<'a> = Matcher<'a, Box<dyn Fn() -> bool>>;

fn matcher<'a>(text: &'a [u8], pattern: &'a [u8], guard: &Arc<Guard>) -> Matching<'a> {
    let guard = guard.clone();
    Matcher::new(text, pattern, Box::new(move || guard.check().is_ok()))
}

fn told<T>(lua: &Lua, guard: &Guard, matched: std::result::Result<T, Fault>) -> Result<T> {
    matched.map_err(|fault| match fault {
        Fault::Bad(why) => raise(lua, why),
        Fault::Stopped => guard.check().err().unwrap_or_else(|| Error::runtime("stopped")),
    })
}

fn value(lua: &Lua, captured: Captured<'_>) -> Result<Value> {
    Ok(match captured {
        Captured::Text(text) => Value::String(lua.create_string(text)?),
        Captured::Position(at) => Value::Integer(at as i64),
    })
}

/// Appends the captures of a match; the whole match if the pattern has none.
fn push_captures(
    lua: &Lua,
    guard: &Guard,
    matcher: &Matching<'_>,
    (from, to): (usize, usize),
    values: &mut Vec<Value>,
    with_whole: bool,
) -> Result<()> {
    let least = usize::from(with_whole);
    for n in 0..matcher.count().max(least) {
        values.push(value(lua, told(lua, guard, matcher.get(n, (from, to)))?)?);
    }
    Ok(())
}

/// Finds the first match from `from` on.
fn search(matcher: &mut Matching<'_>, len: usize, from: usize, is_anchored: bool) -> Search {
    for at in from..=len {
        if let Some(end) = matcher.match_at(at)? {
            return Ok(Some((at, end)));
        }
        if is_anchored {
            break;
        }
    }
    Ok(None)
}

type Search = std::result::Result<Option<(usize, usize)>, Fault>;

fn unanchored(pattern: &[u8]) -> (&[u8], bool) {
    pattern.strip_prefix(b"^").map_or((pattern, false), |rest| (rest, true))
}

fn find(lua: &Lua, guard: &Arc<Guard>, values: MultiValue, is_find: bool) -> Result<MultiValue> {
    guard.check()?;
    let args = Args::new(lua, if is_find { "find" } else { "match" }, values);
    let (text, pattern) = (args.text(1)?, args.text(2)?);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let start = args.whole_or(3, 1)?;
    let start = if start < 0 { (text.len() as i64 + start).max(0) } else { (start - 1).max(0) };
    let start = start.min(text.len() as i64) as usize;
    let is_literal = args.get(4).is_some_and(|value| !matches!(value, Value::Nil | Value::Boolean(false)));
    let mut results = Vec::new();
    if is_find && (is_literal || is_plain(&pattern)) {
        if let Some(at) = memchr::memmem::find(&text[start..], &pattern) {
            let from = (start + at) as i64;
            results.extend([Value::Integer(from + 1), Value::Integer(from + pattern.len() as i64)]);
        }
    } else {
        let (inner, is_anchored) = unanchored(&pattern);
        let mut matcher = matcher(&text, inner, guard);
        let found = search(&mut matcher, text.len(), start, is_anchored);
        if let Some((from, to)) = told(lua, guard, found)? {
            if is_find {
                results.extend([Value::Integer(from as i64 + 1), Value::Integer(to as i64)]);
            }
            push_captures(lua, guard, &matcher, (from, to), &mut results, !is_find)?;
        }
    }
    if results.is_empty() {
        results.push(Value::Nil);
    }
    Ok(MultiValue::from_vec(results))
}

fn gmatch(lua: &Lua, guard: &Arc<Guard>, values: MultiValue) -> Result<Function> {
    let args = Args::new(lua, "gmatch", values);
    let (text, pattern) = (args.text(1)?, args.text(2)?);
    let (guard, mut next) = (guard.clone(), 0);
    lua.create_function_mut(move |lua, _: MultiValue| {
        guard.check()?;
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let mut results = Vec::new();
        if next <= text.len() {
            let mut matcher = matcher(&text, &pattern, &guard);
            let found = search(&mut matcher, text.len(), next, false);
            match told(lua, &guard, found)? {
                Some((from, to)) => {
                    next = if to == from { to + 1 } else { to };
                    push_captures(lua, &guard, &matcher, (from, to), &mut results, true)?;
                }
                None => next = text.len() + 1,
            }
        }
        if results.is_empty() {
            results.push(Value::Nil);
        }
        Ok(MultiValue::from_vec(results))
    })
}

fn gsub(lua: &Lua, guard: &Arc<Guard>, values: MultiValue) -> Result<(Text, usize)> {
    guard.check()?;
    let args = Args::new(lua, "gsub", values);
    let (text, pattern) = (args.text(1)?, args.text(2)?);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let replacement = match args.get(3) {
        Some(Value::String(_) | Value::Integer(_) | Value::Number(_)) => Value::String(args.text(3)?),
        Some(other @ (Value::Table(_) | Value::Function(_))) => other.clone(),
        _ => return Err(args.bad(3, "string/function/table expected")),
    };
    let most = args.whole_or(4, text.len() as i64 + 1)?;
    let (inner, is_anchored) = unanchored(&pattern);
    let mut matcher = matcher(&text, inner, guard);
    let (mut made, mut at, mut count) = (Vec::new(), 0, 0);
    // The memory of the machine does not count this text before its end.
    let limit = guard.room(lua);
    while (count as i64) < most {
        let end = told(lua, guard, matcher.match_at(at))?;
        if let Some(end) = end {
            count += 1;
            replace(lua, guard, &matcher, (at, end), &replacement, &text, &mut made)?;
            if made.len() > limit {
                return Err(Error::runtime("not enough memory"));
            }
        }
        match end {
            Some(end) if end > at => at = end,
            _ if at < text.len() => {
                made.push(text[at]);
                at += 1;
            }
            _ => break,
        }
        if count % 256 == 0 {
            guard.check()?;
        }
        if is_anchored {
            break;
        }
    }
    made.extend_from_slice(&text[at.min(text.len())..]);
    let made = lua.create_string(&made)?;
    guard.watch(lua)?;
    Ok((made, count))
}

fn replace(
    lua: &Lua,
    guard: &Guard,
    matcher: &Matching<'_>,
    whole: (usize, usize),
    replacement: &Value,
    text: &[u8],
    made: &mut Vec<u8>,
) -> Result<()> {
    let get = |n| told(lua, guard, matcher.get(n, whole));
    let new = match replacement {
        Value::String(template) => return expand(lua, guard, matcher, whole, &template.as_bytes(), made),
        Value::Table(table) => {
            let key = value(lua, get(0)?)?;
            guard.nested(|| table.get::<Value>(key))?
        }
        Value::Function(function) => {
            let mut values = Vec::new();
            push_captures(lua, guard, matcher, whole, &mut values, true)?;
            guard.nested(|| function.call::<Value>(MultiValue::from_vec(values)))?
        }
        _ => Value::Nil,
    };
    match new {
        Value::Nil | Value::Boolean(false) => made.extend_from_slice(&text[whole.0..whole.1]),
        Value::String(new) => made.extend_from_slice(&new.as_bytes()),
        Value::Integer(_) | Value::Number(_) => {
            let new = lua.coerce_string(new)?;
            made.extend_from_slice(&new.map(|new| new.as_bytes().to_vec()).unwrap_or_default());
        }
        other => return Err(raise(lua, format_args!("invalid replacement value (a {})", kind(&other)))),
    }
    Ok(())
}

fn expand(
    lua: &Lua,
    guard: &Guard,
    matcher: &Matching<'_>,
    whole: (usize, usize),
    template: &[u8],
    made: &mut Vec<u8>,
) -> Result<()> {
    let mut bytes = template.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            made.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'0') => made.extend_from_slice(matcher.text(whole)),
            Some(digit) if digit.is_ascii_digit() => {
                match told(lua, guard, matcher.get(usize::from(digit - b'1'), whole))? {
                    Captured::Text(text) => made.extend_from_slice(text),
                    Captured::Position(at) => made.extend_from_slice(at.to_string().as_bytes()),
                }
            }
            Some(other) => made.push(*other),
            None => made.push(0),
        }
    }
    Ok(())
}

fn rep(lua: &Lua, guard: &Arc<Guard>, values: MultiValue) -> Result<Text> {
    guard.check()?;
    let args = Args::new(lua, "rep", values);
    let (text, n) = (args.text(1)?, args.whole(2)?.max(0) as usize);
    let text = text.as_bytes();
    let len = text.len().checked_mul(n).filter(|len| *len <= guard.room(lua).min(MOST));
    match len {
        Some(0) => lua.create_string(b""),
        Some(_) => {
            let made = lua.create_string(text.repeat(n))?;
            guard.watch(lua)?;
            Ok(made)
        }
        None => Err(Error::runtime("not enough memory")),
    }
}
