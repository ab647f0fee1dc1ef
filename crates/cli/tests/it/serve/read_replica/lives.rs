//! Lives of a replica: restarts, successors of the owner, and a log that was trimmed past it.

use super::*;
use crate::serve::replication::objects;

#[test]
fn a_replica_goes_on_after_its_own_end_and_after_that_of_the_owner() {
    let mut pair = Pair::new();
    pair.writes.ask("RPUSH l 1 2 3");
    pair.same();
    // A clean stop, and a kill.
    pair.replica.signal(Signal::TERM);
    assert!(pair.replica.end().starts_with("Some(0)"));
    pair.writes.ask("RPUSH l 4");
    start(&mut pair.replica, pair.bucket.path(), &[]);
    pair.reads = Client::at(&pair.replica.socket());
    pair.same();
    pair.writes.ask("LPOP l");
    pair.replica.kill();
    start(&mut pair.replica, pair.bucket.path(), &[]);
    pair.reads = Client::at(&pair.replica.socket());
    assert!(pair.same().contains(&"LRANGE l 0 -1: 2 3 4".to_owned()));
    // A standby takes the store over, beside two replicas, which serve all the while.
    let (mut standby, mut second) = (Host::new(), Host::new());
    standby.start(pair.bucket.path(), &[&["--standby"], &RARELY[..]].concat());
    start(&mut second, pair.bucket.path(), &[]);
    pair.owner.kill();
    assert_eq!(pair.reads.ask("LLEN l"), "3");
    standby.wait_ready();
    pair.writes = Client::at(&standby.socket());
    pair.writes.ask("RPUSH l 5");
    assert!(pair.same().contains(&"LRANGE l 0 -1: 2 3 4 5".to_owned()));
    pair.reads = Client::at(&second.socket());
    pair.same();
}

fn restart_owner(pair: &mut Pair, more: &[&str]) {
    pair.owner.kill();
    pair.owner.start(pair.bucket.path(), more);
    pair.owner.wait_ready();
    pair.writes = Client::at(&pair.owner.socket());
}

#[test]
fn a_replica_that_the_log_was_trimmed_past_serves_a_file_made_anew() {
    let mut pair = Pair::new();
    pair.writes.ask("SET a old");
    pair.same();
    pair.replica.signal(Signal::STOP);
    restart_owner(&mut pair, &[]);
    let begin = Instant::now();
    let records = || objects(pair.bucket.path(), "records");
    // A record is made once the objects before the last one have gone.
    let enough = records() + 3;
    while records() < enough {
        pair.writes.ask("SET a older");
        assert!(begin.elapsed() < PATIENCE, "no backup is recorded");
        thread::sleep(Duration::from_millis(20));
    }
    // A further backup might let the log be trimmed past the replica again.
    restart_owner(&mut pair, &RARELY);
    pair.writes.ask("SET a new");
    pair.replica.signal(Signal::CONT);
    let begin = Instant::now();
    // The server that has the old file disconnects its clients first.
    while pair.reads.try_ask("PING").is_some() {
        assert!(begin.elapsed() < PATIENCE, "the old file is still served");
        thread::sleep(Duration::from_millis(20));
    }
    loop {
        let mut client = Client::at(&pair.replica.socket());
        let info = client.try_ask("INFO replication").unwrap_or_default();
        if info.contains("brooklet_replica_made_anew:1\r\n") {
            pair.reads = client;
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{info}");
        thread::sleep(Duration::from_millis(50));
    }
    pair.same();
    assert_eq!(pair.reads.ask("GET a"), "new");
    pair.writes.ask("SET a newer");
    pair.same();
    pair.replica.signal(Signal::TERM);
    let end = pair.replica.end();
    assert!(end.starts_with("Some(0)") && end.contains("clients connect again"), "{end}");
}

#[test]
fn what_cannot_be_a_replica_is_refused() {
    let bucket = tempfile::tempdir().unwrap();
    let address = bucket.path().to_str().unwrap();
    let host = Host::new();
    let refused = |code, args: &[&str]| host.place.fails(code, &[&["serve", "STORE"], args].concat());
    assert!(refused(2, &["--read-replica"]).contains("--read-replica needs --replicate"));
    let both = refused(2, &["--read-replica", "--replicate", address, "--standby"]);
    assert!(both.contains("a read replica never does"), "{both}");
    let none = ["--read-replica", "--replicate", address, "--listen", "unix:socket", "--http", ""];
    // Somebody has named a wrong place.
    let message = refused(4, &none);
    assert!(message.contains(&format!("{address} keeps no log of a store")), "{message}");
    assert!(!host.place.store.exists() && objects(bucket.path(), "") == 0, "nothing is left");
}
