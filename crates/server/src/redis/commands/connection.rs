//! Commands about the connection: the identity of the client, its database, its names.

use bytes::Bytes;

use super::super::client::Replies;
use super::super::fail::Fail;
use super::super::notices::Notice;
use super::super::reply::Version;
use super::super::spaces;
use super::clients::{describe, kill, list, pause, unblock, unpause};
use super::{Call, Done, integer, tracking};

pub fn ping(call: &mut Call<'_>) -> Done {
    match call.args.len() {
        1 | 2 if call.client.is_subscriber_only() => {
            let text = call.args.get(1).cloned().unwrap_or_default();
            call.reply().bulks(&[Bytes::from_static(b"pong"), text]);
        }
        1 => call.reply().simple("PONG"),
        2 => {
            let text = call.args[1].clone();
            call.reply().bulk(text);
        }
        _ => return Err(Fail::err("wrong number of arguments for 'ping' command")),
    }
    Ok(())
}

pub fn echo(call: &mut Call<'_>) -> Done {
    let text = call.args[1].clone();
    call.reply().bulk(text);
    Ok(())
}

pub fn quit(call: &mut Call<'_>) -> Done {
    call.client.is_leaving = true;
    call.reply().ok();
    Ok(())
}

pub fn reset(call: &mut Call<'_>) -> Done {
    call.client.queue = None;
    call.engine.unwatch(call.client);
    call.engine.topics.leave(call.client.id, &mut call.client.subscriptions);
    tracking::end(call);
    call.client.database = Bytes::from_static(b"0");
    call.client.user = call.engine.users.default_user();
    call.engine.note_login(call.client);
    call.client.name = Bytes::new();
    call.client.replies = Replies::On;
    call.client.reply.version = Version::Two;
    call.reply().simple("RESET");
    Ok(())
}

/// The database that a word names: a number, or a space of that name.
pub fn database(call: &Call<'_>, at: usize) -> Result<Bytes, Fail> {
    let word = &call.args[at];
    if let (Some(elsewhere), Ok(space)) = (&call.engine.settings.elsewhere, std::str::from_utf8(word))
        && let Some(place) = elsewhere.find(space)
    {
        return Err(Fail::Reply(format!("ELSEWHERE {place}").into()));
    }
    match integer(word) {
        Some(n) if (0..call.engine.settings.databases as i64).contains(&n) => {}
        Some(_) => return Err(Fail::err("DB index is out of range")),
        None => {
            let name = std::str::from_utf8(word).map_err(|_| Fail::not_an_integer())?;
            let space = call.engine.keys.store().space(name).and_then(|space| space.info());
            spaces::check(&space.map_err(|_| Fail::not_an_integer())?).map_err(Fail::err)?;
        }
    }
    // Copied, so that the rest of the packet does not stay in memory with the name.
    Ok(Bytes::copy_from_slice(word))
}

pub fn select(call: &mut Call<'_>) -> Done {
    let database = database(call, 1)?;
    call.engine.keep_before(call.client);
    call.client.database = database;
    call.reply().ok();
    Ok(())
}

fn log_in(call: &mut Call<'_>, name: &[u8], password: &[u8]) -> Done {
    let name = String::from_utf8_lossy(name);
    match call.engine.users.log_in(&name, password) {
        Some(user) => {
            call.client.user = Some(user);
            call.engine.note_login(call.client);
            Ok(())
        }
        None => {
            let (user, address) = (name.into_owned(), call.client.address.clone());
            call.engine.note_refusal(call.client, user.clone(), "auth", &call.args[0]);
            call.keys().notices.push(Notice::WrongPassword { user, address });
            Err(Fail::Reply("WRONGPASS invalid username-password pair or user is disabled.".into()))
        }
    }
}

pub fn auth(call: &mut Call<'_>) -> Done {
    let (name, password) = match call.args {
        [_, password] => {
            if call.engine.users.default_user().is_some() {
                return Err(Fail::err(
                    "AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
                ));
            }
            (Bytes::from_static(b"default"), password.clone())
        }
        [_, name, password] => (name.clone(), password.clone()),
        _ => return Err(Fail::syntax()),
    };
    log_in(call, &name, &password)?;
    call.reply().ok();
    Ok(())
}

