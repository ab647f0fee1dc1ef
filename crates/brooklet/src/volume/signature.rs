//! Signatures of other data on a volume: file systems, partition tables, arrays, stores.
//!
//! Every known kind of data has a mark in the first or the last MiB. A volume without a known mark
//! is blank only if all bytes of both are zero.

use std::io;

use brooklet_io::{AlignedBuf, SECTOR, Volume, read_exact_at};

/// Number of bytes that are searched at each end of a volume.
pub(crate) const ENDS: u64 = 1 << 20;

/// The place of a mark, in bytes.
enum At {
    /// Offsets from the start.
    Start(&'static [u64]),
    /// Offsets from the start, one in each of `count` slots.
    Slots { first: u64, step: u64, count: u64 },
    /// Offsets from the end, one in each of `count` slots. The end is rounded down to a multiple of
    /// `unit`, and the first slot begins `back` bytes before it.
    End { unit: u64, back: u64, step: u64, count: u64 },
}

struct Mark {
    name: &'static str,
    magic: &'static [u8],
    at: At,
}

const fn start(name: &'static str, offsets: &'static [u64], magic: &'static [u8]) -> Mark {
    Mark { name, magic, at: At::Start(offsets) }
}

const fn end(name: &'static str, unit: u64, back: u64, magic: &'static [u8]) -> Mark {
    Mark { name, magic, at: At::End { unit, back, step: 1, count: 1 } }
}

/// In a ZFS label, bytes 128 KiB to 256 KiB are uberblocks, 1 KiB or more apart.
const fn zfs_start(first: u64, magic: &'static [u8]) -> Mark {
    Mark { name: "ZFS label", magic, at: At::Slots { first, step: 1 << 10, count: 128 } }
}

const fn zfs_end(back: u64, magic: &'static [u8]) -> Mark {
    Mark { name: "ZFS label", magic, at: At::End { unit: 256 << 10, back, step: 1 << 10, count: 128 } }
}

const ZFS: &[u8] = &0x00ba_b10c_u64.to_le_bytes();
const ZFS_BIG: &[u8] = &0x00ba_b10c_u64.to_be_bytes();
const MD: &[u8] = &0xa92b_4efc_u32.to_le_bytes();
const MD_BIG: &[u8] = &0xa92b_4efc_u32.to_be_bytes();
const PAGE_ENDS: &[u64] = &[4086, 8182, 16_374, 32_758, 65_526];
const K: u64 = 1 << 10;

/// The marks, the more specific ones first.
const MARKS: &[Mark] = &[
    start("Brooklet store", &[0, 4096, 8192], b"BROOKLET"),
    start("Brooklet ring or log", &[0, 4096, 8192], b"BRK"),
    start("ext2, ext3 or ext4 file system", &[1080], &[0x53, 0xef]),
    start("XFS file system", &[0], b"XFSB"),
    start("Btrfs file system", &[64 * K + 64], b"_BHRfS_M"),
    start("F2FS file system", &[1024, 5120], &0xf2f5_2010_u32.to_le_bytes()),
    start(
        "bcachefs file system",
        &[4120],
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    start("bcache or bcachefs", &[4120], b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    start("swap space", PAGE_ENDS, b"SWAPSPACE2"),
    start("swap space", PAGE_ENDS, b"SWAP-SPACE"),
    start("LUKS encryption", &[0], b"LUKS\xba\xbe"),
    start("LUKS encryption", &[16 * K, 32 * K, 64 * K, 128 * K, 256 * K, 512 * K], b"SKUL\xba\xbe"),
    start("LVM2 physical volume", &[0, 512, 1024, 1536], b"LABELONE"),
    start("Linux RAID member", &[0, 4096], MD),
    end("Linux RAID member", 4 * K, 8 * K, MD),
    end("Linux RAID member", 64 * K, 64 * K, MD),
    end("Linux RAID member", 64 * K, 64 * K, MD_BIG),
    start("NTFS file system", &[3], b"NTFS    "),
    start("exFAT file system", &[3], b"EXFAT   "),
    start("FAT file system", &[54], b"FAT12   "),
    start("FAT file system", &[54], b"FAT16   "),
    start("FAT file system", &[54], b"FAT     "),
    start("FAT file system", &[82], b"FAT32   "),
    start("ISO 9660 file system", &[32 * K + 1], b"CD001"),
    start("SquashFS file system", &[0], b"hsqs"),
    start("SquashFS file system", &[0], b"sqsh"),
    zfs_start(128 * K, ZFS),
    zfs_start(384 * K, ZFS),
    zfs_end(384 * K, ZFS),
    zfs_end(128 * K, ZFS),
    zfs_start(128 * K, ZFS_BIG),
    zfs_start(384 * K, ZFS_BIG),
    zfs_end(384 * K, ZFS_BIG),
    zfs_end(128 * K, ZFS_BIG),
    start("GPT partition table", &[512, 4096], b"EFI PART"),
    end("backup of a GPT partition table", 512, 512, b"EFI PART"),
    end("backup of a GPT partition table", 4096, 4096, b"EFI PART"),
    start("MBR partition table or boot sector", &[510], &[0x55, 0xaa]),
];

impl At {
    /// Returns the places of the mark on a volume of `size` bytes.
    fn places(&self, size: u64) -> Vec<u64> {
        match *self {
            At::Start(offsets) => offsets.to_vec(),
            At::Slots { first, step, count } => (0..count).map(|i| first + i * step).collect(),
            At::End { unit, back, step, count } => {
                let first = (size / unit * unit).checked_sub(back);
                first.map_or_else(Vec::new, |first| (0..count).map(|i| first + i * step).collect())
            }
        }
    }
}

/// Returns a description of the data on a volume, and its place; `None` if the volume is blank.
pub(crate) fn look(volume: &dyn Volume) -> io::Result<Option<String>> {
    let size = volume.size()?;
    let head = read(volume, 0, size.min(ENDS))?;
    let from = size.saturating_sub(ENDS) / SECTOR as u64 * SECTOR as u64;
    let tail = read(volume, from, size - from)?;
    let byte_range = |start: u64, len: u64| -> Option<&[u8]> {
        let within =
            |part: &'_ [u8], at: u64| at.checked_add(len).is_some_and(|end| end <= part.len() as u64);
        if within(&head, start) {
            Some(&head[start as usize..(start + len) as usize])
        } else {
            let at = start.checked_sub(from).filter(|at| within(&tail, *at))?;
            Some(&tail[at as usize..(at + len) as usize])
        }
    };
    let mut found: Vec<(&str, u64)> = Vec::new();
    for Mark { name, magic, at } in MARKS {
        let is_there = |place: &u64| byte_range(*place, magic.len() as u64) == Some(magic);
        let place = at.places(size).into_iter().find(is_there);
        found.extend(place.filter(|_| found.iter().all(|(known, _)| known != name)).map(|at| (*name, at)));
    }
    // If a store is found, its ring is not reported.
    if found.first().is_some_and(|(name, _)| *name == MARKS[0].name) {
        found.retain(|(name, _)| *name != MARKS[1].name);
    }
    if found.is_empty() {
        let first = |part: &[u8], base: u64| part.iter().position(|b| *b != 0).map(|at| base + at as u64);
        let first = first(&head, 0).or_else(|| first(&tail, from));
        return Ok(first.map(|at| format!("unknown data at {at}")));
    }
    let told: Vec<String> = found.iter().map(|(name, at)| format!("{name} at {at}")).collect();
    Ok(Some(told.join(", ")))
}

/// Reads to the end of the volume, which need not be the end of a sector. The bytes of the last
/// partial sector are read if possible: a device with larger blocks cannot return them.
fn read(volume: &dyn Volume, offset: u64, len: u64) -> io::Result<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed(len.next_multiple_of(SECTOR as u64) as usize);
    let whole = len as usize / SECTOR * SECTOR;
    read_exact_at(volume, offset, &mut buf[..whole])?;
    let over = match volume.read_at(offset + whole as u64, &mut buf[whole..]) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => 0,
        over => over?,
    };
    buf.set_len(whole + over);
    Ok(buf)
}

#[cfg(test)]
mod tests {
    use brooklet_io::MemVolume;

