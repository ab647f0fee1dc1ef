//! A bloom filter in lines of 64 bytes, so that a question touches one cache line. Never a false negative.
//!
//! Which bits: `h = mix(hash)`; the line is `h * lines >> 64`. From `w = mix(h)` on, each probe takes the 9 low bits of
//! `w` as a bit of the line (bit `b` is bit `b % 8` of byte `b / 8`) and shifts them out; every 7 probes `w = mix(w)`
//! of the word before shifting. `mix` is the finalizer of splitmix64, so that callers need not hash well.

use bytes::Bytes;

use crate::error::{Result, damaged};
use crate::format::{MAX_BLOCK, u32_at, u64_at};

const HEAD: usize = 16;
const LINE: usize = 64;
const MOST_PROBES: u32 = 16;
const PROBES_PER_WORD: u32 = 7;

fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The bits of an item as `(byte, mask)`, in a filter of `lines` lines.
fn bits(hash: u64, lines: usize, probes: u32) -> impl Iterator<Item = (usize, u8)> {
    let hash = mix(hash);
    let line = ((u128::from(hash) * lines as u128) >> 64) as usize * LINE;
    let mut word = hash;
    (0..probes).map(move |probe| {
        if probe % PROBES_PER_WORD == 0 {
            word = mix(word);
        }
        let bit = (word >> (9 * (probe % PROBES_PER_WORD))) as usize & 511;
        (line + bit / 8, 1 << (bit % 8))
    })
}

/// Builds the filter over `hashes`, with `bits_per_item` bits for each as far as a block has room.
pub(crate) fn build(hashes: &[u64], bits_per_item: u32) -> Vec<u8> {
    let probes = (bits_per_item.saturating_mul(69) / 100).clamp(1, MOST_PROBES); // ln 2 bits, about half of them set
    let wanted = hashes.len().saturating_mul(bits_per_item as usize).div_ceil(8 * LINE);
    let lines = wanted.clamp(1, MAX_BLOCK / LINE - 1);
    let mut out = vec![0; HEAD + lines * LINE];
    out[..4].copy_from_slice(&probes.to_le_bytes());
    out[8..16].copy_from_slice(&(hashes.len() as u64).to_le_bytes());
    for &hash in hashes {
        bits(hash, lines, probes).for_each(|(byte, mask)| out[HEAD + byte] |= mask);
    }
    out
}

#[derive(Debug)]
pub(crate) struct Filter {
    lines: Bytes,
    probes: u32,
    items: u64,
}

impl Filter {
    /// Takes the filter decoded from the frame at byte `at` of the file.
    pub fn new(mut data: Bytes, at: u64) -> Result<Filter> {
        if data.len() < HEAD + LINE || !(data.len() - HEAD).is_multiple_of(LINE) {
            return damaged(at, "the filter's length is impossible");
        }
        let (probes, items) = (u32_at(&data, 0), u64_at(&data, 8));
        if !(1..=MOST_PROBES).contains(&probes) {
            return damaged(at, "the filter's probes are impossible");
        }
        Ok(Filter { lines: data.split_off(HEAD), probes, items })
    }

    pub fn may_contain(&self, hash: u64) -> bool {
        bits(hash, self.lines.len() / LINE, self.probes).all(|(byte, mask)| self.lines[byte] & mask != 0)
    }

    /// Hashes it was built from.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Bytes of memory it holds.
    pub fn memory(&self) -> usize {
        HEAD + self.lines.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_yes_to_all_items_and_seldom_to_others() {
        for bits_per_item in [1, 10, 40] {
            let hashes: Vec<u64> = (0..20_000).collect(); // as badly hashed as can be
            let filter = Filter::new(build(&hashes, bits_per_item).into(), 0).unwrap();
            assert!(hashes.iter().all(|&hash| filter.may_contain(hash)));
            let wrong = (20_000..120_000).filter(|&hash| filter.may_contain(hash)).count();
            if bits_per_item >= 10 {
                assert!(wrong < 1_500, "{wrong} of 100000 others pass at {bits_per_item} bits");
            }
        }
    }

    #[test]
    fn impossible_filters_are_refused() {
        for (len, probes) in [(0, 7), (HEAD, 7), (HEAD + LINE - 1, 7), (HEAD + LINE, 0), (HEAD + LINE, 17)] {
            let mut data = vec![0; len];
            if let Some(head) = data.get_mut(..1) {
                head[0] = probes;
            }
            assert!(Filter::new(data.into(), 0).is_err());
        }
    }
}
