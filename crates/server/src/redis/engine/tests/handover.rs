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
use crate::redis::keys::Task;

/// Enough for a commit to be a long one.
const MANY: usize = 4_500;

/// A desk whose helper is the test, and what that is given.
fn helped() -> (Desk, Receiver<Task>) {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    let (helper, tasks) = channel();
    desk.engine.helper = Some(helper);
    (desk, tasks)
}

/// Runs a command until the helper has a task.
fn next(desk: &mut Desk, tasks: &Receiver<Task>, requests: &mut VecDeque<Vec<Bytes>>) -> Task {
    for _ in 0..1_000 {
        desk.engine.run(desk.long, requests, || true);
        if let Ok(task) = tasks.try_recv() {
            let end = desk.told(desk.long);
            assert!(!end.contains("-1") && desk.is_at_work(desk.long), "{end}");
            return task;
        }
    }
    panic!("the commit is not a long one");
}

/// Runs a command until the helper is to prepare its commit.
fn begin(desk: &mut Desk, tasks: &Receiver<Task>, requests: Vec<Vec<Bytes>>) -> Task {
    let task = next(desk, tasks, &mut requests.into());
    assert!(matches!(task, Task::Prepare(_)));
    task
}

/// Runs a command until the helper has its commit.
fn pass(desk: &mut Desk, tasks: &Receiver<Task>, requests: Vec<Vec<Bytes>>) -> Task {
    let task = begin(desk, tasks, requests);
    desk.engine.end_task(task.run());
    let task = next(desk, tasks, &mut VecDeque::new());
    assert!(matches!(task, Task::Commit(_)));
    task
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
fn end(desk: &mut Desk, task: Task) -> String {
    desk.engine.run(desk.long, &mut VecDeque::new(), || true);
    assert!(desk.is_at_work(desk.long) && is_behind(desk, desk.long));
    desk.engine.end_task(task.run());
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
    let (mut desk, tasks) = helped();
    desk.say(&["SET key:0 old", "HSET hash f v", "RPUSH list a", "SET mortal 1 PX 500"].map(words));
    let task = pass(&mut desk, &tasks, vec![set_all("new")]);
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
    assert_eq!(end(&mut desk, task), "+OK\r\n");
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
        let (mut desk, tasks) = helped();
        desk.say(&["SET cold 1", "RPUSH list a", "SET mortal 1 PX 500"].map(words));
        let id = desk.engine.keys.cached().0;
        (0..4).for_each(|_| assert!(desk.engine.keys.age_cache(usize::MAX)));
        assert!(desk.engine.keys.cached().0 < id);
        desk.say(&["EXISTS list mortal"].map(words));
        let task = pass(&mut desk, &tasks, vec![set_all("new")]);
        desk.engine.set_time(at(1_000_600));
        let mut left = ask(&mut desk, &[request]);
        assert_eq!((left.len(), desk.told(desk.other)), (1, String::new()), "{request}");
        assert_eq!(end(&mut desk, task), "+OK\r\n", "{request}");
        go_on(&mut desk, &mut left);
        assert_ne!(desk.told(desk.other), "", "{request}");
    }
}

/// Another command in portions waits between two of them.
#[test]
fn other_long_commands_wait_for_a_long_commit_and_see_it() {
    let (mut desk, tasks) = helped();
    let helper = desk.engine.helper.take();
    desk.say(&[set_all("old")]);
    desk.engine.helper = helper;
    let mut get = VecDeque::from([many("MGET", MANY, |n| format!("key:{n}"))]);
    desk.engine.run(desk.other, &mut get, || false);
    assert!(desk.is_at_work(desk.other));
    let task = pass(&mut desk, &tasks, vec![set_all("new")]);
    go_on(&mut desk, &mut get);
    let other = desk.other;
    assert!(is_behind(&mut desk, other) && desk.told(desk.other).is_empty());
    assert_eq!(end(&mut desk, task), "+OK\r\n");
    go_on(&mut desk, &mut get);
    assert_eq!(desk.told(desk.other).matches("new").count(), MANY);
}

#[test]
fn who_watches_waits_or_tracks_hears_of_a_long_commit_at_its_end() {
    let (mut desk, tasks) = helped();
    desk.say(&["SET key:0 old", "WATCH key:0", "MULTI", "SET mine 1"].map(words));
    let task = pass(&mut desk, &tasks, vec![set_all("new")]);
    let mut left = ask(&mut desk, &["EXEC"]);
    assert_eq!(end(&mut desk, task), "+OK\r\n");
    go_on(&mut desk, &mut left);
    assert_eq!(desk.told(desk.other), "*-1\r\n");

    desk.say(&["HELLO 3", "CLIENT TRACKING ON", "GET key:0"].map(words));
    let task = pass(&mut desk, &tasks, vec![set_all("newer")]);
    assert_eq!(desk.told(desk.other), "");
    assert_eq!(end(&mut desk, task), "+OK\r\n");
    assert_eq!(desk.told(desk.other), ">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\nkey:0\r\n");

    assert!(ask(&mut desk, &["BLPOP list 0"]).is_empty());
    let push = many("RPUSH list", MANY, |n| n.to_string());
    let task = pass(&mut desk, &tasks, vec![push]);
    desk.engine.tick(at(1_000_010));
    assert_eq!(desk.told(desk.other), "");
    assert_eq!(end(&mut desk, task), format!(":{MANY}\r\n"));
    assert_eq!(desk.told(desk.other), "*2\r\n$4\r\nlist\r\n$1\r\n0\r\n");
    assert_eq!(desk.say(&[words("LLEN list")]), format!(":{}\r\n", MANY - 1));
}

