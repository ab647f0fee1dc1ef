//! The rules of a space give each log its retention, also after crashes, in copies and in memory.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use brooklet::io::{Fault, MemVolume, Rng};
use brooklet::{Class, Commit, Error, MemoryConfig, Retention, SpaceConfig, Store};

use crate::common::small::noise;
use crate::spaces::{create, open, options};

const KEYS: [&str; 8] = ["a", "a/feed", "b/feed", "b/presence", "audit/feed", "audit/x", "feed", "*"];
const PATTERNS: [&str; 7] = ["audit/*", "*/feed", "*/presence", "feed", "*e*", "a*", "*"];

fn retention(rng: &mut Rng) -> Retention {
    match rng.below(4) {
        0 => Retention::new(),
        1 => Retention::new().bytes(rng.below(40)),
        _ => Retention::new().entries(rng.below(5)),
    }
}

fn config(rng: &mut Rng) -> SpaceConfig {
    let mut config = SpaceConfig::new().retention(retention(rng));
    for pattern in PATTERNS {
        if rng.percent(30) {
            config = config.retention_for(pattern, retention(rng));
        }
    }
    if rng.percent(30) {
        config = config.max_bytes(1 << 30);
    }
    if rng.percent(30) { config.class(Class::Memory(MemoryConfig::new(1 << 20))) } else { config }
}

/// Returns the retention of a key, by these patterns only.
fn expected(config: &SpaceConfig, key: &str) -> Retention {
    let matches = |pattern: &[u8]| match pattern {
        b"audit/*" => key.starts_with("audit/"),
        b"*/feed" => key.ends_with("/feed"),
        b"*/presence" => key.ends_with("/presence"),
        b"feed" => key == "feed",
        b"*e*" => key.contains('e'),
        b"a*" => key.starts_with('a'),
        _ => true,
    };
    let rule = config.rules.iter().find(|rule| matches(&rule.pattern));
    rule.map_or(config.retention, |rule| rule.retention)
}

/// Checks that the logs of the space have this retention, and no more entries than it says.
fn agrees(store: &Store, logs: &BTreeMap<&str, Retention>) {
    for key in KEYS {
        let whole = format!("s/{key}");
        let Some(retention) = logs.get(key) else {
            assert!(!store.exists(&whole).unwrap(), "{key}");
            continue;
        };
        assert_eq!(store.retention(&whole).unwrap(), *retention, "{key}");
        let entries = store.bounds(&whole).unwrap().len();
        assert!(retention.entries.is_none_or(|most| entries <= most), "{key}: {entries}");
    }
}

pub fn rules_hold_whatever_happens() {
    let (mut crashes, mut given) = (0, 0);
    for seed in 0..30 {
        let (mut volume, mut rng) = (MemVolume::new(seed), Rng::new(seed));
        let mut store = create(&volume);
        let mut current = config(&mut rng);
        let mut logs = BTreeMap::new();
        store.create_space("s", current.clone()).unwrap();
        for round in 0..200 {
            let (space, key) = (store.space("s").unwrap(), KEYS[rng.below(8) as usize]);
            match rng.below(40) {
                0..=25 => {
                    space.append(key, vec![b'x'; rng.below(20) as usize]).unwrap().wait().unwrap();
                    given += usize::from(!logs.contains_key(key));
                    logs.entry(key).or_insert_with(|| expected(&current, key));
                }
                26..=29 if logs.remove(key).is_some() => space.delete(key).unwrap().wait().unwrap(),
                30 if logs.contains_key(key) => {
                    let own = retention(&mut rng);
                    space.set_retention(key, own).unwrap().wait().unwrap();
                    logs.insert(key, own);
                }
                31 | 32 => {
                    let other = config(&mut rng);
                    space.configure(other.clone()).unwrap();
                    if (other.retention, &other.rules) != (current.retention, &current.rules) {
                        logs.iter_mut().for_each(|(key, has)| *has = expected(&other, key));
                    }
                    current = other;
                    assert_eq!(space.info().unwrap().config, current);
                }
                33 => store.checkpoint().unwrap(),
                34 => store.compact().unwrap(),
                35 => {
                    let copy = Arc::new(MemVolume::new(seed));
                    let copy = options().copy_on(copy, &store.view().unwrap()).unwrap();
                    assert_eq!(copy.space("s").unwrap().info().unwrap().config, current);
                }
                36 | 37 => {
                    // A power cut takes back the commits of a space in memory since its dump.
                    let is_kept = current.class.memory().is_none();
                    let image = if is_kept {
                        crashes += 1;
                        volume.crash()
                    } else {
                        store.close().unwrap();
                        volume.image()
                    };
                    store.abandon();
                    volume = MemVolume::from_image(image, seed + round);
                    store = open(&volume).unwrap();
                    assert_eq!(store.space("s").unwrap().info().unwrap().config, current);
                }
                _ => while rng.percent(50) && store.step().unwrap() {},
            }
            agrees(&store, &logs);
        }
    }
    assert!(crashes > 50 && given > 500, "{crashes} {given}");
}

