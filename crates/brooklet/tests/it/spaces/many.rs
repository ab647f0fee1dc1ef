//! Many spaces, as many as a service has tenants.

use std::sync::Arc;

use brooklet::io::{MemVolume, Rng};
use brooklet::{Bounds, Error, Retention, SpaceConfig, Store};

use crate::spaces::{create, open};

fn name(n: u64) -> String {
    format!("tenant-{n}")
}

/// Each third space counts its logs, each fifth limits them.
fn config(n: u64) -> SpaceConfig {
    let config = if n.is_multiple_of(3) { SpaceConfig::new().max_logs(3) } else { SpaceConfig::new() };
    if n.is_multiple_of(5) { config.retention(Retention::new().entries(2)) } else { config }
}

fn written(store: &Store) -> u64 {
    store.info().unwrap().wal.raw_bytes
}

fn check(store: &Store, spaces: u64, removed: impl Fn(u64) -> bool) {
    let infos = store.spaces();
    let names: Vec<&str> = infos.iter().map(|info| &info.name[..]).collect();
    assert!(names.is_sorted());
    assert_eq!(names.len() as u64, (0..spaces).filter(|n| !removed(*n)).count() as u64);
    for n in (0..spaces).filter(|n| !removed(*n)) {
        let space = store.space(&name(n)).unwrap();
        let info = space.info().unwrap();
        assert_eq!((info.config, info.logs), (config(n), n.is_multiple_of(3).then_some(2)), "{n}");
        let first = if n.is_multiple_of(5) { 1 } else { 0 };
        assert_eq!(space.bounds("a").unwrap(), Bounds { first, next: 3 });
        if n.is_multiple_of(3) && n % 101 == 0 {
            drop(space.append("c", "third").unwrap());
            assert!(matches!(space.append("d", "fourth"), Err(Error::QuotaReached { .. })));
            space.delete("c").unwrap().wait().unwrap();
        }
    }
}

/// A change of one space writes that space, and not all of them.
#[test]
fn thousands_of_spaces_are_made_found_again_and_removed() {
    const SPACES: u64 = 3_000;
    let volume = MemVolume::new(1);
    let store = create(&volume);
    for n in 0..SPACES {
        let before = written(&store);
        let space = store.create_space(&name(n), config(n)).unwrap();
        assert!(written(&store) - before < 200, "space {n} costs {} bytes", written(&store) - before);
        space.append_many("a", ["one", "two", "three"]).unwrap().wait().unwrap();
        space.append("b", "x").unwrap().wait().unwrap();
        if n % 1_000 == 500 {
            store.checkpoint().unwrap();
        }
    }
    check(&store, SPACES, |_| false);
    store.close().unwrap();
    drop(store);
    let store = open(&volume).unwrap();
    check(&store, SPACES, |_| false);
    let removed = |n: u64| n % 7 == 2;
    (0..SPACES).filter(|n| removed(*n)).for_each(|n| store.remove_space(&name(n)).unwrap());
    check(&store, SPACES, removed);
    // From the ring, and from a run.
    for checkpointed in [false, true] {
        if checkpointed {
            store.checkpoint().unwrap();
        }
        let store = open(&MemVolume::from_image(volume.image(), 1)).unwrap();
        check(&store, SPACES, removed);
        let space = store.create_space(&name(2), SpaceConfig::new()).unwrap();
        assert_eq!(space.bounds("a").unwrap().next, 3, "the logs of a removed space stay");
    }
}

/// A checkpoint writes the table only if the spaces or their totals changed.
#[test]
pub fn a_table_that_did_not_change_is_not_written_again() {
    let volume = MemVolume::new(1);
    let store = create(&volume);
    for n in 0..1_000 {
        store.create_space(&name(n), SpaceConfig::new()).unwrap();
    }
    let counted = store.create_space("counted", SpaceConfig::new().max_logs(9)).unwrap();
    let run = |store: &Store| {
        store.checkpoint().unwrap();
        store.info().unwrap().runs.iter().max_by_key(|run| run.id).unwrap().raw_bytes
    };
    store.append("log", "x").unwrap().wait().unwrap();
    assert!(run(&store) > 14_000, "the first run has the table");
    store.append("log", "x").unwrap().wait().unwrap();
    assert!(run(&store) < 14_000, "nothing changed");
    counted.append("log", "x").unwrap().wait().unwrap();
    assert!(run(&store) > 14_000, "the totals changed");
    store.append("log", "x").unwrap().wait().unwrap();
    assert!(run(&store) < 14_000);
    store.compact().unwrap();
    store.close().unwrap();
    let store = open(&volume).unwrap();
    assert_eq!(store.spaces().len(), 1_001);
    assert_eq!(store.space("counted").unwrap().info().unwrap().logs, Some(1));
}

#[test]
fn a_small_store_refuses_the_space_that_its_heap_has_no_room_for() {
    let volume = MemVolume::new(1);
    let store = crate::spaces::options().capacity(2 << 20).create_on(Arc::new(volume)).unwrap();
    let mut rng = Rng::new(1);
    let refused = (0..20_000).find_map(|n| {
        store.create_space(&format!("{:016x}-{n}", rng.next()), SpaceConfig::new().max_logs(1 << 40)).err()
    });
    assert!(matches!(refused, Some(Error::Full { what: "one more space", .. })), "{refused:?}");
    for n in 0..200 {
        store.append(format!("log/{n}"), [7; 100]).unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    let names: Vec<String> = store.spaces().into_iter().take(500).map(|space| space.name).collect();
    names.iter().for_each(|name| store.remove_space(name).unwrap());
    store.create_space(&names[0], SpaceConfig::new()).unwrap();
}
