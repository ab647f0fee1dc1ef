//! Logs that begin at any number: alone, after a restart, in runs, in spaces, with limits, under
//! readers, exported and imported.

use std::sync::Arc;
use std::time::Duration;

use brooklet::io::MemVolume;
use brooklet::{
    Bounds, Class, Commit, Error, ErrorKind, Import, MAX_SEQ, MemoryConfig, Options, Retention, SpaceConfig,
    Store, TailEvent, WatchEvent,
};

use crate::common::{contents, seen};

fn options() -> Options {
    Options::new().ring_size(256 << 10).memory_budget(256 << 10).max_payload(32 << 10)
}

fn bounds(store: &Store, key: &str) -> (u64, u64) {
    let Bounds { first, next } = store.bounds(key).unwrap();
    (first, next)
}

fn payloads(store: &Store, key: &str) -> Vec<String> {
    let entries = store.read(key, ..).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| String::from_utf8(entry.payload.to_vec()).unwrap()).collect()
}

#[test]
fn a_log_begins_where_it_is_told_to() {
    let store = Store::in_memory(1).unwrap();
    // A log that does not exist.
    store.begin_at("new", 100).unwrap().wait().unwrap();
    assert_eq!(bounds(&store, "new"), (100, 100));
    assert_eq!(store.append("new", "a").unwrap().seq(), 100);
    // A log that begins at 0 exists, too.
    store.begin_at("zero", 0).unwrap().wait().unwrap();
    assert_eq!(bounds(&store, "zero"), (0, 0));
    // Within the log: a trim.
    drop(store.append_many("log", ["a", "b", "c", "d"]).unwrap());
    store.begin_at("log", 2).unwrap().wait().unwrap();
    assert_eq!((bounds(&store, "log"), payloads(&store, "log")), ((2, 4), vec!["c".into(), "d".into()]));
    // Trimmed entries do not return.
    store.begin_at("log", 1).unwrap().wait().unwrap();
    assert_eq!(bounds(&store, "log"), (2, 4));
    // At the end, and past it.
    store.begin_at("log", 4).unwrap().wait().unwrap();
    assert_eq!(bounds(&store, "log"), (4, 4));
    store.begin_at("log", 10).unwrap().wait().unwrap();
    assert_eq!(bounds(&store, "log"), (10, 10));
    assert_eq!(store.append("log", "e").unwrap().seq(), 10);
    // A trim stays within the log: a mistake does not move its end.
    assert!(matches!(store.trim("log", 12), Err(Error::OutOfRange { asked: 12, first: 10, next: 11, .. })));
    // A deleted log begins anew, also at a number that the old log had.
    drop(store.delete("log").unwrap());
    drop(store.begin_at("log", 3).unwrap());
    store.append("log", "again").unwrap().wait().unwrap();
    assert_eq!((bounds(&store, "log"), payloads(&store, "log")), ((3, 4), vec!["again".into()]));
}

#[test]
fn numbers_that_no_log_may_reach_are_refused() {
    let store = Store::in_memory(1).unwrap();
    store.append("log", "a").unwrap().wait().unwrap();
    for asked in [MAX_SEQ + 1, u64::MAX] {
        let error = store.begin_at("log", asked).unwrap_err();
        assert!(matches!(error, Error::NumberTooLarge { asked: of, .. } if of == asked), "{error}");
    }
    assert_eq!(bounds(&store, "log"), (0, 1));
    drop(store.begin_at("log", MAX_SEQ).unwrap());
    assert_eq!(store.append("log", "last").unwrap().seq(), MAX_SEQ);
    store.flush().unwrap();
    assert_eq!(payloads(&store, "log"), ["last"]);
    store.checkpoint().unwrap();
    assert_eq!(
        (bounds(&store, "log"), payloads(&store, "log")),
        ((MAX_SEQ, MAX_SEQ + 1), vec!["last".into()])
    );
}

/// An import takes the numbers that a log may have that began at the greatest number, and no
/// greater ones.
#[test]
fn imports_of_numbers_that_no_log_may_reach_are_refused() {
    let (store, dir) = (Store::in_memory(1).unwrap(), tempfile::tempdir().unwrap());
    let mut import = store.import().unsorted(dir.path()).unwrap();
    for asked in [(1 << 63) + 1, u64::MAX] {
        let error = import.log("log", asked, Retention::new()).unwrap_err();
        assert!(
            matches!(error, Error::InvalidImport(_)) && error.to_string().contains("log \"log\""),
            "{error}"
        );
    }
    import.log("log", MAX_SEQ + 7, Retention::new()).unwrap();
    import.append("log", "x").unwrap();
    assert_eq!(import.finish().unwrap().logs, 1);
    assert_eq!(bounds(&store, "log"), (MAX_SEQ + 7, MAX_SEQ + 8));
    let mut import = store.import().unsorted(dir.path()).unwrap();
    import.log("over", 1 << 63, Retention::new()).unwrap();
    import.append("over", "x").unwrap();
    assert!(matches!(import.finish(), Err(Error::InvalidImport(_))));
}

