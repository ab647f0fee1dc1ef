//! Totals are those of the logs, whatever is done to them, and quotas hold.

use std::sync::Arc;

use brooklet::io::{MemVolume, Rng};
use brooklet::{Commit, Error, Retention, SpaceConfig, Store};

use crate::common::{contents, seen};
use crate::spaces::{create, open, options};

/// What a space holds, counted by listing and reading.
fn counted(store: &Store, name: &str) -> (u64, u64) {
    let (mut logs, mut bytes) = (0, 0);
    for log in store.scan(format!("{name}/")).unwrap() {
        logs += 1;
        let entries = store.read(log.unwrap().key, ..).unwrap();
        bytes += entries.map(|entry| entry.unwrap().payload.len() as u64).sum::<u64>();
    }
    (logs, bytes)
}

#[track_caller]
fn agrees(store: &Store) {
    for space in store.spaces() {
        let known = space.logs.zip(space.bytes);
        let has_quota = space.config.max_logs.is_some() || space.config.max_bytes.is_some();
        assert_eq!(known, has_quota.then(|| counted(store, &space.name)), "{}", space.name);
    }
}

fn config(rng: &mut Rng) -> SpaceConfig {
    let mut config = SpaceConfig::new();
    if rng.percent(60) {
        config = config.max_logs(1 + rng.below(20));
    }
    if rng.percent(60) {
        config = config.max_bytes(rng.below(20_000));
    }
    match rng.below(5) {
        0 => config.retention(Retention::new().entries(rng.below(5))),
        1 => config.retention(Retention::new().bytes(rng.below(3000))),
        2 => config
            .retention_for("*3", Retention::new().bytes(rng.below(3000)))
            .retention_for("4", Retention::new().entries(rng.below(5)))
            .retention(Retention::new().entries(9)),
        _ => config,
    }
}

const NAMES: [&str; 3] = ["a", "b.c", "none"];

