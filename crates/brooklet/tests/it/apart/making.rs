//! Making a store in two files: by several processes at once, and cut short between the two names.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use brooklet::{Create, Error};

use crate::apart::{place, small};

const MAKER: &str = "BROOKLET_MAKER";

/// The ring gets its name before the data does. Where it has it, somebody makes the store, or was
/// cut short.
#[test]
fn a_ring_without_data_is_waited_for_and_told() {
    let (dir, data, ring) = place();
    let away = dir.path().join("away");
    fs::rename(&data, &away).unwrap();
    let open = |create| small().ring_at(&ring).create(create).open(&data);
    for create in [Create::IfMissing, Create::New] {
        let error = open(create).unwrap_err();
        assert!(
            matches!(&error, Error::Exists { name, .. } if *name == ring.display().to_string()),
            "{error}"
        );
        assert!(error.to_string().contains("it remains from an interrupted creation, remove it"), "{error}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no draft is left");
    // An opening waits for a second: on a busy machine, the data may come later.
    let opened = (0..20).find_map(|_| {
        let opened = thread::scope(|scope| {
            let opening = scope.spawn(|| open(Create::IfMissing));
            thread::park_timeout(Duration::from_millis(100));
            fs::rename(&away, &data).unwrap();
            opening.join().unwrap()
        });
        opened.inspect_err(|_| fs::rename(&data, &away).unwrap()).ok()
    });
    let store = opened.expect("an opening waits for the data");
    assert_eq!(store.bounds("log").unwrap().next, 1);
    store.close().unwrap();
    drop(store);
    fs::remove_file(&data).unwrap();
    fs::remove_file(&ring).unwrap();
    assert!(!open(Create::IfMissing).unwrap().exists("log").unwrap(), "what the error says to do helps");
}

/// A link into a folder that is not there: the error names both, and nothing is left.
#[test]
fn a_store_that_cannot_be_made_leaves_no_ring() {
    let dir = tempfile::tempdir().unwrap();
    let (data, ring) = (dir.path().join("data"), dir.path().join("ring"));
    std::os::unix::fs::symlink("nowhere/target", &data).unwrap();
    let options = || small().ring_at(&ring);
    for error in [options().format(&data, false).unwrap_err(), options().open(&data).unwrap_err()] {
        let names = ["data failed: it is a symbolic link to ", "nowhere/target, whose folder does not exist"];
        assert!(names.iter().all(|words| error.to_string().contains(words)), "{error}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "neither ring nor draft is left");
}

/// Links to places where nothing is yet, such as an empty disk that is mounted elsewhere: the store
/// is made there.
#[test]
fn a_store_is_made_where_links_lead() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("disk")).unwrap();
    for (link, target) in [("data", "disk/data"), ("ring", "disk/ring"), ("alone", "disk/alone")] {
        std::os::unix::fs::symlink(target, at(link)).unwrap();
    }
    let options = || small().ring_at(at("ring"));
    let error = options().create(Create::Never).open(at("data")).unwrap_err();
    assert!(error.to_string().contains("disk/data, which does not exist"), "{error}");
    small().format(at("alone"), false).unwrap();
    for _ in 0..2 {
        let store = options().open(at("data")).unwrap();
        store.append("log", "entry").unwrap().wait().unwrap();
    }
    assert_eq!(options().open(at("disk/data")).unwrap().bounds("log").unwrap().next, 2);
    let is_file = |name: &str| fs::symlink_metadata(at(name)).unwrap().is_file();
    assert!(is_file("disk/data") && is_file("disk/ring") && is_file("disk/alone") && !is_file("data"));
    assert_eq!(fs::read_dir(at("disk")).unwrap().count(), 3, "no draft is left");
}

/// Processes that make the same store at once: each opens it, or finds it open.
#[test]
fn those_who_make_a_store_at_once_find_the_same() {
    let at = |dir: &Path| small().ring_at(dir.join("ring"));
    if let Some(dir) = std::env::var_os(MAKER) {
        let dir = Path::new(&dir);
        // On a busy disk, the data may come later than an opening waits for it.
        for _ in 0..60 {
            match at(dir).open(dir.join("data")) {
                Ok(_) | Err(Error::Locked { .. }) => return,
                Err(Error::Exists { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        panic!("the data does not come");
    }
    for _ in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let maker = || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "apart::making::those_who_make_a_store_at_once_find_the_same"]);
            command.env(MAKER, dir.path()).stdout(Stdio::null()).spawn().unwrap()
        };
        for mut maker in [maker(), maker(), maker()] {
            assert!(maker.wait().unwrap().success());
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no draft is left");
        at(dir.path()).create(Create::Never).open(dir.path().join("data")).unwrap();
    }
}
