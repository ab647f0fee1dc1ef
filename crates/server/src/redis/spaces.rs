//! The spaces that are databases: only clients of the server change their logs.

use brooklet::{SpaceInfo, Store, WhenFull};

use crate::http::STREAMS;

/// Whether a space may be a database; why not.
pub fn check(space: &SpaceInfo) -> Result<(), String> {
    let SpaceInfo { name, config, .. } = space;
    if name == STREAMS {
        return Err(format!("space {name} holds the HTTP streams: select another space"));
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

/// Checks the spaces that are databases by their number.
pub fn check_numbered(store: &Store, databases: u64) -> Result<(), String> {
    let is_numbered = |space: &SpaceInfo| {
        space.name.parse().is_ok_and(|n: u64| n < databases && n.to_string() == space.name)
    };
    store.spaces().iter().filter(|space| is_numbered(space)).try_for_each(check)
}
