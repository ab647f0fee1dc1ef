//! Scripts: replies and errors as Redis 7.0 has them, one commit each, rights, and the cache.

use brooklet::Store;
use brooklet_server::Config;

use crate::redis::client::{Client, Server};

fn server() -> Server {
    // The machine of a test may be busy.
    timed(10_000)
}

/// A server that stops scripts after some milliseconds.
fn timed(script_time: u64) -> Server {
    let mut config = Config::default();
    config.settings.script_time = script_time;
    Server::with(Store::in_memory(1).unwrap(), config)
}

/// Runs a script without keys and arguments.
fn eval(client: &mut Client, script: &str) -> String {
    client.ask(&["EVAL", script, "0"])
}

/// The error of a script without the digest and the place, which a script on one line has.
fn error(client: &mut Client, script: &str) -> String {
    let reply = eval(client, script);
    let (text, place) = reply.rsplit_once(" script: ").unwrap_or_else(|| panic!("{script}: {reply}"));
    assert!(
        place.len() == 40 + ", on @user_script:1.".len() && place.ends_with(", on @user_script:1."),
        "{place}"
    );
    text.to_owned()
}

#[test]
fn values_become_replies() {
    let server = server();
    let mut client = server.client();
    let cases = [
        ("return 3.99", ":3", ":3"),
        ("return -3.99", ":-3", ":-3"),
        ("return 'a'", "a", "a"),
        ("return true", ":1", ":1"),
        ("return false", "nil", "nil"),
        ("return nil", "nil", "nil"),
        ("return {1,2,nil,3}", "[:1 :2]", "[:1 :2]"),
        ("return {true,false,'x',{}}", "[:1 nil x []]", "[:1 nil x []]"),
        ("return {ok='fine'}", "fine", "fine"),
        ("return {err='MY error'}", "-MY error", "-MY error"),
        ("return redis.error_reply('word')", "-ERR word", "-ERR word"),
        ("return redis.error_reply('MY error')", "-MY error", "-MY error"),
        ("return redis.status_reply('fine')", "fine", "fine"),
        ("return {double=3.5}", "3.5", ",3.5"),
        ("return {map={a=1}}", "[a :1]", "{a :1}"),
        ("return {set={a=true}}", "[a]", "[a]"),
        ("return {verbatim_string={format='txt',string='x'}}", "x", "txt:x"),
        ("return {redis.REDIS_VERSION, redis.REDIS_VERSION_NUM}", "[7.0.15 :458767]", "[7.0.15 :458767]"),
        (
            "return redis.sha1hex('')",
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        ),
        ("return redis.call('echo', 0.1)", "0.10000000000000001", "0.10000000000000001"),
        ("return tostring(redis.call('get','none'))", "false", "false"),
        (
            "return redis.call('set','h','v') and redis.pcall('incr','h').err",
            "ERR value is not an integer or out of range",
            "ERR value is not an integer or out of range",
        ),
    ];
    for (script, two, _) in cases {
        assert_eq!(eval(&mut client, script), two, "{script}");
    }
    assert!(client.say("HELLO 3").starts_with('{'));
    for (script, _, three) in cases {
        assert_eq!(eval(&mut client, script), three, "{script}");
    }
    client.say("HSET hash f v");
    assert_eq!(eval(&mut client, "return redis.call('hgetall','hash')"), "[f v]");
    assert_eq!(eval(&mut client, "redis.setresp(3) return redis.call('hgetall','hash')"), "{f v}");
    assert_eq!(eval(&mut client, "redis.setresp(3) return tostring(redis.call('get','none'))"), "nil");
    let both = client.ask(&["EVAL", "return {KEYS,ARGV}", "2", "a", "b", "c", "d"]);
    assert_eq!(both, "[[a b] [c d]]");
}

#[test]
fn settings_of_cjson_count_for_one_run() {
    let server = server();
    let mut client = server.client();
    let sparse = "return cjson.encode({[1]=1,[100]=3})";
    assert!(error(&mut client, sparse).ends_with("Cannot serialise table: excessively sparse array"));
    let converted = eval(&mut client, &format!("cjson.encode_sparse_array(true) {sparse}"));
    assert!(converted.contains("\\\"100\\\":3"), "{converted}");
    assert!(error(&mut client, sparse).ends_with("Cannot serialise table: excessively sparse array"));
    assert_eq!(eval(&mut client, "cjson.encode_number_precision(3) return cjson.encode(1/3)"), "0.333");
    assert_eq!(
        eval(&mut client, "cjson.encode_invalid_numbers('null') return cjson.encode({0/0})"),
        "[null]"
    );
    let refused = error(&mut client, "cjson.decode_invalid_numbers(false) return cjson.decode('0x10')");
    assert!(refused.ends_with("Expected value but found invalid number at character 1"), "{refused}");
    let deep = error(&mut client, "cjson.decode_max_depth(1) return cjson.decode('[[1]]')");
    assert!(deep.ends_with("Found too many nested data structures (2) at character 2"), "{deep}");
}

