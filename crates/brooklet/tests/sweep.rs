//! Operation N fails, for every N of a script of all operations, once and for good, for want of room and otherwise: the
//! store never panics, never lies, goes on or says why not, and opens again with everything that was acknowledged.

mod common;

use std::io::ErrorKind;
use std::sync::Arc;

use brooklet::io::{Fault, ManualClock, MemVolume, Rng};
use brooklet::{Options, Store, Ticket};
use common::{Logs, Op};

fn options() -> Options {
    common::tiny(&Arc::new(ManualClock::default()), 7)
}

#[derive(Default)]
struct Ledger {
    durable: Logs,
    unknown: Vec<Vec<Op>>,
    flying: Vec<(Vec<Op>, Ticket)>,
}

/// Writes, checkpoints and compacts; errors are let pass, as a stubborn caller would.
fn script(store: &Store, ledger: &mut Ledger) {
    let mut rng = Rng::new(11);
    let mut boarded = Logs::new();
    for step in 0..60 {
        let ops = vec![common::op(&mut rng, &boarded, 4000), common::op(&mut rng, &boarded, 100)];
        let mut after = boarded.clone();
        let expected = common::apply(&mut after, &ops);
        if let (Ok(ticket), Ok(_)) = (store.commit(&common::commit(&ops)), expected) {
            boarded = after;
            let _ = ticket.wait();
            ledger.flying.push((ops, ticket));
        }
        if step % 9 == 8 {
            let _ = store.checkpoint();
        }
        if step % 25 == 24 {
            let _ = store.compact();
        }
    }
    let _ = store.close();
}

fn settle(ledger: &mut Ledger) {
    for (ops, ticket) in ledger.flying.drain(..) {
        if ticket.is_durable() {
            assert!(ledger.unknown.is_empty(), "acknowledged behind something that is not");
            common::apply(&mut ledger.durable, &ops).expect("it was accepted");
        } else {
            ledger.unknown.push(ops);
        }
    }
}

/// Whether the contents are the acknowledged state, or one that some of the unknown commits lead to.
fn check(volume: &MemVolume, ledger: &Ledger, what: &str) {
    let store =
        options().open_on(Arc::new(volume.clone())).unwrap_or_else(|e| panic!("{what}: does not open: {e}"));
    let contents = common::contents(&store).unwrap_or_else(|e| panic!("{what}: does not read: {e}"));
    let mut state = ledger.durable.clone();
    let mut difference = common::difference(&contents, &state);
    for ops in &ledger.unknown {
        if !difference.is_empty() {
            common::apply(&mut state, ops).expect("it was accepted");
            difference = common::difference(&contents, &state);
        }
    }
    assert!(difference.is_empty(), "{what}:\n{difference}");
    store.append("after", b"and it goes on").unwrap().wait().unwrap();
    store.close().unwrap();
}

fn run(operation: u64, kind: ErrorKind, sticky: bool, power: Option<u64>) -> bool {
    let what =
        format!("operation {operation} fails with {kind:?}, for good: {sticky}, power lasts {power:?} more");
    let volume = MemVolume::new(operation);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    let before = volume.operations();
    volume.fail(Fault::ErrorAfter { operations: operation, kind, sticky });
    if let Some(more) = power {
        volume.fail(Fault::PowerOffAfter(operation + 1 + more));
    }
    let mut ledger = Ledger::default();
    script(&store, &mut ledger);
    drop(store);
    let reached = volume.operations() - before > operation;
    settle(&mut ledger);
    for seed in 0..4 {
        check(&MemVolume::from_image(volume.crash(), seed), &ledger, &what);
    }
    reached
}

#[test]
fn every_operation_fails_once_and_for_good() {
    let mut cases = 0;
    for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
        let for_good = [(true, None)].into_iter();
        // What a store does right after a failure must hold as well, whenever the power goes then.
        let once = [None, Some(0), Some(1), Some(2), Some(3), Some(5), Some(8)].map(|power| (false, power));
        for (sticky, power) in for_good.chain(once) {
            let mut operation = 0;
            while run(operation, kind, sticky, power) {
                operation += 1;
                cases += 1;
            }
        }
    }
    println!("{cases} failures tried");
    assert!(cases > 200, "{cases}");
}
