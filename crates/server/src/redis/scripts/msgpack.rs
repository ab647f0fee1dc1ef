//! The library `cmsgpack`: MessagePack as Redis's scripts know it.

use std::sync::Arc;

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

use super::guard::Guard;
use super::values::{Args, raise};

/// Most levels of nested tables that are packed; deeper ones become nil, as in Redis.
const PACKED_DEPTH: usize = 16;
/// Most levels of nested values that are unpacked.
const DEPTH: usize = 128;
/// Values between two looks at the clock.
const CHECK: usize = 256;
/// Most values that a call returns.
const RESULTS: usize = 7000;

/// Returns the library.
pub fn library(lua: &Lua, guard: &Arc<Guard>) -> Result<Table> {
    let table = lua.create_table()?;
    let g = guard.clone();
    table.set("pack", lua.create_function(move |lua, values| pack(lua, &g, values))?)?;
    let g = guard.clone();
    table.set("unpack", lua.create_function(move |lua, values| unpack(lua, &g, values, None))?)?;
    let g = guard.clone();
    table
        .set("unpack_one", lua.create_function(move |lua, values| unpack(lua, &g, values, Some((1, 2))))?)?;
    let g = guard.clone();
    let limited = move |lua: &Lua, values: MultiValue| {
        let limit = Args::new(lua, "unpack_limit", values.clone()).whole(2)?;
        unpack(lua, &g, values, Some((limit, 3)))
    };
    table.set("unpack_limit", lua.create_function(limited)?)?;
    table.set("_NAME", "cmsgpack")?;
    table.set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.set("_COPYRIGHT", "Copyright (C) 2012, Redis Ltd.")?;
    table.set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(table)
}

struct Packer<'a> {
    guard: &'a Guard,
    made: Vec<u8>,
    room: usize,
    count: usize,
}

fn pack(lua: &Lua, guard: &Guard, values: MultiValue) -> Result<LuaString> {
    if values.is_empty() {
        return Err(Args::new(lua, "pack", values).bad(0, "MessagePack pack needs input."));
    }
    let mut packer = Packer { guard, made: Vec::new(), room: guard.room(lua), count: 0 };
    values.iter().try_for_each(|value| packer.value(value, 0))?;
    lua.create_string(&packer.made)
}

impl Packer<'_> {
    fn tick(&mut self) -> Result<()> {
        self.count += 1;
        if self.count.is_multiple_of(CHECK) {
            self.guard.check()?;
        }
        if self.made.len() > self.room {
            return Err(Error::runtime("not enough memory"));
        }
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        self.tick()?;
        match value {
            Value::Boolean(is) => self.made.push(0xc2 + u8::from(*is)),
            Value::Integer(n) => self.integer(*n),
            Value::Number(n) => self.number(*n),
            Value::String(text) => {
                let text = text.as_bytes();
                match text.len() {
                    len @ 0..32 => self.made.push(0xa0 | len as u8),
                    len => self.head(len, Some(0xd9), 0xda),
                }
                self.made.extend_from_slice(&text);
            }
            Value::Table(table) if depth < PACKED_DEPTH => self.table(table, depth)?,
            _ => self.made.push(0xc0),
        }
        Ok(())
    }

    /// Appends a length of 8 bits, if there is a sign for it, of 16 or of 32 bits.
    fn head(&mut self, len: usize, byte: Option<u8>, word: u8) {
        match (byte, len) {
            (Some(sign), 0..=0xff) => self.made.extend_from_slice(&[sign, len as u8]),
            (_, 0..=0xffff) => {
                self.made.push(word);
                self.made.extend_from_slice(&(len as u16).to_be_bytes());
            }
            _ => {
                self.made.push(word + 1);
                self.made.extend_from_slice(&(len as u32).to_be_bytes());
            }
        }
    }

    fn integer(&mut self, n: i64) {
        let bytes = n.to_be_bytes();
        let (sign, wide) = match n {
            -32..=127 => return self.made.push(n as u8),
            128..=0xff => (0xcc, 1),
            0x100..=0xffff => (0xcd, 2),
            0x1_0000..=0xffff_ffff => (0xce, 4),
            0x1_0000_0000.. => (0xcf, 8),
            -0x80..-32 => (0xd0, 1),
            -0x8000..-0x80 => (0xd1, 2),
            -0x8000_0000..-0x8000 => (0xd2, 4),
            _ => (0xd3, 8),
        };
        self.made.push(sign);
        self.made.extend_from_slice(&bytes[8 - wide..]);
    }

    fn number(&mut self, n: f64) {
        if n == n.trunc() && (-9.2e18..=9.2e18).contains(&n) {
            return self.integer(n as i64);
        }
        if f64::from(n as f32) == n {
            self.made.push(0xca);
            self.made.extend_from_slice(&(n as f32).to_be_bytes());
        } else {
            self.made.push(0xcb);
            self.made.extend_from_slice(&n.to_be_bytes());
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        let (mut len, mut most, mut is_array) = (0, 0, true);
        for pair in table.pairs::<Value, Value>() {
            self.tick()?;
            len += 1;
            match pair?.0 {
                Value::Integer(n) if n > 0 => most = most.max(n as usize),
                _ => is_array = false,
            }
        }
        if is_array && most == len {
            match len {
                0..16 => self.made.push(0x90 | len as u8),
                _ => self.head(len, None, 0xdc),
            }
            return (1..=len).try_for_each(|at| self.value(&table.raw_get::<Value>(at)?, depth + 1));
        }
        match len {
            0..16 => self.made.push(0x80 | len as u8),
            _ => self.head(len, None, 0xde),
        }
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, depth + 1)?;
            self.value(&value, depth + 1)?;
        }
        Ok(())
    }
}

