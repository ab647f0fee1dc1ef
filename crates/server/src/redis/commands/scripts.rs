//! Scripts: `EVAL` and its relatives, and `SCRIPT`.

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::scripts::run;
use super::{Call, Done};

pub fn eval(call: &mut Call<'_>) -> Done {
    evaluate(call, false, false)
}

pub fn eval_ro(call: &mut Call<'_>) -> Done {
    evaluate(call, false, true)
}

pub fn evalsha(call: &mut Call<'_>) -> Done {
    evaluate(call, true, false)
}

pub fn evalsha_ro(call: &mut Call<'_>) -> Done {
    evaluate(call, true, true)
}

fn evaluate(call: &mut Call<'_>, by_digest: bool, is_read_only: bool) -> Done {
    let (count, given) = (call.integer(2)?, call.args.len() - 3);
    let count = usize::try_from(count).map_err(|_| Fail::err("Number of keys can't be negative"))?;
    if count > given {
        return Err(Fail::err("Number of keys can't be greater than number of args"));
    }
    let source = call.args[1].clone();
    let log = call.engine.keys.notices.clone();
    let script = if by_digest {
        let script = call.engine.scripts.get(&source);
        script.ok_or_else(|| Fail::Reply("NOSCRIPT No matching script. Please use EVAL.".into()))?
    } else {
        call.engine.scripts.add(&source, false, &log)?
    };
    let no_writes = script.flags.is_some_and(|flags| flags.no_writes);
    if is_read_only && script.flags.is_some() && !no_writes {
        return Err(Fail::err("Can not execute a script with write flag using *_ro command."));
    }
    let args: &[Bytes] = call.args;
    let (keys, argv) = args[3..].split_at(count);
    run(call, &script, keys, argv, is_read_only || no_writes)
}

pub fn script(call: &mut Call<'_>) -> Done {
    match call.word(1).as_str() {
        "LOAD" => {
            let (source, log) = (call.args[2].clone(), call.engine.keys.notices.clone());
            let script = call.engine.scripts.add(&source, true, &log)?;
            call.reply().bulk(&script.digest);
        }
        "EXISTS" => {
            let args = call.args;
            call.reply().array(args.len() - 2);
            for digest in &args[2..] {
                let is_there = call.engine.scripts.has(digest);
                call.reply().flag(is_there);
            }
        }
        "FLUSH" => {
            if call.args.len() > 3 || call.args.len() == 3 && !call.is(2, "SYNC") && !call.is(2, "ASYNC") {
                return Err(Fail::err("SCRIPT FLUSH only support SYNC|ASYNC option"));
            }
            call.engine.scripts.flush();
            call.reply().ok();
        }
        // A script ends within its time, and no command runs meanwhile.
        "KILL" => return Err(Fail::Reply("NOTBUSY No scripts in execution right now.".into())),
        "DEBUG" if call.is(2, "NO") => call.reply().ok(),
        "DEBUG" => return Err(Fail::err("this server has no debugger for scripts: use SCRIPT DEBUG NO")),
        "HELP" => call.help(&[
            "EXISTS <sha1> [<sha1> ...]",
            "    Return information about the existence of the scripts in the script cache.",
            "FLUSH [ASYNC|SYNC]",
            "    Flush the Lua scripts cache.",
            "KILL",
            "    Kill the currently executing Lua script: none is, because scripts are stopped soon.",
            "LOAD <script>",
            "    Load a script into the scripts cache without executing it.",
        ]),
        _ => return Err(call.wrong_subcommand()),
    }
    Ok(())
}
