//! LATENCY and MEMORY: where time and memory go.

use super::super::fail::Fail;
use super::info::{human, used};
use super::{Call, Done, find};

const LATENCY_HELP: [&str; 10] = [
    "DOCTOR",
    "    Return the longest latencies of each event as text.",
    "HISTOGRAM [<command> ...]",
    "    Return the numbers of calls by their durations.",
    "HISTORY <event>",
    "    Return times and latencies of the <event>.",
    "LATEST",
    "    Return the last latency of each event.",
    "RESET [<event> ...]",
    "    Forget the latencies of these events, or of all.",
];

pub fn latency(call: &mut Call<'_>) -> Done {
    match (call.word(1).as_str(), call.args.len()) {
        ("LATEST", 2) => latest(call),
        ("HISTORY", 3) => {
            let event = call.engine.stats.events.of(&call.args[2]);
            let history = event.map_or_else(Vec::new, |event| event.history.iter().copied().collect());
            call.reply().array(history.len());
            for (at, millis) in history {
                call.reply().array(2);
                call.reply().int(at as i64);
                call.reply().int(millis as i64);
            }
        }
        ("RESET", _) => {
            let forgotten = call.engine.stats.events.forget(&call.args[2..]);
            call.reply().count(forgotten);
        }
        ("HISTOGRAM", _) => {
            call.check_words()?;
            histogram(call);
        }
        ("DOCTOR", 2) => doctor(call),
        ("HELP", 2) => call.help(&LATENCY_HELP),
        _ => return Err(call.wrong_subcommand()),
    }
    Ok(())
}

fn latest(call: &mut Call<'_>) {
    let all = call.engine.stats.events.all();
    let reply = &mut call.client.reply;
    reply.array(all.len());
    for (kind, event) in all {
        let (at, millis) = event.history.back().copied().unwrap_or_default();
        reply.array(4);
        reply.bulk(kind);
        [at, millis, event.longest].iter().for_each(|n| reply.int(*n as i64));
    }
}

/// Numbers of calls below bounds in microseconds, each with those below the smaller bounds.
fn histogram(call: &mut Call<'_>) {
    let wanted: Vec<_> = call.args[2..].iter().filter_map(|name| find(name)).collect();
    // A command with subcommands stands for all of them.
    let is_wanted = |name: &str| {
        call.args.len() == 2
            || wanted.iter().any(|spec| {
                let rest = name.strip_prefix(spec.name);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
            })
    };
    let measured: Vec<_> = call.engine.stats.calls().filter(|(spec, _)| is_wanted(spec.name)).collect();
    let measured = measured.iter().filter_map(|(spec, calls)| Some((spec.name, calls.times.as_deref()?)));
    let measured: Vec<_> = measured.collect();
    let reply = &mut call.client.reply;
    reply.map(measured.len());
    for (name, times) in measured {
        reply.bulk(name);
        reply.map(2);
        reply.bulk("calls");
        reply.int(times.iter().sum::<u64>() as i64);
        reply.bulk("histogram_usec");
        let some: Vec<(usize, u64)> = times.iter().copied().enumerate().filter(|(_, n)| *n > 0).collect();
        reply.map(some.len());
        let mut below = 0;
        for (place, count) in some {
            below += count;
            reply.int(1 << place);
            reply.int(below as i64);
        }
    }
}

fn doctor(call: &mut Call<'_>) {
    let threshold = call.engine.settings.latency_threshold;
    let mut text = String::new();
    if threshold == 0 {
        text += "Latencies are not watched: CONFIG SET latency-monitor-threshold to some milliseconds.\n";
    } else {
        text += &format!("Latencies of {threshold} milliseconds and more:\n");
    }
    for (kind, event) in call.engine.stats.events.all() {
        let (count, longest) = (event.history.len(), event.longest);
        text += &format!("{kind}: {count} lately, the longest ever took {longest} milliseconds.\n");
    }
    call.reply().verbatim(&text);
}

const MEMORY_HELP: [&str; 10] = [
    "DOCTOR",
    "    Return what takes most memory as text.",
    "MALLOC-STATS",
    "    Return statistics of the allocator, which has none.",
    "PURGE",
    "    Do nothing: the allocator gives memory back by itself.",
    "STATS",
    "    Return what takes memory.",
    "USAGE <key> [SAMPLES <count>]",
    "    Return the memory of a key in bytes; all of the value is counted.",
];

pub fn memory(call: &mut Call<'_>) -> Done {
    match (call.word(1).as_str(), call.args.len()) {
        ("USAGE", n) if n > 2 => usage(call),
        ("STATS", 2) => stats(call),
        ("DOCTOR", 2) => memory_doctor(call),
        ("PURGE", 2) => {
            call.reply().ok();
            Ok(())
        }
        ("MALLOC-STATS", 2) => {
            call.reply().verbatim("Stats not supported for the current allocator");
            Ok(())
        }
        ("HELP", 2) => {
            call.help(&MEMORY_HELP);
            Ok(())
        }
        _ => Err(call.wrong_subcommand()),
    }
}

/// `MEMORY USAGE key [SAMPLES n]`.
fn usage(call: &mut Call<'_>) -> Done {
    let mut at = 3;
    while at < call.args.len() {
        if !call.is(at, "SAMPLES") || at + 1 == call.args.len() {
            return Err(Fail::syntax());
        }
        if call.integer(at + 1)? < 0 {
            return Err(Fail::syntax());
        }
        at += 2;
    }
    let id = call.open(2)?;
    let bytes = call.engine.keys.memory_of(id);
    match bytes {
        Some(bytes) => call.reply().count(bytes),
        None => call.reply().null(),
    }
    Ok(())
}

/// Of what Redis tells, that which is there here, by the same names.
fn stats(call: &mut Call<'_>) -> Done {
    let used = used(call)?;
    let clients = call.engine.client_memory();
    let dataset = used.keys.1 + used.memtable;
    let per_key = used.keys.1.checked_div(used.keys.0).unwrap_or(0);
    let counts = [
        ("peak.allocated", used.peak),
        ("total.allocated", used.counted),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", clients),
        ("aof.buffer", 0),
        ("overhead.total", used.counted - dataset),
        ("keys.count", used.keys.0),
        ("keys.bytes-per-key", per_key),
        ("dataset.bytes", dataset),
        ("allocator.resident", used.resident),
    ];
    let percent = |part: usize, whole: usize| part as f64 * 100.0 / whole.max(1) as f64;
    let shares = [
        ("dataset.percentage", percent(dataset, used.counted)),
        ("peak.percentage", percent(used.counted, used.peak)),
    ];
    call.reply().map(counts.len() + shares.len());
    for (name, count) in counts {
        call.reply().bulk(name);
        call.reply().count(count);
    }
    for (name, share) in shares {
        call.reply().bulk(name);
        call.reply().double(share);
    }
    Ok(())
}

fn memory_doctor(call: &mut Call<'_>) -> Done {
    let used = used(call)?;
    let clients = call.engine.client_memory();
    let text = format!(
        "The process has {}. Of this, {} are keys that were used lately ({} keys), {} are entries that no run \
         holds yet, {} are kept of runs, and {} are of clients.\n",
        human(used.resident),
        human(used.keys.1),
        used.keys.0,
        human(used.memtable),
        human(used.runs),
        human(clients),
    );
    call.reply().verbatim(&text);
    Ok(())
}
