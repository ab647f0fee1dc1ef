//! Tables and changes that no store writes, with sound checksums.

use std::iter;

use super::*;

fn decoded<'a>(next: u64, spaces: impl ExactSizeIterator<Item = &'a Space>) -> Spaces {
    Spaces::decode(&format::encode_table(next, spaces), 1).expect("a table")
}

fn space(name: &str) -> [(&str, SpaceConfig, bool); 1] {
    [(name, SpaceConfig::new(), false)]
}

/// In an earlier state, the change was malformed, and was committed all the same.
#[test]
fn the_last_number_is_followed_by_an_error() {
    let mut spaces = decoded(u64::MAX - 1, iter::empty());
    let last = spaces.put(space("last")).unwrap();
    assert!(spaces.apply(&last.encode()).is_some());
    let known = spaces.put(space("last")).unwrap();
    assert!(spaces.apply(&known.encode()).is_some());
    assert!(matches!(spaces.put(space("one-more")), Err(Error::InvalidSpace(_))));
}

/// The space would have a number that is not given out yet, and each later table would be
/// malformed.
#[test]
fn a_change_gives_no_number_back() {
    let one = Space::new(b"one", 1, SpaceConfig::new(), false, Totals::default());
    let mut spaces = decoded(2, iter::once(&one));
    assert!(spaces.apply(&format::encode_changes(1, &[])).is_none());
    let known = spaces.put(space("one")).unwrap();
    assert!(spaces.apply(&known.encode()).is_some());
    assert!(Spaces::decode(&spaces.encode(), 1).is_some());
}

#[test]
fn shares_of_any_size_are_summed() {
    let one = Space::new(b"one", 1, SpaceConfig::new(), true, Totals::default());
    let mut spaces = decoded(2, iter::once(&one));
    spaces.begin();
    for key in [b"one/a", b"one/b"] {
        spaces.shift(key, Share::default(), Share { space: 1, bytes: u64::MAX / 2 });
    }
    assert!(spaces.check_quotas().is_ok());
}
