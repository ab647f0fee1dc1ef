//! INFO: the server in lines of names and values. All values are counted or measured.

use std::fmt::Write as _;

use super::super::fail::Fail;
use super::super::pubsub::Kind;
use super::super::stats::Times;
use super::{Call, Done};

/// The version of Redis whose words are spoken.
pub const REDIS_VERSION: &str = "7.0.15";

type Section = fn(&mut Call<'_>, &mut String) -> Done;

/// The sections, and whether `INFO` without arguments has them.
static SECTIONS: [(&str, bool, Section); 13] = [
    ("Server", true, server),
    ("Clients", true, clients),
    ("Memory", true, memory),
    ("Persistence", true, persistence),
    ("Stats", true, stats),
    ("Replication", true, replication),
    ("CPU", true, cpu),
    ("Modules", true, |_, _| Ok(())),
    ("Commandstats", false, command_stats),
    ("Errorstats", true, error_stats),
    ("Latencystats", false, latency_stats),
    ("Cluster", true, cluster),
    ("Keyspace", true, keyspace),
];

/// `INFO [section …]`.
pub fn info(call: &mut Call<'_>) -> Done {
    // However often a section is named, it is told once.
    let names = |names: &[&str]| {
        let mut words = call.args[1..].iter();
        words.any(|word| names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes())))
    };
    let (is_all, is_default) = (names(&["all", "everything"]), call.args.len() == 1 || names(&["default"]));
    let wanted: Vec<&'static (&str, bool, Section)> = SECTIONS
        .iter()
        .filter(|(name, is_usual, _)| is_all || (is_default && *is_usual) || names(&[name]))
        .collect();
    let mut next = 0;
    call.in_portions(move |call| {
        if wanted.iter().any(|(name, ..)| *name == "Keyspace") && !has_counted(call, &mut next)? {
            return Ok(false);
        }
        tell(call, &wanted).map(|()| true)
    })
}

/// Counts the keys of the databases that have few, a database in each portion; returns whether all
/// are counted.
fn has_counted(call: &mut Call<'_>, next: &mut u64) -> Result<bool, Fail> {
    while *next < call.engine.settings.databases {
        let database = next.to_string();
        *next += 1;
        if call.keys().known_count(database.as_bytes()).is_none() {
            call.keys().count_if_quick(database.as_bytes())?;
            return Ok(false);
        }
    }
    Ok(true)
}

fn tell(call: &mut Call<'_>, wanted: &[&(&str, bool, Section)]) -> Done {
    let mut text = String::new();
    for (name, _, write) in wanted {
        if !text.is_empty() {
            text += "\r\n";
        }
        _ = write!(text, "# {name}\r\n");
        write(call, &mut text)?;
    }
    call.reply().verbatim(&text);
    Ok(())
}

macro_rules! lines {
    ($text:expr, $($name:ident: $value:expr),* $(,)?) => {
        $(_ = write!($text, concat!(stringify!($name), ":{}\r\n"), $value);)*
    };
}

/// A size with a unit, as Redis writes it.
pub fn human(bytes: usize) -> String {
    const UNITS: [&str; 4] = ["K", "M", "G", "T"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let (mut size, mut unit) = (bytes as f64 / 1024.0, 0);
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        (size, unit) = (size / 1024.0, unit + 1);
    }
    format!("{size:.2}{}", UNITS[unit])
}

fn server(call: &mut Call<'_>, text: &mut String) -> Done {
    let engine = &call.engine;
    let up = engine.steady.saturating_sub(engine.stats.since) / 1000;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let os = format!("{} {} {}", std::env::consts::OS, release.trim(), std::env::consts::ARCH);
    let path = std::env::current_exe().map_or_else(|_| String::new(), |path| path.display().to_string());
    lines!(text,
        redis_version: REDIS_VERSION,
        redis_mode: "standalone",
        server_name: "brooklet",
        brooklet_version: env!("CARGO_PKG_VERSION"),
        os: os.replace("  ", " "),
        arch_bits: usize::BITS,
        process_id: std::process::id(),
        run_id: engine.run_id,
        tcp_port: engine.port,
        server_time_usec: engine.keys.now * 1000,
        uptime_in_seconds: up,
        uptime_in_days: up / 86_400,
        executable: path,
        config_file: "",
    );
    Ok(())
}

fn clients(call: &mut Call<'_>, text: &mut String) -> Done {
    lines!(text,
        connected_clients: call.engine.client_count() + 1,
        cluster_connections: 0,
        maxclients: call.engine.settings.max_clients,
        blocked_clients: call.engine.waiting_count(),
        tracking_clients: call.engine.tracker.client_count(),
        brooklet_clients_bytes: call.engine.client_memory(),
        brooklet_clients_budget: call.engine.settings.client_memory,
    );
    Ok(())
}

/// The memory of the server, in bytes.
pub struct Used {
    /// What the parts of the server count.
    pub counted: usize,
    /// Values in memory: how many, and their size.
    pub keys: (usize, usize),
    /// Entries that no run holds yet.
    pub memtable: usize,
    /// Number of runs.
    pub runs: usize,
    /// Bytes of memory of the process, if the system reports them.
    pub resident: usize,
    /// The most that it ever had.
    pub peak: usize,
}

/// Finds the memory of the server.
pub fn used(call: &Call<'_>) -> Result<Used, Fail> {
    let keys = call.engine.keys.cached();
    let info = call.engine.keys.store().info()?;
    let runs: usize = info.runs.iter().map(|run| run.memory_bytes).sum();
    let counted = keys.1 + info.memtable_bytes + runs + call.engine.client_memory();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = kilobytes(&status, "VmRSS:").unwrap_or(counted);
    let peak = kilobytes(&status, "VmHWM:").unwrap_or(resident).max(counted);
    Ok(Used { counted, keys, memtable: info.memtable_bytes, runs, resident, peak })
}

