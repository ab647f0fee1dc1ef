//! A store with one damaged place, from the outside: what is left can be had, and every command
//! says what is not.

use crate::common;

use common::{Place, text};

/// A log in a run, and five in the ring, a block each; then one bit of the third of those flips.
/// Gives what `check` printed before.
fn a_flipped_bit_in_the_ring() -> Place {
    let (place, store) = loop {
        let (place, store) = Place::with_store();
        store.append_many("old", (0..200).map(|i| format!("old {i}"))).unwrap().wait().unwrap();
        store.checkpoint().unwrap();
        for i in 1..=5 {
            store.append(format!("new{i}"), format!("entry {i}")).unwrap().wait().unwrap();
        }
        // On a busy machine, the store may find time for a checkpoint in between.
        if store.info().unwrap().memtable_logs == 5 {
            break (place, store);
        }
    };
    store.close().unwrap();
    drop(store);
    let mut image = std::fs::read(&place.store).unwrap();
    let ring = 64 << 10;
    let at = |name: &str| image[ring..].windows(name.len()).position(|bytes| bytes == name.as_bytes());
    let at = ring + at("entry 3").unwrap();
    image[at] ^= 1;
    std::fs::write(&place.store, image).unwrap();
    place
}

#[test]
fn a_flipped_bit_in_the_ring_leaves_the_other_logs() {
    let place = a_flipped_bit_in_the_ring();
    let says = |args: &[&str], code: i32, names: &[&str]| {
        let output = place.run(args);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        assert!(names.iter().all(|name| told.contains(name)), "{args:?}: {told}");
        text(&output.stdout).to_owned()
    };
    // Logs that came later are whole.
    assert_eq!(place.run(&["read", "STORE", "new4"]).status.code(), Some(0));
    // All that there is of the others comes before the error.
    let old = says(
        &["read", "STORE", "old"],
        5,
        &["the ring, block", "entries of log \"old\" from 200 on may be missing"],
    );
    assert_eq!(old.lines().count(), 200);
    assert!(says(&["read", "STORE", "old", "--reverse"], 5, &["the ring, block"]).is_empty());
    says(&["read", "STORE", "new3"], 5, &["a lost commit may have created log \"new3\""]);
    let touched = "affected logs: \"new3\", and maybe other logs";
    let listed = says(&["list", "STORE"], 5, &[touched]);
    assert_eq!(listed.lines().count(), 5, "{listed}");
    // Any log may be missing, also before the first one.
    assert_eq!(says(&["list", "STORE", "--limit", "2"], 5, &[touched]).lines().count(), 2);
    let lines = says(&["export", "STORE"], 5, &["the readable data was exported", touched]);
    // The first line is that of the export, whose last line is for whole exports.
    assert_eq!(lines.lines().count(), 1 + 5 + 200 + 4, "{lines}");
    let import = ["import", "saved", "left.ndjson"];
    says(&["export", "STORE", "--to", "left.ndjson"], 5, &["the readable data was exported"]);
    assert_eq!(std::fs::read_to_string(place.dir.path().join("left.ndjson")).unwrap(), lines);
    says(&import, 2, &["the export is incomplete"]);
    says(&[&import[..], &["--incomplete"]].concat(), 0, &[]);
    assert_eq!(place.ok(&["list", "saved"]).lines().count(), 5);
    says(&["export", "STORE", "--to", "left.codex", "--format", "codex"], 5, &[touched]);
    assert!(!place.dir.path().join("left.codex").exists(), "nobody is to take it for whole");
    let map = says(&["inspect", "STORE"], 5, &[touched]);
    assert!(map.contains("ring"), "{map}");
    let checked = says(&["check", "STORE"], 1, &["2 logs read correctly", "`export`"]);
    assert!(checked.contains(touched) && checked.contains("3 more logs read as they were"), "{checked}");
    // What would write is refused, and says what works.
    says(&["append", "STORE", "new6", "x"], 5, &["the commands read, list, export and check"]);
}

