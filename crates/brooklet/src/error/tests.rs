//! Every error there is, met through the public calls: each says what happened, where, and what to
//! do.
//!
//! The tables make matches without a wildcard: a variant that is added and not listed here does not
//! compile.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake};

use brooklet_codex::{Builder, BuilderOptions, Bytes, Reader};
use brooklet_io::{Fault, ManualClock, MemVolume, Volume};
use tempfile::TempDir;

use super::*;
use crate::{
    Class, Commit, Create, LocalLog, MemoryConfig, Mirror, MirrorHandle, MirrorOptions, Options, Retention,
    SealedBlock, Space, SpaceConfig, Store,
};

/// How to provoke a variant, how to react to it, and what its message holds.
struct Case {
    variant: &'static str,
    provoke: fn() -> Error,
    kind: ErrorKind,
    says: &'static [&'static str],
}

macro_rules! errors {
    ($($variant:ident, $kind:ident, $provoke:expr, $says:expr;)*) => {
        fn variant(error: &Error) -> &'static str {
            match error { $(Error::$variant { .. } => stringify!($variant),)* }
        }
        const CASES: &[Case] = &[$(Case {
            variant: stringify!($variant),
            provoke: $provoke,
            kind: ErrorKind::$kind,
            says: &$says,
        },)*];
    };
}

errors! {
    InvalidKey, Invalid, || memory().append([7; 1025], b"x").unwrap_err(), ["key of 1025 bytes", "use 1 to 1024"];
    PayloadTooLarge, Invalid, || memory().append("log", [0; 9000]).unwrap_err(),
        ["payload of 9000 bytes", "limit of 8192", "split it", "`max_payload`"];
    CommitTooLarge, Invalid, a_commit_too_large, ["commit of", "over the limit of", "split it", "larger ring"];
    EmptyCommit, Invalid, || memory().commit(&Commit::new()).unwrap_err(), ["no operation"];
    InvalidOptions, Invalid, || Options::new().depth(0).open("nowhere").unwrap_err(),
        ["0 writes in flight", "use 1 to 1024"];
    InvalidRetention, Invalid, || memory().set_retention("log", Retention::new().entries(u64::MAX)).unwrap_err(),
        ["a limit of 18446744073709551615 entries", "use at most 2^62"];
    InvalidSpace, Invalid, || memory().create_space("a/b", SpaceConfig::new()).unwrap_err(),
        ["\"a/b\" is not a valid name", "use 1 to 64 letters"];
    UnknownSpace, NotFound, || memory().space("games").unwrap_err(), ["no space games", "create it"];
    QuotaReached, Full, quota_reached, ["exceed the quota of space games, 1 logs", "trim or delete", "a larger quota"];
    MemoryFull, Full, memory_full, ["the memory of space fast, 65536 bytes, is full", "trim or delete", "configure more"];
    MixedSpaces, Invalid, mixed_spaces, ["space fast", "and on other logs", "commit to each space separately"];
    InMemory, Invalid, in_memory, ["space fast is kept in memory only", "dump it"];
    UnknownLog, NotFound, || memory().delete("log/\x01").unwrap_err(), ["no log \"log/\\x01\"", "append to it"];
    OutOfRange, NotFound, out_of_range, ["9 is outside", "\"log\"", "entries 1 to 2", "read the bounds"];
    NumberTooLarge, Invalid, || memory().begin_at("log", u64::MAX).unwrap_err(),
        ["\"log\"", "begin at entry 18446744073709551615", "at most 2^62"];
    Conflict, Conflict, || conflict(Expected::Next(7)), ["\"log\"", "have next entry 7", "its next entry is 2", "retry"];
    LogExists, Conflict, log_exists, ["log \"log\" exists already", "its next entry is 4", "nothing was imported", "skip"];
    InvalidImport, Invalid, invalid_import, ["not an export of a store", "nothing was imported"];
    Cancelled, Cancelled, cancelled, ["the import was cancelled", "no effect"];
    Locked, CannotOpen, locked, ["store cannot be opened again", "this process has it open already", "close it first"];
    NotAStore, CannotOpen, not_a_store, ["letter is not a Brooklet store", "superblock"];
    Exists, CannotOpen, exists, ["store exists already", "choose another name"];
    RingNeeded, CannotOpen, ring_needed, ["memory", "a separate volume", "`Options::ring_at` or --ring"];
    PartsNeeded, CannotOpen, parts_needed, ["1 parts of memory were offloaded", "`Options::offload_reader` or --archive"];
    WrongRing, CannotOpen, wrong_ring, ["memory is not the ring of memory", "another store", "was created with"];
    Shrunk, CannotOpen, shrunk, ["memory had 131072 bytes", "now has 126976 bytes", "restore its size"];
    OtherCapacity, CannotOpen, other_capacity,
        ["memory was created with no capacity limit", "request 4194304 bytes", "request the store's capacity or none"];
    NotBlank, CannotOpen, not_blank, ["memory is not blank", "Brooklet store at 0", "by force"];
    NewerFormat, CannotOpen, newer_format, ["format 9", "reads up to 8", "upgrade"];
    FeatureNeeded, CannotOpen, feature_needed, ["block 7 of the ring", "lacks", "`zstd`", "after a checkpoint"];
    Replaced, Busy, replaced, ["reading the table", "has replaced the data", "open the store again"];
    Damaged, Damaged, damaged_superblock, ["damage in the superblock", "none of its 3 copies", "restore"];
    Full, Full, full, ["no room left for a new store", "70000 bytes", "free space"];
    Busy, Busy, busy, ["would have to wait", "not durable yet", "retry later", "a call that waits"];
    ReadOnly, Stopped, read_only, ["read-only", "open it for writing"];
    Closed, Stopped, closed, ["closed"];
    Forked, Stopped, forked, ["opened by another process", "is a fork", "then open it here"];
    WouldWait, Invalid, in_a_waker, ["a waker must not wait", "in the task"];
    Stopped, Stopped, stopped, ["stopped writing", "a planned fault", "repair the device", "open the store again"];
    MirrorRefused, CannotOpen, mirror_refused, ["does not continue this store", "another history"];
    MirrorEnded, Stopped, mirror_ended, ["has ended: another host has come", "close the store", "open it again"];
    Io, Io, missing, ["opening", "none failed:", "os error 2"];
}

