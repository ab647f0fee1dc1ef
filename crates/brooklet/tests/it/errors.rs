//! Bad input and hostile circumstances: each a typed error that says what to do, and nothing
//! acknowledged is lost.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use brooklet::error::{Expected, Found};
use brooklet::io::{Fault, ManualClock, MemVolume};
use brooklet::{Class, Commit, Create, Error, ErrorKind, MemoryConfig, Options, SpaceConfig, Store};

fn small() -> Options {
    Options::new().ring_size(1 << 20).max_payload(64 << 10)
}

fn memory() -> (MemVolume, Store) {
    let volume = MemVolume::new(3);
    let store = manual().create_on(Arc::new(volume.clone())).unwrap();
    (volume, store)
}

fn manual() -> Options {
    let clock = Arc::new(ManualClock::default());
    Options::new().ring_size(64 << 10).max_payload(8 << 10).threads(false).clock(clock).rng_seed(3)
}

/// Found by power cuts of a virtual machine, where every process that makes the store has the same
/// number: the draft that the last one left when the power went kept the next one from making a
/// store. Numbers of processes name nothing now.
#[test]
fn half_a_store_that_others_left_or_are_at_is_no_hindrance() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let draft = |number: &str| dir.path().join(format!("store.new-{number}"));
    fs::write(draft("0000000000000017"), vec![0; 9000]).unwrap();
    fs::write(draft("0123456789abcdef"), "").unwrap();
    // In an earlier state, a copy that somebody had named like this was taken for a draft.
    let others = ["00123456789abcdef", "2", "20240101", "FEDCBA9876543210", "no number"];
    others.iter().for_each(|number| fs::write(draft(number), "somebody's").unwrap());
    let held = fs::File::create(draft("0000000000000018")).unwrap();
    held.try_lock().unwrap();
    drop(small().open(&path).unwrap());
    assert!(draft("0000000000000018").exists(), "another one is at it, and goes on");
    // Closing it is not enough where another test has forked a child meanwhile.
    held.unlock().unwrap();
    fs::remove_file(&path).unwrap();
    drop(small().open(&path).unwrap());
    let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|found| found.unwrap().path()).collect();
    left.sort();
    assert_eq!(left, [vec![path], others.map(draft).to_vec()].concat());
}

#[test]
fn keys_payloads_and_commits_over_their_limits() {
    let store = Store::in_memory(1).unwrap();
    assert!(matches!(store.append("", b"x"), Err(Error::InvalidKey { len: 0 })));
    assert!(matches!(store.append([7; 1025], b"x"), Err(Error::InvalidKey { len: 1025 })));
    assert!(matches!(store.read("", ..), Err(Error::InvalidKey { len: 0 })));
    store.append([7; 1024], b"x").unwrap().wait().unwrap();
    let limit = 512 << 10;
    let over = store.append("log", vec![0; limit + 1]);
    assert!(matches!(over, Err(Error::PayloadTooLarge { limit: l, .. }) if l == limit), "{over:?}");
    store.append("log", vec![0; limit]).unwrap().wait().unwrap();
    let payload = vec![0; limit];
    let mut commit = Commit::new();
    for _ in 0..3 {
        commit.append("log", &payload);
    }
    assert!(matches!(store.commit(&commit), Err(Error::CommitTooLarge { .. })));
    assert!(matches!(store.commit(&Commit::new()), Err(Error::EmptyCommit)));
    assert!(matches!(store.append_many("log", Vec::<&[u8]>::new()), Err(Error::EmptyCommit)));
    assert_eq!(store.bounds("log").unwrap().next, 1, "what was refused left no trace");
}

#[test]
fn ranges_and_logs_that_are_not_there() {
    let store = Store::in_memory(1).unwrap();
    for error in [
        store.read("none", ..).err(),
        store.bounds("none").err(),
        store.trim("none", 0).err(),
        store.keep_last("none", 1).err(),
        store.truncate("none", 0).err(),
        store.delete("none").err(),
    ] {
        assert!(matches!(&error, Some(Error::UnknownLog { key }) if key.0 == b"none"), "{error:?}");
        assert_eq!(error.unwrap().kind(), ErrorKind::NotFound);
    }
    store.append_many("log", ["a", "b", "c", "d"]).unwrap().wait().unwrap();
    store.trim("log", 2).unwrap().wait().unwrap();
    store.trim("log", 1).unwrap().wait().unwrap();
    assert_eq!(store.bounds("log").unwrap().first, 2, "trimming what is trimmed changes nothing");
    for (asked, error) in [
        (1, store.read("log", 1..).err()),
        (5, store.read("log", 5..).err()),
        (9, store.read("log", 2..9).err()),
        (5, store.trim("log", 5).err()),
        (1, store.truncate("log", 1).err()),
        (5, store.truncate("log", 5).err()),
    ] {
        assert!(
            matches!(error, Some(Error::OutOfRange { asked: a, first: 2, next: 4, .. }) if a == asked),
            "{error:?}"
        );
    }
    assert_eq!(store.read("log", 4..).unwrap().count(), 0, "the end itself is within");
}

