//! The virtual machine of Lua, and the environment of scripts in it.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use mlua::chunk::ChunkMode;
use mlua::{Error, Function, Lua, LuaOptions, LuaString, MultiValue, Result, StdLib, Table, Value};

use super::chance::Chance;
use super::guard::Guard;
use super::json_settings::Shared;
use super::values::{Args, PRELUDE, Raised, kind, place, raise};
use super::{bits, json, msgpack, redis_lib, strings, structs};

/// Longest source, in bytes: the compiler cannot be stopped.
pub const MAX_SOURCE: usize = 256 << 10;
/// Most words such as `or` in a source: the compiler's time grows with their square.
const MAX_BRANCHES: usize = 4096;

/// A virtual machine.
pub struct Vm {
    lua: Lua,
    run: Function,
    /// Compiled scripts, by their digests.
    compiled: Mutex<HashMap<String, Function>>,
    pub(super) resp: Arc<AtomicU32>,
    chance: Arc<Chance>,
    json: Shared,
}

impl fmt::Debug for Vm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vm").field("memory", &self.lua.used_memory()).finish_non_exhaustive()
    }
}

impl Vm {
    /// Creates a machine.
    pub fn new(guard: &Arc<Guard>, log: redis_lib::Log) -> Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let (resp, chance) = (Arc::new(AtomicU32::new(2)), Arc::new(Chance::default()));
        let json = Shared::default();
        let native = strings::functions(&lua, guard)?;
        natives(&lua, guard, &native)?;
        chance.add_to(&lua, &native)?;
        native.set("redis", redis_lib::table(&lua, &resp, log)?)?;
        let libraries = lua.create_table()?;
        libraries.set("bit", bits::library(&lua)?)?;
        libraries.set("cjson", json::library(&lua, guard, &json)?)?;
        libraries.set("cmsgpack", msgpack::library(&lua, guard)?)?;
        libraries.set("struct", structs::library(&lua, guard)?)?;
        native.set("libraries", libraries)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name(format!("={PRELUDE}"));
        let run = prelude.call(native)?;
        guard.watch_new(&lua)?;
        Ok(Self { lua, run, compiled: Mutex::default(), resp, chance, json })
    }

    /// Returns the memory, in bytes.
    pub fn memory(&self) -> usize {
        self.lua.used_memory()
    }

    /// Returns a script as a function; compiles it if necessary.
    pub fn function(&self, digest: &str, source: &[u8]) -> std::result::Result<Function, String> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = compiled.get(digest) {
            return Ok(function.clone());
        }
        let function = compile(&self.lua, source, "@user_script")?;
        compiled.insert(digest.to_owned(), function.clone());
        Ok(function)
    }

    /// Runs a script with the given commands.
    pub fn run(
        &self,
        function: &Function,
        (keys, argv): (Table, Table),
        (call, protected_call, may_call): (Function, Function, Function),
    ) -> Result<Ended> {
        self.resp.store(2, Relaxed);
        self.json.reset();
        let chance = self.chance.begin();
        let ended = self.run.call((function, keys, argv, call, protected_call, may_call));
        self.chance.end(chance);
        let ended: MultiValue = ended?;
        let mut ended = ended.into_iter();
        if ended.next().is_some_and(|is_ok| is_ok == Value::Boolean(true)) {
            return Ok(Ended::Value(ended.next().unwrap_or(Value::Nil)));
        }
        let error = match ended.next() {
            Some(Value::String(text)) => text.to_string_lossy(),
            Some(number @ (Value::Integer(_) | Value::Number(_))) => {
                self.lua.coerce_string(number)?.map_or_else(String::new, |text| text.to_string_lossy())
            }
            _ => "ERR unknown error".into(),
        };
        let place = match (ended.next(), ended.next()) {
            (Some(Value::String(source)), Some(Value::Integer(line))) => {
                Some((source.to_string_lossy(), line))
            }
            _ => None,
        };
        Ok(Ended::Error(error, place))
    }

    /// Returns the state of Lua.
    pub fn lua(&self) -> &Lua {
        &self.lua
    }
}

/// The end of a script.
pub enum Ended {
    /// The script returned a value.
    Value(Value),
    /// The script raised an error, in a line of a source.
    Error(String, Option<(String, i64)>),
}

/// Compiles a source; returns the error if that is impossible.
fn compile(lua: &Lua, source: &[u8], name: &str) -> std::result::Result<Function, String> {
    if source.first() == Some(&0x1b) {
        return Err("only source code is accepted, and no compiled code".into());
    }
    if source.len() > MAX_SOURCE {
        return Err(format!("a script has at most {MAX_SOURCE} bytes"));
    }
    if branches(source) > MAX_BRANCHES {
        return Err(format!("a script has at most {MAX_BRANCHES} of the words and, or, break and else"));
    }
    let chunk = lua.load(source).set_name(name).set_mode(ChunkMode::Text);
    chunk.into_function().map_err(|error| match error {
        Error::SyntaxError { message, .. } => message,
        other => other.to_string(),
    })
}

