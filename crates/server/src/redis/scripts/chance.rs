//! Random numbers for scripts: the same after each start, as in Redis. A seed counts for its run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use mlua::{Lua, MultiValue, Result, Table, Value};

use super::values::Args;

/// The 48-bit generator of `lrand48`.
#[derive(Debug)]
pub struct Chance {
    state: AtomicU64,
    /// Whether the script that runs has set a seed.
    is_seeded: AtomicBool,
}

impl Default for Chance {
    fn default() -> Self {
        Self { state: AtomicU64::new(0x1234_abcd_330e), is_seeded: AtomicBool::new(false) }
    }
}

impl Chance {
    /// Begins a run; returns the state.
    pub fn begin(&self) -> u64 {
        self.is_seeded.store(false, Relaxed);
        self.state.load(Relaxed)
    }

    /// Ends a run that began with a state. A seed is forgotten.
    pub fn end(&self, before: u64) {
        if self.is_seeded.load(Relaxed) {
            self.state.store(before, Relaxed);
        }
    }

    fn seed(&self, seed: i32) {
        self.is_seeded.store(true, Relaxed);
        self.state.store((u64::from(seed.cast_unsigned()) << 16) | 0x330e, Relaxed);
    }

    fn next(&self) -> i64 {
        let next =
            self.state.load(Relaxed).wrapping_mul(0x0005_deec_e66d).wrapping_add(0xb) & ((1 << 48) - 1);
        self.state.store(next, Relaxed);
        (next >> 17) as i64
    }

    /// Adds `random` and `randomseed` to a table.
    pub fn add_to(self: &Arc<Self>, lua: &Lua, table: &Table) -> Result<()> {
        let own = self.clone();
        let random = move |lua: &Lua, values: MultiValue| {
            let most = i64::from(i32::MAX);
            let r = (own.next() % most) as f64 / most as f64;
            let args = Args::new(lua, "random", values);
            let from = |low: i64, high: i64, at| match low <= high {
                true => Ok(Value::Number((r * (high - low + 1) as f64).floor() + low as f64)),
                false => Err(args.bad(at, "interval is empty")),
            };
            match args.len() {
                0 => Ok(Value::Number(r)),
                1 => from(1, i64::from(args.whole(1)? as i32), 1),
                _ => from(i64::from(args.whole(1)? as i32), i64::from(args.whole(2)? as i32), 2),
            }
        };
        table.set("random", lua.create_function(random)?)?;
        let own = self.clone();
        let seed = move |lua: &Lua, values| {
            own.seed(Args::new(lua, "randomseed", values).whole(1)? as i32);
            Ok(())
        };
        table.set("randomseed", lua.create_function(seed)?)
    }
}
