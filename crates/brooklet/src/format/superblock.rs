//! The superblock and the map of the volumes: the only place that computes a zone's offset.
//!
//! ```text
//! offset            zone
//!      0            superblock: COPIES slots of one sector; then spare sectors, in which each opening tries how the
//!                   device takes durable writes; the last sector is a note that names who has the store open (text,
//!                   no promise attached)
//! 64 KiB            ring, at most `ring_size` bytes: the first of them are in use, as many as the map says
//! 64 KiB + ring     heap, to the end of the volume or to `capacity`
//!
//! offset            zone, where the ring has a volume of its own      that volume
//!      0            superblock, as above                              label (see `format/ring_label.rs`), spare sectors and a note
//!                                                                     as above
//! 64 KiB            heap, to the end of the volume or to `capacity`   ring, as above
//!
//! in a slot (see `slot.rs` of brooklet-wal) of magic "BROOKLET" and version 1 to 8
//!  16  16 identity of the store
//!  32   8 generation: 1 more than the superblock before
//!  40   8 ring_size: the bytes that the ring may grow to
//!  48   8 epoch: 1 more at every opening for writing
//!  56  32 trim point of the ring: position, seq, lsn, chain
//!  88   8 acked: every block up to this number is durable
//!  96   8 flags: 1 closed cleanly, `acked` is the last block; 2 the ring has a volume of its own (since version 2);
//!         4 there is a span before (since version 8); 8 the store was open with a mirror (since version 8)
//! 104   8 manifest offset      112   8 manifest length      120   8 manifest checksum (all zero: no run)
//! 128   8 next run number
//! 136   8 created, nanoseconds since the Unix epoch
//! 144   8 capacity: bytes of the volume that the store may use; 0: as many as the volume has or grows to (since version 2)
//! 152  16 identity of the ring, as its label has it; zero where the ring lies inside (since version 2)
//! 168   8 mark of the last opening for writing, a random number that the label bears too; zero where the ring lies
//!         inside (since version 2)
//! 176   8 mark that the label may bear instead; another than the mark only while an opening marks both (since version 2)
//! 184  24 span of the ring: from, offset, size. Position p from `from` on lies at (offset + p - from) mod size in the
//!         ring (since version 8; before, a ring had its whole size from the beginning)
//! 208  24 span before: where the positions before `from` lie; zero: there is none (since version 8)
//! 232   8 the device on which durable writes were measured, zero: none; 240: 1 if a flag on the write served better
//!         (since version 8)
//! ```
//!
//! Version 1 had no capacity, no ring on its own volume, and ring blocks of version 1
//! (`brooklet-wal`, `format.rs`). Version 2 had a manifest of version 1 (`format/manifest.rs`), and
//! only runs of version 1 of the codex format (`brooklet-codex`, `format.rs`); in version 3, runs
//! may also be of version 2. Up to version 3, no log had terms (`format/commit_record.rs`,
//! `format/run_entry.rs`), and no manifest was of version 3. Up to version 4, there were no spaces
//! (`state/spaces`), and so no log with an empty key. Up to version 5, no run was of version 4
//! of the codex format, which has notes (`format/bounds_note.rs`). Up to version 6, no log began at
//! another number than 0 (`format/commit_record.rs`), and each change of a space committed the
//! whole table. Up to version 7, the whole ring was in use from the beginning, and each opening
//! measured durable writes. Opening an older store for writing changes it to version 8, because it
//! then gets blocks, runs and a manifest of that version.
//!
//! Every change writes all copies, one after another, each durable before the next. So either all
//! copies hold the newest generation, or a crash happened in between. In the latter case the older
//! generation is still valid, because nothing it refers to is reused before the last copy is
//! written. A copy that the device does not read counts as damaged, too.

use std::ops::Range;

use brooklet_io::seeded::bug;
use brooklet_io::{AlignedBuf, Persist, SECTOR, Tuning, Volume, write_all_at};
use brooklet_wal::slot::{self, Fields, SlotContent};
use brooklet_wal::{Cursor, Layout, Map, Span};

use crate::error::Error;

/// The newest format that this version reads and writes.
pub(crate) const FORMAT: u32 = 8;
/// Number of copies of the superblock.
pub(crate) const COPIES: usize = 3;
/// Bytes of the superblock zone, and the offset of the ring on its volume.
pub(crate) const RING_OFFSET: u64 = 64 << 10;
/// Minimum bytes of the heap under any capacity: a run of a small memtable, and the run that it
/// replaces.
pub(crate) const MIN_HEAP: u64 = 1 << 20;
/// Maximum size of the ring, in bytes.
pub(crate) const MAX_RING: u64 = 1 << 40;
/// Offset of the note that names the holder.
pub(crate) const NOTE_OFFSET: u64 = RING_OFFSET - SECTOR as u64;

