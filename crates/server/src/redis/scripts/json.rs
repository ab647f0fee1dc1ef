//! The library `cjson`: JSON as Redis's scripts know it.

use std::sync::Arc;

use mlua::{Error, LightUserData, Lua, LuaString, MultiValue, Result, Table, Value};

use super::guard::Guard;
use super::json_settings::{Invalid, Settings, Shared};
use super::values::{Args, kind, raise, shortest};

/// Tokens between two looks at the clock.
const CHECK: usize = 256;

/// Returns the library.
pub fn library(lua: &Lua, guard: &Arc<Guard>, settings: &Shared) -> Result<Table> {
    let table = lua.create_table()?;
    let (g, s) = (guard.clone(), settings.clone());
    table.set("encode", lua.create_function(move |lua, values| encode(lua, &g, s.get().clone(), values))?)?;
    let (g, s) = (guard.clone(), settings.clone());
    table.set("decode", lua.create_function(move |lua, values| decode(lua, &g, s.get().clone(), values))?)?;
    table.set("null", Value::LightUserData(LightUserData(std::ptr::null_mut())))?;
    table.set("_NAME", "cjson")?;
    table.set("_VERSION", "2.1.0")?;
    settings.add_to(lua, &table)?;
    Ok(table)
}

struct Encoder<'a> {
    lua: &'a Lua,
    guard: &'a Guard,
    settings: Settings,
    made: Vec<u8>,
    room: usize,
    count: usize,
}

fn encode(lua: &Lua, guard: &Guard, settings: Settings, values: MultiValue) -> Result<LuaString> {
    let args = Args::new(lua, "encode", values);
    if args.len() != 1 {
        return Err(args.bad(1, "expected 1 argument"));
    }
    let mut encoder = Encoder { lua, guard, settings, made: Vec::new(), room: guard.room(lua), count: 0 };
    encoder.value(args.get(1).unwrap_or(&Value::Nil), 0)?;
    lua.create_string(&encoder.made)
}

impl Encoder<'_> {
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

    fn value(&mut self, value: &Value, depth: i64) -> Result<()> {
        self.tick()?;
        match value {
            Value::Nil => self.made.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => self.made.extend_from_slice(b"null"),
            Value::Boolean(is) => self.made.extend_from_slice(if *is { b"true" } else { b"false" }),
            Value::Integer(n) => self.number(*n as f64)?,
            Value::Number(n) => self.number(*n)?,
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Table(table) => self.table(table, depth + 1)?,
            other => {
                let kind = kind(other);
                return Err(raise(self.lua, format_args!("Cannot serialise {kind}: type not supported")));
            }
        }
        Ok(())
    }

    fn number(&mut self, n: f64) -> Result<()> {
        let text = match self.settings.writes_invalid {
            _ if n.is_finite() => shortest(n, self.settings.precision as usize),
            Invalid::Refused => {
                return Err(raise(self.lua, "Cannot serialise number: must not be NaN or Inf"));
            }
            Invalid::Null => "null".into(),
            Invalid::Written if n.is_nan() => "NaN".into(),
            Invalid::Written if n > 0.0 => "Infinity".into(),
            Invalid::Written => "-Infinity".into(),
        };
        self.made.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn text(&mut self, text: &[u8]) {
        self.made.push(b'"');
        for &byte in text {
            let short = match byte {
                b'"' | b'\\' | b'/' => byte,
                8 => b'b',
                9 => b't',
                10 => b'n',
                12 => b'f',
                13 => b'r',
                0..=31 | 127 => {
                    self.made.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                    continue;
                }
                _ => {
                    self.made.push(byte);
                    continue;
                }
            };
            self.made.extend_from_slice(&[b'\\', short]);
        }
        self.made.push(b'"');
    }

    fn table(&mut self, table: &Table, depth: i64) -> Result<()> {
        if depth > self.settings.written_depth {
            return Err(raise(self.lua, format_args!("Cannot serialise, excessive nesting ({depth})")));
        }
        match self.array_len(table)? {
            Some(len) if len > 0 => self.array(table, len, depth),
            _ => self.object(table, depth),
        }
    }

    /// Returns the length of a table that is an array.
    fn array_len(&mut self, table: &Table) -> Result<Option<i64>> {
        let (mut most, mut items) = (0, 0);
        for pair in table.pairs::<Value, Value>() {
            let (key, _) = pair?;
            self.tick()?;
            match key {
                Value::Integer(n) if n > 0 => (most, items) = (most.max(n), items + 1),
                _ => return Ok(None),
            }
        }
        let ratio = self.settings.sparse_ratio;
        if ratio > 0 && most > items * ratio && most > self.settings.sparse_safe {
            if self.settings.converts_sparse {
                return Ok(None);
            }
            return Err(raise(self.lua, "Cannot serialise table: excessively sparse array"));
        }
        Ok(Some(most))
    }

    fn array(&mut self, table: &Table, len: i64, depth: i64) -> Result<()> {
        self.made.push(b'[');
        for at in 1..=len {
            if at > 1 {
                self.made.push(b',');
            }
            self.value(&table.raw_get::<Value>(at)?, depth)?;
        }
        self.made.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: i64) -> Result<()> {
        self.made.push(b'{');
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut is_first) {
                self.made.push(b',');
            }
            self.key(&key)?;
            self.value(&value, depth)?;
        }
        self.made.push(b'}');
        Ok(())
    }

    fn key(&mut self, key: &Value) -> Result<()> {
        match key {
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => {
                self.made.push(b'"');
                self.value(key, 0)?;
                self.made.push(b'"');
            }
            other => {
                let why =
                    format_args!("Cannot serialise {}: table key must be a number or string", kind(other));
                return Err(raise(self.lua, why));
            }
        }
        self.made.push(b':');
        Ok(())
    }
}