/// In memory, and in a temporary file.
#[test]
fn an_import_may_refuse_logs_that_begin_twice() {
    let dir = tempfile::tempdir().unwrap();
    for others in [1, 40_000_u64] {
        let store = Store::in_memory(1).unwrap();
        let of = |import: Import| {
            let mut import = import.memory(1 << 20).unsorted(dir.path())?;
            import.log("log", 5, Retention::new())?;
            (0..others).try_for_each(|n| import.append(format!("other/{n}"), [0_u8; 100]))?;
            import.append("log", "x")?;
            import.log("log", 7, Retention::new())?;
            import.finish()
        };
        let error = of(store.import().logs_once()).unwrap_err();
        assert!(error.to_string().contains("log \"log\" begins twice"), "{error}");
        assert!(matches!(error, Error::InvalidImport(_)) && !store.exists("log").unwrap());
        assert_eq!(of(store.import()).unwrap().entries, others + 1);
        assert_eq!(bounds(&store, "log"), (7, 8));
    }
}

#[test]
fn a_commit_moves_a_log_and_its_state_at_once() {
    let store = Store::in_memory(1).unwrap();
    let mut commit = Commit::new();
    commit.begin_at("raft/log", 500).append("raft/log", "x").snapshot("raft/state", "purged 499");
    assert_eq!(store.commit(&commit).unwrap().seqs(), [500, 0]);
    // Several times in one commit, and refused as a whole.
    let mut commit = Commit::new();
    commit
        .begin_at("raft/log", 900)
        .append("raft/log", "y")
        .begin_at("raft/log", 1_000)
        .truncate("raft/log", 999);
    assert!(matches!(store.commit(&commit), Err(Error::OutOfRange { asked: 999, first: 1_000, .. })));
    store.flush().unwrap();
    assert_eq!((bounds(&store, "raft/log"), payloads(&store, "raft/log")), ((500, 501), vec!["x".into()]));
    commit.clear();
    commit.expect_next("raft/log", 501).begin_at("raft/log", 900).append("raft/log", "y");
    commit.delete("raft/log").begin_at("raft/log", 7).append("raft/log", "z");
    assert_eq!(store.commit(&commit).unwrap().seqs(), [900, 7]);
    store.flush().unwrap();
    assert_eq!((bounds(&store, "raft/log"), payloads(&store, "raft/log")), ((7, 8), vec!["z".into()]));
}

/// The same logs from the ring, from runs, from merged runs, and from a mixture.
#[test]
fn logs_that_begin_anywhere_survive_restarts_and_merges() {
    for checkpoints in 0..4 {
        let volume = Arc::new(MemVolume::new(1));
        let store = options().create_on(volume.clone()).unwrap();
        let mut at = 0;
        for round in 0..4u64 {
            let first = at + round * 1_000;
            drop(store.begin_at("log", first).unwrap());
            store.append_many("log", [format!("{round}a"), format!("{round}b")]).unwrap().wait().unwrap();
            store.begin_at(format!("empty/{round}"), round).unwrap().wait().unwrap();
            at = first + 2;
            if round < checkpoints {
                store.checkpoint().unwrap();
            }
        }
        store.append("log", "end").unwrap().wait().unwrap();
        let before = contents(&store).unwrap();
        assert_eq!((before[&b"log"[..]].first, before[&b"log"[..]].next()), (6_006, 6_009));
        assert_eq!(before[&b"empty/3"[..]].first, 3);
        assert_eq!(seen(&store.view().unwrap()), before);
        store.close().unwrap();
        drop(store);
        let report = brooklet::check_volume(volume.clone(), brooklet::Progress::ignore).unwrap();
        assert!(report.is_sound(), "{report:?}");
        let store = options().open_on(volume).unwrap();
        assert!(contents(&store).unwrap() == before, "{checkpoints} checkpoints: another store");
        store.compact().unwrap();
        assert!(contents(&store).unwrap() == before, "{checkpoints} checkpoints, compacted: another store");
        assert_eq!(store.append("empty/2", "x").unwrap().seq(), 2);
    }
}