/// The spare sectors: their contents are not needed. The range is the same on both volumes.
pub(crate) const SCRATCH: Range<u64> = 16 << 10..NOTE_OFFSET;

const _: () = assert!((COPIES * SECTOR) as u64 <= SCRATCH.start);
const CLEAN: u64 = 1;
const APART: u64 = 2;
const RESIZED: u64 = 4;
const MIRRORED: u64 = 8;

/// The place of a checksummed structure on the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub offset: u64,
    pub len: u64,
    pub sum: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Format version, 1 to 8.
    pub format: u32,
    pub id: u128,
    pub generation: u64,
    /// The bytes that the ring may grow to.
    pub ring_size: u64,
    pub epoch: u64,
    pub trim: Cursor,
    pub acked: u64,
    pub clean: bool,
    /// Whether the store was open with a mirror: then nothing may bypass its log.
    pub mirrored: bool,
    pub manifest: Place,
    pub next_run: u64,
    pub created: u64,
    /// Maximum size that the store may use, in bytes; 0 for no limit.
    pub capacity: u64,
    /// The identity of the ring, if the ring has its own volume.
    pub ring: Option<u128>,
    /// The mark of the last opening for writing on both volumes, if the ring has its own volume.
    pub mark: u64,
    /// The label's mark until that opening has marked the label.
    pub mark_before: u64,
    /// The places of the ring's positions. Invariant: it is the map of a ring whose oldest live
    /// block is at `trim`.
    pub map: Map,
    /// The measurement of durable writes on the ring's device.
    pub tuning: Option<Tuning>,
}

/// The content of a slot.
pub(crate) type Slot = slot::Slot<Superblock>;

/// Returns the identity that the blocks of a store's ring name.
pub fn id_in_ring(store: u128) -> u64 {
    store as u64 ^ (store >> 64) as u64
}

impl Superblock {
    /// Returns the offset of the heap, in bytes.
    pub fn heap_offset(&self) -> u64 {
        if self.ring.is_some() { RING_OFFSET } else { self.ring_end() }
    }

    /// Returns the end of the ring on its volume at its full size, in bytes.
    pub fn ring_end(&self) -> u64 {
        RING_OFFSET + self.ring_size
    }

    /// Returns the end of the part of the ring that is in use, in bytes. The space up to there is
    /// allocated and was written.
    pub fn ring_reach(&self) -> u64 {
        RING_OFFSET + self.map.reach()
    }

    /// Returns the layout of the ring.
    pub fn layout(&self) -> Layout {
        Layout { zone: RING_OFFSET, store: id_in_ring(self.id), map: self.map }
    }

    /// Returns the superblock after a trim of the ring, with the map without the span that the trim
    /// freed.
    pub fn trimmed(mut self, trim: Cursor) -> Self {
        self.trim = trim;
        self.map.settle(trim.position);
        self
    }

    /// Writes every copy, each durable before the next.
    pub fn write(&self, volume: &dyn Volume) -> std::io::Result<()> {
        let persist = if bug("superblock-is-cached") { Persist::Cached } else { Persist::Durable };
        slot::write(volume, 0..COPIES, self, persist)
    }

    /// Returns the newest valid copy, for a volume of `size` bytes. `fixed`: the volume is a
    /// device, which cannot grow.
    pub fn choose(slots: &[Slot], name: &str, size: u64, fixed: bool) -> Result<Superblock, Error> {
        let newest = slot::choose(slots).map_err(|found| Error::NewerFormat {
            name: name.into(),
            found,
            known: FORMAT,
        })?;
        let Some((_, best)) = newest else {
            let blank = slots.iter().all(|slot| matches!(slot, Slot::Blank | Slot::NoMagic));
            let device = if fixed { "; `brooklet format` creates a store on a device" } else { "" };
            return Err(if blank {
                let why = format!("it does not start with a superblock{device}");
                Error::NotAStore { name: name.into(), why }
            } else {
                Error::damaged(
                    "the superblock",
                    format!("none of its {COPIES} copies in {name} is undamaged"),
                )
            });
        };
        best.check_size(name, size, fixed)?;
        best.check_numbers()?;
        Ok(best)
    }

