//! The model itself; what it does under a volume is tested with `MemVolume`.

use super::*;

const S: usize = crate::SECTOR;

/// Writes ones over the second of four sectors while the disk lies.
fn silent(fault: SilentFault, seed: u64) -> (Vec<u8>, SilentFaultRecord) {
    let mut disk = Disk::new(vec![0; 4 * S], seed);
    disk.fail(Fault::LieAfter { writes: 1, fault });
    disk.write(0, &[0; S], Persist::Durable, S).unwrap();
    assert_eq!(disk.write(S as u64, &[0xff; S], Persist::Durable, S).unwrap(), S, "it sounds well");
    let told = disk.silent_faults().to_vec();
    disk.write(3 * S as u64, &[2; S], Persist::Durable, S).unwrap();
    assert_eq!(disk.silent_faults(), told, "it lies once");
    assert_eq!(disk.crash(), disk.image());
    (disk.image()[..3 * S].to_vec(), told[0].clone())
}

#[test]
fn a_disk_lies_in_four_ways() {
    let ones = |image: &[u8]| image.iter().map(|b| u64::from(b.count_ones())).sum::<u64>();
    let whole = S as u64 * 8;
    for seed in 0..50 {
        let (image, told) = silent(SilentFault::Lost, seed);
        assert_eq!((ones(&image), told.meant.clone()), (0, S as u64..2 * S as u64));
        let (image, _) = silent(SilentFault::Shorn, seed);
        assert!(ones(&image) < whole && ones(&image) % (TEAR as u64 * 8) == 0);
        let (image, _) = silent(SilentFault::Flipped, seed);
        assert_eq!(ones(&image), whole - 1);
        let (image, told) = silent(SilentFault::Misdirected, seed);
        let landed = told.landed.unwrap();
        let there = &image[landed.start as usize..(landed.end as usize).min(image.len())];
        assert!(there.iter().all(|&b| b == 0xff), "{landed:?}");
    }
}

#[test]
fn a_gentle_cut_tears_between_pieces_only() {
    let mut disk = Disk::new(vec![0; 64 * S], 1);
    disk.tear_gently(S);
    disk.write(0, &vec![1; 64 * S], Persist::Cached, S).unwrap();
    let whole = |piece: &[u8]| piece.iter().all(|&b| b == piece[0] && b < 2);
    for _ in 0..50 {
        assert!(disk.crash().chunks(S).all(whole));
    }
}

/// The kernel writes to a block device in units of 512 bytes, so a transfer need not be a multiple
/// of the unit.
#[test]
fn short_transfers_are_whole_units_of_any_length() {
    let mut disk = Disk::new(vec![0; 4 * S], 0);
    disk.fail(Fault::ShortTransfers);
    for len in [0, TEAR, S, S + TEAR, 2 * S, 3 * S - TEAR] {
        for _ in 0..20 {
            let done = disk.write(0, &vec![1; len], Persist::Cached, S).unwrap();
            assert!(done == len || done > 0 && done < len && done.is_multiple_of(S), "{done} of {len}");
        }
    }
}

#[test]
fn reads_fail_in_their_turn() {
    let mut disk = Disk::new(vec![0; S], 0);
    disk.fail(Fault::ReadErrorAfter { reads: 1, kind: io::ErrorKind::Other, sticky: false });
    let mut buf = [0; S];
    disk.read(0, &mut buf, S).unwrap();
    disk.read(0, &mut buf, S).unwrap_err();
    disk.read(0, &mut buf, S).unwrap();
    disk.fail(Fault::ReadErrorAfter { reads: 0, kind: io::ErrorKind::Other, sticky: true });
    disk.read(0, &mut buf, S).unwrap_err();
    disk.read(0, &mut buf, S).unwrap_err();
    assert_eq!(disk.operations(), 0, "reads are counted apart");
}

#[test]
fn a_flush_of_a_part_leaves_the_rest_at_risk() {
    let mut lost = [0; 2];
    for seed in 0..100 {
        let mut disk = Disk::new(vec![0; 4 * S], seed);
        for sector in 0..4 {
            disk.write((sector * S) as u64, &[1; S], Persist::Cached, S).unwrap();
        }
        disk.flush_within(S as u64..3 * S as u64).unwrap();
        assert_eq!(disk.at_risk(), 2);
        let image = disk.crash();
        assert!(image[S..3 * S].iter().all(|&b| b == 1));
        lost[0] += u32::from(image[..S].contains(&0));
        lost[1] += u32::from(image[3 * S..].contains(&0));
    }
    assert!(lost.iter().all(|&lost| lost > 10), "{lost:?}");
}

