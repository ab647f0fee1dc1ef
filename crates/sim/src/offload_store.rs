//! The store of offloaded parts: one per thread, for the world that the thread plays. No two parts
//! have the same name, so all crash images of a run can share the parts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use brooklet::codex::Source;
use brooklet::{Bytes, Error, PartName, Store};

thread_local! {
    static PARTS: RefCell<BTreeMap<PartName, Bytes>> = const { RefCell::new(BTreeMap::new()) };
}

/// Removes all parts, before another world begins.
pub fn clear() {
    PARTS.with_borrow_mut(BTreeMap::clear);
}

/// Stores all parts of a store.
pub fn keep(store: &Store) -> Result<(), Error> {
    for part in store.view()?.parts() {
        let name = part.name();
        if find(name).is_none() {
            let data = part.read(0, name.len as usize)?;
            PARTS.with_borrow_mut(|parts| parts.insert(name, data));
        }
    }
    Ok(())
}

/// Returns a part, if it is stored.
pub fn find(name: PartName) -> Option<Arc<Bytes>> {
    PARTS.with_borrow(|parts| parts.get(&name).cloned().map(Arc::new))
}

/// Opens a part that the store relies on.
pub fn open(name: PartName) -> Result<Arc<dyn Source>, Error> {
    let missing =
        || Error::Damaged { place: "elsewhere".into(), what: format!("part {name} was never kept") };
    Ok(find(name).ok_or_else(missing)?)
}
