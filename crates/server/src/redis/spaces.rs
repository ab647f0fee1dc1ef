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
    let is_numbered = |space: &SpaceInfo| {
        space.name.parse().is_ok_and(|n: u64| n < databases && n.to_string() == space.name)
    };
    store.spaces().iter().filter(|space| is_numbered(space)).try_for_each(check)
}
