//! Where parts are kept that stores offload: with the thread that plays their world, as long as
//! that lasts. No two parts have the same name, so what one power cut leaves, and what another
//! does, read from the same.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use brooklet::codex::Source;
use brooklet::{Bytes, Error, PartName, Store};

thread_local! {
    static PARTS: RefCell<BTreeMap<PartName, Bytes>> = const { RefCell::new(BTreeMap::new()) };
}

/// Another world begins.
pub fn clear() {
    PARTS.with_borrow_mut(BTreeMap::clear);
}

/// Keeps all parts of a store.
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

/// A part, if it is kept.
pub fn find(name: PartName) -> Option<Arc<Bytes>> {
    PARTS.with_borrow(|parts| parts.get(&name).cloned().map(Arc::new))
}

/// A part that a store was made to rely on.
pub fn open(name: PartName) -> Result<Arc<dyn Source>, Error> {
    let missing =
        || Error::Damaged { place: "elsewhere".into(), what: format!("part {name} was never kept") };
    Ok(find(name).ok_or_else(missing)?)
}
