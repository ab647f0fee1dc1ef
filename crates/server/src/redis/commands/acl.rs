//! `ACL`: users and their rights. The configuration sets them; changes last as long as the server
//! runs.

use bytes::Bytes;

use super::super::acl::{DEFAULT, Denied, Selector};
use super::super::fail::Fail;
use super::super::reply::Reply;
use super::{CATEGORIES, Call, Done, TABLE, resolve};

const HELP: [&str; 20] = [
    "CAT [<category>]",
    "    List all commands that belong to <category>, or all command categories.",
    "DELUSER <username> [<username> ...]",
    "    Delete a list of users.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Return whether the user can execute the given command.",
    "GETUSER <username>",
    "    Get the user's details.",
    "GENPASS [<bits>]",
    "    Generate a secure 256-bit user password.",
    "LIST",
    "    Show users details as rules.",
    "LOG [<count> | RESET]",
    "    Show the last refusals.",
    "SETUSER <username> <attribute> [<attribute> ...]",
    "    Create or modify a user with the specified attributes.",
    "USERS",
    "    List all the registered usernames.",
    "WHOAMI",
    "    Return the current connection username.",
];

pub fn acl(call: &mut Call<'_>) -> Done {
    match (call.word(1).as_str(), call.args.len()) {
        ("WHOAMI", 2) => {
            let name = call.client.user.as_ref().map_or_else(String::new, |user| user.name.clone());
            call.reply().bulk(name);
        }
        ("USERS", 2) => {
            let names: Vec<String> = call.engine.users.all().iter().map(|user| user.name.clone()).collect();
            call.reply().bulks(&names);
        }
        ("LIST", 2) => {
            let users = call.engine.users.all();
            let lines: Vec<String> =
                users.iter().map(|user| format!("user {} {}", user.name, user.rules())).collect();
            call.reply().bulks(&lines);
        }
        ("CAT", 2) => {
            call.reply().array(CATEGORIES.len());
            CATEGORIES.iter().for_each(|(name, _)| call.reply().bulk(name));
        }
        ("CAT", 3) => {
            let wanted = name(call, 2);
            let category = CATEGORIES.iter().find(|(name, _)| wanted.eq_ignore_ascii_case(name));
            let (_, bit) = category.ok_or_else(|| Fail::err(format!("Unknown category '{wanted}'")))?;
            let of_it: Vec<&str> =
                TABLE.iter().filter(|spec| spec.categories & bit != 0).map(|spec| spec.name).collect();
            call.reply().bulks(&of_it);
        }
        ("GETUSER", 3) => get_user(call)?,
        ("SETUSER", n) if n > 2 => set_user(call)?,
        ("DELUSER", n) if n > 2 => delete_users(call)?,
        ("GENPASS", 2 | 3) => generate(call)?,
        ("DRYRUN", n) if n > 3 => dry_run(call)?,
        ("LOG", 2 | 3) => log(call)?,
        ("LOAD" | "SAVE", 2) => {
            return Err(Fail::err(
                "This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.",
            ));
        }
        ("HELP", 2) => call.help(&HELP),
        _ => return Err(call.wrong_subcommand()),
    }
    Ok(())
}

fn name(call: &Call<'_>, at: usize) -> String {
    String::from_utf8_lossy(&call.args[at]).into_owned()
}

fn get_user(call: &mut Call<'_>) -> Done {
    let Some(user) = call.engine.users.get(&name(call, 2)) else {
        call.reply().null();
        return Ok(());
    };
    let reply = call.reply();
    reply.map(6);
    reply.bulk("flags");
    let flags: Vec<&str> =
        [Some(if user.is_on { "on" } else { "off" }), user.no_password.then_some("nopass")]
            .into_iter()
            .flatten()
            .collect();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag));
    reply.bulk("passwords");
    reply.bulks(&user.passwords);
    tell_rights(reply, &user.root);
    reply.bulk("selectors");
    reply.array(user.selectors.len());
    for selector in &user.selectors {
        reply.map(3);
        tell_rights(reply, selector);
    }
    Ok(())
}

fn tell_rights(reply: &mut Reply, selector: &Selector) {
    reply.bulk("commands");
    reply.bulk(selector.command_rules());
    reply.bulk("keys");
    reply.bulk(selector.key_rules());
    reply.bulk("channels");
    reply.bulk(selector.channel_rules());
}

