//! Power cuts at every operation, and again while the log is opened after them.

use std::sync::Arc;

use brooklet_io::{Fault, MemVolume, Rng, SECTOR};
use brooklet_wal::{Header, Log, LogError, Pause, WalError};

use crate::logs::model::{Model, Script, drive, options};

fn run(seed: u64, steps: u32, fault: Option<Fault>) -> (Script, Result<(), LogError>) {
    let mut script = Script::new(seed);
    if let Some(fault) = fault {
        script.volume.fail(fault);
    }
    let mut ended = script.create();
    for _ in 0..steps {
        if ended.is_ok() {
            ended = script.step();
        }
    }
    (script, ended)
}

/// What a cut left: opened at once, or with the power going again at any operation of that; then
/// used, closed and opened.
fn recovers(image: &[u8], model: &Model, acked: &[bool], seed: u64) {
    for again in [None, Some(0), Some(1), Some(2), Some(3)] {
        let volume = MemVolume::from_image(image.to_vec(), seed);
        let image = if let Some(again) = again {
            volume.fail(Fault::PowerOffAfter(again));
            let opened = Log::open(Arc::new(volume.clone()), options());
            assert_eq!(opened.is_err(), again < 3, "opening flushes once and writes the label twice");
            let image = volume.crash();
            drop(opened);
            image
        } else {
            image.to_vec()
        };
        let volume = MemVolume::from_image(image, seed);
        let mut model = model.copy();
        let log = Log::open(Arc::new(volume.clone()), options()).unwrap();
        model.check_recovered(&log, acked);
        // It goes on where it ended.
        let mut script = Script { log: Some(log), volume, model, ..Script::new(seed) };
        for _ in 0..6 {
            script.step().unwrap();
        }
        drive(script.log());
        let mut rng = Rng::new(seed);
        script.model.check_open(script.log(), &mut rng);
        script.log().close().unwrap();
        let acked = script.model.settle_acks();
        assert!(acked.iter().all(|acked| *acked), "closing made it all durable");
        let log = Log::open(Arc::new(script.volume.clone()), options()).unwrap();
        script.model.check_recovered(&log, &acked);
    }
}

#[test]
pub fn every_power_cut_leaves_a_prefix_with_all_that_was_acknowledged() {
    let (mut cuts, mut during_resize, mut created) = (0, 0, 0);
    for seed in 0..12 {
        let (script, ended) = run(seed, 60, None);
        ended.unwrap();
        let operations = script.volume.operations();
        drop(script);
        for cut in 0..operations {
            let (mut script, _) = run(seed, 60, Some(Fault::PowerOffAfter(cut)));
            let images: Vec<Vec<u8>> = (0..2).map(|_| script.volume.crash()).collect();
            during_resize += u32::from(script.seen.settling > script.seen.settled);
            let acked = script.model.settle_acks();
            drop(script.log.take());
            for image in images {
                match Log::open(Arc::new(MemVolume::from_image(image.clone(), seed)), options()) {
                    // Nothing was there yet when it was cut.
                    Err(LogError::NotALog { .. } | LogError::DamagedLabel { .. })
                        if script.model.is_new() =>
                    {
                        created += 1;
                    }
                    _ => recovers(&image, &script.model, &acked, seed),
                }
                cuts += 1;
            }
        }
    }
    assert!(cuts > 1500 && during_resize > 30 && created > 10, "{cuts}, {during_resize}, {created}");
}

/// Errors of the device, and short transfers: nothing that was acknowledged is lost, and the log
/// stops for good.
#[test]
fn a_failed_write_stops_the_log_and_loses_nothing_that_was_acknowledged() {
    for seed in 0..300 {
        let operations = 5 + seed % 90;
        let kind = std::io::ErrorKind::Other;
        let (mut script, ended) =
            run(seed, 60, Some(Fault::ErrorAfter { operations, kind, sticky: seed % 2 == 0 }));
        let Some(log) = script.log.take() else { continue };
        // Growing the volume failed before the log had anything to do with it, or the log has
        // stopped.
        if !matches!(ended, Ok(()) | Err(LogError::Wal(WalError::Io(_)))) {
            assert!(matches!(log.append(b"x"), Err(WalError::Stopped(_))), "it goes on after {ended:?}");
            assert!(matches!(log.trim(log.next()), Err(LogError::Wal(WalError::Stopped(_)))));
            assert!(matches!(log.resize(1 << 20), Err(LogError::Wal(WalError::Stopped(_)))));
        }
        let images: Vec<Vec<u8>> = (0..2).map(|_| script.volume.crash()).collect();
        let acked = script.model.settle_acks();
        drop(log);
        for image in images {
            let log = Log::open(Arc::new(MemVolume::from_image(image, seed)), options()).unwrap();
            script.model.copy().check_recovered(&log, &acked);
        }
    }
}

#[test]
fn whatever_is_done_in_whatever_order_the_log_is_its_model() {
    let mut all = crate::logs::model::Seen::default();
    for seed in 1000..1400 {
        let mut script = Script::new(seed);
        if seed % 3 == 0 {
            script.volume.fail(Fault::ShortTransfers);
        }
        script.create().unwrap();
        for _ in 0..120 {
            script.step().unwrap();
            let mut rng = Rng::new(script.rng.next());
            script.model.check_open(script.log(), &mut rng);
        }
        let seen = &script.seen;
        all.full += seen.full;
        all.trims += seen.trims;
        all.grown += seen.grown;
        all.shrunk += seen.shrunk;
        all.refused += seen.refused;
        all.settling += seen.settling;
        all.settled += seen.settled;
        all.reopened += seen.reopened;
    }
    let counts =
        [all.full, all.trims, all.grown, all.shrunk, all.refused, all.settling, all.settled, all.reopened];
    assert!(counts.iter().all(|count| *count > 50), "{all:?}");
}

/// Two blocks in flight, of which only the later reaches the disk. The log goes on without both,
/// and by chance writes the very same bytes as before in place of the first: the second must not
/// come back behind it.
#[test]
pub fn a_block_of_an_earlier_crash_never_follows_a_new_one() {
    let full = |byte: u8| {
        let mut rng = Rng::new(u64::from(byte));
        (0..3900).map(|_| rng.next() as u8).collect::<Vec<u8>>()
    };
    let mut met = 0;
    for seed in 0..40 {
        let volume = MemVolume::new(seed);
        let log = Log::create(Arc::new(volume.clone()), options()).unwrap();
        for byte in 0..3 {
            log.append(&full(byte)).unwrap();
        }
        while log.step() == Pause::None {}
        for image in (0..20).map(|_| volume.crash()) {
            let block = |n: usize| Header::decode(&image[(64 << 10) + n * SECTOR..]).is_some();
            if block(0) || !block(1) {
                continue;
            }
            met += 1;
            let volume = MemVolume::from_image(image, seed);
            let log = Log::open(Arc::new(volume.clone()), options()).unwrap();
            log.append(&full(0)).unwrap().1.wait().unwrap();
            let crashed = MemVolume::from_image(volume.crash(), seed);
            let log = Log::open(Arc::new(crashed), options()).unwrap();
            assert_eq!(log.recover().count(), 1);
        }
    }
    assert!(met > 10, "{met}");
}
