//! `brooklet archive`, `backups` and `restore` from the outside.

use crate::common;

use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::time::Duration;

use brooklet::{Options, Store};
use brooklet_archive::{Bucket, Parts};
use common::Place;
use serde_json::{Value, json};

fn open(place: &Place) -> Store {
    Options::new().ring_size(1 << 20).open(&place.store).unwrap()
}

/// A closed store with logs in runs and in the ring.
fn place() -> Place {
    let place = Place::new();
    let store = open(&place);
    store.append_many("a/1", ["zero", "one", "two"]).unwrap().wait().unwrap();
    store.trim("a/1", 1).unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.append("a/10", [0xff, 0]).unwrap().wait().unwrap();
    store.append("b", "grün").unwrap().wait().unwrap();
    store.close().unwrap();
    place
}

fn append(place: &Place, log: &str, text: &str) {
    place.ok(&["append", "STORE", log, text]);
}

#[test]
fn a_store_comes_back_from_its_backups() {
    let place = place();
    let first = place.ok(&["archive", "STORE", "bucket"]);
    assert!(first.starts_with("backup 0 made: ") && first.contains("requests: 2 PUT"), "{first}");
    let then = place.ok(&["export", "STORE"]);
    let again = &place.json(&["archive", "STORE", "bucket"])[0];
    assert_eq!(
        (&again["new"], &again["backup"], &again["costs"]["puts"]),
        (&json!(false), &json!(0), &json!(0))
    );
    assert!(place.ok(&["archive", "STORE", "bucket"]).starts_with("nothing has changed since backup 0"));
    append(&place, "b", "mehr");
    let plan = &place.json(&["archive", "STORE", "bucket", "--dry-run"])[0];
    assert_eq!((&plan["new"], &plan["backup"], &plan["new_objects"]), (&json!(true), &json!(1), &json!(1)));
    assert_eq!(plan["costs"]["puts"], json!(0));
    assert!(place.ok(&["archive", "STORE", "bucket", "--dry-run"]).contains("would be made"));
    assert!(place.ok(&["archive", "STORE", "bucket"]).starts_with("backup 1 made: "));
    let now = place.ok(&["export", "STORE"]);

    let dry = place.ok(&["restore", "bucket", "new", "--dry-run"]);
    assert!(dry.starts_with("backup 1, taken 2") && dry.contains("would be restored"), "{dry}");
    let dry = &place.json(&["restore", "bucket", "new", "--dry-run"])[0];
    assert!(dry.get("logs").is_some_and(Value::is_null), "the same fields: {dry}");
    assert!(!place.dir.path().join("new").exists());
    let told = place.ok(&["restore", "bucket", "new"]);
    assert!(told.starts_with("3 logs with 5 entries, ") && told.contains("by backup 1"), "{told}");
    assert_eq!(place.ok(&["export", "new"]), now);
    place.ok(&["restore", "bucket", "then", "--backup", "0"]);
    assert_eq!(place.ok(&["export", "then"]), then);
    // One log, and those of a prefix; logs that are there stay as they are.
    place.ok(&["restore", "bucket", "part", "--log", "a/1"]);
    assert_eq!(place.ok(&["list", "part"]).lines().count(), 1);
    let refused = place.fails(1, &["restore", "bucket", "part", "--prefix", "a/"]);
    assert!(refused.contains("log \"a/1\" exists already"), "{refused}");
    let told = &place.json(&["restore", "bucket", "part", "--prefix", "a/", "--skip-existing"])[0];
    assert_eq!((&told["logs"], &told["skipped"]), (&json!(1), &json!(1)));
    place.fails(3, &["restore", "bucket", "none", "--log", "a"]);
    assert!(!place.dir.path().join("none").exists());
}

#[test]
fn what_is_old_lies_in_the_archive() {
    let place = place();
    for log in 0..40 {
        append(&place, &format!("old/{log}"), &"old ".repeat(200));
    }
    let before = place.ok(&["export", "STORE"]);
    let told = place.ok(&["archive", "STORE", "bucket", "--offload", "0"]);
    assert!(told.contains(" offloaded, 0 B left here"), "{told}");
    let refused = place.fails(4, &["list", "STORE"]);
    assert!(refused.contains("were offloaded") && refused.contains("--archive"), "{refused}");
    let with = |args: &[&str]| place.ok(&[args, &["--archive", "bucket"]].concat());
    assert_eq!(with(&["export", "STORE"]), before);
    assert!(with(&["inspect", "STORE"]).contains("  offloaded"));
    assert!(with(&["check", "STORE"]).contains("sound"));
    with(&["append", "STORE", "b", "new"]);
    assert!(with(&["read", "STORE", "old/7"]).contains("old old"));
    // The archive goes on, and knows where what it needs lies.
    let told = &place.json(&["archive", "STORE", "bucket", "--offload", "0", "--keep", "0s"])[0];
    assert_eq!((&told["offloaded"]["runs"], &told["offloaded"]["left"]), (&json!(1), &json!(0)), "{told}");
    let now = with(&["export", "STORE"]);
    assert_eq!(now.lines().count(), before.lines().count() + 1);
    place.ok(&["restore", "bucket", "new"]);
    assert_eq!(place.ok(&["export", "new"]), now);
    place.ok(&["import", "other", "STORE", "--format", "store", "--input-archive", "bucket"]);
    assert_eq!(place.ok(&["export", "other"]), now);
}