#[test]
fn a_stale_read_gives_what_was_there_when_the_fault_was_planned_and_once() {
    let mut disk = Disk::new(vec![1; 2 * S], 0);
    disk.fail(Fault::StaleReadAfter { reads: 1 });
    disk.write(0, &[2; S], Persist::Durable, S).unwrap();
    let read = |disk: &mut Disk, sector: usize| {
        let mut buf = [9; S];
        disk.read((sector * S) as u64, &mut buf, S).unwrap();
        assert!(buf.iter().all(|&byte| byte == buf[0]));
        buf[0]
    };
    assert_eq!((read(&mut disk, 0), disk.silent_faults().len()), (2, 0), "its turn has not come");
    assert_eq!((read(&mut disk, 1), disk.silent_faults().len()), (1, 0), "nothing else was ever there");
    assert_eq!(read(&mut disk, 0), 1);
    assert_eq!(
        disk.silent_faults(),
        [SilentFaultRecord { fault: SilentFault::Stale, meant: 0..S as u64, landed: None }]
    );
    assert_eq!(read(&mut disk, 0), 2);
    // Beyond the end that the disk had there were zeros.
    disk.fail(Fault::StaleReadAfter { reads: 0 });
    disk.grow(3 * S as u64).unwrap();
    disk.write(2 * S as u64, &[3; S], Persist::Durable, S).unwrap();
    assert_eq!((read(&mut disk, 2), read(&mut disk, 2)), (0, 3));
}

/// As on Linux: what a failed flush dropped can be read by the next process, too, whose flush
/// succeeds and makes nothing of it durable.
#[test]
fn a_killed_process_leaves_its_cache_and_the_next_flush_does_not_save_what_one_dropped() {
    let (mut dropped, mut saved) = (0, 0);
    for seed in 0..50 {
        let mut disk = Disk::new(vec![0; S], seed);
        disk.write(0, &[1; S], Persist::Cached, S).unwrap();
        disk.fail(Fault::FlushErrorAfter { flushes: 0, kind: io::ErrorKind::Other, sticky: false });
        assert!(disk.is_to_fail());
        disk.flush().unwrap_err();
        assert!(!disk.is_to_fail());
        let mut next = disk.killed();
        assert_eq!(next.image(), [1; S]);
        next.flush().unwrap();
        assert_eq!((next.image(), next.at_risk(), next.failures()), (vec![1; S], 0, 0));
        match next.crash()[0] {
            0 => dropped += 1,
            _ => saved += 1,
        }
    }
    assert!(dropped > 10 && saved > 10, "{dropped} {saved}");
}

#[test]
fn a_healed_disk_fails_no_more() {
    let mut disk = Disk::new(vec![0; S], 0);
    disk.fail(Fault::ErrorAfter { operations: 0, kind: io::ErrorKind::Other, sticky: true });
    disk.fail(Fault::Full(S as u64));
    disk.write(0, &[1; S], Persist::Cached, S).unwrap_err();
    disk.heal();
    disk.write(0, &[1; S], Persist::Cached, S).unwrap();
    assert!(disk.grow(2 * S as u64).is_err(), "a full disk is as full as before");
    disk.fail(Fault::PowerOffAfter(0));
    disk.flush().unwrap_err();
    disk.heal();
    assert!(disk.is_to_fail() && disk.flush().is_err(), "the power stays off");
}

/// A file that grew may be short again after a power cut, until its size was flushed.
#[test]
fn a_power_cut_may_undo_a_growth() {
    let mut disk = Disk::new(vec![7; S], 1);
    disk.grow(5 * S as u64).unwrap();
    disk.write(S as u64, &[1; S], Persist::Cached, S).unwrap();
    let lengths: Vec<usize> = (0..200).map(|_| disk.crash().len()).collect();
    (1..=5).for_each(|sectors| assert!(lengths.contains(&(sectors * S)), "{sectors} sectors"));
    assert!(lengths.iter().all(|len| len.is_multiple_of(S)));
    disk.write(2 * S as u64, &[2; S], Persist::Durable, S).unwrap();
    assert!((0..200).all(|_| disk.crash().len() >= 3 * S), "durable bytes are in the file");
    disk.flush_within(0..S as u64).unwrap();
    assert!((0..200).any(|_| disk.crash().len() < 5 * S), "another part was flushed");
    disk.flush().unwrap();
    assert!((0..200).all(|_| disk.crash().len() == 5 * S));
    disk.shrink(2 * S as u64).unwrap();
    assert!((0..200).all(|_| disk.crash().len() == 2 * S));
}

#[test]
fn changes_of_the_size_fail_without_an_effect() {
    let mut disk = Disk::new(vec![7; 2 * S], 1);
    let kind = io::ErrorKind::StorageFull;
    disk.fail(Fault::SizeErrorAfter { changes: 1, kind, sticky: true });
    assert!(disk.is_to_fail());
    disk.grow(S as u64).unwrap();
    disk.grow(3 * S as u64).unwrap();
    assert_eq!(disk.grow(4 * S as u64).unwrap_err().kind(), kind);
    assert_eq!(disk.punch(0..S as u64).unwrap_err().kind(), kind);
    assert_eq!(disk.shrink(0).unwrap_err().kind(), kind);
    assert_eq!((disk.image_len(), disk.failures()), (3 * S, 3));
    assert_eq!(disk.image()[..2 * S], vec![7; 2 * S]);
    disk.write(0, &[1; S], Persist::Durable, S).unwrap();
    disk.heal();
    disk.punch(0..S as u64).unwrap();
}
