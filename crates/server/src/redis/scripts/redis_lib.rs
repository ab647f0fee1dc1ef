//! The functions of the table `redis` that run no command.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use mlua::{Lua, MultiValue, Result, Table, Value};
use sha1::{Digest, Sha1};

use super::replies::{error_table, with_code};
use super::values::raise_table;
use crate::redis::notices::{Notice, Notices};

/// Where the messages of scripts go.
pub type Log = Arc<Notices>;

/// The version of Redis that scripts see.
const VERSION: (u32, u32, u32) = (7, 0, 15);

/// Returns the SHA-1 digest of a text, in hexadecimal.
pub fn digest(text: &[u8]) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the functions and constants.
pub fn table(lua: &Lua, resp: &Arc<AtomicU32>, log: Log) -> Result<Table> {
    let table = lua.create_table()?;
    for (level, name) in ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"].iter().enumerate() {
        table.set(*name, level)?;
    }
    for (name, bits) in
        [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)]
    {
        table.set(name, bits)?;
    }
    let (major, minor, patch) = VERSION;
    table.set("REDIS_VERSION", format!("{major}.{minor}.{patch}"))?;
    table.set("REDIS_VERSION_NUM", major << 16 | minor << 8 | patch)?;
    table.set("error_reply", lua.create_function(|lua, values| single(lua, values, "err"))?)?;
    table.set("status_reply", lua.create_function(|lua, values| single(lua, values, "ok"))?)?;
    table.set("sha1hex", lua.create_function(sha1hex)?)?;
    table.set("replicate_commands", lua.create_function(|_, _: MultiValue| Ok(true))?)?;
    table.set("set_repl", lua.create_function(set_repl)?)?;
    let resp = resp.clone();
    table.set("setresp", lua.create_function(move |_, values| set_resp(&resp, values))?)?;
    table.set("log", lua.create_function(move |lua, values| write_log(lua, &log, values))?)?;
    Ok(table)
}

fn single(lua: &Lua, values: MultiValue, field: &str) -> Result<Table> {
    let (Some(Value::String(text)), 1) = (values.front(), values.len()) else {
        return error_table(lua, "ERR wrong number or type of arguments");
    };
    if field == "ok" {
        return lua.create_table_from([("ok", text)]);
    }
    lua.create_table_from([("err", with_code(&text.to_string_lossy()))])
}

fn sha1hex(lua: &Lua, values: MultiValue) -> Result<String> {
    if values.len() != 1 {
        return Err(raise_table("wrong number of arguments"));
    }
    let text = lua.coerce_string(values.front().cloned().unwrap_or(Value::Nil))?;
    Ok(digest(&text.map(|text| text.as_bytes().to_vec()).unwrap_or_default()))
}

fn set_repl(lua: &Lua, values: MultiValue) -> Result<()> {
    if values.len() != 1 {
        return Err(raise_table("redis.set_repl() requires one argument."));
    }
    let bits = lua.coerce_number(values.front().cloned().unwrap_or(Value::Nil))?;
    // There are no replicas: all commands are kept.
    match bits.is_some_and(|bits| (0.0..=3.0).contains(&bits)) {
        true => Ok(()),
        false => {
            Err(raise_table("Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."))
        }
    }
}

fn set_resp(resp: &AtomicU32, values: MultiValue) -> Result<()> {
    if values.len() != 1 {
        return Err(raise_table("redis.setresp() requires one argument."));
    }
    match values.front() {
        Some(Value::Integer(version @ (2 | 3))) => {
            resp.store(*version as u32, Relaxed);
            Ok(())
        }
        _ => Err(raise_table("RESP version must be 2 or 3.")),
    }
}

fn write_log(lua: &Lua, log: &Notices, values: MultiValue) -> Result<()> {
    if values.len() < 2 {
        return Err(raise_table("redis.log() requires two arguments or more."));
    }
    let level = match values.front() {
        Some(Value::Integer(level)) => *level,
        Some(Value::Number(level)) => *level as i64,
        _ => return Err(raise_table("First argument must be a number (log level).")),
    };
    let level = u8::try_from(level).ok().filter(|level| *level <= 3);
    let level = level.ok_or_else(|| raise_table("Invalid debug level."))?;
    let mut words = Vec::new();
    for value in values.into_iter().skip(1) {
        if let Some(text) = lua.coerce_string(value)? {
            // The log cuts the text in any case.
            words.push(
                String::from_utf8_lossy(&text.as_bytes()[..text.as_bytes().len().min(1024)]).into_owned(),
            );
        }
        if words.len() > 64 {
            break;
        }
    }
    log.push(Notice::Script { level, text: words.join(" ") });
    Ok(())
}
