//! Transactions: queued commands that run as one commit.

use std::ops::Range;

use bytes::Bytes;

use super::super::acl::Denied;
use super::super::client::Queue;
use super::super::fail::Fail;
use super::super::keys::names;
use super::super::proto::Args;
use super::blocking::plain_logs;
use super::drafts::{Parts, Progress, commit_expired};
use super::lookups::READS;
use super::{Call, Done, check_names, resolve};

/// Most keys of one command that are loaded before a transaction.
const KEYS: usize = 4;
/// Commands that may take all of a long list.
const SLOW: [&str; 6] = ["linsert", "lrem", "lset", "lpos", "lrange", "sort"];
/// Nanoseconds, and bytes of replies, after which others have their turns.
const PORTION: u64 = 1_000_000;
const REPLIES: usize = 1 << 20;
/// Nanoseconds after which a transaction that others have no turn in is undone.
const LONGEST: u64 = 2_000_000_000;

pub fn multi(call: &mut Call<'_>) -> Done {
    if call.client.queue.is_some() {
        return Err(Fail::err("MULTI calls can not be nested"));
    }
    call.client.queue = Some(Queue::default());
    call.reply().ok();
    Ok(())
}

pub fn discard(call: &mut Call<'_>) -> Done {
    if call.client.queue.take().is_none() {
        return Err(Fail::err("DISCARD without MULTI"));
    }
    call.engine.unwatch(call.client);
    call.reply().ok();
    Ok(())
}

/// Does all that was gathered. Many commands run in portions on a draft, if all of them only read
/// and write the keys of their words. Otherwise their keys are loaded in portions, and then all
/// commands run at once.
pub fn exec(call: &mut Call<'_>) -> Done {
    let Some(queue) = call.client.queue.as_ref().filter(|queue| is_long(queue)) else {
        return exec_now(call);
    };
    let is_of_keys = |request: &Args| resolve(request).is_some_and(|spec| spec.is_plain() && spec.has_keys());
    if queue.requests.iter().all(is_of_keys) {
        let parts = Parts { part: exec_some, load: load_some, end, is_plain: false };
        return call.drafted(parts, exec_now);
    }
    let (mut at, mut is_loaded) = (0, false);
    call.in_portions(move |call| {
        // Keys that expire while they are loaded are committed before the transaction.
        if !is_loaded {
            is_loaded = load_some(call, &mut at)?;
            return Ok(false);
        }
        exec_now(call).map(|()| true)
    })
}

/// Loads keys of the next commands; returns whether those were the last.
fn load_some(call: &mut Call<'_>, at: &mut usize) -> Result<bool, Fail> {
    let requests = call.client.queue.as_ref().map_or(&[][..], |queue| &queue.requests[..]);
    let (all, mut names, start) = (requests.len(), Vec::new(), *at);
    for request in requests.iter().skip(start).take(READS) {
        let spec = resolve(request).expect("it was found before");
        names.extend(spec.keys(request).into_iter().take(KEYS).map(|name| (*at, name.clone())));
        *at += 1;
    }
    if let Some(next) = call.load(names)? {
        // A key that leaves memory at once is not waited for.
        *at = next.max(start + 1);
    }
    Ok(*at >= all)
}

/// Returns whether the commands of a transaction may take long.
fn is_long(queue: &Queue) -> bool {
    // These may take all of a long list each.
    let is_slow = |request: &&Args| {
        request.first().is_some_and(|name| SLOW.iter().any(|slow| name.eq_ignore_ascii_case(slow.as_bytes())))
    };
    let requests = &queue.requests;
    !queue.is_broken && (requests.len() > READS || requests.iter().filter(is_slow).nth(1).is_some())
}

/// Does all that was gathered at once.
fn exec_now(call: &mut Call<'_>) -> Done {
    call.engine.begin_at_once();
    let Some(queue) = take_queue(call)? else { return Ok(()) };
    let (all, began) = (queue.requests.len(), Progress::default());
    in_exec(call, |call| run(call, &queue, 0..all, &began))?;
    Ok(())
}

/// Takes the commands of a transaction; returns `None`, and says so to the client, if a key that it
/// watches has changed.
fn take_queue(call: &mut Call<'_>) -> Result<Option<Queue>, Fail> {
    clear_watched(call)?;
    let Some(queue) = call.client.queue.take() else {
        return Err(Fail::err("EXEC without MULTI"));
    };
    // A key that is as it was when the watch began expires when it was to expire then. It need not
    // be opened for that.
    let (now, mut times) = (call.engine.keys.now, call.client.watched.values().flatten());
    let is_stale = call.client.is_stale || times.any(|time| *time <= now);
    call.engine.unwatch(call.client);
    if queue.is_broken {
        return Err(Fail::Reply("EXECABORT Transaction discarded because of previous errors.".into()));
    }
    if is_stale {
        call.reply().null_array();
        return Ok(None);
    }
    Ok(Some(queue))
}

/// Deletes the keys that a client watches in databases whose keys are being deleted: they are gone
/// for all clients, although their turn has not come.
fn clear_watched(call: &mut Call<'_>) -> Done {
    if call.client.is_stale || !call.engine.keys.is_clearing_any() {
        return Ok(());
    }
    let keys = &call.engine.keys;
    let is_cleared = |key: &&Bytes| keys.is_clearing(names::database(key));
    let watched: Vec<Bytes> = call.client.watched.keys().filter(is_cleared).cloned().collect();
    for key in &watched {
        call.engine.keys.open_plain(key)?;
        call.keys().make_room();
        // One watched key that is gone is enough.
        if call.engine.keys.is_changed() {
            break;
        }
    }
    if !commit_expired(call) {
        // The key stays, and other clients do not see it any more.
        call.client.is_stale = true;
    }
    Ok(())
}

