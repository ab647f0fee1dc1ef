//! The settings that `CONFIG SET` changes and `CONFIG GET` returns, while the server runs.

use std::fmt;
use std::sync::Arc;

use super::events::Events;
use super::glob::matches_within;

/// Settings of the Redis frontend.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Most clients connected at once.
    pub max_clients: usize,
    /// Longest argument, in bytes.
    pub max_bulk: usize,
    /// Most bytes of all arguments of a request, or of the commands of a transaction.
    pub max_request: usize,
    /// Seconds after which an idle client is disconnected; 0: never.
    pub timeout: u64,
    /// Seconds after which a client that has not logged in is disconnected; 0: never.
    pub auth_timeout: u64,
    /// Bytes of memory for all clients: requests that are not run yet, queued commands, and
    /// replies that are not sent yet.
    pub client_memory: usize,
    /// Bytes of pending replies at which a client is disconnected immediately.
    pub hard_output: usize,
    /// Bytes of pending replies at which a client is disconnected after some time.
    pub soft_output: usize,
    /// Length of that time, in seconds.
    pub soft_output_seconds: u64,
    /// Longest time of a script, in milliseconds; 0: no limit.
    pub script_time: u64,
    /// Most memory of a script, in bytes.
    pub script_memory: usize,
    /// Most keys of the table of keys that clients have read and keep copies of.
    pub tracking_keys: usize,
    /// Most refusals that `ACL LOG` keeps.
    pub acl_log: usize,
    /// Milliseconds of a command from which on `LATENCY` reports it; 0: never.
    pub latency_threshold: u64,
    /// Classes of keyspace notifications that are published.
    pub events: Events,
    /// Number of databases with a number.
    pub databases: u64,
    /// Spaces that another server has: clients are refused to select one.
    pub elsewhere: Option<Elsewhere>,
    /// Settings of Redis for values in memory: accepted and returned, without effect here.
    without_effect: Vec<(&'static str, String)>,
}

/// Who knows which spaces another server has.
#[derive(Clone)]
pub struct Elsewhere(Arc<Find>);

type Find = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Elsewhere {
    /// `find` returns where a space is, in words, if another server has it. It must be fast: all
    /// clients wait for it.
    pub fn new(find: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    pub(crate) fn find(&self, space: &str) -> Option<String> {
        (self.0)(space)
    }
}

impl fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Elsewhere")
    }
}

/// Largest number of refusals that may be kept: each has up to a kilobyte.
const MOST_REFUSALS: u64 = 10_000;

/// Least bytes of a request, and of an argument. With so many, a client can send a request that
/// changes the setting again.
const LEAST_REQUEST: u64 = 1000;
/// Least bytes of memory for all clients. With so many, a client can stay and change the setting
/// again, also beside many scripts.
const LEAST_MEMORY: u64 = 1 << 20;

