//! Scripts that mean harm: each ends soon, writes nothing when a limit stops it, leaves nothing
//! behind, and the server has its memory back.

use std::thread;

use brooklet::Store;
use brooklet_server::Config;

use crate::redis::client::{Client, Server};

/// Scripts that a limit stops.
const STOPPED: &[&str] = &[
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "while true do xpcall(function() while true do end end, function() while true do end end) end",
    "while true do local c = coroutine.create(function() while true do end end) coroutine.resume(c) end",
    "while true do pcall(coroutine.wrap(function() while true do end end)) end",
    "local t = {} while true do t[#t+1] = {} end",
    "while true do pcall(function() local t = {} while true do t[#t+1] = {1,2} end end) end",
    "local s = 'x' while true do s = s .. s end",
    "local s = ('x'):rep(2^20) while true do local t = s .. 'y' end",
    "local s = ('x'):rep(2^20) local a, b = s..'a', s..'b' while true do local c = a < b end",
    "local s = ('x'):rep(2^20) while true do local t = s:upper() end",
    "local s = ('1'):rep(2^20) while true do local t = s + 0 end",
    "return ('x'):rep(1e15)",
    "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000000) .. i end",
    "return ('a'):rep(100000):find('.-.-.-.-b')",
    "return ('a'):rep(100000):gsub('.*.*.*b', '')",
    "return (('a'):rep(1000000):gsub('a', ('b'):rep(1000)))",
    "for x in ('a'):rep(1000000):gmatch('.-.-.-b') do end",
    "return ('('):rep(1000000):find('%b()')",
    "local t = {} for i = 1, 100000 do t[i] = -i end while true do table.sort(t) end",
    "table.sort({1,2,3}, function() while true do end end)",
    "local t = {} for i = 1, 400000 do table.insert(t, 1, i) end",
    "while true do loadstring('return 1') end",
    "return load(function() return 'x ' end)",
    "while true do collectgarbage() end",
    "for i = 1, 1e9 do redis.call('get', 'k') end",
    "for i = 1, 1e9 do redis.pcall('nosuch') end",
    "for i = 1, 1e9 do redis.call('set', 'k' .. i, 'v') end",
    "local s = ('x'):rep(1000000) while true do redis.call('rpush', 'big', s) end",
    "redis.call('flushall') while true do end",
    "local s = ('x'):rep(1000000) local t = {} for i = 1, 10000 do t[i] = s end return t",
    "for i = 1, 1e9 do redis.log(3, ('x'):rep(100000)) end",
    "local t = {} for i = 1, 100000 do t[i] = i end while true do cjson.encode(t) end",
    "local s = '[' .. ('1,'):rep(100000) .. '1]' while true do cjson.decode(s) end",
    "local s = ('\\1'):rep(6000) while true do cmsgpack.unpack(s) end",
    "while true do struct.unpack(('b'):rep(1000), ('x'):rep(1000)) end",
    "return setmetatable({}, {__index = function() while true do end end}).x",
    "while true do ('x'):gsub('x', function() error('x') end) end and nil or 1",
    "return redis.call('lrange', 'huge', 0, -1)",
];

/// Scripts that end with an error of their own.
const REFUSED: &[&str] = &[
    "local function f() return 1 + f() end return f()",
    "local function g() coroutine.wrap(g)() end g()",
    "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
    "local function f() return (('x'):gsub('x', f)) end return f()",
    "local t t = setmetatable({}, {__index = function(_, k) return (k:gsub('x', t)) end}) return (('x'):gsub('x', t))",
    "return setmetatable({}, {__index = function(t, k) return t[k] end}).x",
    "return cjson.decode(('['):rep(1000000))",
    "local t = {} t[1] = t return cjson.encode(t)",
    "return cmsgpack.unpack(('\\145'):rep(1000000))",
    "return unpack({}, 1, 1e7)",
    "return struct.pack('c999999999', 'x')",
    "return struct.unpack(('b'):rep(100000), ('x'):rep(100000))",
    "return struct.pack('i99999999999999999999', 1)",
    "return ('a'):rep(1000):find(('a?'):rep(1000))",
    "return ('a'):find(('('):rep(100))",
    "return loadstring('\\27Lua')()",
    "return loadstring('return ' .. ('a or '):rep(40000) .. '1')()",
    "return loadstring(('('):rep(100000))()",
    "return string.dump(function() end)",
    "return os.execute('true')",
    "return io",
    "return require('os')",
    "return debug",
    "return getfenv()",
    "return newproxy(true)",
    "return print",
    "leak = 1",
    "string.leak = 1",
    "getmetatable('').__index.leak = 1",
    "rawset(_G, 'leak', 1)",
    "table.insert(string, 1)",
    "setmetatable(_G, {__index = function() return 1 end})",
    "setmetatable(string, {})",
];

