//! Waiting: for an element of a key, and for commits to be on stable media.

use std::ops::Range;

use bytes::Bytes;

use super::super::fail::{Fail, TimeoutReply, Wait};
use super::super::keys::names;
use super::{Call, Done, check_name, integer};

/// A word that says for how many seconds to wait: until when that is; `None`: for ever.
pub fn seconds(call: &Call<'_>, at: usize) -> Result<Option<u64>, Fail> {
    let text = std::str::from_utf8(&call.args[at]).unwrap_or_default();
    let seconds: f64 = text.parse().map_err(|_| Fail::err("timeout is not a float or out of range"))?;
    if !seconds.is_finite() {
        return Err(Fail::err("timeout is not a float or out of range"));
    }
    if seconds < 0.0 {
        return Err(Fail::err("timeout is negative"));
    }
    let millis = (seconds * 1000.0).ceil();
    if millis > i64::MAX as f64 - call.engine.steady as f64 {
        return Err(Fail::err("timeout is out of range"));
    }
    Ok((millis > 0.0).then(|| call.engine.steady + millis as u64))
}

/// The same in milliseconds.
pub fn milliseconds(call: &Call<'_>, at: usize) -> Result<Option<u64>, Fail> {
    let millis =
        integer(&call.args[at]).ok_or_else(|| Fail::err("timeout is not an integer or out of range"))?;
    if millis < 0 {
        return Err(Fail::err("timeout is negative"));
    }
    let until = call.engine.steady.checked_add(millis as u64).filter(|at| i64::try_from(*at).is_ok());
    let until = until.ok_or_else(|| Fail::err("timeout is out of range"))?;
    Ok((millis > 0).then_some(until))
}

/// Most keys that a client waits for.
const MAX_KEYS: usize = 16_384;

/// Refuses a command that may wait for too many keys, before the first key is opened.
pub fn check_waited(keys: &Range<usize>) -> Done {
    if keys.len() > MAX_KEYS {
        return Err(Fail::err(format!("a client waits for at most {MAX_KEYS} keys")));
    }
    Ok(())
}

/// The plain logs of the keys that a client is to wait for, with the places of their words.
pub fn waited_logs(call: &Call<'_>, at: Range<usize>) -> Result<Vec<(Bytes, usize)>, Fail> {
    check_waited(&at)?;
    Ok(plain_logs(call, at.clone())?.into_iter().zip(at).collect())
}

/// The plain logs of the keys that some words name.
pub fn plain_logs(call: &Call<'_>, at: Range<usize>) -> Result<Vec<Bytes>, Fail> {
    let mut plains = Vec::with_capacity(at.len());
    for name in &call.args[at] {
        check_name(name)?;
        let mut plain = Vec::new();
        names::write_plain(&call.client.database, name, &mut plain);
        plains.push(plain.into());
    }
    Ok(plains)
}

/// Waits for the keys that some words name, or tells at once that there is nothing.
pub fn waits_for(call: &mut Call<'_>, keys: Range<usize>, until: Option<u64>) -> Done {
    if !call.may_wait {
        call.reply().null_array();
        return Ok(());
    }
    let keys = waited_logs(call, keys)?;
    Err(Fail::Wait(Wait { until, ..Wait::of(keys, call.args.to_vec(), TimeoutReply::NullArray) }))
}

/// `WAIT numreplicas timeout`: the log in a bucket, if the store has one, is one replica.
pub fn wait(call: &mut Call<'_>) -> Done {
    refuse_on_replica(call, "WAIT")?;
    let wanted = call.integer(1)?;
    let until = milliseconds(call, 2)?;
    let (wrote, wanted) = (call.client.wrote, wanted.max(0) as u64);
    wait_for_copies(call, until, TimeoutReply::Copies { wrote, wanted })
}

/// `WAITAOF numlocal numreplicas timeout`: this server's copy is on stable media once the client's
/// last write is durable. A bucket is stable media, too.
pub fn waitaof(call: &mut Call<'_>) -> Done {
    refuse_on_replica(call, "WAITAOF")?;
    let (here, elsewhere) = (call.integer(1)?, call.integer(2)?);
    if !(0..=1).contains(&here) {
        return Err(Fail::err("value is out of range, must be between 0 and 1"));
    }
    if elsewhere < 0 {
        return Err(Fail::err("value is out of range, must be positive"));
    }
    let until = milliseconds(call, 3)?;
    let (wrote, elsewhere) = (call.client.wrote, elsewhere as u64);
    wait_for_copies(call, until, TimeoutReply::Media { wrote, here: here > 0, elsewhere })
}

/// Refuses to wait for copies of what this server cannot write, in Redis's words.
fn refuse_on_replica(call: &Call<'_>, command: &str) -> Done {
    if call.engine.upstream.is_none() {
        return Ok(());
    }
    Err(Fail::err(format!(
        "{command} cannot be used with replica instances. Please also note that writes to replicas are just local and are not propagated."
    )))
}

fn wait_for_copies(call: &mut Call<'_>, until: Option<u64>, timeout_reply: TimeoutReply) -> Done {
    call.engine.keys.note_durable();
    if call.engine.is_met(timeout_reply) || !call.may_wait {
        call.engine.tell_in_vain(call.client, timeout_reply);
        return Ok(());
    }
    Err(Fail::Wait(Wait { until, ..Wait::of(Vec::new(), call.args.to_vec(), timeout_reply) }))
}