/// A value of MessagePack, without the values that it consists of.
#[derive(Debug, PartialEq)]
pub enum Head<'a> {
    Nil,
    Boolean(bool),
    Number(f64),
    Text(&'a [u8]),
    Array(usize),
    Map(usize),
}

/// The reason why bytes are no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Missing,
    Bad,
}

/// Takes the head of the next value from bytes.
pub fn head<'a>(bytes: &mut &'a [u8]) -> std::result::Result<Head<'a>, Fault> {
    let (&sign, rest) = bytes.split_first().ok_or(Fault::Missing)?;
    *bytes = rest;
    Ok(match sign {
        0x00..=0x7f => Head::Number(f64::from(sign)),
        0x80..=0x8f => Head::Map(usize::from(sign & 15)),
        0x90..=0x9f => Head::Array(usize::from(sign & 15)),
        0xa0..=0xbf => Head::Text(take(bytes, usize::from(sign & 31))?),
        0xc0 => Head::Nil,
        0xc2 | 0xc3 => Head::Boolean(sign == 0xc3),
        0xc4 | 0xd9 => text(bytes, 1)?,
        0xc5 | 0xda => text(bytes, 2)?,
        0xc6 | 0xdb => text(bytes, 4)?,
        0xca => Head::Number(f64::from(f32::from_bits(unsigned(bytes, 4)? as u32))),
        0xcb => Head::Number(f64::from_bits(unsigned(bytes, 8)?)),
        0xcc => Head::Number(unsigned(bytes, 1)? as f64),
        0xcd => Head::Number(unsigned(bytes, 2)? as f64),
        0xce => Head::Number(unsigned(bytes, 4)? as f64),
        0xcf => Head::Number(unsigned(bytes, 8)? as f64),
        0xd0 => Head::Number(f64::from(unsigned(bytes, 1)? as i8)),
        0xd1 => Head::Number(f64::from(unsigned(bytes, 2)? as i16)),
        0xd2 => Head::Number(f64::from(unsigned(bytes, 4)? as i32)),
        0xd3 => Head::Number(unsigned(bytes, 8)?.cast_signed() as f64),
        0xdc => Head::Array(unsigned(bytes, 2)? as usize),
        0xdd => Head::Array(unsigned(bytes, 4)? as usize),
        0xde => Head::Map(unsigned(bytes, 2)? as usize),
        0xdf => Head::Map(unsigned(bytes, 4)? as usize),
        0xe0..=0xff => Head::Number(f64::from(sign.cast_signed())),
        0xc1 | 0xc7..=0xc9 | 0xd4..=0xd8 => return Err(Fault::Bad),
    })
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> std::result::Result<&'a [u8], Fault> {
    let (taken, rest) = bytes.split_at_checked(len).ok_or(Fault::Missing)?;
    *bytes = rest;
    Ok(taken)
}