/// Returns the number of words that make the compiler walk a list of jumps.
fn branches(source: &[u8]) -> usize {
    let words = source.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    words.filter(|word| matches!(*word, b"and" | b"or" | b"break" | b"else" | b"elseif")).count()
}

/// Adds the functions that build the environment of scripts.
fn natives(lua: &Lua, guard: &Arc<Guard>, native: &Table) -> Result<()> {
    native.set("base", lua.create_table()?)?;
    let g = guard.clone();
    native.set("tick", lua.create_function(move |_, ()| g.check())?)?;
    let g = guard.clone();
    native.set("caught", lua.create_function(move |lua, value| caught(lua, &g, value))?)?;
    native.set("shown", lua.create_function(shown)?)?;
    let g = guard.clone();
    native.set("is_stopped", lua.create_function(move |_, ()| Ok(g.check().is_err()))?)?;
    native.set("place", lua.create_function(|lua, ()| Ok(place(lua, true).unzip()))?)?;
    let g = guard.clone();
    native.set("clock", lua.create_function(move |_, ()| Ok(g.now() as f64 / 1e6))?)?;
    native.set("read_only", lua.create_function(|lua, ()| read_only(lua))?)?;
    native.set(
        "no_global",
        lua.create_function(|lua, (_, name): (Value, Value)| -> Result<()> {
            let name = lua.coerce_string(name)?.map_or_else(|| "?".into(), |name| name.to_string_lossy());
            Err(raise(lua, format_args!("Script attempted to access nonexistent global variable '{name}'")))
        })?,
    )?;
    native.set(
        "bad",
        lua.create_function(
            |lua, (at, name, expected, value): (usize, String, String, Value)| -> Result<()> {
                let got = if value.is_nil() { "no value" } else { kind(&value) };
                let why = format_args!("bad argument #{at} to '{name}' ({expected} expected, got {got})");
                Err(raise(lua, why))
            },
        )?,
    )?;
    let g = guard.clone();
    native.set(
        "compile",
        lua.create_function(move |lua, values: MultiValue| {
            g.check()?;
            let args = Args::new(lua, "loadstring", values);
            let source = args.text(1)?;
            let name = match args.get(2) {
                None | Some(Value::Nil) => source.to_string_lossy(),
                Some(_) => args.text(2)?.to_string_lossy(),
            };
            Ok(match compile(lua, &source.as_bytes(), &name.replace('\0', "")) {
                Ok(function) => (Value::Function(function), Value::Nil),
                Err(why) => (Value::Nil, Value::String(lua.create_string(why)?)),
            })
        })?,
    )
}

fn read_only(lua: &Lua) -> Result<()> {
    Err(raise(lua, "Attempt to modify a readonly table"))
}

/// Returns an error as the script that catches it sees it. A script that must stop catches none.
fn caught(lua: &Lua, guard: &Guard, value: Value) -> Result<Value> {
    guard.check()?;
    shown(lua, value)
}

fn shown(lua: &Lua, value: Value) -> Result<Value> {
    match value {
        Value::Error(error) => shown_error(lua, &error),
        Value::String(text) => {
            // The place of an error in the server's own code tells a script nothing.
            let is_own = text.as_bytes().starts_with(format!("{PRELUDE}:").as_bytes());
            Ok(Value::String(if is_own { without_place(lua, &text)? } else { text }))
        }
        other => Ok(other),
    }
}

fn without_place(lua: &Lua, text: &LuaString) -> Result<LuaString> {
    let shown = text.to_string_lossy();
    lua.create_string(shown.splitn(3, ':').nth(2).unwrap_or_default().trim_start())
}

fn shown_error(lua: &Lua, error: &Error) -> Result<Value> {
    if let Some(raised) = error.downcast_ref::<Raised>() {
        return Ok(match raised {
            Raised::Text(text) => Value::String(lua.create_string(text)?),
            Raised::Table(text) => Value::Table(super::replies::error_table(lua, text)?),
        });
    }
    let text = match error {
        Error::CallbackError { cause, .. } => return shown_error(lua, cause),
        Error::MemoryError(_) => "not enough memory".into(),
        Error::RuntimeError(text) => text.lines().next().unwrap_or_default().to_owned(),
        other => other.to_string(),
    };
    Ok(Value::String(lua.create_string(text)?))
}