#[test]
fn limits_go_on_in_a_log_that_begins_anew() {
    let store = Store::in_memory(1).unwrap();
    let limits = Retention::new().entries(3).bytes(10).age(Duration::from_secs(1_000));
    drop(store.set_retention("log", limits).unwrap());
    drop(store.append_many("log", ["one", "two", "three"]).unwrap());
    drop(store.begin_at("log", 50).unwrap());
    store.flush().unwrap();
    assert_eq!((bounds(&store, "log"), store.retention("log").unwrap()), ((50, 50), limits));
    store.append_many("log", ["four", "five", "six"]).unwrap().wait().unwrap();
    assert_eq!(payloads(&store, "log"), ["five", "six"], "10 bytes");
    store.append_many("log", ["a", "b", "c", "d"]).unwrap().wait().unwrap();
    assert_eq!(payloads(&store, "log"), ["b", "c", "d"], "3 entries");
    // Refused commits leave no trace in the counted sizes.
    let mut commit = Commit::new();
    commit.begin_at("log", 90).append("log", "0123456789").expect_next("log", 1);
    assert!(matches!(store.commit(&commit), Err(Error::Conflict { .. })));
    commit.clear();
    commit.begin_at("log", 90).append("log", "0123456789").truncate("log", 12);
    assert!(matches!(store.commit(&commit), Err(Error::OutOfRange { .. })));
    store.append("log", "12345678").unwrap().wait().unwrap();
    assert_eq!(payloads(&store, "log"), ["c", "d", "12345678"]);
}

#[test]
fn spaces_count_and_limit_logs_that_begin_anywhere() {
    let store = Store::in_memory(1).unwrap();
    let kept = Retention::new().entries(2);
    let config = SpaceConfig::new().max_logs(2).max_bytes(100).retention(kept);
    let memory = config.clone().class(Class::Memory(MemoryConfig::new(1 << 20)));
    for (name, config) in [("plain", config), ("memory", memory)] {
        let space = store.create_space(name, config).unwrap();
        space.begin_at("a", 10).unwrap().wait().unwrap();
        assert_eq!(space.retention("a").unwrap(), kept, "{name}");
        let appended = space.append_many("a", ["x", "y", "z"]).unwrap();
        assert_eq!(appended.seqs(), [10, 11, 12], "{name}");
        appended.wait().unwrap();
        let at = |key| space.bounds(key).map(|bounds| (bounds.first, bounds.next)).unwrap();
        assert_eq!(at("a"), (11, 13), "{name}");
        space.begin_at("b", 0).unwrap().wait().unwrap();
        let error = space.begin_at("c", 5).unwrap_err();
        assert!(matches!(error, Error::QuotaReached { what: "logs", .. }), "{name}: {error}");
        assert!(!space.exists("c").unwrap(), "{name}");
        // A full space is made empty by it.
        drop(space.append("b", [7; 90]).unwrap());
        assert!(
            matches!(space.append("a", [7; 20]), Err(Error::QuotaReached { what: "bytes", .. })),
            "{name}"
        );
        drop(space.begin_at("b", 40).unwrap());
        space.append("a", [7; 20]).unwrap().wait().unwrap();
        assert_eq!((at("a"), at("b")), ((12, 14), (40, 40)), "{name}");
    }
    let space = store.space("memory").unwrap();
    space.dump().unwrap();
    assert_eq!(space.append("b", "next").unwrap().seq(), 40);
}

#[test]
fn readers_that_wait_see_where_a_log_begins() {
    let store = Store::in_memory(1).unwrap();
    store.append_many("log", ["a", "b"]).unwrap().wait().unwrap();
    let (mut tail, mut of_new) = (store.tail("log", 1).unwrap(), store.tail("new", 0).unwrap());
    let mut watch = store.watch("").unwrap();
    store.begin_at("log", 9).unwrap().wait().unwrap();
    assert!(store.wait_for("log", 9, Duration::from_secs(100)).unwrap());
    store.append("log", "c").unwrap().wait().unwrap();
    store.begin_at("new", 4).unwrap().wait().unwrap();
    let events: Vec<_> = std::iter::from_fn(|| tail.try_next().unwrap()).collect();
    assert!(
        matches!(&events[..], [TailEvent::Trimmed(gap), TailEvent::Entry(entry)] if *gap == (1..9) && entry.seq == 9),
        "{events:?}"
    );
    let events: Vec<_> = std::iter::from_fn(|| of_new.try_next().unwrap()).collect();
    assert!(matches!(&events[..], [TailEvent::Trimmed(gap)] if *gap == (0..4)), "{events:?}");
    let mut changed = Vec::new();
    while let Some(WatchEvent::Moved { key, bounds }) = watch.try_next().unwrap() {
        changed.push((key, bounds.next));
    }
    assert_eq!(changed, [(b"log".to_vec(), 10), (b"new".to_vec(), 4)]);
}

