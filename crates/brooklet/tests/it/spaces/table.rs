//! The spaces themselves: made, changed, removed, found again, and refused where they make no
//! sense.

use std::time::Duration;

use brooklet::io::{Fault, MemVolume};
use brooklet::{Class, Error, Retention, SpaceConfig};

use crate::common::contents;
use crate::spaces::{create, open};

#[test]
fn spaces_that_make_no_sense_are_refused_and_change_nothing() {
    let store = create(&MemVolume::new(1));
    let long = "x".repeat(65);
    for name in ["", "a/b", "a b", "\u{e9}", "a\0", &long] {
        let refused = store.create_space(name, SpaceConfig::new());
        assert!(matches!(refused, Err(Error::InvalidSpace(_))), "{name:?}");
    }
    let deferred = |bound| SpaceConfig::new().class(Class::Deferred(bound));
    let wrong = [
        deferred(Duration::ZERO),
        deferred(Duration::from_micros(1500)),
        deferred(Duration::from_secs(3601)),
        SpaceConfig::new().max_logs(1 << 63),
        SpaceConfig::new().max_bytes(u64::MAX),
    ];
    for config in wrong {
        assert!(matches!(store.create_space("a", config.clone()), Err(Error::InvalidSpace(_))), "{config:?}");
    }
    let kept = SpaceConfig::new().retention(Retention::new().age(Duration::ZERO));
    assert!(matches!(store.create_space("a", kept), Err(Error::InvalidRetention(_))));
    assert!(store.spaces().is_empty());
    let space = store.create_space("a", SpaceConfig::new()).unwrap();
    assert!(matches!(store.create_space("a", SpaceConfig::new()), Err(Error::InvalidSpace(_))));
    store.remove_space("a").unwrap();
    for result in [store.remove_space("a"), store.space("a").map(drop), space.configure(SpaceConfig::new())] {
        assert!(matches!(result, Err(Error::UnknownSpace { .. })));
    }
    assert!(space.info().is_err());
}

/// The log in which the table is kept is nobody's to see or to name.
#[test]
fn the_table_is_no_log_of_the_users() {
    let volume = MemVolume::new(1);
    let store = create(&volume);
    store.create_space("a", SpaceConfig::new()).unwrap();
    for _ in 0..2 {
        assert!(contents(&store).unwrap().is_empty());
        let view = store.view().unwrap();
        assert_eq!((view.scan("").unwrap().count(), view.walk("").unwrap().count()), (0, 0));
        assert_eq!(view.export("", Vec::new()).unwrap().logs, 0);
        assert!(matches!(store.append("", "x"), Err(Error::InvalidKey { len: 0 })));
        assert!(matches!(store.read("", ..), Err(Error::InvalidKey { len: 0 })));
        let other = create(&MemVolume::new(2));
        assert_eq!(other.import().view(&view, "").unwrap().logs, 0);
        assert!(other.spaces().is_empty());
        store.append("log", "x").unwrap().wait().unwrap();
        store.delete("log").unwrap().wait().unwrap();
    }
}

#[test]
fn a_log_of_a_space_is_one_of_the_store() {
    let store = create(&MemVolume::new(1));
    let a = store.create_space("a", SpaceConfig::new().retention(Retention::new().entries(2))).unwrap();
    a.append_many("x/y", ["1", "2", "3"]).unwrap().wait().unwrap();
    store.append("a/\0", "z").unwrap().wait().unwrap();
    store.append("ab/x", "z").unwrap().wait().unwrap();
    store.append("a", "z").unwrap().wait().unwrap();
    let keys: Vec<_> = a.scan("").unwrap().map(|log| log.unwrap().key).collect();
    assert_eq!(keys, [&b"\0"[..], b"x/y"]);
    assert_eq!(a.scan("x").unwrap().next().unwrap().unwrap().bounds.first, 1);
    assert_eq!(a.key("x/y"), b"a/x/y");
    assert_eq!(store.retention("a/x/y").unwrap(), Retention::new().entries(2));
    assert_eq!(a.read("x/y", ..).unwrap().count(), 2);
    store.set_retention("a/x/y", Retention::new().entries(9)).unwrap().wait().unwrap();
    a.append_many("x/y", ["4", "5"]).unwrap().wait().unwrap();
    assert_eq!(a.bounds("x/y").unwrap().len(), 4, "its own limit");
    a.configure(SpaceConfig::new().retention(Retention::new().entries(3))).unwrap();
    assert_eq!(a.bounds("x/y").unwrap().len(), 3, "what changes is given to all");
    assert_eq!(store.bounds("ab/x").unwrap().len(), 1);
    assert_eq!(store.retention("ab/x").unwrap(), Retention::new());
    let info = a.info().unwrap();
    assert_eq!((info.appended, info.appended_bytes, info.reads, info.logs), (6, 6, 1, None));
}

/// The counters are of all commits so far, and of none on an earlier space of the same name.
#[test]
fn the_counters_of_a_space_are_its_own() {
    let store = create(&MemVolume::new(1));
    let long = "n".repeat(60);
    for appends in [70, 3, 150] {
        for name in ["a", &long] {
            let space = store.create_space(name, SpaceConfig::new()).unwrap();
            for n in 0..appends {
                space.append(format!("{}", n % 7), "x").unwrap().wait().unwrap();
                store.append(format!("{name}s"), "x").unwrap().wait().unwrap();
            }
            // Nobody asks the first time.
            if appends > 70 || name.len() > 1 {
                let info = space.info().unwrap();
                assert_eq!((info.appended, info.appended_bytes), (appends, appends));
            }
        }
        let told: Vec<u64> = store.spaces().iter().map(|info| info.appended).collect();
        assert_eq!(told, [appends; 2]);
        for name in ["a", &long] {
            store.append(format!("{name}/0"), "x").unwrap().wait().unwrap();
            store.remove_space(name).unwrap();
        }
    }
}

