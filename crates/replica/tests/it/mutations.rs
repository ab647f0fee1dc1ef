//! Seeded bugs of the protocol: deliberate breaks, each of which the exhaustive check must catch. A
//! build with the feature `seeded-bugs` plants them.

use brooklet_replica::TakeoverLimits;
use stateright::{Checker, HasDiscoveries, Model};

use crate::model::{LOST, Protocol};
use crate::world::Bounds;

/// Bounds in which the bug shows: blocks of the first owner and of each later one, faults, records,
/// claimants, window.
fn is_caught(bug: &'static str, [first, later, faults, records, claimants, window]: [u8; 6]) {
    let takeover = TakeoverLimits { objects: 0, ahead: 3 };
    let window = window.into();
    let bounds = Bounds { blocks: [first, later], claimants, faults, records, window, takeover };
    let check = |bug| {
        let checker = Protocol { bounds, bug }.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
        let checker = checker.spawn_bfs().join();
        println!("{bug:?}: {} different states", checker.unique_state_count());
        checker.discovery(LOST)
    };
    assert!(check(None).is_none(), "the bounds show a fault without the bug");
    let path = check(Some(bug)).unwrap_or_else(|| panic!("{bug} goes unnoticed"));
    let last = path.last_state().holds().unwrap_err();
    println!("{bug}: {last}, by {:?}", path.into_actions());
}

#[test]
fn fences_that_are_trimmed_are_caught() {
    is_caught("fences-are-trimmed", [2, 1, 0, 1, 1, 2]);
}

#[test]
fn a_missing_second_look_is_caught() {
    is_caught("no-second-look", [1, 1, 0, 1, 1, 2]);
}

#[test]
fn acknowledgements_out_of_order_are_caught() {
    is_caught("acks-out-of-order", [2, 1, 0, 0, 1, 2]);
}

#[test]
fn a_belief_that_what_exists_is_ones_own_is_caught() {
    is_caught("exists-is-mine", [1, 1, 0, 0, 1, 2]);
}

#[test]
fn other_bytes_on_a_retry_are_caught() {
    is_caught("other-bytes-on-retry", [2, 1, 1, 1, 1, 1]);
}

#[test]
fn a_record_in_spite_of_a_later_owner_is_caught() {
    is_caught("record-is-unconditional", [1, 1, 0, 2, 1, 2]);
}

#[test]
fn a_claimant_that_comes_too_late_is_caught() {
    is_caught("late-claimant", [1, 1, 0, 1, 2, 2]);
}

#[test]
fn a_trim_before_its_record_is_caught() {
    is_caught("trims-before-the-record", [1, 1, 0, 1, 1, 2]);
}

/// A store that acknowledges before the bucket has confirmed loses entries with its host.
#[test]
fn an_acknowledgement_before_the_bucket_has_confirmed_is_caught() {
    use brooklet::io::seeded::{met, plant};
    plant(Some("acknowledged-before-the-mirror"));
    let caught = (0..20).any(|seed| std::panic::catch_unwind(|| crate::replica::lives(seed)).is_err());
    assert!(met() > 0, "the tests do not come there");
    plant(None);
    assert!(caught, "it goes unnoticed");
}

/// A ring that is trimmed of what the bucket lacks cannot be continued.
#[test]
fn a_trim_before_the_bucket_has_confirmed_is_caught() {
    use brooklet::io::seeded::{met, plant};
    plant(Some("trimmed-before-the-mirror"));
    let caught = std::panic::catch_unwind(crate::replica::the_ring_keeps_it).is_err();
    assert!(met() > 0, "the tests do not come there");
    plant(None);
    assert!(caught, "it goes unnoticed");
}

/// The random histories over a failing store notice a bug, too.
#[test]
fn random_histories_catch_a_bug() {
    use brooklet::io::seeded::{met, plant};
    plant(Some("exists-is-mine"));
    let caught = (0..200).any(|seed| std::panic::catch_unwind(|| crate::store::history(seed)).is_err());
    assert!(met() > 0, "the tests do not come there");
    plant(None);
    assert!(caught, "it goes unnoticed");
}

/// Changers of a map that believe too much, or forget one another.
#[test]
fn defects_of_a_changer_are_caught() {
    for bug in ["a-map-that-exists-is-mine", "an-unheard-map-is-made-anew", "a-loser-forgets-the-winner"] {
        assert!(crate::map::is_caught(bug), "{bug} goes unnoticed");
    }
}
