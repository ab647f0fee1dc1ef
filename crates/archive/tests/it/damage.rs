//! Stores of which a run is damaged: backups go on, have what can be read, and say what is damaged.

use std::ops::Range;
use std::sync::Arc;

use brooklet::io::MemVolume;
use brooklet::{Create, Error, Options, Store, View};
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::{Bucket, Which};

use crate::common::{archive, back_up, bucket, fill};

fn options() -> Options {
    Options::new().ring_size(1 << 20).max_payload(64 << 10).threads(false)
}

fn open(volume: &MemVolume) -> Store {
    options().create(Create::Never).open_on(Arc::new(volume.clone())).unwrap()
}

/// A closed store with a log in each of two runs, and many in the newer one, and where that is.
fn two_runs(between: impl FnOnce(&Store)) -> (MemVolume, Range<u64>) {
    let volume = MemVolume::new(1);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    fill(&store, "old", 20, 3000);
    store.checkpoint().unwrap();
    between(&store);
    fill(&store, "new", 60, 3000);
    store.checkpoint().unwrap();
    let run = store.info().unwrap().runs[0];
    store.close().unwrap();
    (volume, run.offset..run.offset + run.bytes)
}

/// How many logs can be read; of all others damage is the reason.
fn readable(view: &View) -> usize {
    let read = |key: String| match view.read(&key, ..).and_then(|log| log.collect::<Result<Vec<_>, _>>()) {
        Ok(entries) => usize::from(entries.len() == 2),
        Err(Error::Damaged { .. }) => 0,
        Err(error) => panic!("{key}: {error}"),
    };
    let old = (0..20).map(|i| format!("old/{i:04}"));
    old.chain((0..60).map(|i| format!("new/{i:04}"))).map(read).sum()
}

fn view(bucket: &Bucket, which: Which) -> View {
    bucket.backup(which).unwrap().view(1 << 20).unwrap()
}

#[test]
pub fn a_damaged_part_is_backed_up_as_it_is_and_marked() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let (handle, mut archive) = (bucket(&memory), archive(&memory, &dir.path().join("note")));
    let (volume, run) = two_runs(|store| assert!(back_up(&mut archive, store).unwrap().is_new));
    let byte = (run.start + (run.end - run.start) / 2) as usize;
    volume.flip(byte, 3);
    let store = open(&volume);
    let archived = back_up(&mut archive, &store).unwrap();
    assert_eq!((archived.number, archived.damaged_parts), (1, 1));
    assert_eq!(handle.backup(Which::Latest).unwrap().damaged_parts(), 1);
    let backed_up = view(&handle, Which::Number(1));
    let left = readable(&backed_up);
    assert!((60..80).contains(&left), "{left} of 80 logs are readable");
    assert_eq!(backed_up.damage().len(), 1);
    // All of it is not to be had without a word.
    let copied = options().copy_on(Arc::new(MemVolume::new(2)), &backed_up);
    assert!(matches!(copied, Err(Error::Damaged { .. })));
    let copy = options().copy_damaged(true).copy_on(Arc::new(MemVolume::new(2)), &backed_up).unwrap();
    assert_eq!(readable(&copy.view().unwrap()), left);
    // Nothing has changed; then something did, and the part is not sent again.
    let again = back_up(&mut archive, &store).unwrap();
    assert_eq!((again.is_new, again.damaged_parts), (false, 1));
    store.append("old/0000", "later").unwrap().wait().unwrap();
    let again = back_up(&mut archive, &store).unwrap();
    assert_eq!((again.number, again.damaged_parts), (2, 1));
    let added = handle.backup(Which::Number(2)).unwrap().added();
    assert!(added < 10_000, "{added} bytes were sent");
    store.close().unwrap();
    // Somebody puts the bit back.
    volume.flip(byte, 3);
    let store = open(&volume);
    store.append("old/0001", "later").unwrap().wait().unwrap();
    let mended = back_up(&mut archive, &store).unwrap();
    assert_eq!((mended.number, mended.damaged_parts), (3, 0));
    assert_eq!(readable(&view(&handle, Which::Number(3))), 78, "two logs have an entry more");
    assert_eq!(readable(&view(&handle, Which::Number(1))), left, "what was backed up stays as it is");
}

/// Nothing of the part can be read, since its footer is damaged.
#[test]
pub fn a_part_that_cannot_be_read_is_left_out_and_marked() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let (handle, mut archive) = (bucket(&memory), archive(&memory, &dir.path().join("note")));
    let (volume, run) = two_runs(|_| ());
    let footer = (0..4096).map(|back| run.end as usize - 1 - back).find(|&at| volume.image()[at] != 0);
    volume.flip(footer.unwrap(), 3);
    let store = open(&volume);
    let archived = back_up(&mut archive, &store).unwrap();
    assert_eq!(archived.damaged_parts, 1);
    let backed_up = view(&handle, Which::Latest);
    let left = readable(&backed_up);
    assert!((20..80).contains(&left), "{left} of 80 logs are readable");
    let error = backed_up.read("new/0059", ..).map(drop).unwrap_err().to_string();
    assert!(error.contains("could not be read when the backup was made"), "{error}");
    let again = back_up(&mut archive, &store).unwrap();
    assert_eq!((again.is_new, again.damaged_parts), (false, 1));
    let copy = options().copy_damaged(true).copy_on(Arc::new(MemVolume::new(2)), &backed_up).unwrap();
    assert_eq!(readable(&copy.view().unwrap()), left);
}