/// A token of JSON.
#[derive(Debug, PartialEq)]
pub enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Colon,
    Comma,
    End,
    Null,
    Boolean(bool),
    Number(f64),
    Text(Vec<u8>),
    Wrong(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ArrayBegin => "T_ARR_BEGIN",
            Self::ArrayEnd => "T_ARR_END",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Null => "T_NULL",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Number(_) => "T_NUMBER",
            Self::Text(_) => "T_STRING",
            Self::Wrong(why) => why,
        }
    }
}

/// Reads the tokens of a text.
pub struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    /// Whether numbers count that JSON does not have.
    reads_invalid: bool,
    /// Start of the last token, or the place of its error.
    place: usize,
}

impl<'a> Tokens<'a> {
    /// Begins at the start of a text.
    pub fn new(text: &'a [u8], reads_invalid: bool) -> Self {
        Self { text, at: 0, reads_invalid, place: 0 }
    }

    /// Takes the next token.
    pub fn next(&mut self) -> Token {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        while self.text.get(self.at).is_some_and(is_space) {
            self.at += 1;
        }
        self.place = self.at;
        let rest = &self.text[self.at..];
        let (token, len) = match rest.first() {
            None | Some(0) => (Token::End, 0),
            Some(b'{') => (Token::ObjectBegin, 1),
            Some(b'}') => (Token::ObjectEnd, 1),
            Some(b'[') => (Token::ArrayBegin, 1),
            Some(b']') => (Token::ArrayEnd, 1),
            Some(b':') => (Token::Colon, 1),
            Some(b',') => (Token::Comma, 1),
            Some(b'"') => return self.text(),
            _ if rest.starts_with(b"true") => (Token::Boolean(true), 4),
            _ if rest.starts_with(b"false") => (Token::Boolean(false), 5),
            _ if rest.starts_with(b"null") => (Token::Null, 4),
            Some(b'-' | b'+' | b'0'..=b'9' | b'i' | b'I' | b'n' | b'N') => match strtod(rest) {
                Some((n, len)) if self.reads_invalid || is_valid(&rest[..len]) => (Token::Number(n), len),
                Some(_) => (Token::Wrong("invalid number"), 0),
                None if rest[0] == b'-' => (Token::Wrong("invalid number"), 0),
                None => (Token::Wrong("invalid token"), 0),
            },
            _ => (Token::Wrong("invalid token"), 0),
        };
        self.at += len;
        token
    }