#[test]
fn a_long_commit_takes_effect_although_its_client_has_gone() {
    let (mut desk, tasks) = helped();
    let set = transaction((0..MANY).map(|n| format!("SET key:{n} new")));
    let task = pass(&mut desk, &tasks, set);
    desk.engine.disconnect(desk.long);
    let mut left = ask(&mut desk, &["DBSIZE"]);
    desk.engine.end_task(task.run());
    go_on(&mut desk, &mut left);
    assert_eq!(desk.told(desk.other), format!(":{MANY}\r\n"));
    let mut desk = desk.again();
    assert_eq!(desk.say(&["GET key:4499", "DBSIZE"].map(words)), format!("$3\r\nnew\r\n:{MANY}\r\n"));
}

#[test]
fn a_long_commit_that_the_store_refuses_has_no_effect() {
    let (mut desk, tasks) = helped();
    desk.say(&["SET key:0 old"].map(words));
    let task = pass(&mut desk, &tasks, vec![set_all("new")]);
    desk.store().close().unwrap();
    desk.engine.end_task(task.run());
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
    let (mut desk, tasks) = helped();
    drop(tasks);
    assert_eq!(desk.say(&[set_all("new"), words("GET key:4499")]), "+OK\r\n$3\r\nnew\r\n");
}

/// A server that stops answers a commit that is on its way, and wakes the connection for that.
#[test]
fn a_long_commit_is_answered_by_a_server_that_stops() {
    let (mut desk, tasks) = helped();
    let task = pass(&mut desk, &tasks, vec![set_all("new")]);
    desk.engine.say_goodbye();
    desk.engine.run(desk.long, &mut VecDeque::new(), || true);
    assert!(desk.engine.is_handing(desk.long) && desk.told(desk.long).is_empty());
    let count = Arc::new(Count::default());
    desk.engine.client(desk.long).unwrap().waker = Some(count.clone().into());
    desk.engine.end_task(task.run());
    assert!(count.woken() > 0, "nobody drives the connection");
    desk.engine.run(desk.long, &mut VecDeque::new(), || true);
    assert_eq!(desk.told(desk.long), "+OK\r\n");
}

/// What a pause, a subscription or the name of a space promises needs the end of the commit.
#[test]
fn what_depends_on_the_commit_waits_for_it() {
    for request in ["CLIENT PAUSE 10 WRITE", "SELECT name", "SUBSCRIBE __keyevent@0__:set"] {
        let (mut desk, tasks) = helped();
        desk.say(&["CONFIG SET notify-keyspace-events KEA", "SET key:0 old", "FLUSHDB"].map(words));
        let task = pass(&mut desk, &tasks, vec![set_all("new")]);
        assert_eq!(ask(&mut desk, &["PING", "SELECT 0", request]).len(), 1, "{request}");
        desk.engine.end_task(task.run());
    }
}

#[test]
fn a_key_in_memory_is_read_beside_a_commit_after_a_flush_too() {
    let (mut desk, tasks) = helped();
    desk.say(&["SET key:1 old", "FLUSHDB", "SET key:0 old"].map(words));
    let task = pass(&mut desk, &tasks, vec![set_all("new")]);
    assert!(ask(&mut desk, &["GET key:0"]).is_empty());
    assert_eq!(desk.told(desk.other), "$3\r\nold\r\n");
    assert_eq!(end(&mut desk, task), "+OK\r\n");
}

/// Others run any commands while the store prepares a commit; also one that is a long one.
#[test]
fn everything_runs_beside_a_preparation() {
    let (mut desk, tasks) = helped();
    desk.say(&["SET other 1", "RPUSH list a"].map(words));
    let task = begin(&mut desk, &tasks, vec![set_all("new")]);
    let told = desk.say(&["INCR other", "LPOP list", "GET key:0", "DBSIZE", "PUBLISH c m"].map(words));
    assert_eq!(told, ":2\r\n$1\r\na\r\n$-1\r\n:1\r\n:0\r\n");
    // The client itself waits, and another long commit waits for its turn.
    desk.engine.run(desk.long, &mut VecDeque::new(), || true);
    let mut second = VecDeque::from([many("MSET", MANY, |n| format!("second:{n} x"))]);
    go_on(&mut desk, &mut second);
    let (long, other) = (desk.long, desk.other);
    assert!(is_behind(&mut desk, long) && is_behind(&mut desk, other) && tasks.try_recv().is_err());
    desk.engine.end_task(task.run());
    assert!(!is_behind(&mut desk, long) && !is_behind(&mut desk, other));
    let task = next(&mut desk, &tasks, &mut VecDeque::new());
    assert_eq!(end(&mut desk, task), "+OK\r\n");
    let told = |desk: &mut Desk| desk.told(other);
    for _ in 0..2 {
        go_on(&mut desk, &mut second);
        assert_eq!(told(&mut desk), "");
        desk.engine.end_task(tasks.try_recv().expect("the second commit has its turn").run());
    }
    go_on(&mut desk, &mut second);
    assert_eq!(told(&mut desk), "+OK\r\n");
    assert_eq!(desk.say(&["DBSIZE"].map(words)), format!(":{}\r\n", 2 * MANY + 1));
}

