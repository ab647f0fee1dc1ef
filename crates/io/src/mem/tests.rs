//! Volumes in memory: what power cuts leave, and each fault.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::{AlignedBuf, FileOptions, Files, OpenMode, read_exact_at, write_all_at};

const S: u64 = SECTOR as u64;

fn filled(sectors: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(sectors * SECTOR);
    buf.fill(byte);
    buf
}

fn disk(sectors: u64) -> MemVolume {
    MemVolume::from_image(vec![0; (sectors * S) as usize], 42)
}

fn write(volume: &MemVolume, sector: u64, sectors: usize, byte: u8, persist: Persist) {
    assert_eq!(volume.write_at(sector * S, &filled(sectors, byte), persist).unwrap(), sectors * SECTOR);
}

/// Which first bytes each sector shows over many crashes, garbage (a sector that is not uniform)
/// left out.
fn outcomes(volume: &MemVolume) -> Vec<BTreeSet<u8>> {
    let mut seen = vec![BTreeSet::new(); volume.image().len() / SECTOR];
    for _ in 0..200 {
        for (sector, seen) in volume.crash().chunks(SECTOR).zip(&mut seen) {
            if sector.iter().all(|&b| b == sector[0]) {
                seen.insert(sector[0]);
            }
        }
    }
    seen
}

