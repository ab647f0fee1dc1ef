//! Commands that would hold up all other clients for long are refused, or run in portions.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::{World, words};
use crate::redis::client::ClientId;
use crate::redis::events::Events;
use crate::redis::pubsub::{Kind, MAX_STEPS};

/// Runs a request, and returns what it says.
fn say(world: &mut World, id: ClientId, request: Vec<Bytes>) -> String {
    world.engine.run(id, &mut [request].into(), || true);
    world.store.flush().unwrap();
    world.engine.note_durable();
    String::from_utf8_lossy(&world.engine.take_ready(id)).into_owned()
}

fn world() -> (World, ClientId) {
    let mut world = World::new(1, 1 << 20, None);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    (world, id)
}

#[test]
fn a_pattern_is_compared_with_the_fields_of_a_hash_for_a_while_only() {
    let (mut world, id) = world();
    let field = "a".repeat(60_000);
    say(&mut world, id, words(&format!("HSET h {field} 1 b 2")));
    let scan = |pattern: &str| words(&format!("HSCAN h 0 MATCH {pattern}"));
    let slow = format!("*{}c", "a".repeat(4000));
    assert!(say(&mut world, id, scan(&slow)).starts_with("-ERR the comparison"));
    assert!(say(&mut world, id, scan("b*")).ends_with("*2\r\n$1\r\nb\r\n$1\r\n2\r\n"));
    let slow = format!(" *[{}]x", "b".repeat(4000));
    let said = say(&mut world, id, words(&format!("CONFIG GET{}", slow.repeat(400))));
    assert!(said.starts_with("-ERR the comparison"), "{said}");
}

#[test]
fn commands_about_the_server_take_few_words() {
    let (mut world, id) = world();
    for (command, word) in [
        ("COMMAND INFO", "client"),
        ("COMMAND DOCS", "client"),
        ("LATENCY HISTOGRAM", "get"),
        ("CONFIG GET", "x"),
    ] {
        let some = say(&mut world, id, words(&format!("{command}{}", format!(" {word}").repeat(500))));
        assert!(!some.starts_with('-'), "{command}: {some}");
        let many = say(&mut world, id, words(&format!("{command}{}", format!(" {word}").repeat(511))));
        assert!(many.starts_with("-ERR") && many.contains("at most 512 words"), "{command}: {many}");
    }
}

#[test]
fn a_look_for_a_script_is_no_use_of_it() {
    let (mut world, id) = world();
    say(&mut world, id, vec!["EVAL".into(), "return 1".into(), "0".into()]);
    let digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let request = words(&format!("SCRIPT EXISTS {digest} {} none", digest.to_ascii_uppercase()));
    assert_eq!(say(&mut world, id, request), "*3\r\n:1\r\n:1\r\n:0\r\n");
}

#[test]
fn a_transaction_that_holds_up_all_others_for_long_is_undone() {
    for (looks, is_done) in [(1_000_000, true), (100_000_000, false)] {
        let (mut world, id) = world();
        let now = AtomicU64::new(0);
        // The clock is looked at some times for each command.
        world.engine.clock = Box::new(move || now.fetch_add(looks, Ordering::Relaxed));
        say(&mut world, id, words("MULTI"));
        for request in ["SET a 1", "PUBLISH c x"].iter().chain(&["PUBLISH c x"; 200]) {
            say(&mut world, id, words(request));
        }
        let said = say(&mut world, id, words("EXEC"));
        assert_eq!(said.starts_with('*'), is_done, "{said}");
        assert_eq!(say(&mut world, id, words("EXISTS a")), format!(":{}\r\n", u8::from(is_done)));
        assert_eq!(said.contains("the transaction takes too long"), !is_done);
    }
}

#[test]
fn many_channels_are_subscribed_to_in_portions() {
    let (mut world, id) = world();
    let other = world.engine.connect(String::new(), String::new()).unwrap();
    let names: String = (0..3000).map(|n| format!(" c{n}")).collect();
    for (command, most, left) in [("SUBSCRIBE", 1000, 3000), ("UNSUBSCRIBE", 2000, 0)] {
        world.engine.run(id, &mut [words(&format!("{command}{names}"))].into(), || false);
        let client = world.engine.client(id).unwrap();
        assert!(client.work.is_some() && client.work_bytes > 3000, "it goes on later");
        assert_eq!(client.subscriptions.count(Kind::Channel), most);
        // A message comes before the client may leave the mode of subscribers.
        say(&mut world, other, words(if left > 0 { "PUBLISH c0 x" } else { "PUBLISH c2999 x" }));
        world.engine.run(id, &mut [].into(), || true);
        let client = world.engine.client(id).unwrap();
        assert_eq!((client.work.is_some(), client.work_bytes), (false, 0));
        assert_eq!(client.subscriptions.count(Kind::Channel), left);
        let said = String::from_utf8_lossy(&world.engine.take_ready(id)).into_owned();
        let change = format!("\r\n{}\r\n", command.to_ascii_lowercase());
        assert_eq!(said.matches(&change).count(), 3000);
        let parts: Vec<&str> = said.split("\r\nmessage\r\n").collect();
        assert_eq!(parts.len(), 2, "{command}");
        let before = parts[0].matches(&change).count();
        assert_eq!(before, 1000, "{command}: the message comes between two portions");
    }
}

