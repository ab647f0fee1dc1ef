//! What the server reports of itself is counted: INFO, LATENCY, MEMORY, COMMAND, ACL LOG.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use brooklet::Store;
use brooklet_server::Config;

use crate::redis::client::{Client, Server, encode};

fn server() -> Server {
    Server::of(Store::in_memory(1).unwrap())
}

/// The names and values of INFO, and its sections.
fn info(client: &mut Client, sections: &str) -> (BTreeMap<String, String>, Vec<String>) {
    let text = client.say(format!("INFO {sections}").trim());
    let lines: Vec<&str> = text.split("\\r\\n").filter(|line| !line.is_empty()).collect();
    let names = lines.iter().filter_map(|line| line.strip_prefix("# ").map(str::to_owned)).collect();
    let values = lines.iter().filter_map(|line| line.split_once(':'));
    (values.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(), names)
}

/// Sends a request over HTTP, and returns the reply.
fn over_http(server: &Server, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(&server.http).unwrap();
    let rest = format!("host: {}\r\ncontent-length: {}\r\nconnection: close", server.http, body.len());
    stream.write_all(format!("{head}\r\n{rest}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// In the old state the page showed the busiest logs of Redis clients alone.
#[test]
fn the_page_shows_the_busiest_logs_of_http() {
    let config = Config { http: vec!["127.0.0.1:0".parse().unwrap()], ..Config::default() };
    let server = Server::with(Store::in_memory(1).unwrap(), config);
    for (path, headers, body) in [
        ("stream/s", "content-type: text/plain", "x"),
        ("documents/d", "content-type: application/json\r\nif-none-match: *", "{}"),
    ] {
        let made = over_http(&server, &format!("PUT /v1/{path} HTTP/1.1\r\n{headers}"), body);
        assert!(made.starts_with("HTTP/1.1 201 "), "{made}");
    }
    let live = over_http(&server, "GET /api/live HTTP/1.1", "");
    for log in ["streams%2Fs", "documents%2Fd"] {
        assert!(live.contains(log), "{log}: {live}");
    }
}

#[test]
fn info_has_the_sections_that_are_asked_for() {
    let server = server();
    let mut client = server.client();
    let usual = [
        "Server",
        "Clients",
        "Memory",
        "Persistence",
        "Stats",
        "Replication",
        "CPU",
        "Modules",
        "Errorstats",
        "Cluster",
        "Keyspace",
    ];
    assert_eq!(info(&mut client, "").1, usual);
    assert_eq!(info(&mut client, "default").1, usual);
    for all in ["all", "everything", "EVERYTHING server"] {
        let told = info(&mut client, all).1;
        assert_eq!(told.len(), usual.len() + 2, "{told:?}");
    }
    assert_eq!(info(&mut client, "keyspace server SERVER cluster").1, ["Server", "Cluster", "Keyspace"]);
    let with_more = info(&mut client, "default latencystats").1;
    assert_eq!(with_more.len(), usual.len() + 1);
    assert_eq!(info(&mut client, "nonsense").1, [""; 0]);
}

/// Waits until so many keys have expired; returns the number of requests that it took.
fn wait_expired(client: &mut Client, count: &str) -> u64 {
    let mut looks = 1;
    while info(client, "stats").0["expired_keys"] != count {
        assert!(looks < 1_000, "not so many keys have expired");
        looks += 1;
        sleep(Duration::from_millis(100));
    }
    looks
}

#[test]
fn the_values_of_info_are_true() {
    let server = server();
    let mut client = server.client();
    let (told, _) = info(&mut client, "");
    assert_eq!(
        (&*told["redis_mode"], &*told["cluster_enabled"], &*told["role"]),
        ("standalone", "0", "master")
    );
    assert_eq!(told["tcp_port"], server.address.rsplit_once(':').unwrap().1);
    assert_eq!(told["process_id"], std::process::id().to_string());
    let run = &told["run_id"];
    assert!(run.len() == 40 && run.bytes().all(|byte| byte.is_ascii_hexdigit()), "{run}");
    let other = self::server();
    assert_ne!(info(&mut other.client(), "server").0["run_id"], *run);
    let before = |name: &str| told[name].parse::<u64>().unwrap();
    let large = "x".repeat(100_000);
    assert_eq!(client.ask(&["SET", "k", &large]), "OK");
    assert_eq!(client.say("GET k").len(), large.len());
    for request in ["GET none", "MGET k none k", "EXISTS k none", "SET none x", "DEL none", "GETRANGE k 0 1"]
    {
        client.say(request);
    }
    client.say("SET short x EX 1000");
    client.say("SET shorter x PX 1");
    let looks = wait_expired(&mut client, "1");
    let (told, _) = info(&mut client, "");
    let since = |name: &str| told[name].parse::<u64>().unwrap() - before(name);
    assert_eq!((since("keyspace_hits"), since("keyspace_misses")), (5, 3), "writes look for nothing");
    assert_eq!((since("total_commands_processed"), since("expired_keys")), (11 + looks, 1));
    for name in ["met", "passed"] {
        client.say(&format!("SET {name} x PX 1"));
    }
    sleep(Duration::from_millis(5));
    assert_eq!(client.say("EXISTS met"), ":0");
    // Those that a client meets count, too.
    wait_expired(&mut client, "3");
    let net = [since("total_net_input_bytes"), since("total_net_output_bytes")];
    let most = [110_000 + 100 * looks, 320_000 + 2_000 * looks];
    assert!(net[0] > 100_000 && net[0] < most[0] && net[1] > 300_000 && net[1] < most[1], "{net:?}");
    assert_eq!(told["db0"], "keys=2,expires=1,avg_ttl=0");
    client.say("PERSIST short");
    assert_eq!(info(&mut client, "keyspace").0["db0"], "keys=2,expires=0,avg_ttl=0");
}

#[test]
fn operations_in_a_second_are_measured() {
    let server = server();
    let mut client = server.client();
    let many = encode(&["PING"]).repeat(500);
    let mut most = 0;
    for _ in 0..1_000 {
        client.send(&many);
        (0..500).for_each(|_| drop(client.reply()));
        sleep(Duration::from_millis(20));
        most = most.max(info(&mut client, "stats").0["instantaneous_ops_per_sec"].parse::<u64>().unwrap());
        if most > 100 {
            break;
        }
    }
    assert!(most > 100, "{most}");
}

/// Those that run as one commit, in a transaction, and alone.
#[test]
fn commands_are_counted_with_their_times() {
    let server = server();
    let mut client = server.client();
    let set = encode(&["SET", "k", "x"]).repeat(30);
    client.send(&[&set[..], &encode(&["GET", "k"]).repeat(10), &set].concat());
    (0..70).for_each(|_| assert_ne!(client.reply(), "nil"));
    for request in ["MULTI", "SET k x", "GET k", "EXEC", "GET", "LPUSH k x", "CONFIG GET port"] {
        client.say(request);
    }
    let (told, _) = info(&mut client, "commandstats errorstats latencystats");
    let fields = |name: &str| -> BTreeMap<String, f64> {
        let pairs = told[name].split(',').map(|pair| pair.split_once('=').unwrap());
        pairs.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    };
    let (set, get) = (fields("cmdstat_set"), fields("cmdstat_get"));
    assert_eq!((set["calls"], get["calls"], get["rejected_calls"]), (61.0, 11.0, 1.0));
    assert!(set["usec"] > 0.0 && (set["usec"] / 61.0 - set["usec_per_call"]).abs() < 1.0, "{set:?}");
    assert_eq!(fields("cmdstat_lpush")["failed_calls"], 1.0);
    assert_eq!(fields("cmdstat_config|get")["calls"], 1.0);
    assert_eq!(fields("errorstat_WRONGTYPE")["count"], 1.0);
    assert!(fields("latency_percentiles_usec_set")["p99"] >= 1.0);
    let histogram = client.say("LATENCY HISTOGRAM set get nonsense");
    assert!(histogram.starts_with("[get [calls :11 histogram_usec [:"), "{histogram}");
    assert!(histogram.contains(" set [calls :61 ") && histogram.ends_with(":61]]]"), "{histogram}");
    assert!(client.say("LATENCY HISTOGRAM config").starts_with("[config|get [calls :1 "));
    assert_eq!(client.say("CONFIG RESETSTAT"), "OK");
    assert_eq!(client.say("LATENCY HISTOGRAM set"), "[]");
    assert!(info(&mut client, "commandstats").0["cmdstat_config|resetstat"].starts_with("calls=1,"));
}

#[test]
fn long_commands_are_events_where_they_are_watched() {
    let server = server();
    let mut client = server.client();
    let elements = [&["RPUSH", "l"][..], &["element"; 20_000]].concat();
    for n in 1..=10 {
        assert_eq!(client.ask(&elements), format!(":{}", n * 20_000));
    }
    assert_eq!(client.say("LATENCY LATEST"), "[]");
    assert_eq!(client.say("CONFIG SET latency-monitor-threshold 1"), "OK");
    for _ in 0..20 {
        client.say("SORT l ALPHA LIMIT 0 1");
    }
    let latest = client.say("LATENCY LATEST");
    assert!(latest.starts_with("[[command :"), "{latest}");
    assert!(client.say("LATENCY HISTORY command").starts_with("[[:"));
    assert!(client.say("LATENCY DOCTOR").contains("command: "));
    // On a busy machine, any command may be a long one.
    assert_eq!(client.say("CONFIG SET latency-monitor-threshold 0"), "OK");
    assert_eq!(client.say("LATENCY RESET none"), ":0");
    assert_eq!(client.say("LATENCY RESET command"), ":1");
    assert_eq!(client.say("LATENCY HISTORY command"), "[]");
}

#[test]
fn memory_is_told_by_the_names_of_redis() {
    let server = server();
    let mut client = server.client();
    assert_eq!(client.ask(&["SET", "k", &"x".repeat(50_000)]), "OK");
    let stats = client.say("MEMORY STATS");
    let words: Vec<&str> = stats.trim_matches(['[', ']']).split(' ').collect();
    let value = |name: &str| -> i64 {
        let at = words.iter().position(|word| *word == name).unwrap_or_else(|| panic!("{name}: {stats}"));
        words[at + 1].trim_start_matches(':').parse().unwrap()
    };
    assert!(value("keys.count") == 1 && value("dataset.bytes") > 50_000, "{stats}");
    assert!(value("total.allocated") >= value("dataset.bytes") && value("clients.normal") > 0);
    assert!(value("peak.allocated") >= value("allocator.resident"));
    assert!(client.say("MEMORY USAGE k SAMPLES 0").trim_start_matches(':').parse::<u64>().unwrap() > 50_000);
    assert_eq!(client.say("MEMORY USAGE k NONSENSE 1"), "-ERR syntax error");
    assert_eq!(client.say("MEMORY PURGE"), "OK");
    assert!(client.say("MEMORY DOCTOR").contains("(1 keys)"));
    assert_eq!(client.say("MEMORY MALLOC-STATS"), "Stats not supported for the current allocator");
}

#[test]
fn commands_are_listed_by_filters_and_with_their_groups() {
    let server = server();
    let mut client = server.client();
    let count = client.say("COMMAND LIST").split(' ').count();
    assert_eq!(client.say("COMMAND LIST FILTERBY PATTERN *").split(' ').count(), count);
    let sorts = "[sort sort_ro]";
    assert_eq!(client.say("COMMAND LIST FILTERBY PATTERN sor*"), sorts);
    assert_eq!(client.say("COMMAND LIST FILTERBY ACLCAT sortedset"), sorts);
    assert!(client.say("COMMAND LIST FILTERBY ACLCAT admin").contains("client|kill"));
    for nothing in ["ACLCAT nonsense", "MODULE json"] {
        assert_eq!(client.say(&format!("COMMAND LIST FILTERBY {nothing}")), "[]");
    }
    assert_eq!(client.say("COMMAND LIST FILTERBY NONSENSE x"), "-ERR syntax error");
    assert_eq!(client.say("COMMAND DOCS sort none"), "[sort [summary  group generic]]");
    let module = "[module [summary  group server subcommands [module|list [summary  group server]";
    assert!(client.say("COMMAND DOCS module").starts_with(module));
}

#[test]
fn the_log_of_refusals_has_the_length_that_is_set() {
    let server = server();
    let mut client = server.client();
    assert_eq!(client.say("CONFIG GET acllog-max-len"), "[acllog-max-len 128]");
    assert_eq!(client.say("CONFIG SET acllog-max-len 3"), "OK");
    let refused = "-WRONGPASS invalid username-password pair or user is disabled.";
    for n in 0..9 {
        assert_eq!(client.say(&format!("AUTH user{n} x")), refused);
    }
    let log = client.say("ACL LOG");
    assert_eq!(log.matches("username user").count(), 3, "{log}");
    assert!(client.say("CONFIG SET acllog-max-len 10001").starts_with("-ERR CONFIG SET failed"));
}
