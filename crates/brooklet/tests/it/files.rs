//! Stores in files that others copy, delete, replace and cut, and whose process goes elsewhere.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use brooklet::io::{Clock, SystemClock};
use brooklet::{Error, ErrorKind, Options, Store};

fn small() -> Options {
    Options::new().ring_size(1 << 20).max_payload(64 << 10)
}

fn set_len(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// After the file has gone no entry is acknowledged, whoever writes it: one who waits, or the
/// committer. Closing says so, too.
#[test]
fn nothing_is_acknowledged_in_a_file_that_went() {
    type Goes = fn(&Path);
    let ways: [(&str, Goes); 4] = [
        ("deleted or replaced", |path| fs::remove_file(path).unwrap()),
        ("deleted or replaced", |path| fs::rename(path.with_extension("other"), path).unwrap()),
        ("cut from", |path| set_len(path, 1 << 20)),
        ("cut from", |path| set_len(path, 0)),
    ];
    for (way, (words, go)) in ways.into_iter().enumerate() {
        for options in [small(), small().io_uring(false), small().direct(false)] {
            for waits in [true, false] {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("store");
                fs::write(path.with_extension("other"), "another").unwrap();
                let store = options.clone().open(&path).unwrap();
                store.append("log", "before").unwrap().wait().unwrap();
                go(&path);
                let why = if waits { told_to_one_who_waits(&store) } else { told_to_a_callback(&store) };
                assert!(why.contains(words) && why.contains("store was "), "way {way}: {why}");
                assert_eq!(store.append("log", "later").unwrap_err().kind(), ErrorKind::Stopped);
                assert_eq!(store.read("log", ..).unwrap().count(), 1, "reads go on");
                assert!(store.close().is_err(), "way {way}");
            }
        }
    }
}

fn told_to_one_who_waits(store: &Store) -> String {
    store.append("log", "after").and_then(|ticket| ticket.wait().map(drop)).unwrap_err().to_string()
}

fn told_to_a_callback(store: &Store) -> String {
    let (tell, told) = std::sync::mpsc::channel();
    match store.append("log", "after") {
        Ok(ticket) => ticket.on_done(move |done| tell.send(done).unwrap()),
        // The block that an idle log writes to tell what is acknowledged may have met it before.
        Err(error) => return error.to_string(),
    }
    told.recv().unwrap().unwrap_err().to_string()
}

/// As `cp --sparse=always` copies, or a backup that leaves zeros out.
fn copy_with_holes(from: &Path, to: &Path) -> io::Result<()> {
    let bytes = fs::read(from)?;
    let copy = File::create(to)?;
    copy.set_len(bytes.len() as u64)?;
    let zeros = [0; 4096];
    for (n, sector) in bytes.chunks(4096).enumerate().filter(|(_, sector)| *sector != &zeros[..sector.len()])
    {
        copy.write_all_at(sector, n as u64 * 4096)?;
    }
    copy.sync_all()
}

#[test]
fn a_copy_with_holes_gets_its_space_before_it_is_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let [data, ring, data_copy, ring_copy] =
        ["data", "ring", "data2", "ring2"].map(|name| dir.path().join(name));
    let taken = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    for apart in [false, true] {
        let at = |ring: &Path| if apart { small().ring_at(ring) } else { small() };
        let store = at(&ring).open(&data).unwrap();
        store.append("log", "entry").unwrap().wait().unwrap();
        store.close().unwrap();
        drop(store);
        copy_with_holes(&data, &data_copy).unwrap();
        if apart {
            copy_with_holes(&ring, &ring_copy).unwrap();
        }
        let holder = if apart { &ring_copy } else { &data_copy };
        if taken(holder) > 512 << 10 {
            return println!("skipped: files have no holes here");
        }
        at(&ring_copy).read_only(true).open(&data_copy).unwrap();
        assert!(taken(holder) < 512 << 10, "reading takes no room");
        let store = at(&ring_copy).open(&data_copy).unwrap();
        assert!(taken(holder) >= 1 << 20, "{}", taken(holder));
        assert_eq!(store.bounds("log").unwrap().next, 1);
        drop(store);
        fs::remove_file(&data).unwrap();
    }
}