#[test]
fn a_failed_expectation_names_the_log_and_what_was_found() {
    let store = Store::in_memory(1).unwrap();
    store.append("a", b"x").unwrap().wait().unwrap();
    let mut commit = Commit::new();
    commit.append("b", b"y").expect_next("a", 4).append("a", b"y");
    let error = store.commit(&commit).unwrap_err();
    assert!(
        matches!(&error, Error::Conflict { key, expected: Expected::Next(4), found: Found::Next(1) } if key.0 == b"a"),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(
        error.to_string(),
        "log \"a\" was expected to have next entry 4, but its next entry is 1: read the log again, then retry the commit"
    );
    assert!(!store.exists("b").unwrap(), "the commit failed whole");
    let mut commit = Commit::new();
    commit.expect_absent("a").append("a", b"z");
    assert!(matches!(store.commit(&commit), Err(Error::Conflict { expected: Expected::Absent, .. })));
    let mut commit = Commit::new();
    commit.expect_next("new", 0).expect_absent("new").append("new", b"z");
    store.commit(&commit).unwrap().wait().unwrap();
}

#[test]
fn files_that_are_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("empty"), b"").unwrap();
    fs::write(path("text"), vec![b'x'; 200_000]).unwrap();
    fs::write(path("zeros"), vec![0; 200_000]).unwrap();
    for name in ["empty", "text", "zeros", ""] {
        let error = small().open(path(name)).unwrap_err();
        assert!(matches!(error, Error::NotAStore { .. }), "{name}: {error}");
        assert_eq!(error.kind(), ErrorKind::CannotOpen);
    }
    assert_eq!(fs::read(path("text")).unwrap(), vec![b'x'; 200_000], "a file that is not ours is left alone");
    let error = small().create(Create::Never).open(path("missing")).unwrap_err();
    assert!(
        matches!(&error, Error::Io { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound),
        "{error}"
    );
    assert!(matches!(small().create(Create::New).open(path("text")), Err(Error::Exists { .. })));
    let error = small().open(path("no/such/dir")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn options_that_make_no_sense() {
    let metrics = |every| small().metrics_file("metrics", every);
    let second = Duration::from_secs(1);
    for (options, words) in [
        (small().ring_size(1000), "a ring of 1000 bytes"),
        (small().ring_size(65_537), "a ring of 65537 bytes"),
        (small().capacity(5000), "a capacity of 5000 bytes"),
        (small().depth(0), "0 writes in flight"),
        (small().block_size(1), "a block of 1 bytes"),
        (small().write_rate(4095), "a rate of 4095 bytes/s"),
        (small().write_interval(3601 * second), "a write every 3601 s"),
        (small().linger(Duration::MAX), "a linger of"),
        (small().memory_budget(1000), "a memory budget of 1000 bytes"),
        (small().cache_budget(1000), "a cache budget of 1000 bytes"),
        (small().read_only(true).create(Create::New), "a new store cannot be read-only"),
        (metrics(Duration::ZERO), "an interval of 0"),
        (metrics(second).threads(false), "needs a thread of the store"),
    ] {
        let error = options.open("/nowhere").unwrap_err();
        assert!(matches!(&error, Error::InvalidOptions(what) if what.contains(words)), "{error}");
    }
}

/// A payload as large as may be asked for fits in an empty ring, with the longest key; more cannot
/// be asked for, of a new store or of one that is there.
#[test]
fn payloads_that_the_ring_does_not_take_are_refused_at_opening() {
    for ring in [64 << 10, 100 << 10, 1 << 20, 8 << 20] {
        let options = || manual().ring_size(ring);
        let volume = Arc::new(MemVolume::new(3));
        let error =
            options().max_payload(ring as usize / 2).create_on(volume.clone()).unwrap_err().to_string();
        let words = format!("in a ring of {ring} bytes: use at most ");
        let most: usize = error.split_once(&words).unwrap().1.split(' ').next().unwrap().parse().unwrap();
        assert!(most as u64 > ring / 8, "{error}");
        let store = options().max_payload(most).create_on(volume.clone()).unwrap();
        store.append([7; 1024], vec![1; most]).unwrap().wait().unwrap();
        store.close().unwrap();
        drop(store);
        assert!(manual().max_payload(most + 1).open_on(volume.clone()).is_err());
        manual().max_payload(most + 1).read_only(true).open_on(volume.clone()).unwrap();
        manual().max_payload(most).open_on(volume).unwrap();
    }
}

#[test]
fn a_ring_elsewhere_is_not_forgotten_on_a_volume_that_was_given() {
    let volume = Arc::new(MemVolume::new(3));
    let error = manual().ring_at("ring").create_on(volume).unwrap_err();
    assert!(matches!(&error, Error::InvalidOptions(what) if what.contains("a ring at ring")), "{error}");
}

#[test]
fn a_newer_format_a_cut_file_and_a_damaged_superblock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = small().open(&path).unwrap();
    for i in 0..2000 {
        drop(store.append(format!("log/{}", i % 100), vec![i as u8; 300]).unwrap());
    }
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    let whole = fs::read(&path).unwrap();
    let open_as = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        small().create(Create::Never).open(&path)
    };
    // One damaged copy is no harm.
    let mut bytes = whole.clone();
    bytes[4096..4200].fill(0xff);
    drop(open_as(&bytes).unwrap());
    for copies in 0..3 {
        bytes[copies * 4096 + 40] ^= 1;
    }
    let error = open_as(&bytes).unwrap_err();
    assert!(matches!(&error, Error::Damaged { place, .. } if place == "the superblock"), "{error}");
    // A later version that kept the magic and the checksum.
    let mut bytes = whole.clone();
    for copy in 0..3 {
        let slot = &mut bytes[copy * 4096..copy * 4096 + 512];
        slot[8] = 9;
        let sum = twox_hash::XxHash3_64::oneshot(&slot[..504]);
        slot[504..].copy_from_slice(&sum.to_le_bytes());
    }
    let error = open_as(&bytes).unwrap_err();
    assert!(matches!(error, Error::NewerFormat { found: 9, known: 8, .. }), "{error}");
    for cut in [100_000, (1 << 20) + (64 << 10) + 100, (1 << 20) + (64 << 10) + 8192] {
        let error = open_as(&whole[..cut]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "cut to {cut}: {error}");
        assert!(error.to_string().contains("cut short") || error.to_string().contains("damage"), "{error}");
    }
    let store = open_as(&whole).unwrap();
    assert_eq!(store.bounds("log/7").unwrap().next, 20);
}

