//! Who may come in, and do what.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use brooklet::Store;
use brooklet_server::{Config, Error};

use crate::redis::client::{Client, Server, encode};

fn store() -> Store {
    Store::in_memory(1).unwrap()
}

fn guarded(users: &[(&str, &str)]) -> Server {
    let users = users.iter().map(|(name, rules)| ((*name).into(), (*rules).into())).collect();
    Server::with(store(), Config { password: Some("secret".into()), users, ..Config::default() })
}

#[test]
fn nothing_is_done_for_those_who_do_not_say_who_they_are() {
    let server = guarded(&[]);
    let mut client = server.client();
    for request in ["GET a", "RPUSH l x", "MULTI", "CONFIG GET *", "CLIENT LIST", "ACL WHOAMI", "INFO"] {
        assert_eq!(client.say(request), "-NOAUTH Authentication required.", "{request}");
    }
    assert!(client.say("AUTH wrong").starts_with("-WRONGPASS "));
    assert_eq!(client.say("GET a"), "-NOAUTH Authentication required.");
    assert_eq!(client.say("AUTH secret"), "OK");
    assert_eq!(client.say("GET a"), "nil");
    let mut client = server.client();
    assert!(client.say("HELLO 3").starts_with("-NOAUTH "));
    assert!(client.say("HELLO 3 AUTH default secret").starts_with('{'));
}

#[test]
fn an_empty_password_is_no_password() {
    let server = Server::with(store(), Config { password: Some(String::new()), ..Config::default() });
    let mut client = server.client();
    assert_eq!(client.say("ACL WHOAMI"), "default");
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for rule in [">", &format!("#{empty}")] {
        let refused = client.ask(&["ACL", "SETUSER", "ada", "on", rule]);
        assert!(refused.contains("An empty password is no password"), "{refused}");
    }
    assert_eq!(client.say("ACL GETUSER ada"), "nil");
}

#[test]
fn strangers_cannot_make_the_server_keep_much() {
    let server = guarded(&[]);
    for (bytes, error) in [
        (&b"*11\r\n"[..], "-ERR Protocol error: unauthenticated multibulk length"),
        (b"*2\r\n$3\r\nGET\r\n$20000\r\n", "-ERR Protocol error: unauthenticated bulk length"),
    ] {
        let mut client = server.client();
        client.send(bytes);
        assert_eq!(client.reply(), error);
        assert!(client.is_over());
    }
    // Right behind the password, in the same packet, it is no stranger any more.
    let mut client = server.client();
    let large = "x".repeat(20_000);
    let many: Vec<String> = (0..30).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let requests = [
        encode(&["AUTH", "secret"]),
        encode(&["SET", "a", &large]),
        encode(&[&["RPUSH", "l"], &many[..]].concat()),
    ];
    client.send(&requests.concat());
    assert_eq!([client.reply(), client.reply(), client.reply()], ["OK", "OK", ":30"]);
}

#[test]
fn users_may_what_their_rules_say() {
    let server = guarded(&[
        ("worker", "on >w ~jobs:* ~STREAMS %R~public:* +@list +@stream +multi +exec +get -lrem"),
        ("gone", "off >g ~* +@all"),
    ]);
    let mut admin = server.client();
    admin.say("AUTH secret");
    for request in [
        "RPUSH private x",
        "SET public:a 1",
        "XADD private-stream 1-1 f v",
        "XGROUP CREATE private-stream STREAMS 0",
    ] {
        assert!(!admin.say(request).starts_with('-'), "{request}");
    }
    let mut worker = server.client();
    assert!(worker.say("AUTH gone g").starts_with("-WRONGPASS "));
    assert!(worker.say("AUTH nobody x").starts_with("-WRONGPASS "));
    assert_eq!(worker.say("AUTH worker w"), "OK");
    assert_eq!(worker.say("RPUSH jobs:1 x"), ":1");
    assert_eq!(worker.say("GET public:a"), "1");
    for request in [
        "RPUSH private y",
        "RPUSH public:l y",
        "LMOVE jobs:1 private LEFT LEFT",
        "LMOVE private jobs:1 LEFT LEFT",
        "BLPOP jobs:none private 0",
        "LMPOP 2 jobs:none private LEFT",
        "XREAD STREAMS private-stream 0",
        // Not the first word of that name says where the keys are.
        "XREADGROUP GROUP STREAMS jobs:x STREAMS private-stream >",
        "XADD private-stream * f v",
    ] {
        let refused = "-NOPERM this user has no permissions to access one of the keys used as arguments";
        assert_eq!(worker.say(request), refused, "{request}");
    }
    for request in ["LREM jobs:1 0 x", "SET jobs:2 x", "CONFIG GET *", "FLUSHALL", "KEYS *"] {
        assert!(worker.say(request).starts_with("-NOPERM this user has no permissions to run"), "{request}");
    }
    // What is refused breaks the transaction that it was to be part of.
    assert_eq!(worker.say("MULTI"), "OK");
    assert_eq!(worker.say("RPUSH jobs:1 y"), "QUEUED");
    assert!(worker.say("RPUSH private y").starts_with("-NOPERM "));
    assert!(worker.say("EXEC").starts_with("-EXECABORT "));
    assert_eq!(worker.say("LLEN jobs:1"), ":1");
    assert_eq!(admin.say("LRANGE private 0 -1"), "[x]");
    // Rights that are taken away are gone at once.
    assert_eq!(admin.say("ACL SETUSER worker off"), "OK");
    assert!(worker.is_over());
}

