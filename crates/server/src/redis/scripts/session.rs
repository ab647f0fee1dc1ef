//! A run of a script: the commands that it calls, and its end.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use mlua::{Error, Lua, MultiValue, Result, Table, Value};

use super::Script;
use super::guard::{Guard, stopped};
use super::replies::{Reading, Writing, error_table, is_memory, with_code, words};
use super::values::{Raised, raise_table};
use super::vm::{Ended, Vm};
use crate::redis::acl::Denied;
use crate::redis::client::Client;
use crate::redis::commands::{Call, Done, Spec, flags, resolve};
use crate::redis::engine::Engine;
use crate::redis::fail::Fail;
use crate::redis::reply::{Reply, Version};

/// The server, as one run sees it.
struct Session<'a> {
    engine: &'a mut Engine,
    client: &'a mut Client,
    guard: &'a Arc<Guard>,
    resp: &'a AtomicU32,
    /// Buffer for the replies of commands.
    scratch: Reply,
    is_read_only: bool,
    /// The keys that the script names.
    keys: &'a [Bytes],
    /// Whether the client tracks these keys by now.
    has_tracked: bool,
}

/// Runs a script with its keys and arguments, and writes its reply.
pub fn run(call: &mut Call<'_>, script: &Script, keys: &[Bytes], argv: &[Bytes], is_read_only: bool) -> Done {
    let (engine, client) = (&mut *call.engine, &mut *call.client);
    let (time, memory) = (engine.settings.script_time, engine.settings.script_memory);
    let is_in_exec = client.is_in_exec;
    engine.scripts.begin(is_in_exec, time);
    let log = engine.keys.notices.clone();
    let (vm, function) = engine.scripts.function(script, &log)?;
    let guard = engine.scripts.guard.clone();
    guard.set_memory(vm.lua(), vm.memory().saturating_add(memory));
    // Fails only without memory, and then the script does not begin.
    drop(guard.watch(vm.lua()));
    let database = client.database.clone();
    (client.is_in_exec, client.is_in_script) = (false, true);
    let scratch = Reply::new();
    let resp = &vm.resp;
    let session =
        Session { engine, client, guard: &guard, resp, scratch, is_read_only, keys, has_tracked: false };
    let ended = run_in(&vm, session, &function, keys, argv);
    (call.client.is_in_exec, call.client.is_in_script) = (is_in_exec, false);
    call.client.database = database;
    let ended = conclude(call, &vm, &guard, script, ended);
    drop(function);
    drop(vm);
    call.engine.scripts.end(matches!(ended, Err(Fail::Undone(_))));
    ended
}

fn run_in(
    vm: &Arc<Vm>,
    session: Session<'_>,
    function: &mlua::Function,
    keys: &[Bytes],
    argv: &[Bytes],
) -> Result<Ended> {
    let lua = vm.lua();
    let session = RefCell::new(session);
    lua.scope(|scope| {
        let call =
            scope.create_function(|lua: &Lua, values| session.borrow_mut().call(lua, &values, true))?;
        let pcall =
            scope.create_function(|lua: &Lua, values| session.borrow_mut().call(lua, &values, false))?;
        let may = scope.create_function(|_: &Lua, values| session.borrow_mut().may_call(&values))?;
        let guard = session.borrow().guard;
        let given = (strings(lua, guard, keys)?, strings(lua, guard, argv)?);
        vm.run(function, given, (call, pcall, may))
    })
}

fn strings(lua: &Lua, guard: &Guard, all: &[Bytes]) -> Result<Table> {
    let table = lua.create_table_with_capacity(all.len(), 0)?;
    for (at, bytes) in all.iter().enumerate() {
        table.raw_set(at + 1, lua.create_string(bytes)?)?;
        if at % CHECK == 0 {
            guard.check()?;
        }
    }
    Ok(table)
}

/// Writes the reply of a script; returns its error if it has failed.
fn conclude(call: &mut Call<'_>, vm: &Vm, guard: &Guard, script: &Script, ended: Result<Ended>) -> Done {
    if let Some(fail) = guard.take() {
        return Err(fail);
    }
    let ended = match ended {
        Ok(Ended::Value(value)) => {
            let is_three = vm.resp.load(Relaxed) == 3;
            let (reply, stats) = (&mut call.client.reply, &mut call.engine.stats);
            match Writing::new(guard, reply, stats, is_three).value(&value, 0) {
                Ok(()) => return Ok(()),
                Err(error) => Err(error),
            }
        }
        other => other,
    };
    if let Some(fail) = guard.take() {
        return Err(fail);
    }
    let text = match ended {
        Ok(Ended::Error(text, _)) if text == "ERR not enough memory" => return Err(no_memory(call)),
        Ok(Ended::Error(text, Some((source, line)))) => {
            format!("{text} script: {}, on {source}:{line}.", script.digest)
        }
        Ok(Ended::Error(text, None)) => format!("{text} script: {}", script.digest),
        Err(error) if is_memory(&error) => return Err(no_memory(call)),
        Err(error) => {
            let text = error.to_string();
            format!("ERR {} script: {}", text.lines().next().unwrap_or_default(), script.digest)
        }
        Ok(Ended::Value(_)) => return Ok(()),
    };
    Err(Fail::Reply(text.into()))
}

fn no_memory(call: &Call<'_>) -> Fail {
    let most = call.engine.settings.script_memory;
    stopped(&format!("it needs more than {most} bytes of memory (script-memory)"))
}

