//! Commands about the server: its settings, its clock, and commands that have no effect here.

use std::collections::BTreeMap;

use super::super::fail::Fail;
use super::{Call, Done, integer};

pub fn time(call: &mut Call<'_>) -> Done {
    let now = call.engine.keys.now;
    call.reply().array(2);
    call.reply().bulk((now / 1000).to_string());
    call.reply().bulk((now % 1000 * 1000).to_string());
    Ok(())
}

pub fn role(call: &mut Call<'_>) -> Done {
    if let Some(upstream) = &call.engine.upstream {
        let lag = upstream.lag();
        let (host, port) = lag.master();
        call.reply().array(5);
        call.reply().bulk("slave");
        call.reply().bulk(host);
        call.reply().int(i64::from(port));
        call.reply().bulk(if lag.is_up() { "connected" } else { "connect" });
        call.reply().int(lag.shown as i64);
        return Ok(());
    }
    let kept = call.engine.keys.kept_place();
    call.reply().array(3);
    call.reply().bulk("master");
    call.reply().int(kept as i64);
    call.reply().array(0);
    Ok(())
}

/// Most steps of the comparison of settings with patterns: a fraction of a second.
const MOST_STEPS: usize = 1 << 24;

pub fn config(call: &mut Call<'_>) -> Done {
    match (call.word(1).as_str(), call.args.len()) {
        ("GET", n) if n > 2 => {
            call.check_words()?;
            let (mut found, mut steps) = (BTreeMap::new(), MOST_STEPS);
            for at in 2..n {
                let pattern = super::pattern(call, at)?.to_ascii_lowercase();
                let all = call.engine.settings.get(&pattern, &mut steps);
                found.extend(all.ok_or_else(|| {
                    Fail::err("the comparison of the patterns with all settings takes too long")
                })?);
            }
            call.reply().map(found.len());
            for (name, value) in found {
                call.reply().bulk(name);
                call.reply().bulk(value);
            }
        }
        ("SET", n) if n > 3 && n % 2 == 0 => {
            let mut changed = call.engine.settings.clone();
            for pair in call.args[2..].chunks(2) {
                let (name, value) = (String::from_utf8_lossy(&pair[0]), String::from_utf8_lossy(&pair[1]));
                changed.set(&name, &value).map_err(Fail::err)?;
            }
            call.engine.keep_before(call.client);
            call.engine.settings = changed;
            call.engine.trim_tracker();
            call.reply().ok();
        }
        ("SET", _) => return Err(Fail::syntax()),
        ("RESETSTAT", 2) => {
            call.engine.stats.reset();
            call.reply().ok();
        }
        ("REWRITE", 2) => return Err(Fail::err("The server is running without a config file")),
        ("HELP", 2) => call.help(&[
            "GET <pattern> [<pattern> ...]",
            "    Return parameters matching the glob-like <pattern> and their values.",
            "SET <directive> <value> [<directive> <value> ...]",
            "    Set the configuration <directive> to <value>.",
            "RESETSTAT",
            "    Reset statistics reported by the INFO command.",
        ]),
        _ => return Err(call.wrong_subcommand()),
    }
    Ok(())
}

/// What is acknowledged is on stable media already.
pub fn bgsave(call: &mut Call<'_>) -> Done {
    let is_known = call.args.len() == 1 || (call.args.len() == 2 && call.is(1, "SCHEDULE"));
    if !is_known {
        return Err(Fail::syntax());
    }
    call.reply().simple("Background saving started");
    Ok(())
}

pub fn bgrewriteaof(call: &mut Call<'_>) -> Done {
    call.reply().simple("Background append only file rewriting started");
    Ok(())
}

/// Makes what is deferred durable, too.
pub fn save(call: &mut Call<'_>) -> Done {
    call.engine.keys.store().flush()?;
    call.reply().ok();
    Ok(())
}

pub fn lastsave(call: &mut Call<'_>) -> Done {
    let now = call.engine.keys.now;
    call.reply().int((now / 1000) as i64);
    Ok(())
}

/// `SHUTDOWN`: the process that runs the server decides, by a signal.
pub fn shutdown(_: &mut Call<'_>) -> Done {
    Err(Fail::err("clients may not send SHUTDOWN: send SIGTERM to the process"))
}

pub fn slowlog(call: &mut Call<'_>) -> Done {
    match (call.word(1).as_str(), call.args.len()) {
        ("GET", 2) => call.reply().array(0),
        ("GET", 3) => {
            if integer(&call.args[2]).is_none_or(|count| count < -1) {
                return Err(Fail::err("count should be greater than or equal to -1"));
            }
            call.reply().array(0);
        }
        ("LEN", _) => call.reply().int(0),
        ("RESET", _) => call.reply().ok(),
        _ => return Err(call.wrong_subcommand()),
    }
    Ok(())
}

/// There are no functions, so all of them are listed and removed in no time.
pub fn function(call: &mut Call<'_>) -> Done {
    match call.word(1).as_str() {
        "FLUSH" => call.reply().ok(),
        "LIST" => call.reply().array(0),
        _ => return Err(Fail::err("functions are not supported")),
    }
    Ok(())
}

pub fn module(call: &mut Call<'_>) -> Done {
    match call.word(1).as_str() {
        "LIST" => call.reply().array(0),
        _ => return Err(Fail::err("modules are not supported")),
    }
    Ok(())
}
