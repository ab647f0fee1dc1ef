//! Views of parts that are kept elsewhere, whose table, or parts, are not what they were.
//!
//! Input: flags (1 byte: 1 has the table's checksum made anew), the part (1 byte), a patch for it
//! if flags say 2 (offset and length, 2 and 1 bytes, and bytes), then patches for the table.

#![no_main]

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use brooklet::codex::{Bytes, Source};
use brooklet::{Error, View, WalkItem};
use brooklet_fuzz::export::parts;
use brooklet_fuzz::patches;
use brooklet_wal::checksum;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = run(&mut Unstructured::new(data));
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let (table, kept) = parts();
    let [flags, which]: [u8; 2] = input.arbitrary()?;
    let (mut changed, mut kept_now) = (table.clone(), kept.clone());
    if flags & 2 != 0 {
        let [low, high, len]: [u8; 3] = input.arbitrary()?;
        let bytes = input.bytes(usize::from(len).min(input.len()))?;
        let part = kept_now.values_mut().nth(usize::from(which) % kept.len()).expect("there is one");
        let mut image = part.to_vec();
        let at = usize::from(u16::from_le_bytes([low, high])) % image.len();
        let end = image.len().min(at + bytes.len());
        image[at..end].copy_from_slice(&bytes[..end - at]);
        *part = image.into();
    }
    for patch in patches(input, 8)? {
        patch.apply(&mut changed);
    }
    if flags & 1 != 0 {
        let body = changed.len() - 8;
        let sum = checksum(&changed[44..body]);
        changed[body..].copy_from_slice(&sum.to_le_bytes());
    }
    let open = |name| {
        let bytes: Bytes = kept_now.get(&name).cloned().unwrap_or_default();
        Ok(Arc::new(bytes) as Arc<dyn Source>)
    };
    let is_right = changed[44..] == table[44..] && changed[..12] == table[..12] && kept_now == *kept;
    let read = View::from_parts(&changed, 1 << 20, open).and_then(|view| read(&view));
    match read {
        Ok(_) => {}
        Err(Error::Damaged { .. } | Error::NewerFormat { .. }) => assert!(!is_right),
        Err(error) => panic!("{error}"),
    }
    Ok(())
}

/// Reads everything; gives how many entries there are.
fn read(view: &View) -> std::result::Result<u64, Error> {
    let mut entries = 0;
    for walked in view.walk("")? {
        match walked? {
            // A table that says something else of where a part begins leads elsewhere.
            WalkItem::Log(log) => match view.bounds(&log.key) {
                Ok(_) | Err(Error::UnknownLog { .. }) => {}
                Err(error) => return Err(error),
            },
            WalkItem::Entry(_) => entries += 1,
        }
    }
    Ok(entries)
}