/// A full store takes a begin that drops entries, and refuses one that creates a log.
#[test]
fn a_full_store_takes_a_begin_that_frees() {
    let volume = Arc::new(MemVolume::new(1));
    let store = options().capacity(3 << 20).create_on(volume).unwrap();
    let mut rng = brooklet::io::Rng::new(3);
    let mut noise = || (0..8 << 10).map(|_| rng.next() as u8).collect::<Vec<_>>();
    let mut appended = 0;
    while let Ok(ticket) = store.append("log", noise()) {
        appended = ticket.seq() + 1;
    }
    let refused = (0..20_000).find_map(|n| store.begin_at(format!("new/{n}"), 5).err());
    assert!(refused.is_some_and(|error| error.kind() == ErrorKind::Full), "logs are created without room");
    store.begin_at("log", appended + 1_000).unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.compact().unwrap();
    assert_eq!(store.append("log", noise()).unwrap().seq(), appended + 1_000);
}

/// A store with 20 small logs, `old/00000` and so on, that takes no more logs.
fn full_store() -> Store {
    let volume = Arc::new(MemVolume::new(1));
    let store = options().capacity(3 << 20).create_on(volume).unwrap();
    for n in 0..20 {
        drop(store.append(format!("old/{n:05}"), "x").unwrap());
    }
    let mut rng = brooklet::io::Rng::new(3);
    let mut noise = || (0..8 << 10).map(|_| rng.next() as u8).collect::<Vec<_>>();
    while store.append("log", noise()).is_ok() {}
    let full = (0..20_000).find_map(|n| store.begin_at(format!("new/{n:05}"), 5).err());
    assert!(full.is_some_and(|error| error.kind() == ErrorKind::Full), "logs are created without room");
    store
}

/// A log that is deleted may leave its number to a log that the same commit creates. In an earlier
/// state, a full store refused such a commit, and so the deletion.
#[test]
fn a_full_store_takes_a_begin_beside_a_deletion() {
    let store = full_store();
    let refused = |commit: &Commit| store.commit(commit).is_err_and(|error| error.kind() == ErrorKind::Full);
    let mut alone = Commit::new();
    alone.begin_at("left/00020", 20);
    assert!(refused(&alone));
    // This commit deletes no log that was there.
    alone.delete("left/00020");
    assert!(refused(&alone));
    for n in 0..20_u64 {
        let mut commit = Commit::new();
        commit.delete(format!("old/{n:05}")).begin_at(format!("left/{n:05}"), n);
        store.commit(&commit).unwrap().wait().unwrap();
        assert_eq!(bounds(&store, &format!("left/{n:05}")), (n, n));
    }
    assert_eq!(store.get_bounds("old/00000").unwrap(), None);
}

/// The key of the new log takes more room than the deleted log did. Such commits, one after the
/// other, would use up the room that is kept for deletions.
#[test]
fn a_full_store_takes_no_begin_of_a_longer_key_beside_a_deletion() {
    let store = full_store();
    let long = "k".repeat(900);
    for n in 0..3_u64 {
        let mut commit = Commit::new();
        commit.delete(format!("old/{n:05}")).begin_at(format!("{long}{n}"), n);
        let refused = store.commit(&commit).err();
        assert!(refused.is_some_and(|error| error.kind() == ErrorKind::Full), "log {n}");
    }
    // Two deletions free less than this key takes.
    let mut commit = Commit::new();
    commit.delete("old/00000").delete("old/00001").begin_at(&long, 5);
    assert!(store.commit(&commit).is_err_and(|error| error.kind() == ErrorKind::Full));
    // These deletions free enough room.
    let mut commit = Commit::new();
    commit.delete("old/00000").delete("old/00001").begin_at("begins/00/01", 5);
    store.commit(&commit).unwrap().wait().unwrap();
    assert_eq!(bounds(&store, "begins/00/01"), (5, 5));
}
