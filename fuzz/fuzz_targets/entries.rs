//! What `brooklet codex build` reads: lines, JSON, lengths before bytes.
//!
//! Input: the format (1 byte), then the file.

#![no_main]

use brooklet_cli::fuzzing::{Entry, entries, json_of};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((format, input)) = data.split_first() else { return };
    let (found, wrong) = entries(*format, input);
    let bytes: usize = found.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert!(bytes <= input.len() + found.len(), "more than there was");
    if let Some(wrong) = &wrong {
        let place = format!("{} {}: ", if format % 3 == 2 { "entry" } else { "line" }, found.len() + 1);
        assert!(wrong.starts_with(&place), "{wrong}");
    }
    // What is printed reads back, whatever it was read from.
    let lines: Vec<String> = found.iter().map(json_of).collect();
    assert_eq!(entries(1, lines.join("\n").as_bytes()), (found.clone(), None));
    let again = found.iter().flat_map(lengths).collect::<Vec<u8>>();
    assert_eq!(entries(2, &again), (found.clone(), None));
    if format % 3 == 2 && wrong.is_none() {
        assert!(again == input);
    }
    if format % 3 == 0 {
        assert!(wrong.is_none(), "any lines are entries");
        let lines = input.strip_suffix(b"\n").unwrap_or(input).split(|&byte| byte == b'\n');
        let mut lines = lines.filter(|_| !input.is_empty());
        for (key, value) in &found {
            let line = lines.next().expect("each entry has a line");
            assert!(line == [key, &b"\t"[..], value].concat() || line == key && value.is_empty());
        }
        assert!(lines.next().is_none());
    }
});

fn lengths((key, value): &Entry) -> Vec<u8> {
    let len = |bytes: &[u8]| (bytes.len() as u32).to_le_bytes();
    [&len(key), &key[..], &len(value), &value[..]].concat()
}
