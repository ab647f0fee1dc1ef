//! Views in parts: kept elsewhere, changed there, and taken over by other stores.

use crate::common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brooklet::codex::{Bytes, Source};
use brooklet::io::MemVolume;
use brooklet::{Error, Options, PartName, Retention, Store, View};
use common::{contents, elsewhere, seen, walked};

fn store(seed: u64) -> Store {
    let options = Options::new().ring_size(1 << 20).max_payload(64 << 10).threads(false);
    options.create_on(Arc::new(MemVolume::new(seed))).unwrap()
}

/// Adds a run of logs whose keys begin with `name`.
fn fill(store: &Store, name: &str) {
    for log in 0..40u8 {
        store.append_many(format!("{name}/{log}"), [[log; 400], [!log; 400]]).unwrap().wait().unwrap();
    }
    store.set_retention(format!("{name}/3"), Retention::new().entries(1)).unwrap().wait().unwrap();
    store.trim(format!("{name}/4"), 1).unwrap().wait().unwrap();
}

fn names(view: &View) -> BTreeSet<PartName> {
    view.parts().iter().map(|part| part.name()).collect()
}

#[test]
fn the_next_view_shares_what_did_not_change() {
    let store = store(1);
    for round in 0..5 {
        fill(&store, &format!("{round}"));
        store.checkpoint().unwrap();
    }
    let first = store.view().unwrap();
    assert_eq!(names(&first).len(), first.parts().len());
    fill(&store, "new");
    let second = store.view().unwrap();
    let (first, second) = (names(&first), names(&second));
    assert!(first.is_subset(&second) && second.len() == first.len() + 1, "one run is new");
}

#[test]
fn another_store_takes_it_over() {
    let (here, there) = (store(1), store(2));
    fill(&here, "a");
    here.checkpoint().unwrap();
    fill(&here, "b");
    here.delete("a/7").unwrap().wait().unwrap();
    let view = here.view().unwrap();
    let logs = contents(&here).unwrap();
    drop(here);
    let kept = elsewhere(&view);
    there.import().view(&kept, "").unwrap();
    assert!(contents(&there).unwrap() == logs);
    assert_eq!(there.retention("b/3").unwrap().entries, Some(1));
    let mut exports = [Vec::new(), Vec::new()];
    view.export("", &mut exports[0]).unwrap();
    kept.export("", &mut exports[1]).unwrap();
    assert!(exports[0] == exports[1]);
    assert!(walked(&kept, "b/").len() == 40 && seen(&kept) == logs);
}

/// Whatever becomes of what is kept, nothing wrong is read.
#[test]
fn what_was_changed_elsewhere_is_noticed() {
    let store = store(1);
    fill(&store, "a");
    store.checkpoint().unwrap();
    fill(&store, "b");
    let view = store.view().unwrap();
    let (table, logs) = (view.table(), contents(&store).unwrap());
    let parts: BTreeMap<PartName, Bytes> = view
        .parts()
        .iter()
        .map(|part| (part.name(), part.read(0, part.name().len as usize).unwrap()))
        .collect();
    let open = |table: &[u8], parts: &BTreeMap<PartName, Bytes>| {
        View::from_parts(table, 1 << 20, |name| Ok(Arc::new(parts[&name].clone()) as Arc<dyn Source>))
    };
    // The id, the place in the log and the time are told, and decide over nothing else.
    for bit in (0..12 * 8).chain(44 * 8..table.len() * 8) {
        let mut damaged = table.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let opened = open(&damaged, &parts);
        assert!(matches!(opened, Err(Error::Damaged { .. } | Error::NewerFormat { .. })), "bit {bit}");
    }
    for cut in 0..table.len() {
        assert!(matches!(open(&table[..cut], &parts), Err(Error::Damaged { .. })), "cut to {cut}");
    }
    for (name, part) in &parts {
        for byte in (0..part.len()).step_by(37) {
            let mut bytes = part.to_vec();
            bytes[byte] ^= 0x10;
            let mut damaged = parts.clone();
            damaged.insert(*name, bytes.into());
            let read = open(&table, &damaged).and_then(|view| view.walk("")?.collect::<Result<Vec<_>, _>>());
            match read {
                // What is not read for this: the filter, or parts of the index.
                Ok(read) => assert!(read == view.walk("").unwrap().map(|it| it.unwrap()).collect::<Vec<_>>()),
                Err(Error::Damaged { .. }) => {}
                Err(error) => panic!("byte {byte}: {error}"),
            }
        }
        let mut cut = parts.clone();
        cut.insert(*name, part.slice(..part.len() - 1));
        let mut other = parts.clone();
        let swapped = parts.iter().find(|(key, _)| *key != name).unwrap().1;
        other.insert(*name, swapped.clone());
        for parts in [cut, other] {
            // It hides nothing of the others, and what reads it fails.
            let view = open(&table, &parts).unwrap();
            assert_eq!(view.damage().len(), 1);
            let walked = view.walk("").and_then(Iterator::collect::<Result<Vec<_>, _>>);
            assert!(matches!(walked, Err(Error::Damaged { .. })));
        }
    }
    let lost = |_| {
        Err(Error::Io { doing: "reading a bucket".into(), cause: Arc::new(std::io::Error::other("gone")) })
    };
    assert!(matches!(View::from_parts(&table, 0, lost), Err(Error::Io { .. })));
    assert!(seen(&open(&table, &parts).unwrap()) == logs);
    assert!(matches!(view.parts()[0].read(u64::MAX, 1), Err(Error::Damaged { .. } | Error::Io { .. })));
}