/// Settings that clients of Redis change, without effect here: those of memory, of files, of work
/// in the background and of the log. No setting is among them that would change who may do what, or
/// where data is.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("activedefrag", "no"),
    ("active-expire-effort", "1"),
    ("activerehashing", "yes"),
    ("aof-rewrite-incremental-fsync", "yes"),
    ("aof-use-rdb-preamble", "yes"),
    ("appendfsync", "always"),
    ("appendonly", "yes"),
    ("auto-aof-rewrite-min-size", "67108864"),
    ("auto-aof-rewrite-percentage", "0"),
    ("busy-reply-threshold", "5000"),
    ("dynamic-hz", "yes"),
    ("hash-max-listpack-entries", "512"),
    ("hash-max-listpack-value", "64"),
    ("hash-max-ziplist-entries", "512"),
    ("hash-max-ziplist-value", "64"),
    ("hll-sparse-max-bytes", "3000"),
    ("hz", "10"),
    ("jemalloc-bg-thread", "yes"),
    ("latency-tracking", "yes"),
    ("lazyfree-lazy-eviction", "no"),
    ("lazyfree-lazy-expire", "no"),
    ("lazyfree-lazy-server-del", "no"),
    ("lazyfree-lazy-user-del", "no"),
    ("lazyfree-lazy-user-flush", "no"),
    ("lfu-decay-time", "1"),
    ("lfu-log-factor", "10"),
    ("list-compress-depth", "0"),
    ("list-max-listpack-size", "-2"),
    ("list-max-ziplist-size", "-2"),
    ("loglevel", "notice"),
    ("lua-time-limit", "5000"),
    ("maxmemory", "0"),
    ("maxmemory-eviction-tenacity", "10"),
    ("maxmemory-policy", "noeviction"),
    ("maxmemory-samples", "5"),
    ("min-replicas-to-write", "0"),
    ("min-slaves-to-write", "0"),
    ("no-appendfsync-on-rewrite", "no"),
    ("rdb-save-incremental-fsync", "yes"),
    ("rdbcompression", "yes"),
    ("save", ""),
    ("set-max-intset-entries", "512"),
    ("slowlog-log-slower-than", "-1"),
    ("slowlog-max-len", "0"),
    ("stop-writes-on-bgsave-error", "yes"),
    ("stream-node-max-bytes", "4096"),
    ("stream-node-max-entries", "100"),
    ("tcp-keepalive", "300"),
    ("zset-max-listpack-entries", "128"),
    ("zset-max-listpack-value", "64"),
    ("zset-max-ziplist-entries", "128"),
    ("zset-max-ziplist-value", "64"),
];

/// The words of those that have one of several, as Redis lists them.
const WORDS: &[(&str, &[&str])] = &[
    ("appendfsync", &["everysec", "always", "no"]),
    ("loglevel", &["debug", "verbose", "notice", "warning", "nothing"]),
    (
        "maxmemory-policy",
        &[
            "volatile-lru",
            "volatile-lfu",
            "volatile-random",
            "volatile-ttl",
            "allkeys-lru",
            "allkeys-lfu",
            "allkeys-random",
            "noeviction",
        ],
    ),
];

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_clients: 10_000,
            max_bulk: 16 << 20,
            max_request: 64 << 20,
            timeout: 0,
            auth_timeout: 10,
            client_memory: 512 << 20,
            hard_output: 256 << 20,
            soft_output: 64 << 20,
            soft_output_seconds: 60,
            script_time: 50,
            script_memory: 16 << 20,
            tracking_keys: 1_000_000,
            acl_log: 128,
            latency_threshold: 0,
            events: Events::NONE,
            databases: 16,
            elsewhere: None,
            without_effect: WITHOUT_EFFECT.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        }
    }
}

impl Settings {
    /// Returns the number of entries of a stream that an approximate trim removes together.
    pub fn stream_portion(&self) -> u64 {
        let kept = self.without_effect.iter().find(|(name, _)| *name == "stream-node-max-entries");
        kept.and_then(|(_, value)| value.parse().ok()).filter(|n| *n > 0).unwrap_or(100)
    }

    /// Returns all settings whose name matches a pattern, with their values. `None` if the
    /// comparisons take more than `steps`.
    pub fn get(&self, pattern: &[u8], steps: &mut usize) -> Option<Vec<(&'static str, String)>> {
        let (hard, soft) = (told(self.hard_output), told(self.soft_output));
        let output = format!("normal {hard} {soft} {}", self.soft_output_seconds);
        let mut all = vec![
            ("client-output-buffer-limit", output),
            ("databases", self.databases.to_string()),
            ("maxclients", self.max_clients.to_string()),
            ("proto-max-bulk-len", self.max_bulk.to_string()),
            ("client-query-buffer-limit", self.max_request.to_string()),
            ("timeout", self.timeout.to_string()),
            ("auth-timeout", self.auth_timeout.to_string()),
            ("script-time", self.script_time.to_string()),
            ("script-memory", self.script_memory.to_string()),
            ("maxmemory-clients", told(self.client_memory)),
            ("tracking-table-max-keys", told(self.tracking_keys)),
            ("acllog-max-len", self.acl_log.to_string()),
            ("latency-monitor-threshold", self.latency_threshold.to_string()),
            ("notify-keyspace-events", self.events.to_string()),
        ];
        all.extend(self.without_effect.iter().cloned());
        let mut wanted = Vec::new();
        for setting in all {
            if matches_within(pattern, setting.0.as_bytes(), steps)? {
                wanted.push(setting);
            }
        }
        wanted.sort();
        Some(wanted)
    }

