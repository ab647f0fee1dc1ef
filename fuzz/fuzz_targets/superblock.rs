//! The slots of the superblock, and which of them counts.
//!
//! Input: flags (1 byte: bit i has the checksum of slot i made right), size of the volume (8
//! bytes), a bit to flip (2 bytes), then up to three slots, 160 bytes each; the rest of a slot is
//! zero.

#![no_main]

use arbitrary::{Result, Unstructured};
use brooklet::ErrorKind;
use brooklet::fuzzing::{COPIES, Found, choose, note, slot};
use brooklet_fuzz::{Cover, Seam, reseal};
use libfuzzer_sys::fuzz_target;

/// Bytes of a slot that the format gives a meaning, but for half of the ring's identity.
const TOLD: usize = 160;

fuzz_target!(|data: &[u8]| {
    let _ = run(&mut Unstructured::new(data));
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let flags: u8 = input.arbitrary()?;
    let size: u64 = input.arbitrary()?;
    let bit = usize::from(input.arbitrary::<u16>()?) % (512 * 8);
    let mut slots = [[0; 512]; COPIES];
    for (i, slot) in slots.iter_mut().enumerate() {
        let len = input.len().min(TOLD);
        slot[..len].copy_from_slice(input.bytes(len)?);
        if flags >> i & 1 != 0 {
            reseal(slot, &[Seam { covers: Cover::Bytes(0..504), put: vec![504] }]);
        }
    }
    let found = slots.each_ref().map(|bytes| slot(bytes));
    for (bytes, found) in slots.iter().zip(&found) {
        decoded(bytes, found, bit);
    }
    if let Some(note) = note(&slots[0]) {
        assert!(!note.is_empty() && !note.contains(char::is_control));
        assert!(slots[0].starts_with(note.as_bytes()));
    }
    chosen(&slots, &found, size);
    Ok(())
}

/// What was decoded is what was there, and no changed bit passes.
fn decoded(bytes: &[u8; 512], found: &Found, bit: usize) {
    if let Found::Valid(again) = found {
        for told in [0..12, 16..96, 104..144] {
            assert_eq!(again[told.clone()], bytes[told]);
        }
        let two = bytes[8] == 2;
        let flags = if two { 3 } else { 1 };
        assert_eq!(again[96] & flags, bytes[96] & flags);
        if two {
            assert_eq!(again[144..152], bytes[144..152]);
            let ring = if bytes[96] & 2 != 0 { &bytes[152..168] } else { &[0; 16] };
            assert_eq!(&again[152..168], ring);
        }
        assert_eq!(slot(again), Found::Valid(*again));
    }
    if *found != Found::Damaged {
        let mut changed = *bytes;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(slot(&changed), Found::Damaged, "bit {bit}");
    }
    for cut in [0, 8, 504, 511] {
        assert_eq!(slot(&bytes[..cut]), Found::Damaged);
    }
}

/// The one that counts is the newest that is whole, and makes sense.
fn chosen(slots: &[[u8; 512]; COPIES], found: &[Found; COPIES], size: u64) {
    let slots = slots.each_ref().map(|bytes| &bytes[..]);
    let newer = found.iter().any(|found| matches!(found, Found::Newer(_)));
    match choose(&slots, size) {
        Ok(chosen) => {
            let generation = |found: &Found| match found {
                Found::Valid(bytes) => u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes")),
                _ => 0,
            };
            assert!(!newer && found.iter().all(|found| generation(found) <= chosen.generation));
            assert!(chosen.ring_size >= brooklet_wal::MIN_RING && chosen.ring_size.is_multiple_of(4096));
            assert!(chosen.ring_apart || chosen.heap_offset > chosen.ring_size);
            assert!(chosen.heap_offset <= size);
            assert!(chosen.capacity == 0 || chosen.capacity >= chosen.heap_offset);
            let (position, seq) = chosen.trim;
            assert!(position.is_multiple_of(4096) && seq > 0 && seq <= chosen.acked + 1);
        }
        Err(error) => {
            let expected = [ErrorKind::CannotOpen, ErrorKind::Damaged];
            assert!(expected.contains(&error.kind()), "{error}");
        }
    }
}
