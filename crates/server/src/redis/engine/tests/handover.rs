//! Long commits that a helper hands to the store: others go on, and see nothing of them before.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use brooklet::Store;
use bytes::Bytes;

use super::drafts::transaction;
use super::portions::{Desk, many};
use super::wakes::Count;
use super::{at, words};
use crate::redis::client::ClientId;
use crate::redis::keys::Handover;

/// Enough for a commit to be a long one.
const MANY: usize = 4_500;

/// A desk whose helper is the test, and what that is given.
fn helped() -> (Desk, Receiver<Handover>) {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    let (helper, handovers) = channel();
    desk.engine.helper = Some(helper);
    (desk, handovers)
}

/// Runs a command until the helper has its commit.
fn pass(desk: &mut Desk, handovers: &Receiver<Handover>, requests: Vec<Vec<Bytes>>) -> Handover {
    let mut requests: VecDeque<_> = requests.into();
    for _ in 0..1_000 {
        desk.engine.run(desk.long, &mut requests, || true);
        if let Ok(handover) = handovers.try_recv() {
            let end = desk.told(desk.long);
            assert!(!end.contains("-1") && desk.is_at_work(desk.long), "{end}");
            return handover;
        }
    }
    panic!("the commit is not a long one");
}

/// Runs requests of the other client until one of them must wait; returns those that are left.
fn ask(desk: &mut Desk, requests: &[&str]) -> VecDeque<Vec<Bytes>> {
    let mut requests: VecDeque<_> = requests.iter().map(|request| words(request)).collect();
    go_on(desk, &mut requests);
    requests
}

fn go_on(desk: &mut Desk, requests: &mut VecDeque<Vec<Bytes>>) {
    for _ in 0..1_000 {
        desk.engine.run(desk.other, requests, || true);
        if is_behind(desk, desk.other) || requests.is_empty() && !desk.is_at_work(desk.other) {
            return;
        }
    }
    panic!("{requests:?} neither end nor wait");
}

fn is_behind(desk: &mut Desk, id: ClientId) -> bool {
    desk.engine.client(id).unwrap().is_behind
}

/// The reply of the long command, once the commit is over.
fn end(desk: &mut Desk, handover: Handover) -> String {
    desk.engine.run(desk.long, &mut VecDeque::new(), || true);
    assert!(desk.is_at_work(desk.long) && is_behind(desk, desk.long));
    desk.engine.end_handover(handover.run());
    assert!(!is_behind(desk, desk.long) && !is_behind(desk, desk.other));
    desk.engine.run(desk.long, &mut VecDeque::new(), || true);
    assert!(!desk.is_at_work(desk.long));
    desk.told(desk.long)
}

fn set_all(value: &str) -> Vec<Bytes> {
    many("MSET", MANY, |n| format!("key:{n} {value}"))
}

#[test]
fn what_needs_no_store_runs_beside_a_long_commit() {
    let (mut desk, handovers) = helped();
    desk.say(&["SET key:0 old", "HSET hash f v", "RPUSH list a", "SET mortal 1 PX 500"].map(words));
    let handover = pass(&mut desk, &handovers, vec![set_all("new")]);
    let beside = [
        "PING",
        "GET key:0",
        "MGET key:0 key:1",
        "HGETALL hash",
        "GET mortal",
        "NONSENSE",
        "MULTI",
        "SET x 1",
    ];
    assert!(ask(&mut desk, &beside).is_empty());
    let told = desk.told(desk.other);
    let start =
        "+PONG\r\n$3\r\nold\r\n*2\r\n$3\r\nold\r\n$-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n$1\r\n1\r\n-ERR unknown";
    assert!(told.starts_with(start) && told.ends_with("+OK\r\n+QUEUED\r\n"), "{told}");
    // Nothing expires meanwhile.
    desk.engine.tick(at(1_000_600));
    let mut left = ask(&mut desk, &["EXEC", "PING"]);
    assert_eq!((left.len(), desk.told(desk.other)), (2, String::new()));
    assert_eq!(end(&mut desk, handover), "+OK\r\n");
    go_on(&mut desk, &mut left);
    assert_eq!(desk.told(desk.other), "*1\r\n+OK\r\n+PONG\r\n");
    assert_eq!(
        desk.say(&["MGET key:0 key:4499 mortal", "DBSIZE"].map(words)),
        "*3\r\n$3\r\nnew\r\n$3\r\nnew\r\n$-1\r\n:4503\r\n"
    );
}

