//! CLIENT PAUSE holds requests back, and CLIENT KILL lets go of the clients that it names.

use std::thread::sleep;
use std::time::Duration;

use brooklet::Store;

use crate::redis::client::{Client, Server, encode};

fn server() -> Server {
    Server::of(Store::in_memory(1).unwrap())
}

fn send(client: &mut Client, request: &str) {
    client.send(&encode(&request.split(' ').collect::<Vec<_>>()));
}

#[test]
fn writes_are_held_back_until_the_pause_ends() {
    let server = server();
    let (mut admin, mut reads) = (server.client(), server.client());
    assert_eq!(admin.say("SET k old"), "OK");
    let mut execs = server.client();
    for (request, reply) in [("MULTI", "OK"), ("SET k2 x", "QUEUED"), ("GET k", "QUEUED")] {
        assert_eq!(execs.say(request), reply);
    }
    // Together, so that the key does not expire between the two.
    let set = encode(&["SET", "gone", "x", "PX", "1500"]);
    admin.send(&[set, encode(&["CLIENT", "PAUSE", "100000", "WRITE"])].concat());
    assert_eq!([admin.reply(), admin.reply()], ["OK", "OK"]);
    let mut held: Vec<Client> = (0..3).map(|_| server.client()).collect();
    send(&mut held[0], "SET k new");
    held[1].send(&[encode(&["GET", "k"]), encode(&["RPUSH", "l", "x"]), encode(&["GET", "k"])].concat());
    send(&mut held[2], "XGROUP CREATE s g $ MKSTREAM");
    send(&mut execs, "EXEC");
    assert_eq!(held[1].reply(), "old", "reads go on");
    reads.wait_for("blocked_clients:4");
    assert_eq!([reads.say("GET k"), reads.say("EXISTS l s k2")], ["old", ":0"]);
    sleep(Duration::from_millis(1_700));
    assert!(reads.say("INFO stats").contains("expired_keys:0\\r"), "nothing changes meanwhile");
    assert!(reads.say("CLIENT LIST").contains(" flags=b "));
    // What is refused does not wait.
    assert_eq!(admin.say("SET k"), "-ERR wrong number of arguments for 'set' command");
    assert!(admin.say("NONSENSE k").starts_with("-ERR unknown command"));
    // Another pause makes none shorter.
    assert_eq!(admin.say("CLIENT PAUSE 1 WRITE"), "OK");
    sleep(Duration::from_millis(30));
    reads.wait_for("blocked_clients:4");
    assert_eq!(admin.say("CLIENT UNPAUSE"), "OK");
    assert_eq!([held[0].reply(), held[2].reply()], ["OK", "OK"]);
    assert_eq!(held[1].reply(), ":1");
    assert!(["old", "new"].contains(&&*held[1].reply()));
    assert!(execs.reply().starts_with("[OK "));
    reads.wait_for("blocked_clients:0");
}

#[test]
fn a_pause_of_all_ends_by_itself_and_who_leaves_meanwhile_does_nothing() {
    let server = server();
    let mut admin = server.client();
    // Where the machine stalls, a pause may be over before the client has left.
    let ends_well = [3_000, 12_000, 48_000].into_iter().any(|millis| {
        let (mut reads, mut leaves) = (server.client(), server.client());
        assert_eq!(admin.say(&format!("CLIENT PAUSE {millis}")), "OK");
        send(&mut leaves, "SET k x");
        drop(leaves);
        send(&mut reads, "STRLEN other");
        assert_eq!(reads.reply(), ":0");
        admin.say("DEL k") == ":0"
    });
    assert!(ends_well, "a client that had left wrote");
    for (request, reply) in [
        ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "-ERR timeout is negative"),
        ("CLIENT PAUSE 1 x", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
        ("CLIENT UNPAUSE", "OK"),
    ] {
        assert_eq!(admin.say(request), reply);
    }
}

#[test]
fn a_paused_server_stops() {
    let server = server();
    let (mut admin, mut held) = (server.client(), server.client());
    assert_eq!(admin.say("CLIENT PAUSE 100000"), "OK");
    send(&mut held, "SET k x");
    sleep(Duration::from_millis(50));
    server.stop().unwrap();
}

#[test]
fn clients_are_killed_by_all_filters() {
    let server = server();
    let mut admin = server.client();
    assert_eq!(admin.say("ACL SETUSER ada on nopass ~* +@all"), "OK");
    let mut ada = server.client();
    assert_eq!(ada.say("AUTH ada x"), "OK");
    let other = server.client();
    admin.wait_for("connected_clients:3");
    for (request, reply) in [
        ("CLIENT KILL USER nobody", "-ERR No such user 'nobody'"),
        ("CLIENT KILL TYPE nonsense", "-ERR Unknown client type 'nonsense'"),
        ("CLIENT KILL TYPE replica", ":0"),
        ("CLIENT KILL TYPE pubsub USER ada", ":0"),
        ("CLIENT KILL LADDR 1.2.3.4:5", ":0"),
        ("CLIENT KILL MAXAGE 1000", ":0"),
        ("CLIENT KILL ID 0", "-ERR client-id should be greater than 0"),
        ("CLIENT KILL ID 1 SKIPME", "-ERR syntax error"),
        ("CLIENT KILL 1.2.3.4:5", "-ERR No such client"),
        ("CLIENT LIST TYPE nonsense", "-ERR Unknown client type 'nonsense'"),
        ("CLIENT LIST TYPE master", ""),
        ("CLIENT KILL TYPE normal USER ada", ":1"),
    ] {
        assert_eq!(admin.say(request), reply, "{request}");
    }
    assert!(ada.is_over());
    admin.wait_for("connected_clients:2");
    assert_eq!(admin.say("CLIENT LIST TYPE normal").matches("id=").count(), 2);
    assert_eq!(admin.say(&format!("CLIENT KILL LADDR {} SKIPME yes", server.address)), ":1");
    admin.wait_for("connected_clients:1");
    drop(other);
}
