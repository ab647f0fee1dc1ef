//! Publish and subscribe.

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::proto::size_of_args;
use super::super::pubsub::{Kind, MAX_CHANNEL};
use super::drafts::has_other_rights;
use super::{Call, Done, pattern};

pub fn subscribe(call: &mut Call<'_>) -> Done {
    begin(call, Kind::Channel)
}

pub fn psubscribe(call: &mut Call<'_>) -> Done {
    begin(call, Kind::Pattern)
}

pub fn ssubscribe(call: &mut Call<'_>) -> Done {
    begin(call, Kind::Shard)
}

pub fn unsubscribe(call: &mut Call<'_>) -> Done {
    end(call, Kind::Channel)
}

pub fn punsubscribe(call: &mut Call<'_>) -> Done {
    end(call, Kind::Pattern)
}

pub fn sunsubscribe(call: &mut Call<'_>) -> Done {
    end(call, Kind::Shard)
}

pub fn publish(call: &mut Call<'_>) -> Done {
    send(call, Kind::Channel)
}

pub fn spublish(call: &mut Call<'_>) -> Done {
    send(call, Kind::Shard)
}

fn check_channel(name: &[u8]) -> Done {
    if name.len() > MAX_CHANNEL {
        return Err(Fail::err(format!("the name of a channel has at most {MAX_CHANNEL} bytes")));
    }
    Ok(())
}

/// Reports a change of the subscriptions.
fn tell(call: &mut Call<'_>, kind: Kind, change: &str, name: Option<&Bytes>) {
    let count = call.client.subscriptions.count(kind);
    let reply = call.reply();
    reply.push(3);
    reply.bulk(change);
    reply.bulk_or_null(name);
    reply.count(count);
}

/// Bytes of a report besides its name, at most.
const REPORT: usize = 80;

/// Refuses a change whose reports do not fit, before it has an effect.
fn check_room(call: &mut Call<'_>, names: &[Bytes]) -> Done {
    let bytes: usize = names.iter().map(|name| name.len() + REPORT).sum();
    if bytes > call.client.reply.room() {
        call.client.reply.fill();
        call.client.has_room()?;
    }
    Ok(())
}

/// Channels that one portion begins or ends the subscriptions of.
const PORTION: usize = 1_000;

fn begin(call: &mut Call<'_>, kind: Kind) -> Done {
    for at in 1..call.args.len() {
        if kind == Kind::Pattern {
            pattern(call, at)?;
        } else {
            check_channel(&call.args[at])?;
        }
    }
    let most = call.engine.settings.max_request;
    let new = call.args[1..].iter().filter(|name| !call.client.subscriptions.of(kind).contains(*name));
    if call.client.subscriptions.memory_with(new) > most {
        return Err(Fail::err(format!("the subscriptions of a client have at most {most} bytes")));
    }
    let names = call.args[1..].to_vec();
    call.engine.topics.check(&call.client.subscriptions, kind, &names).map_err(Fail::err)?;
    in_portions(call, names, move |call, names| {
        // Others may have begun subscriptions since the last portion. A refused portion
        // begins none: its reports would not be sent.
        call.engine.topics.check(&call.client.subscriptions, kind, names).map_err(Fail::err)?;
        names.iter().try_for_each(|name| {
            let subscriptions = &mut call.client.subscriptions;
            let done = call.engine.topics.subscribe(call.client.id, subscriptions, kind, name);
            done.map_err(Fail::err)?;
            tell(call, kind, kind.commands().0, Some(name));
            Ok(())
        })
    })
}

fn end(call: &mut Call<'_>, kind: Kind) -> Done {
    let named = &call.args[1..];
    let all: Vec<Bytes> = if named.is_empty() {
        call.client.subscriptions.of(kind).iter().cloned().collect()
    } else {
        named.to_vec()
    };
    if all.is_empty() {
        tell(call, kind, kind.commands().1, None);
        return Ok(());
    }
    in_portions(call, all, move |call, names| {
        for name in names {
            call.engine.topics.unsubscribe(call.client.id, &mut call.client.subscriptions, kind, name);
            tell(call, kind, kind.commands().1, Some(name));
        }
        Ok(())
    })
}

/// Changes subscriptions in portions. In a transaction, all of them at once.
fn in_portions(
    call: &mut Call<'_>,
    names: Vec<Bytes>,
    mut change: impl FnMut(&mut Call<'_>, &[Bytes]) -> Done + Send + 'static,
) -> Done {
    check_room(call, &names)?;
    call.engine.keep_before(call.client);
    if names.len() <= PORTION || call.is_whole() {
        return change(call, &names);
    }
    call.client.work_bytes = size_of_args(&names);
    let (mut at, mut user) = (0, call.client.user.clone());
    call.in_portions(move |call| {
        has_other_rights(call, &mut user)?;
        let end = names.len().min(at + PORTION);
        change(call, &names[at..end])?;
        at = end;
        Ok(at == names.len())
    })
}

fn send(call: &mut Call<'_>, kind: Kind) -> Done {
    check_channel(&call.args[1])?;
    let receivers = call.engine.publish(kind, &call.args[1], &call.args[2]).map_err(Fail::err)?;
    call.reply().count(receivers);
    Ok(())
}

const HELP: [&str; 11] = [
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "SHARDCHANNELS [<pattern>]",
    "    Return the currently active shard level channels matching a <pattern> (default: '*').",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers for the specified shard level channel(s)",
];

pub fn pubsub(call: &mut Call<'_>) -> Done {
    match (call.word(1).as_str(), call.args.len()) {
        ("CHANNELS", 2 | 3) => channels(call, Kind::Channel)?,
        ("SHARDCHANNELS", 2 | 3) => channels(call, Kind::Shard)?,
        ("NUMSUB", _) => subscriber_counts(call, Kind::Channel),
        ("SHARDNUMSUB", _) => subscriber_counts(call, Kind::Shard),
        ("NUMPAT", 2) => {
            let count = call.engine.topics.len(Kind::Pattern);
            call.reply().count(count);
        }
        ("HELP", 2) => call.help(&HELP),
        _ => return Err(call.wrong_subcommand()),
    }
    Ok(())
}

fn channels(call: &mut Call<'_>, kind: Kind) -> Done {
    let wanted = if call.args.len() == 3 { Some(pattern(call, 2)?) } else { None };
    let found = call.engine.topics.names(kind, wanted.as_ref()).map_err(Fail::err)?;
    call.reply().bulks(&found);
    Ok(())
}

fn subscriber_counts(call: &mut Call<'_>, kind: Kind) {
    let (engine, reply) = (&call.engine, &mut call.client.reply);
    reply.array(2 * (call.args.len() - 2));
    for name in &call.args[2..] {
        reply.bulk(name);
        reply.count(engine.topics.subscriber_count(kind, name));
    }
}