#[test]
fn without_a_password_nobody_comes_in_from_elsewhere() {
    let config = Config { redis: vec!["0.0.0.0:0".parse().unwrap()], ..Config::default() };
    let refused = Server::at(store(), config.clone()).err().expect("it is open to all");
    assert!(matches!(&refused, Error::Config(why) if why.contains("no password is set")), "{refused}");
    let server = Server::at(store(), Config { password: Some("secret".into()), ..config }).unwrap();
    let port = server.address.rsplit(':').next().unwrap();
    assert_eq!(Client::at(&format!("127.0.0.1:{port}")).say("AUTH secret"), "OK");
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_unix_socket_is_made_and_goes_with_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let at =
        || Config { redis: vec![format!("unix:{}", path.display()).parse().unwrap()], ..Config::default() };
    for _ in 0..2 {
        let server = Server::at(store(), at()).unwrap();
        assert_eq!(mode(&path), 0o600);
        let mut client = Client::over(UnixStream::connect(&path).unwrap());
        assert_eq!(client.say("RPUSH l x"), ":1");
        // It is in use.
        assert!(matches!(Server::at(store(), at()), Err(Error::Listen { .. })));
        server.stop().unwrap();
        assert!(!path.exists());
        // What a killed one left behind is no obstacle.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    }
    let server = Server::at(store(), at()).unwrap();
    assert_eq!(Client::over(UnixStream::connect(&path).unwrap()).say("PING"), "PONG");
    drop(server);
    let server = Server::at(store(), Config { unix_socket_mode: 0o660, ..at() }).unwrap();
    assert_eq!(mode(&path), 0o660);
    drop(server);
    // Anything else that is there stays.
    std::fs::write(&path, "mine").unwrap();
    assert!(matches!(Server::at(store(), at()), Err(Error::Listen { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}

#[test]
fn what_was_queued_is_checked_again() {
    let server = guarded(&[("worker", "on >w ~k* %R~r* +get +set +rpush +blpop +multi +exec +config|get")]);
    let (mut admin, mut worker) = (server.client(), server.client());
    admin.say("AUTH secret");
    worker.say("AUTH worker w");
    let begins = "-NOPERM ACLs rules changed between the moment the transaction was accumulated";
    for (change, reason) in [
        ("-set", "no permission to execute the command or subcommand"),
        ("resetkeys", "no permission to touch the specified keys"),
    ] {
        assert_eq!(worker.say("MULTI"), "OK");
        assert_eq!([worker.say("SET k1 mine"), worker.say("CONFIG GET databases")], ["QUEUED"; 2]);
        assert_eq!(admin.ask(&["ACL", "SETUSER", "worker", change]), "OK");
        let done = worker.say("EXEC");
        assert!(done.starts_with(&format!("[{begins}")) && done.contains(reason), "{done}");
        assert!(done.contains("databases"), "the rest is done: {done}");
        assert_eq!(admin.say("EXISTS k1"), ":0");
        assert_eq!(admin.say("ACL SETUSER worker resetkeys ~k* +set"), "OK");
    }
    // So is the request of a client that waits.
    worker.send(&encode(&["BLPOP", "k", "0"]));
    admin.wait_for("blocked_clients:1");
    assert_eq!(admin.say("ACL SETUSER worker -blpop"), "OK");
    assert_eq!(admin.say("RPUSH k x"), ":1");
    assert_eq!(worker.reply(), "-NOPERM this user has no permissions to run the 'blpop' command");
    assert_eq!(admin.say("LRANGE k 0 -1"), "[x]");
}

#[test]
fn refusals_are_listed() {
    let server = guarded(&[("worker", "on >w ~k* +get +multi +exec")]);
    let (mut admin, mut worker) = (server.client(), server.client());
    worker.say("AUTH worker wrong");
    worker.say("AUTH worker w");
    for request in ["GET x", "GET x", "CONFIG GET *", "MULTI", "GET x", "EXEC"] {
        worker.say(request);
    }
    admin.say("AUTH secret");
    let listed = admin.say("ACL LOG");
    for (entry, count, reason, context, object) in [
        (0, 1, "key", "multi", "x"),
        (1, 1, "command", "toplevel", "config|get"),
        (2, 2, "key", "toplevel", "x"),
        (3, 1, "auth", "toplevel", "AUTH"),
    ] {
        let told = listed.split("[count ").nth(entry + 1).unwrap();
        let begin = format!(
            ":{count} reason {reason} context {context} object {object} username worker age-seconds "
        );
        assert!(told.starts_with(&begin) && told.contains(" client-info id="), "{begin}: {listed}");
    }
    assert_eq!(listed.matches("[count").count(), 4);
    assert_eq!(admin.say("ACL LOG 1").matches("[count").count(), 1);
    assert_eq!([admin.say("ACL LOG RESET"), admin.say("ACL LOG")], ["OK", "[]"]);
}
