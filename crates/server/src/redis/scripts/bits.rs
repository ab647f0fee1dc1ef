//! The library `bit`: operations on 32 bits.

use mlua::{Lua, MultiValue, Result, Table};

use super::values::Args;

/// Returns a number as 32 bits, as `tobit` does.
fn bits(args: &Args<'_>, at: usize) -> Result<i32> {
    let n = args.number(at)?;
    // Whole numbers wrap at 32 bits; halves round to even.
    Ok(n.round_ties_even().rem_euclid(4_294_967_296.0) as u32 as i32)
}

fn add(
    lua: &Lua,
    table: &Table,
    name: &'static str,
    f: impl Fn(&Args<'_>) -> Result<i32> + Send + 'static,
) -> Result<()> {
    table.set(name, lua.create_function(move |lua, values: MultiValue| f(&Args::new(lua, name, values)))?)
}

/// Returns the library.
pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "tobit", |args| bits(args, 1))?;
    add(lua, &table, "bnot", |args| Ok(!bits(args, 1)?))?;
    add(lua, &table, "bswap", |args| Ok(bits(args, 1)?.swap_bytes()))?;
    type Fold = fn(i32, i32) -> i32;
    let folds: [(&'static str, Fold); 3] =
        [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
    for (name, fold) in folds {
        add(lua, &table, name, move |args| {
            (2..=args.len()).try_fold(bits(args, 1)?, |all, at| Ok(fold(all, bits(args, at)?)))
        })?;
    }
    type Shift = fn(i32, u32) -> i32;
    let shifts: [(&'static str, Shift); 5] = [
        ("lshift", |a, n| a << n),
        ("rshift", |a, n| (a.cast_unsigned() >> n).cast_signed()),
        ("arshift", |a, n| a >> n),
        ("rol", i32::rotate_left),
        ("ror", i32::rotate_right),
    ];
    for (name, shift) in shifts {
        add(lua, &table, name, move |args| Ok(shift(bits(args, 1)?, (bits(args, 2)? & 31).cast_unsigned())))?;
    }
    let tohex = |lua: &Lua, values: MultiValue| {
        let args = Args::new(lua, "tohex", values);
        let n = bits(&args, 1)?;
        let digits = if args.len() > 1 { bits(&args, 2)? } else { 8 };
        let wide = digits.unsigned_abs().min(8) as usize;
        let hex = if digits < 0 { format!("{n:08X}") } else { format!("{n:08x}") };
        Ok(hex[8 - wide..].to_owned())
    };
    table.set("tohex", lua.create_function(tohex)?)?;
    Ok(table)
}
