//! A host that takes a log over lets the lease of an earlier owner end, unless that owner was
//! silent or had left.

use std::sync::Arc;
use std::time::Duration;

use brooklet::Waits;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_replica::Replica;

use crate::replica::{Host, Running, journal, shipping};

fn owner(memory: &Arc<InMemory>) -> Running {
    let mut host = Host::new(memory, Waits::Kept);
    host.shipping.limits.beat = None;
    let owner = host.open().unwrap();
    append(&owner, "first");
    owner
}

fn append(owner: &Running, entry: &str) {
    let ticket = owner.append(entry);
    owner.flush();
    assert!(ticket.is_kept());
}

/// In the first design a standby served at once. An owner that had woken, and appended an object
/// before the fence, had a lease beside it.
#[test]
fn a_host_lets_the_lease_of_an_owner_that_woke_end() {
    for wakes in [false, true] {
        let memory = Arc::new(InMemory::new());
        let owner = owner(&memory);
        assert!(owner.replica.former_lease().is_zero(), "it is the first owner");
        let standby = Replica::new(journal(&memory, 0, 0), shipping());
        assert!(standby.stand_by(Duration::from_secs(2), || true, drop).unwrap());
        if wakes {
            append(&owner, "late");
        }
        drop(standby.kept(|_| panic!("there is no backup")).unwrap());
        assert_eq!(standby.former_lease().is_zero(), !wakes);
    }
}

#[test]
fn a_host_that_waits_for_no_silence_waits_for_the_lease() {
    let memory = Arc::new(InMemory::new());
    let owner = owner(&memory);
    let other = Replica::new(journal(&memory, 0, 0), shipping());
    drop(other.kept(|_| panic!("there is no backup")).unwrap());
    assert!(!other.former_lease().is_zero());
    // An owner that has left has no lease.
    drop(owner);
    let next = Replica::new(journal(&memory, 0, 0), shipping());
    let (_, claim) = next.kept(|_| panic!("there is no backup")).unwrap();
    claim.hand_over("here");
    let here = Replica::new(journal(&memory, 0, 0), shipping());
    assert!(here.stand_by(Duration::from_secs(60), || true, drop).unwrap());
    drop(here.kept(|_| panic!("there is no backup")).unwrap());
    assert!(here.former_lease().is_zero());
}