#[test]
fn patterns_that_are_too_many_change_nothing() {
    let (mut world, id) = world();
    let names = |count: usize| (0..count).map(|n| format!(" {n:0500}")).collect::<String>();
    let charged = world.engine.client_memory();
    let said = say(&mut world, id, words(&format!("PSUBSCRIBE{}", names(1001))));
    assert!(said.starts_with("-ERR the patterns of a client"), "{said}");
    world.engine.run(id, &mut [].into(), || true);
    assert_eq!((world.engine.topics.len(Kind::Pattern), world.engine.client_memory()), (0, charged));
    assert!(!say(&mut world, id, words(&format!("PSUBSCRIBE{}", names(200)))).contains('-'));
    // What is there already is no more.
    assert!(!say(&mut world, id, words(&format!("PSUBSCRIBE{}", names(200).repeat(2)))).contains('-'));
}

#[test]
fn a_client_that_loses_a_right_subscribes_to_nothing_more() {
    let (mut world, admin) = world();
    say(&mut world, admin, words("ACL SETUSER bob on nopass +@all &c*"));
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    say(&mut world, id, words("AUTH bob x"));
    let names: String = (0..3000).map(|n| format!(" c{n}")).collect();
    world.engine.run(id, &mut [words(&format!("SUBSCRIBE{names}"))].into(), || false);
    say(&mut world, admin, words("ACL SETUSER bob resetchannels &c1 &c2"));
    world.engine.run(id, &mut [].into(), || true);
    assert!(world.engine.topics.len(Kind::Channel) <= 1000);
    let client = world.engine.client(id).unwrap();
    assert!(client.is_killed || client.reply.bytes.windows(7).any(|part| part == b"-NOPERM"));
}

#[test]
fn a_client_subscribes_to_so_many_channels_and_its_end_leaves_none() {
    let (mut world, id) = world();
    for part in 0..11 {
        let names: String = (0..10_000).map(|n| format!(" {part}-{n}")).collect();
        let said = say(&mut world, id, words(&format!("SSUBSCRIBE{names}")));
        assert_eq!(said.contains("-ERR a client subscribes to at most 100000 channels"), part == 10);
    }
    assert_eq!(world.engine.topics.len(Kind::Shard), 100_000);
    world.engine.disconnect(id);
    assert_eq!(world.engine.topics.len(Kind::Shard), 0);
}

#[test]
fn the_messages_of_one_request_share_the_steps_of_comparisons() {
    let (mut world, id) = world();
    world.engine.settings.events = Events::parse("KEA").unwrap();
    let slow: String = (0..20).map(|n| format!(" *{}{n:02}", "a".repeat(400))).collect();
    say(&mut world, id, words(&format!("PSUBSCRIBE{slow}")));
    let writer = world.engine.connect(String::new(), String::new()).unwrap();
    let left = |world: &mut World, keys: usize| {
        let all: String = (0..keys).map(|n| format!(" {n:03}{} v", "a".repeat(800))).collect();
        world.engine.run(writer, &mut [words(&format!("MSET{all}"))].into(), || false);
        MAX_STEPS - world.engine.steps
    };
    let (one, ten) = (left(&mut world, 1), left(&mut world, 10));
    assert!(one > 100_000 && ten > 5 * one.min(MAX_STEPS / 10), "{one} {ten}");
    assert!(left(&mut world, 60) <= MAX_STEPS);
}

/// In the old state some products were over the largest number: idle clients had to leave.
#[test]
fn the_largest_settings_are_no_limits() {
    let (mut world, id) = world();
    for name in ["timeout", "client-query-buffer-limit", "stream-node-max-entries"] {
        let set = say(&mut world, id, words(&format!("CONFIG SET {name} {}", u64::MAX)));
        assert_eq!(set, "+OK\r\n", "{name}");
    }
    say(&mut world, id, words("XADD s 1-1 f v"));
    assert_eq!(say(&mut world, id, words("XTRIM s MAXLEN ~ 0")), ":1\r\n");
    say(&mut world, id, words("MULTI"));
    for n in 0..1_001 {
        say(&mut world, id, words(&format!("SET k{n} 1")));
    }
    assert!(say(&mut world, id, words("EXEC")).starts_with("*1001\r\n"));
    world.pass(10_000);
    assert!(world.engine.client(id).is_some(), "it may be idle");
}

