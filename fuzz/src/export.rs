//! What leaves a store, to do harm to: an export, as its entries before a codex file is made of
//! them, and a view in parts.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use brooklet::{Part, PartName, Retention, Store, View};
use brooklet_codex::{Bytes, Reader};

/// An entry of a codex file.
pub type Entry = (Vec<u8>, Vec<u8>);

/// A store of logs short and long, trimmed, limited and empty.
pub fn store() -> Store {
    let store = Store::in_memory(1).expect("memory takes a store");
    fill(&store);
    store
}

/// Makes these logs.
pub fn fill(store: &Store) {
    let append = |key: &str, payload: &[u8], times: u8| {
        for n in 0..times {
            let payload = [&[n], payload].concat();
            store.append(key, payload).expect("the store takes it").wait().expect("memory takes writes");
        }
    };
    append("long", &[7; 5000], 9);
    append("short", b"entry", 3);
    append("trimmed", b"entry", 9);
    append("limited", b"entry", 9);
    drop(store.trim("trimmed", 4).expect("it is there"));
    let kept = Retention::new().entries(5).bytes(999).age(Duration::from_secs(9));
    drop(store.set_retention("limited", kept).expect("it is there"));
    drop(store.set_retention("empty", kept).expect("it makes the log"));
}

fn view() -> View {
    store().view().expect("memory takes writes")
}

/// A table of parts, and the parts.
pub fn parts() -> &'static (Vec<u8>, BTreeMap<PartName, Bytes>) {
    static PARTS: OnceLock<(Vec<u8>, BTreeMap<PartName, Bytes>)> = OnceLock::new();
    PARTS.get_or_init(|| {
        let view = view();
        let bytes = |part: &Part| part.read(0, part.name().len as usize).expect("memory gives it");
        (view.table(), view.parts().iter().map(|part| (part.name(), bytes(part))).collect())
    })
}

/// The metadata of an export, and its entries.
pub fn sample() -> &'static (Vec<u8>, Vec<Entry>) {
    static SAMPLE: OnceLock<(Vec<u8>, Vec<Entry>)> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let mut file = Vec::new();
        let exported = view().export("", &mut file).expect("memory takes it");
        let reader = Reader::open(Bytes::from(file), exported.bytes, None).expect("it is sound");
        let metadata = reader.metadata().expect("it is sound").expect("exports have it").to_vec();
        let entries = reader.range::<&[u8]>(..).map(|entry| entry.expect("it is sound"));
        (metadata, entries.map(|(key, value)| (key, value.to_vec())).collect())
    })
}