fn options() -> Options {
    let clock = Arc::new(ManualClock::default());
    Options::new().ring_size(64 << 10).max_payload(8 << 10).threads(false).clock(clock).rng_seed(3)
}

fn replaced() -> Error {
    Error::io("reading the table")(io::Error::other(ReplacedData))
}

fn feature_needed() -> Error {
    WalError::NoCodec { seq: 7, position: 4096 }.into()
}

/// A store with one log that holds entry 1.
fn memory() -> Store {
    let store = options().create_on(Arc::new(MemVolume::new(3))).unwrap();
    store.append_many("log", ["0", "1"]).unwrap().wait().unwrap();
    store.trim("log", 1).unwrap().wait().unwrap();
    store
}

/// Refuses a log, or ends at once.
struct BadMirror(Option<&'static str>);

impl Mirror for BadMirror {
    fn open(&self, _: LocalLog) -> Result<(), String> {
        self.0.map_or(Ok(()), |why| Err(why.into()))
    }

    fn start(&self, handle: MirrorHandle) {
        handle.end("another host has come");
    }

    fn take(&self, _: Vec<SealedBlock>) {}
}

fn mirrored(mirror: BadMirror) -> Result<Store, Error> {
    let mirror = MirrorOptions::new(Arc::new(mirror));
    options().mirror(mirror).create_on(Arc::new(MemVolume::new(3)))
}

fn mirror_refused() -> Error {
    mirrored(BadMirror(Some("another history"))).unwrap_err()
}

fn mirror_ended() -> Error {
    mirrored(BadMirror(None)).unwrap().append("log", b"x").unwrap_err()
}

fn place(name: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    (dir, path)
}

/// A child meets it in `tests/it/forks.rs`; here is no unsafe code, and so no fork.
fn forked() -> Error {
    WalError::Forked.into()
}

/// A waker that does what a task should.
struct Waits(Store, Mutex<Option<Error>>);

impl Wake for Waits {
    fn wake(self: Arc<Self>) {
        *self.1.lock().unwrap() = self.0.flush().and_then(|()| self.0.checkpoint()).err();
    }
}

fn in_a_waker() -> Error {
    let store = options().threads(true).create_on(Arc::new(MemVolume::new(3))).unwrap();
    let waits = Arc::new(Waits(store, Mutex::default()));
    let waker = waits.clone().into();
    // The committer may be faster than a poll: then nobody is woken.
    let _waits = loop {
        let mut ticket = waits.0.append("log", "0").unwrap();
        if Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending() {
            break ticket;
        }
    };
    loop {
        match waits.1.lock().unwrap().take() {
            Some(error) => break error,
            None => std::thread::yield_now(),
        }
    }
}

fn a_commit_too_large() -> Error {
    let mut commit = Commit::new();
    for _ in 0..4 {
        commit.append("log", [0; 8000]);
    }
    memory().commit(&commit).unwrap_err()
}

fn out_of_range() -> Error {
    memory().read("log", 9..).unwrap_err()
}

fn conflict(expected: Expected) -> Error {
    let (store, mut commit) = (memory(), Commit::new());
    match expected {
        Expected::Next(next) => commit.expect_next("log", next),
        Expected::Absent => commit.expect_absent("log"),
    };
    store.commit(commit.append("log", b"x")).unwrap_err()
}

fn locked() -> Error {
    let (_dir, path) = place("store");
    let _held = options().open(&path).unwrap();
    options().open(&path).unwrap_err()
}

fn not_a_store() -> Error {
    let (_dir, path) = place("letter");
    fs::write(&path, "Dear reader, ".repeat(20_000)).unwrap();
    options().open(&path).unwrap_err()
}

fn exists() -> Error {
    let (_dir, path) = place("store");
    drop(options().open(&path).unwrap());
    options().create(Create::New).open(&path).unwrap_err()
}

/// Opens a store after `spoil` was let at its superblock's copies.
fn spoiled(spoil: fn(&mut [u8])) -> Error {
    let volume = MemVolume::new(3);
    drop(options().create_on(Arc::new(volume.clone())).unwrap());
    let mut image = volume.image();
    image[..3 * 4096].chunks_mut(4096).for_each(|copy| spoil(&mut copy[..512]));
    options().open_on(Arc::new(MemVolume::from_image(image, 1))).unwrap_err()
}

/// A store whose ring lies apart, and that ring.
fn apart(seed: u64) -> (MemVolume, MemVolume) {
    let (data, ring) = (MemVolume::new(seed), MemVolume::new(seed));
    let options = Options { seed, ..options() };
    drop(options.create_on_with_ring(Arc::new(data.clone()), Arc::new(ring.clone())).unwrap());
    (data, ring)
}

fn ring_needed() -> Error {
    options().open_on(Arc::new(apart(3).0)).unwrap_err()
}

fn parts_needed() -> Error {
    let volume = Arc::new(MemVolume::new(3));
    let store = options().create_on(volume.clone()).unwrap();
    store.append("log", "entry").unwrap().wait().unwrap();
    let kept = |part: &crate::Part| part.read(0, part.name().len as usize).unwrap();
    let parts: Vec<_> = store.view().unwrap().parts().iter().map(|part| Arc::new(kept(part))).collect();
    store.offload(0, |_| Some(parts[0].clone()), |_| ControlFlow::Continue(())).unwrap();
    store.close().unwrap();
    drop(store);
    options().open_on(volume).unwrap_err()
}

fn wrong_ring() -> Error {
    options().open_on_with_ring(Arc::new(apart(3).0), Arc::new(apart(4).1)).unwrap_err()
}

fn shrunk() -> Error {
    let (data, ring) = apart(3);
    ring.shrink(31 * 4096).unwrap();
    options().open_on_with_ring(Arc::new(data), Arc::new(ring)).unwrap_err()
}

fn not_blank() -> Error {
    options().format_on(Arc::new(apart(3).0), None, false).unwrap_err()
}

fn newer_format() -> Error {
    spoiled(|copy| {
        copy[8] = 9;
        brooklet_wal::slot::seal(copy);
    })
}

fn damaged_superblock() -> Error {
    spoiled(|copy| copy[100] ^= 1)
}

fn full() -> Error {
    let volume = MemVolume::new(1);
    volume.fail(Fault::Full(70_000));
    options().create_on(Arc::new(volume)).unwrap_err()
}

fn read_only() -> Error {
    let volume = MemVolume::new(3);
    drop(options().create_on(Arc::new(volume.clone())).unwrap());
    let store = options().read_only(true).open_on(Arc::new(volume)).unwrap();
    store.append("log", b"x").unwrap_err()
}

fn closed() -> Error {
    let store = memory();
    store.close().unwrap();
    store.append("log", b"x").unwrap_err()
}

fn other_capacity() -> Error {
    let volume = Arc::new(MemVolume::new(3));
    drop(options().create_on(volume.clone()).unwrap());
    options().capacity(4 << 20).open_on(volume).unwrap_err()
}

fn stopped() -> Error {
    let volume = MemVolume::new(3);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    volume.fail(Fault::ErrorAfter { operations: 0, kind: io::ErrorKind::Other, sticky: true });
    store.append("log", b"x").unwrap().wait().unwrap_err()
}

fn missing() -> Error {
    let (_dir, path) = place("none");
    options().create(Create::Never).open(path).unwrap_err()
}

#[test]
fn every_error_is_met_and_says_what_happened_where_and_what_to_do() {
    for case in CASES {
        let error = (case.provoke)();
        let message = error.to_string();
        assert_eq!((variant(&error), error.kind()), (case.variant, case.kind), "{message}");
        for words in case.says {
            assert!(message.contains(words), "{}: {message:?} does not hold {words:?}", case.variant);
        }
        assert_eq!(error.clone().to_string(), message);
    }
}

fn log_exists() -> Error {
    let (store, other) = (memory(), memory());
    for store in [&store, &other] {
        store.append_many("log", ["a", "b"]).unwrap().wait().unwrap();
    }
    store.import().view(&other.view().unwrap(), "").unwrap_err()
}

fn invalid_import() -> Error {
    let (summary, file) = Builder::new(Vec::new(), BuilderOptions::default()).finish().unwrap();
    memory().import().export(&Reader::open(Bytes::from(file), summary.len, None).unwrap(), "").unwrap_err()
}

fn cancelled() -> Error {
    let other = memory();
    other.append("another", "a").unwrap().wait().unwrap();
    memory()
        .import()
        .on_progress(|_| ControlFlow::Break(()))
        .view(&other.view().unwrap(), "another")
        .unwrap_err()
}

fn quota_reached() -> Error {
    let games = memory().create_space("games", SpaceConfig::new().max_logs(1)).unwrap();
    games.append("1", "a").unwrap().wait().unwrap();
    games.append("2", "a").unwrap_err()
}

fn fast() -> (Store, Space) {
    let store = memory();
    let config = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(64 << 10)));
    let space = store.create_space("fast", config).unwrap();
    (store, space)
}

