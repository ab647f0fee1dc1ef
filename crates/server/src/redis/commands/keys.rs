//! Keys of any type.

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::glob::matches_within;
use super::super::keys::{Original, SlotId, Value};
use super::super::reply::Reply;
use super::drafts::Progress;
use super::lookups::{Lookups, READS};
use super::strings::set_or_delete;
use super::{Call, Done, check_name};

pub fn del(call: &mut Call<'_>) -> Done {
    super::check_names(&call.args[1..])?;
    call.in_parts(call.args.len() > READS, delete)
}

fn delete(call: &mut Call<'_>, progress: &mut Progress) -> Result<bool, Fail> {
    let (end, began) = (call.args.len().min(progress.at + READS), call.engine.keys.draft_cost());
    while progress.at < end && !call.has_drafted(began) {
        if progress.at > 0 {
            let id = call.open_to_replace(progress.at)?;
            progress.count += usize::from(call.keys().delete(id));
        }
        progress.at += 1;
    }
    let is_done = progress.at == call.args.len();
    if is_done {
        call.reply().count(progress.count);
    }
    Ok(is_done)
}

pub fn exists(call: &mut Call<'_>) -> Done {
    if call.args.len() > READS && !call.is_whole() {
        let is_there = |value: &Value| value.is_there().then(Bytes::new);
        let mut lookups = Lookups::of_words(call, is_there)?;
        return call.in_portions(move |call| {
            let is_done = lookups.go_on(call)?;
            call.client.work_bytes = lookups.memory();
            if is_done {
                call.reply().count(lookups.found().flatten().count());
            }
            Ok(is_done)
        });
    }
    let mut found = 0;
    for at in 1..call.args.len() {
        let id = call.open(at)?;
        found += usize::from(call.value(id).is_there());
        call.keys().make_room();
    }
    call.reply().count(found);
    Ok(())
}

pub fn kind(call: &mut Call<'_>) -> Done {
    let id = call.open(1)?;
    let kind = call.value(id).kind();
    call.reply().simple(kind);
    Ok(())
}

/// Keys that one portion of a command counts or lists.
const PORTION: usize = 2_000;
/// Keys that one portion of a command deletes.
const DELETED: usize = 500;
/// Steps of the comparison of names with a pattern in one portion.
const STEPS: usize = 1 << 18;
/// Steps that the look at a name takes.
const LOOK: usize = 100;

pub fn keys(call: &mut Call<'_>) -> Done {
    let database = call.client.database.clone();
    let pattern = super::pattern(call, 1)?;
    let (mut keys, mut found, mut count) = (None, Reply::new(), 0);
    let (is_whole, mut has_due) = (call.is_whole(), false);
    found.begin(call.client.reply.room());
    call.in_portions(move |call| {
        if keys.is_none() {
            if call.keys().prepare_scan(&database, is_whole)? {
                return Ok(false);
            }
            // In a transaction that has changed another database, its keys were the ones to go.
            has_due = is_whole && call.keys().due_of(&database) > 0;
            keys = Some(call.keys().keys_after(&database, None)?);
        }
        let keys = keys.as_mut().expect("it was begun");
        let mut steps = 0;
        while steps < STEPS {
            let Some(key) = keys.next().transpose()? else {
                call.reply().array(count);
                call.reply().take_in(std::mem::take(&mut found));
                return Ok(true);
            };
            let mut left = usize::MAX;
            let is_wanted = matches_within(&pattern, &key, &mut left) == Some(true);
            steps += LOOK + (usize::MAX - left);
            if is_wanted && call.keys().is_listed(&database, &key, has_due)? {
                found.bulk(key);
                count += 1;
            }
            if found.is_full() {
                call.reply().fill();
                return call.client.has_room().map(|_| true);
            }
        }
        call.client.work_bytes = found.bytes.len();
        Ok(false)
    })
}

/// The most steps that the comparison of a name with a pattern takes, and those of the look at it.
pub fn steps_of(pattern: &[u8], name: &[u8]) -> usize {
    LOOK + pattern.len() * name.len()
}

pub fn dbsize(call: &mut Call<'_>) -> Done {
    let database = call.client.database.clone();
    let (is_whole, mut counting) = (call.is_whole(), None);
    call.in_portions(move |call| {
        let counting = match &mut counting {
            Some(counting) => counting,
            None => {
                if call.keys().prepare_scan(&database, is_whole)? {
                    return Ok(false);
                }
                if let Some(count) = call.keys().known_count(&database) {
                    let due = due(call, &database, is_whole);
                    call.reply().int(count - due);
                    return Ok(true);
                }
                counting.insert(call.keys().begin_count(&database)?)
            }
        };
        let is_done = counting.go_on(PORTION)?;
        if is_done {
            let count = call.keys().end_count(&database, counting);
            let due = due(call, &database, is_whole);
            call.reply().int(count - due);
        }
        Ok(is_done)
    })
}

