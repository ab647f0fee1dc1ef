//! The spaces that are databases: only clients of the server change the logs of these spaces.

use brooklet::{SpaceInfo, Store, WhenFull};

use crate::http::{DOCUMENTS, STREAMS};

/// Returns an error with the reason if a space may not be a database.
pub fn check(space: &SpaceInfo) -> Result<(), String> {
    let SpaceInfo { name, config, .. } = space;
    if name == STREAMS {
        return Err(format!("space {name} holds the HTTP streams: select another space"));
    }
    if name == DOCUMENTS {
        return Err(format!("space {name} holds the documents: select another space"));
    }
    if config.retention.is_limited() {
        return Err(format!(
            "space {name} has a retention limit, and lists would lose elements: remove the limit"
        ));
    }
    if config.class.memory().is_some_and(|memory| memory.when_full == WhenFull::DropOldest) {
        return Err(format!(
            "space {name} drops its oldest logs when memory is full, and keys would disappear: let the space refuse commits instead"
        ));
    }
    Ok(())
}

/// Checks the spaces that are numbered databases.
pub fn check_numbered(store: &Store, databases: u64) -> Result<(), String> {
    store.spaces().iter().filter(|space| is_numbered(&space.name, databases)).try_for_each(check)
}

/// Returns the databases that may have keys: the numbered ones, and each space that is fit to be
/// one.
pub fn databases(store: &Store, numbered: u64) -> Vec<String> {
    let is_named = |space: &SpaceInfo| !is_numbered(&space.name, numbered) && check(space).is_ok();
    let named = store.spaces().into_iter().filter(is_named).map(|space| space.name);
    (0..numbered).map(|number| number.to_string()).chain(named).collect()
}

fn is_numbered(name: &str, databases: u64) -> bool {
    name.parse().is_ok_and(|n: u64| n < databases && n.to_string() == name)
}