    fn text(&mut self) -> Token {
        let mut made = Vec::new();
        let mut at = self.at + 1;
        loop {
            match self.text.get(at) {
                None => {
                    self.place = at;
                    return Token::Wrong("unexpected end of string");
                }
                Some(b'"') => break,
                Some(b'\\') => {
                    let escape = self.text.get(at + 1).copied().unwrap_or(0);
                    let short = match escape {
                        b'"' | b'\\' | b'/' => escape,
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'u' => match unicode(&self.text[at..]) {
                            Some((c, len)) => {
                                made.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                                at += len;
                                continue;
                            }
                            None => {
                                self.place = at;
                                return Token::Wrong("invalid unicode escape code");
                            }
                        },
                        _ => {
                            self.place = at;
                            return Token::Wrong("invalid escape code");
                        }
                    };
                    made.push(short);
                    at += 2;
                }
                Some(byte) => {
                    made.push(*byte);
                    at += 1;
                }
            }
        }
        self.at = at + 1;
        Token::Text(made)
    }
}

/// Reads `\uXXXX`, or two of them that are one character; returns its length.
fn unicode(text: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6).filter(|digits| digits.starts_with(b"\\u"))?;
        let value = |all: u32, digit: &u8| Some(all * 16 + char::from(*digit).to_digit(16)?);
        digits[2..].iter().try_fold(0, value)
    };
    let first = unit(0)?;
    match first {
        0xd800..=0xdbff => {
            let second = unit(6).filter(|second| (0xdc00..=0xdfff).contains(second))?;
            Some((char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))?, 12))
        }
        _ => Some((char::from_u32(first)?, 6)),
    }
}

/// Returns whether JSON has a number that is written so.
fn is_valid(number: &[u8]) -> bool {
    let digits = number.strip_prefix(b"-").unwrap_or(number);
    let has_zero = digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit();
    digits.first().is_some_and(u8::is_ascii_digit)
        && !has_zero
        && !digits.contains(&b'x')
        && !digits.contains(&b'X')
}

/// Reads a number at the start of a text, which is not empty, as C's `strtod` does; returns it with
/// its length.
pub fn strtod(text: &[u8]) -> Option<(f64, usize)> {
    let signed = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let sign = if text[0] == b'-' { -1.0 } else { 1.0 };
    let rest = &text[signed..];
    let is_word = |word: &[u8]| rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word);
    for (word, value) in [(&b"infinity"[..], f64::INFINITY), (b"inf", f64::INFINITY), (b"nan", f64::NAN)] {
        if is_word(word) {
            return Some((sign * value, signed + word.len()));
        }
    }
    let count = |from: usize, is: fn(&u8) -> bool| rest[from..].iter().take_while(|byte| is(byte)).count();
    if is_word(b"0x") {
        let digits = count(2, u8::is_ascii_hexdigit);
        let value =
            |all: f64, digit: &u8| all * 16.0 + f64::from(char::from(*digit).to_digit(16).unwrap_or(0));
        if digits > 0 {
            return Some((sign * rest[2..2 + digits].iter().fold(0.0, value), signed + 2 + digits));
        }
    }
    let whole = count(0, u8::is_ascii_digit);
    let mut len = whole;
    if rest.get(len) == Some(&b'.') {
        let decimals = count(len + 1, u8::is_ascii_digit);
        if whole + decimals > 0 {
            len += 1 + decimals;
        }
    }
    if len == 0 {
        return None;
    }
    if matches!(rest.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(rest.get(len + 1), Some(b'-' | b'+')));
        let digits = if len + 1 + sign <= rest.len() { count(len + 1 + sign, u8::is_ascii_digit) } else { 0 };
        if digits > 0 {
            len += 1 + sign + digits;
        }
    }
    let value: f64 = std::str::from_utf8(&rest[..len]).ok()?.parse().ok()?;
    Some((sign * value, signed + len))
}

/// A table that is being filled.
enum Open {
    Array(Table, i64),
    Object(Table, LuaString),
}

struct Decoder<'a> {
    lua: &'a Lua,
    tokens: Tokens<'a>,
    depth: i64,
    open: Vec<Open>,
}

