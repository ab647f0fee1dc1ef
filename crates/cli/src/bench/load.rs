//! Payloads, as they come from editors and games, and noise.

use std::io::Write as _;
use std::path::Path;

use brooklet::io::Rng;

use crate::failure::{Failure, Kind};
use crate::replay::trace::Trace;

/// Payloads that are appended over and over, in turn.
pub type Payloads = Vec<Box<[u8]>>;

/// A JSON delta of 64 to 512 bytes, as an editor or a game would send it.
pub fn delta(rng: &mut Rng, out: &mut Vec<u8>) {
    let len = 64 + rng.below(449) as usize;
    delta_of(rng, len, out);
}

/// A JSON delta of `len` bytes.
fn delta_of(rng: &mut Rng, len: usize, out: &mut Vec<u8>) {
    out.clear();
    let (id, at) = (rng.below(1_000_000), rng.next());
    let _ = write!(out, "{{\"op\":\"update\",\"player\":{id},\"at\":{at},\"fields\":{{");
    while out.len() < len {
        let (name, value) = (rng.below(40), rng.below(100_000));
        let _ = write!(out, "\"field{name}\":{value},");
    }
    out.truncate(len);
}

/// Enough payloads that none comes twice in what a codec looks back on: more than 10 MB.
const MANY: usize = 1 << 16;

/// Deltas of 200 bytes.
pub fn deltas_of_200() -> Payloads {
    make(2, |rng, out| delta_of(rng, 200, out))
}

/// Deltas of 64 to 512 bytes.
pub fn deltas() -> Payloads {
    make(3, delta)
}

/// What an editor sends with every key: an edit of a character or two near the last one, as the
/// traces of `replay` have them.
pub fn keystrokes() -> Payloads {
    let mut at = 5_000u64;
    make(4, |rng, out| {
        out.clear();
        let letter = (b'a' + rng.below(26) as u8) as char;
        let _ = match rng.below(20) {
            0 => {
                at = rng.below(20_000);
                write!(out, "[[{at},0,\"{letter}\"]]")
            }
            1..=3 => {
                at = at.saturating_sub(1);
                write!(out, "[[{at},1,\"\"]]")
            }
            _ => {
                at += 1;
                write!(out, "[[{at},0,\"{letter}\"]]")
            }
        };
    })
}

fn make(seed: u64, mut one: impl FnMut(&mut Rng, &mut Vec<u8>)) -> Payloads {
    let mut rng = Rng::new(seed);
    let mut payload = Vec::new();
    let mut next = || {
        one(&mut rng, &mut payload);
        payload.as_slice().into()
    };
    (0..MANY).map(|_| next()).collect()
}

/// What people typed: all keystroke traces of a directory, one after another.
pub fn traces(dir: &Path) -> Result<Payloads, Failure> {
    let doing = || Failure::io(format!("reading {}", dir.display()));
    let entries = std::fs::read_dir(dir).map_err(doing())?.collect::<Result<Vec<_>, _>>().map_err(doing())?;
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".json") || name.ends_with(".json.gz")
    });
    paths.sort();
    let mut payloads = Payloads::new();
    for path in paths {
        payloads.extend(Trace::load(&path, None)?.payloads);
    }
    if payloads.is_empty() {
        let message = format!("{} holds no keystroke traces (*.json, *.json.gz)", dir.display());
        return Err(Failure::new(Kind::NotFound, message));
    }
    Ok(payloads)
}

/// Bytes that no codec shrinks; `len` is a multiple of 8.
pub fn noise(len: usize) -> Vec<u8> {
    let mut rng = Rng::new(1);
    (0..len / 8).flat_map(|_| rng.next().to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_what_they_are_called() {
        assert!(deltas_of_200().iter().all(|payload| payload.len() == 200));
        assert!(deltas().iter().all(|payload| (64..=512).contains(&payload.len())));
        assert_eq!(noise(4096).len(), 4096);
        let keys = keystrokes();
        assert!(keys.iter().all(|key| serde_json::from_slice::<serde_json::Value>(key).is_ok()));
        assert!(keys.iter().map(|key| key.len()).sum::<usize>() / keys.len() < 32);
    }

    #[test]
    fn a_place_without_traces_says_so() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("notes.txt"), "no trace").unwrap();
        let failure = traces(dir.path()).unwrap_err();
        assert!(failure.kind == Kind::NotFound && failure.message.contains("no keystroke traces"));
        std::fs::write(dir.path().join("t.json"), r#"{"endContent":"a","txns":[{"patches":[[0,0,"a"]]}]}"#)
            .unwrap();
        assert_eq!(traces(dir.path()).unwrap(), [Box::from(&br#"[[0,0,"a"]]"#[..])]);
    }
}
