//! What queues carry out, in files and on devices, by io_uring and by threads; what it counts.

use brooklet_io::{Completion, Counts, Durable, Op, Queue, Rng};

use super::places::everywhere;
use super::*;

fn finish(queue: &mut dyn Queue) -> Vec<Completion> {
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.reap(true, &mut done);
    }
    done.sort_by_key(|c| c.token);
    done
}

#[test]
fn every_backend_carries_out_what_is_submitted() {
    everywhere(FileOptions::default(), |volume| {
        let mut queue = volume.queue(32).unwrap();
        let mut done = Vec::new();
        let mut rng = Rng::new(1);
        for token in 0..200u64 {
            while queue.in_flight() == 32 {
                queue.reap(true, &mut done);
            }
            let persist = if rng.percent(10) { Persist::Durable } else { Persist::Cached };
            let data = filled(SECTOR, token as u8).freeze();
            queue.submit(token, Op::Write { offset: token * SECTOR as u64, data, persist });
            queue.reap(false, &mut done);
        }
        done.append(&mut finish(&mut *queue));
        queue.reap(true, &mut done); // nothing in flight: returns at once
        done.sort_by_key(|c| c.token);
        assert!(done.iter().map(|c| c.token).eq(0..200));
        assert!(done.iter().all(|c| matches!(c.result, Ok(SECTOR))), "{done:?}");

        for token in 0..16 {
            let offset = token * 16 * SECTOR as u64;
            queue.submit(token, Op::Read { offset, buf: AlignedBuf::zeroed(16 * SECTOR) });
        }
        for Completion { token, result, buf } in finish(&mut *queue) {
            let buf = buf.unwrap();
            assert_eq!((result.unwrap(), buf.len()), (16 * SECTOR, 16 * SECTOR));
            for (i, sector) in buf.chunks(SECTOR).enumerate() {
                let number = token * 16 + i as u64;
                let byte = if number < 200 { number as u8 } else { 0 };
                assert!(sector.iter().all(|&b| b == byte), "{number}");
            }
        }
    });
}

#[test]
fn durable_writes_work_without_the_flag() {
    everywhere(FileOptions { durable: Durable::Flush, ..FileOptions::default() }, |volume| {
        assert!(volume.info().durable_by.starts_with("write + "));
        write_all_at(volume, 0, &filled(SECTOR, 4), Persist::Durable).unwrap();
        let mut queue = volume.queue(4).unwrap();
        let data = filled(SECTOR, 5).freeze();
        queue.submit(0, Op::Write { offset: SECTOR as u64, data, persist: Persist::Durable });
        let done = finish(&mut *queue);
        assert!(matches!(done[..], [Completion { token: 0, result: Ok(SECTOR), buf: None }]), "{done:?}");
        let mut buf = AlignedBuf::zeroed(2 * SECTOR);
        read_exact_at(volume, 0, &mut buf).unwrap();
        assert_eq!((buf[0], buf[SECTOR]), (4, 5));
        assert_eq!(volume.counts().flushes, 2);
    });
}

#[test]
fn a_read_at_the_end_is_short() {
    everywhere(FileOptions::default(), |volume| {
        let mut queue = volume.queue(2).unwrap();
        for (token, sectors) in [(0, 1), (1, 0)] {
            let offset = (1 << 20) - sectors * SECTOR as u64;
            queue.submit(token, Op::Read { offset, buf: AlignedBuf::zeroed(4 * SECTOR) });
        }
        for (completion, len) in finish(&mut *queue).into_iter().zip([SECTOR, 0]) {
            assert_eq!((completion.result.unwrap(), completion.buf.unwrap().len()), (len, len));
        }
        assert_eq!(volume.read_at(1 << 20, &mut AlignedBuf::zeroed(SECTOR)).unwrap(), 0);
    });
}

#[test]
fn dropping_a_queue_finishes_what_is_in_flight() {
    everywhere(FileOptions::default(), |volume| {
        let mut queue = volume.queue(64).unwrap();
        for token in 0..64 {
            let data = filled(SECTOR, 8).freeze();
            queue.submit(token, Op::Write { offset: token * SECTOR as u64, data, persist: Persist::Cached });
        }
        drop(queue);
        let mut buf = AlignedBuf::zeroed(64 * SECTOR);
        read_exact_at(volume, 0, &mut buf).unwrap();
        assert!(buf.iter().all(|&b| b == 8));
    });
}

#[test]
fn what_goes_down_is_counted_and_what_is_refused_is_not() {
    for durable in [Durable::Dsync, Durable::Flush] {
        everywhere(FileOptions { durable, ..FileOptions::default() }, |volume| {
            let flagged = u64::from(volume.info().durable_by == "RWF_DSYNC");
            write_all_at(volume, 0, &filled(2 * SECTOR, 1), Persist::Cached).unwrap();
            write_all_at(volume, 0, &filled(SECTOR, 2), Persist::Durable).unwrap();
            volume.flush().unwrap();
            volume.read_at(0, &mut AlignedBuf::zeroed(4 * SECTOR)).unwrap();
            volume.write_at(1 << 20, &filled(SECTOR, 1), Persist::Cached).unwrap_err();
            let mut expected = Counts {
                reads: 1,
                read_bytes: 4 * SECTOR as u64,
                writes: 2,
                written_bytes: 3 * SECTOR as u64,
                durable_writes: flagged,
                flushes: 2 - flagged,
                ..Counts::default()
            };
            assert_eq!(volume.counts(), expected);

            let mut queue = volume.queue(4).unwrap();
            let data = filled(SECTOR, 3).freeze();
            let write = |offset, persist| Op::Write { offset, data: data.clone(), persist };
            queue.submit(0, write(0, Persist::Durable));
            queue.submit(1, write(8192, Persist::Cached));
            queue.submit(2, write(1 << 20, Persist::Durable));
            queue.submit(3, Op::Read { offset: 16384, buf: AlignedBuf::zeroed(SECTOR) });
            assert!(finish(&mut *queue)[2].result.is_err());
            expected.reads += 1;
            expected.read_bytes += SECTOR as u64;
            expected.writes += 2;
            expected.written_bytes += 2 * SECTOR as u64;
            expected.durable_writes += flagged;
            expected.flushes += 1 - flagged;
            assert_eq!(volume.counts(), expected);
        });
    }
}

#[test]
fn tuning_writes_to_its_scratch_space_only() {
    everywhere(FileOptions::default(), |volume| {
        let mut before = filled(1 << 20, 7);
        write_all_at(volume, 0, &before, Persist::Durable).unwrap();
        volume.tune(16384..24576).unwrap();
        let info = volume.info();
        let no_choice = info.fallbacks.iter().any(|line| line.starts_with("durable writes"));
        assert!(info.durable_why.contains("medians of ") != no_choice, "{info:?}");
        let mut after = AlignedBuf::zeroed(1 << 20);
        read_exact_at(volume, 0, &mut after).unwrap();
        before[16384..24576].copy_from_slice(&after[16384..24576]);
        assert!(before[..] == after[..]);
        write_all_at(volume, 0, &filled(SECTOR, 1), Persist::Durable).unwrap();
    });
}
