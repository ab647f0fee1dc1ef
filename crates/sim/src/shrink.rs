//! Shrinks a failing run to a short failing run, which then records its story.

use std::sync::Arc;

use crate::campaign::{Failure, run};
use crate::plan::Plan;

/// Most runs that shrinking may take.
const BUDGET: usize = 2000;

/// Removes steps and interruptions as long as the run still fails; returns the shortest failing
/// plan, and its failure.
pub fn shrink(plan: &Plan) -> Option<(Plan, Failure)> {
    let mut best = plan.clone();
    run(&Arc::new(best.clone()), false).err()?;
    let mut left = BUDGET;
    let mut fails = |candidate: &Plan| {
        left = left.saturating_sub(1);
        left > 0 && run(&Arc::new(candidate.clone()), false).is_err()
    };
    let mut chunk = best.steps.len().div_ceil(2);
    loop {
        let mut at = 0;
        let mut shorter = false;
        while at < best.steps.len() {
            let mut candidate = best.clone();
            candidate.steps.drain(at..(at + chunk).min(best.steps.len()));
            if fails(&candidate) {
                best = candidate;
                shorter = true;
            } else {
                at += chunk;
            }
        }
        match (shorter, chunk) {
            (false, 0 | 1) => break,
            (true, 1) => {}
            _ => chunk = chunk.div_ceil(2),
        }
    }
    for step in 0..best.steps.len() {
        for interrupt in (0..best.steps[step].interrupts.len()).rev() {
            let mut candidate = best.clone();
            candidate.steps[step].interrupts.remove(interrupt);
            if fails(&candidate) {
                best = candidate;
            }
        }
    }
    let failure = run(&Arc::new(best.clone()), true).err()?;
    Some((best, failure))
}