/// Returns the number of keys that have expired, and that a transaction or a script could not
/// delete beside its changes to another database.
fn due(call: &mut Call<'_>, database: &[u8], is_whole: bool) -> i64 {
    if is_whole { call.keys().due_of(database) as i64 } else { 0 }
}

pub fn randomkey(call: &mut Call<'_>) -> Done {
    let database = call.client.database.clone();
    let rng = call.engine.next_random();
    let key = call.keys().any_key(&database, rng)?;
    call.reply().bulk_or_null(key);
    Ok(())
}

/// `FLUSHDB [ASYNC|SYNC]`.
fn check_flush(call: &Call<'_>) -> Done {
    match call.args.len() {
        1 => Ok(()),
        2 if call.is(1, "ASYNC") || call.is(1, "SYNC") => Ok(()),
        _ => Err(Fail::syntax()),
    }
}

pub fn flushdb(call: &mut Call<'_>) -> Done {
    check_flush(call)?;
    let database = call.client.database.clone();
    flush(call, vec![database])
}

pub fn flushall(call: &mut Call<'_>) -> Done {
    check_flush(call)?;
    let numbers = 0..call.engine.settings.databases;
    flush(call, numbers.map(|number| number.to_string().into()).collect())
}

fn flush(call: &mut Call<'_>, databases: Vec<Bytes>) -> Done {
    let mut last = 0;
    for database in databases {
        last = call.keys().begin_clear(&database);
    }
    call.in_portions(move |call| {
        let is_done = call.keys().clear_some(last, DELETED)?;
        if is_done {
            call.engine.tracker.note_flush();
            call.reply().ok();
        }
        Ok(is_done)
    })
}

/// The place of a key under another name, or in another database.
fn elsewhere(call: &mut Call<'_>, database: &[u8], name: &Bytes) -> Result<SlotId, Fail> {
    check_name(name)?;
    Ok(call.keys().open(database, name)?)
}

/// Reads a long value in portions, and then runs a command at once, which copies this value.
fn with_value_read(call: &mut Call<'_>, command: fn(&mut Call<'_>, Original) -> Done) -> Done {
    let id = call.open(1)?;
    if !call.value(id).is_long() || call.is_whole() {
        return command(call, Original::Unread);
    }
    let look = |call: &mut Call<'_>, read: &mut Original| {
        let id = call.open(1)?;
        let is_read = call.engine.keys.read_original(id, read)?;
        Ok((!is_read).then(|| read.memory()))
    };
    call.at_one_moment(1..2, look, command)
}

fn move_value(call: &mut Call<'_>, from: SlotId, to: SlotId, read: Original) -> Done {
    call.keys().copy(from, to, read)?;
    call.keys().delete(from);
    Ok(())
}

pub fn rename(call: &mut Call<'_>) -> Done {
    with_value_read(call, rename_now)
}

fn rename_now(call: &mut Call<'_>, read: Original) -> Done {
    let from = call.open(1)?;
    if !call.value(from).is_there() {
        return Err(Fail::err("no such key"));
    }
    let to = call.open(2)?;
    if from != to {
        move_value(call, from, to, read)?;
    }
    call.reply().ok();
    Ok(())
}

pub fn renamenx(call: &mut Call<'_>) -> Done {
    with_value_read(call, rename_if_free)
}

fn rename_if_free(call: &mut Call<'_>, read: Original) -> Done {
    let from = call.open(1)?;
    if !call.value(from).is_there() {
        return Err(Fail::err("no such key"));
    }
    let to = call.open(2)?;
    let is_free = !call.value(to).is_there();
    if is_free {
        move_value(call, from, to, read)?;
    }
    call.reply().flag(is_free);
    Ok(())
}

/// `COPY source destination [DB n] [REPLACE]`.
pub fn copy(call: &mut Call<'_>) -> Done {
    with_value_read(call, copy_now)
}

fn copy_now(call: &mut Call<'_>, read: Original) -> Done {
    let (mut database, mut replaces) = (call.client.database.clone(), false);
    let mut at = 3;
    while at < call.args.len() {
        match call.word(at).as_str() {
            "REPLACE" => replaces = true,
            "DB" if at + 1 < call.args.len() => {
                at += 1;
                database = super::connection::database(call, at)?;
            }
            _ => return Err(Fail::syntax()),
        }
        at += 1;
    }
    let from = call.open(1)?;
    let target = call.args[2].clone();
    let to = elsewhere(call, &database, &target)?;
    if from == to {
        return Err(Fail::err("source and destination objects are the same"));
    }
    let is_done = call.value(from).is_there() && (replaces || !call.value(to).is_there());
    if is_done {
        call.keys().copy(from, to, read)?;
    }
    call.reply().flag(is_done);
    Ok(())
}

pub fn move_key(call: &mut Call<'_>) -> Done {
    with_value_read(call, move_now)
}

