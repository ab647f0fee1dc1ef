//! Messages leave with the commits that they stand beside, and not before.

use super::{World, words};
use crate::redis::client::ClientId;

fn run(world: &mut World, id: ClientId, requests: &[&str]) {
    world.engine.run(id, &mut requests.iter().map(|request| words(request)).collect(), || true);
}

/// What a client gets now.
fn gets(world: &mut World, id: ClientId) -> String {
    String::from_utf8(world.engine.take_ready(id).to_vec()).unwrap()
}

fn world() -> (World, ClientId, ClientId) {
    let mut world = World::new(1, 1 << 20, None);
    let ids = [(); 2].map(|()| world.engine.connect(String::new(), String::new()).unwrap());
    run(&mut world, ids[0], &["SUBSCRIBE c"]);
    assert_eq!(gets(&mut world, ids[0]), "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    (world, ids[0], ids[1])
}

fn message(text: &str) -> String {
    format!("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n{text}\r\n")
}

fn settle(world: &mut World) {
    world.store.flush().unwrap();
    world.engine.note_durable();
}

#[test]
fn a_message_waits_for_the_writes_that_it_stands_beside() {
    let (mut world, subscriber, publisher) = world();
    run(&mut world, publisher, &["PUBLISH c 1"]);
    assert_eq!(gets(&mut world, subscriber), message("1"), "nothing was written");
    for requests in [&["MULTI", "PUBLISH c 2", "SET a 1", "EXEC"][..], &["SET a 1", "PUBLISH c 2"]] {
        run(&mut world, publisher, requests);
        assert_eq!(gets(&mut world, subscriber), "", "{requests:?}: the write is not durable");
        settle(&mut world);
        assert_eq!(gets(&mut world, subscriber), message("2"));
        assert!(!gets(&mut world, publisher).is_empty());
    }
    // What the publisher has read of others must not be undone either.
    let writer = world.engine.connect(String::new(), String::new()).unwrap();
    run(&mut world, writer, &["SET a 2"]);
    run(&mut world, publisher, &["GET a", "PUBLISH c 3"]);
    assert_eq!(gets(&mut world, subscriber), "");
    settle(&mut world);
    assert_eq!(gets(&mut world, subscriber), message("3"));
}

#[test]
fn a_message_waits_for_the_element_that_its_publisher_waited_for() {
    let (mut world, subscriber, publisher) = world();
    run(&mut world, publisher, &["BLPOP l 0"]);
    let writer = world.engine.connect(String::new(), String::new()).unwrap();
    run(&mut world, writer, &["RPUSH l x"]);
    run(&mut world, publisher, &["PUBLISH c 1"]);
    assert_eq!(gets(&mut world, subscriber), "", "a crash could bring the element back");
    settle(&mut world);
    assert_eq!(gets(&mut world, subscriber), message("1"));
}

#[test]
fn a_transaction_that_is_undone_publishes_nothing() {
    let (mut world, subscriber, publisher) = world();
    run(&mut world, publisher, &["MULTI", "PUBLISH c 1"]);
    for _ in 0..4 {
        run(&mut world, publisher, &[&format!("RPUSH d {}", "x".repeat(50_000))]);
    }
    run(&mut world, publisher, &["EXEC", "PUBLISH c 2"]);
    assert!(gets(&mut world, publisher).contains("-ERR a commit of "), "no ring of that size takes it");
    assert_eq!(gets(&mut world, subscriber), message("2"));
}

#[test]
fn an_invalidation_comes_after_its_write_is_acknowledged() {
    let (mut world, client, writer) = world();
    run(&mut world, client, &["RESET", "HELLO 3", "CLIENT TRACKING ON", "GET a"]);
    gets(&mut world, client);
    run(&mut world, writer, &["SET a 1"]);
    assert_eq!(gets(&mut world, client), "", "a crash could undo the write");
    // The client reads the new value before it hears, and still hears after it.
    run(&mut world, client, &["GET a"]);
    settle(&mut world);
    let invalid = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n";
    assert_eq!(gets(&mut world, client), format!("{invalid}$1\r\n1\r\n"));
    run(&mut world, writer, &["SET a 2"]);
    settle(&mut world);
    assert_eq!(gets(&mut world, client), invalid);
    // A refused write is no write.
    run(&mut world, client, &["GET a"]);
    gets(&mut world, client);
    run(&mut world, writer, &["MULTI", "SET a 3", "FLUSHALL"]);
    for _ in 0..4 {
        run(&mut world, writer, &[&format!("RPUSH d {}", "x".repeat(50_000))]);
    }
    run(&mut world, writer, &["EXEC"]);
    settle(&mut world);
    assert!(gets(&mut world, writer).contains("-ERR a commit of "));
    assert_eq!(gets(&mut world, client), "");
}

#[test]
fn a_client_that_waited_hears_of_its_own_change_after_its_reply() {
    let (mut world, client, writer) = world();
    run(&mut world, client, &["RESET", "HELLO 3", "CLIENT TRACKING ON", "LLEN l", "BLPOP l 0"]);
    gets(&mut world, client);
    run(&mut world, writer, &["RPUSH l x y"]);
    settle(&mut world);
    let invalid = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nl\r\n";
    let popped = "*2\r\n$1\r\nl\r\n$1\r\nx\r\n";
    assert_eq!(gets(&mut world, client), format!("{popped}{invalid}"));
    run(&mut world, client, &["LLEN l", "EXPIRE l 1"]);
    settle(&mut world);
    gets(&mut world, client);
    run(&mut world, client, &["LLEN l"]);
    assert_eq!(gets(&mut world, client), ":1\r\n");
    world.pass(2000);
    settle(&mut world);
    assert_eq!(gets(&mut world, client), invalid, "it has expired");
}

/// Nobody drives the connections here: the engine itself keeps the limits while it delivers.
#[test]
fn messages_that_nobody_takes_are_bounded_at_once() {
    let (mut world, subscriber, publisher) = world();
    world.engine.settings.hard_output = 10_000;
    let large = format!("PUBLISH c {}", "x".repeat(1000));
    for n in 0..20 {
        run(&mut world, publisher, &[&large]);
        let pending = world.engine.client(subscriber).map(|client| client.written());
        assert_eq!(pending.is_none(), n > 8, "message {n}: {pending:?}");
        assert!(pending.unwrap_or(0) <= 10_000);
    }
    let all: Vec<ClientId> =
        (0..20).map(|_| world.engine.connect(String::new(), String::new()).unwrap()).collect();
    for id in all {
        run(&mut world, id, &["SUBSCRIBE c"]);
    }
    let most = world.engine.client_memory() + 30_000;
    world.engine.settings.client_memory = most;
    world.engine.client(publisher).unwrap().no_evict = true;
    for _ in 0..20 {
        run(&mut world, publisher, &["PUBLISH c x", "RESET", &large[..300]]);
        gets(&mut world, publisher);
        assert!(world.engine.client_memory() <= most);
    }
    assert!(world.engine.client_count() < 20, "somebody had to leave");
}

/// In the old state the stop of the store let them go.
#[test]
fn a_message_beside_a_write_that_is_never_durable_stays() {
    let (mut world, subscriber, publisher) = world();
    let bystander = world.engine.connect(String::new(), String::new()).unwrap();
    run(&mut world, bystander, &["SUBSCRIBE c"]);
    gets(&mut world, bystander);
    world.volume.fail(brooklet::io::Fault::PowerOffAfter(0));
    // The messages leave in portions: one has yet to leave when the store stops.
    let message = "m".repeat(2 << 20);
    run(&mut world, publisher, &["MULTI", &format!("PUBLISH c {message}"), "SET a 1", "EXEC"]);
    assert!(world.engine.outbox.has_backlog());
    let why = world.store.flush().unwrap_err().to_string();
    world.engine.note_stopped(&why);
    (0..3).for_each(|_| world.pass(1));
    // The other one is in the replies of a client that is disconnected without them.
    let is_killed = |world: &mut World, id| world.engine.client(id).unwrap().is_killed;
    let connected = [subscriber, bystander].into_iter().filter(|id| !is_killed(&mut world, *id));
    let connected: Vec<ClientId> = connected.collect();
    assert_eq!(connected.len(), 1);
    assert_eq!(gets(&mut world, connected[0]).len(), 0);
}

/// In the old state as many messages waited as there were publishers, whatever their size, and
/// counted for nobody.
#[test]
fn messages_that_wait_for_their_delivery_are_bounded() {
    let mut world = World::new(1, 1 << 20, None);
    world.engine.settings.client_memory = 8 << 20;
    let subscribers: Vec<ClientId> =
        (0..8).map(|_| world.engine.connect(String::new(), String::new()).unwrap()).collect();
    for id in &subscribers {
        run(&mut world, *id, &["SUBSCRIBE c"]);
    }
    let large = format!("PUBLISH c {}", "x".repeat(200_000));
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..60 {
        let publisher = world.engine.connect(String::new(), String::new()).unwrap();
        run(&mut world, publisher, &[&large]);
        let said = gets(&mut world, publisher);
        taken += usize::from(said == ":8\r\n");
        refused += usize::from(said.starts_with("-ERR the messages that wait for their delivery take"));
        // All of them take their messages at once; the deliveries come in portions.
        subscribers.iter().for_each(|id| drop(gets(&mut world, *id)));
    }
    assert!(refused > 0 && taken > 20 && taken + refused == 60, "{taken} and {refused}");
    for _ in 0..60 {
        world.pass(1);
        subscribers.iter().for_each(|id| drop(gets(&mut world, *id)));
    }
    assert!(!world.engine.outbox.has_backlog());
    let publisher = world.engine.connect(String::new(), String::new()).unwrap();
    run(&mut world, publisher, &[&large]);
    assert_eq!(gets(&mut world, publisher), ":8\r\n");
}
