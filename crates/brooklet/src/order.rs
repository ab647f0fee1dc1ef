//! The logs of a tier in the order of their keys, a step at a time: a tier may have a million.
//!
//! Parts of it are sorted, each by itself; then two parts become one, over and over, until one is left.

use std::collections::VecDeque;
use std::vec;

use crate::recent::{LogState, Slot, Tier};

/// Logs of a step: some tenths of a millisecond.
const AT_ONCE: usize = 1024;

/// Logs on the way into order.
#[derive(Default)]
pub(crate) struct Order {
    /// So many logs of the tier were looked at.
    seen: usize,
    sorted: VecDeque<Vec<Slot>>,
    /// Two sorted parts that become one.
    at_hand: Option<Pair>,
}

impl Order {
    /// Does a step. `wanted` tells which logs of the tier, always the same one, are to be in order. `false` once they are.
    pub fn step(&mut self, tier: &Tier, wanted: impl FnMut(&LogState) -> bool) -> bool {
        if self.seen < tier.logs.len() {
            self.sort(tier, wanted);
        } else if let Some(pair) = &mut self.at_hand {
            if !pair.merge(tier) {
                self.sorted.extend(self.at_hand.take().map(|pair| pair.merged));
            }
        } else if self.sorted.len() > 1 {
            let mut next = || self.sorted.pop_front().expect("there are two").into_iter();
            let (left, right) = (next(), next());
            let merged = Vec::with_capacity(left.len() + right.len());
            self.at_hand = Some(Pair { left, right, merged });
        } else {
            return false;
        }
        true
    }

    /// The logs, once they are in order.
    pub fn end(mut self) -> Vec<Slot> {
        self.sorted.pop_front().unwrap_or_default()
    }

    fn sort(&mut self, tier: &Tier, mut wanted: impl FnMut(&LogState) -> bool) {
        let next = tier.logs.len().min(self.seen + AT_ONCE);
        let slots = self.seen as Slot..next as Slot;
        let mut part: Vec<Slot> = slots.filter(|&slot| wanted(tier.log(slot))).collect();
        part.sort_unstable_by(|&a, &b| tier.log(a).key.cmp(&tier.log(b).key));
        self.seen = next;
        self.sorted.extend((!part.is_empty()).then_some(part));
    }
}

struct Pair {
    left: vec::IntoIter<Slot>,
    right: vec::IntoIter<Slot>,
    merged: Vec<Slot>,
}

impl Pair {
    /// Merges some logs; `false` once that is all.
    fn merge(&mut self, tier: &Tier) -> bool {
        for _ in 0..AT_ONCE {
            let next = match (self.left.as_slice(), self.right.as_slice()) {
                ([left, ..], [right, ..]) if *tier.log(*left).key < *tier.log(*right).key => self.left.next(),
                ([_, ..], []) => self.left.next(),
                _ => self.right.next(),
            };
            let Some(slot) = next else { return false };
            self.merged.push(slot);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use brooklet_io::Rng;

    use super::*;
    use crate::terms::State;

    #[test]
    fn logs_come_into_order_by_small_steps() {
        for logs in [0, 1, AT_ONCE - 1, AT_ONCE, 5 * AT_ONCE + 7] {
            let (mut tier, mut rng) = (Tier::new(1), Rng::new(2));
            for _ in 0..logs {
                tier.add(&rng.next().to_le_bytes(), State::default());
            }
            let wanted = |log: &LogState| log.key[0] != 7;
            let (mut order, mut looks) = (Order::default(), 0);
            while order.step(&tier, |log| {
                looks += 1;
                wanted(log)
            }) {
                assert!(std::mem::take(&mut looks) <= AT_ONCE);
                assert!(order.at_hand.as_ref().is_none_or(|pair| pair.merged.len() % AT_ONCE == 0));
            }
            let slots = 0..logs as Slot;
            let mut all: Vec<Slot> = slots.filter(|&slot| wanted(tier.log(slot))).collect();
            all.sort_by_key(|&slot| &*tier.log(slot).key);
            assert!(order.end() == all, "{logs} logs");
        }
    }
}
