//! Replies: of commands for scripts, and of scripts for clients.

use bytes::Bytes;
use mlua::{Error, Lua, MultiValue, Result, Table, Value};

use super::guard::Guard;
use super::values::{raise_table, shortest};
use crate::redis::reply::Reply;
use crate::redis::stats::Stats;

/// Most levels of nested tables in a reply.
const DEPTH: usize = 200;
/// Values between two looks at the clock.
const CHECK: usize = 256;
/// Bytes that cost as much as a value.
const BYTES: usize = 256;

/// Returns an error's text with a kind in front.
pub fn with_code(text: &str) -> String {
    let text = text.strip_prefix('-').unwrap_or(text);
    if text.contains(' ') { text.to_owned() } else { format!("ERR {text}") }
}

/// Returns the error of a command as scripts see it.
pub fn error_table(lua: &Lua, text: &str) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", text)?;
    table.raw_set("ignore_error_stats_update", true)?;
    Ok(table)
}

/// Returns the words of a command that a script runs.
pub fn words(values: &MultiValue) -> Result<Vec<Bytes>> {
    if values.is_empty() {
        return Err(raise_table("Please specify at least one argument for this redis lib call"));
    }
    let word = |value: &Value| match value {
        Value::String(text) => Ok(Bytes::copy_from_slice(&text.as_bytes())),
        Value::Integer(n) => Ok(shortest(*n as f64, 17).into()),
        Value::Number(n) => Ok(shortest(*n, 17).into()),
        _ => Err(raise_table("Lua redis lib command arguments must be strings or integers")),
    };
    values.iter().map(word).collect()
}

/// Reads a reply in the protocol's bytes as a value of Lua.
pub struct Reading<'a> {
    lua: &'a Lua,
    guard: &'a Guard,
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Reading<'a> {
    /// Begins at the first byte of a reply.
    pub fn new(lua: &'a Lua, guard: &'a Guard, bytes: &'a [u8]) -> Self {
        Self { lua, guard, bytes, count: 0 }
    }

    fn line(&mut self) -> &'a [u8] {
        let end = memchr::memmem::find(self.bytes, b"\r\n").unwrap_or(self.bytes.len());
        let line = &self.bytes[..end];
        self.bytes = &self.bytes[(end + 2).min(self.bytes.len())..];
        line
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = &rest[2.min(rest.len())..];
        taken
    }

    fn text(&self, bytes: &[u8]) -> Result<Value> {
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    fn wrapped(&self, field: &str, value: Value) -> Result<Value> {
        let table = self.lua.create_table()?;
        table.raw_set(field, value)?;
        Ok(Value::Table(table))
    }

    /// Reads the next value. The server wrote the bytes, so they are whole.
    pub fn value(&mut self) -> Result<Value> {
        self.count += 1;
        if self.count.is_multiple_of(CHECK) {
            self.guard.check()?;
        }
        let line = self.line();
        let Some((sign, rest)) = line.split_first() else { return Ok(Value::Nil) };
        let number = || std::str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok());
        match sign {
            b'+' => self.wrapped("ok", self.text(rest)?),
            b'-' => {
                let table = error_table(self.lua, &with_code(&String::from_utf8_lossy(rest)))?;
                Ok(Value::Table(table))
            }
            b':' => Ok(number().map_or(Value::Nil, |n| Value::Number(n as f64))),
            b'_' => Ok(Value::Nil),
            b'#' => Ok(Value::Boolean(rest == b"t")),
            b',' => {
                let n: f64 = String::from_utf8_lossy(rest).parse().unwrap_or(0.0);
                self.wrapped("double", Value::Number(n))
            }
            b'(' => self.wrapped("big_number", self.text(rest)?),
            b'$' | b'=' => {
                let Some(len) = number().and_then(|len| usize::try_from(len).ok()) else {
                    return Ok(Value::Boolean(false));
                };
                let bytes = self.take(len);
                if *sign == b'$' { self.text(bytes) } else { self.verbatim(bytes) }
            }
            b'*' | b'~' | b'%' => match number().and_then(|len| usize::try_from(len).ok()) {
                Some(len) => self.many(*sign, len),
                None => Ok(Value::Boolean(false)),
            },
            _ => Ok(Value::Nil),
        }
    }

    fn verbatim(&self, bytes: &[u8]) -> Result<Value> {
        let table = self.lua.create_table()?;
        table.raw_set("format", self.text(&bytes[..3.min(bytes.len())])?)?;
        table.raw_set("string", self.text(&bytes[4.min(bytes.len())..])?)?;
        self.wrapped("verbatim_string", Value::Table(table))
    }

    fn many(&mut self, sign: u8, len: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for at in 1..=len {
            let value = self.value()?;
            match sign {
                b'%' => {
                    let of = self.value()?;
                    table.raw_set(value, of)?;
                }
                b'~' => table.raw_set(value, true)?,
                _ => table.raw_set(at, value)?,
            }
        }
        match sign {
            b'%' => self.wrapped("map", Value::Table(table)),
            b'~' => self.wrapped("set", Value::Table(table)),
            _ => Ok(Value::Table(table)),
        }
    }
}