#[test]
fn rules_give_each_log_its_retention_whatever_happens() {
    rules_hold_whatever_happens();
}

#[test]
fn imported_logs_get_the_retention_of_their_rule() {
    let from = create(&MemVolume::new(1));
    for key in ["s/1/feed", "s/1/doc", "s/audit/1"] {
        from.append_many(key, ["1", "2", "3", "4"]).unwrap().wait().unwrap();
    }
    from.set_retention("s/1/doc", Retention::new().entries(3)).unwrap().wait().unwrap();
    let store = create(&MemVolume::new(2));
    let config = SpaceConfig::new()
        .retention_for("audit/*", Retention::new())
        .retention_for("*/doc", Retention::new().entries(1))
        .retention(Retention::new().entries(2));
    store.create_space("s", config).unwrap();
    store.import().view(&from.view().unwrap(), "").unwrap();
    let kept = |key: &str| store.bounds(key).unwrap().len();
    assert_eq!([kept("s/1/feed"), kept("s/1/doc"), kept("s/audit/1")], [2, 3, 4]);
}

/// A read fails while the store sets the limits. In an earlier state, the next call set none: the
/// space had the new retention already.
#[test]
fn a_retention_that_an_error_cuts_short_is_set_by_the_next_call() {
    let volume = MemVolume::new(1);
    let store = create(&volume);
    drop(store.create_space("s", SpaceConfig::new()).unwrap());
    let keys: Vec<String> = (0..200).map(|n| format!("s/{n:03}")).collect();
    for key in &keys {
        let payload = |n: u8| vec![n; 200];
        store.append_many(key, [payload(1), payload(2), payload(3)]).unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    let (image, mut cut_short) = (volume.image(), 0);
    let fails = |reads| Fault::ReadErrorAfter { reads, kind: ErrorKind::Other, sticky: false };
    for reads in 0..40 {
        let volume = MemVolume::from_image(image.clone(), 1);
        let store = open(&volume).unwrap();
        let space = store.space("s").unwrap();
        let config = SpaceConfig::new().retention(Retention::new().entries(1));
        volume.fail(fails(reads));
        if let Err(error) = space.configure(config.clone()) {
            assert!(matches!(error, Error::Io { .. }), "{error}");
            cut_short += 1;
        }
        volume.fail(fails(u64::MAX));
        space.configure(config.clone()).unwrap();
        assert_eq!(space.info().unwrap().config, config);
        for key in &keys {
            assert_eq!(store.bounds(key).unwrap().len(), 1, "{key} after {reads} reads");
            assert_eq!(store.retention(key).unwrap(), config.retention);
        }
    }
    assert!(cut_short > 3, "{cut_short}");
}

/// In an earlier state, the space had its old retention again after the error, so that the call
/// with it set nothing: some logs kept the new one, and went on to drop entries.
#[test]
fn a_retention_that_an_error_cuts_short_is_taken_back_by_the_old_one() {
    // The cache holds few of the entries, so that each commit reads some.
    let options = || options().cache_budget(256 << 10);
    let volume = MemVolume::new(1);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    drop(store.create_space("s", SpaceConfig::new()).unwrap());
    let keys: Vec<String> = (0..150).map(|n| format!("s/{n:03}")).collect();
    let mut rng = Rng::new(3);
    for key in &keys {
        store.append_many(key, [noise(&mut rng, 6_000), noise(&mut rng, 6_000)]).unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    store.compact().unwrap();
    store.close().unwrap();
    drop(store);
    let (image, mut partly) = (volume.image(), 0);
    for reads in (0..1_200).step_by(20) {
        let volume = MemVolume::from_image(image.clone(), 1);
        let store = options().open_on(Arc::new(volume.clone())).unwrap();
        let space = store.space("s").unwrap();
        volume.fail(Fault::ReadErrorAfter { reads, kind: ErrorKind::Other, sticky: false });
        let configured = space.configure(SpaceConfig::new().retention(Retention::new().bytes(7_000)));
        volume.heal();
        if configured.is_ok() {
            continue;
        }
        let limited = keys.iter().filter(|key| store.retention(key).unwrap().is_limited()).count();
        partly += usize::from(limited > 0);
        space.configure(SpaceConfig::new()).unwrap();
        for key in &keys {
            assert_eq!(store.retention(key).unwrap(), Retention::new(), "{key} after {reads} reads");
        }
    }
    assert!(partly > 0, "the error always came before the first commit");
}

/// The work lists 65,536 logs at a time. In an earlier state, damage that the first of these lists
/// met was forgotten, and the call succeeded.
#[test]
fn damage_is_reported_however_many_logs_follow_it() {
    const LOGS: usize = 70_000;
    let options = || options().ring_size(4 << 20).memory_budget(16 << 20);
    let volume = MemVolume::new(1);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    drop(store.create_space("s", SpaceConfig::new()).unwrap());
    for first in (0..LOGS).step_by(1_000) {
        let mut commit = Commit::new();
        (first..first + 1_000).for_each(|n| _ = commit.append(format!("s/{n:05}"), "entry"));
        store.commit(&commit).unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    store.compact().unwrap();
    let run = store.info().unwrap().runs[0];
    store.close().unwrap();
    drop(store);
    let at = run.offset as usize + 8_192;
    (at..at + 4_096).step_by(16).for_each(|at| volume.flip(at, 2));
    let store = options().open_on(Arc::new(volume)).unwrap();
    let limited = SpaceConfig::new().retention(Retention::new().entries(9));
    let error = store.space("s").unwrap().configure(limited.clone()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    let last = format!("s/{:05}", LOGS - 1);
    assert_eq!(store.retention(&last).unwrap(), limited.retention, "the work goes on behind the damage");
}

#[test]
fn invalid_rules_are_refused_by_name() {
    let store = create(&MemVolume::new(1));
    let with = |patterns: &[&str]| {
        patterns
            .iter()
            .fold(SpaceConfig::new(), |config, pattern| config.retention_for(pattern, Retention::new()))
    };
    let many: Vec<String> = (0..33).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(|pattern| &**pattern).collect();
    for (config, why) in [
        (with(&[""]), "a pattern of 0 bytes for space s: use 1 to 128 bytes"),
        (with(&[&"x".repeat(129)]), "a pattern of 129 bytes for space s: use 1 to 128 bytes"),
        (with(&["a", "a"]), "the pattern \"a\" occurs twice for space s: the second rule has no effect"),
        (with(&many), "33 retention rules for space s: use at most 32"),
    ] {
        let error = store.create_space("s", config).unwrap_err();
        assert!(matches!(&error, Error::InvalidSpace(said) if said == why), "{error}");
    }
    let kept = SpaceConfig::new().retention_for("a", Retention::new().entries(u64::MAX));
    assert!(matches!(store.create_space("s", kept), Err(Error::InvalidRetention(_))));
    store.create_space("s", with(&many[..32])).unwrap();
    store.create_space("t", with(&[&"x".repeat(128)])).unwrap();
    assert!(matches!(store.space("s").unwrap().configure(with(&[""])), Err(Error::InvalidSpace(_))));
    assert_eq!(store.space("s").unwrap().info().unwrap().config, with(&many[..32]));
}