    /// Changes a setting; returns the reason if that is impossible.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let name = name.to_ascii_lowercase();
        let wrong = |why: &str| format!("CONFIG SET failed (possibly related to argument '{name}') - {why}");
        let number = || bytes(value).ok_or_else(|| wrong("argument must be a memory value or a number"));
        let at_least = |least: u64| -> Result<usize, String> {
            match number()? {
                n if n < least => Err(wrong(&format!("argument must be {least} or more"))),
                n => Ok(n as usize),
            }
        };
        match name.as_str() {
            "maxclients" => self.max_clients = at_least(1)?,
            "proto-max-bulk-len" => self.max_bulk = at_least(LEAST_REQUEST)?,
            "client-query-buffer-limit" => self.max_request = at_least(LEAST_REQUEST)?,
            "timeout" => self.timeout = number()?,
            "auth-timeout" => self.auth_timeout = number()?,
            "script-time" => self.script_time = number()?,
            "script-memory" => self.script_memory = number()? as usize,
            "acllog-max-len" => {
                let most = number().ok().filter(|n| *n <= MOST_REFUSALS);
                self.acl_log =
                    most.ok_or_else(|| wrong("argument must be between 0 and 10000 inclusive"))? as usize;
            }
            "latency-monitor-threshold" => self.latency_threshold = number()?,
            "maxmemory-clients" => {
                let has_limit = number()? > 0;
                self.client_memory = if has_limit { at_least(LEAST_MEMORY)? } else { usize::MAX };
            }
            "tracking-table-max-keys" => self.tracking_keys = limit(number()?),
            "client-output-buffer-limit" => self.set_output(value).ok_or_else(|| {
                wrong(
                    "Wrong number of arguments in buffer limit configuration: class, hard, soft and seconds",
                )
            })?,
            "databases" => return Err(wrong("can't set immutable config")),
            "notify-keyspace-events" => {
                let events = Events::parse(value);
                self.events =
                    events.ok_or_else(|| wrong("Invalid event class character. Use 'Ag$lshzxeKEtmdn'."))?;
            }
            _ => {
                let known = self.without_effect.iter_mut().find(|(known, _)| *known == name);
                let (known, kept) = known.ok_or_else(|| {
                    format!("Unknown option or number of arguments for CONFIG SET - '{name}'")
                })?;
                *kept = without_effect(known, value).map_err(|why| wrong(&why))?;
            }
        }
        Ok(())
    }

    fn set_output(&mut self, value: &str) -> Option<()> {
        let words: Vec<&str> = value.split_whitespace().collect();
        for class in words.chunks(4) {
            let [class, hard, soft, seconds] = class else { return None };
            let (hard, soft, seconds) = (bytes(hard)?, bytes(soft)?, seconds.parse().ok()?);
            if *class == "normal" {
                (self.hard_output, self.soft_output) = (limit(hard), limit(soft));
                self.soft_output_seconds = seconds;
            }
        }
        Some(())
    }
}