/// In the old state the memory was taken before the store refused the value. Without that memory,
/// the process ended.
#[test]
fn a_value_that_no_commit_takes_needs_no_memory() {
    let (mut world, id) = world();
    say(&mut world, id, words(&format!("CONFIG SET proto-max-bulk-len {}", u64::MAX)));
    for at in [1_000_000, i64::MAX] {
        let said = say(&mut world, id, words(&format!("SETRANGE k {at} xy")));
        assert_eq!(said, "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n", "{at}");
    }
    assert_eq!(say(&mut world, id, words("SETRANGE k 5000 xy")), ":5002\r\n");
}

/// In the old state a step read 2,000 values to know their types, whatever their size.
#[test]
fn a_step_of_a_scan_reads_few_large_values() {
    let (mut world, id) = world();
    for n in 0..40 {
        say(&mut world, id, words(&format!("SET k{n} {}", "x".repeat(50_000))));
    }
    let image = world.volume.crash();
    let mut world = world.reopened(image, 2);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    let (mut cursor, mut found, mut steps) = ("0".to_owned(), 0, 0);
    while steps == 0 || cursor != "0" {
        let scan = words(&format!("SCAN {cursor} COUNT 1000 TYPE string"));
        let told = say(&mut world, id, scan);
        cursor = told.split("\r\n").nth(2).unwrap().to_owned();
        found += told.matches("\r\nk").count();
        steps += 1;
    }
    assert_eq!(found, 40);
    assert!((2..=4).contains(&steps), "{steps} steps");
}

/// In the old state some of the portion that met the limit began, and the client did not learn it.
#[test]
fn subscriptions_up_to_the_limit_of_all_clients_are_those_that_are_reported() {
    let (mut world, id) = world();
    let subscribe = |start: &str, count: usize, len: usize| {
        let mut request = words("PSUBSCRIBE");
        request.extend((0..count).map(|n| Bytes::from(format!("{start}{n:0len$}"))));
        request
    };
    let begun = |world: &mut World| world.engine.client(id).unwrap().subscriptions.of(Kind::Pattern).len();
    let others: Vec<ClientId> =
        (0..8).map(|_| world.engine.connect(String::new(), String::new()).unwrap()).collect();
    for other in &others[1..] {
        let said = say(&mut world, *other, subscribe(&format!("{other}:"), 32, 3_990));
        assert!(said.starts_with('*') && !said.contains("-ERR"), "{said:.100}");
    }
    let mut requests = [subscribe("long:", 2_500, 35)].into();
    while begun(&mut world) == 0 {
        world.engine.run(id, &mut requests, || false);
    }
    let first = begun(&mut world);
    assert!(first < 2_500);
    // The room that this leaves is less than the next portion takes.
    let said = say(&mut world, others[0], subscribe("other:", 25, 3_990));
    assert!(said.starts_with('*') && !said.contains("-ERR"), "{said:.100}");
    while world.engine.client(id).unwrap().work.is_some() {
        world.engine.run(id, &mut requests, || true);
    }
    world.store.flush().unwrap();
    world.engine.note_durable();
    let told = String::from_utf8_lossy(&world.engine.take_ready(id)).into_owned();
    assert!(told.contains("\r\n-ERR the patterns of all clients have at most"), "{told:.100}");
    assert_eq!(told.matches("psubscribe").count(), first);
    assert_eq!(begun(&mut world), first);
}

/// In the old state a debug build panicked: the numbers were taken for signed ones.
#[test]
fn the_lag_behind_very_many_entries_is_that_of_redis() {
    let (mut world, id) = world();
    for request in [
        "XADD s 1-1 f v",
        "XSETID s 1-1 ENTRIESADDED 9223372036854775807",
        "XADD s 1-2 f v",
        "XGROUP CREATE s g 1-1 ENTRIESREAD 5",
    ] {
        let said = say(&mut world, id, words(request));
        assert!(!said.starts_with('-'), "{request}: {said}");
    }
    let said = say(&mut world, id, words("XINFO GROUPS s"));
    assert!(said.ends_with("lag\r\n:9223372036854775803\r\n"), "{said}");
}
