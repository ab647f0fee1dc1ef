//! The error sweep: operation N on the disk fails, for every N of scripts of all operations, in
//! every way; and the same for every N of an opening.

use std::io::ErrorKind;
use std::sync::Arc;

use brooklet::Error;
use brooklet::io::{Fault, MemVolume, Rng};

use super::damage::Specimen;
use super::{Sweep, Swept};
use crate::campaign::{self, guarded};
use crate::oracle::{Violation, violated};
use crate::plan::{Act, Class, Plan, Rest, Step};
use crate::world::Stats;

/// Kinds of failure: an I/O error, no room, try again.
const KINDS: [ErrorKind; 3] = [ErrorKind::Other, ErrorKind::StorageFull, ErrorKind::WouldBlock];

/// Most changes of the size and of the holes that fail: a script has far fewer than writes.
const SIZE_CHANGES: u64 = 128;

/// A script of all operations.
fn script(seed: u64) -> Plan {
    let mut plan = Plan::draw_as(seed, Class::Calm);
    plan.habits.weights = [60, 7, 8, 5, 7, 5, 5, 3, 5, 5];
    let round = [
        Act::Commit(2),
        Act::Commit(1),
        Act::Wait,
        Act::Deferred,
        Act::Commit(3),
        Act::Flush,
        Act::Read,
        Act::Hold,
        Act::Checkpoint,
        Act::Commit(1),
        Act::Work,
        Act::ReadAll,
        Act::Release,
    ];
    let mut rng = Rng::new(seed);
    let mut acts: Vec<Act> = Vec::new();
    let ends = [
        [Act::Import(4), Act::Work],
        [Act::View, Act::Compact],
        [Act::Offload, Act::Checkpoint],
        [Act::Move(Rest::Memory), Act::Dump],
        [Act::Dump, Act::Move(Rest::Durable)],
        [Act::Move(Rest::Memory), Act::Work],
        [Act::Import(2), Act::Reopen],
    ];
    for end in ends {
        acts.extend(round);
        acts.extend(end);
    }
    let step = |act| Step { act, seed: rng.next(), interrupts: Vec::new() };
    plan.steps = acts.into_iter().map(step).collect();
    plan
}

/// Returns the ways in which operation `n` fails.
fn ways(n: u64) -> Vec<Vec<Fault>> {
    let mut ways = vec![vec![Fault::PowerOffAfter(n)]];
    for kind in KINDS {
        // The volume may be the user's own type, which may panic where it should return an error.
        ways.push(vec![Fault::Panics, Fault::ErrorAfter { operations: n, kind, sticky: false }]);
        ways.push(vec![Fault::Panics, Fault::ReadErrorAfter { reads: n, kind, sticky: false }]);
        for sticky in [false, true] {
            ways.push(vec![Fault::ErrorAfter { operations: n, kind, sticky }]);
            ways.push(vec![Fault::ReadErrorAfter { reads: n, kind, sticky }]);
            if n < SIZE_CHANGES {
                ways.push(vec![Fault::SizeErrorAfter { changes: n, kind, sticky }]);
            }
        }
        // The store's actions right after a failure must survive a later power cut.
        for more in [0, 1, 2, 3, 5, 8] {
            let fails = Fault::ErrorAfter { operations: n, kind, sticky: false };
            ways.push(vec![fails, Fault::PowerOffAfter(n + 1 + more)]);
            ways.push(vec![fails, Fault::ShortTransfers, Fault::PowerOffAfter(n + 1 + more)]);
        }
    }
    ways
}

/// Fails every operation of some scripts, and of the openings of a closed store and of a killed
/// store.
pub struct Errors {
    scripts: Vec<(Plan, u64)>,
    openings: Vec<(Opening, u64)>,
}

/// A store to open.
struct Opening {
    closed: bool,
    specimen: Specimen,
}

