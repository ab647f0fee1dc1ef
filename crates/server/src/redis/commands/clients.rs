//! The other clients: a list of them, and how they are let go of, woken and held back.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::super::client::Client;
use super::super::engine::Pause;
use super::super::fail::Fail;
use super::super::pubsub::Kind;
use super::super::reply::Version;
use super::super::tracking::{Mode, Tracker};
use super::blocking::milliseconds;
use super::{Call, Done, integer, tracking};

/// A client in a line of words, as Redis tells it.
pub fn describe(client: &Client, tracker: &Tracker, now: u64) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let tracks = tracker.of(client.id);
    let redirect = tracking::redirect(tracks);
    let all = [
        ("P", client.subscriptions.is_any()),
        ("x", client.queue.is_some()),
        ("b", client.waits()),
        ("t", tracks.is_some()),
        ("R", tracks.is_some_and(|tracks| tracks.is_broken)),
        ("B", tracks.is_some_and(|tracks| tracks.mode == Mode::Broadcast)),
    ];
    let mut flags: String = all.iter().filter(|(_, is)| *is).map(|(flag, _)| *flag).collect();
    if flags.is_empty() {
        flags.push('N');
    }
    let [sub, psub, ssub] = Kind::ALL.map(|kind| client.subscriptions.of(kind).len());
    let queued = client.queue.as_ref().map_or(-1, |queue| queue.requests.len() as i64);
    format!(
        "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags} db={} sub={sub} psub={psub} ssub={ssub} multi={queued} \
         watch={} qbuf={} tot-mem={} omem={} cmd={} user={} redir={redirect} resp={} lib-name={} lib-ver={}",
        client.id,
        client.address,
        client.local,
        text(&client.name),
        now.saturating_sub(client.since) / 1000,
        now.saturating_sub(client.last_seen) / 1000,
        text(&client.database),
        client.watched.len(),
        client.unread,
        client.memory(),
        client.written() + client.outgoing,
        client.last_command,
        client.user.as_ref().map_or("(none)", |user| &user.name),
        if client.reply.version == Version::Three { 3 } else { 2 },
        text(&client.library.0),
        text(&client.library.1),
    )
}

pub fn list(call: &mut Call<'_>) -> Done {
    let (mut only, mut subscribes) = (None, None);
    if call.args.len() > 2 {
        match call.word(2).as_str() {
            "ID" if call.args.len() > 3 => {
                let ids: Option<BTreeSet<i64>> = call.args[3..].iter().map(|id| integer(id)).collect();
                only = Some(ids.ok_or_else(|| Fail::err("Invalid client ID"))?);
            }
            "TYPE" if call.args.len() == 4 => subscribes = Some(subscribes_by_type(call, 3)?),
            _ => return Err(Fail::syntax()),
        }
    }
    let (now, me) = (call.engine.steady, call.client.id);
    let is_listed = |client: &Client| {
        only.as_ref().is_none_or(|only| only.contains(&(client.id as i64)))
            && subscribes.is_none_or(|kind| kind == Some(client.subscriptions.is_any()))
    };
    let mut lines = call.engine.describe_all(is_listed);
    if is_listed(call.client) {
        lines.push((me, describe(call.client, &call.engine.tracker, now)));
    }
    lines.sort();
    let text: String = lines.into_iter().map(|(_, line)| line + "\n").collect();
    call.reply().verbatim(&text);
    Ok(())
}

/// Whether the clients of the type that a word names subscribe to channels; `None` if no client is
/// of the type, and an error if the word names no type.
fn subscribes_by_type(call: &Call<'_>, at: usize) -> Result<Option<bool>, Fail> {
    match call.word(at).as_str() {
        "NORMAL" => Ok(Some(false)),
        "PUBSUB" => Ok(Some(true)),
        "MASTER" | "REPLICA" | "SLAVE" => Ok(None),
        _ => {
            let named = String::from_utf8_lossy(&call.args[at]);
            Err(Fail::err(format!("Unknown client type '{named}'")))
        }
    }
}

