//! What one client's commands may cost the others: turns, memory, and elements that are lost.

use bytes::Bytes;

use super::portions::many;
use super::{World, at, words};
use crate::redis::client::ClientId;
use crate::redis::keys::names;

fn world() -> (World, ClientId) {
    let mut world = World::new(1, 8 << 20, None);
    let id = come(&mut world);
    (world, id)
}

fn come(world: &mut World) -> ClientId {
    world.engine.connect(String::new(), String::new()).unwrap()
}

/// Runs requests of one packet, and returns the replies once all is durable.
fn run(world: &mut World, id: ClientId, requests: Vec<Vec<Bytes>>) -> String {
    let mut requests = requests.into();
    world.engine.run(id, &mut requests, || true);
    world.store.flush().unwrap();
    world.engine.note_durable();
    String::from_utf8_lossy(&world.engine.take_ready(id)).into_owned()
}

fn say(world: &mut World, id: ClientId, requests: &[&str]) -> String {
    run(world, id, requests.iter().map(|request| words(request)).collect())
}

/// Runs one portion of a request, and returns whether more are left.
fn begin(world: &mut World, id: ClientId, request: Vec<Bytes>) -> bool {
    world.engine.run(id, &mut [request].into(), || false);
    world.engine.client(id).unwrap().work.is_some()
}

#[test]
fn a_sort_with_many_patterns_has_a_limit_and_gives_turns() {
    let (mut world, id) = world();
    run(
        &mut world,
        id,
        vec![many("RPUSH l", 300, |n| format!("{n}")), many("RPUSH m", 1500, |n| format!("{n}"))],
    );
    let sort = |list: &str, gets| many(&format!("SORT {list} BY nosort"), gets, |n| format!("GET none{n}:*"));
    world.engine.settings.hard_output = 64 << 10;
    let said = run(&mut world, id, vec![sort("l", 100)]);
    assert!(said.starts_with("-ERR the reply is over"), "{}", &said[..said.len().min(100)]);
    world.engine.settings.hard_output = 1 << 20;
    assert!(begin(&mut world, id, sort("l", 100)), "others have their turns");
    let said = run(&mut world, id, vec![]);
    assert_eq!(said, format!("*30000\r\n{}", "$-1\r\n".repeat(30_000)));
    world.engine.settings.hard_output = 256 << 20;
    say(&mut world, id, &["MULTI"]);
    let said = run(&mut world, id, vec![sort("m", 125), words("EXEC")]);
    assert!(said.contains("takes too long for a transaction"), "{}", &said[..said.len().min(100)]);
}

#[test]
fn a_sort_finds_the_values_of_many_patterns() {
    let (mut world, id) = world();
    run(&mut world, id, vec![many("RPUSH l", 40, |n| format!("{}", 39 - n))]);
    for n in 0..40 {
        say(&mut world, id, &[&format!("HSET h{n} a x{n} b y{n}"), &format!("SET s{n} z{n}")]);
    }
    let gets = " GET h*->a GET # GET s* GET h*->b GET none".repeat(20);
    let said = say(&mut world, id, &[&format!("SORT l{gets}")]);
    let row = |n| format!("x{n} {n} z{n} y{n} nil ").repeat(20);
    let told: String = (0..40).map(row).collect();
    let found = said.split("\r\n").skip(1).filter(|line| !line.starts_with('$') || *line == "$-1");
    let found: String =
        found.map(|line| if line == "$-1" { "nil ".into() } else { format!("{line} ") }).collect();
    assert_eq!(found.trim_end(), told.trim_end());
    let said = say(&mut world, id, &[&format!("SORT l{gets} LIMIT 1 5 STORE to"), "LRANGE to 100 101"]);
    assert_eq!(said, ":500\r\n*2\r\n$2\r\nx2\r\n$1\r\n2\r\n");
    let said = run(&mut world, id, vec![many("SORT l", 513, |n| format!("GET a{n}*"))]);
    assert!(said.starts_with("-ERR SORT takes at most 512 GET"), "{said}");
}