    fn check_size(&self, name: &str, size: u64, fixed: bool) -> Result<(), Error> {
        if fixed && size < self.capacity {
            return Err(Error::Shrunk { name: name.into(), needed: self.capacity, size });
        }
        let lawful = (brooklet_wal::MIN_RING..=MAX_RING).contains(&self.ring_size)
            && self.ring_size.is_multiple_of(SECTOR as u64);
        if !lawful || self.heap_offset() > size {
            let ring = self.ring_size;
            let what =
                format!("{name} was cut short: the ring of {ring} bytes does not fit in its {size} bytes");
            return Err(Error::damaged("the superblock", what));
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), Error> {
        let Superblock { trim, acked, epoch, generation, next_run, capacity, .. } = *self;
        // Each of these numbers counts events or bytes, and no real count comes near 2^62. So sums
        // of them do not overflow.
        let sane = [trim.position, trim.seq, trim.lsn, acked, epoch, generation, next_run, capacity]
            .iter()
            .all(|n| *n < 1 << 62);
        let whole = |n: u64| n.is_multiple_of(SECTOR as u64);
        let holds = || capacity == 0 || whole(capacity) && capacity >= self.heap_offset();
        let starts = || trim.seq > 0 && acked + 1 >= trim.seq && whole(trim.position);
        let span = |span: &Span| (brooklet_wal::MIN_RING..=self.ring_size).contains(&span.size);
        let spans = || self.map.before.iter().chain([&self.map.current]).all(span);
        if sane && holds() && starts() && spans() && self.map.is_sound(trim.position) {
            Ok(())
        } else {
            Err(Error::damaged("the superblock", "its numbers are invalid"))
        }
    }
}

impl SlotContent for Superblock {
    const MAGIC: [u8; 8] = *b"BROOKLET";
    const FORMAT: u32 = FORMAT;

    fn version(&self) -> u32 {
        self.format
    }

    fn rank(&self) -> u64 {
        if bug("oldest-superblock-counts") { !self.generation } else { self.generation }
    }

    fn put(&self, fields: &mut Fields) {
        let Place { offset, len, sum } = self.manifest;
        let flag = |flag, is_set| if is_set { flag } else { 0 };
        let flags = flag(CLEAN, self.clean) | flag(APART, self.ring.is_some());
        let flags = flags | flag(RESIZED, self.map.before.is_some() && self.format >= 8);
        let flags = flags | flag(MIRRORED, self.mirrored && self.format >= 8);
        let capacity = if bug("capacity-is-forgotten") { 0 } else { self.capacity };
        fields.put_id(16, self.id);
        fields.put(32, &[self.generation, self.ring_size, self.epoch]);
        fields.put_cursor(56, self.trim);
        fields.put(88, &[self.acked, flags, offset, len, sum, self.next_run, self.created, capacity]);
        fields.put_id(152, self.ring.unwrap_or_default());
        fields.put(168, &[self.mark, self.mark_before]);
        if self.format >= 8 {
            let spans = [Some(self.map.current), self.map.before];
            for (at, Span { from, offset, size }) in [184, 208].into_iter().zip(spans.into_iter().flatten()) {
                fields.put(at, &[from, offset, size]);
            }
            let Tuning { device, by_flag } = self.tuning.unwrap_or(Tuning { device: 0, by_flag: false });
            fields.put(232, &[device, by_flag.into()]);
        }
    }

    fn take(fields: &Fields, version: u32) -> Result<Self, &'static str> {
        let word = |at| fields.word(at);
        let since_two = |at| if version >= 2 { word(at) } else { 0 };
        let apart = version >= 2 && word(96) & APART != 0;
        let span = |at| Span { from: word(at), offset: word(at + 8), size: word(at + 16) };
        let resized = word(96) & RESIZED != 0;
        let map = Map { current: span(184), before: resized.then(|| span(208)) };
        let tuning = Tuning { device: word(232), by_flag: word(240) != 0 };
        Ok(Self {
            format: version,
            id: fields.id(16),
            generation: word(32),
            ring_size: word(40),
            epoch: word(48),
            trim: fields.cursor(56),
            acked: word(88),
            clean: word(96) & CLEAN != 0,
            mirrored: version >= 8 && word(96) & MIRRORED != 0,
            manifest: Place { offset: word(104), len: word(112), sum: word(120) },
            next_run: word(128),
            created: word(136),
            capacity: since_two(144),
            ring: apart.then(|| fields.id(152)),
            mark: since_two(168),
            mark_before: since_two(176),
            map: if version >= 8 { map } else { Map::new(word(40)) },
            tuning: (version >= 8 && tuning.device != 0).then_some(tuning),
        })
    }
}

/// Writes a note that names the holder of the store, for users who find the store locked.
pub(crate) fn write_note(volume: &dyn Volume, note: &str) -> std::io::Result<()> {
    let mut buf = AlignedBuf::zeroed(SECTOR);
    let len = note.len().min(SECTOR);
    buf[..len].copy_from_slice(&note.as_bytes()[..len]);
    write_all_at(volume, NOTE_OFFSET, &buf, Persist::Cached)
}