#[test]
fn one_place_is_not_for_two_things() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::os::unix::fs::symlink(".", at("too")).unwrap();
    let every = Duration::from_secs(1);
    for (options, words) in [
        (small().ring_at(at("too/store")), "both the store and its ring"),
        (small().metrics_file(at("store"), every), "both the store and its metrics file"),
        (
            small().ring_at(at("ring")).metrics_file(at("too/ring"), every),
            "both its ring and its metrics file",
        ),
        (small().ring_at(at("m.part")).metrics_file(at("m"), every), "both its ring and its metrics file"),
    ] {
        for error in
            [options.clone().open(at("store")).unwrap_err(), options.format(at("store"), false).unwrap_err()]
        {
            assert!(matches!(&error, Error::InvalidOptions(what) if what.contains(words)), "{error}");
        }
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was made");
}

const WANDERER: &str = "BROOKLET_TEST_WANDERER";

/// In a process of its own: the working directory belongs to all of a process.
#[test]
fn paths_stay_what_they_were_when_the_store_was_opened() {
    if let Some(dir) = std::env::var_os(WANDERER) {
        return wander(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "files::paths_stay_what_they_were_when_the_store_was_opened"]);
    let output = command.env(WANDERER, dir.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn wander(dir: &Path) {
    std::env::set_current_dir(dir).unwrap();
    fs::create_dir("elsewhere").unwrap();
    let options = small().ring_at("ring").metrics_file("metrics", Duration::from_millis(1));
    let store = options.open("store").unwrap();
    std::env::set_current_dir("elsewhere").unwrap();
    let clock = SystemClock::new();
    let file = dir.join("metrics");
    fs::remove_file(&file).unwrap();
    while !file.exists() {
        assert!(clock.now() < Duration::from_secs(60), "the metrics are written elsewhere");
        store.append("log", "entry").unwrap().wait().unwrap();
    }
    store.close().unwrap();
    drop(store);
    assert!(!file.exists() && fs::read_dir(".").unwrap().count() == 0);
}

/// Without the option, the usual umask lets every user of the machine read the store.
#[test]
fn files_are_for_their_user_alone() {
    let dir = tempfile::tempdir().unwrap();
    let [path, ring, metrics, part, other] =
        ["store", "ring", "metrics", "metrics.part", "other"].map(|name| dir.path().join(name));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let options = small().metrics_file(&metrics, Duration::from_millis(1));
    // A link of the name that the store is going to use is replaced, and not followed.
    fs::write(&other, "mine").unwrap();
    std::os::unix::fs::symlink(&other, &part).unwrap();
    let store = options.clone().ring_at(&ring).open(&path).unwrap();
    assert_eq!([&path, &ring, &metrics].map(|path| mode(path)), [0o600; 3]);
    assert_eq!(fs::read(&other).unwrap(), b"mine");
    store.close().unwrap();
    let shared = options.permissions(0o640).metrics_permissions(0o666).open(dir.path().join("shared"));
    let store = shared.unwrap();
    // The umask of the process does not take from the permissions of the metrics.
    assert_eq!((mode(&dir.path().join("shared")) & 0o600, mode(&metrics)), (0o600, 0o666));
    store.close().unwrap();
}

#[test]
fn a_link_with_the_name_of_a_draft_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (other, link) = (dir.path().join("other"), dir.path().join("store.new-0123456789abcdef"));
    fs::write(&other, "mine").unwrap();
    std::os::unix::fs::symlink(&other, &link).unwrap();
    small().open(dir.path().join("store")).unwrap().close().unwrap();
    assert!(link.symlink_metadata().is_ok());
    assert_eq!(fs::read(&other).unwrap(), b"mine");
}

/// A store is made under its name and 21 more bytes, and file systems take names of 255 bytes.
#[test]
fn a_name_that_leaves_no_room_for_a_draft_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let name = |len: usize| dir.path().join("n".repeat(len));
    small().open(name(234)).unwrap().close().unwrap();
    let error = small().open(name(235)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("235 bytes"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
