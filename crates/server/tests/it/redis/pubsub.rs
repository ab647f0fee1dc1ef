//! Publish and subscribe, in the words of a real Redis 7.

use brooklet::Store;
use brooklet_server::Config;

use crate::redis::client::{Client, Server, encode};

fn server() -> Server {
    Server::of(Store::in_memory(1).unwrap())
}

/// Sends a request, and returns the replies that follow.
fn says(client: &mut Client, request: &str, replies: usize) -> Vec<String> {
    client.send(&encode(&request.split(' ').collect::<Vec<_>>()));
    (0..replies).map(|_| client.reply()).collect()
}

#[test]
fn a_client_of_resp2_that_subscribes_may_do_nothing_else() {
    let server = server();
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(client.say("UNSUBSCRIBE"), "[unsubscribe nil :0]");
    assert_eq!(client.say("PUNSUBSCRIBE"), "[punsubscribe nil :0]");
    let all = ["[subscribe a :1]", "[subscribe b :2]", "[subscribe a :2]"];
    assert_eq!(says(&mut client, "SUBSCRIBE a b a", 3), all);
    assert_eq!(client.say("PSUBSCRIBE x*"), "[psubscribe x* :3]");
    assert_eq!(client.say("SSUBSCRIBE s"), "[ssubscribe s :1]");
    assert_eq!([client.say("PING"), client.say("PING hi")], ["[pong ]", "[pong hi]"]);
    for (request, name) in [("GET a", "get"), ("CLIENT INFO", "client|info"), ("MULTI", "multi")] {
        let error = format!(
            "-ERR Can\\'t execute \\'{name}\\': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
        );
        assert_eq!(client.say(request).replace('\'', "\\'"), error);
    }
    let list = other.say("CLIENT LIST TYPE PUBSUB");
    assert!(list.contains(" flags=P ") && list.contains(" sub=2 psub=1 ssub=1 "), "{list}");
    assert!(!other.say("CLIENT LIST TYPE NORMAL").contains(" psub=1 "));
    assert_eq!(other.say("PUBLISH a 1"), ":1");
    assert_eq!(other.say("PUBLISH xy 2"), ":1");
    assert_eq!(
        [other.say("SPUBLISH s 3"), other.say("SPUBLISH a 4"), other.say("PUBLISH s 5")],
        [":1", ":0", ":0"]
    );
    let told = [client.reply(), client.reply(), client.reply()];
    assert_eq!(told, ["[message a 1]", "[pmessage x* xy 2]", "[smessage s 3]"]);
    assert_eq!(other.say("PUBSUB NUMSUB a x"), "[a :1 x :0]");
    assert_eq!(other.say("PUBSUB CHANNELS a*"), "[a]");
    assert_eq!([other.say("PUBSUB NUMPAT"), other.say("PUBSUB SHARDCHANNELS")], [":1", "[s]"]);
    assert_eq!(other.say("PUBSUB SHARDNUMSUB s"), "[s :1]");
    let info = other.say("INFO stats");
    for line in ["pubsub_channels:2", "pubsub_patterns:1", "pubsubshard_channels:1"] {
        assert!(info.contains(line), "{info}");
    }
    assert_eq!(says(&mut client, "UNSUBSCRIBE", 2), ["[unsubscribe a :2]", "[unsubscribe b :1]"]);
    assert_eq!(client.say("SUNSUBSCRIBE"), "[sunsubscribe s :0]");
    assert_eq!(client.say("PUNSUBSCRIBE x*"), "[punsubscribe x* :0]");
    assert_eq!(client.say("PING"), "PONG");
    assert_eq!(client.say("SUBSCRIBE a"), "[subscribe a :1]");
    assert_eq!([client.say("RESET"), client.say("GET a")], ["RESET", "nil"]);
    assert_eq!(client.say("SUBSCRIBE a"), "[subscribe a :1]");
    assert_eq!(client.say("QUIT"), "OK");
    other.wait_for("pubsub_channels:0");
}