/// Returns the value of a setting without effect as `CONFIG GET` shows it, or the reason why Redis
/// refuses the value.
fn without_effect(name: &str, value: &str) -> Result<String, String> {
    let default = WITHOUT_EFFECT.iter().find(|(known, _)| *known == name).map_or("", |(_, default)| *default);
    if default.parse::<i64>().is_ok() {
        let (sign, size) = value.strip_prefix('-').map_or(("", value), |size| ("-", size));
        let number = bytes(size).ok_or("argument must be a memory value or a number")?;
        return Ok(format!("{sign}{number}"));
    }
    if name == "save" {
        return if is_save(value) { Ok(value.into()) } else { Err("Invalid save parameters".into()) };
    }
    let word = value.to_ascii_lowercase();
    match WORDS.iter().find(|(known, _)| *known == name) {
        Some((_, words)) if !words.contains(&&word[..]) => {
            Err(format!("argument(s) must be one of the following: {}", words.join(", ")))
        }
        None if word != "yes" && word != "no" => Err("argument must be 'yes' or 'no'".into()),
        _ => Ok(word),
    }
}

/// Returns whether a text is numbers of seconds, each with a number of changes.
fn is_save(text: &str) -> bool {
    let numbers: Option<Vec<u32>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    numbers
        .is_some_and(|all| all.len().is_multiple_of(2) && all.iter().step_by(2).all(|seconds| *seconds > 0))
}

/// Returns a limit of bytes, of which 0 is none.
fn limit(n: u64) -> usize {
    if n == 0 { usize::MAX } else { n as usize }
}

/// Returns such a limit as `CONFIG GET` does.
fn told(limit: usize) -> String {
    if limit == usize::MAX { "0".into() } else { limit.to_string() }
}

