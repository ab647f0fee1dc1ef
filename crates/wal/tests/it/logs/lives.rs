//! One life after another: power cuts, kills and openings that fail, in a row, with work in
//! between; and what rot of a slot of the label adds to that.

use std::sync::Arc;

use brooklet_io::{Fault, MemVolume, Rng, SECTOR};
use brooklet_wal::{Log, LogError, Pause, WalError};

use crate::logs::model::{Script, options, read};

/// The end of a life: the log is gone, and what is on the medium is given to the next.
fn end(script: &mut Script, rng: &mut Rng) -> (Vec<bool>, MemVolume) {
    let log = script.log.take();
    let killed = rng.percent(25) && script.volume.failures() == 0;
    if killed {
        // What was in flight arrives, in the cache.
        script.volume.fail(Fault::PowerOffAfter(u64::MAX));
        log.into_iter().for_each(Log::abandon);
        return (script.model.settle_acks(), script.volume.clone());
    }
    let image = script.volume.crash();
    let acked = script.model.settle_acks();
    drop(log);
    (acked, MemVolume::from_image(image, rng.next()))
}

/// Opens a log, after openings that end in a power cut or an error.
fn reopened(mut volume: MemVolume, rng: &mut Rng) -> (Log, MemVolume) {
    for _ in 0..rng.below(4) {
        let (operations, kind) = (rng.below(4), std::io::ErrorKind::Other);
        let cut = rng.percent(60);
        volume.fail(match cut {
            true => Fault::PowerOffAfter(operations),
            false => Fault::ErrorAfter { operations, kind, sticky: false },
        });
        let opened = Log::open(Arc::new(volume.clone()), options());
        assert_eq!(opened.is_err(), operations < 3, "{opened:?}");
        if let Ok(log) = opened {
            log.abandon();
        }
        // The process may try again on the same volume, or the power goes.
        if cut || rng.percent(50) {
            volume = MemVolume::from_image(volume.crash(), rng.next());
        } else {
            volume.fail(Fault::ErrorAfter { operations: u64::MAX, kind, sticky: false });
        }
    }
    let log = Log::open(Arc::new(volume.clone()), options()).unwrap();
    (log, volume)
}

#[test]
fn no_life_loses_what_an_earlier_one_was_told() {
    let mut lives = 0;
    for seed in 0..400 {
        let rng = &mut Rng::new(seed);
        let mut script = Script::new(seed);
        script.create().unwrap();
        for _ in 0..6 {
            let steps = rng.below(40);
            script.volume.fail(Fault::PowerOffAfter(rng.below(60)));
            let mut ended = Ok(());
            for _ in 0..steps {
                ended = ended.and_then(|()| script.step());
            }
            let (acked, volume) = end(&mut script, rng);
            let (log, volume) = reopened(volume, rng);
            script.model.check_recovered(&log, &acked);
            let model = std::mem::take(&mut script.model);
            script = Script { log: Some(log), volume, model, ..Script::new(rng.next()) };
            lives += 1;
        }
    }
    println!("{lives} lives");
}

/// What a killed process left in the cache of the device is read by the next, and then the power
/// goes.
#[test]
pub fn what_was_read_after_a_kill_survives_a_power_cut() {
    let mut cached = 0;
    for seed in 0..300 {
        let mut script = Script::new(seed);
        script.create().unwrap();
        for n in 0..6u8 {
            script.log().append(&[n; 3000]).unwrap();
        }
        while script.log().step() == Pause::None {}
        script.log.take().unwrap().abandon();
        cached += script.volume.at_risk();
        let log = Log::open(Arc::new(script.volume.clone()), options()).unwrap();
        let known = read(&log);
        let crashed = MemVolume::from_image(script.volume.crash(), seed);
        let again = Log::open(Arc::new(crashed), options()).unwrap();
        assert_eq!(read(&again), known);
    }
    assert!(cached > 100, "{cached}");
}

/// The newest slot of the label is lost to rot. The other is that of a trim before, maybe, whose
/// blocks may be written over: then it is damage, and never a log that ends too early.
#[test]
fn a_lost_slot_never_cuts_the_log() {
    let (mut damaged, mut whole) = (0, 0);
    for seed in 0..1500 {
        let rng = &mut Rng::new(seed);
        let volume = MemVolume::new(seed);
        let log = Log::create(Arc::new(volume.clone()), options()).unwrap();
        let mut lsns = Vec::new();
        let largest = 1 + rng.below(8 << 10);
        let all_at_once = rng.percent(50);
        for _ in 0..rng.below(60) {
            let record: Vec<u8> = (0..rng.below(largest)).map(|_| rng.next() as u8).collect();
            if let Ok((lsn, ack)) = log.try_append(&record) {
                ack.wait().unwrap();
                lsns.push(lsn);
            } else if all_at_once {
                log.trim(log.next()).unwrap();
            } else {
                log.trim(lsns[lsns.len() - 1 - rng.below(3) as usize]).unwrap();
            }
        }
        let kept = read(&log);
        let image = volume.image();
        for slot in 0..2 {
            let volume = MemVolume::from_image(image.clone(), seed);
            volume.flip(slot * SECTOR + 33, 1);
            match Log::open(Arc::new(volume), options()) {
                Ok(log) => {
                    assert!(read(&log).ends_with(&kept), "seed {seed}");
                    whole += 1;
                }
                Err(LogError::Wal(WalError::Damaged { .. })) => damaged += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    println!("{damaged} damaged, {whole} whole");
    assert!(damaged > 100 && whole > 1500, "{damaged}, {whole}");
}
