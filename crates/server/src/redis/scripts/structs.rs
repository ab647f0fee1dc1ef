//! The library `struct`: values as bytes, by a format.

use std::sync::Arc;

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

use super::guard::Guard;
use super::values::{Args, raise};

/// Widest integer, in bytes.
const WIDEST: usize = 32;
/// Largest alignment.
const MAX_ALIGN: usize = 8;
/// Most values that a call returns.
const RESULTS: usize = 7000;

/// Returns the library.
pub fn library(lua: &Lua, guard: &Arc<Guard>) -> Result<Table> {
    let table = lua.create_table()?;
    let g = guard.clone();
    table.set("pack", lua.create_function(move |lua, values| pack(lua, &g, values))?)?;
    let g = guard.clone();
    table.set("unpack", lua.create_function(move |lua, values| unpack(lua, &g, values))?)?;
    table.set("size", lua.create_function(size)?)?;
    Ok(table)
}

/// The options of a format, one after another.
pub struct Format<'a> {
    rest: &'a [u8],
    is_little: bool,
    align: usize,
}

/// An option of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The letter.
    pub letter: u8,
    /// Size in bytes; 0 if it depends on the value.
    pub size: usize,
    /// Bytes before the value.
    pub padding: usize,
    /// Whether the lowest byte comes first.
    pub is_little: bool,
}

impl<'a> Format<'a> {
    /// Begins a format.
    pub fn new(format: &'a [u8]) -> Self {
        Self { rest: format, is_little: true, align: 1 }
    }

    fn number(&mut self, default: usize) -> std::result::Result<usize, String> {
        let len = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if len == 0 {
            return Ok(default);
        }
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        number.filter(|n| *n < 1 << 31).ok_or_else(|| "integral size overflow".into())
    }

    /// Takes the next option of a value that begins behind `len` bytes.
    pub fn next(&mut self, len: usize) -> std::result::Result<Option<Item>, String> {
        while let Some((&letter, rest)) = self.rest.split_first() {
            self.rest = rest;
            let size = match letter {
                b'b' | b'B' | b'x' => 1,
                b'h' | b'H' => 2,
                b'l' | b'L' | b'T' | b'd' => 8,
                b'f' => 4,
                b's' => 0,
                b'c' => self.number(1)?,
                b'i' | b'I' => {
                    let size = self.number(4)?;
                    if size > WIDEST {
                        return Err(format!("integral size {size} is larger than limit of {WIDEST}"));
                    }
                    size
                }
                b' ' => continue,
                b'<' | b'>' => {
                    self.is_little = letter == b'<';
                    continue;
                }
                b'!' => {
                    self.align = self.number(MAX_ALIGN)?;
                    if !self.align.is_power_of_two() {
                        return Err(format!("alignment {} is not a power of 2", self.align));
                    }
                    continue;
                }
                _ => return Err(format!("invalid format option '{}'", char::from(letter))),
            };
            let step = if letter == b'c' { 0 } else { size.min(self.align) };
            let padding = if step > 1 { len.wrapping_neg() & (step.next_power_of_two() - 1) } else { 0 };
            return Ok(Some(Item { letter, size, padding, is_little: self.is_little }));
        }
        Ok(None)
    }
}

fn told<T>(lua: &Lua, result: std::result::Result<T, String>) -> Result<T> {
    result.map_err(|why| raise(lua, why))
}

fn pack(lua: &Lua, guard: &Guard, values: MultiValue) -> Result<LuaString> {
    guard.check()?;
    let args = Args::new(lua, "pack", values);
    let format = args.text(1)?;
    let format = format.as_bytes();
    let mut format = Format::new(&format);
    let (mut made, mut at, room) = (Vec::new(), 2, guard.room(lua));
    while let Some(item) = told(lua, format.next(made.len()))? {
        made.resize(made.len() + item.padding, 0);
        match item.letter {
            b'x' => {
                made.push(0);
                continue;
            }
            b'f' => put(&mut made, (args.number(at)? as f32).to_bits().into(), item),
            b'd' => put(&mut made, args.number(at)?.to_bits(), item),
            b'c' | b's' => {
                let text = args.text(at)?;
                let text = text.as_bytes();
                let size = if item.size == 0 { text.len() } else { item.size };
                let part = text.get(..size).ok_or_else(|| args.bad(at, "string too short"))?;
                made.extend_from_slice(part);
                if item.letter == b's' {
                    made.push(0);
                }
            }
            _ => {
                let n = args.number(at)?;
                let bits = if n < 0.0 { (n as i64).cast_unsigned() } else { n as u64 };
                put(&mut made, bits, item);
            }
        }
        at += 1;
        if made.len() > room {
            return Err(Error::runtime("not enough memory"));
        }
    }
    lua.create_string(&made)
}

