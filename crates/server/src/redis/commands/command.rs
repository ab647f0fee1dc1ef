//! `COMMAND`: the arguments of the commands, and the places of their keys.

use super::super::fail::Fail;
use super::super::glob::matches;
use super::super::reply::Reply;
use super::key_flags::key_flags;
use super::spec::Where;
use super::{Call, Done, Spec, TABLE, find, resolve};

fn tell_spec(reply: &mut Reply, spec: &Spec) {
    let (first, last, step) = spec.key_range();
    let flags = spec.flag_names();
    reply.array(10);
    reply.bulk(spec.name);
    reply.int(i64::from(spec.arity));
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    [first, last, step].iter().for_each(|n| reply.int(*n));
    let categories: Vec<String> = super::CATEGORIES
        .iter()
        .filter(|(_, bit)| spec.categories & bit != 0)
        .map(|(name, _)| format!("@{name}"))
        .collect();
    reply.set(categories.len());
    categories.iter().for_each(|name| reply.simple(name));
    // Tips and key specifications, of which nothing is told.
    (0..2).for_each(|_| reply.array(0));
    reply.array(spec.subs().count());
    spec.subs().for_each(|sub| tell_spec(reply, sub));
}

/// Returns all commands, without the subcommands.
fn commands() -> impl Iterator<Item = &'static Spec> {
    TABLE.iter().filter(|spec| !spec.is_sub())
}

fn tell_all(call: &mut Call<'_>) {
    call.reply().array(commands().count());
    commands().for_each(|spec| tell_spec(call.reply(), spec));
}

/// `COMMAND LIST FILTERBY ACLCAT|MODULE|PATTERN x`.
fn list(call: &mut Call<'_>) -> Done {
    if call.args.len() != 5 || !call.is(2, "FILTERBY") {
        return Err(Fail::syntax());
    }
    let named = &call.args[4];
    let found: Vec<&str> = match call.word(3).as_str() {
        "ACLCAT" => {
            let category = String::from_utf8_lossy(named).to_ascii_lowercase();
            TABLE.iter().filter(|spec| spec.is_of(&category)).map(|spec| spec.name).collect()
        }
        "MODULE" => Vec::new(),
        "PATTERN" => {
            let pattern = super::pattern(call, 4)?;
            TABLE.iter().map(|spec| spec.name).filter(|name| matches(&pattern, name.as_bytes())).collect()
        }
        _ => return Err(Fail::syntax()),
    };
    call.reply().bulks(&found);
    Ok(())
}

/// Documentation as Redis has it, without texts: the group, and the subcommands.
fn tell_docs(reply: &mut Reply, spec: &Spec) {
    reply.bulk(spec.name);
    let subs = spec.subs().count();
    reply.map(2 + usize::from(subs > 0));
    // redis-cli prints what is not there as "(null)".
    reply.bulk("summary");
    reply.bulk("");
    reply.bulk("group");
    reply.bulk(group(spec));
    if subs > 0 {
        reply.bulk("subcommands");
        reply.map(subs);
        spec.subs().for_each(|sub| tell_docs(reply, sub));
    }
}

/// The name of a command's group in the documentation of Redis.
fn group(spec: &Spec) -> &'static str {
    let groups = [
        ("sortedset", "generic"),
        ("keyspace", "generic"),
        ("string", "string"),
        ("list", "list"),
        ("hash", "hash"),
        ("stream", "stream"),
        ("connection", "connection"),
        ("transaction", "transactions"),
        ("scripting", "scripting"),
    ];
    groups.iter().find(|(category, _)| spec.is_of(category)).map_or("server", |(_, name)| name)
}

/// Returns the command of the request that follows the subcommand.
fn command_of(call: &Call<'_>) -> Result<&'static Spec, Fail> {
    let spec = resolve(&call.args[2..]).ok_or_else(|| Fail::err("Invalid command specified"))?;
    if matches!(spec.keys.place, Where::Nowhere) {
        return Err(Fail::err("The command has no key arguments"));
    }
    if !spec.takes(call.args.len() - 2) {
        return Err(Fail::err("Invalid number of arguments specified for command"));
    }
    Ok(spec)
}

pub fn command(call: &mut Call<'_>) -> Done {
    if call.args.len() == 1 {
        tell_all(call);
        return Ok(());
    }
    if call.is(1, "INFO") || call.is(1, "DOCS") {
        call.check_words()?;
    }
    match (call.word(1).as_str(), call.args.len()) {
        ("COUNT", 2) => {
            let count = commands().count();
            call.reply().count(count);
        }
        ("LIST", 2) => {
            let names: Vec<&str> = TABLE.iter().map(|spec| spec.name).collect();
            call.reply().bulks(&names);
        }
        ("LIST", _) => list(call)?,
        ("INFO", 2) => {
            tell_all(call);
        }
        ("INFO", _) => {
            call.client.reply.array(call.args.len() - 2);
            for name in &call.args[2..] {
                match find(name) {
                    Some(spec) => tell_spec(&mut call.client.reply, spec),
                    None => call.client.reply.null(),
                }
            }
        }
        ("DOCS", _) => {
            let named: Vec<&Spec> = if call.args.len() == 2 {
                commands().collect()
            } else {
                call.args[2..].iter().filter_map(|name| find(name)).collect()
            };
            call.reply().map(named.len());
            named.into_iter().for_each(|spec| tell_docs(call.reply(), spec));
        }
        ("GETKEYSANDFLAGS", n) if n > 2 => {
            let spec = command_of(call)?;
            let keys = key_flags(spec, &call.args[2..]);
            call.client.reply.array(keys.len());
            for (key, flags) in keys {
                call.client.reply.array(2);
                call.client.reply.bulk(key);
                call.client.reply.set(flags.len());
                flags.iter().for_each(|flag| call.client.reply.simple(flag));
            }
        }
        ("GETKEYS", n) if n > 2 => {
            let spec = command_of(call)?;
            let keys = spec.keys(&call.args[2..]);
            if keys.is_empty() {
                return Err(Fail::err("The command has no key arguments"));
            }
            call.client.reply.bulks(&keys);
        }
        _ => return Err(call.wrong_subcommand()),
    }
    Ok(())
}
