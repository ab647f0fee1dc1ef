//! The model itself; what it does under a volume is tested with `MemVolume`.

use super::*;

const S: usize = crate::SECTOR;

/// Writes ones over the second of four sectors while the disk lies.
fn lied(lie: Lie, seed: u64) -> (Vec<u8>, Lied) {
    let mut disk = Disk::new(vec![0; 4 * S], seed);
    disk.fail(Fault::LieAfter { writes: 1, lie });
    disk.write(0, &[0; S], Persist::Durable, S).unwrap();
    assert_eq!(disk.write(S as u64, &[0xff; S], Persist::Durable, S).unwrap(), S, "it sounds well");
    let told = disk.lied().to_vec();
    disk.write(3 * S as u64, &[2; S], Persist::Durable, S).unwrap();
    assert_eq!(disk.lied(), told, "it lies once");
    assert_eq!(disk.crash(), disk.image());
    (disk.image()[..3 * S].to_vec(), told[0].clone())
}

#[test]
fn a_disk_lies_in_four_ways() {
    let ones = |image: &[u8]| image.iter().map(|b| u64::from(b.count_ones())).sum::<u64>();
    let whole = S as u64 * 8;
    for seed in 0..50 {
        let (image, told) = lied(Lie::Lost, seed);
        assert_eq!((ones(&image), told.meant.clone()), (0, S as u64..2 * S as u64));
        let (image, _) = lied(Lie::Shorn, seed);
        assert!(ones(&image) < whole && ones(&image) % (TEAR as u64 * 8) == 0);
        let (image, _) = lied(Lie::Flipped, seed);
        assert_eq!(ones(&image), whole - 1);
        let (image, told) = lied(Lie::Misdirected, seed);
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

/// The kernel writes to a block device in units of 512 bytes, so a transfer need not be a multiple of the unit.
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
