//! What `brooklet import` reads: lines of JSON, comma-separated values, and exports whose checksums
//! are right, whatever they say.
//!
//! Input: flags (1 byte), then for 0 and 1, of 4, lines of either kind; for 2 an export done harm
//! to: for each change the entry (1 byte; 255 is the metadata), whether its key (1 byte: odd) or
//! its value, and a patch; for 3 entries: lengths (1 and 2 bytes) before key and value, the key's
//! last bytes told by its length.

#![no_main]

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use brooklet::codex::{Builder, BuilderOptions, Bytes, Reader};
use brooklet::io::MemVolume;
use brooklet::{Error, Existing, Options};
use brooklet_cli::fuzzing::import_lines;
use brooklet_fuzz::export::{Entry, sample};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((flags, rest)) = data.split_first() else { return };
    match flags & 3 {
        kind @ (0 | 1) => lines(kind == 1, rest),
        2 => drop(
            harmed(&mut Unstructured::new(rest))
                .map(|(metadata, entries)| import(&metadata, entries, *flags)),
        ),
        _ => drop(made(&mut Unstructured::new(rest)).map(|entries| import(&sample().0, entries, *flags))),
    }
});

fn lines(csv: bool, input: &[u8]) {
    let (bytes, wrong) = import_lines(csv, input);
    // Base 16 and escapes take more than they say.
    assert!(bytes <= input.len() * 2, "more than there was");
    if let Some(wrong) = wrong {
        assert!(wrong.starts_with("line ") || wrong.starts_with("there is no column"), "{wrong}");
    }
}

fn harmed(input: &mut Unstructured<'_>) -> Result<(Vec<u8>, Vec<Entry>)> {
    let (mut metadata, mut entries) = sample().clone();
    for _ in 0..8 {
        if input.len() < 5 {
            break;
        }
        let [which, what, at, len]: [u8; 4] = input.arbitrary()?;
        let bytes = input.bytes(usize::from(len).min(input.len()))?;
        let count = entries.len();
        let changed = match which {
            255 => &mut metadata,
            which if what & 1 == 1 => &mut entries[usize::from(which) % count].0,
            which => &mut entries[usize::from(which) % count].1,
        };
        let from = usize::from(at).min(changed.len());
        let to = if what & 2 == 2 { from } else { changed.len().min(from + bytes.len()) };
        changed.splice(from..to, bytes.iter().copied());
    }
    Ok((metadata, entries))
}

fn made(input: &mut Unstructured<'_>) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    while input.len() > 3 && entries.len() < 64 {
        let [key_len, low, high]: [u8; 3] = input.arbitrary()?;
        let mut key = input.bytes(usize::from(key_len / 4).min(input.len()))?.to_vec();
        match key_len % 4 {
            0 => {}
            1 => key.extend_from_slice(&[0, 1]),
            2 => key.extend_from_slice(&[0, 1, 0]),
            _ => key.extend_from_slice(&[0, 1, 1, 0, 0, 0, 0, 0, 0, 0, low & 7]),
        }
        let value = input.bytes(usize::from(u16::from_le_bytes([low, high & 7])).min(input.len()))?.to_vec();
        entries.push((key, value));
    }
    Ok(entries)
}

/// Whatever comes in fits together; else nothing does.
fn import(metadata: &[u8], mut entries: Vec<Entry>, flags: u8) {
    entries.sort();
    entries.dedup_by(|a, b| a.0 == b.0);
    let mut builder = Builder::new(Vec::new(), BuilderOptions::default());
    for (key, value) in &entries {
        if builder.add(key, value).is_err() {
            return;
        }
    }
    let Ok((summary, file)) = builder.finish_with(metadata) else { return };
    let reader = Reader::open(Bytes::from(file), summary.len, None).expect("it was just made");
    let options = Options::new().ring_size(64 << 10).max_payload(9 << 10).threads(false);
    let store = options.create_on(Arc::new(MemVolume::new(2))).expect("memory takes a store");
    store.append("short", "mine").expect("the store takes it").wait().expect("memory takes writes");
    let existing = if flags & 4 == 0 { Existing::Refuse } else { Existing::Skip };
    let imported = store.import().existing(existing).export(&reader, "");
    let (mut logs, mut read) = (0, 0);
    for log in store.scan("").expect("the store is sound") {
        let log = log.expect("the store is sound");
        assert!(log.bounds.first <= log.bounds.next);
        for entry in store.read(&log.key, ..).expect("it is there") {
            drop(entry.expect("the store is sound"));
            read += 1;
        }
        logs += 1;
    }
    match imported {
        // Entries that are too old are not shown.
        Ok(imported) => assert!(logs == imported.logs + 1 && read <= imported.entries + 1),
        Err(Error::Stopped { .. } | Error::Io { .. } | Error::Full { .. }) => panic!("{imported:?}"),
        Err(_) => assert!((logs, read) == (1, 1)),
    }
    store.compact().expect("what came in can be merged");
}