impl Session<'_> {
    /// Runs a command for `redis.call`, or for `redis.pcall`, which returns errors.
    fn call(&mut self, lua: &Lua, values: &MultiValue, raises: bool) -> Result<Value> {
        self.guard.check()?;
        let called = words(values).and_then(|words| self.command(&words));
        let error = match called {
            Ok(None) => {
                let value = Reading::new(lua, self.guard, &self.scratch.bytes).value();
                let is_large = self.scratch.bytes.len() > LARGE;
                self.scratch.bytes.clear();
                if is_large {
                    self.scratch = Reply::new();
                    self.guard.watch(lua)?;
                }
                match value? {
                    // A command that reports its error as a reply.
                    Value::Table(table) if raises => match table.raw_get::<Value>("err")? {
                        Value::String(text) => text.to_string_lossy(),
                        _ => return Ok(Value::Table(table)),
                    },
                    value => return Ok(value),
                }
            }
            Ok(Some(error)) => with_code(&error),
            Err(error) => match error.downcast_ref::<Raised>() {
                Some(Raised::Table(text)) => text.clone(),
                _ => return Err(error),
            },
        };
        if raises {
            return Err(Error::external(Raised::Table(error)));
        }
        Ok(Value::Table(error_table(lua, &error)?))
    }

    /// Returns the command of these words, if a script may run it.
    fn allowed(&mut self, words: &[Bytes]) -> Result<&'static Spec> {
        let spec = resolve(words).ok_or_else(|| raise_table("Unknown Redis command called from script"))?;
        let refused = |why: &str| Err(raise_table(why));
        if !spec.takes(words.len()) {
            return refused("Wrong number of args calling Redis command from script");
        }
        if !spec.may_be_scripted() {
            return refused("This Redis command is not allowed from script");
        }
        if let Some(Err(denied)) = self.client.user.as_ref().map(|user| user.check(spec, words)) {
            self.engine.stats.of(spec).rejected += 1;
            self.engine.note_denied(self.client, spec, &denied);
            return refused(match denied {
                Denied::Command => "The user executing the script can't run this command or subcommand",
                Denied::Key { .. } => {
                    "The user executing the script can't access at least one of the keys mentioned in the command \
                     arguments"
                }
                Denied::Channel { .. } => {
                    "The user executing the script can't publish to the channel mentioned in the command"
                }
            });
        }
        if let Err(why) = self.engine.may_change(spec) {
            return Err(Error::external(Raised::Table(why.to_owned())));
        }
        if self.is_read_only && spec.has(flags::WRITE) {
            return refused("Write commands are not allowed from read-only scripts.");
        }
        let is = |word: &Bytes, text: &str| word.eq_ignore_ascii_case(text.as_bytes());
        if matches!(spec.name, "xread" | "xreadgroup")
            && words.iter().take_while(|word| !is(word, "STREAMS")).any(|word| is(word, "BLOCK"))
        {
            let name = spec.name;
            return Err(raise_table(format_args!(
                "{name} command is not allowed with BLOCK option from scripts"
            )));
        }
        Ok(spec)
    }

    /// Runs a command; its reply is in the buffer. Returns its error, if it was refused.
    fn command(&mut self, words: &[Bytes]) -> Result<Option<String>> {
        let spec = self.allowed(words)?;
        self.engine.stats.of(spec).done += 1;
        let is_three = self.resp.load(Relaxed) == 3;
        self.scratch.version = if is_three { Version::Three } else { Version::Two };
        self.scratch.begin(self.engine.settings.script_memory);
        std::mem::swap(&mut self.client.reply, &mut self.scratch);
        let (engine, client) = (&mut *self.engine, &mut *self.client);
        let mut call = Call { engine, client, args: words, may_wait: false, woken_by: None };
        let done = (spec.handler)(&mut call);
        self.engine.note_lookups(spec);
        if done.is_ok() {
            self.engine.note_events(spec, words);
        }
        if self.client.is_tracking && spec.has(flags::READ) && !self.has_tracked {
            // As in Redis: a script that reads anything has read all keys that it names.
            self.has_tracked = true;
            self.engine.note_keys_read(self.client.id, self.keys);
        }
        std::mem::swap(&mut self.client.reply, &mut self.scratch);
        let is_full = self.scratch.is_full();
        match done {
            Ok(()) if !is_full => {
                self.engine.keys.make_room();
                let most = self.engine.settings.max_request;
                if self.engine.keys.pending_bytes() > most as u64 {
                    return Err(self.guard.stop(stopped(&format!("it writes more than {most} bytes"))));
                }
                Ok(None)
            }
            Err(Fail::Reply(error)) => {
                self.scratch.bytes.clear();
                self.engine.stats.of(spec).failed += 1;
                self.engine.stats.note_error(&error);
                Ok(Some(error.into_owned()))
            }
            Ok(()) | Err(Fail::TooLarge) => {
                let most = self.engine.settings.script_memory;
                let why = format!("the reply to its command is over {most} bytes (script-memory)");
                Err(self.guard.stop(stopped(&why)))
            }
            Err(Fail::Wait(_) | Fail::Long(_)) => {
                Ok(Some("ERR This Redis command is not allowed from script".into()))
            }
            Err(fail @ (Fail::Store(_) | Fail::Undone(_))) => Err(self.guard.stop(fail)),
        }
    }

    fn may_call(&mut self, values: &MultiValue) -> Result<bool> {
        self.guard.check()?;
        let words = words(values)?;
        let invalid = || raise_table("Invalid command passed to redis.acl_check_cmd()");
        let spec = resolve(&words).ok_or_else(invalid)?;
        Ok(self.client.user.as_ref().is_none_or(|user| user.check(spec, &words).is_ok()))
    }
}

/// Arguments between two looks at the clock.
const CHECK: usize = 256;

/// Size of a buffer, in bytes, that a run does not keep.
const LARGE: usize = 64 << 10;