#[test]
fn a_backup_is_reported_even_if_the_offload_fails() {
    let place = place();
    place.ok(&["archive", "STORE", "bucket"]);
    for upload in std::fs::read_dir(place.dir.path().join("bucket/bundles")).unwrap() {
        std::fs::remove_file(upload.unwrap().path().join("00000000")).unwrap();
    }
    let failed = place.run(&["archive", "STORE", "bucket", "--offload", "0"]);
    assert_ne!(failed.status.code(), Some(0));
    let told = common::text(&failed.stdout);
    assert!(told.starts_with("nothing has changed since backup 0"), "{failed:?}");
}

/// In an earlier state each of these left an empty folder behind. A link that leads nowhere was
/// taken for a folder that is not there.
#[test]
fn wrong_names_make_no_folder_of_a_bucket() {
    let place = place();
    let bucket = place.dir.path().join("bucket");
    symlink("circle", place.dir.path().join("circle")).unwrap();
    assert!(place.fails(4, &["archive", "missing", "bucket"]).contains("opening missing failed"));
    assert!(!bucket.exists(), "archive");
    for args in [
        &["list", "STORE", "--archive"][..],
        &["import", "new", "STORE", "--format", "store", "--input-archive"],
        &["backups"],
    ] {
        let refused = place.fails(3, &[args, &["bucket"]].concat());
        assert!(refused.contains("there is no such folder"), "{args:?}: {refused}");
        assert!(!bucket.exists(), "{args:?}");
        let refused = place.fails(4, &[args, &["circle"]].concat());
        assert!(refused.contains("looking for circle failed"), "{args:?}: {refused}");
    }
    assert!(!place.dir.path().join("new").exists());
}

/// In an earlier state only names without a scheme were looked at.
#[test]
fn a_wrong_url_of_a_folder_makes_no_folder() {
    let place = place();
    let bucket = place.dir.path().join("bucket");
    let url = format!("file://{}", bucket.display());
    place.fails(3, &["backups", &url]);
    assert!(!bucket.exists(), "backups");
    place.fails(3, &["cluster", "status", &url]);
    assert!(!bucket.exists(), "cluster status");
    place.ok(&["archive", "STORE", &url]);
    assert_eq!(place.ok(&["backups", &url]).lines().count(), 1);
}

/// In an earlier state such a URL was taken for the name of a folder that is not there.
#[test]
fn all_urls_of_a_folder_lead_to_it() {
    let place = place();
    let bucket = place.dir.path().join("bucket");
    place.ok(&["archive", "STORE", "bucket"]);
    for url in [format!("file:{}", bucket.display()), format!("file://{}/#backups", bucket.display())] {
        assert_eq!(place.ok(&["backups", &url]).lines().count(), 1, "{url}");
        place.ok(&["list", "STORE", "--archive", &url]);
    }
}

#[test]
fn backups_are_listed_found_and_removed() {
    let place = place();
    assert!(place.fails(3, &["backups", "bucket"]).contains("holds no backups"));
    assert!(place.fails(3, &["restore", "bucket", "new"]).contains("holds no backups"));
    place.fails(3, &["doc", "restore", "STORE", "document", "bucket"]);
    assert!(!place.dir.path().join("bucket").exists(), "commands that read make no folder");
    for round in 0..4 {
        append(&place, "b", &format!("{round}"));
        place.ok(&["archive", "STORE", "bucket"]);
    }
    let rows = place.json(&["backups", "bucket"]);
    let numbers: Vec<&Value> = rows.iter().map(|row| &row["backup"]).collect();
    assert_eq!(numbers, [&json!(0), &json!(1), &json!(2), &json!(3)]);
    let one = &place.json(&["backups", "bucket", "--backup", "2"])[0];
    let taken = one["taken"].as_str().unwrap();
    assert_eq!(place.json(&["backups", "bucket", "--at", taken])[0], *one);
    assert!(
        place
            .fails(3, &["backups", "bucket", "--at", "2001-01-01T00:00:00Z"])
            .contains("no backup is that old")
    );
    assert_eq!(place.run(&["backups", "bucket", "--at", "yesterday"]).status.code(), Some(2));
    assert!(place.ok(&["backups", "bucket", "--verify"]).contains("\nsound: "));
    let removed = &place.json(&["archive", "STORE", "bucket", "--keep", "0s", "--dry-run"])[0]["removed"];
    assert_eq!(removed["backups"], json!(3));
    let told = place.ok(&["archive", "STORE", "bucket", "--keep", "0s"]);
    assert!(told.contains("3 backups and"), "{told}");
    assert_eq!(place.ok(&["backups", "bucket"]).lines().count(), 1);
    assert!(place.fails(3, &["restore", "bucket", "new", "--backup", "1"]).contains("no backup 1"));
    place.ok(&["restore", "bucket", "new"]);
    assert_eq!(place.ok(&["export", "new"]), place.ok(&["export", "STORE"]));
}

