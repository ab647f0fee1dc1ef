//! The server: its description, its counters, and its settings.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::super::fail::Fail;
use super::super::glob::matches;
use super::super::pubsub::Kind;
use super::super::reply::Reply;
use super::{Call, Done, Spec, TABLE, find, resolve};

/// The version of Redis whose words are spoken.
pub const REDIS_VERSION: &str = "7.0.15";

pub fn time(call: &mut Call<'_>) -> Done {
    let now = call.engine.keys.now;
    call.reply().array(2);
    call.reply().bulk((now / 1000).to_string());
    call.reply().bulk((now % 1000 * 1000).to_string());
    Ok(())
}

pub fn role(call: &mut Call<'_>) -> Done {
    call.reply().array(3);
    call.reply().bulk("master");
    call.reply().int(0);
    call.reply().array(0);
    Ok(())
}

pub fn config(call: &mut Call<'_>) -> Done {
    match (call.word(1).as_str(), call.args.len()) {
        ("GET", n) if n > 2 => {
            let mut found = BTreeMap::new();
            for at in 2..n {
                let pattern = super::pattern(call, at)?.to_ascii_lowercase();
                found.extend(call.engine.settings.get(&pattern));
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
            call.engine.settings = changed;
            call.engine.trim_tracker();
            call.reply().ok();
        }
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
        _ => return Err(call.unknown_subcommand()),
    }
    Ok(())
}

/// What is acknowledged is on stable media already.
pub fn bgsave(call: &mut Call<'_>) -> Done {
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
    match call.word(1).as_str() {
        "GET" => call.reply().array(0),
        "LEN" => call.reply().int(0),
        "RESET" => call.reply().ok(),
        _ => return Err(call.unknown_subcommand()),
    }
    Ok(())
}

pub fn latency(call: &mut Call<'_>) -> Done {
    match call.word(1).as_str() {
        "LATEST" | "HISTORY" => call.reply().array(0),
        "RESET" => call.reply().int(0),
        _ => return Err(call.unknown_subcommand()),
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

pub fn memory(call: &mut Call<'_>) -> Done {
    match (call.word(1).as_str(), call.args.len()) {
        ("USAGE", n) if n > 2 => {
            let id = call.open(2)?;
            let bytes = call.engine.keys.memory_of(id);
            match bytes {
                Some(bytes) => call.reply().count(bytes),
                None => call.reply().null(),
            }
        }
        _ => return Err(call.unknown_subcommand()),
    }
    Ok(())
}

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

pub fn command(call: &mut Call<'_>) -> Done {
    if call.args.len() == 1 {
        tell_all(call);
        return Ok(());
    }
    match (call.word(1).as_str(), call.args.len()) {
        ("COUNT", 2) => {
            let count = commands().count();
            call.reply().count(count);
        }
        ("LIST", 2) => {
            let names: Vec<&str> = commands().map(|spec| spec.name).collect();
            call.reply().bulks(&names);
        }
        ("LIST", 5) if call.is(2, "FILTERBY") && call.is(3, "PATTERN") => {
            let pattern = super::pattern(call, 4)?;
            let found: Vec<&str> =
                commands().map(|spec| spec.name).filter(|name| matches(&pattern, name.as_bytes())).collect();
            call.reply().bulks(&found);
        }
        ("INFO", 2) => {
            tell_all(call);
        }
        ("INFO", _) => {
            call.client.reply.array(call.args.len() - 2);
            for name in &call.args[2..] {
                match find(name) {
                    Some(spec) => tell_spec(&mut call.client.reply, spec),
                    None => call.client.reply.null_array(),
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
            for spec in named {
                call.reply().bulk(spec.name);
                call.reply().map(0);
            }
        }
        ("GETKEYS", n) if n > 2 => {
            let spec = resolve(&call.args[2..]).ok_or_else(|| Fail::err("Invalid command specified"))?;
            if !spec.takes(call.args.len() - 2) {
                return Err(Fail::err("Invalid number of arguments specified for command"));
            }
            let keys = spec.keys(&call.args[2..]);
            if keys.is_empty() {
                return Err(Fail::err("The command has no key arguments"));
            }
            call.client.reply.bulks(&keys);
        }
        _ => return Err(call.unknown_subcommand()),
    }
    Ok(())
}

/// `INFO [section …]`.
pub fn info(call: &mut Call<'_>) -> Done {
    let wanted: Vec<String> = (1..call.args.len()).map(|at| call.word(at).to_ascii_lowercase()).collect();
    let is_all = wanted.is_empty()
        || wanted.iter().any(|name| matches!(name.as_str(), "all" | "default" | "everything"));
    let mut text = String::new();
    for (name, write) in SECTIONS {
        let is_extra = matches!(name, "Commandstats" | "Errorstats");
        let in_all =
            is_all && (!is_extra || !wanted.is_empty() && wanted.iter().all(|name| name != "default"));
        if in_all || wanted.contains(&name.to_ascii_lowercase()) {
            if !text.is_empty() {
                text += "\r\n";
            }
            _ = write!(text, "# {name}\r\n");
            write(call, &mut text)?;
        }
    }
    call.reply().verbatim(&text);
    Ok(())
}

type Section = fn(&mut Call<'_>, &mut String) -> Done;

const SECTIONS: [(&str, Section); 10] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory_section),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    ("Commandstats", command_stats),
    ("Errorstats", error_stats),
    ("Keyspace", keyspace),
];

macro_rules! lines {
    ($text:expr, $($name:ident: $value:expr),* $(,)?) => {
        $(_ = write!($text, concat!(stringify!($name), ":{}\r\n"), $value);)*
    };
}

fn server(call: &mut Call<'_>, text: &mut String) -> Done {
    let up = call.engine.steady.saturating_sub(call.engine.stats.since) / 1000;
    lines!(text,
        redis_version: REDIS_VERSION,
        redis_mode: "standalone",
        server_name: "brooklet",
        brooklet_version: env!("CARGO_PKG_VERSION"),
        os: std::env::consts::OS,
        arch_bits: usize::BITS,
        process_id: std::process::id(),
        uptime_in_seconds: up,
        uptime_in_days: up / 86_400,
    );
    Ok(())
}

fn clients(call: &mut Call<'_>, text: &mut String) -> Done {
    lines!(text,
        connected_clients: call.engine.client_count() + 1,
        maxclients: call.engine.settings.max_clients,
        blocked_clients: call.engine.waiting_count(),
        tracking_clients: call.engine.tracker.client_count(),
        brooklet_clients_bytes: call.engine.client_memory(),
        brooklet_clients_budget: call.engine.settings.client_memory,
    );
    Ok(())
}

fn memory_section(call: &mut Call<'_>, text: &mut String) -> Done {
    let (keys, bytes) = call.engine.keys.cached();
    let info = call.engine.keys.store().info()?;
    let runs: usize = info.runs.iter().map(|run| run.memory_bytes).sum();
    let used = bytes + info.memtable_bytes + runs;
    lines!(text,
        used_memory: used,
        used_memory_rss: resident().unwrap_or(used),
        maxmemory: 0,
        maxmemory_policy: "noeviction",
        brooklet_keys_in_memory: keys,
        brooklet_keys_bytes: bytes,
        brooklet_memtable_bytes: info.memtable_bytes,
    );
    Ok(())
}

/// Bytes of memory that the process has, where the system tells.
fn resident() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

fn persistence(call: &mut Call<'_>, text: &mut String) -> Done {
    let stopped = call.engine.stopped.is_some();
    let info = call.engine.keys.store().info()?;
    lines!(text,
        loading: 0,
        async_loading: 0,
        rdb_changes_since_last_save: 0,
        rdb_bgsave_in_progress: 0,
        rdb_last_bgsave_status: "ok",
        aof_enabled: 1,
        aof_rewrite_in_progress: 0,
        aof_rewrite_scheduled: 0,
        aof_last_bgrewrite_status: "ok",
        aof_last_write_status: if stopped { "err" } else { "ok" },
        brooklet_commits: call.engine.keys.epoch(),
        brooklet_commits_acknowledged: call.engine.keys.acknowledged(),
        brooklet_runs: info.runs.len(),
        brooklet_bytes: info.size,
    );
    Ok(())
}

fn stats(call: &mut Call<'_>, text: &mut String) -> Done {
    let stats = &call.engine.stats;
    let (keys, items, prefixes) = call.engine.tracker.counts();
    lines!(text,
        total_connections_received: stats.connections,
        total_commands_processed: stats.commands,
        rejected_connections: stats.rejected,
        expired_keys: stats.expired,
        evicted_keys: 0,
        total_error_replies: stats.error_count(),
        brooklet_expiring_keys: call.engine.keys.expiring(),
        pubsub_channels: call.engine.topics.len(Kind::Channel),
        pubsub_patterns: call.engine.topics.len(Kind::Pattern),
        pubsubshard_channels: call.engine.topics.len(Kind::Shard),
        tracking_total_keys: keys,
        tracking_total_items: items,
        tracking_total_prefixes: prefixes,
    );
    Ok(())
}

fn replication(_: &mut Call<'_>, text: &mut String) -> Done {
    lines!(text, role: "master", connected_slaves: 0, master_repl_offset: 0);
    Ok(())
}

fn cpu(_: &mut Call<'_>, text: &mut String) -> Done {
    let read = || -> Option<(f64, f64)> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
        let ticks = |field: &str| field.parse().map(|ticks: f64| ticks / 100.0).ok();
        Some((ticks(fields.next()?)?, ticks(fields.next()?)?))
    };
    if let Some((user, system)) = read() {
        lines!(text, used_cpu_sys: system, used_cpu_user: user);
    }
    Ok(())
}

fn command_stats(call: &mut Call<'_>, text: &mut String) -> Done {
    for (name, calls) in call.engine.stats.calls() {
        let super::super::stats::Calls { done, waited, rejected, failed } = calls;
        _ = write!(
            text,
            "cmdstat_{name}:calls={done},waited={waited},rejected_calls={rejected},failed_calls={failed}\r\n"
        );
    }
    Ok(())
}

fn error_stats(call: &mut Call<'_>, text: &mut String) -> Done {
    for (kind, count) in call.engine.stats.errors() {
        _ = write!(text, "errorstat_{kind}:count={count}\r\n");
    }
    Ok(())
}

/// Databases that were counted before, or are small enough to be counted by the way.
fn keyspace(call: &mut Call<'_>, text: &mut String) -> Done {
    for number in 0..call.engine.settings.databases {
        if let Some(keys) = call.engine.keys.count_if_quick(number.to_string().as_bytes())?
            && keys > 0
        {
            _ = write!(text, "db{number}:keys={keys},expires=0,avg_ttl=0\r\n");
        }
    }
    Ok(())
}
