//! What `brooklet replay` reads: keystroke traces and histories, gzipped or not.
//!
//! Input: flags (1 byte: 1 a history, 2 gzip it first, 4 only the first 2), then the file.

#![no_main]

use std::io::Write;

use brooklet_cli::fuzzing::{history, rebuild, trace, unzip};
use flate2::{Compression, write::GzEncoder};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((flags, bytes)) = data.split_first() else { return };
    if flags & 2 != 0 {
        let mut zipped = GzEncoder::new(Vec::new(), Compression::fast());
        zipped.write_all(bytes).expect("memory takes writes");
        let zipped = zipped.finish().expect("memory takes writes");
        assert_eq!(unzip(zipped).as_deref(), Ok(bytes));
    }
    let Ok(text) = unzip(bytes.to_vec()) else { return };
    // Deflate cannot grow a byte into more than this.
    assert!(text.len() <= bytes.len() * 1032);
    let limit = (flags & 4 != 0).then_some(2);
    match flags & 1 {
        0 => keystrokes(&text, limit),
        _ => commits(&text, limit),
    }
});

fn keystrokes(text: &[u8], limit: Option<usize>) {
    let Ok((payloads, end)) = trace(text, limit) else { return };
    assert!(payloads.len() <= limit.map_or(text.len(), |limit| limit + 1));
    let Ok(rebuilt) = rebuild(&payloads) else { return };
    assert!(rebuilt.len() <= text.len(), "a text is made of what was typed");
    // The text and the edits, written as a trace, are the same trace.
    let txns: Vec<String> = payloads.iter().map(|p| format!(r#"{{"patches":{}}}"#, text_of(p))).collect();
    let again = format!(r#"{{"endContent":"","txns":[{}]}}"#, txns.join(","));
    let (same, _) = trace(again.as_bytes(), None).expect("it was written just now");
    assert!(same == payloads);
    if limit.is_none() {
        assert!(end.is_some());
    }
}

fn text_of(payload: &[u8]) -> &str {
    std::str::from_utf8(payload).expect("entries of a trace are JSON")
}

fn commits(text: &[u8], limit: Option<usize>) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok((logs, commits)) = history(text, limit) else { return };
    assert!(limit.is_none_or(|limit| commits.len() <= limit));
    // Every entry belongs to a commit, and each commit names logs that are there.
    let mut named = vec![0; logs.len()];
    for commit in &commits {
        assert!(!commit.is_empty());
        commit.iter().for_each(|&log| named[log] += 1);
    }
    for ((key, entries), named) in logs.iter().zip(named) {
        assert!(entries.len() == named && !key.contains(['\t', '\n']));
        assert!(entries.iter().all(|entry| std::str::from_utf8(entry).is_ok()));
    }
}