fn unsigned(bytes: &mut &[u8], wide: usize) -> std::result::Result<u64, Fault> {
    Ok(take(bytes, wide)?.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

fn text<'a>(bytes: &mut &'a [u8], wide: usize) -> std::result::Result<Head<'a>, Fault> {
    let len = unsigned(bytes, wide)? as usize;
    Ok(Head::Text(take(bytes, len)?))
}

struct Unpacker<'a> {
    lua: &'a Lua,
    guard: &'a Guard,
    bytes: &'a [u8],
    count: usize,
}

impl Unpacker<'_> {
    fn value(&mut self, depth: usize) -> Result<Value> {
        self.count += 1;
        if self.count.is_multiple_of(CHECK) {
            self.guard.check()?;
        }
        if depth > DEPTH {
            return Err(raise(self.lua, "too many nested values in input."));
        }
        let head = head(&mut self.bytes).map_err(|fault| match fault {
            Fault::Missing => raise(self.lua, "Missing bytes in input."),
            Fault::Bad => raise(self.lua, "Bad data format in input."),
        })?;
        Ok(match head {
            Head::Nil => Value::Nil,
            Head::Boolean(is) => Value::Boolean(is),
            Head::Number(n) => Value::Number(n),
            Head::Text(text) => Value::String(self.lua.create_string(text)?),
            Head::Array(len) => {
                let table = self.lua.create_table()?;
                for at in 1..=len {
                    table.raw_set(at, self.value(depth + 1)?)?;
                }
                Value::Table(table)
            }
            Head::Map(len) => {
                let table = self.lua.create_table()?;
                for _ in 0..len {
                    let key = self.value(depth + 1)?;
                    let value = self.value(depth + 1)?;
                    match key {
                        Value::Nil => return Err(raise(self.lua, "table index is nil")),
                        Value::Number(n) if n.is_nan() => return Err(raise(self.lua, "table index is NaN")),
                        key => table.raw_set(key, value)?,
                    }
                }
                Value::Table(table)
            }
        })
    }
}

/// Unpacks all values, or `limit` values from an offset on, which is an argument.
fn unpack(lua: &Lua, guard: &Guard, values: MultiValue, part: Option<(i64, usize)>) -> Result<MultiValue> {
    guard.check()?;
    let args = Args::new(lua, "unpack", values);
    let text = args.text(1)?;
    let text = text.as_bytes();
    let (limit, offset) = match part {
        Some((limit, at)) => (limit, args.whole_or(at, 0)?),
        None => (0, 0),
    };
    if limit < 0 || offset < 0 {
        let why = format_args!("Invalid request to unpack with offset of {offset} and limit of {limit}.");
        return Err(raise(lua, why));
    }
    let len = text.len();
    if offset > len as i64 {
        return Err(raise(lua, format_args!("Start offset {offset} greater than input length {len}.")));
    }
    let limit = if limit == 0 && offset == 0 { usize::MAX } else { limit as usize };
    let mut unpacker = Unpacker { lua, guard, bytes: &text[offset as usize..], count: 0 };
    let mut results = Vec::new();
    while results.len() < limit && !unpacker.bytes.is_empty() {
        if results.len() == RESULTS {
            return Err(raise(lua, "too many values to unpack at once."));
        }
        results.push(unpacker.value(0)?);
    }
    if limit != usize::MAX {
        let left = unpacker.bytes.len();
        let next = if left == 0 { -1 } else { (len - left) as i64 };
        results.insert(0, Value::Integer(next));
    }
    Ok(MultiValue::from_vec(results))
}