/// A key that was watched and did not change is what it was, until its time comes.
#[test]
fn a_transaction_opens_no_key_only_because_it_is_watched() {
    let mut world = World::new(1, 1, None);
    let id = come(&mut world);
    say(&mut world, id, &["SET bad v PX 500", "SET other v", "WATCH bad other", "GET other"]);
    world.store.append(names::head(b"0/bad"), [0xff; 9]).unwrap().wait().unwrap();
    let said = say(&mut world, id, &["MULTI", "SET a 1", "EXEC"]);
    assert!(said.ends_with("*1\r\n+OK\r\n"), "{said}");
}

#[test]
fn a_watched_key_that_expires_before_exec_is_a_change() {
    for again in ["WATCH k", "GET k", "PING"] {
        let (mut world, id) = world();
        say(&mut world, id, &["SET k v PX 50", "WATCH k"]);
        world.engine.set_time(at(world.now() + 100));
        let said = say(&mut world, id, &[again, "MULTI", "PING", "EXEC"]);
        assert!(said.ends_with("+QUEUED\r\n*-1\r\n"), "{again}: {said}");
    }
}

/// For clients, all keys are gone from the beginning of a flush on. In the old state a transaction
/// did not know of it before the key had its turn.
#[test]
fn a_watched_key_is_gone_once_a_flush_has_begun() {
    for (key, is_there) in [("k", true), ("none", false)] {
        for more in [0, 1_001] {
            let (mut world, id) = world();
            let other = come(&mut world);
            say(&mut world, id, &["SET k v", &format!("WATCH {key}"), "MULTI"]);
            (0..more).for_each(|n| drop(say(&mut world, id, &[&format!("SET other:{n} 1")])));
            say(&mut world, id, &["SET k w"]);
            assert!(begin(&mut world, other, words("FLUSHALL")), "it runs in portions");
            let mut said = say(&mut world, id, &["EXEC"]);
            while world.engine.client(id).unwrap().work.is_some() {
                said += &run(&mut world, id, vec![]);
            }
            assert_eq!(said.starts_with("*-1"), is_there, "{key}, {more}: {said}");
            let said = say(&mut world, id, &["MGET k"]);
            assert_eq!(said.ends_with("$1\r\nw\r\n"), !is_there, "{key}, {more}: {said}");
        }
    }
}

#[test]
fn a_killed_client_takes_no_element() {
    for (before, after) in [(vec![], vec![]), (vec!["MULTI"], vec!["EXEC"])] {
        let (mut world, waits) = world();
        let other = come(&mut world);
        say(&mut world, waits, &["BLPOP q 0"]);
        let kill = format!("CLIENT KILL ID {waits}");
        let requests = [before, vec![&kill[..], "RPUSH q job"], after].concat();
        say(&mut world, other, &requests);
        assert_eq!(say(&mut world, other, &["LRANGE q 0 -1"]), "*1\r\n$3\r\njob\r\n");
        assert_eq!(world.engine.take_ready(waits), "");
    }
}

#[test]
fn the_epochs_of_replies_count() {
    let (mut world, id) = world();
    let mut grown = 0;
    for _ in 0..1000 {
        world.engine.run(id, &mut [words("INCR n")].into(), || true);
        let client = world.engine.client(id).unwrap();
        grown = client.memory() - client.written() - size_of_val(client);
    }
    assert!(grown >= 16_000, "{grown}");
    say(&mut world, id, &["PING"]);
    let client = world.engine.client(id).unwrap();
    let rest = client.memory() - size_of_val(client);
    assert!(rest < 1024, "{rest}");
}

#[test]
fn a_client_without_loops_hears_of_keys_that_expire() {
    for look in ["DBSIZE", "GET k", "SET k w", "EXISTS k"] {
        let (mut world, id) = world();
        say(&mut world, id, &["HELLO 3", "CLIENT TRACKING ON NOLOOP"]);
        let own = say(&mut world, id, &["SET k v PX 50", "GET k", "SET k v PX 50", "GET k"]);
        assert!(!own.contains("invalidate"), "{own}");
        world.engine.set_time(at(world.now() + 100));
        let said = say(&mut world, id, &[look]);
        assert!(said.contains("invalidate\r\n*1\r\n$1\r\nk\r\n"), "{look}: {said}");
    }
}