/// The store then has the commit of the first values, which is of no use any more.
#[test]
fn a_command_begins_again_if_others_change_its_keys_beside_the_preparation() {
    let (mut desk, tasks) = helped();
    desk.say(&["RPUSH list a", "SET key:7 0"].map(words));
    let push = many("RPUSH list", MANY, |n| n.to_string());
    let task = begin(&mut desk, &tasks, vec![push]);
    desk.say(&["RPUSH list b"].map(words));
    desk.engine.end_task(task.run());
    let task = next(&mut desk, &tasks, &mut VecDeque::new());
    assert!(matches!(task, Task::Prepare(_)), "the first draft is committed");
    desk.engine.end_task(task.run());
    let task = next(&mut desk, &tasks, &mut VecDeque::new());
    assert_eq!(end(&mut desk, task), format!(":{}\r\n", MANY + 2));
    assert_eq!(
        desk.say(&["LRANGE list 0 2", "LLEN list"].map(words)),
        format!("*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\n0\r\n:{}\r\n", MANY + 2)
    );
}

/// A transaction looks at the keys that it watches after the preparation.
#[test]
fn a_watched_key_that_changes_beside_the_preparation_ends_a_transaction() {
    let (mut desk, tasks) = helped();
    let mut set = vec![words("SET seen 1"), words("WATCH seen")];
    set.extend(transaction((0..MANY).map(|n| format!("SET key:{n} new"))));
    let task = begin(&mut desk, &tasks, set);
    desk.say(&["SET seen 2"].map(words));
    desk.engine.end_task(task.run());
    for _ in 0..1_000 {
        desk.engine.run(desk.long, &mut VecDeque::new(), || true);
        if let Ok(task) = tasks.try_recv() {
            desk.engine.end_task(task.run());
        }
    }
    assert!(!desk.is_at_work(desk.long));
    assert!(desk.told(desk.long).ends_with("*-1\r\n"));
    assert_eq!(desk.say(&["DBSIZE"].map(words)), ":1\r\n");
}

/// Nothing has taken effect yet, and another commit may be prepared.
#[test]
fn a_client_that_leaves_beside_the_preparation_leaves_no_change() {
    let (mut desk, tasks) = helped();
    let task = begin(&mut desk, &tasks, vec![set_all("new")]);
    desk.engine.disconnect(desk.long);
    desk.engine.end_task(task.run());
    assert_eq!(desk.say(&["DBSIZE"].map(words)), ":0\r\n");
    let mut second = VecDeque::from([set_all("second")]);
    go_on(&mut desk, &mut second);
    assert!(matches!(tasks.try_recv(), Ok(Task::Prepare(_))));
}

/// In the old state the deletion of the key waited for the next commit, and a draft that was
/// committed next was refused because of it.
#[test]
fn a_key_that_has_expired_when_the_store_has_its_commit_is_deleted_at_once() {
    let (mut desk, tasks) = helped();
    assert!(ask(&mut desk, &["BLPOP k 0"]).is_empty());
    let sets = (0..MANY).map(|n| format!("SET key:{n} new"));
    let set = transaction(sets.chain(["SET k v PX 20".to_owned()]));
    let task = pass(&mut desk, &tasks, set);
    desk.engine.set_time(at(1_000_050));
    let told = end(&mut desk, task);
    assert!(told.ends_with("+OK\r\n"), "{}", &told[told.len() - 100..]);
    assert!(!desk.engine.keys.is_changed(), "a change is left to the next commit");
    assert_eq!(desk.engine.keys.next_deadline(), None);
    let long = desk.long;
    desk.engine.run(long, &mut [words("EXISTS k key:0")].into(), || true);
    assert_eq!(desk.told(long), ":1\r\n");
}

/// In the old state the client kept the prepared commit, and nobody counted its memory.
#[test]
fn a_command_that_needs_its_prepared_commit_no_more_leaves_none() {
    let (mut desk, tasks) = helped();
    desk.say(&["CONFIG SET notify-keyspace-events KEA"].map(words));
    let task = begin(&mut desk, &tasks, vec![set_all("new")]);
    desk.say(&["SUBSCRIBE __keyevent@0__:set"].map(words));
    desk.engine.end_task(task.run());
    for _ in 0..1_000 {
        desk.engine.run(desk.long, &mut VecDeque::new(), || true);
    }
    assert!(!desk.is_at_work(desk.long) && tasks.try_recv().is_err());
    assert_eq!(desk.told(desk.long), "+OK\r\n");
    assert!(desk.engine.client(desk.long).unwrap().prepared.is_none());
}
