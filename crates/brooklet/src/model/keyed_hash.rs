//! SipHash-2-4 with 128 bits: a hash of keys that strangers choose, for uses in which the hashes of
//! different keys must differ.
//!
//! An attacker without the secret can only guess which keys have the same hash (Aumasson and
//! Bernstein, "SipHash: a fast short-input PRF"). `XXH3`, which is faster, does not promise this
//! property.

use std::fmt;

use brooklet_io::{Rng, system_seed};

/// The key of the hash. No data on a volume may contain the secret, or allow computing it.
#[derive(Clone, Copy)]
pub(crate) struct Secret([u64; 2]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Creates a secret from random bytes of the system.
    pub fn of_system() -> Self {
        Self([system_seed(), system_seed()])
    }

    /// Creates a secret from a seed, for repeatable runs. A reader of the seed can compute the
    /// secret.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self([rng.next(), rng.next()])
    }

    pub fn hash(self, data: &[u8]) -> u128 {
        let Self([k0, k1]) = self;
        let mut state = State([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ]);
        let words = data.chunks_exact(8);
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        last[7] = data.len() as u8;
        for word in words {
            state.take(u64::from_le_bytes(word.try_into().expect("8 bytes")));
        }
        state.take(u64::from_le_bytes(last));
        let low = state.finish(2, 0xee);
        u128::from(low) | u128::from(state.finish(1, 0xdd)) << 64
    }
}

struct State([u64; 4]);

impl State {
    fn rounds(&mut self, rounds: usize) {
        let [v0, v1, v2, v3] = &mut self.0;
        for _ in 0..rounds {
            *v0 = v0.wrapping_add(*v1);
            *v1 = v1.rotate_left(13) ^ *v0;
            *v0 = v0.rotate_left(32);
            *v2 = v2.wrapping_add(*v3);
            *v3 = v3.rotate_left(16) ^ *v2;
            *v0 = v0.wrapping_add(*v3);
            *v3 = v3.rotate_left(21) ^ *v0;
            *v2 = v2.wrapping_add(*v1);
            *v1 = v1.rotate_left(17) ^ *v2;
            *v2 = v2.rotate_left(32);
        }
    }

    fn take(&mut self, word: u64) {
        self.0[3] ^= word;
        self.rounds(2);
        self.0[0] ^= word;
    }

    fn finish(&mut self, at: usize, mark: u64) -> u64 {
        self.0[at] ^= mark;
        self.rounds(4);
        self.0.iter().fold(0, |all, word| all ^ word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first vectors of the reference implementation: the key is 00 to 0f, the input 00, 01 and
    /// so on.
    #[test]
    fn hashes_are_those_of_the_reference() {
        let secret = Secret([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let expected: [(usize, [u8; 16]); 2] = [
            (0, *b"\xa3\x81\x7f\x04\xba\x25\xa8\xe6\x6d\xf6\x72\x14\xc7\x55\x02\x93"),
            (1, *b"\xda\x87\xc1\xd8\x6b\x99\xaf\x44\x34\x76\x59\x11\x9b\x22\xfc\x45"),
        ];
        let input: Vec<u8> = (0..64).collect();
        for (len, hash) in expected {
            assert_eq!(secret.hash(&input[..len]).to_le_bytes(), hash, "{len} bytes");
        }
    }

    #[test]
    fn each_byte_and_the_length_and_the_seed_count() {
        let mut seen = std::collections::BTreeSet::new();
        for len in 0..40 {
            for at in 0..=len {
                let mut key = vec![0; len];
                key.get_mut(at).into_iter().for_each(|byte| *byte = 1);
                assert!(seen.insert(Secret::of_seed(1).hash(&key)), "{len}, {at}");
                assert!(seen.insert(Secret::of_seed(2).hash(&key)), "{len}, {at}");
            }
        }
    }
}