/// Requests of one packet are one commit.
#[test]
fn a_client_without_loops_hears_of_a_key_that_it_has_changed_and_read() {
    for requests in [&["SET k 1", "GET k"][..], &["MULTI", "SET k 1", "GET k", "EXEC"]] {
        let (mut world, id) = world();
        let other = come(&mut world);
        say(&mut world, id, &["HELLO 3", "CLIENT TRACKING ON NOLOOP"]);
        assert!(!say(&mut world, id, requests).contains("invalidate"));
        say(&mut world, other, &["SET k 2"]);
        assert!(say(&mut world, id, &[]).contains("invalidate\r\n*1\r\n$1\r\nk\r\n"), "{requests:?}");
    }
}

#[test]
fn a_client_whose_user_is_off_or_gone_does_nothing_more() {
    for change in ["ACL SETUSER me off", "ACL DELUSER me"] {
        let (mut world, admin) = world();
        let id = come(&mut world);
        say(&mut world, admin, &["ACL SETUSER me on nopass +@all ~* &*"]);
        say(&mut world, id, &["AUTH me x"]);
        let mut requests = vec![words("MULTI"), words(change), words("SET a 1"), words("EXEC")];
        let said = run(&mut world, id, std::mem::take(&mut requests));
        assert!(said.contains("-NOPERM") || said.contains("-NOAUTH"), "{change}: {said}");
        assert!(world.engine.client(id).unwrap().is_leaving, "{change}");
        assert_eq!(say(&mut world, admin, &["EXISTS a"]), ":0\r\n", "{change}");
    }
}

/// The numbers of keys in memory tell how many keys a portion has opened.
#[test]
fn commands_of_many_keys_give_turns() {
    let (mut world, id) = world();
    let lists = |start: &str, end: &str| {
        let mut request = many(start, 3000, |n| format!("k{n}"));
        request.extend(words(end));
        request
    };
    let streams =
        many("XREAD BLOCK 1000 STREAMS", 6000, |n| if n < 3000 { format!("k{n}") } else { "$".into() });
    for request in [
        many("WATCH", 3000, |n| format!("k{n}")),
        lists("LMPOP 3000", "LEFT"),
        lists("BLPOP", "1"),
        lists("BLMPOP 1 3000", "LEFT"),
        streams.clone(),
    ] {
        let name = request[0].clone();
        let (mut world, id) = self::world();
        assert!(begin(&mut world, id, request), "{name:?}");
        let opened = world.engine.keys.cached().0;
        assert!(opened <= 1100, "{name:?} has opened {opened} keys");
        world.engine.run(id, &mut [].into(), || true);
        let client = world.engine.client(id).unwrap();
        assert!(client.work.is_none());
        assert_eq!(client.wait.is_some(), name.starts_with(b"BL") || name == "XREAD", "{name:?}");
    }
    // What is there is found, wherever it is, and as it is at the end.
    say(&mut world, id, &["RPUSH k2500 a b"]);
    let said = run(&mut world, id, vec![lists("LMPOP 3000", "LEFT")]);
    assert_eq!(said, "*2\r\n$5\r\nk2500\r\n*1\r\n$1\r\na\r\n");
    let other = come(&mut world);
    assert!(begin(&mut world, id, lists("BLPOP", "0")));
    say(&mut world, other, &["RPUSH k7 c"]);
    assert_eq!(run(&mut world, id, vec![]), "*2\r\n$2\r\nk7\r\n$1\r\nc\r\n");
    say(&mut world, other, &["DEL k2500"]);
    assert!(begin(&mut world, id, streams));
    say(&mut world, other, &["XADD k2999 1-1 f v"]);
    world.engine.run(id, &mut [].into(), || true);
    assert_eq!(run(&mut world, id, vec![]), "");
    say(&mut world, other, &["DEL k2999", "XADD k5 1-1 f v"]);
    let said = run(&mut world, id, vec![]);
    assert!(said.starts_with("*1\r\n*2\r\n$2\r\nk5\r\n"), "{said}");
}

