//! `CLIENT TRACKING`: clients keep copies of keys, and hear of changes.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::tracking::{Mode, Tracking, overlap};
use super::{Call, Done, integer};

/// The options of a request.
#[derive(Default)]
struct Options {
    redirect: Option<u64>,
    broadcast: bool,
    opt_in: bool,
    opt_out: bool,
    no_loop: bool,
    prefixes: Vec<Bytes>,
}

fn options(call: &mut Call<'_>) -> Result<Options, Fail> {
    let mut options = Options::default();
    let mut at = 3;
    while at < call.args.len() {
        let value = call.args.get(at + 1).cloned();
        match (call.word(at).as_str(), value) {
            ("REDIRECT", Some(value)) => {
                if options.redirect.is_some() {
                    return Err(Fail::err("A client can only redirect to a single other client"));
                }
                let id = integer(&value).ok_or_else(Fail::not_an_integer)?;
                if id as u64 != call.client.id && call.engine.client(id as u64).is_none() {
                    return Err(Fail::err("The client ID you want redirect to does not exist"));
                }
                options.redirect = Some(id as u64);
                at += 1;
            }
            ("PREFIX", Some(value)) => {
                // Copied, so that the rest of the packet does not stay in memory with the prefix.
                options.prefixes.push(Bytes::copy_from_slice(&value));
                at += 1;
            }
            ("BCAST", _) => options.broadcast = true,
            ("OPTIN", _) => options.opt_in = true,
            ("OPTOUT", _) => options.opt_out = true,
            ("NOLOOP", _) => options.no_loop = true,
            _ => return Err(Fail::syntax()),
        }
        at += 1;
    }
    Ok(options)
}

pub fn tracking(call: &mut Call<'_>) -> Done {
    let options = options(call)?;
    match call.word(2).as_str() {
        "ON" => begin(call, options)?,
        "OFF" => end(call),
        _ => return Err(Fail::syntax()),
    }
    call.reply().ok();
    Ok(())
}

/// Ends the tracking for the client of the request.
pub fn end(call: &mut Call<'_>) {
    call.engine.tracker.end(call.client.id);
    (call.client.is_tracking, call.client.prefix_bytes) = (false, 0);
}

fn begin(call: &mut Call<'_>, options: Options) -> Done {
    let Options { redirect, broadcast, opt_in, opt_out, no_loop, prefixes } = options;
    if !broadcast && !prefixes.is_empty() {
        return Err(Fail::err("PREFIX option requires BCAST mode to be enabled"));
    }
    let old = call.engine.tracker.of(call.client.id);
    if old.is_some_and(|old| (old.mode == Mode::Broadcast) != broadcast) {
        return Err(Fail::err(
            "You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
        ));
    }
    if broadcast && (opt_in || opt_out) {
        return Err(Fail::err("OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if opt_in && opt_out {
        return Err(Fail::err("You can't specify both OPTIN mode and OPTOUT mode"));
    }
    if old.is_some_and(|old| opt_in && old.mode == Mode::OptOut || opt_out && old.mode == Mode::OptIn) {
        return Err(Fail::err(
            "You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
        ));
    }
    let none = BTreeSet::new();
    let old_prefixes = old.map_or(&none, |old| &old.prefixes);
    if let Some((prefix, other, is_old)) = overlap(old_prefixes, &prefixes) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        return Err(Fail::err(format!(
            "Prefix '{}' overlaps with {} prefix '{}'. Prefixes for a single client must not overlap.",
            text(prefix),
            if is_old { "an existing" } else { "another provided" },
            text(other)
        )));
    }
    let mut prefixes: BTreeSet<Bytes> = prefixes.into_iter().collect();
    if broadcast && prefixes.is_empty() {
        prefixes.insert(Bytes::new());
    }
    let mode = match (broadcast, opt_in, opt_out) {
        (true, ..) => Mode::Broadcast,
        (_, true, _) => Mode::OptIn,
        (_, _, true) => Mode::OptOut,
        _ => Mode::Read,
    };
    let tracking = Tracking { mode, redirect, no_loop, prefixes, ..Tracking::default() };
    let most = call.engine.settings.max_request;
    if call.client.prefix_bytes + tracking.memory() > most {
        return Err(Fail::err(format!("the prefixes of a client have at most {most} bytes")));
    }
    let bytes = call.engine.tracker.begin(call.client.id, tracking);
    (call.client.is_tracking, call.client.prefix_bytes) = (true, bytes);
    Ok(())
}

pub fn caching(call: &mut Call<'_>) -> Done {
    let word = call.word(2);
    let Some(tracking) = call.engine.tracker.of_mut(call.client.id) else {
        return Err(Fail::err(
            "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    match (word.as_str(), tracking.mode) {
        ("YES", Mode::OptIn) | ("NO", Mode::OptOut) => tracking.caching = true,
        ("YES", _) => {
            return Err(Fail::err(
                "CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
        ("NO", _) => {
            return Err(Fail::err(
                "CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
        _ => return Err(Fail::syntax()),
    }
    call.reply().ok();
    Ok(())
}

/// Returns the client that gets the invalidations, as Redis reports it: 0 for the client itself, -1
/// without tracking.
pub fn redirect(tracking: Option<&Tracking>) -> i64 {
    tracking.map_or(-1, |tracking| tracking.redirect.map_or(0, |id| id as i64))
}

pub fn get_redirect(call: &mut Call<'_>) {
    let id = redirect(call.engine.tracker.of(call.client.id));
    call.reply().int(id);
}

pub fn info(call: &mut Call<'_>) {
    let (tracking, reply) = (call.engine.tracker.of(call.client.id), &mut call.client.reply);
    let mut flags = Vec::new();
    match tracking {
        None => flags.push("off"),
        Some(tracking) => {
            flags.push("on");
            match (tracking.mode, tracking.caching) {
                (Mode::Read, _) => {}
                (Mode::Broadcast, _) => flags.push("bcast"),
                (Mode::OptIn, false) => flags.push("optin"),
                (Mode::OptIn, true) => flags.extend(["optin", "caching-yes"]),
                (Mode::OptOut, false) => flags.push("optout"),
                (Mode::OptOut, true) => flags.extend(["optout", "caching-no"]),
            }
            flags.extend(tracking.no_loop.then_some("noloop"));
            flags.extend(tracking.is_broken.then_some("broken_redirect"));
        }
    }
    reply.map(3);
    reply.bulk("flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag));
    reply.bulk("redirect");
    reply.int(redirect(tracking));
    reply.bulk("prefixes");
    let prefixes: Vec<&Bytes> = tracking.iter().flat_map(|tracking| &tracking.prefixes).collect();
    reply.bulks(&prefixes);
}