#[test]
fn what_cannot_be_is_refused() {
    let place = place();
    place.fails(4, &["archive", "none", "bucket"]);
    assert!(
        place.fails(2, &["archive", "STORE", "ftp://there"]).contains("ftp is not a known kind of bucket")
    );
    place.ok(&["archive", "STORE", "bucket", "--owner", "the first"]);
    // Without the note nobody knows whose it is.
    std::fs::remove_file(place.store.with_extension("brooklet.archive")).unwrap();
    append(&place, "b", "x");
    let owned = place.fails(1, &["archive", "STORE", "bucket"]);
    assert!(owned.contains("owned by the first") && owned.contains("take over the archive"), "{owned}");
    place.ok(&["archive", "STORE", "bucket", "--take-over"]);
    // Another store, and damage.
    place.ok(&["append", "other", "log", "x"]);
    assert!(
        place.fails(4, &["archive", "other", "bucket", "--take-over"]).contains("the archive is of store")
    );
    let uploads = std::fs::read_dir(place.dir.path().join("bucket/bundles")).unwrap();
    let objects: Vec<_> = uploads.map(|upload| upload.unwrap().path().join("00000000")).collect();
    for object in &objects {
        let mut data = std::fs::read(object).unwrap();
        data[30] ^= 1;
        std::fs::write(object, data).unwrap();
    }
    let verified = place.fails(1, &["backups", "bucket", "--verify"]);
    assert!(verified.contains("defects"), "{verified}");
    assert!(place.fails(5, &["restore", "bucket", "new"]).contains("damage"));
    objects.iter().for_each(|object| std::fs::remove_file(object).unwrap());
    assert!(place.fails(5, &["restore", "bucket", "new"]).contains("is missing"));
}

/// Killed at any moment, each side leaves what was there, and goes on.
#[expect(clippy::disallowed_methods, reason = "it is killed after some time")]
#[test]
fn killed_commands_leave_all_of_it_or_nothing() {
    let place = Place::new();
    let killed = |after: u64, args: &[&str]| {
        let mut child = place.command(args).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(after));
        child.kill().unwrap();
        child.wait().unwrap();
        common::unlocked(&place.store);
        common::unlocked(&place.dir.path().join("new"));
    };
    for nth in 0..6u64 {
        let bucket = Bucket::open(place.dir.path().join("bucket").to_str().unwrap()).unwrap();
        let parts = Parts::new(&bucket, 1 << 20);
        let options = Options::new().ring_size(1 << 20).offload_reader(move |name| parts.open(name));
        let store = options.open(&place.store).unwrap();
        for n in 0..12_000u32 {
            drop(store.append(format!("log/{}", n % 700), format!("{nth}/{n:090}")).unwrap());
        }
        store.close().unwrap();
        drop(store);
        killed(nth * 20, &["archive", "STORE", "bucket"]);
        place.ok(&["archive", "STORE", "bucket"]);
        let before = place.ok(&["export", "STORE", "--archive", "bucket"]);
        // Of the odd ones it is elsewhere from then on, if it got so far.
        if nth % 2 == 1 {
            killed(nth * 15, &["archive", "STORE", "bucket", "--offload", "100K"]);
            assert!(place.ok(&["export", "STORE", "--archive", "bucket"]) == before, "{nth}");
            assert!(place.ok(&["check", "STORE", "--archive", "bucket"]).starts_with("sound"), "{nth}");
        }
        killed(nth * 15, &["restore", "bucket", "new"]);
        let new = place.dir.path().join("new");
        if new.exists() && !place.ok(&["list", "new"]).is_empty() {
            assert!(place.ok(&["export", "new"]) == before, "{nth}");
            std::fs::remove_file(&new).unwrap();
        }
        place.ok(&["restore", "bucket", "new"]);
        assert!(place.ok(&["export", "new"]) == before, "{nth}");
        assert!(place.ok(&["check", "new"]).starts_with("sound"), "{nth}");
        std::fs::remove_file(&new).unwrap();
    }
    assert!(place.ok(&["backups", "bucket", "--verify"]).contains("\nsound: "));
    assert!(place.ok(&["archive", "STORE", "bucket", "--keep", "0s"]).contains("backups and"));
    place.ok(&["restore", "bucket", "new"]);
    // A run that the store is making of others meanwhile goes with the next round.
    let left =
        || place.json(&["archive", "STORE", "bucket", "--offload", "0"])[0]["offloaded"]["left"].clone();
    assert!((0..10).any(|_| left() == json!(0)), "something stays for ever");
    assert!(place.ok(&["export", "new"]) == place.ok(&["export", "STORE", "--archive", "bucket"]));
}
