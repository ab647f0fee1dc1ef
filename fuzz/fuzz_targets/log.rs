//! A whole log, done harm to: opening, reading; and appending, trimming and resizing what is left.
//!
//! Input: which log (1 byte), flags (1 byte: 1 has checksums made anew, 2 cuts the volume short, 4
//! writes, too), where to cut (2 bytes, in units of 512 bytes), a size (1 byte, in units of 16
//! KiB), then patches, aimed at what checksums cover.
//!
//! Without new checksums the log gives a run of what it was given, from where it was trimmed to
//! some end behind all that the label knows of; or opening says what is damaged. With them,
//! whatever reads must fit together. In either case nothing may panic, hang or grow without bound,
//! and what is appended then is there after the next opening.

#![no_main]

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use brooklet_fuzz::log::{LARGEST, Sample, contents, options, samples, volume};
use brooklet_fuzz::{patches, reseal};
use brooklet_io::Volume;
use brooklet_wal::{Log, LogError, Lsn, Pause, WalError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = run(&mut Unstructured::new(data));
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let [which, flags]: [u8; 2] = input.arbitrary()?;
    let cut: u16 = input.arbitrary()?;
    let size = u64::from(input.arbitrary::<u8>()? % 32) * (16 << 10);
    let sample = &samples()[usize::from(which) % samples().len()];
    let mut image = sample.image.clone();
    for patch in patches(input, 16)? {
        patch.aimed(&sample.image, &sample.seams).apply(&mut image);
    }
    let resealed = flags & 1 != 0;
    if resealed {
        reseal(&mut image, &sample.seams);
    }
    if flags & 2 != 0 {
        image.truncate(usize::from(cut) * 512);
    }
    let volume = volume(image);
    let log = match Log::open(volume.clone(), options()) {
        Ok(log) => log,
        Err(error) => {
            named(&error);
            return Ok(());
        }
    };
    if resealed {
        fits(&log)
    } else {
        right(&log, sample)
    }
    if flags & 4 != 0 {
        write(log, &volume, size);
    } else {
        log.abandon();
    }
    Ok(())
}

/// Damage shows as damage, or as no log, another one, or one cut short.
fn named(error: &LogError) {
    assert!(
        matches!(
            error,
            LogError::Wal(WalError::Damaged { .. })
                | LogError::NotALog { .. }
                | LogError::NewerFormat { .. }
                | LogError::DamagedLabel { .. }
                | LogError::CutShort { .. }
                | LogError::Foreign { .. }
        ),
        "{error:?}"
    );
}

/// What reads is what was given.
fn right(log: &Log, sample: &Sample) {
    let found = contents(log).expect("opening has read it");
    let first = log.first();
    assert!(sample.firsts.contains(&first), "trimmed to {first}, not {:?}", sample.firsts);
    let start = sample.given.partition_point(|given| given.lsn < first);
    let expected = &sample.given[start..];
    assert!(found.len() <= expected.len(), "{} records of {}", found.len(), expected.len());
    for ((lsn, bytes), given) in found.iter().zip(expected) {
        assert!(*lsn == given.lsn && *bytes == given.bytes, "LSN {lsn} is not what was given");
    }
    if let Some(lost) = expected.get(found.len()) {
        assert!(lost.lsn >= sample.told, "LSN {} is gone, and the label knows of it", lost.lsn);
        let last = expected[..found.len()].last();
        assert!(last.is_none_or(|last| last.batch != lost.batch), "half a batch is there");
    }
}

/// What reads fits together.
fn fits(log: &Log) {
    let (first, next) = (log.first(), log.next());
    match contents(log) {
        Ok(records) => {
            assert!(records.is_sorted_by(|(a, _), (b, _)| a < b), "the records are out of order");
            assert!(records.iter().all(|(lsn, _)| (first..next).contains(lsn)));
            for from in [first.0, first.0 + (next.0 - first.0) / 2, next.0] {
                let reader = log.read_from(Lsn(from)).expect("it is within the log");
                let expected = records.iter().filter(|(lsn, _)| lsn.0 >= from);
                assert!(
                    reader.map(|record| record.expect("it was read just now").0).eq(expected.map(|r| r.0))
                );
            }
        }
        // A record that makes no sense to the log, in a block that does to the ring.
        Err(error) => assert!(matches!(error, LogError::Wal(WalError::Damaged { .. })), "{error}"),
    }
}

/// Appends batches, and keeps account of those that found room.
fn append(log: &Log, known: &mut Option<Vec<(Lsn, Vec<u8>)>>) {
    for records in [&[&b"one more"[..]][..], &[], &[b"", &[7; 5000], b"two"]] {
        let Ok((lsn, ack)) = log.try_append_batch(records) else { continue };
        ack.wait().expect("memory takes writes");
        if let Some(known) = known {
            known.extend((lsn.0..).zip(records).map(|(lsn, record)| (Lsn(lsn), record.to_vec())));
        }
    }
}

/// The log goes on, or refuses; what was acknowledged is there after closing.
fn write(log: Log, volume: &Arc<dyn Volume>, size: u64) {
    let mut known = contents(&log).ok();
    append(&log, &mut known);
    let resized = log.resize(size);
    append(&log, &mut known);
    for part in [2, 1] {
        let (first, next) = (log.first().0, log.next().0);
        log.trim(Lsn(next - (next - first) / part)).expect("it is within the log");
        let first = log.first();
        known.iter_mut().for_each(|known| known.retain(|(lsn, _)| *lsn >= first));
    }
    if resized.is_err() {
        let _ = log.resize(size);
    }
    append(&log, &mut known);
    while matches!(log.step(), Pause::None | Pause::Write(_)) {}
    let Some(known) = known else { return };
    let (first, next) = (log.first(), log.next());
    assert!(contents(&log).expect("everything is durable") == known, "other records than were appended");
    log.close().expect("memory takes writes");
    drop(log);
    assert!(volume.size().is_ok_and(|size| size <= LARGEST));
    let log = Log::open(volume.clone(), options()).expect("it was closed");
    assert_eq!((log.first(), log.next()), (first, next));
    assert!(contents(&log).expect("it was closed") == known, "closing and opening changed the log");
}