/// Scripts that succeed, and try to leave something behind.
const LEAKS: &[&str] = &[
    "for k, v in pairs(_G) do if type(v) == 'table' then for n in pairs(v) do v = v end end end return 1",
    "local t = {} for k, v in pairs(string) do t[k] = v end t.leak = 1 return 1",
    "pcall(function() _G.leak = 1 end) return 1",
    "setmetatable(KEYS, {__index = function() return 1 end}) KEYS.leak = 1 return 1",
    "math.randomseed(7) return 1",
    "local t = {} t[1] = t return 1",
    "redis.setresp(3) return 1",
    "redis.call('select', 5) return 1",
];

fn server() -> Server {
    let mut config = Config::default();
    config.settings.script_memory = 8 << 20;
    Server::with(Store::in_memory(1).unwrap(), config)
}

fn eval(client: &mut Client, script: &str) -> String {
    client.ask(&["EVAL", script, "0"])
}

#[test]
fn hostile_scripts_end_while_others_are_served() {
    let server = server();
    let mut client = server.client();
    client.say("SET kept 1");
    let elements = [&["RPUSH", "huge"][..], &["0123456789"; 20_000]].concat();
    for n in 1..=30 {
        assert_eq!(client.ask(&elements), format!(":{}", n * 20_000));
    }
    thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let mut other = server.client();
        let served = scope.spawn(move || {
            let mut count = 0;
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                assert_eq!(other.say("GET kept"), "1");
                count += 1;
            }
            count
        });
        for script in STOPPED {
            let reply = eval(&mut client, script);
            let is_stopped =
                reply.starts_with("-ERR the server stopped the script, and nothing was written: ");
            assert!(
                is_stopped || script.ends_with("or 1") && reply.starts_with("-ERR"),
                "{script}: {reply:.200}"
            );
        }
        for script in REFUSED {
            let reply = eval(&mut client, script);
            // Where the machine is busy, the time may be over before the error.
            assert!(reply.starts_with("-ERR"), "{script}: {reply:.200}");
        }
        drop(stop);
        assert!(served.join().unwrap() > STOPPED.len(), "the other client was not served");
    });
    let many = [&["EVAL", "return #ARGV", "0"][..], &["x"; 1_000_000]].concat();
    let reply = client.ask(&many);
    assert!(reply == ":1000000" || reply.contains("the server stopped the script"), "{reply}");
    assert_eq!(client.say("KEYS *"), "[huge kept]", "a script that was stopped has written");
}

#[test]
fn a_run_leaves_nothing_for_the_next_one() {
    let mut config = Config::default();
    config.settings.script_time = 10_000;
    let server = Server::with(Store::in_memory(1).unwrap(), config);
    let mut client = server.client();
    let probe = "local n = 0 for k in pairs(_G) do n = n + 1 end for k in pairs(string) do n = n + 1 end \
                 for k in pairs(redis) do n = n + 1 end \
                 return {n, rawget(_G, 'leak') == nil, #KEYS, rawget(KEYS, 'leak') == nil, ('x').leak == nil}";
    let clean = eval(&mut client, probe);
    for script in LEAKS {
        assert_eq!(eval(&mut client, script), ":1", "{script}");
        assert_eq!(eval(&mut client, probe), clean, "{script}");
    }
    for script in REFUSED {
        eval(&mut client, script);
    }
    assert_eq!(eval(&mut client, probe), clean);
    assert_eq!(eval(&mut client, "return {true, false}"), "[:1 nil]");
}

/// In the old state all clients had to leave, and each that came after them, until the server
/// started anew: loaded scripts stay, and nobody could send `SCRIPT FLUSH`.
#[test]
fn loaded_scripts_keep_no_client_out() {
    let mut config = Config::default();
    config.settings.client_memory = 4 << 20;
    let server = Server::with(Store::in_memory(1).unwrap(), config);
    let mut client = server.client();
    assert_eq!(client.say("PING"), "PONG");
    // The sources of scripts stay, and are more than all clients together may have.
    let digests = (0..20).map_while(|n| {
        let source = format!("return '{}'", format!("{n:08}").repeat(30_000));
        client.send(&crate::redis::client::encode(&["SCRIPT", "LOAD", &source]));
        client.try_reply()
    });
    assert_eq!(digests.count(), 20);
    assert_eq!(server.client().say("SCRIPT FLUSH"), "OK");
}