/// Does something; tells whether a quota was in the way.
fn act(store: &Store, rng: &mut Rng) -> bool {
    let key = |rng: &mut Rng| format!("{}/{}", NAMES[rng.below(3) as usize], rng.below(9));
    let (one, other) = (key(rng), key(rng));
    let payload = vec![rng.next() as u8; rng.below(700) as usize];
    let bounds = store.bounds(&one).ok();
    let within = |rng: &mut Rng| bounds.map_or(0, |b| b.first + rng.below(b.next - b.first + 1));
    let mut commit = Commit::new();
    match rng.below(16) {
        0..=4 => commit.append(&one, &payload),
        5 => commit.append(&one, &payload).append(&other, b"x").append(&one, b"y"),
        6 => commit.snapshot(&one, &payload),
        7 => commit.trim(&one, within(rng)),
        8 => commit.truncate(&one, within(rng)),
        9 => commit.keep_last(&one, rng.below(3)),
        10 => commit.delete(&one),
        11 => commit.delete(&one).append(&one, &payload).append(&other, &payload),
        12 => commit.set_retention(&one, Retention::new().entries(rng.below(6))),
        13 => commit.set_retention(&one, Retention::new().bytes(rng.below(2000))).append(&one, &payload),
        14 => commit.set_retention(&one, Retention::new()),
        _ => commit.append(&other, &payload).truncate(&one, within(rng)).append(&one, b"again"),
    };
    let before = store.spaces();
    match store.commit(&commit) {
        Ok(ticket) => ticket.wait().unwrap(),
        Err(Error::QuotaReached { space, what, limit }) => {
            let totals = |space: &brooklet::SpaceInfo| (space.logs, space.bytes);
            assert!(store.spaces().iter().map(totals).eq(before.iter().map(totals)), "it left traces");
            let config = &before.iter().find(|known| known.name == space).unwrap().config;
            let limits = [("logs", config.max_logs), ("bytes", config.max_bytes)];
            assert!(limits.contains(&(what, Some(limit))));
            return true;
        }
        Err(Error::UnknownLog { .. } | Error::OutOfRange { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    false
}

#[test]
fn totals_are_those_of_the_logs_whatever_happens() {
    let (mut refused, mut crashes, mut merges) = (0, 0, 0);
    for seed in 0..40 {
        let (mut volume, mut rng) = (MemVolume::new(seed), Rng::new(seed));
        let mut store = create(&volume);
        for round in 0..300 {
            refused += u64::from(act(&store, &mut rng));
            match rng.below(60) {
                0 => store.checkpoint().unwrap(),
                1 => {
                    store.compact().unwrap();
                    merges += 1;
                }
                2 => {
                    let image = if rng.percent(50) {
                        store.close().unwrap();
                        volume.image()
                    } else {
                        crashes += 1;
                        volume.crash()
                    };
                    store.abandon();
                    volume = MemVolume::from_image(image, seed + round);
                    store = open(&volume).unwrap();
                }
                3 => {
                    let copy = Arc::new(MemVolume::new(seed));
                    let copy = options().copy_on(copy, &store.view().unwrap()).unwrap();
                    assert_eq!(copy.spaces().len(), store.spaces().len());
                    agrees(&copy);
                }
                4..=6 => {
                    let name = NAMES[rng.below(2) as usize];
                    match store.space(name) {
                        Ok(_) if rng.percent(15) => store.remove_space(name).unwrap(),
                        Ok(space) => space.configure(config(&mut rng)).unwrap(),
                        Err(_) => drop(store.create_space(name, config(&mut rng)).unwrap()),
                    }
                }
                _ => while rng.percent(50) && store.step().unwrap() {},
            }
            agrees(&store);
        }
        assert_eq!(seen(&store.view().unwrap()), contents(&store).unwrap());
    }
    assert!(refused > 500 && crashes > 50 && merges > 50, "{refused} {crashes} {merges}");
}

/// What is brought from another store counts here, and by what it is here.
#[test]
fn imported_logs_count() {
    let quota = SpaceConfig::new().max_bytes(10_000);
    let from = create(&MemVolume::new(1));
    let space = from.create_space("a", quota.clone()).unwrap();
    for n in 0..9 {
        space.append_many(format!("{n}"), [vec![n; 100], vec![n; 10]]).unwrap().wait().unwrap();
    }
    assert_eq!(counted(&from, "a"), (9, 990));
    let volume = MemVolume::new(2);
    let to = create(&volume);
    to.create_space("b", quota.clone()).unwrap();
    let space = to.create_space("a", quota).unwrap();
    space.append("own", "own").unwrap().wait().unwrap();
    to.import().view(&from.view().unwrap(), "").unwrap();
    agrees(&to);
    assert_eq!(space.info().unwrap().logs, Some(10));
    space.trim("3", 1).unwrap().wait().unwrap();
    space.delete("4").unwrap().wait().unwrap();
    agrees(&to);
    to.close().unwrap();
    drop((to, space));
    agrees(&open(&volume).unwrap());
}

/// Whoever cuts the counting short can go on with it.
#[test]
fn a_quota_counts_what_is_there_though_it_was_cut_short() {
    let volume = MemVolume::new(1);
    let store = create(&volume);
    for n in 0..300u32 {
        store.append(format!("a/{n}"), vec![0; 20]).unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    let image = volume.image();
    let count = |store: &Store| {
        let config = SpaceConfig::new().max_logs(1000).max_bytes(1 << 20);
        let space = store.create_space("a", config.clone()).or_else(|error| match error {
            Error::InvalidSpace(_) => {
                store.space("a").inspect(|space| space.configure(config.clone()).unwrap())
            }
            error => Err(error),
        });
        space.and_then(|space| space.info())
    };
    let (mut cut, mut partly) = (0, 0);
    for operations in 0.. {
        let volume = MemVolume::from_image(image.clone(), operations);
        let store = open(&volume).unwrap();
        volume.fail(brooklet::io::Fault::PowerOffAfter(operations));
        let done = count(&store);
        store.abandon();
        let whole = done.is_ok();
        let store = open(&MemVolume::from_image(volume.crash(), 1)).unwrap();
        cut += u64::from(!whole);
        if let Some(space) = store.spaces().first() {
            partly += u64::from(space.logs.is_none());
            assert!(!whole || space.logs == Some(300));
        } else {
            assert!(!whole);
        }
        let info = count(&store).unwrap();
        assert_eq!((info.logs, info.bytes), (Some(300), Some(6000)));
        agrees(&store);
        if whole {
            break;
        }
    }
    assert!(cut > 5 && partly > 2, "{cut} {partly}");
}

/// Long keys, and a ring whose longest record holds few of them.
#[test]
fn a_small_ring_counts_logs_with_long_keys() {
    let options = options().ring_size(64 << 10);
    let volume = MemVolume::new(1);
    let store = options.create_on(Arc::new(volume.clone())).unwrap();
    let long = "k".repeat(900);
    for n in 0..100 {
        store.append(format!("s/{long}/{n}"), "x").unwrap().wait().unwrap();
    }
    let space = store.create_space("s", SpaceConfig::new().max_logs(100)).unwrap();
    assert_eq!(space.info().unwrap().logs, Some(100));
    assert!(matches!(space.append("one more", "x"), Err(Error::QuotaReached { .. })));
}