fn move_now(call: &mut Call<'_>, read: Original) -> Done {
    let database = super::connection::database(call, 2)?;
    if database == call.client.database {
        return Err(Fail::err("source and destination objects are the same"));
    }
    let from = call.open(1)?;
    let name = call.args[1].clone();
    let to = elsewhere(call, &database, &name)?;
    let is_done = call.value(from).is_there() && !call.value(to).is_there();
    if is_done {
        move_value(call, from, to, read)?;
    }
    call.reply().flag(is_done);
    Ok(())
}

/// `EXPIRE key time [NX|XX|GT|LT]`, the time in a unit, from now on or by the clock.
fn expire_at(call: &mut Call<'_>, unit: u64, by_clock: bool) -> Done {
    let (mut only_new, mut only_old, mut later, mut sooner) = (false, false, false, false);
    for at in 3..call.args.len() {
        match call.word(at).as_str() {
            "NX" => only_new = true,
            "XX" => only_old = true,
            "GT" => later = true,
            "LT" => sooner = true,
            _ => {
                let option = String::from_utf8_lossy(&call.args[at]);
                return Err(Fail::err(format!("Unsupported option {option}")));
            }
        }
    }
    if only_new && (only_old || later || sooner) {
        return Err(Fail::err("NX and XX, GT or LT options at the same time are not compatible"));
    }
    if later && sooner {
        return Err(Fail::err("GT and LT options at the same time are not compatible"));
    }
    let base = if by_clock { 0 } else { call.engine.keys.now as i64 };
    let time = call.integer(2)?.checked_mul(unit as i64).and_then(|time| time.checked_add(base));
    let name = call.word(0).to_ascii_lowercase();
    let time = time.ok_or_else(|| Fail::err(format!("invalid expire time in '{name}' command")))?;
    let time = u64::try_from(time).unwrap_or(0).max(1);
    let id = call.open(1)?;
    let old = call.engine.keys.expire(id);
    let fits = match old {
        None => !only_old && !later,
        Some(old) => !only_new && (!later || time > old) && (!sooner || time < old),
    };
    let is_done = call.value(id).is_there() && fits;
    if is_done {
        set_or_delete(call, id, Some(time));
    }
    call.reply().flag(is_done);
    Ok(())
}

pub fn expire(call: &mut Call<'_>) -> Done {
    expire_at(call, 1000, false)
}

pub fn pexpire(call: &mut Call<'_>) -> Done {
    expire_at(call, 1, false)
}

pub fn expireat(call: &mut Call<'_>) -> Done {
    expire_at(call, 1000, true)
}

pub fn pexpireat(call: &mut Call<'_>) -> Done {
    expire_at(call, 1, true)
}

/// Tells when a key expires: -2 where there is no key, -1 where it does not.
fn tell_expiry(call: &mut Call<'_>, tell: impl FnOnce(u64, u64) -> u64) -> Done {
    let id = call.open(1)?;
    let now = call.engine.keys.now;
    let told = match (call.value(id), call.engine.keys.expire(id)) {
        (Value::Absent, _) => -2,
        (_, None) => -1,
        (_, Some(at)) => tell(at, now) as i64,
    };
    call.reply().int(told);
    Ok(())
}

pub fn ttl(call: &mut Call<'_>) -> Done {
    tell_expiry(call, |at, now| (at.saturating_sub(now) + 500) / 1000)
}

pub fn pttl(call: &mut Call<'_>) -> Done {
    tell_expiry(call, |at, now| at.saturating_sub(now))
}

pub fn expiretime(call: &mut Call<'_>) -> Done {
    tell_expiry(call, |at, _| (at + 500) / 1000)
}

pub fn pexpiretime(call: &mut Call<'_>) -> Done {
    tell_expiry(call, |at, _| at)
}

pub fn persist(call: &mut Call<'_>) -> Done {
    let id = call.open(1)?;
    let expires = call.value(id).is_there() && call.engine.keys.expire(id).is_some();
    if expires {
        call.keys().set_expire(id, None);
    }
    call.reply().flag(expires);
    Ok(())
}

/// `OBJECT ENCODING|REFCOUNT|IDLETIME key`: every value is a log here.
pub fn object(call: &mut Call<'_>) -> Done {
    if call.is(1, "HELP") {
        call.help(&[
            "ENCODING <key>",
            "    Return \"log\": every value is one.",
            "REFCOUNT <key>",
            "    Return 1.",
        ]);
        return Ok(());
    }
    let id = call.open(2)?;
    let is_there = call.value(id).is_there();
    match call.word(1).as_str() {
        "ENCODING" => call.reply().bulk_or_null(is_there.then_some("log")),
        "REFCOUNT" if is_there => call.reply().int(1),
        "IDLETIME" if is_there => call.reply().int(0),
        "REFCOUNT" | "IDLETIME" => call.reply().null(),
        "FREQ" => {
            return Err(Fail::err(
                "An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
            ));
        }
        _ => return Err(call.wrong_subcommand()),
    }
    Ok(())
}