/// Reads the note from the raw bytes of its sector.
pub(crate) fn read_note(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    (!text.is_empty() && text.chars().all(|c| !c.is_control())).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            format: FORMAT,
            id: 77,
            generation: 5,
            ring_size: 1 << 20,
            epoch: 3,
            trim: Cursor { position: 4096, seq: 9, lsn: 100, chain: 8 },
            acked: 12,
            clean: true,
            mirrored: false,
            manifest: Place { offset: 1 << 21, len: 200, sum: 9 },
            next_run: 4,
            created: 1,
            capacity: 1 << 22,
            ring: None,
            mark: 0,
            mark_before: 0,
            map: Map::new(1 << 20),
            tuning: None,
        }
    }

    /// Returns a superblock of a store whose ring has grown from 64 to 128 KiB.
    fn resized() -> Superblock {
        let before = Some(Span { from: 0, offset: 0, size: 64 << 10 });
        let current = Span { from: 40 << 10, offset: 64 << 10, size: 128 << 10 };
        Superblock { map: Map { current, before }, ..sample() }
    }

    #[test]
    fn a_slot_survives_the_round_trip() {
        for superblock in [
            sample(),
            Superblock { ring: Some(3 << 100), mark: u64::MAX, mark_before: 1 << 63, ..sample() },
            Superblock { format: 1, capacity: 0, ..sample() },
            Superblock { mirrored: true, ..resized() },
            Superblock { tuning: Some(Tuning { device: 1 << 63, by_flag: true }), ..resized() },
        ] {
            assert_eq!(Superblock::decode(&superblock.encode()), Slot::Valid(superblock));
        }
    }

    #[test]
    fn the_newest_whole_copy_counts_and_a_newer_format_is_named() {
        let old = Superblock { generation: 4, ..sample() };
        let slots = [Slot::Damaged("x"), Slot::Valid(old), Slot::Valid(sample())];
        assert_eq!(Superblock::choose(&slots, "f", 1 << 22, false).unwrap().generation, 5);
        let slots = [Slot::Newer(9), Slot::Valid(old), Slot::Valid(old)];
        assert!(matches!(
            Superblock::choose(&slots, "f", 1 << 22, false),
            Err(Error::NewerFormat { found: 9, .. })
        ));
        let blank = [Slot::Blank, Slot::NoMagic, Slot::Blank];
        assert!(matches!(Superblock::choose(&blank, "f", 1 << 22, false), Err(Error::NotAStore { .. })));
        assert!(matches!(Superblock::choose(&slots[1..], "f", 1 << 16, false), Err(Error::Damaged { .. })));
    }

    /// Numbers with a correct checksum that no store writes are refused before any computation.
    #[test]
    fn numbers_that_nothing_can_have_counted_are_refused() {
        let most = u64::MAX;
        let trim = Cursor { seq: most, ..sample().trim };
        for bad in [
            Superblock { acked: most, ..sample() },
            Superblock { trim, acked: most, ..sample() },
            Superblock { capacity: most, ..sample() },
            Superblock { epoch: most, ..sample() },
            Superblock { map: Map::new(2 << 20), ..sample() },
            Superblock { map: Map::new(4096), ..sample() },
            Superblock { map: Map { before: None, ..resized().map }, ..resized() },
        ] {
            let error = Superblock::choose(&[Slot::Valid(bad)], "f", 1 << 22, false).unwrap_err();
            assert!(error.to_string().contains("its numbers are invalid"), "{error}");
        }
    }

    /// A file that is shorter than its capacity grows. A device must have the capacity.
    #[test]
    fn a_device_must_have_the_capacity_and_no_other_volume() {
        let slots = [Slot::Valid(sample()), Slot::Valid(sample()), Slot::Valid(sample())];
        let choose = |size, fixed| Superblock::choose(&slots, "f", size, fixed);
        assert!(choose(2 << 20, false).is_ok() && choose(1 << 22, true).is_ok());
        let error = choose((1 << 22) - 512, true).unwrap_err();
        let shrunk = matches!(error, Error::Shrunk { needed: 0x40_0000, size: 0x3f_fe00, .. });
        assert!(shrunk, "{error}");
        for capacity in [4096, (1 << 22) + 512, u64::MAX - 4095] {
            let slots = [Slot::Valid(Superblock { capacity, ..sample() })];
            let error = Superblock::choose(&slots, "f", 1 << 22, false).unwrap_err();
            assert!(error.to_string().contains("its numbers are invalid"), "{error}");
        }
    }

    #[test]
    fn zones_of_either_map_do_not_overlap() {
        let (inside, apart) = (sample(), Superblock { ring: Some(1), ..sample() });
        assert_eq!((inside.layout().zone, inside.ring_end()), (RING_OFFSET, inside.heap_offset()));
        assert_eq!((apart.layout().zone, apart.ring_end()), (RING_OFFSET, inside.ring_end()));
        assert!(resized().ring_reach() < resized().ring_end());
        assert_eq!(apart.heap_offset(), RING_OFFSET);
    }
}
