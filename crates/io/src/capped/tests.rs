//! What lies beyond a capacity is neither read, nor written, nor reached by growth.

use super::*;
use crate::{AlignedBuf, MemVolume};

const S: u64 = SECTOR as u64;

fn filled(sectors: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(sectors * SECTOR);
    buf.fill(byte);
    buf
}

/// Eight sectors of sevens, of which four may be used; with the volume within.
fn four_of_eight() -> (MemVolume, Arc<dyn Volume>) {
    let within = MemVolume::from_image(vec![7; 8 * SECTOR], 1);
    let volume = capped(Arc::new(within.clone()), 4 * S);
    (within, volume)
}

fn check_full<T: std::fmt::Debug>(result: io::Result<T>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(error.to_string().contains("the capacity of 16384 bytes"), "{error}");
}

#[test]
fn a_volume_ends_at_its_capacity() {
    let (within, volume) = four_of_eight();
    assert_eq!(volume.size().unwrap(), 4 * S);
    for (sector, sectors) in [(0, 4), (2, 2), (3, 1), (4, 0), (6, 0), (u64::MAX / S, 0)] {
        let mut buf = filled(8, 0);
        assert_eq!(volume.read_at(sector * S, &mut buf).unwrap(), sectors * SECTOR);
        assert!(buf[..sectors * SECTOR].iter().all(|&b| b == 7));
        assert!(buf[sectors * SECTOR..].iter().all(|&b| b == 0));
    }
    volume.write_at(3 * S, &filled(1, 1), Persist::Durable).unwrap();
    for sector in [3, 4, 7, u64::MAX / S] {
        check_full(volume.write_at(sector * S, &filled(2, 2), Persist::Cached));
    }
    assert_eq!(
        within.image()[2 * SECTOR..5 * SECTOR],
        [&[7; SECTOR][..], &[1; SECTOR], &[7; SECTOR]].concat()
    );
}

#[test]
fn a_volume_grows_to_its_capacity() {
    let within = Arc::new(MemVolume::new(1));
    let volume = capped(Arc::clone(&within) as Arc<dyn Volume>, 4 * S + 1);
    volume.grow(2 * S).unwrap();
    check_full(volume.grow(4 * S + 1));
    assert_eq!(volume.size().unwrap(), 2 * S, "a volume may be smaller than its capacity");
    volume.grow(4 * S).unwrap();
    volume.shrink(S).unwrap();
    assert_eq!((volume.size().unwrap(), within.size().unwrap()), (S, S));
    let past = volume.write_at(S, &filled(1, 1), Persist::Cached).unwrap_err();
    assert_eq!(past.kind(), io::ErrorKind::InvalidInput, "the end of the volume comes first");
}

#[test]
fn a_queue_ends_at_the_capacity() {
    let (within, volume) = four_of_eight();
    let mut queue = volume.queue(6).unwrap();
    let data = filled(2, 1).freeze();
    let write = |sector| Op::Write { offset: sector * S, data: data.clone(), persist: Persist::Durable };
    let read = |sector| Op::Read { offset: sector * S, buf: filled(2, 0) };
    let ops = [write(0), write(3), write(4), read(2), read(3), read(4)];
    for (token, op) in (0..).zip(ops) {
        queue.submit(token, op);
    }
    assert_eq!(queue.in_flight(), 6);
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        let before = done.len();
        queue.reap(true, &mut done);
        assert!(done.len() > before);
    }
    done.sort_by_key(|c| c.token);
    let reads = done.split_off(3);
    let mut writes = done.into_iter().map(|c| c.result);
    assert_eq!(writes.next().unwrap().unwrap(), 2 * SECTOR);
    writes.for_each(check_full);
    for (read, sectors) in reads.into_iter().zip([2, 1, 0]) {
        assert_eq!(read.result.unwrap(), sectors * SECTOR);
        assert_eq!(read.buf.unwrap()[..], filled(sectors, 7)[..]);
    }
    assert_eq!(within.image()[2 * SECTOR..], [7; 6 * SECTOR]);
}

#[test]
fn what_is_refused_does_not_wait_for_what_is_in_flight() {
    let alone = (0..50).filter(|seed| {
        let volume = capped(Arc::new(MemVolume::from_image(vec![7; 8 * SECTOR], *seed)), 4 * S);
        let mut queue = volume.queue(2).unwrap();
        for sector in [0, 4] {
            let data = filled(1, 1).freeze();
            queue.submit(sector, Op::Write { offset: sector * S, data, persist: Persist::Durable });
        }
        let mut done = Vec::new();
        queue.reap(true, &mut done);
        assert_eq!(done[0].token, 4);
        done.len() == 1
    });
    assert!((1..50).contains(&alone.count()));
}

#[test]
fn the_rest_is_passed_on() {
    let (within, volume) = four_of_eight();
    volume.write_at(0, &filled(1, 1), Persist::Cached).unwrap();
    assert_eq!(within.at_risk(), 1);
    volume.flush().unwrap();
    assert_eq!((within.at_risk(), volume.counts()), (0, within.counts()));
    assert_eq!(volume.info().name, within.info().name);
    volume.tune(0..S).unwrap();
    check_full(volume.tune(3 * S..5 * S));
}