pub fn hello(call: &mut Call<'_>) -> Done {
    let mut version = None;
    if call.args.len() > 1 {
        let n = integer(&call.args[1]);
        let n = n.ok_or_else(|| Fail::err("Protocol version is not an integer or out of range"))?;
        version = Some(match n {
            2 => Version::Two,
            3 => Version::Three,
            _ => return Err(Fail::Reply("NOPROTO unsupported protocol version".into())),
        });
    }
    let mut name = None;
    let mut at = 2;
    while at < call.args.len() {
        if call.is(at, "AUTH") && at + 2 < call.args.len() {
            let (user, password) = (call.args[at + 1].clone(), call.args[at + 2].clone());
            log_in(call, &user, &password)?;
            at += 3;
        } else if call.is(at, "SETNAME") && at + 1 < call.args.len() {
            name = Some(client_name(NAMES, &call.args[at + 1])?);
            at += 2;
        } else {
            let option = String::from_utf8_lossy(&call.args[at]);
            return Err(Fail::err(format!("Syntax error in HELLO option '{option}'")));
        }
    }
    if call.client.user.is_none() {
        return Err(Fail::Reply("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time".into()));
    }
    call.client.name = name.unwrap_or_else(|| call.client.name.clone());
    call.client.reply.version = version.unwrap_or(call.client.reply.version);
    let id = call.client.id as i64;
    let proto = if call.client.reply.version == Version::Three { 3 } else { 2 };
    let role = if call.engine.upstream.is_some() { "replica" } else { "master" };
    let reply = call.reply();
    reply.map(7);
    for (field, value) in [("server", "redis"), ("version", super::info::REDIS_VERSION)] {
        reply.bulk(field);
        reply.bulk(value);
    }
    reply.bulk("proto");
    reply.int(proto);
    reply.bulk("id");
    reply.int(id);
    for (field, value) in [("mode", "standalone"), ("role", role)] {
        reply.bulk(field);
        reply.bulk(value);
    }
    reply.bulk("modules");
    reply.array(0);
    Ok(())
}

/// Longest name of a client, in bytes. Lists of clients and refusals repeat it.
const MAX_NAME: usize = 1 << 10;
const NAMES: &str = "Client names";

/// A name that a client gives itself or its library; `what` names it in errors.
fn client_name(what: &str, name: &[u8]) -> Result<Bytes, Fail> {
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Err(Fail::err(format!("{what} cannot contain spaces, newlines or special characters.")));
    }
    if name.len() > MAX_NAME {
        return Err(Fail::err(format!("{what} cannot be longer than {MAX_NAME} bytes")));
    }
    // Copied, so that the rest of the packet does not stay in memory with the name.
    Ok(Bytes::copy_from_slice(name))
}

const HELP: [&str; 33] = [
    "CACHING (YES|NO)",
    "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
    "GETNAME",
    "    Return the name of the current connection.",
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>|<option> [value] ...",
    "    Kill connections, by ID, TYPE, ADDR, LADDR, USER, SKIPME or MAXAGE.",
    "LIST [ID <id> ...] [TYPE <type>]",
    "    Return information about client connections.",
    "NO-EVICT (ON|OFF)",
    "    Keep this connection however idle it is.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Hold back writes, or all requests, for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETINFO (LIB-NAME|LIB-VER) <value>",
    "    Tell which library this is.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Control server assisted client side caching.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock the specified blocked client.",
    "UNPAUSE",
    "    End a pause.",
];

pub fn client(call: &mut Call<'_>) -> Done {
    let sub = call.word(1);
    match (sub.as_str(), call.args.len()) {
        ("ID", 2) => {
            let id = call.client.id as i64;
            call.reply().int(id);
        }
        ("GETNAME", 2) => {
            let name = call.client.name.clone();
            call.reply().bulk_or_null((!name.is_empty()).then_some(name));
        }
        ("SETNAME", 3) => {
            call.client.name = client_name(NAMES, &call.args[2])?;
            call.reply().ok();
        }
        ("SETINFO", 4) => set_info(call)?,
        ("INFO", 2) => {
            let line = describe(call.client, &call.engine.tracker, call.engine.steady) + "\n";
            call.reply().verbatim(&line);
        }
        ("LIST", _) => list(call)?,
        ("KILL", n) if n > 2 => kill(call)?,
        ("PAUSE", 3 | 4) => pause(call)?,
        ("UNPAUSE", 2) => unpause(call),
        ("REPLY", 3) => set_replies(call)?,
        ("UNBLOCK", 3 | 4) => unblock(call)?,
        ("TRACKING", n) if n > 2 => tracking::tracking(call)?,
        ("CACHING", 3) => tracking::caching(call)?,
        ("GETREDIR", 2) => tracking::get_redirect(call),
        ("TRACKINGINFO", 2) => tracking::info(call),
        ("NO-EVICT" | "NO-TOUCH", 3) => {
            let on = match call.word(2).as_str() {
                "ON" => true,
                "OFF" => false,
                _ => return Err(Fail::syntax()),
            };
            if sub == "NO-EVICT" {
                call.client.no_evict = on;
            }
            call.reply().ok();
        }
        ("HELP", 2) => call.help(&HELP),
        _ => return Err(call.wrong_subcommand()),
    }
    Ok(())
}

fn set_info(call: &mut Call<'_>) -> Done {
    let value = client_name("lib-name and lib-ver", &call.args[3])?;
    match call.word(2).as_str() {
        "LIB-NAME" => call.client.library.0 = value,
        "LIB-VER" => call.client.library.1 = value,
        other => return Err(Fail::err(format!("Unrecognized option '{}'", other.to_ascii_lowercase()))),
    }
    call.reply().ok();
    Ok(())
}

fn set_replies(call: &mut Call<'_>) -> Done {
    match call.word(2).as_str() {
        "ON" => {
            call.client.replies = Replies::On;
            call.reply().ok();
        }
        "OFF" => call.client.replies = Replies::Off,
        "SKIP" if call.client.replies == Replies::On => call.client.replies = Replies::SkipNext,
        "SKIP" => {}
        _ => return Err(Fail::syntax()),
    }
    Ok(())
}
