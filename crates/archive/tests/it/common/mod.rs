//! Stores, buckets, and what tests compare.

pub mod faulty;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use brooklet::io::MemVolume;
use brooklet::{Options, Store, View, WalkItem};
use brooklet_archive::object_store::ObjectStore;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::{Archive, Archived, Bucket, Error, Which};
use futures_util::{FutureExt, TryStreamExt};

/// A store in memory in which nothing happens by itself.
pub fn store(seed: u64) -> Store {
    let options = Options::new().ring_size(1 << 20).max_payload(64 << 10).threads(false);
    options.create_on(Arc::new(MemVolume::new(seed))).unwrap()
}

/// A handle of its own to a bucket, as another process has one.
pub fn bucket(store: &Arc<impl ObjectStore>) -> Bucket {
    Bucket::of(store.clone(), "some/where").unwrap()
}

pub fn archive(store: &Arc<impl ObjectStore>, note: &Path) -> Archive {
    Archive::new(bucket(store), note, format!("the host of {}", note.file_name().unwrap().display())).unwrap()
}

pub fn back_up(archive: &mut Archive, store: &Store) -> Result<Archived, Error> {
    archive.backup(store, brooklet::Progress::ignore)
}

/// Adds to logs whose keys begin with `name`; no codec shrinks much of it.
pub fn fill(store: &Store, name: &str, logs: u64, bytes: usize) {
    let mut rng = brooklet::io::Rng::new(logs);
    for log in 0..logs {
        let noise: Vec<u8> = (0..bytes).map(|_| rng.next() as u8).collect();
        // All are waited for below.
        drop(store.append_many(format!("{name}/{log:04}"), [&noise[..], b"and more"]).unwrap());
    }
    store.flush().unwrap();
}

/// First number and entries of each log.
pub type Logs = BTreeMap<Vec<u8>, (u64, Vec<Vec<u8>>)>;

pub fn logs(view: &View) -> Logs {
    let mut logs = Logs::new();
    let mut last = Vec::new();
    for walked in view.walk("").unwrap() {
        match walked.unwrap() {
            WalkItem::Log(log) => {
                last.clone_from(&log.key);
                logs.insert(log.key, (log.bounds.first, Vec::new()));
            }
            WalkItem::Entry(entry) => logs.get_mut(&last).unwrap().1.push(entry.payload.to_vec()),
        }
    }
    logs
}

/// What a store holds.
pub fn contents(store: &Store) -> Logs {
    logs(&store.view().unwrap())
}

/// What a new store holds once a backup was taken over by it.
pub fn restored(bucket: &Bucket, which: Which) -> Logs {
    let new = store(77);
    new.import().view(&bucket.backup(which).unwrap().view(1 << 20).unwrap(), "").unwrap();
    contents(&new)
}

/// Returns the names of all objects.
pub fn names(memory: &InMemory) -> Vec<String> {
    let listed = memory.list(None).map_ok(|object| object.location.to_string()).try_collect();
    let mut names: Vec<String> = listed.now_or_never().unwrap().unwrap();
    names.sort();
    names
}
