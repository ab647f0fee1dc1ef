//! The sources of scripts that clients sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Most scripts of `EVAL` that stay; the least recently used one leaves first.
const EVALUATED: usize = 500;
/// Most scripts in all.
const SCRIPTS: usize = 10_000;
/// Most bytes of all sources.
const BYTES: usize = 16 << 20;
/// Memory of a script besides its source, in bytes.
const EACH: usize = 256;

/// A script.
#[derive(Debug)]
pub struct Script {
    /// Digest of the source, in hexadecimal.
    pub digest: String,
    /// The code, without the first line if that has options.
    pub code: Vec<u8>,
    /// The options of the first line; `None` if it has none.
    pub flags: Option<Flags>,
}

/// The options of a script's first line that have an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Whether the script only reads.
    pub no_writes: bool,
}

/// Names of the options.
const FLAGS: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

/// Reads the first line of a source; returns the code and the options.
pub fn parse(source: &[u8]) -> Result<(Vec<u8>, Option<Flags>), String> {
    if !source.starts_with(b"#!") {
        return Ok((source.to_vec(), None));
    }
    let end = source.iter().position(|byte| *byte == b'\n').ok_or("Invalid script shebang")?;
    let line = String::from_utf8_lossy(&source[..end]);
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(format!("Unexpected engine in script shebang: {engine}"));
    }
    let mut flags = Flags::default();
    for word in words {
        let Some(names) = word.strip_prefix("flags=") else {
            return Err(format!("Unknown lua shebang option: {word}"));
        };
        for name in names.split(',').filter(|name| !name.is_empty()) {
            if !FLAGS.contains(&name) {
                return Err(format!("Unexpected flag in script shebang: {name}"));
            }
            flags.no_writes |= name == "no-writes";
        }
    }
    // The end of the line stays, so that the numbers of lines are those of the source.
    Ok((source[end..].to_vec(), Some(flags)))
}

/// The scripts.
#[derive(Debug, Default)]
pub struct Cache {
    scripts: BTreeMap<String, (Arc<Script>, bool)>,
    /// Digests of the scripts of `EVAL`, the least recently used first.
    evaluated: VecDeque<String>,
    bytes: usize,
}

fn size(script: &Script) -> usize {
    script.code.len() + EACH
}

impl Cache {
    /// Returns a script by its digest, in any case of letters.
    pub fn get(&mut self, digest: &str) -> Option<Arc<Script>> {
        let digest = digest.to_ascii_lowercase();
        let (script, is_loaded) = self.scripts.get(&digest)?;
        let script = script.clone();
        if !is_loaded && self.evaluated.back() != Some(&digest) {
            self.evaluated.retain(|other| *other != digest);
            self.evaluated.push_back(digest);
        }
        Some(script)
    }

    /// Returns whether there is a script with a digest, in any case of letters. This is not a use.
    pub fn has(&self, digest: &str) -> bool {
        self.scripts.contains_key(&digest.to_ascii_lowercase())
    }

    /// Adds a script of `EVAL`, or of `SCRIPT LOAD`, which stays until it is flushed. Returns an
    /// error if there is no room.
    pub fn add(&mut self, script: &Arc<Script>, is_loaded: bool) -> Result<(), String> {
        if let Some((_, was_loaded)) = self.scripts.get_mut(&script.digest) {
            if is_loaded && !std::mem::replace(was_loaded, true) {
                self.evaluated.retain(|other| *other != script.digest);
            }
            return Ok(());
        }
        let has_room = |all: &Self| all.scripts.len() < SCRIPTS && all.bytes + size(script) <= BYTES;
        while (!has_room(self) || self.evaluated.len() >= EVALUATED) && !self.evaluated.is_empty() {
            if let Some(oldest) = self.evaluated.pop_front()
                && let Some((oldest, _)) = self.scripts.remove(&oldest)
            {
                self.bytes -= size(&oldest);
            }
        }
        if !has_room(self) {
            return if is_loaded { Err(full()) } else { Ok(()) };
        }
        self.bytes += size(script);
        self.scripts.insert(script.digest.clone(), (script.clone(), is_loaded));
        if !is_loaded {
            self.evaluated.push_back(script.digest.clone());
        }
        Ok(())
    }

    /// Returns the number of scripts.
    pub fn count(&self) -> usize {
        self.scripts.len()
    }

    /// Returns the memory of the scripts, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn full() -> String {
    format!("the loaded scripts are {SCRIPTS} or have {BYTES} bytes: remove them by SCRIPT FLUSH")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(n: usize, len: usize) -> Arc<Script> {
        Arc::new(Script { digest: format!("{n:040x}"), code: vec![b' '; len], flags: None })
    }

    #[test]
    fn scripts_of_eval_leave_and_loaded_ones_stay_within_bounds() {
        let mut cache = Cache::default();
        cache.add(&script(0, 10), true).unwrap();
        for n in 1..=2 * EVALUATED {
            cache.add(&script(n, 10), false).unwrap();
            assert!(cache.get(&script(1, 0).digest).is_some(), "it is used often");
        }
        assert_eq!(cache.scripts.len(), EVALUATED + 1);
        assert!(cache.get(&script(0, 0).digest).is_some() && cache.get(&script(2, 0).digest).is_none());
        let refused = (0..100).find(|n| cache.add(&script(1_000_000 + n, 256 << 10), true).is_err());
        assert!(refused.is_some_and(|n| n > 50), "{refused:?}");
        assert!(cache.bytes <= BYTES);
        cache.add(&script(9_000_000, 300 << 10), false).unwrap();
        assert!(cache.get(&script(9_000_000, 0).digest).is_none(), "it runs, and does not stay");
    }

    #[test]
    fn first_lines_have_options() {
        assert_eq!(parse(b"return 1"), Ok((b"return 1".to_vec(), None)));
        let (code, flags) = parse(b"#!lua flags=no-writes,allow-oom\nreturn 1").unwrap();
        assert_eq!((&code[..], flags), (&b"\nreturn 1"[..], Some(Flags { no_writes: true })));
        for (source, why) in [
            ("#!lua", "Invalid script shebang"),
            ("#!foo\n", "Unexpected engine in script shebang: #!foo"),
            ("#!lua name=x\n", "Unknown lua shebang option: name=x"),
            ("#!lua flags=foo\n", "Unexpected flag in script shebang: foo"),
        ] {
            assert_eq!(parse(source.as_bytes()), Err(why.into()));
        }
    }
}