/// Many logs in a run, in the midst of which one bit flips.
fn a_flipped_bit_in_a_run() -> Place {
    let (place, store) = Place::with_store();
    for i in 0..200 {
        // No codec shrinks much of it, so that the run has many blocks.
        let mut noise = brooklet::io::Rng::new(i);
        let noise: Vec<u8> = (0..2000).map(|_| noise.next() as u8).collect();
        store.append(format!("log/{i:03}"), noise).unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    let run = store.info().unwrap().runs[0];
    store.close().unwrap();
    drop(store);
    let mut image = std::fs::read(&place.store).unwrap();
    image[(run.offset + run.bytes / 2) as usize] ^= 1;
    std::fs::write(&place.store, image).unwrap();
    place
}

#[test]
fn a_flipped_bit_in_a_run_leaves_the_other_logs() {
    let place = a_flipped_bit_in_a_run();
    let says = |args: &[&str], code: i32, names: &[&str]| {
        let output = place.run(args);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        assert!(names.iter().all(|name| told.contains(name)), "{args:?}: {told}");
        text(&output.stdout).to_owned()
    };
    let listed = says(&["list", "STORE"], 5, &["may be missing"]).lines().count();
    assert!((170..200).contains(&listed), "{listed} of 200 logs are listed");
    // The first logs are whole, and more of them are not.
    assert_eq!(says(&["list", "STORE", "--limit", "10"], 0, &[]).lines().count(), 10);
    let most = listed - 5;
    let page = says(&["list", "STORE", "--limit", &most.to_string()], 5, &["may be missing"]);
    assert_eq!(page.lines().count(), most);
    // A line for the export, one for each log, and one for its entry.
    let exported = says(&["export", "STORE"], 5, &["the readable data was exported", "may be missing"]);
    assert_eq!(exported.lines().count(), 1 + 2 * listed);
    let bucket = place.dir.path().join("bucket");
    let bucket = bucket.to_str().unwrap();
    says(&["archive", "STORE", bucket], 5, &["1 of", "parts of the store are damaged"]);
    let told = says(&["backups", bucket, "--backup", "0"], 0, &[]);
    assert!(told.contains("damaged when the backup was made: 1 part;"), "{told}");
    says(&["restore", bucket, "whole"], 5, &["restore --damaged"]);
    assert!(!place.dir.path().join("whole").exists(), "nobody is to take it for whole");
    let told = says(&["restore", bucket, "left", "--damaged"], 0, &[]);
    assert!(told.contains(&format!("{listed} logs")) && told.contains("some data is damaged"), "{told}");
    assert_eq!(says(&["list", "left"], 5, &["may be missing"]).lines().count(), listed);
}

/// The table of spaces is at the begin of a run, where one bit flips.
#[test]
fn a_listing_of_spaces_that_lacks_some_fails() {
    let (place, store) = Place::with_store();
    store.create_space("games", brooklet::SpaceConfig::new()).unwrap();
    store.append("log", "entry").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    let run = store.info().unwrap().runs[0];
    store.close().unwrap();
    drop(store);
    assert_eq!(place.ok(&["space", "list", "STORE"]), "games: durable\n");
    let mut image = std::fs::read(&place.store).unwrap();
    image[run.offset as usize + 8] ^= 1;
    std::fs::write(&place.store, image).unwrap();
    let listed = place.run(&["space", "list", "STORE"]);
    let told = text(&listed.stderr);
    assert_eq!((listed.status.code(), text(&listed.stdout)), (Some(5), ""), "{told}");
    assert!(told.contains("brooklet: damage in run"), "{told}");
}

/// A damaged block of the ring may have changed the spaces.
#[test]
fn a_listing_of_spaces_beside_a_damaged_ring_fails() {
    let listed = a_flipped_bit_in_the_ring().run(&["space", "list", "STORE"]);
    let told = text(&listed.stderr);
    assert_eq!((listed.status.code(), text(&listed.stdout)), (Some(5), ""), "{told}");
    assert!(told.contains("the ring, block"), "{told}");
}
