//! The payloads: every byte follows from a log's name, a number and a round, so that a reader can
//! verify it.

use brooklet::Options;
use brooklet::io::Rng;

/// Name of the store in its directory.
pub const STORE: &str = "store.brooklet";
/// Least number of entries that a log keeps.
pub const KEPT: u64 = 20;

/// Returns the options of the store: small sizes, so that checkpoints, compactions and new laps of
/// the ring are frequent.
pub fn options() -> Options {
    Options::new().ring_size(512 << 10).memory_budget(512 << 10).max_payload(32 << 10)
}

/// Returns the log that is written in the same commits as `log`.
pub fn twin(log: &str) -> String {
    format!("{log}/twin")
}

/// Returns the payload of entry `seq` of `log` in `round`.
pub fn payload(log: &str, seq: u64, round: u32) -> Vec<u8> {
    let mut rng = Rng::new(log.bytes().fold(seq << 32 | u64::from(round), |hash, byte| {
        hash.wrapping_mul(0x0100_0000_01b3).wrapping_add(byte.into())
    }));
    let len = if rng.percent(2) { rng.below(20_000) } else { rng.below(300) };
    let mut payload = round.to_le_bytes().to_vec();
    payload.extend((0..len).map(|i| if i % 3 == 0 { rng.next() as u8 } else { b'x' }));
    payload
}

/// Returns the round that a payload contains.
pub fn round_of(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().copied().map(u32::from_le_bytes)
}