#[test]
fn a_client_of_resp3_gets_pushes_between_its_replies() {
    let server = server();
    let mut client = server.client();
    assert!(client.say("HELLO 3").starts_with('{'));
    assert_eq!(client.say("SUBSCRIBE a"), "(subscribe a :1)");
    assert_eq!(client.say("PSUBSCRIBE a"), "(psubscribe a :2)");
    assert_eq!(client.say("GET k"), "nil");
    // Its own message comes after the reply, and after the whole transaction.
    assert_eq!(says(&mut client, "PUBLISH a 1", 3), [":2", "(message a 1)", "(pmessage a a 1)"]);
    assert_eq!(client.say("PUNSUBSCRIBE"), "(punsubscribe a :1)");
    assert_eq!(
        [client.say("MULTI"), client.say("PUBLISH a 2"), client.say("PING")],
        ["OK", "QUEUED", "QUEUED"]
    );
    assert_eq!(says(&mut client, "EXEC", 2), ["[:1 PONG]", "(message a 2)"]);
    // Without replies, there are still pushes.
    client.send(&encode(&["CLIENT", "REPLY", "OFF"]));
    assert_eq!(client.say("SUBSCRIBE b"), "(subscribe b :2)");
    assert_eq!(client.say("UNSUBSCRIBE b"), "(unsubscribe b :1)");
    assert_eq!(client.say("PUBLISH a 3"), "(message a 3)");
    assert_eq!(client.say("CLIENT REPLY ON"), "OK");
}

/// Rights to channels end with the connections that use them.
#[test]
fn a_user_who_loses_a_channel_is_disconnected() {
    let server = server();
    let mut admin = server.client();
    let login = |user: &str| {
        let mut client = server.client();
        assert_eq!(client.say(&format!("AUTH {user} x")), "OK");
        client
    };
    assert_eq!(admin.say("ACL SETUSER u on nopass +@all ~* &a* &p* &s*"), "OK");
    let (mut plain, mut pattern, mut shard) = (login("u"), login("u"), login("u"));
    assert_eq!(plain.say("SUBSCRIBE a1"), "[subscribe a1 :1]");
    assert_eq!(pattern.say("PSUBSCRIBE p*"), "[psubscribe p* :1]");
    assert_eq!(shard.say("SSUBSCRIBE s1"), "[ssubscribe s1 :1]");
    let refused = "-NOPERM this user has no permissions to access one of the channels used as arguments";
    assert_eq!(login("u").say("SUBSCRIBE a1 b1"), refused);
    assert_eq!(login("u").say("PSUBSCRIBE p1"), refused);
    assert_eq!(admin.say("ACL SETUSER u &b*"), "OK");
    assert_eq!([plain.say("PING"), pattern.say("PING"), shard.say("PING")], ["[pong ]"; 3]);
    assert_eq!(admin.say("ACL SETUSER u resetchannels &a* &s* &p"), "OK");
    admin.wait_for("pubsub_patterns:0");
    assert!(pattern.is_over());
    assert_eq!([plain.say("PING"), shard.say("PING")], ["[pong ]"; 2]);
    assert_eq!(admin.say("ACL SETUSER u resetchannels &a1 (&s2)"), "OK");
    admin.wait_for("pubsubshard_channels:0");
    assert!(shard.is_over());
    assert_eq!(admin.say("ACL DELUSER u"), ":1");
    admin.wait_for("pubsub_channels:0");
    assert!(plain.is_over());
    assert!(admin.say("ACL LOG").contains("reason channel context toplevel object p1 "));
}