/// Which clients are to be let go of.
#[derive(Default)]
struct Chosen {
    id: Option<u64>,
    address: Option<Bytes>,
    local: Option<Bytes>,
    user: Option<Bytes>,
    older: Option<u64>,
    /// Whether the clients subscribe to channels, if a type is named that clients may have.
    subscribes: Option<Option<bool>>,
    spares_me: bool,
}

impl Chosen {
    fn has(&self, client: &Client, now: u64) -> bool {
        let user = client.user.as_ref().map_or("", |user| &user.name);
        self.subscribes.is_none_or(|kind| kind == Some(client.subscriptions.is_any()))
            && self.id.is_none_or(|id| id == client.id)
            && self.address.as_ref().is_none_or(|address| *address == client.address)
            && self.local.as_ref().is_none_or(|local| *local == client.local)
            && self.user.as_ref().is_none_or(|name| *name == user)
            && self.older.is_none_or(|age| now.saturating_sub(client.since) / 1000 >= age)
    }
}

pub fn kill(call: &mut Call<'_>) -> Done {
    let by_address = call.args.len() == 3;
    let chosen = if by_address {
        Chosen { address: Some(call.args[2].clone()), ..Chosen::default() }
    } else {
        chosen(call)?
    };
    let now = call.engine.steady;
    let mut killed = 0;
    for client in call.engine.clients().filter(|client| chosen.has(client, now)) {
        client.is_killed = true;
        client.wake();
        killed += 1;
    }
    if !chosen.spares_me && chosen.has(call.client, now) {
        call.client.is_leaving = true;
        killed += 1;
    }
    match (by_address, killed) {
        (true, 0) => return Err(Fail::err("No such client")),
        (true, _) => call.reply().ok(),
        (false, n) => call.reply().int(n),
    }
    Ok(())
}

fn chosen(call: &Call<'_>) -> Result<Chosen, Fail> {
    let mut chosen = Chosen { spares_me: true, ..Chosen::default() };
    for at in (2..call.args.len()).step_by(2) {
        let Some(value) = call.args.get(at + 1) else { return Err(Fail::syntax()) };
        let number = || integer(value).filter(|n| *n > 0).map(|n| n as u64);
        match call.word(at).as_str() {
            "ID" => {
                let id = number().ok_or_else(|| Fail::err("client-id should be greater than 0"))?;
                chosen.id = Some(id);
            }
            "ADDR" => chosen.address = Some(value.clone()),
            "LADDR" => chosen.local = Some(value.clone()),
            "USER" => {
                let name = String::from_utf8_lossy(value);
                if call.engine.users.get(&name).is_none() {
                    return Err(Fail::err(format!("No such user '{name}'")));
                }
                chosen.user = Some(value.clone());
            }
            "MAXAGE" => chosen.older = Some(number().ok_or_else(Fail::not_an_integer)?),
            "SKIPME" => match call.word(at + 1).as_str() {
                "YES" => chosen.spares_me = true,
                "NO" => chosen.spares_me = false,
                _ => return Err(Fail::syntax()),
            },
            "TYPE" => chosen.subscribes = Some(subscribes_by_type(call, at + 1)?),
            _ => return Err(Fail::syntax()),
        }
    }
    Ok(chosen)
}

pub fn unblock(call: &mut Call<'_>) -> Done {
    let id = integer(&call.args[2]).ok_or_else(Fail::not_an_integer)?;
    let error = match call.args.get(3).map(|_| call.word(3)) {
        None => None,
        Some(word) if word == "TIMEOUT" => None,
        Some(word) if word == "ERROR" => Some("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        Some(_) => return Err(Fail::err("CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let is_done = call.engine.unblock(id as u64, error);
    call.reply().flag(is_done);
    Ok(())
}

/// `CLIENT PAUSE timeout [WRITE|ALL]`.
pub fn pause(call: &mut Call<'_>) -> Done {
    let writes_only = match call.args.get(3).map(|_| call.word(3)).as_deref() {
        None | Some("ALL") => false,
        Some("WRITE") => true,
        Some(_) => return Err(Fail::err("CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let until = milliseconds(call, 2)?.unwrap_or(call.engine.steady);
    call.engine.pause(Pause { until, writes_only });
    call.reply().ok();
    Ok(())
}

pub fn unpause(call: &mut Call<'_>) {
    call.engine.unpause();
    call.reply().ok();
}
