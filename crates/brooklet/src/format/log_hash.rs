//! The hashes of a log key in a run.

use twox_hash::XxHash3_64;

use crate::model::keyed_hash::Secret;

/// The hashes of a log key in a run with a certain filter seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogHash {
    /// The log's hash in the filter: XXH3-64 with the seed.
    pub filter: u64,
    /// The log's hash in the notes: SipHash-2-4 of 128 bits. Its key comes from the seed, which is
    /// in the file, so no secret protects this hash. But 120 of its bits identify the log, so
    /// finding two keys that a run confuses takes some 2^60 hashes.
    pub note: u128,
}

impl LogHash {
    /// Returns the hashes of a log key in a run with this filter seed.
    pub fn new(seed: u64, key: &[u8]) -> Self {
        Self { filter: filter_hash(seed, key), note: note_hash(seed, key) }
    }
}

/// Returns the hash of a log key in the filter of a run with this seed.
pub(crate) fn filter_hash(seed: u64, key: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, key)
}

/// Returns the hash of a log key in the notes of a run with this filter seed.
pub(crate) fn note_hash(seed: u64, key: &[u8]) -> u128 {
    Secret::of_seed(seed).hash(key)
}
