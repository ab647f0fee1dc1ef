//! Objects in memory, which answers at once.

use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::object_store::path::Path;
use brooklet_archive::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use brooklet_codex::Bytes;
use futures_util::{FutureExt, TryStreamExt};

/// All objects.
pub fn objects(memory: &InMemory) -> Vec<(Path, Bytes)> {
    let listed: Vec<ObjectMeta> =
        memory.list(None).try_collect().now_or_never().expect("at once").expect("memory lists");
    let read = |object: ObjectMeta| {
        let got = memory.get(&object.location).now_or_never().expect("at once").expect("it is there");
        (object.location, got.bytes().now_or_never().expect("at once").expect("memory reads"))
    };
    listed.into_iter().map(read).collect()
}

/// Writes an object.
pub fn put(memory: &InMemory, path: &Path, data: Vec<u8>) {
    memory.put(path, data.into()).now_or_never().expect("at once").expect("memory takes it");
}
