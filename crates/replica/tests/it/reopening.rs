//! What an opening does with the local file: all cases of small histories, against what each case
//! means.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use brooklet_replica::{Drawn, Link, Local, Mode, Plan, Remote, reconcile};

/// The history of a store: block `n` of branch `branch` after `common` blocks of branch 0.
fn links(from: u64, common: u64, own: u64, branch: u64) -> Vec<Link> {
    let sum = |n: u64| if n <= common { n } else { 1000 * branch + n };
    (from..=common + own).map(|n| Link { lsn: 10 * n, sum: sum(n) }).collect()
}

#[test]
fn no_acknowledged_block_is_dropped_and_no_replaced_one_is_used() {
    let (me, other) = (Some(Drawn(1)), Some(Drawn(2)));
    for (common, ours, theirs) in (0..64).map(|n| (1 + n / 16, n / 4 % 4, n % 4)) {
        let (here, there) = (links(1, common, ours, 1), links(1, common, theirs, 2));
        for (mode, last_writer) in
            [(Mode::Local, me), (Mode::Local, other), (Mode::Remote, me), (Mode::Remote, other)]
        {
            let local = Local { links: &here, drawn: me };
            let plan = reconcile(mode, local, Remote { links: &there, last_writer });
            let at = 10 * common;
            let want = match (ours, theirs, mode) {
                (0, 0, _) => Plan::Same,
                (0, _, _) => Plan::CatchUp { from: at },
                (_, _, Mode::Remote) => Plan::Drop { to: at },
                (_, 0, Mode::Local) if last_writer == me => Plan::Ship { from: at },
                (_, _, Mode::Local) => Plan::Diverged { from: at },
            };
            assert_eq!(plan, want, "{common} {ours} {theirs} {mode:?} {last_writer:?}");
        }
    }
}

#[test]
fn a_side_without_a_history_takes_that_of_the_other() {
    let some = links(1, 3, 0, 1);
    let plan = |mode, local, drawn, remote, last_writer| {
        reconcile(mode, Local { links: local, drawn }, Remote { links: remote, last_writer })
    };
    let other = Some(Drawn(2));
    for mode in [Mode::Local, Mode::Remote] {
        assert_eq!(plan(mode, &[], None, &[], None), Plan::Same);
        assert_eq!(plan(mode, &[], None, &some, other), Plan::CatchUp { from: 0 });
    }
    // A file from before replication keeps its entries in every mode.
    for mode in [Mode::Local, Mode::Remote] {
        assert_eq!(plan(mode, &some, None, &[], None), Plan::Ship { from: 0 });
        assert_eq!(plan(mode, &some, None, &[], other), Plan::Diverged { from: 0 });
    }
    assert_eq!(plan(Mode::Remote, &some, other, &[], other), Plan::Drop { to: 0 });
}

#[test]
fn histories_with_nothing_in_common_have_diverged() {
    let (here, there) = (links(1, 0, 3, 1), links(1, 0, 3, 2));
    for mode in [Mode::Local, Mode::Remote] {
        let local = Local { links: &here, drawn: Some(Drawn(1)) };
        let remote = Remote { links: &there, last_writer: Some(Drawn(1)) };
        assert_eq!(reconcile(mode, local, remote), Plan::Diverged { from: 0 });
    }
}

/// A ring of a few gigabytes has so many blocks. In the old state each block of the file was
/// compared with each block of the log, which takes hours, and the store did not open meanwhile.
#[test]
fn long_histories_are_compared_at_once() {
    let (done, plan) = mpsc::channel();
    let compare = move || {
        let (here, there) = (links(1, 0, 1_000_000, 1), links(1, 0, 1_000_000, 2));
        let local = Local { links: &here, drawn: Some(Drawn(1)) };
        let remote = Remote { links: &there, last_writer: Some(Drawn(1)) };
        // The test may be over.
        let _ = done.send(reconcile(Mode::Local, local, remote));
    };
    drop(thread::Builder::new().spawn(compare).unwrap());
    assert_eq!(plan.recv_timeout(Duration::from_secs(100)), Ok(Plan::Diverged { from: 0 }));
}