fn decode(lua: &Lua, guard: &Guard, settings: Settings, values: MultiValue) -> Result<Value> {
    let args = Args::new(lua, "decode", values);
    if args.len() != 1 {
        return Err(args.bad(1, "expected 1 argument"));
    }
    let text = args.text(1)?;
    let text = text.as_bytes();
    let tokens = Tokens::new(&text, settings.reads_invalid);
    let mut decoder = Decoder { lua, tokens, depth: settings.read_depth, open: Vec::new() };
    let mut token = decoder.tokens.next();
    for count in 1_usize.. {
        if count.is_multiple_of(CHECK) {
            guard.check()?;
        }
        let Some(value) = decoder.begin(&mut token)? else { continue };
        match decoder.attach(value)? {
            Some(value) => return Ok(value),
            None => token = decoder.tokens.next(),
        }
        if let Some(Open::Object(..)) = decoder.open.last() {
            decoder.key(&mut token)?;
        }
    }
    Ok(Value::Nil)
}

impl Decoder<'_> {
    fn wrong<T>(&self, expected: &str, token: &Token) -> Result<T> {
        let (found, at) = (token.name(), self.tokens.place + 1);
        Err(raise(self.lua, format_args!("Expected {expected} but found {found} at character {at}")))
    }

    /// Reads a value from a token on; `None` if a table begins, whose first value has `token`.
    fn begin(&mut self, token: &mut Token) -> Result<Option<Value>> {
        Ok(Some(match std::mem::replace(token, Token::End) {
            Token::Text(text) => Value::String(self.lua.create_string(&text)?),
            Token::Number(n) => Value::Number(n),
            Token::Boolean(is) => Value::Boolean(is),
            Token::Null => Value::LightUserData(LightUserData(std::ptr::null_mut())),
            begin @ (Token::ArrayBegin | Token::ObjectBegin) => {
                let depth = self.open.len() as i64 + 1;
                if depth > self.depth {
                    let at = self.tokens.place + 1;
                    let why =
                        format_args!("Found too many nested data structures ({depth}) at character {at}");
                    return Err(raise(self.lua, why));
                }
                let table = self.lua.create_table()?;
                *token = self.tokens.next();
                let is_array = begin == Token::ArrayBegin;
                if *token == if is_array { Token::ArrayEnd } else { Token::ObjectEnd } {
                    return Ok(Some(Value::Table(table)));
                }
                if is_array {
                    self.open.push(Open::Array(table, 1));
                } else {
                    self.open.push(Open::Object(table, self.lua.create_string(b"")?));
                    self.key(token)?;
                }
                return Ok(None);
            }
            other => return self.wrong("value", &other),
        }))
    }

    /// Reads the key of an object from a token on; then `token` is of the value.
    fn key(&mut self, token: &mut Token) -> Result<()> {
        let Token::Text(key) = token else { return self.wrong("object key string", token) };
        let key = self.lua.create_string(&*key)?;
        let colon = self.tokens.next();
        if colon != Token::Colon {
            return self.wrong("colon", &colon);
        }
        if let Some(Open::Object(_, at)) = self.open.last_mut() {
            *at = key;
        }
        *token = self.tokens.next();
        Ok(())
    }

    /// Puts a value where it belongs; returns the whole value at its end.
    fn attach(&mut self, mut value: Value) -> Result<Option<Value>> {
        loop {
            let (end, expected) = match self.open.last_mut() {
                None => {
                    let token = self.tokens.next();
                    return if token == Token::End { Ok(Some(value)) } else { self.wrong("the end", &token) };
                }
                Some(Open::Array(table, at)) => {
                    table.raw_set(*at, value)?;
                    *at += 1;
                    (Token::ArrayEnd, "comma or array end")
                }
                Some(Open::Object(table, key)) => {
                    table.raw_set(&*key, value)?;
                    (Token::ObjectEnd, "comma or object end")
                }
            };
            let token = self.tokens.next();
            if token == Token::Comma {
                return Ok(None);
            }
            if token != end {
                return self.wrong(expected, &token);
            }
            value = match self.open.pop() {
                Some(Open::Array(table, _) | Open::Object(table, _)) => Value::Table(table),
                None => Value::Nil,
            };
        }
    }
}
