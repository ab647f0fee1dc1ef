//! What `codex` promises, tested from outside: one binary, a module for each subject.

mod apart;
mod cached;
mod damage;
mod golden;
mod lookups;
mod model;
mod range;

/// A hash of a key for its note.
fn note_hash(key: &[u8]) -> u128 {
    let [high, low] = [1, 2].map(|seed| u128::from(brooklet_codex::key_hash(seed, key)));
    high << 64 | low
}