#[test]
fn all_other_commands_wait_for_a_long_commit() {
    let lone =
        ["SET other 1", "LRANGE list 0 -1", "GET cold", "KEYS *", "DBSIZE", "EXISTS mortal", "PUBLISH c m"];
    let more = [
        "EVAL return{1} 0",
        "FLUSHALL",
        "WATCH hash",
        "XREAD STREAMS s 0",
        "SCAN 0",
        "INFO",
        "BLPOP list 1",
        "SORT_RO hash",
    ];
    for request in lone.iter().chain(&more) {
        let (mut desk, handovers) = helped();
        desk.say(&["SET cold 1", "RPUSH list a", "SET mortal 1 PX 500"].map(words));
        let id = desk.engine.keys.cached().0;
        (0..4).for_each(|_| desk.engine.keys.age_cache());
        assert!(desk.engine.keys.cached().0 < id);
        desk.say(&["EXISTS list mortal"].map(words));
        let handover = pass(&mut desk, &handovers, vec![set_all("new")]);
        desk.engine.set_time(at(1_000_600));
        let mut left = ask(&mut desk, &[request]);
        assert_eq!((left.len(), desk.told(desk.other)), (1, String::new()), "{request}");
        assert_eq!(end(&mut desk, handover), "+OK\r\n", "{request}");
        go_on(&mut desk, &mut left);
        assert_ne!(desk.told(desk.other), "", "{request}");
    }
}

/// Another command in portions waits between two of them.
#[test]
fn other_long_commands_wait_for_a_long_commit_and_see_it() {
    let (mut desk, handovers) = helped();
    let helper = desk.engine.helper.take();
    desk.say(&[set_all("old")]);
    desk.engine.helper = helper;
    let mut get = VecDeque::from([many("MGET", MANY, |n| format!("key:{n}"))]);
    desk.engine.run(desk.other, &mut get, || false);
    assert!(desk.is_at_work(desk.other));
    let handover = pass(&mut desk, &handovers, vec![set_all("new")]);
    go_on(&mut desk, &mut get);
    let other = desk.other;
    assert!(is_behind(&mut desk, other) && desk.told(desk.other).is_empty());
    assert_eq!(end(&mut desk, handover), "+OK\r\n");
    go_on(&mut desk, &mut get);
    assert_eq!(desk.told(desk.other).matches("new").count(), MANY);
}

#[test]
fn who_watches_waits_or_tracks_hears_of_a_long_commit_at_its_end() {
    let (mut desk, handovers) = helped();
    desk.say(&["SET key:0 old", "WATCH key:0", "MULTI", "SET mine 1"].map(words));
    let handover = pass(&mut desk, &handovers, vec![set_all("new")]);
    let mut left = ask(&mut desk, &["EXEC"]);
    assert_eq!(end(&mut desk, handover), "+OK\r\n");
    go_on(&mut desk, &mut left);
    assert_eq!(desk.told(desk.other), "*-1\r\n");

    desk.say(&["HELLO 3", "CLIENT TRACKING ON", "GET key:0"].map(words));
    let handover = pass(&mut desk, &handovers, vec![set_all("newer")]);
    assert_eq!(desk.told(desk.other), "");
    assert_eq!(end(&mut desk, handover), "+OK\r\n");
    assert_eq!(desk.told(desk.other), ">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\nkey:0\r\n");

    assert!(ask(&mut desk, &["BLPOP list 0"]).is_empty());
    let push = many("RPUSH list", MANY, |n| n.to_string());
    let handover = pass(&mut desk, &handovers, vec![push]);
    desk.engine.tick(at(1_000_010));
    assert_eq!(desk.told(desk.other), "");
    assert_eq!(end(&mut desk, handover), format!(":{MANY}\r\n"));
    assert_eq!(desk.told(desk.other), "*2\r\n$4\r\nlist\r\n$1\r\n0\r\n");
    assert_eq!(desk.say(&[words("LLEN list")]), format!(":{}\r\n", MANY - 1));
}

