//! The limits of a running script.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mlua::debug::Debug;
use mlua::{Error, HookTriggers, Lua, VmState};

use super::values::Raised;
use crate::redis::fail::Fail;

/// Instructions between two looks at the clock.
const STEP: u32 = 64;
/// The same while the machine has much memory: an instruction may then take milliseconds.
const SHORT_STEP: u32 = 4;
/// Memory of a machine, besides that of an idle one, that is much, in bytes.
const MUCH: usize = 1 << 20;

/// Most functions of the server that wait for functions of the script, one in another: each takes
/// some kilobytes of the stack.
const DEPTH: u32 = 16;

/// A clock that only moves forward.
pub type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// The limits of the script that runs, and the reason why it must stop.
pub struct Guard {
    clock: Clock,
    /// End of the script's time, in microseconds.
    deadline: AtomicU64,
    /// The longest time of a script, in milliseconds.
    most: AtomicU64,
    /// Most memory of the machine, in bytes.
    memory: AtomicUsize,
    /// Memory beyond which the machine looks at the clock often, in bytes.
    much: AtomicUsize,
    /// Instructions between two looks at the clock.
    step: AtomicU32,
    /// Functions of the server that wait for a function of the script.
    depth: AtomicU32,
    is_stopped: AtomicBool,
    stop: Mutex<Option<Fail>>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    /// Creates limits that use a clock.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            deadline: AtomicU64::new(u64::MAX),
            most: AtomicU64::new(0),
            memory: AtomicUsize::new(usize::MAX),
            much: AtomicUsize::new(usize::MAX),
            step: AtomicU32::new(0),
            depth: AtomicU32::new(0),
            is_stopped: AtomicBool::new(false),
            stop: Mutex::new(None),
        }
    }

    /// Returns the time, in microseconds.
    pub fn now(&self) -> u64 {
        (self.clock)().as_micros() as u64
    }

    /// Begins a script that has `most` milliseconds, if not 0, since `began`.
    pub fn begin(&self, began: u64, most: u64) {
        self.most.store(most, Relaxed);
        let time = if most == 0 { u64::MAX } else { most.saturating_mul(1000) };
        self.deadline.store(began.saturating_add(time), Relaxed);
        self.is_stopped.store(false, Relaxed);
        *self.reason() = None;
    }

    fn reason(&self) -> std::sync::MutexGuard<'_, Option<Fail>> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the script, which cannot catch the returned error.
    pub fn stop(&self, why: Fail) -> Error {
        self.is_stopped.store(true, Relaxed);
        self.reason().get_or_insert(why);
        Error::runtime("the script was stopped")
    }

    /// Returns the reason of a stop.
    pub fn take(&self) -> Option<Fail> {
        self.reason().take()
    }

    /// Has a machine look at the clock: the less memory it has, the less often.
    pub fn watch(self: &Arc<Self>, lua: &Lua) -> Result<(), Error> {
        let is_much = lua.used_memory() > self.much.load(Relaxed);
        let step = if is_much { SHORT_STEP } else { STEP };
        if self.step.swap(step, Relaxed) == step {
            return Ok(());
        }
        let own = self.clone();
        let triggers = HookTriggers::new().every_nth_instruction(step);
        lua.set_global_hook(triggers, move |lua: &Lua, _: &Debug<'_>| {
            own.check()?;
            own.watch(lua)?;
            Ok(VmState::Continue)
        })
    }

    /// Begins to watch a new machine, which is idle.
    pub fn watch_new(self: &Arc<Self>, lua: &Lua) -> Result<(), Error> {
        self.much.store(lua.used_memory() + MUCH, Relaxed);
        self.step.store(0, Relaxed);
        self.watch(lua)
    }

    /// Returns the memory that a text may have, in bytes.
    pub fn room(&self, lua: &Lua) -> usize {
        self.memory.load(Relaxed).saturating_sub(lua.used_memory())
    }

    /// Sets the memory of the machine and its scripts, in bytes.
    pub fn set_memory(&self, lua: &Lua, most: usize) {
        self.memory.store(most, Relaxed);
        // Fails only for a machine whose memory is not ours.
        drop(lua.set_memory_limit(most));
    }

    /// Runs code of the script inside a function of the server.
    pub fn nested<T>(&self, run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if self.depth.load(Relaxed) == DEPTH {
            return Err(Error::external(Raised::Text("C stack overflow".into())));
        }
        self.depth.fetch_add(1, Relaxed);
        let done = run();
        self.depth.fetch_sub(1, Relaxed);
        done
    }

    /// Returns an error if the script must stop.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_stopped.load(Relaxed) {
            return Err(Error::runtime("the script was stopped"));
        }
        if self.now() <= self.deadline.load(Relaxed) {
            return Ok(());
        }
        let most = self.most.load(Relaxed);
        Err(self.stop(stopped(&format!("it ran for {most} ms (script-time)"))))
    }
}

/// Returns the error of a script that a limit stopped.
pub fn stopped(why: &str) -> Fail {
    Fail::Undone(format!("ERR the server stopped the script, and nothing was written: {why}").into())
}