/// A subscriber that takes no messages leaves. Its publisher and the others go on.
#[test]
fn a_subscriber_that_does_not_read_leaves() {
    let server = server();
    let mut works = server.client();
    let limit = ["CONFIG", "SET", "client-output-buffer-limit", "normal 4mb 2mb 60"];
    assert_eq!(works.ask(&limit), "OK");
    let (mut idle, mut reads) = (server.client(), server.client());
    idle.say("SUBSCRIBE c");
    reads.say("SUBSCRIBE c");
    let message = "x".repeat(1 << 20);
    let mut sent = 0;
    while works.ask(&["PUBLISH", "c", &message]) == ":2" {
        assert_eq!(reads.reply().len(), "[message c ]".len() + message.len());
        sent += 1;
        assert!(sent < 1000, "the subscriber is still there");
    }
    assert_eq!(reads.reply().len(), "[message c ]".len() + message.len());
    assert_eq!(works.say("PUBSUB NUMSUB c"), "[c :1]");
    assert!(sent >= 4);
}

/// Many subscribers, of which each has little: all together have the budget of all clients.
#[test]
fn messages_count_for_the_budget_of_all_clients() {
    let mut config = Config::default();
    config.settings.client_memory = 16 << 20;
    let server = Server::with(Store::in_memory(1).unwrap(), config);
    let mut works = server.client();
    assert_eq!(works.say("CLIENT NO-EVICT ON"), "OK");
    let mut idle: Vec<Client> = (0..30).map(|_| server.client()).collect();
    for client in &mut idle {
        assert_eq!(client.say("SUBSCRIBE c"), "[subscribe c :1]");
    }
    let large = "x".repeat(1 << 20);
    let refused = works.ask(&["PUBLISH", "c", &large]);
    assert!(refused.contains("the messages of one request take"), "{refused}");
    works.say("MULTI");
    let message = "x".repeat(100 << 10);
    assert_eq!(
        [works.ask(&["PUBLISH", "c", &message]), works.ask(&["PUBLISH", "c", &message])],
        ["QUEUED"; 2]
    );
    assert!(works.say("EXEC").starts_with("[:30 -ERR the messages of one request take"));
    for _ in 0..200 {
        assert!(works.ask(&["PUBLISH", "c", &message]).starts_with(':'));
        let told = works.say("INFO clients");
        let held = told.split("brooklet_clients_bytes:").nth(1).unwrap();
        let held: u64 = held.split('\\').next().unwrap().parse().unwrap();
        assert!(held <= 16 << 20, "{held}");
    }
    let left = works.say("PUBSUB NUMSUB c");
    assert_ne!(left, "[c :30]", "more than the budget was written for those who do not read");
}

#[test]
fn subscriptions_count_for_the_memory_of_their_client() {
    let server = server();
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(other.say("CONFIG SET client-query-buffer-limit 60kb"), "OK");
    let name = "x".repeat(50_000);
    assert_eq!(client.ask(&["SUBSCRIBE", &name]), format!("[subscribe {name} :1]"));
    let list = other.say("CLIENT LIST TYPE PUBSUB");
    let memory: usize = list.split("tot-mem=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(memory > 50_000, "{memory}");
    let second = format!("y{name}");
    let refused = client.ask(&["SUBSCRIBE", &second]);
    assert_eq!(refused, "-ERR the subscriptions of a client have at most 61440 bytes");
    assert_eq!(client.ask(&["SUBSCRIBE", &name]), format!("[subscribe {name} :1]"), "it has it already");
    assert_eq!(client.say("PSUBSCRIBE p"), "[psubscribe p :2]");
    // The reports of a change that do not fit: nothing changes.
    let limit = ["CONFIG", "SET", "client-output-buffer-limit", "normal 1000 1000 60"];
    assert_eq!(other.ask(&limit), "OK");
    for change in ["SUBSCRIBE a b c d e f g h i j k l m", "UNSUBSCRIBE"] {
        assert!(client.say(change).starts_with("-ERR the reply is over 1000 bytes"), "{change}");
    }
    assert_eq!(other.say("PUBSUB NUMSUB a"), "[a :0]");
    assert_eq!(other.say(&format!("PUBLISH {name} x")), ":1");
}