/// Parses a number with an optional unit, for example of kilobytes, as Redis does.
fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let units = [
        ("kb", 1 << 10),
        ("mb", 1 << 20),
        ("gb", 1 << 30),
        ("k", 1000),
        ("m", 1_000_000),
        ("g", 1_000_000_000),
        ("b", 1),
        ("", 1),
    ];
    units.iter().find_map(|(unit, times)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_told_and_what_is_wrong_is_not_set() {
        let (mut settings, mut steps) = (Settings::default(), 10_000);
        settings.set("TimeOut", "7").unwrap();
        settings.set("client-output-buffer-limit", "normal 2mb 1mb 5 pubsub 0 0 0").unwrap();
        assert_eq!(settings.get(b"timeou?", &mut steps).unwrap(), [("timeout", "7".to_owned())]);
        assert_eq!(
            (settings.hard_output, settings.soft_output, settings.soft_output_seconds),
            (2 << 20, 1 << 20, 5)
        );
        assert_eq!(settings.get(b"*", &mut { 10 }), None, "it takes too long");
        settings.set("list-max-listpack-size", "4").unwrap();
        assert_eq!(
            settings.get(b"list-max-l*", &mut steps).unwrap(),
            [("list-max-listpack-size", "4".to_owned())]
        );
        for (name, value) in [
            ("timeout", "x"),
            ("nonsense", "1"),
            ("databases", "3"),
            ("notify-keyspace-events", "Ky"),
            ("client-output-buffer-limit", "normal 1"),
        ] {
            assert!(settings.set(name, value).is_err(), "{name}");
        }
        // With these, no client could come in, or send another request, until the next start.
        for name in ["maxclients", "proto-max-bulk-len", "client-query-buffer-limit"] {
            assert!(settings.set(name, "0").is_err(), "{name}");
        }
        assert_eq!(settings.max_clients, Settings::default().max_clients);
        // Each client would have to leave.
        assert!(settings.set("maxmemory-clients", "100kb").is_err());
        for (value, bytes) in [("1mb", 1 << 20), ("0", usize::MAX)] {
            settings.set("maxmemory-clients", value).unwrap();
            assert_eq!(settings.client_memory, bytes);
        }
    }

    /// As in Redis, no limit is 0, and a size is a number of bytes.
    #[test]
    fn limits_are_told_in_the_numbers_of_redis() {
        let mut settings = Settings::default();
        for (name, value, told) in [
            ("client-output-buffer-limit", "normal 0 0 0", "normal 0 0 0"),
            ("maxmemory-clients", "0", "0"),
            ("tracking-table-max-keys", "0", "0"),
            ("maxmemory", "10mb", "10485760"),
            ("list-max-listpack-size", "-2", "-2"),
            ("maxmemory-policy", "allkeys-lru", "allkeys-lru"),
            ("save", "3600 1", "3600 1"),
        ] {
            settings.set(name, value).unwrap();
            let all = settings.get(name.as_bytes(), &mut { 10_000 }).unwrap();
            assert_eq!(all, [(name, told.to_owned())]);
        }
    }

    /// In an earlier state such a number made any text valid afterwards.
    #[test]
    fn a_size_over_all_numbers_with_a_sign_leaves_a_size() {
        let mut settings = Settings::default();
        settings.set("maxmemory", "18446744073709551615").unwrap();
        assert!(settings.set("maxmemory", "nonsense").is_err());
        settings.set("maxmemory", "1gb").unwrap();
        assert_eq!(
            settings.get(b"maxmemory", &mut { 10_000 }).unwrap(),
            [("maxmemory", "1073741824".to_owned())]
        );
    }

    /// In an earlier state these were unknown, and programs that set up a server ended.
    #[test]
    fn settings_of_redis_without_effect_are_taken() {
        let mut settings = Settings::default();
        for (name, value) in [
            ("activedefrag", "yes"),
            ("hz", "100"),
            ("dynamic-hz", "no"),
            ("latency-tracking", "no"),
            ("lazyfree-lazy-user-del", "yes"),
            ("loglevel", "debug"),
            ("maxmemory-samples", "10"),
            ("no-appendfsync-on-rewrite", "yes"),
            ("stop-writes-on-bgsave-error", "no"),
            ("tcp-keepalive", "60"),
            ("zset-max-listpack-value", "32"),
        ] {
            settings.set(name, value).unwrap();
            let all = settings.get(name.as_bytes(), &mut { 10_000 }).unwrap();
            assert_eq!(all, [(name, value.to_owned())]);
        }
        assert!(settings.set("hz", "often").is_err());
        // They would promise what the server does not do.
        for name in ["requirepass", "replica-read-only", "dir", "protected-mode", "io-threads"] {
            assert!(settings.set(name, "1").is_err(), "{name}");
        }
    }

    /// In the old state any text was taken, as a switch or as one of several words.
    #[test]
    fn words_that_redis_does_not_know_are_refused() {
        let mut settings = Settings::default();
        for (name, value, taken) in [
            ("appendonly", "maybe", None),
            ("appendonly", "1", None),
            ("appendonly", "", None),
            ("appendonly", "No", Some("no")),
            ("activedefrag", "YES", Some("yes")),
            ("appendfsync", "often", None),
            ("appendfsync", "EverySec", Some("everysec")),
            ("loglevel", "info", None),
            ("loglevel", "nothing", Some("nothing")),
            ("maxmemory-policy", "lru", None),
            ("maxmemory-policy", "volatile-ttl", Some("volatile-ttl")),
            ("save", "3600", None),
            ("save", "0 1", None),
            ("save", "often 1", None),
            ("save", "3600 1 300 100", Some("3600 1 300 100")),
            ("save", "", Some("")),
        ] {
            let before = settings.get(name.as_bytes(), &mut { 10_000 }).unwrap();
            assert_eq!(settings.set(name, value).is_ok(), taken.is_some(), "{name} {value}");
            let after = settings.get(name.as_bytes(), &mut { 10_000 }).unwrap();
            match taken {
                Some(taken) => assert_eq!(after, [(name, taken.to_owned())]),
                None => assert_eq!(after, before),
            }
        }
        let error = settings.set("appendfsync", "often").unwrap_err();
        assert!(error.ends_with("argument(s) must be one of the following: everysec, always, no"), "{error}");
        let error = settings.set("appendonly", "maybe").unwrap_err();
        assert!(error.ends_with("argument must be 'yes' or 'no'"), "{error}");
        // All words that are the default are taken.
        for (name, value) in WITHOUT_EFFECT {
            settings.set(name, value).unwrap();
        }
    }
}