/// Writes the value of a script as the reply to a client.
pub struct Writing<'a> {
    guard: &'a Guard,
    reply: &'a mut Reply,
    stats: &'a mut Stats,
    /// Version of the protocol that the script set.
    is_three: bool,
    count: usize,
}

impl<'a> Writing<'a> {
    /// Begins a reply.
    pub fn new(guard: &'a Guard, reply: &'a mut Reply, stats: &'a mut Stats, is_three: bool) -> Self {
        Self { guard, reply, stats, is_three, count: 0 }
    }

    /// Writes a value.
    pub fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        self.count += 1;
        if let Value::String(text) = value {
            self.count += text.as_bytes().len() / BYTES;
        }
        if self.count >= CHECK {
            self.count = 0;
            self.guard.check()?;
        }
        match value {
            Value::String(text) => self.reply.bulk(&*text.as_bytes()),
            Value::Integer(n) => self.reply.int(*n),
            // As in C, what is no 64-bit number is the least one.
            Value::Number(n) if !(-9.3e18..9.2e18).contains(n) => self.reply.int(i64::MIN),
            Value::Number(n) => self.reply.int(*n as i64),
            Value::Boolean(is) if self.is_three => self.reply.boolean(*is),
            Value::Boolean(true) => self.reply.flag(true),
            Value::Table(_) if depth > DEPTH => self.reply.error("ERR reached lua stack limit"),
            Value::Table(table) => self.table(table, depth)?,
            _ => self.reply.null(),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        let field = |name: &str| table.raw_get::<Value>(name);
        if let Value::String(text) = field("err")? {
            let text = text.to_string_lossy();
            // The errors of commands were counted when they happened.
            if field("ignore_error_stats_update")?.is_nil() {
                self.stats.note_error(&text);
            }
            self.reply.error(&text);
        } else if let Value::String(text) = field("ok")? {
            self.reply.simple(&text.to_string_lossy().replace(['\r', '\n'], " "));
        } else if let Some(n) = number(&field("double")?) {
            self.reply.double(n);
        } else if let Value::Table(map) = field("map")? {
            self.reply.map(self.len(&map)?);
            for pair in map.pairs::<Value, Value>() {
                let (key, value) = pair?;
                self.value(&key, depth + 1)?;
                self.value(&value, depth + 1)?;
            }
        } else if let Value::Table(set) = field("set")? {
            self.reply.set(self.len(&set)?);
            for pair in set.pairs::<Value, Value>() {
                self.value(&pair?.0, depth + 1)?;
            }
        } else if let Value::String(text) = field("big_number")? {
            self.reply.big_number(&text.to_string_lossy());
        } else if let Value::Table(verbatim) = field("verbatim_string")? {
            let text = verbatim_parts(&verbatim)?;
            match text {
                Some((format, text)) => self.reply.verbatim_as(&format, &text),
                None => self.array(table, depth)?,
            }
        } else {
            self.array(table, depth)?;
        }
        Ok(())
    }

    fn len(&self, table: &Table) -> Result<usize> {
        let mut len = 0;
        for pair in table.pairs::<Value, Value>() {
            pair?;
            len += 1;
            if len % CHECK == 0 {
                self.guard.check()?;
            }
        }
        Ok(len)
    }

    fn array(&mut self, table: &Table, depth: usize) -> Result<()> {
        let start = self.reply.begin_array();
        for at in 1.. {
            let value = table.raw_get::<Value>(at)?;
            if value.is_nil() {
                self.reply.end_array(start, at - 1);
                break;
            }
            self.value(&value, depth + 1)?;
            if self.reply.is_full() {
                break;
            }
        }
        Ok(())
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(n) => Some(*n as f64),
        Value::Number(n) => Some(*n),
        _ => None,
    }
}

fn verbatim_parts(table: &Table) -> Result<Option<(String, Vec<u8>)>> {
    let format = table.raw_get::<Value>("format")?;
    let text = table.raw_get::<Value>("string")?;
    Ok(match (format, text) {
        (Value::String(format), Value::String(text)) => {
            Some((format.to_string_lossy(), text.as_bytes().to_vec()))
        }
        _ => None,
    })
}

/// Returns the error of a script that has too little memory.
pub fn is_memory(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } => is_memory(cause),
        Error::RuntimeError(text) => text.starts_with("not enough memory"),
        _ => false,
    }
}