/// Does some of what was gathered, on a draft.
fn exec_some(call: &mut Call<'_>, progress: &mut Progress) -> Result<bool, Fail> {
    let Some(queue) = call.client.queue.take() else {
        return Err(Fail::err("EXEC without MULTI"));
    };
    call.engine.begin_at_once();
    let all = queue.requests.len();
    if call.client.is_stale {
        // The end has no effect, however far this comes.
        call.client.queue = Some(queue);
        return Ok(true);
    }
    let next = progress.at..all.min(progress.at + READS);
    let mut done = in_exec(call, |call| run(call, &queue, next, progress));
    // No further portion comes for a client that could not take the replies: the rest is done now.
    while call.client.is_killed
        && let Ok(at @ 1..) = done
        && at < all
    {
        let before = Progress { at, ..Progress::default() };
        done = in_exec(call, |call| run(call, &queue, at..all, &before));
    }
    // The pause and the memory of the client know of a transaction by its queue.
    call.client.queue = Some(queue);
    progress.at = done?;
    Ok(progress.at == all)
}

/// Ends a transaction that ran on a draft.
fn end(call: &mut Call<'_>) -> Result<bool, Fail> {
    take_queue(call).map(|queue| queue.is_some())
}

fn in_exec<T>(call: &mut Call<'_>, run: impl FnOnce(&mut Call<'_>) -> Result<T, Fail>) -> Result<T, Fail> {
    call.client.is_in_exec = true;
    let done = run(call);
    call.client.is_in_exec = false;
    if call.client.is_killed {
        call.client.reply.begin(usize::MAX);
    }
    done
}

/// Does the next commands, until a portion is long enough if they run on a draft; returns the
/// number of the next command. What one of them is refused for is told in its place; what the
/// store fails at takes all of it back.
fn run(call: &mut Call<'_>, queue: &Queue, next: Range<usize>, before: &Progress) -> Result<usize, Fail> {
    if before.at == 0 {
        call.engine.scripts.begin_transaction();
        call.reply().array(queue.requests.len());
    }
    let (cost, told, began) = (call.engine.keys.draft_cost(), call.client.written(), (call.engine.clock)());
    for at in next.clone() {
        let request = &queue.requests[at];
        let spec = resolve(request).expect("it was found before");
        let start = call.client.written();
        // Rights may have changed since the command was queued.
        let called = match call.client.user.as_ref().map(|user| user.check(spec, request)) {
            Some(Ok(())) => call.engine.call_timed(call.client, spec, request, false),
            Some(Err(denied)) => {
                call.engine.stats.of(spec).rejected += 1;
                call.engine.note_denied(call.client, spec, &denied);
                Err(no_longer(&denied))
            }
            // An earlier command of the transaction has removed the user, or switched it off.
            None => {
                call.engine.stats.of(spec).rejected += 1;
                Err(Fail::Reply("NOAUTH Authentication required.".into()))
            }
        };
        match called {
            Err(Fail::Reply(error)) => {
                call.client.cut(start);
                call.engine.stats.note_error(&error);
                call.reply().error(&error);
            }
            other => other?,
        }
        call.engine.check_size()?;
        if call.client.reply.is_full() {
            // The transaction is completed, but the client cannot take its replies.
            call.client.is_killed = true;
            call.client.cut(start);
        }
        if !call.engine.keys.is_on_draft() {
            call.keys().make_room();
        }
        let took = (call.engine.clock)() - began;
        if call.engine.keys.is_on_draft() {
            let is_long = call.has_drafted(cost) || call.client.written() > told + REPLIES || took > PORTION;
            if is_long {
                return Ok(at + 1);
            }
        } else if took > LONGEST {
            let why = "ERR the transaction takes too long, and all others wait: send fewer commands at once";
            return Err(Fail::Undone(why.into()));
        }
    }
    Ok(next.end)
}

fn no_longer(denied: &Denied) -> Fail {
    let reason = match denied {
        Denied::Command => "no permission to execute the command or subcommand",
        Denied::Key { .. } => "no permission to touch the specified keys",
        Denied::Channel { .. } => "no permission to access one of the channels used as arguments",
    };
    let error = format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
         This command is no longer allowed for the following reason: {reason}"
    );
    Fail::Reply(error.into())
}

pub fn watch(call: &mut Call<'_>) -> Done {
    if call.client.queue.is_some() {
        return Err(Fail::err("WATCH inside MULTI is not allowed"));
    }
    check_names(&call.args[1..])?;
    let mut at = 1;
    call.in_portions(move |call| {
        let next = at..call.args.len().min(at + READS);
        at = next.end;
        watch_some(call, next)?;
        if at < call.args.len() {
            return Ok(false);
        }
        call.reply().ok();
        Ok(true)
    })
}

/// Watches the keys that some words name.
fn watch_some(call: &mut Call<'_>, words: Range<usize>) -> Done {
    let mut keys = Vec::with_capacity(words.len());
    for key in plain_logs(call, words)? {
        // A key whose time has come goes now, before the watch, and not between here and EXEC.
        let id = call.engine.keys.open_plain(&key)?;
        keys.push((key, call.engine.keys.expire(id)));
        call.keys().make_room();
    }
    call.engine.commit_expired();
    for (key, expire) in keys {
        call.engine.watch(call.client, key, expire);
    }
    Ok(())
}

pub fn unwatch(call: &mut Call<'_>) -> Done {
    call.engine.unwatch(call.client);
    call.reply().ok();
    Ok(())
}