fn memory_full() -> Error {
    let (_, fast) = fast();
    (0..20).find_map(|_| fast.append("log", [7; 8000]).err()).unwrap()
}

fn mixed_spaces() -> Error {
    fast().0.commit(Commit::new().append("log", b"x").append("fast/log", b"x")).unwrap_err()
}

fn busy() -> Error {
    let (store, mut commit) = (memory(), Commit::new());
    commit.expect_absent("new").append("new", b"x");
    let _first = store.commit(&commit).unwrap();
    store.try_commit(&commit).unwrap_err()
}

fn in_memory() -> Error {
    fast().1.append("log", "x").unwrap().wait_durable().unwrap_err()
}

#[test]
fn every_kind_is_met() {
    let number = |kind: ErrorKind| match kind {
        ErrorKind::Invalid => 0,
        ErrorKind::NotFound => 1,
        ErrorKind::Conflict => 2,
        ErrorKind::CannotOpen => 3,
        ErrorKind::Damaged => 4,
        ErrorKind::Full => 5,
        ErrorKind::Stopped => 6,
        ErrorKind::Io => 7,
        ErrorKind::Cancelled => 8,
        ErrorKind::Busy => 9,
    };
    let mut met = [false; 10];
    CASES.iter().for_each(|case| met[number(case.kind)] = true);
    assert_eq!(met, [true; 10]);
}

