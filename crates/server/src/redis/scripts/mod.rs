//! Scripts in Lua 5.1, as Redis runs them.
//!
//! A script runs from its first to its last command without other clients between, and its writes
//! are one commit. So it must be short: [`Guard`](guard::Guard) stops a script that needs too much
//! time or memory, and then nothing of it is written. Scripts share a machine ([`vm`]), and nothing
//! in it: each run has an environment of its own (`prelude.lua`). The functions of Lua that cannot
//! be stopped are written anew here.

mod bits;
mod cache;
mod chance;
mod guard;
mod json;
mod json_settings;
mod msgpack;
mod patterns;
mod redis_lib;
mod replies;
mod session;
mod strings;
mod structs;
#[cfg(test)]
mod tests;
mod values;
mod vm;

use std::fmt;
use std::sync::Arc;

pub use cache::Script;
pub use guard::Clock;
use guard::Guard;
pub use json::strtod;
pub use redis_lib::digest;
pub use session::run;
pub use values::shortest;
use vm::Vm;

use super::fail::Fail;
use super::notices::Notices;

/// Memory that an unused machine keeps, in bytes; beyond it, the next script gets a new machine.
const KEPT: usize = 8 << 20;

/// Most memory that the compiler takes for a source, in bytes.
const COMPILED: usize = 32 << 20;

/// The scripts of a server, and the machine that runs them.
pub struct Scripts {
    cache: cache::Cache,
    vm: Option<Arc<Vm>>,
    guard: Arc<Guard>,
    /// Time at which the first script of the current transaction began, in microseconds.
    transaction: Option<u64>,
    memory: usize,
}

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts").field("cache", &self.cache.bytes()).finish_non_exhaustive()
    }
}

impl Scripts {
    /// Creates an empty cache; scripts are timed by a clock.
    pub fn new(clock: Clock) -> Self {
        Self {
            cache: cache::Cache::default(),
            vm: None,
            guard: Arc::new(Guard::new(clock)),
            transaction: None,
            memory: 0,
        }
    }

    /// Returns the memory of the sources and of the machine after the last script, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the number of scripts.
    pub fn count(&self) -> usize {
        self.cache.count()
    }

    fn measure(&mut self) {
        self.memory = self.cache.bytes() + self.vm.as_ref().map_or(0, |vm| vm.memory());
    }

    /// Returns a script by its digest.
    pub fn get(&mut self, digest: &[u8]) -> Option<Arc<Script>> {
        text_of(digest).and_then(|digest| self.cache.get(digest))
    }

    /// Returns whether there is a script with a digest.
    pub fn has(&self, digest: &[u8]) -> bool {
        text_of(digest).is_some_and(|digest| self.cache.has(digest))
    }

    /// Compiles a source, and adds it to the cache.
    pub fn add(&mut self, source: &[u8], is_loaded: bool, log: &Arc<Notices>) -> Result<Arc<Script>, Fail> {
        let digest = digest(source);
        if let Some(script) = self.cache.get(&digest) {
            self.cache.add(&script, is_loaded).map_err(Fail::err)?;
            return Ok(script);
        }
        let (code, flags) = cache::parse(source).map_err(Fail::err)?;
        let script = Arc::new(Script { digest, code, flags });
        let compiled = self.function(&script, log).map(drop);
        if is_loaded || compiled.is_err() {
            // Nobody runs it now, so nobody else looks at the memory of the machine.
            self.end(false);
        }
        compiled?;
        self.cache.add(&script, is_loaded).map_err(Fail::err)?;
        self.measure();
        Ok(script)
    }

    /// Returns whether a script, named by its digest or given as a source, may write: unless its
    /// first line says that it does not.
    pub fn may_write(&mut self, by_digest: bool, text: &[u8]) -> bool {
        let flags = if by_digest {
            self.get(text).and_then(|script| script.flags)
        } else {
            cache::parse(text).ok().and_then(|(_, flags)| flags)
        };
        !flags.is_some_and(|flags| flags.no_writes)
    }

    /// Removes all scripts, and the machine.
    pub fn flush(&mut self) {
        (self.cache, self.vm) = (cache::Cache::default(), None);
        self.measure();
    }

    /// Begins a transaction, whose scripts share the time of one.
    pub fn begin_transaction(&mut self) {
        self.transaction = None;
    }

    /// Returns the machine, and a script as its function.
    fn function(&mut self, script: &Script, log: &Arc<Notices>) -> Result<(Arc<Vm>, mlua::Function), Fail> {
        let vm = match &self.vm {
            Some(vm) => vm.clone(),
            None => {
                let vm = Vm::new(&self.guard, log.clone());
                let vm = vm.map_err(|error| Fail::err(format!("Lua does not start: {error}")))?;
                self.vm.insert(Arc::new(vm)).clone()
            }
        };
        self.guard.set_memory(vm.lua(), vm.memory() + COMPILED);
        let function = vm.function(&script.digest, &script.code);
        let function =
            function.map_err(|why| Fail::err(format!("Error compiling script (new function): {why}")))?;
        Ok((vm, function))
    }

    /// Begins the time of a script.
    fn begin(&mut self, is_in_transaction: bool, most: u64) {
        let now = self.guard.now();
        let began = if is_in_transaction { *self.transaction.get_or_insert(now) } else { now };
        self.guard.begin(began, most);
    }

    /// Drops the machine if it was stopped, or has too much memory.
    fn end(&mut self, was_stopped: bool) {
        if was_stopped || self.vm.as_ref().is_some_and(|vm| vm.memory() > KEPT) {
            self.vm = None;
        }
        self.measure();
    }
}

/// Returns the text of a digest, if it has the length of one.
fn text_of(digest: &[u8]) -> Option<&str> {
    std::str::from_utf8(digest).ok().filter(|digest| digest.len() == 40)
}