/// A size that the system tells in kilobytes, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<usize>().ok().map(|size| size * 1024)
}

fn memory(call: &mut Call<'_>, text: &mut String) -> Done {
    let used = used(call)?;
    let system = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let system = kilobytes(&system, "MemTotal:").unwrap_or(0);
    lines!(text,
        used_memory: used.counted,
        used_memory_human: human(used.counted),
        used_memory_rss: used.resident,
        used_memory_rss_human: human(used.resident),
        used_memory_peak: used.peak,
        used_memory_peak_human: human(used.peak),
        used_memory_dataset: used.keys.1 + used.memtable,
        total_system_memory: system,
        total_system_memory_human: human(system),
        maxmemory: 0,
        maxmemory_human: "0B",
        maxmemory_policy: "noeviction",
        used_memory_scripts: call.engine.scripts.memory(),
        number_of_cached_scripts: call.engine.scripts.count(),
        mem_clients_normal: call.engine.client_memory(),
        brooklet_keys_in_memory: used.keys.0,
        brooklet_keys_bytes: used.keys.1,
        brooklet_memtable_bytes: used.memtable,
    );
    Ok(())
}

fn persistence(call: &mut Call<'_>, text: &mut String) -> Done {
    let stopped = call.engine.stopped.is_some();
    let info = call.engine.keys.store().info()?;
    lines!(text,
        loading: 0,
        async_loading: 0,
        rdb_changes_since_last_save: 0,
        rdb_bgsave_in_progress: 0,
        rdb_last_save_time: call.engine.keys.now / 1000,
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
    let rates = stats.rates();
    let (keys, items, prefixes) = call.engine.tracker.counts();
    lines!(text,
        total_connections_received: stats.connections,
        total_commands_processed: stats.commands,
        instantaneous_ops_per_sec: rates.commands,
        total_net_input_bytes: stats.traffic.0,
        total_net_output_bytes: stats.traffic.1,
        instantaneous_input_kbps: format!("{:.2}", rates.input / 1024.0),
        instantaneous_output_kbps: format!("{:.2}", rates.output / 1024.0),
        rejected_connections: stats.rejected,
        expired_keys: stats.expired,
        evicted_keys: 0,
        evicted_clients: stats.evicted_clients,
        keyspace_hits: stats.lookups.hits,
        keyspace_misses: stats.lookups.misses,
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

fn replication(call: &mut Call<'_>, text: &mut String) -> Done {
    let Some(upstream) = &call.engine.upstream else {
        let kept = call.engine.keys.kept_place();
        lines!(text, role: "master", connected_slaves: 0, master_repl_offset: kept);
        return Ok(());
    };
    let lag = upstream.lag();
    let (host, port) = lag.master();
    lines!(text,
        role: "slave",
        master_host: host,
        master_port: port,
        master_link_status: if lag.is_up() { "up" } else { "down" },
        master_last_io_seconds_ago: lag.silence.map_or(-1, |silence| silence.as_secs() as i64),
        master_sync_in_progress: 0,
        slave_read_repl_offset: lag.read,
        slave_repl_offset: lag.shown,
        slave_read_only: 1,
        connected_slaves: 0,
        master_repl_offset: lag.shown,
        brooklet_replica_lag_bytes: lag.bytes(),
        brooklet_replica_age_ms: lag.age.map_or(-1, |age| age.as_millis() as i64),
        brooklet_replica_made_anew: lag.made_anew,
    );
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
    for (spec, calls) in call.engine.stats.calls() {
        let usec = calls.nanos / 1000;
        let each = calls.nanos as f64 / 1000.0 / calls.done.max(1) as f64;
        _ = write!(
            text,
            "cmdstat_{}:calls={},usec={usec},usec_per_call={each:.2},rejected_calls={},failed_calls={}\r\n",
            spec.name, calls.done, calls.rejected, calls.failed
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

/// Of each command the bounds, in microseconds, below which so many of a hundred calls are.
fn latency_stats(call: &mut Call<'_>, text: &mut String) -> Done {
    for (spec, calls) in call.engine.stats.calls() {
        let Some(times) = &calls.times else { continue };
        let [half, most, nearly_all] = [50.0, 99.0, 99.9].map(|part| bound(times, part));
        _ = write!(
            text,
            "latency_percentiles_usec_{}:p50={half:.3},p99={most:.3},p99.9={nearly_all:.3}\r\n",
            spec.name
        );
    }
    Ok(())
}

/// Returns the bound, in microseconds, below which so many of a hundred durations are.
fn bound(times: &Times, percent: f64) -> f64 {
    let wanted = times.iter().sum::<u64>() as f64 * percent / 100.0;
    let mut passed = 0;
    let at = times.iter().position(|count| {
        passed += count;
        passed as f64 >= wanted
    });
    (1024_u64 << at.unwrap_or(0)) as f64 / 1000.0
}

fn cluster(_: &mut Call<'_>, text: &mut String) -> Done {
    lines!(text, cluster_enabled: 0);
    Ok(())
}

/// Databases that were counted before, or are small enough to be counted by the way.
fn keyspace(call: &mut Call<'_>, text: &mut String) -> Done {
    for number in 0..call.engine.settings.databases {
        let database = number.to_string();
        if let Some(keys) = call.engine.keys.count_if_quick(database.as_bytes())?
            && keys > 0
        {
            let expires = call.engine.keys.expiring_of(database.as_bytes());
            _ = write!(text, "db{number}:keys={keys},expires={expires},avg_ttl=0\r\n");
        }
    }
    Ok(())
}