    use super::*;

    fn told(size: u64, at: u64, bytes: &[u8]) -> Option<String> {
        let mut image = vec![0; size as usize];
        image[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        look(&MemVolume::from_image(image, 1)).unwrap()
    }

    /// Tests a volume of a round size, and one whose size is not a multiple of the sector size.
    #[test]
    fn every_mark_is_found_in_each_of_its_places_and_named() {
        for size in [4 << 20, (4 << 20) + 200_192, ENDS + 4608] {
            for Mark { name, magic, at } in MARKS {
                for place in at.places(size) {
                    let found = told(size, place, magic).unwrap_or_default();
                    assert!(found.contains(&format!("{name} at {place}")), "{name} at {place}: {found:?}");
                }
            }
        }
    }

    /// The marks are also behind the last whole sector, where a store never writes.
    #[test]
    fn whatever_bears_a_mark_is_refused_and_left_as_it_is() {
        let options = || crate::Options::new().ring_size(64 << 10).max_payload(8 << 10);
        let sized = |size: u64| MARKS.iter().map(move |mark| (size, mark));
        for (size, Mark { name, magic, at }) in sized(4 << 20).chain(sized((4 << 20) + 1536)) {
            let place = at.places(size)[0] as usize;
            let mut before = vec![0; size as usize];
            before[place..place + magic.len()].copy_from_slice(magic);
            let volume = MemVolume::from_image(before.clone(), 1);
            let error = options().format_on(std::sync::Arc::new(volume.clone()), None, false).unwrap_err();
            assert!(
                matches!(&error, crate::Error::NotBlank { found, .. } if found.contains(name)),
                "{error}"
            );
            assert!(volume.image() == before, "{name}");
            options().format_on(std::sync::Arc::new(volume.clone()), None, true).unwrap();
            assert_eq!(look(&volume).unwrap().as_deref(), Some("Brooklet store at 0"), "{name} is gone");
        }
    }

    #[test]
    fn only_zeros_are_blank_and_only_the_ends_count() {
        for size in [0, 512, 8192, ENDS, 3 << 20] {
            assert_eq!(look(&MemVolume::from_image(vec![0; size as usize], 1)).unwrap(), None);
        }
        let size = (3 << 20) + 512;
        for at in [0, ENDS - 1, size - 1, size - ENDS] {
            assert_eq!(told(size, at, &[1]), Some(format!("unknown data at {at}")));
        }
        assert_eq!(told(size, 3 << 19, &[1]), None);
    }

    /// The expected places are from the specifications, independent of the search.
    #[test]
    fn marks_lie_where_they_are_written() {
        const SIZE: u64 = 100 << 20;
        let place = |name: &str, nth: usize| {
            let mark = MARKS.iter().filter(|mark| mark.name == name).nth(nth).unwrap();
            mark.at.places(SIZE)[0]
        };
        assert_eq!(place("ext2, ext3 or ext4 file system", 0), 0x438);
        assert_eq!(place("Btrfs file system", 0), 0x10040);
        assert_eq!(place("ISO 9660 file system", 0), 0x8001);
        assert_eq!(place("Linux RAID member", 1), SIZE - 8192);
        assert_eq!(place("Linux RAID member", 2), SIZE - 65536);
        assert_eq!(place("backup of a GPT partition table", 0), SIZE - 512);
        assert_eq!(place("ZFS label", 2), SIZE - (512 << 10) + (128 << 10));
        assert_eq!(place("ZFS label", 3), SIZE - (256 << 10) + (128 << 10));
    }
}
