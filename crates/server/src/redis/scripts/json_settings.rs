//! The settings of `cjson`, which a script may change for its own run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{Lua, MultiValue, Result, Table, Value};

use super::values::Args;

/// Most levels of nested tables that are read.
pub const READ_DEPTH: i64 = 1000;
/// Most levels of nested tables that are written: this takes the stack.
pub const WRITTEN_DEPTH: i64 = 200;

/// What becomes of numbers that JSON does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    Refused,
    Written,
    Null,
}

/// The settings.
#[derive(Clone, Debug)]
pub struct Settings {
    pub read_depth: i64,
    pub written_depth: i64,
    pub precision: i64,
    pub writes_invalid: Invalid,
    pub reads_invalid: bool,
    /// Whether a sparse array is written as an object.
    pub converts_sparse: bool,
    /// An array is sparse if its length is over this many times its values; 0: never.
    pub sparse_ratio: i64,
    /// An array of at most this length is not sparse.
    pub sparse_safe: i64,
    keeps_buffer: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            read_depth: READ_DEPTH,
            written_depth: WRITTEN_DEPTH,
            precision: 14,
            writes_invalid: Invalid::Refused,
            reads_invalid: true,
            converts_sparse: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            keeps_buffer: true,
        }
    }
}

/// The settings that the functions share.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<Mutex<Settings>>);

impl Shared {
    /// Returns the settings.
    pub fn get(&self) -> MutexGuard<'_, Settings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets all to the defaults.
    pub fn reset(&self) {
        *self.get() = Settings::default();
    }

    fn add(
        &self,
        lua: &Lua,
        table: &Table,
        name: &'static str,
        set: fn(&mut Settings, &Args<'_>) -> Result<Vec<Value>>,
    ) -> Result<()> {
        let own = self.clone();
        let call = move |lua: &Lua, values: MultiValue| {
            let values = set(&mut own.get(), &Args::new(lua, name, values))?;
            Ok(MultiValue::from_vec(values))
        };
        table.set(name, lua.create_function(call)?)
    }

    /// Adds the functions that change and return settings.
    pub fn add_to(&self, lua: &Lua, table: &Table) -> Result<()> {
        fn whole(n: i64) -> Result<Vec<Value>> {
            Ok(vec![Value::Integer(n)])
        }
        self.add(lua, table, "encode_max_depth", |all, args| {
            all.written_depth =
                integer(args, 1, all.written_depth, 1, i64::from(i32::MAX))?.min(WRITTEN_DEPTH);
            whole(all.written_depth)
        })?;
        self.add(lua, table, "decode_max_depth", |all, args| {
            all.read_depth = integer(args, 1, all.read_depth, 1, i64::from(i32::MAX))?.min(READ_DEPTH);
            whole(all.read_depth)
        })?;
        self.add(lua, table, "encode_number_precision", |all, args| {
            all.precision = integer(args, 1, all.precision, 1, 16)?;
            whole(all.precision)
        })?;
        self.add(lua, table, "encode_keep_buffer", |all, args| {
            all.keeps_buffer = boolean(args, 1, all.keeps_buffer);
            Ok(vec![Value::Boolean(all.keeps_buffer)])
        })?;
        self.add(lua, table, "decode_invalid_numbers", |all, args| {
            all.reads_invalid = boolean(args, 1, all.reads_invalid);
            Ok(vec![Value::Boolean(all.reads_invalid)])
        })?;
        self.add(lua, table, "encode_invalid_numbers", |all, args| {
            let is_null = matches!(args.get(1), Some(Value::String(text)) if *text.as_bytes() == *b"null");
            let writes = boolean(args, 1, all.writes_invalid == Invalid::Written);
            all.writes_invalid = match (is_null, writes) {
                (true, _) => Invalid::Null,
                (false, true) => Invalid::Written,
                (false, false) => Invalid::Refused,
            };
            Ok(vec![Value::Boolean(all.writes_invalid == Invalid::Written)])
        })?;
        self.add(lua, table, "encode_sparse_array", |all, args| {
            all.converts_sparse = boolean(args, 1, all.converts_sparse);
            all.sparse_ratio = integer(args, 2, all.sparse_ratio, 0, i64::from(i32::MAX))?;
            all.sparse_safe = integer(args, 3, all.sparse_safe, 0, i64::from(i32::MAX))?;
            let numbers = [all.sparse_ratio, all.sparse_safe].map(Value::Integer);
            Ok([Value::Boolean(all.converts_sparse)].into_iter().chain(numbers).collect())
        })
    }
}

fn integer(args: &Args<'_>, at: usize, old: i64, least: i64, most: i64) -> Result<i64> {
    let new = args.whole_or(at, old)?;
    let is_within = (least..=most).contains(&new);
    if is_within {
        Ok(new)
    } else {
        Err(args.bad(at, &format!("expected integer between {least} and {most}")))
    }
}

fn boolean(args: &Args<'_>, at: usize, old: bool) -> bool {
    match args.get(at) {
        None | Some(Value::Nil) => old,
        Some(Value::Boolean(new)) => *new,
        Some(Value::String(text)) => *text.as_bytes() == *b"on",
        Some(_) => false,
    }
}
