//! Codexes: open, look-ups, cursors both ways, and the check of a whole file.
//!
//! Input: flags (1 byte), then
//! - 1 set: the shape of a sound file (3 bytes; see `brooklet_fuzz::codex`), and patches; 2 has
//!   checksums made anew
//! - 1 not set: a file; the checksums of its footer, and of what that points to, are made right

#![no_main]

use arbitrary::{Result, Unstructured};
use brooklet_codex::fuzzing::FOOTER;
use brooklet_codex::{Bytes, Error, Noted, Reader};
use brooklet_fuzz::codex::{Sample, note_hash, sample};
use brooklet_fuzz::{Cover, Seam, patches, reseal};
use libfuzzer_sys::fuzz_target;

/// LZ4 cannot grow a byte into more than this.
const LZ4_MOST: usize = 255;

fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let Ok(flags) = input.arbitrary::<u8>() else { return };
    match flags & 3 {
        1 => drop(damaged(&mut input)),
        3 => drop(hostile(&mut input)),
        _ => raw(input.take_rest().to_vec()),
    }
});

/// Nothing in the file changes unnoticed: what is read is what was written, or an error.
fn damaged(input: &mut Unstructured<'_>) -> Result<()> {
    let Sample { file, entries, footer_sum, seams } = sample(input)?;
    let mut changed = file.clone();
    for patch in patches(input, 16)? {
        patch.aimed(&file, &seams).apply(&mut changed);
    }
    let (sound, len) = (changed == file, changed.len() as u64);
    let Ok(reader) = Reader::open(Bytes::from(changed), len, Some(footer_sum)) else {
        assert!(!sound);
        return Ok(());
    };
    let verified = reader.verify(brooklet_codex::Progress::ignore);
    assert_eq!(verified.is_ok(), sound);
    for (n, (key, value)) in entries.iter().enumerate() {
        match reader.get(key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..])),
            Err(error) => assert!(!sound && matches!(error, Error::Damaged { .. }), "{error}"),
        }
        match reader.may_contain(key, n as u64) {
            Ok(may) => assert!(may),
            Err(error) => assert!(!sound && matches!(error, Error::Damaged { .. }), "{error}"),
        }
        match reader.note(key, n as u64, || note_hash(key)) {
            Ok(Noted::Note(note)) => assert_eq!(note, n as u32),
            Ok(note) => assert_eq!(note, Noted::Unknown),
            Err(error) => assert!(!sound && matches!(error, Error::Damaged { .. }), "{error}"),
        }
    }
    let mut cursor = reader.cursor();
    let mut expected = entries.iter();
    while let Ok(true) = cursor.next() {
        let (key, value) = expected.next().expect("no entry more than were written");
        assert!(cursor.key() == key);
        match cursor.value() {
            Ok(found) => assert!(found == value[..]),
            Err(error) => assert!(!sound && matches!(error, Error::Damaged { .. }), "{error}"),
        }
        if let (Ok(len), Ok(part)) = (cursor.value_len(), cursor.value_part(1..3)) {
            assert!(len == value.len() as u64 && part == value[value.len().min(1)..value.len().min(3)]);
        }
    }
    assert!(!sound || expected.next().is_none());
    Ok(())
}

fn hostile(input: &mut Unstructured<'_>) -> Result<()> {
    let Sample { file, seams, .. } = sample(input)?;
    let mut changed = file.clone();
    for patch in patches(input, 16)? {
        patch.aimed(&file, &seams).apply(&mut changed);
    }
    reseal(&mut changed, &seams);
    read(changed);
    Ok(())
}

fn raw(mut file: Vec<u8>) {
    let len = file.len() as u64;
    if let Some(footer) = file.len().checked_sub(FOOTER) {
        let frame = |at: usize| Seam {
            covers: Cover::Frame { at: footer + at, base: 0 },
            put: vec![footer + at + 12],
        };
        let last = Seam { covers: Cover::Bytes(footer..footer + 120), put: vec![footer + 120] };
        reseal(&mut file, &[frame(48), frame(68), frame(88), last]);
        read(file);
    } else {
        let opened = Reader::open(Bytes::from(file), len, None);
        assert!(matches!(opened, Err(Error::NotACodex)));
    }
}

/// Whatever the file holds, reading it ends; and if the check finds nothing, all ways to read
/// agree.
fn read(file: Vec<u8>) {
    let len = file.len();
    let reader = match Reader::open(Bytes::from(file), len as u64, None) {
        Ok(reader) => reader,
        Err(Error::NotACodex | Error::Newer { .. } | Error::Damaged { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let most = len * LZ4_MOST;
    let _ =
        (reader.get_part(b"brook/", 0..9).map_err(expected), reader.value_len(b"brook/a").map_err(expected));
    let verified = reader.verify(|done| {
        assert!(done.bytes <= len as u64);
        std::ops::ControlFlow::Continue(())
    });
    let _ = (reader.metadata(), reader.may_contain(b"", 7), reader.may_contain(b"brook/z", 7));
    let _ = (0..64).map(|n| reader.note(b"brook/z", n, || u128::from(n) << 120).map_err(expected)).count();
    let mut cursor = reader.cursor();
    let (mut forward, mut ended) = (Vec::new(), false);
    loop {
        match cursor.next() {
            Ok(true) => match cursor.value() {
                Ok(value) => {
                    forward.push((cursor.key().to_vec(), value));
                    // Each entry takes three bytes at least.
                    assert!(forward.len() <= most / 3, "reading does not end");
                    continue;
                }
                Err(error) => expected(error),
            },
            Ok(false) => ended = true,
            Err(error) => expected(error),
        }
        break;
    }
    let mut cursor = reader.cursor();
    let mut backward = Vec::new();
    let mut more = cursor.seek_last();
    while let Ok(true) = more {
        let Ok(value) = cursor.value().map_err(expected) else { break };
        backward.push((cursor.key().to_vec(), value));
        assert!(backward.len() <= most / 3, "reading does not end");
        more = cursor.prev();
    }
    let _ = more.map_err(expected);
    for (key, _) in forward.iter().take(16) {
        let _ = (reader.get(key).map_err(expected), cursor.seek(key).map_err(expected));
        let _ = (cursor.seek_le(key).map_err(expected), reader.get_le(key).map_err(expected));
    }
    // Each takes a frame of five bytes, and its place in the cache.
    assert!(reader.memory() <= most * 2 + len / 5 * 200);
    let Ok(verified) = verified.map_err(expected) else { return };
    assert!(ended && forward.len() as u64 == verified.entries && reader.entries() == verified.entries);
    assert!(forward.is_sorted_by(|a, b| a.0 < b.0));
    backward.reverse();
    assert!(forward == backward, "the two directions differ");
    for (key, value) in forward.iter().step_by(5) {
        assert_eq!(reader.get(key).expect("it was verified").as_ref(), Some(value));
        assert!(cursor.seek(key).expect("it was verified") && cursor.key() == key);
    }
    assert!(reader.get(&[0xff; 300]).is_ok());
}

fn expected(error: Error) {
    assert!(matches!(error, Error::Damaged { .. } | Error::Lost), "{error}");
}