fn set_user(call: &mut Call<'_>) -> Done {
    // A byte that is replaced here would give a right to other keys than the rule says.
    let words: Result<Vec<&str>, _> = call.args[2..].iter().map(|word| std::str::from_utf8(word)).collect();
    let words = words.map_err(|_| Fail::err("names and rules of users are UTF-8"))?;
    let user = words[0].to_owned();
    call.engine.users.set(&user, words[1..].iter().copied()).map_err(Fail::err)?;
    note(call, &user);
    call.reply().ok();
    Ok(())
}

/// Clients of a user that has changed learn of it, this one too.
fn note(call: &mut Call<'_>, name: &str) {
    call.engine.note_users(name);
    if call.client.user.as_ref().is_some_and(|user| user.name == name) {
        let user = call.engine.users.get(name).filter(|user| user.is_on);
        call.client.is_leaving |= user.as_ref().is_none_or(|user| !user.may_keep(&call.client.subscriptions));
        call.client.user = user;
    }
}

fn delete_users(call: &mut Call<'_>) -> Done {
    let names: Vec<String> = (2..call.args.len()).map(|at| name(call, at)).collect();
    if names.iter().any(|name| name == DEFAULT) {
        return Err(Fail::err("The 'default' user cannot be removed"));
    }
    let mut gone = 0;
    for user in names {
        if call.engine.users.remove(&user) {
            gone += 1;
            note(call, &user);
        }
    }
    call.reply().int(gone);
    Ok(())
}

fn log(call: &mut Call<'_>) -> Done {
    if call.is(2, "RESET") {
        call.engine.refusals.clear();
        call.reply().ok();
        return Ok(());
    }
    let count = if call.args.len() == 3 { call.integer(2)?.max(0) as usize } else { 10 };
    let (engine, reply) = (&call.engine, &mut call.client.reply);
    let entries = engine.refusals.entries();
    reply.array(entries.len().min(count));
    for entry in entries.take(count) {
        reply.map(7);
        reply.bulk("count");
        reply.int(entry.count);
        for (field, value) in [
            ("reason", entry.reason.as_bytes()),
            ("context", entry.context.as_bytes()),
            ("object", &entry.object),
            ("username", entry.user.as_bytes()),
        ] {
            reply.bulk(field);
            reply.bulk(value);
        }
        reply.bulk("age-seconds");
        reply.double(engine.steady.saturating_sub(entry.at) as f64 / 1000.0);
        reply.bulk("client-info");
        reply.bulk(&entry.client);
    }
    Ok(())
}

fn generate(call: &mut Call<'_>) -> Done {
    let bits = if call.args.len() == 3 { call.integer(2)? } else { 256 };
    let bits = Some(bits).filter(|bits| (1..=4096).contains(bits));
    let bits = bits.ok_or_else(|| {
        Fail::err("ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096")
    })?;
    let mut bytes = vec![0; (bits as usize).div_ceil(8)];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fail::err(format!("no random numbers are available: {error}")))?;
    let mut hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.truncate((bits as usize).div_ceil(4));
    call.reply().bulk(hex);
    Ok(())
}

fn dry_run(call: &mut Call<'_>) -> Done {
    let user = name(call, 2);
    let user = call.engine.users.get(&user);
    let user = user.ok_or_else(|| Fail::err(format!("User '{}' not found", name(call, 2))))?;
    let request: &[Bytes] = &call.args[3..];
    let spec = resolve(request).ok_or_else(|| Fail::err(format!("Command '{}' not found", name(call, 3))))?;
    if !spec.takes(request.len()) {
        return Err(Fail::err(format!("wrong number of arguments for '{}' command", spec.name)));
    }
    match user.check(spec, request) {
        Ok(()) => call.reply().ok(),
        Err(Denied::Command) => {
            let text = format!("This user has no permissions to run the '{}' command", spec.name);
            call.reply().bulk(text);
        }
        Err(Denied::Key { name, .. }) => {
            let mut text = b"This user has no permissions to access the '".to_vec();
            text.extend([&name[..], b"' key"].concat());
            call.reply().bulk(text);
        }
        Err(Denied::Channel { name, .. }) => {
            let mut text = b"This user has no permissions to access the '".to_vec();
            text.extend([&name[..], b"' channel"].concat());
            call.reply().bulk(text);
        }
    }
    Ok(())
}