#[test]
fn a_long_commit_takes_effect_although_its_client_has_gone() {
    let (mut desk, handovers) = helped();
    let set = transaction((0..MANY).map(|n| format!("SET key:{n} new")));
    let handover = pass(&mut desk, &handovers, set);
    desk.engine.disconnect(desk.long);
    let mut left = ask(&mut desk, &["DBSIZE"]);
    desk.engine.end_handover(handover.run());
    go_on(&mut desk, &mut left);
    assert_eq!(desk.told(desk.other), format!(":{MANY}\r\n"));
    let mut desk = desk.again();
    assert_eq!(desk.say(&["GET key:4499", "DBSIZE"].map(words)), format!("$3\r\nnew\r\n:{MANY}\r\n"));
}

#[test]
fn a_long_commit_that_the_store_refuses_has_no_effect() {
    let (mut desk, handovers) = helped();
    desk.say(&["SET key:0 old"].map(words));
    let handover = pass(&mut desk, &handovers, vec![set_all("new")]);
    desk.store().close().unwrap();
    desk.engine.end_handover(handover.run());
    for (id, start) in [(desk.long, "-"), (desk.other, "$3\r\nold\r\n")] {
        let mut requests = VecDeque::from([words("GET key:0")]);
        desk.engine.run(id, &mut requests, || true);
        let told = desk.engine.take_ready(id);
        assert!(told.starts_with(start.as_bytes()), "{told:?}");
    }
}

/// Without a helper that still runs, the engine hands the commit over itself.
#[test]
fn a_long_commit_needs_no_helper() {
    let (mut desk, handovers) = helped();
    drop(handovers);
    assert_eq!(desk.say(&[set_all("new"), words("GET key:4499")]), "+OK\r\n$3\r\nnew\r\n");
}

/// A server that stops answers a commit that is on its way, and wakes the connection for that.
#[test]
fn a_long_commit_is_answered_by_a_server_that_stops() {
    let (mut desk, handovers) = helped();
    let handover = pass(&mut desk, &handovers, vec![set_all("new")]);
    desk.engine.say_goodbye();
    desk.engine.run(desk.long, &mut VecDeque::new(), || true);
    assert!(desk.engine.is_handing(desk.long) && desk.told(desk.long).is_empty());
    let count = Arc::new(Count::default());
    desk.engine.client(desk.long).unwrap().waker = Some(count.clone().into());
    desk.engine.end_handover(handover.run());
    assert!(count.woken() > 0, "nobody drives the connection");
    desk.engine.run(desk.long, &mut VecDeque::new(), || true);
    assert_eq!(desk.told(desk.long), "+OK\r\n");
}

/// What a pause, a subscription or the name of a space promises needs the end of the commit.
#[test]
fn what_depends_on_the_commit_waits_for_it() {
    for request in ["CLIENT PAUSE 10 WRITE", "SELECT name", "SUBSCRIBE __keyevent@0__:set"] {
        let (mut desk, handovers) = helped();
        desk.say(&["CONFIG SET notify-keyspace-events KEA", "SET key:0 old", "FLUSHDB"].map(words));
        let handover = pass(&mut desk, &handovers, vec![set_all("new")]);
        assert_eq!(ask(&mut desk, &["PING", "SELECT 0", request]).len(), 1, "{request}");
        desk.engine.end_handover(handover.run());
    }
}

#[test]
fn a_key_in_memory_is_read_beside_a_commit_after_a_flush_too() {
    let (mut desk, handovers) = helped();
    desk.say(&["SET key:1 old", "FLUSHDB", "SET key:0 old"].map(words));
    let handover = pass(&mut desk, &handovers, vec![set_all("new")]);
    assert!(ask(&mut desk, &["GET key:0"]).is_empty());
    assert_eq!(desk.told(desk.other), "$3\r\nold\r\n");
    assert_eq!(end(&mut desk, handover), "+OK\r\n");
}