#[test]
fn every_expectation_tells_what_it_found() {
    let said = |expected: Expected, key: &str| {
        let (store, mut commit) = (memory(), Commit::new());
        match expected {
            Expected::Next(next) => commit.expect_next(key, next),
            Expected::Absent => commit.expect_absent(key),
        };
        let error = store.commit(commit.append(key, b"x")).unwrap_err();
        let Error::Conflict { expected: told, found, .. } = error else { panic!("{error}") };
        assert_eq!(told, expected);
        match found {
            Found::Next(next) => assert_eq!((key, next), ("log", 2)),
            Found::Absent => assert_eq!(key, "new"),
        }
        error.to_string()
    };
    let retry = ": read the log again, then retry the commit";
    for (expected, key, words) in [
        (Expected::Next(1), "log", "log \"log\" was expected to have next entry 1, but its next entry is 2"),
        (Expected::Next(1), "new", "log \"new\" was expected to have next entry 1, but it does not exist"),
        (Expected::Absent, "log", "log \"log\" was expected to not exist, but its next entry is 2"),
    ] {
        assert_eq!(said(expected, key), format!("{words}{retry}"));
    }
}

/// What the ring says in its own words arrives in the store's, with its evidence.
#[test]
fn every_error_of_the_ring_has_its_place_among_the_stores() {
    let planned = || Arc::new(io::Error::other("a planned fault"));
    let place = WalError::Damaged { seq: 7, position: 4096, lsn: 99, what: "the payload is damaged".into() };
    for error in [
        WalError::TooLarge { len: 9, limit: 8 },
        WalError::Full { used: 60, size: 64 },
        WalError::Busy,
        WalError::Stopped(planned()),
        WalError::MirrorEnded { why: "another host has come".into() },
        WalError::Closed,
        WalError::Forked,
        WalError::WouldWait,
        place,
        WalError::NoCodec { seq: 7, position: 4096 },
        WalError::Io(planned()),
    ] {
        let (kind, words) = match &error {
            WalError::TooLarge { .. } => (ErrorKind::Invalid, "9 bytes is over the limit of 8"),
            WalError::Full { .. } => (ErrorKind::Busy, "60 of 64 bytes"),
            WalError::Busy => (ErrorKind::Busy, "too many blocks wait to be written"),
            WalError::Stopped(_) => (ErrorKind::Stopped, "a planned fault"),
            WalError::MirrorEnded { .. } => (ErrorKind::Stopped, "another host has come"),
            WalError::Closed => (ErrorKind::Stopped, "closed"),
            WalError::Forked => (ErrorKind::Stopped, "a fork"),
            WalError::WouldWait => (ErrorKind::Invalid, "a waker must not wait"),
            WalError::Damaged { .. } => (ErrorKind::Damaged, "block 7 at position 4096 (LSN 99)"),
            WalError::NoCodec { .. } => (ErrorKind::CannotOpen, "block 7 of the ring, at position 4096"),
            WalError::Io(_) => (ErrorKind::Io, "reading the ring failed: a planned fault"),
        };
        let told = Error::from(error);
        assert!(told.kind() == kind && told.to_string().contains(words), "{told}");
    }
}

/// A device that fails while a store is opened is not taken for damage.
#[test]
fn a_store_whose_device_does_not_read_says_so() {
    let volume = MemVolume::new(3);
    drop(options().create_on(Arc::new(volume.clone())).unwrap());
    volume.fail(Fault::PowerOffAfter(0));
    let _ = volume.flush();
    let error = options().open_on(Arc::new(volume)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(
        error.to_string().contains("opening the store failed: flushing memory failed: power is off"),
        "{error}"
    );
}

#[test]
fn keys_are_shown_so_that_they_can_be_told_apart() {
    let key = KeyText(b"log/\0\xff\"7\"".to_vec());
    assert_eq!(key.to_string(), r#""log/\x00\xff\"7\"""#);
    assert_eq!(format!("{key:?}"), key.to_string());
}

/// A `main` that returns an error prints its debug form.
#[test]
fn the_debug_form_is_the_message() {
    let error = Error::UnknownLog { key: KeyText::of(b"doc/7") };
    assert_eq!(format!("{error:?}"), r#"there is no log "doc/7": append to it to create it"#);
}