#[test]
fn errors_have_the_words_of_redis() {
    let server = server();
    let mut client = server.client();
    for (script, expected) in [
        ("return redis.call('nosuch')", "-ERR Unknown Redis command called from script"),
        ("return redis.call('get')", "-ERR Wrong number of args calling Redis command from script"),
        ("return redis.call()", "-ERR Please specify at least one argument for this redis lib call"),
        ("return redis.call('get', {})", "-ERR Lua redis lib command arguments must be strings or integers"),
        ("return redis.call('multi')", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('eval','return 1',0)", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('blpop','l',0)", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('client','id')", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('auth','x')", "-ERR This Redis command is not allowed from script"),
        (
            "return redis.call('xread','block',0,'streams','s','$')",
            "-ERR xread command is not allowed with BLOCK option from scripts",
        ),
        ("return x", "-ERR user_script:1: Script attempted to access nonexistent global variable 'x'"),
        ("x = 1", "-ERR user_script:1: Attempt to modify a readonly table"),
        ("redis.x = 1", "-ERR user_script:1: Attempt to modify a readonly table"),
        ("rawset(redis, 'x', 1)", "-ERR Attempt to modify a readonly table"),
        ("getmetatable(_G).__index = 1", "-ERR user_script:1: Attempt to modify a readonly table"),
        ("getmetatable('').__index = 1", "-ERR user_script:1: Attempt to modify a readonly table"),
        ("error('boom')", "-ERR user_script:1: boom"),
        ("error({err='MY boom'})", "-MY boom"),
        ("error({})", "-ERR unknown error"),
        ("return nil .. 1", "-ERR user_script:1: attempt to concatenate a nil value"),
        ("return redis.log(1)", "-ERR redis.log() requires two arguments or more."),
        ("return redis.setresp(4)", "-ERR RESP version must be 2 or 3."),
        ("return redis.acl_check_cmd('nosuch')", "-ERR Invalid command passed to redis.acl_check_cmd()"),
        (
            "return cjson.decode('[1')",
            "-ERR user_script:1: Expected comma or array end but found T_END at character 3",
        ),
    ] {
        assert_eq!(error(&mut client, script), expected, "{script}");
    }
    for (request, expected) in [
        (&["EVAL", "return 1", "a"][..], "-ERR value is not an integer or out of range"),
        (&["EVAL", "return 1", "-1"], "-ERR Number of keys can\\'t be negative"),
        (&["EVAL", "return 1", "2", "a"], "-ERR Number of keys can\\'t be greater than number of args"),
        (&["EVALSHA", "aa", "0"], "-NOSCRIPT No matching script. Please use EVAL."),
        (
            &["EVAL", "@", "0"],
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '@'",
        ),
        (&["EVAL", "#!lua flags=foo\nreturn 1", "0"], "-ERR Unexpected flag in script shebang: foo"),
        (
            &["EVAL_RO", "#!lua\nreturn 1", "0"],
            "-ERR Can not execute a script with write flag using *_ro command.",
        ),
        (&["SCRIPT", "KILL"], "-NOTBUSY No scripts in execution right now."),
        (&["SCRIPT", "FLUSH", "x"], "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
    ] {
        assert_eq!(client.ask(request), expected.replace("\\'", "'"), "{request:?}");
    }
    let read_only = client.ask(&["EVAL_RO", "return redis.call('set','a',1)", "0"]);
    assert!(
        read_only.starts_with("-ERR Write commands are not allowed from read-only scripts."),
        "{read_only}"
    );
    let flagged = eval(&mut client, "#!lua flags=no-writes\nreturn redis.call('set','a',1)");
    assert!(flagged.ends_with("on @user_script:2."), "{flagged}");
    assert_eq!(client.say("EXISTS a"), ":0");
}

#[test]
fn a_script_is_one_commit_and_an_error_keeps_what_was_written_before() {
    let server = server();
    let (mut client, mut other) = (server.client(), server.client());
    let sum = eval(
        &mut client,
        "local n = 0 for i=1,50 do redis.call('set','k'..i,i) n = n + redis.call('get','k'..i) end return n",
    );
    assert_eq!(sum, ":1275");
    assert_eq!(other.say("GET k50"), "50");
    // As in Redis: scripts of users count on it.
    assert!(
        eval(&mut client, "redis.call('set','kept','1') error('x')").starts_with("-ERR user_script:1: x")
    );
    assert!(
        eval(&mut client, "redis.call('set','kept2','1') return redis.call('incr','nosuch','x')")
            .starts_with("-ERR")
    );
    assert_eq!(other.say("MGET kept kept2"), "[1 1]");
    // Watched keys are touched, and waiting clients are served.
    for request in ["WATCH w", "MULTI", "GET w"] {
        other.say(request);
    }
    assert_eq!(eval(&mut client, "return redis.call('set','w','2')"), "OK");
    assert_eq!(other.say("EXEC"), "nil");
    other.send(b"BLPOP list 0\r\n");
    client.wait_for("blocked_clients:1");
    assert_eq!(eval(&mut client, "redis.call('rpush','list','a') return redis.call('llen','list')"), ":1");
    assert_eq!(other.reply(), "[list a]");
    // The script's database is its own.
    assert_eq!(eval(&mut client, "redis.call('select',3) return redis.call('set','three','3')"), "OK");
    assert_eq!(client.say("EXISTS three"), ":0");
}

#[test]
fn what_a_limit_stops_writes_nothing_also_in_a_transaction() {
    let server = timed(20);
    let mut client = server.client();
    client.say("SET a old");
    let stopped = eval(&mut client, "redis.call('set','a','new') redis.call('del','b') while true do end");
    assert_eq!(
        stopped,
        "-ERR the server stopped the script, and nothing was written: it ran for 20 ms (script-time)"
    );
    assert_eq!(client.say("GET a"), "old");
    for (request, expected) in [("MULTI", "OK"), ("SET before 1", "QUEUED")] {
        assert_eq!(client.say(request), expected);
    }
    assert_eq!(eval(&mut client, "redis.call('set','a','new') while true do end"), "QUEUED");
    assert_eq!(client.say("SET behind 1"), "QUEUED");
    assert!(client.say("EXEC").starts_with("-ERR the server stopped the script"));
    assert_eq!(client.say("MGET a before behind"), "[old nil nil]");
    // All scripts of a transaction share one time.
    client.say("MULTI");
    let short = "local n = 0 for i=1,1e5 do n = n + 1 end return 1";
    for _ in 0..2000 {
        eval(&mut client, short);
    }
    assert!(client.say("EXEC").starts_with("-ERR the server stopped the script"));
    assert_eq!(client.say("CONFIG SET script-time 10000"), "OK");
    // Errors that no limit causes do not end a transaction.
    client.say("MULTI");
    eval(&mut client, "redis.call('set','mid','1') error('x')");
    client.say("GET mid");
    let ended = client.say("EXEC");
    assert!(ended.starts_with("[-ERR user_script:1: x") && ended.ends_with(" 1]"), "{ended}");
    assert_eq!(eval(&mut client, "local n = 0 for i=1,3e5 do n = n + 1 end return n"), ":300000");
}

#[test]
fn scripts_run_with_the_rights_of_their_user() {
    let server = server();
    let mut client = server.client();
    let rules = "ACL SETUSER bob on nopass ~a* +eval +get +set +eval_ro";
    assert_eq!(client.say(rules), "OK");
    let mut bob = server.client();
    assert_eq!(bob.say("AUTH bob x"), "OK");
    for (script, expected) in [
        (
            "return redis.call('lpush','a',1)",
            "-ERR The user executing the script can't run this command or subcommand",
        ),
        (
            "return redis.call('get','b')",
            "-ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
        ),
    ] {
        assert_eq!(error(&mut bob, script), expected);
    }
    assert_eq!(eval(&mut bob, "return redis.acl_check_cmd('get','b')"), "nil");
    assert_eq!(eval(&mut bob, "return redis.acl_check_cmd('get','a1')"), ":1");
    assert_eq!(eval(&mut bob, "redis.call('set','a1','x') return redis.call('get','a1')"), "x");
    let keys = bob.ask(&["EVAL", "return 1", "1", "b"]);
    assert_eq!(keys, "-NOPERM this user has no permissions to access one of the keys used as arguments");
    assert!(bob.ask(&["EVALSHA", "aa", "0"]).starts_with("-NOPERM"));
    assert!(client.say("ACL LOG 1").contains("context toplevel"));
    error(&mut bob, "return redis.call('get','b')");
    assert!(client.say("ACL LOG 1").contains("context lua"));
}

#[test]
fn loaded_scripts_stay_until_they_are_flushed() {
    let server = server();
    let mut client = server.client();
    let digest = client.ask(&["SCRIPT", "LOAD", "return ARGV[1]"]);
    assert_eq!(client.ask(&["EVALSHA", &digest, "0", "x"]), "x");
    assert_eq!(client.ask(&["EVALSHA", &digest.to_uppercase(), "0", "x"]), "x");
    for n in 0..600 {
        assert_eq!(eval(&mut client, &format!("return {n}")), format!(":{n}"));
    }
    let first = client.ask(&["EVAL", "return redis.sha1hex('return 0')", "0"]);
    assert_eq!(client.ask(&["SCRIPT", "EXISTS", &digest, &first, "x"]), "[:1 :0 :0]");
    assert_eq!(client.say("SCRIPT FLUSH"), "OK");
    assert_eq!(client.ask(&["SCRIPT", "EXISTS", &digest]), "[:0]");
    assert!(client.ask(&["EVALSHA", &digest, "0"]).starts_with("-NOSCRIPT"));
    let long = format!("return '{}'", "x".repeat(300 << 10));
    assert!(client.ask(&["SCRIPT", "LOAD", &long]).contains("a script has at most 262144 bytes"));
}
