//! What is appended: JSON deltas and snapshots, made once and kept for good.

use std::io::Write as _;

use brooklet::io::Rng;

/// Bytes of a delta.
pub const DELTA: usize = 200;
/// Bytes of a snapshot.
pub const SNAPSHOT: usize = 1024;
/// Enough that none comes twice in what a codec looks back on: more than 10 MB.
const DELTAS: usize = 1 << 16;
const SNAPSHOTS: usize = 1 << 14;

/// Payloads that are appended over and over, in turn.
#[derive(Clone, Copy)]
pub struct Payloads {
    deltas: &'static [u8],
    snapshots: &'static [u8],
}

impl Payloads {
    /// Makes them; they are never freed.
    pub fn new() -> Self {
        Self { deltas: json(1, DELTA, DELTAS).leak(), snapshots: json(2, SNAPSHOT, SNAPSHOTS).leak() }
    }

    /// The `i`-th delta.
    pub fn delta(self, i: u64) -> &'static [u8] {
        &self.deltas[i as usize % DELTAS * DELTA..][..DELTA]
    }

    /// The `i`-th snapshot.
    pub fn snapshot(self, i: u64) -> &'static [u8] {
        &self.snapshots[i as usize % SNAPSHOTS * SNAPSHOT..][..SNAPSHOT]
    }
}

/// `n` documents as an editor or a game would send them, `len` bytes each.
fn json(seed: u64, len: usize, n: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut out = Vec::with_capacity(len * n + len);
    for i in 1..=n {
        let (player, at) = (rng.below(1_000_000), rng.next());
        let _ = write!(out, "{{\"op\":\"update\",\"player\":{player},\"at\":{at},\"fields\":{{");
        while out.len() < i * len {
            let (name, value) = (rng.below(40), rng.below(100_000));
            let _ = write!(out, "\"field{name}\":{value},");
        }
        out.truncate(i * len);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_their_size_and_differ() {
        let payloads = Payloads::new();
        assert_eq!((payloads.delta(5).len(), payloads.snapshot(u64::MAX).len()), (DELTA, SNAPSHOT));
        assert!(payloads.delta(5).starts_with(b"{\"op\"") && payloads.delta(5) != payloads.delta(6));
        assert_eq!(payloads.delta(7), payloads.delta(7 + DELTAS as u64));
    }
}