fn message<T: fmt::Debug>(result: io::Result<T>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn reads_see_the_newest_and_crashes_what_may_have_persisted() {
    let volume = disk(4);
    write(&volume, 0, 1, 1, Persist::Cached);
    volume.flush().unwrap();
    write(&volume, 1, 1, 2, Persist::Cached);
    write(&volume, 1, 1, 3, Persist::Cached);
    write(&volume, 2, 1, 4, Persist::Durable);
    let mut buf = filled(4, 9);
    read_exact_at(&volume, 0, &mut buf).unwrap();
    assert_eq!(buf.chunks(SECTOR).map(|s| s[0]).collect::<Vec<_>>(), [1, 3, 4, 0]);
    assert_eq!(&volume.image()[..], &buf[..]);
    let expected = [&[1][..], &[0, 2, 3], &[4], &[0]].map(|s| s.iter().copied().collect());
    assert_eq!(outcomes(&volume), expected);
    volume.flush().unwrap();
    assert_eq!(volume.crash(), volume.image());
    assert_eq!(volume.operations(), 6);
}

#[test]
fn a_durable_write_supersedes_only_what_it_covers() {
    let volume = disk(5);
    write(&volume, 0, 5, 1, Persist::Cached);
    write(&volume, 2, 1, 2, Persist::Durable);
    let either: BTreeSet<u8> = [0, 1].into();
    let seen = outcomes(&volume);
    assert_eq!(seen[2], [2].into());
    assert!([0, 1, 3, 4].iter().all(|&i| seen[i] == either), "{seen:?}");
    volume.flush().unwrap();
    assert_eq!(volume.crash(), volume.image());
    assert_eq!(volume.image()[2 * SECTOR], 2);
}

#[test]
fn crashes_tear_at_512_bytes_and_leave_garbage_rarely() {
    let volume = disk(8);
    write(&volume, 0, 8, 7, Persist::Cached);
    let (mut nothing, mut everything, mut torn, mut garbage) = (0, 0, 0, 0);
    for _ in 0..400 {
        let image = volume.crash();
        let whole = |byte| image.iter().all(|&b| b == byte);
        let pieces = |byte| image.chunks(crate::disk::TEAR).filter(|p| p.iter().all(|&b| b == byte)).count();
        nothing += usize::from(whole(0));
        everything += usize::from(whole(7));
        torn += usize::from(pieces(0) > 0 && pieces(7) > 0);
        garbage += 64 - pieces(0) - pieces(7);
    }
    assert!((60..140).contains(&nothing) && (60..140).contains(&everything), "{nothing} {everything}");
    assert!(torn > 150 && (100..500).contains(&garbage), "{torn} {garbage}");
}

#[test]
fn the_same_seed_ends_the_same_way() {
    let run = |seed| {
        let volume = MemVolume::from_image(vec![0; 16 * SECTOR], seed);
        write(&volume, 0, 16, 1, Persist::Cached);
        (0..10).map(|_| volume.crash()).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn queued_operations_complete_in_any_order_and_are_pending_until_then() {
    let volume = disk(16);
    let mut queue = volume.queue(16).unwrap();
    for token in 0..16 {
        let data = filled(1, 1 + token as u8).freeze();
        queue.submit(token, Op::Write { offset: token * S, data, persist: Persist::Durable });
    }
    assert!(volume.image().iter().all(|&b| b == 0), "nothing is carried out before it is reaped");
    let seen = outcomes(&volume);
    assert!((0..16).all(|i| seen[i] == [0, 1 + i as u8].into()), "{seen:?}");

    let mut done = Vec::new();
    let empty = (0..8).filter(|_| {
        let before = done.len();
        queue.reap(false, &mut done);
        done.len() == before
    });
    assert!((1..8).contains(&empty.count()), "polling sometimes finds something");
    while queue.in_flight() > 0 {
        let before = done.len();
        queue.reap(true, &mut done);
        assert!(done.len() > before);
    }
    assert!(!done.is_sorted_by_key(|c| c.token));
    assert!(done.iter().all(|c| matches!(c.result, Ok(SECTOR))));
    assert_eq!(volume.crash(), volume.image());

    queue.submit(0, Op::Read { offset: 15 * S, buf: AlignedBuf::zeroed(2 * SECTOR) });
    done.clear();
    queue.reap(true, &mut done);
    assert_eq!(done[0].buf.as_ref().unwrap()[..], filled(1, 16)[..], "cut to what was read");

    queue.submit(1, Op::Write { offset: 0, data: filled(1, 99).freeze(), persist: Persist::Cached });
    drop(queue);
    assert_eq!(volume.image()[0], 99, "dropping finishes");
}

#[test]
fn power_goes_off_in_the_middle() {
    let volume = disk(4);
    let mut queue = volume.queue(4).unwrap();
    queue.submit(0, Op::Write { offset: 3 * S, data: filled(1, 4).freeze(), persist: Persist::Durable });
    queue.submit(9, Op::Write { offset: 4 * S, data: filled(1, 4).freeze(), persist: Persist::Durable });
    volume.fail(Fault::PowerOffAfter(2));
    write(&volume, 0, 1, 1, Persist::Durable);
    volume.flush().unwrap();
    let half_done = volume.write_at(S, &filled(1, 2), Persist::Durable);
    assert_eq!(message(half_done), "power is off");
    assert_eq!(volume.operations(), 3);
    assert_eq!(message(volume.write_at(2 * S, &filled(1, 3), Persist::Durable)), "power is off");
    assert_eq!(message(volume.read_at(0, &mut filled(1, 0))), "power is off");
    assert_eq!(message(volume.flush()), "power is off");
    assert_eq!(message(volume.grow(8 * S)), "power is off");
    queue.submit(1, Op::Write { offset: 2 * S, data: filled(1, 5).freeze(), persist: Persist::Durable });
    let expected = [&[1][..], &[0, 2], &[0], &[0, 4]].map(|s| s.iter().copied().collect());
    assert_eq!(outcomes(&volume), expected);
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.reap(true, &mut done);
    }
    assert!(done.into_iter().all(|c| message(c.result) == "power is off"));
    assert_eq!(outcomes(&volume), expected, "what was in flight may have persisted, the rest not");
}

#[test]
fn errors_come_once_or_for_good() {
    let error = |sticky| Fault::ErrorAfter { operations: 1, kind: io::ErrorKind::StorageFull, sticky };
    let volume = disk(4);
    volume.fail(error(false));
    write(&volume, 0, 1, 1, Persist::Cached);
    assert_eq!(volume.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
    volume.flush().unwrap();
    volume.fail(error(true));
    write(&volume, 0, 1, 1, Persist::Cached);
    for _ in 0..3 {
        let failed = volume.write_at(0, &filled(1, 2), Persist::Cached);
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
    assert!(volume.flush().is_err());
    assert_eq!(volume.read_at(0, &mut filled(1, 0)).unwrap(), SECTOR, "reads go on");
}

#[test]
fn a_flush_after_a_failed_flush_promises_nothing() {
    let volume = disk(32);
    for sector in 0..32 {
        write(&volume, sector, 1, 1, Persist::Cached);
    }
    volume.fail(Fault::ErrorAfter { operations: 0, kind: io::ErrorKind::Other, sticky: false });
    volume.flush().unwrap_err();
    volume.flush().unwrap();
    assert!(volume.image().iter().all(|&b| b == 1), "the cache still shows what was lost");
    let kept = volume.crash().chunks(SECTOR).filter(|s| s[0] == 1).count();
    assert!((1..32).contains(&kept), "{kept}");
}

#[test]
fn what_was_asked_for_is_counted_until_the_power_is_off() {
    let volume = disk(4);
    write(&volume, 0, 2, 1, Persist::Cached);
    write(&volume, 2, 1, 1, Persist::Durable);
    volume.flush().unwrap();
    let mut queue = volume.queue(1).unwrap();
    queue.submit(0, Op::Read { offset: 3 * S, buf: filled(2, 0) });
    queue.reap(true, &mut Vec::new());
    volume.write_at(4 * S, &filled(1, 1), Persist::Durable).unwrap_err();
    let expected = Counts {
        reads: 1,
        read_bytes: S,
        writes: 2,
        written_bytes: 3 * S,
        durable_writes: 1,
        flushes: 1,
        ..Counts::default()
    };
    assert_eq!(volume.counts(), expected);
    volume.fail(Fault::ErrorAfter { operations: 0, kind: io::ErrorKind::Other, sticky: false });
    volume.write_at(0, &filled(1, 1), Persist::Durable).unwrap_err();
    let failed = Counts { writes: 1, durable_writes: 1, ..Counts::default() };
    assert_eq!(volume.counts() - expected, failed);
    volume.fail(Fault::PowerOffAfter(0));
    volume.flush().unwrap_err();
    volume.flush().unwrap_err();
    assert_eq!(volume.counts().flushes, 2);
    assert_eq!(volume.operations(), 5);
}

#[test]
fn the_disk_fills_up() {
    let volume = disk(1);
    volume.fail(Fault::Full(4 * S));
    volume.grow(4 * S).unwrap();
    assert_eq!(volume.grow(5 * S).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(volume.size().unwrap(), 4 * S);
}

#[test]
fn short_transfers_are_whole_sectors() {
    let volume = disk(64);
    volume.fail(Fault::ShortTransfers);
    let counts: BTreeSet<usize> =
        (0..50).map(|_| volume.write_at(0, &filled(4, 1), Persist::Cached).unwrap() / SECTOR).collect();
    assert_eq!(counts, [1, 2, 3, 4].into());
    assert_eq!(volume.write_at(0, &filled(1, 1), Persist::Cached).unwrap(), SECTOR);
    write_all_at(&volume, 0, &filled(64, 5), Persist::Durable).unwrap();
    let mut buf = filled(64, 0);
    read_exact_at(&volume, 0, &mut buf).unwrap();
    assert!(buf.iter().all(|&b| b == 5));
    assert_eq!(&volume.crash()[..], &buf[..]);
}

#[test]
fn a_flipped_bit_stays_flipped() {
    let volume = disk(2);
    write(&volume, 0, 2, 0, Persist::Cached);
    volume.flip(5000, 3);
    assert_eq!(volume.image()[5000], 8);
    volume.flush().unwrap();
    assert_eq!(volume.crash()[5000], 8);
}

#[test]
fn size_changes_keep_the_rest() {
    let volume = disk(4);
    write(&volume, 0, 4, 1, Persist::Cached);
    volume.shrink(2 * S).unwrap();
    volume.grow(3 * S).unwrap();
    volume.flush().unwrap();
    let bytes = volume.crash().chunks(SECTOR).map(|s| s[0]).collect::<Vec<_>>();
    assert_eq!(bytes, [1, 1, 0], "what was cut off does not come back");
    let past = volume.write_at(2 * S, &filled(2, 1), Persist::Cached);
    assert_eq!(past.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(volume.read_at(2 * S, &mut filled(2, 1)).unwrap(), SECTOR);
    assert_eq!(volume.read_at(9 * S, &mut filled(1, 1)).unwrap(), 0);
}

#[test]
#[should_panic(expected = "is not a multiple")]
fn alignment_is_asserted() {
    let _ = disk(1).write_at(0, &filled(1, 1)[..512], Persist::Cached);
}

#[test]
fn a_hole_takes_no_room_until_it_is_filled() {
    let volume = MemVolume::new(1);
    volume.grow(8 * S).unwrap();
    let mut data = AlignedBuf::zeroed(8 * SECTOR);
    data.fill(3);
    volume.write_at(0, &data, Persist::Durable).unwrap();
    assert!(volume.punch(2 * S..6 * S).unwrap());
    assert_eq!((volume.taken(), volume.size().unwrap()), (4 * S, 8 * S));
    volume.read_at(0, &mut data).unwrap();
    assert_eq!([data[2 * SECTOR - 1], data[2 * SECTOR], data[6 * SECTOR]], [3, 0, 3]);
    let crashes: Vec<u8> = (0..32).map(|_| volume.crash()[3 * SECTOR]).collect();
    assert!(crashes.contains(&3) && crashes.contains(&0), "it is not durable yet");
    volume.flush().unwrap();
    assert_eq!(volume.crash()[3 * SECTOR], 0);
    // Somebody else takes most of the room.
    volume.fail(Fault::Full(5 * S));
    assert_eq!(volume.write_at(S, &data[..2 * SECTOR], Persist::Cached).unwrap(), 2 * SECTOR, "one hole");
    assert_eq!(
        volume.write_at(4 * S, &data[..SECTOR], Persist::Cached).unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
    assert!(volume.allocate_range(2 * S..4 * S).is_err() && volume.grow(9 * S).is_err());
    volume.allocate_range(0..3 * S).unwrap();
    volume.shrink(3 * S).unwrap();
    assert_eq!(volume.taken(), 3 * S);
}

/// As with `FileVolume`: the name would be in the way of the next creation.
#[test]
fn a_creation_whose_folder_is_not_synced_leaves_no_name() {
    let (files, path) = (MemFiles::new(1), Path::new("folder/volume"));
    let create = || files.open(path, OpenMode::Create, FileOptions::default());
    files.fail_after(1, io::ErrorKind::Other);
    create().unwrap_err();
    assert!(!files.exists(path).unwrap());
    create().unwrap();
}

/// A write that hangs is in flight for good: the others end, and once its process is killed it has
/// arrived or never does.
#[test]
fn a_write_that_hangs_never_ends() {
    let mut arrived = [0; 2];
    for seed in 0..50 {
        let volume = MemVolume::new(seed);
        volume.grow(3 * S).unwrap();
        volume.fail(Fault::HangAfter { writes: 1 });
        let mut queue = volume.queue(3).unwrap();
        for sector in 0..3 {
            let data = filled(1, 1).freeze();
            queue.submit(sector, Op::Write { offset: sector * S, data, persist: Persist::Durable });
        }
        let mut done = Vec::new();
        for _ in 0..20 {
            queue.reap(true, &mut done);
        }
        let mut tokens: Vec<_> = done.iter().map(|completion| completion.token).collect();
        tokens.sort_unstable();
        assert_eq!((tokens, queue.in_flight(), volume.failures()), (vec![0, 2], 1, 1));
        assert_eq!(volume.image()[SECTOR], 0);
        let killed = volume.killed();
        drop(queue);
        for image in [killed.image(), volume.image()] {
            arrived[usize::from(image[SECTOR])] += 1;
        }
        assert_eq!((killed.image()[0], volume.at_risk() <= 1), (1, true));
    }
    assert!(arrived.iter().all(|&n| n > 20), "{arrived:?}");
}