#[test]
fn a_second_opener_is_told_who_the_first_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = small().open(&path).unwrap();
    for options in [small(), small().read_only(true)] {
        let error = options.open(&path).unwrap_err();
        let me = format!("process {}", std::process::id());
        assert!(matches!(&error, Error::Locked { holder, .. } if holder.contains(&me)), "{error}");
        assert!(error.to_string().contains("this process has it open already"), "{error}");
        assert_eq!(error.kind(), ErrorKind::CannotOpen);
    }
    drop(store);
    let reader = small().read_only(true).open(&path).unwrap();
    let second = small().read_only(true).open(&path).unwrap();
    assert!(matches!(reader.append("log", b"x"), Err(Error::ReadOnly)));
    assert!(matches!(second.flush(), Err(Error::ReadOnly)));
}

#[cfg(unix)]
#[test]
fn a_file_without_permission() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    drop(small().open(&path).unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    match small().open(&path) {
        Err(error) => assert!(
            matches!(&error, Error::Io { cause, .. } if cause.kind() == std::io::ErrorKind::PermissionDenied),
            "{error}"
        ),
        Ok(_) => eprintln!("this user may open everything; nothing to see"),
    }
}

#[test]
fn a_failed_write_stops_the_store_and_reads_go_on() {
    let (volume, store) = memory();
    store.append("log", b"safe").unwrap().wait().unwrap();
    volume.fail(Fault::ErrorAfter { operations: 0, kind: std::io::ErrorKind::Other, sticky: false });
    let ticket = store.append("log", b"lost?").unwrap();
    let error = ticket.wait().unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert!(
        matches!(store.append("log", b"more"), Err(Error::Stopped { .. })),
        "it does not go on as if nothing were"
    );
    assert!(matches!(store.checkpoint(), Err(Error::Stopped { .. })));
    let entries: Vec<_> = store.read("log", ..).unwrap().map(|e| e.unwrap().payload).collect();
    assert_eq!(entries, [&b"safe"[..]], "reads go on, and show what was acknowledged");
    assert!(store.info().unwrap().stopped.is_some());
    assert!(store.close().is_err());
    drop(store);
    let store = manual().open_on(Arc::new(volume)).unwrap();
    assert!(store.bounds("log").unwrap().next >= 1);
}