/// Appends an integer; bytes beyond 64 bits are zero.
fn put(made: &mut Vec<u8>, bits: u64, item: Item) {
    let byte = |n: usize| if n < 8 { (bits >> (8 * n)) as u8 } else { 0 };
    if item.is_little {
        made.extend((0..item.size).map(byte));
    } else {
        made.extend((0..item.size).rev().map(byte));
    }
}

/// Reads an integer; only its lowest 64 bits count.
pub fn get(bytes: &[u8], is_little: bool) -> u64 {
    let add = |all: u64, byte: &u8| all << 8 | u64::from(*byte);
    if is_little { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) }
}

fn unpack(lua: &Lua, guard: &Guard, values: MultiValue) -> Result<MultiValue> {
    guard.check()?;
    let args = Args::new(lua, "unpack", values);
    let (format, data) = (args.text(1)?, args.text(2)?);
    let (format, data) = (format.as_bytes(), data.as_bytes());
    let start = args.whole_or(3, 1)?;
    if start < 1 {
        return Err(args.bad(3, "offset must be 1 or greater"));
    }
    let (mut at, mut format, mut results) = ((start - 1) as usize, Format::new(&format), Vec::new());
    while let Some(item) = told(lua, format.next(at))? {
        if results.len() >= RESULTS {
            return Err(raise(lua, "too many results"));
        }
        let from = at.saturating_add(item.padding);
        let short = || args.bad(2, "data string too short");
        let bytes = data.get(from..from.saturating_add(item.size)).ok_or_else(short)?;
        at = from + item.size;
        let value = match item.letter {
            b'x' => continue,
            b'f' => Value::Number(f32::from_bits(get(bytes, item.is_little) as u32).into()),
            b'd' => Value::Number(f64::from_bits(get(bytes, item.is_little))),
            b'c' if item.size == 0 => {
                let size = match results.pop() {
                    Some(Value::Number(size)) if size >= 0.0 => size as usize,
                    _ => return Err(raise(lua, "format 'c0' needs a previous size")),
                };
                let bytes = data.get(from..from.saturating_add(size)).ok_or_else(short)?;
                at = from + size;
                Value::String(lua.create_string(bytes)?)
            }
            b'c' => Value::String(lua.create_string(bytes)?),
            b's' => {
                let len = memchr::memchr(0, &data[from..]);
                let len = len.ok_or_else(|| raise(lua, "unfinished string in data"))?;
                at = from + len + 1;
                Value::String(lua.create_string(&data[from..from + len])?)
            }
            letter => {
                let bits = get(bytes, item.is_little);
                if letter.is_ascii_lowercase() {
                    let unused = 64 - 8 * item.size.min(8) as u32;
                    let n = if unused < 64 { bits.cast_signed() << unused >> unused } else { 0 };
                    Value::Number(n as f64)
                } else {
                    Value::Number(bits as f64)
                }
            }
        };
        results.push(value);
    }
    results.push(Value::Integer(at as i64 + 1));
    Ok(MultiValue::from_vec(results))
}

fn size(lua: &Lua, values: MultiValue) -> Result<usize> {
    let args = Args::new(lua, "size", values);
    let format = args.text(1)?;
    let format = format.as_bytes();
    let (mut format, mut len) = (Format::new(&format), 0_usize);
    while let Some(item) = told(lua, format.next(len))? {
        if item.size == 0 && matches!(item.letter, b's' | b'c') {
            let option = if item.letter == b's' { "s" } else { "c0" };
            return Err(args.bad(1, &format!("option '{option}' has no fixed size")));
        }
        len = len.saturating_add(item.padding + item.size);
    }
    Ok(len)
}