#[test]
fn a_transaction_of_many_keys_is_undone() {
    let streams = |count: usize| {
        many("XREAD STREAMS", 2 * count, |n| if n < count { format!("k{n}") } else { "0".into() })
    };
    for (count, is_done) in [(80_000, true), (100_000, false)] {
        let (mut world, id) = world();
        let read = streams(count);
        let said = run(&mut world, id, vec![words("MULTI"), words("SET a 1"), read, words("EXEC")]);
        let end =
            if is_done { "*2\r\n+OK\r\n*-1\r\n" } else { "for a transaction or a script: run it alone\r\n" };
        assert!(said.ends_with(end), "{count}: {said}");
        assert_eq!(say(&mut world, id, &["EXISTS a"]), format!(":{}\r\n", u8::from(is_done)));
    }
}

#[test]
fn too_many_keys_are_refused_before_they_are_opened() {
    for start in ["BLPOP", "BLMPOP 0 20000", "XREAD BLOCK 0 STREAMS"] {
        let (mut world, id) = world();
        let mut request = many(start, 20_000, |n| format!("k{n}"));
        match start {
            "BLPOP" => request.push("0".into()),
            "BLMPOP 0 20000" => request.push("LEFT".into()),
            _ => request.extend(many("$", 19_999, |_| "$".into())),
        }
        let said = run(&mut world, id, vec![request]);
        assert!(said.starts_with("-ERR a client waits for at most 16384 keys"), "{start}: {said}");
        assert_eq!(world.engine.keys.cached().0, 0, "{start}");
    }
}

#[test]
fn a_key_that_is_named_often_wakes_once() {
    let (mut world, id) = world();
    let other = come(&mut world);
    let mut request = many("BLPOP", 9000, |n| format!("k{}", n % 3));
    request.push("0".into());
    world.engine.run(id, &mut [request].into(), || true);
    assert_eq!(say(&mut world, other, &["SET k0 x", "RPUSH k2 a b"]), "+OK\r\n:2\r\n");
    assert_eq!(say(&mut world, id, &[]), "*2\r\n$2\r\nk2\r\n$1\r\na\r\n");
    let request = words("XREAD BLOCK 0 STREAMS s s t s $ 5 0 1");
    world.engine.run(id, &mut [request].into(), || true);
    say(&mut world, other, &["XADD s 3-0 f v"]);
    let said = say(&mut world, id, &[]);
    assert!(said.starts_with("*2\r\n*2\r\n$1\r\ns\r\n*1\r\n"), "{said}");
}

#[test]
fn a_walk_may_repeat_its_last_step_and_others_do_not_end_it() {
    let (mut world, id) = world();
    run(&mut world, id, vec![many("MSET", 50, |n| format!("k{n:02} x"))]);
    say(&mut world, id, &["ACL SETUSER bob on nopass +@all ~* &*"]);
    let cursor = |said: &str| said.split("\r\n").nth(2).unwrap().to_owned();
    let first = cursor(&say(&mut world, id, &["SCAN 0"]));
    let scan = format!("SCAN {first}");
    let second = say(&mut world, id, &[&scan]);
    let again = say(&mut world, id, &[&scan]);
    let keys = |said: &str| said.split_once("*10\r\n").unwrap_or_else(|| panic!("{said}")).1.to_owned();
    assert_eq!(keys(&second), keys(&again), "the reply was lost, and the step is asked for again");
    assert!(say(&mut world, id, &["SELECT 1", &scan, "SELECT 0"]).contains("-ERR invalid cursor"));
    let bob = come(&mut world);
    say(&mut world, bob, &["AUTH bob x"]);
    assert!(say(&mut world, bob, &[&scan]).starts_with("-ERR invalid cursor"));
    for _ in 0..5000 {
        world.engine.run(bob, &mut [words("SCAN 0 COUNT 1")].into(), || true);
        world.engine.take_ready(bob);
    }
    let third = say(&mut world, id, &[&format!("SCAN {}", cursor(&again))]);
    assert!(third.contains("k20") || third.contains("k2"), "{third}");
    // The step before the last one is not kept.
    assert!(say(&mut world, id, &[&scan]).starts_with("-ERR invalid cursor"));
}