/// Wherever the power goes off, a change of the spaces is there or is not, and it is where that was
/// told.
#[test]
fn a_change_of_the_spaces_is_whole_wherever_the_power_goes_off() {
    let volume = MemVolume::new(1);
    let store = create(&volume);
    store.create_space("old", SpaceConfig::new().max_logs(5)).unwrap();
    store.append("old/1", "x").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    let image = volume.image();
    for operations in 0.. {
        let volume = MemVolume::from_image(image.clone(), operations);
        let store = open(&volume).unwrap();
        volume.fail(Fault::PowerOffAfter(operations));
        let mut told = 0;
        let mut change = || -> Result<(), Error> {
            store.create_space("new", SpaceConfig::new().class(Class::Deferred(Duration::from_secs(1))))?;
            told = 1;
            store.append("old/2", "y")?.wait()?;
            store.checkpoint()?;
            store.remove_space("old")?;
            told = 2;
            store.checkpoint()
        };
        let done = change().is_ok();
        store.abandon();
        let volume = MemVolume::from_image(volume.crash(), 1);
        let store = open(&volume).unwrap();
        let spaces = store.spaces();
        let names: Vec<&str> = spaces.iter().map(|space| &space.name[..]).collect();
        match told {
            0 => assert!(matches!(names[..], ["old"] | ["new", "old"])),
            1 => assert!(matches!(names[..], ["new", "old"] | ["new"])),
            _ => assert_eq!(names, ["new"]),
        }
        if let Some(old) = spaces.iter().find(|space| space.name == "old") {
            assert_eq!(old.logs, Some(store.scan("old/").unwrap().count() as u64));
        }
        store.create_space("again", SpaceConfig::new()).unwrap();
        if done {
            break;
        }
    }
}

/// The totals of what recovery brings back go on from those of the last checkpoint, on a store that
/// is only read, too.
#[test]
fn totals_are_known_wherever_the_store_is_opened() {
    let volume = MemVolume::new(1);
    let store = create(&volume);
    let a = store.create_space("a", SpaceConfig::new().max_bytes(1 << 20)).unwrap();
    for n in 0..50 {
        a.append(format!("{}", n % 7), "payload").unwrap().wait().unwrap();
        if n % 20 == 9 {
            store.checkpoint().unwrap();
        }
        let volume = MemVolume::from_image(volume.image(), 1);
        let read_only =
            crate::spaces::options().read_only(true).open_on(std::sync::Arc::new(volume)).unwrap();
        assert_eq!(read_only.spaces()[0].bytes, Some(7 * (n + 1)));
        let copy = MemVolume::new(2);
        let copy =
            crate::spaces::options().copy_on(std::sync::Arc::new(copy), &read_only.view().unwrap()).unwrap();
        assert_eq!(copy.spaces()[0].bytes, Some(7 * (n + 1)));
    }
}

/// However far a checkpoint has come: what the ring says of the table goes on from what was
/// committed of it.
#[test]
fn spaces_may_change_in_the_midst_of_a_checkpoint() {
    for steps in 0..40 {
        let volume = MemVolume::new(steps);
        let store = create(&volume);
        let a = store.create_space("a", SpaceConfig::new().max_logs(9)).unwrap();
        for n in 0..2 {
            // Enough for a checkpoint.
            (0..5).for_each(|n| a.append(format!("{n}"), vec![n; 8000]).unwrap().wait().unwrap());
            for _ in 0..steps {
                store.step().unwrap();
            }
            a.configure(SpaceConfig::new().max_logs(10 + n)).unwrap();
            a.append("5", "x").unwrap().wait().unwrap();
            let store = open(&MemVolume::from_image(volume.image(), 1)).unwrap();
            let info = store.space("a").unwrap().info().unwrap();
            assert_eq!((info.config.max_logs, info.logs), (Some(10 + n), Some(6)), "{steps} steps");
        }
    }
}

/// A store that opens for reading without its table of spaces does not know which spaces exist.
#[test]
fn a_table_that_cannot_be_read_is_reported() {
    let volume = MemVolume::new(1);
    let store = create(&volume);
    store.create_space("a", SpaceConfig::new()).unwrap();
    store.checkpoint().unwrap();
    let run = store.info().unwrap().runs[0];
    store.close().unwrap();
    // The run begins with the log that holds the table.
    volume.flip(run.offset as usize + 8, 1);
    let refused = open(&volume).map(drop);
    let advises = |what: &str| what.contains("read-only");
    assert!(matches!(&refused, Err(Error::Damaged { what, .. }) if advises(what)), "{refused:?}");
    let options = crate::spaces::options().read_only(true);
    let store = options.open_on(std::sync::Arc::new(volume.clone())).unwrap();
    let found = store.space("a").map(drop);
    assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
    assert!(store.spaces().is_empty() && matches!(store.spaces_error(), Some(Error::Damaged { .. })));
}