/// A commit in memory makes no write, so that nothing but a look at the log shows that it can never
/// be dumped.
#[test]
fn a_store_that_stopped_acknowledges_nothing_in_memory() {
    let (volume, store) = memory();
    let class = Class::Memory(MemoryConfig::new(1 << 20));
    let space = store.create_space("s", SpaceConfig::new().class(class)).unwrap();
    space.append("log", b"safe").unwrap().wait().unwrap();
    volume.fail(Fault::ErrorAfter { operations: 0, kind: std::io::ErrorKind::Other, sticky: false });
    assert!(matches!(store.append("log", b"lost?").unwrap().wait(), Err(Error::Stopped { .. })));
    let error = space.append("log", b"more").map(drop).unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    let mut commit = Commit::new();
    commit.trim("log", 1);
    assert!(matches!(space.try_commit(&commit), Err(Error::Stopped { .. })));
    let entries: Vec<_> = space.read("log", ..).unwrap().map(|e| e.unwrap().payload).collect();
    assert_eq!(entries, [&b"safe"[..]], "reads go on");
    assert!(matches!(store.close(), Err(Error::Stopped { .. })));
}

#[test]
fn a_failed_flush_in_a_checkpoint_stops_the_store() {
    let (volume, store) = memory();
    store.append("log", b"safe").unwrap().wait().unwrap();
    // The operations of a checkpoint: the run, the manifest, then the flush.
    volume.fail(Fault::ErrorAfter { operations: 2, kind: std::io::ErrorKind::Other, sticky: false });
    let error = store.checkpoint().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Stopped), "{error}");
    assert!(matches!(store.append("log", b"more"), Err(Error::Stopped { .. })));
    let store = manual().open_on(Arc::new(MemVolume::from_image(volume.crash(), 1))).unwrap();
    assert_eq!(store.read("log", ..).unwrap().count(), 1);
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let (volume, store) = memory();
    volume.fail(Fault::Full(volume_size(&volume)));
    let noise = |n: usize| {
        let mut rng = brooklet::io::Rng::new(n as u64);
        (0..2000).map(|_| rng.next() as u8).collect::<Vec<_>>()
    };
    let mut safe = 0;
    let refused = loop {
        match store.append("log", noise(safe)).map(|ticket| ticket.wait()) {
            Ok(done) => done.unwrap(),
            Err(error) => break error,
        }
        safe += 1;
        assert!(safe < 1000, "a full disk must show");
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Full);
    assert_eq!(store.read("log", ..).unwrap().count(), safe, "reads go on");
    store.trim("log", 5).unwrap().wait().unwrap();
    // Room again: everything goes on, and what was safe still is.
    volume.fail(Fault::Full(u64::MAX));
    for n in 0..100 {
        store.append("other", vec![n; 2000]).unwrap().wait().unwrap();
    }
    store.close().unwrap();
    let store = manual().open_on(Arc::new(volume)).unwrap();
    for (i, entry) in store.read("log", ..).unwrap().enumerate() {
        assert_eq!(entry.unwrap().payload, noise(i + 5));
    }
    assert_eq!(store.bounds("log").unwrap().next, safe as u64);
}

fn volume_size(volume: &MemVolume) -> u64 {
    use brooklet::io::Volume;
    volume.size().unwrap()
}

#[test]
fn a_store_that_finds_no_room_is_not_left_half_made() {
    let volume = MemVolume::new(1);
    volume.fail(Fault::Full(100_000));
    assert!(matches!(manual().create_on(Arc::new(volume)), Err(Error::Full { what: "a new store", .. })));
}

/// Of too many runs, one of them damaged, those are merged that are newer than it; everything else
/// goes on.
#[test]
fn damage_that_a_compaction_meets_leaves_newer_runs_to_be_merged() {
    let (volume, store) = memory();
    let mut rng = brooklet::io::Rng::new(1);
    for n in 0..3 {
        let noise: Vec<u8> = (0..3000).map(|_| rng.next() as u8).collect();
        store.append(format!("log/{n}"), noise).unwrap().wait().unwrap();
        store.checkpoint().unwrap();
    }
    let run = store.info().unwrap().runs[1];
    volume.flip(run.offset as usize + 500, 3);
    for n in 3..15 {
        store.append(format!("log/{n}"), b"sound").unwrap().wait().unwrap();
        store.checkpoint().unwrap();
    }
    assert!(store.damage().is_empty(), "nobody has met it");
    while store.step().unwrap() {}
    let info = store.info().unwrap();
    assert_eq!(info.runs.iter().map(|run| run.damaged).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!((info.maintenance.compactions, info.runs[1].id, store.damage().len()), (1, run.id, 1));
    assert!(matches!(store.read("log/1", ..), Err(Error::Damaged { .. })));
    assert_eq!(store.read("log/2", ..).unwrap().flatten().count(), 1);
    store.append("log/2", b"goes on").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
}
