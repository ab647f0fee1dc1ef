//! Transactions: queued commands that run as one commit.

use super::super::acl::Denied;
use super::super::client::Queue;
use super::super::fail::Fail;
use super::blocking::plain_logs;
use super::lookups::READS;
use super::{Call, Done, check_name, resolve};

/// Most keys of one command that are loaded before a transaction.
const KEYS: usize = 4;

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

/// Does all that was gathered, at once. The keys of many commands are loaded before, in portions.
pub fn exec(call: &mut Call<'_>) -> Done {
    let is_long = call.client.queue.as_ref().is_some_and(|queue| queue.requests.len() > READS);
    if !is_long {
        return exec_now(call);
    }
    let mut at = 0;
    call.in_portions(move |call| {
        let mut names = Vec::new();
        let requests = call.client.queue.as_ref().map_or(&[][..], |queue| &queue.requests[..]);
        for request in requests.iter().skip(at).take(READS) {
            let spec = resolve(request).expect("it was found before");
            names.extend(spec.keys(request).into_iter().take(KEYS).cloned());
        }
        let is_done = at + READS >= requests.len();
        at += READS;
        for name in names.iter().filter(|name| check_name(name).is_ok()) {
            call.engine.keys.open(&call.client.database, name)?;
            call.keys().make_room();
        }
        if is_done {
            call.engine.begin_at_once();
            exec_now(call)?;
        }
        Ok(is_done)
    })
}

/// Does all that was gathered. What one of the commands is refused for is told in its place; what
/// the store fails at takes all of it back.
fn exec_now(call: &mut Call<'_>) -> Done {
    let Some(queue) = call.client.queue.take() else {
        return Err(Fail::err("EXEC without MULTI"));
    };
    // What is watched may have expired meanwhile.
    for key in call.client.watched.clone() {
        call.engine.keys.open_plain(&key)?;
    }
    let has_expired = call.engine.keys.is_changed();
    let is_stale = call.client.is_stale || has_expired;
    call.engine.unwatch(call.client);
    if queue.is_broken {
        return Err(Fail::Reply("EXECABORT Transaction discarded because of previous errors.".into()));
    }
    if is_stale {
        call.reply().null_array();
        return Ok(());
    }
    call.client.is_in_exec = true;
    let done = run(call, &queue);
    call.client.is_in_exec = false;
    if call.client.is_killed {
        call.client.reply.begin(usize::MAX);
    }
    done
}

fn run(call: &mut Call<'_>, queue: &Queue) -> Done {
    call.engine.scripts.begin_transaction();
    call.reply().array(queue.requests.len());
    for request in &queue.requests {
        let spec = resolve(request).expect("it was found before");
        let start = call.client.written();
        // Rights may have changed since the command was queued.
        let called = match call.client.user.as_ref().map(|user| user.check(spec, request)) {
            Some(Err(denied)) => {
                call.engine.stats.of(spec).rejected += 1;
                call.engine.note_denied(call.client, spec, &denied);
                Err(no_longer(&denied))
            }
            _ => call.engine.call_timed(call.client, spec, request, false),
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
    }
    Ok(())
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
    let keys = plain_logs(call, 1..call.args.len())?;
    for key in &keys {
        // A key whose time has come goes now, before the watch, and not between here and EXEC.
        call.engine.keys.open_plain(key)?;
        call.keys().make_room();
    }
    call.engine.commit_expired();
    for key in keys {
        call.engine.watch(call.client, key);
    }
    call.reply().ok();
    Ok(())
}

pub fn unwatch(call: &mut Call<'_>) -> Done {
    call.engine.unwatch(call.client);
    call.reply().ok();
    Ok(())
}
