//! Arguments of Rust functions that scripts call, and their errors.

use std::fmt;

use mlua::{Error, Lua, LuaString as Text, MultiValue, Value};

/// An error that a script can catch.
#[derive(Clone, Debug)]
pub enum Raised {
    /// A text.
    Text(String),
    /// The error of a command: a table with the field `err`.
    Table(String),
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Text(text) | Self::Table(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Raised {}

/// Returns an error that scripts see as a text, behind the place where it happened.
pub fn raise(lua: &Lua, text: impl fmt::Display) -> Error {
    let place = place(lua, false);
    let at = place.map_or_else(String::new, |(source, line)| format!("{source}:{line}: "));
    Error::external(Raised::Text(format!("{at}{text}")))
}

/// Returns an error that scripts see as the error of a command.
pub fn raise_table(text: impl fmt::Display) -> Error {
    Error::external(Raised::Table(format!("ERR {text}")))
}

/// Name of the chunk that builds the environment.
pub const PRELUDE: &str = "prelude";

/// Returns the source and line of the innermost code of the script: the full name of the source, or
/// the short one.
pub fn place(lua: &Lua, is_full: bool) -> Option<(String, usize)> {
    for level in 0..64 {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let line = debug.current_line()?;
            let is_own = source.short_src.as_deref() == Some(PRELUDE);
            let name = if is_full { source.source } else { source.short_src }?;
            (line > 0 && !is_own).then(|| (name.into_owned(), line))
        });
        match found {
            None => return None,
            Some(Some(place)) => return Some(place),
            Some(None) => {}
        }
    }
    None
}

/// The arguments of a function.
pub struct Args<'a> {
    lua: &'a Lua,
    name: &'static str,
    values: MultiValue,
}

impl<'a> Args<'a> {
    /// Takes the arguments of a function with this name.
    pub fn new(lua: &'a Lua, name: &'static str, values: MultiValue) -> Self {
        Self { lua, name, values }
    }

    /// Returns the number of arguments.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns an argument; the first one is number 1.
    pub fn get(&self, at: usize) -> Option<&Value> {
        self.values.get(at - 1)
    }

    /// Returns the error of an argument.
    pub fn bad(&self, at: usize, why: &str) -> Error {
        raise(self.lua, format_args!("bad argument #{at} to '{}' ({why})", self.name))
    }

    fn wrong(&self, at: usize, expected: &str) -> Error {
        let got = self.get(at).map_or("no value", |value| kind(value));
        self.bad(at, &format!("{expected} expected, got {got}"))
    }

    /// Returns an argument that is a text, or a number as a text.
    pub fn text(&self, at: usize) -> Result<Text, Error> {
        match self.get(at) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(number @ (Value::Integer(_) | Value::Number(_))) => {
                let text = self.lua.coerce_string(number.clone())?;
                text.ok_or_else(|| self.wrong(at, "string"))
            }
            _ => Err(self.wrong(at, "string")),
        }
    }

    /// Returns an argument that is a number.
    pub fn number(&self, at: usize) -> Result<f64, Error> {
        let value = self.get(at).cloned().unwrap_or(Value::Nil);
        self.lua.coerce_number(value)?.ok_or_else(|| self.wrong(at, "number"))
    }

    /// Returns an argument that is a whole number, cut as in Lua 5.1.
    pub fn whole(&self, at: usize) -> Result<i64, Error> {
        Ok(self.number(at)? as i64)
    }

    /// Returns an optional whole number.
    pub fn whole_or(&self, at: usize, default: i64) -> Result<i64, Error> {
        match self.get(at) {
            None | Some(Value::Nil) => Ok(default),
            Some(_) => self.whole(at),
        }
    }
}

/// Returns the name of a value's type, as in Lua.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) | Value::Number(_) => "number",
        Value::LightUserData(_) | Value::Error(_) => "userdata",
        other => other.type_name(),
    }
}

/// Returns a number as C's `%.<precision>g`.
pub fn shortest(n: f64, precision: usize) -> String {
    if n.is_nan() {
        return if n.is_sign_negative() { "-nan" } else { "nan" }.into();
    }
    if n.is_infinite() {
        return if n < 0.0 { "-inf" } else { "inf" }.into();
    }
    let precision = precision.max(1);
    let scientific = format!("{n:.*e}", precision - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    trim(&format!("{n:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::shortest;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        let cases = [
            (0.1, 17, "0.10000000000000001"),
            (3.0, 17, "3"),
            (-0.0, 17, "-0"),
            (9_223_372_036_854_775_808.0, 17, "9.2233720368547758e+18"),
            (1e300, 17, "1.0000000000000001e+300"),
            (1e17, 17, "1e+17"),
            (1e16, 17, "10000000000000000"),
            (1.0 / 3.0, 14, "0.33333333333333"),
            (1e-5, 14, "1e-05"),
            (0.0001, 14, "0.0001"),
            (f64::INFINITY, 14, "inf"),
            (123.0, 3, "123"),
            (1234.0, 3, "1.23e+03"),
        ];
        for (n, precision, text) in cases {
            assert_eq!(shortest(n, precision), text);
        }
    }
}
