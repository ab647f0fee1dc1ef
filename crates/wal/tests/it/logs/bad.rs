//! Volumes that are not what they should be: each gets an error of its own, and nothing is written.

use std::io;
use std::sync::Arc;

use brooklet_io::{Layer, MemVolume, SECTOR, Volume};
use brooklet_wal::{Log, LogError, LogOptions, WalError, slot};

use crate::logs::model::{KIB, options, read};

/// The image of a closed log with a record in it.
fn image() -> Vec<u8> {
    let volume = MemVolume::new(1);
    let log = Log::create(Arc::new(volume.clone()), options()).unwrap();
    log.append(b"record").unwrap();
    log.close().unwrap();
    volume.image()
}

/// Opening refuses the image, and leaves it as it is.
fn refused(image: Vec<u8>) -> LogError {
    let volume = MemVolume::from_image(image.clone(), 1);
    let error = Log::open(Arc::new(volume.clone()), options()).expect_err("refused");
    assert!(volume.image() == image && volume.counts().writes == 0, "{error}");
    error
}

#[test]
fn a_volume_without_a_log_says_so() {
    for image in [vec![], vec![0; 100], vec![0; SECTOR], vec![0; 1 << 20]] {
        let error = refused(image);
        assert!(matches!(error, LogError::NotALog { .. }), "{error}");
    }
    let error = refused(vec![b'x'; 1 << 20]);
    assert!(
        matches!(&error, LogError::NotALog { why, .. } if why.contains("it holds other data")),
        "{error}"
    );
}

#[test]
fn a_volume_that_was_cut_short_says_by_how_much() {
    let whole = image();
    for len in [SECTOR, 2 * SECTOR, 64 << 10, whole.len() - SECTOR] {
        let error = refused(whole[..len].to_vec());
        let LogError::CutShort { size, needed, .. } = error else { panic!("{error}") };
        assert_eq!((size, needed), (len as u64, 128 * KIB));
    }
}

#[test]
fn one_damaged_slot_is_no_loss_and_two_are_an_error() {
    for slots in [&[0][..], &[1], &[0, 1]] {
        let mut bad = image();
        slots.iter().for_each(|slot| bad[slot * SECTOR + 70] ^= 1);
        if slots.len() == 2 {
            let error = refused(bad);
            assert!(matches!(error, LogError::DamagedLabel { .. }), "{error}");
        } else {
            let log = Log::open(Arc::new(MemVolume::from_image(bad, 1)), options()).unwrap();
            assert_eq!(read(&log).len(), 1);
        }
    }
}

/// A volume that does not read its second sector.
#[derive(Clone, Debug)]
struct BadSector(MemVolume);

impl Layer for BadSector {
    fn below(&self) -> &dyn Volume {
        &self.0
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        match offset {
            4096 => Err(io::Error::other("a bad sector")),
            _ => self.0.read_at(offset, buf),
        }
    }

    fn read_medium(&self, offset: u64, buf: &mut [u8]) -> Option<io::Result<usize>> {
        Some(Layer::read_at(self, offset, buf))
    }
}

/// The other slot may hold an older trim point, and the device may read this one the next time.
#[test]
fn a_slot_that_the_device_does_not_read_is_named() {
    let volume = BadSector(MemVolume::from_image(image(), 1));
    let error = Log::open(Arc::new(volume), options()).expect_err("refused").to_string();
    assert!(error.contains("a bad sector") && error.contains("offset 4096 of memory"), "{error}");
}

#[test]
fn a_newer_format_is_not_touched() {
    let mut newer = image();
    newer[8] = 2;
    slot::seal(&mut newer);
    assert!(matches!(refused(newer), LogError::NewerFormat { found: 2, known: 1, .. }));
}

#[test]
fn a_log_of_another_identity_is_refused() {
    let volume = Arc::new(MemVolume::from_image(image(), 1));
    let other = Log::open(volume, options().identity(8));
    assert!(matches!(other, Err(LogError::Foreign { found: 7, expected: 8, .. })));
    // The label of one log before the ring of another.
    let other = MemVolume::new(1);
    let log = Log::create(Arc::new(other.clone()), options().identity(8)).unwrap();
    log.append(b"record").unwrap();
    log.close().unwrap();
    let mut mixed = image();
    mixed[64 << 10..].copy_from_slice(&other.image()[64 << 10..]);
    assert!(matches!(refused(mixed), LogError::Foreign { found: 8, expected: 7, .. }));
}

#[test]
fn a_log_is_not_created_over_something_else_unless_told_to() {
    let volume = Arc::new(MemVolume::from_image(image(), 1));
    assert!(matches!(Log::create(volume.clone(), options()), Err(LogError::NotBlank { .. })));
    let log = Log::open(volume.clone(), options()).unwrap();
    assert_eq!(read(&log).len(), 1, "it is unharmed");
    drop(log);
    let log = Log::create(volume, options().overwrite(true).identity(9)).unwrap();
    assert_eq!((read(&log).len(), log.identity()), (0, 9));
}

#[test]
fn options_that_no_log_can_have_are_refused() {
    for options in [
        LogOptions::new().ring_size(60 * KIB),
        LogOptions::new().ring_size(100_000),
        LogOptions::new().ring_size(1 << 41),
        LogOptions::new().block_size(100),
        LogOptions::new().block_size(1 << 30),
        LogOptions::new().depth(0),
        LogOptions::new().depth(5000),
        LogOptions::new().ring_size(64 * KIB).largest_record(30 << 10),
    ] {
        let volume = MemVolume::new(1);
        let error = Log::create(Arc::new(volume.clone()), options).expect_err("refused");
        assert!(matches!(error, LogError::Invalid { .. }), "{error}");
        assert_eq!(volume.size().unwrap(), 0);
    }
}

/// The newest trim point is lost to rot: the older one comes back with the same epoch, and what was
/// written over since shows as damage, or what was not is there again. Never a wrong byte, and
/// never a silent cut.
#[test]
fn a_lost_trim_shows_as_damage_or_does_nothing() {
    let mut damaged = 0;
    for laps in [0, 30] {
        let volume = MemVolume::new(1);
        let log = Log::create(Arc::new(volume.clone()), options()).unwrap();
        let mut lsns = Vec::new();
        for n in 0..10 + laps {
            let (lsn, ack) = log.append(&[n; 3000]).unwrap();
            ack.wait().unwrap();
            lsns.push(lsn);
            if n % 5 == 4 && n < 34 {
                log.trim(lsns[lsns.len() - 2]).unwrap();
            }
        }
        let kept = read(&log);
        for slot in 0..2 {
            let volume = MemVolume::from_image(volume.image(), 1);
            volume.flip(slot * SECTOR + 90, 0);
            match Log::open(Arc::new(volume), options()) {
                Ok(log) => assert!(read(&log).ends_with(&kept)),
                Err(LogError::Wal(WalError::Damaged { .. })) => damaged += 1,
                Err(error) => panic!("{error}"),
            }
        }
        drop(log);
    }
    assert_eq!(damaged, 1, "the trim point before was written over");
}