impl Errors {
    /// Counts the operations of runs without faults.
    pub fn new(scripts: u64) -> Result<Self, Violation> {
        let counted = |seed| {
            let base = script(seed);
            let (operations, reads, _) = run(&base, &[])?.first;
            Ok((base, operations.max(reads)))
        };
        let scripts = (0..scripts).map(counted).collect::<Result<_, _>>()?;
        let openings = [true, false].into_iter().map(|closed| {
            let specimen = Specimen::new(closed, false);
            let specimen = specimen.or_else(|error| violated(format!("no store to open: {error}")))?;
            let disk = specimen.disk(0);
            let opened = guarded(|| specimen.open_and_read(&disk))?;
            opened.or_else(|error| violated(format!("a sound store does not open: {error}")))?;
            Ok((Opening { closed, specimen }, disk.operations().max(disk.reads())))
        });
        Ok(Self { scripts, openings: openings.collect::<Result<_, _>>()? })
    }
}

impl Sweep for Errors {
    fn places(&self) -> u64 {
        let scripts = self.scripts.iter().map(|(_, operations)| operations).sum::<u64>();
        scripts + self.openings.iter().map(|(_, operations)| operations).sum::<u64>()
    }

    fn try_place(&self, nth: u64) -> Result<Swept, Violation> {
        let mut n = nth;
        for (base, operations) in &self.scripts {
            if n < *operations {
                return try_script(base, n);
            }
            n -= operations;
        }
        for (opening, operations) in &self.openings {
            if n < *operations {
                return opening.try_one(n);
            }
            n -= operations;
        }
        unreachable!("the place is one of those that there are")
    }
}

fn try_script(base: &Plan, n: u64) -> Result<Swept, Violation> {
    let mut swept = Swept::default();
    for faults in ways(n) {
        let stats = run(base, &faults)?;
        let (.., failures) = stats.first;
        if failures == 0 {
            continue; // It came too late to be met.
        }
        let hard = matches!(faults[0], Fault::ErrorAfter { kind, .. } if kind != ErrorKind::StorageFull);
        if hard && stats.stopped == 0 {
            return violated(format!(
                "script {}, {faults:?}: the store goes on after a failed write",
                base.seed
            ));
        }
        swept.cases += 1;
        swept.harmless += 1 - stats.stopped.max(stats.full);
        swept.met += stats.stopped;
        swept.checked += stats.full;
    }
    Ok(swept)
}

fn run(base: &Plan, faults: &[Fault]) -> Result<Stats, Violation> {
    let mut plan = base.clone();
    let armed = faults.iter().map(|&fault| Step { act: Act::Fail(fault), seed: 0, interrupts: Vec::new() });
    plan.steps.splice(0..0, armed);
    campaign::run(&Arc::new(plan), false)
        .map_err(|failure| Violation(format!("script {}, {faults:?}: {}", base.seed, failure.what)))
}

impl Opening {
    /// Fails operation `n` of an opening: the opening must report the failure, or succeed all the
    /// same, and the store must then open whole.
    fn try_one(&self, n: u64) -> Result<Swept, Violation> {
        let (Self { closed, specimen }, mut swept) = (self, Swept::default());
        for faults in ways(n) {
            let disk = specimen.disk(n);
            faults.iter().for_each(|&fault| disk.fail(fault));
            let what = || format!("opening a store (closed: {closed}), {faults:?}");
            let within = |Violation(why): Violation| Violation(format!("{}: {why}", what()));
            let opened = guarded(|| specimen.open_and_read(&disk)).map_err(within)?;
            if disk.failures() == 0 {
                continue;
            }
            swept.cases += 1;
            match opened {
                Ok(()) => swept.harmless += 1,
                Err(Error::Io { .. } | Error::Stopped { .. } | Error::Full { .. }) => swept.met += 1,
                Err(error) => return violated(format!("{}: it shows as: {error}", what())),
            }
            let left = MemVolume::from_image(disk.crash(), n);
            let again = guarded(|| specimen.open_and_read(&left)).map_err(within)?;
            again.or_else(|error| violated(format!("{}: then it does not open: {error}", what())))?;
        }
        Ok(swept)
    }
}
