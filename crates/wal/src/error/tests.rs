//! Every error there is, met through the public calls, and what it says.
//!
//! The table makes a match without a wildcard: a variant that is added and not listed here does not
//! compile.

use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Wake};
use std::thread::Builder;
use std::time::Duration;

use brooklet_io::{Fault, ManualClock, MemVolume, Volume};

use super::*;
use crate::{Committer, Config, Cursor, Opening, Start, Wal, Zone, recover};

#[path = "../../tests/common/fork.rs"]
mod fork;

const ZONE: Zone = Zone { offset: 0, size: 256 << 10, store: 7 };
const FIRST: Cursor = Cursor { position: 0, seq: 1, lsn: 0, chain: 0 };

macro_rules! errors {
    ($($variant:ident, $provoke:expr, $says:expr;)*) => {
        fn variant(error: &WalError) -> &'static str {
            match error { $(WalError::$variant { .. } => stringify!($variant),)* }
        }
        const CASES: &[(&str, fn() -> WalError, &[&str])] = &[$((stringify!($variant), $provoke, &$says),)*];
    };
}

errors! {
    TooLarge, || log().1.append(&[0; 100_000]).unwrap_err(), ["record of 100000 bytes", "limit of", "split it"];
    Full, full, ["ring is full", "of 262144 bytes", "trim it"];
    Busy, busy, ["too many blocks", "wait for room"];
    Stopped, stopped, ["failed write (a planned fault)", "open it again", "may be lost"];
    MirrorEnded, mirror_ended, ["second copy of the log has ended (another host has come)", "open it again", "may be lost"];
    Closed, closed, ["the log is closed"];
    Forked, forked, ["another process", "is a fork", "then open it here"];
    WouldWait, in_a_waker, ["a waker must not wait", "in the task"];
    Damaged, damaged, ["block 1 at ring position 0 (LSN 0)", "the payload is damaged", "the superblock says"];
    NoCodec, || WalError::NoCodec { seq: 7, position: 4096 }, ["block 7", "position 4096", "feature `zstd`"];
    Io, unreadable, ["reading the ring failed: power is off"];
}

fn log() -> (MemVolume, Wal) {
    let volume = MemVolume::new(1);
    volume.grow(ZONE.size).unwrap();
    let clock = Arc::new(ManualClock::default());
    let config = Config { block_size: 4096, ..Config::default() };
    let wal = Wal::open(
        Arc::new(volume.clone()),
        ZONE,
        config,
        Opening { tail: 0, next: FIRST, epoch: 1 },
        clock,
        Arc::new(()),
    );
    (volume, wal)
}

/// Appends without ever writing, or else writing at once, until something is refused.
fn fill(write: bool) -> WalError {
    let (_, wal) = log();
    loop {
        match wal.try_append(4000, false, Duration::MAX, |out| out(&[1; 4000])) {
            Ok(appended) if write => wal.ack(appended.block).wait().unwrap(),
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

fn forked() -> WalError {
    let (_, wal) = log();
    let (_, ack) = wal.append(b"a record").unwrap();
    let said = fork::in_child(|| {
        let errors = [
            wal.append(b"another").err(),
            wal.flush().err(),
            wal.close().err(),
            wal.failure(),
            ack.wait().err(),
            ack.wait_timeout(Duration::from_secs(9)).err(),
        ];
        drop((wal.clone(), ack.clone()));
        errors.into_iter().all(|error| matches!(error, Some(WalError::Forked))).to_string()
    });
    assert_eq!(said, "true");
    ack.wait().unwrap();
    WalError::Forked
}

/// A waker that does what a task should.
struct Appends(Wal, Mutex<Option<WalError>>);

impl Wake for Appends {
    fn wake(self: Arc<Self>) {
        let there_is_room = self.0.append(b"from a waker").unwrap().1;
        let errors = [there_is_room.wait().err(), self.0.flush().err(), self.0.close().err()];
        assert!(errors.iter().all(|error| matches!(error, Some(WalError::WouldWait))), "{errors:?}");
        *self.1.lock().unwrap() = errors.into_iter().flatten().next();
    }
}

fn in_a_waker() -> WalError {
    let (_, wal) = log();
    let committer = Committer::new(&wal).unwrap();
    let committer = Builder::new().spawn(move || committer.run()).unwrap();
    let appends = Arc::new(Appends(wal.clone(), Mutex::default()));
    let waker = appends.clone().into();
    // The committer may be faster than a poll: then nobody is woken.
    let _waits = loop {
        let mut ack = wal.append(b"a record").unwrap().1;
        if Pin::new(&mut ack).poll(&mut Context::from_waker(&waker)).is_pending() {
            break ack;
        }
    };
    let error = loop {
        match appends.1.lock().unwrap().take() {
            Some(error) => break error,
            None => std::thread::yield_now(),
        }
    };
    wal.close().unwrap();
    committer.join().unwrap();
    error
}

fn full() -> WalError {
    fill(true)
}

fn busy() -> WalError {
    fill(false)
}

fn stopped() -> WalError {
    let (volume, wal) = log();
    volume.fail(Fault::ErrorAfter { operations: 0, kind: io::ErrorKind::Other, sticky: false });
    wal.append(b"x").unwrap().1.wait().unwrap_err()
}

struct NoMirror(Mutex<Option<crate::MirrorHandle>>);

impl crate::Mirror for NoMirror {
    fn open(&self, _: crate::LocalLog) -> Result<(), String> {
        Ok(())
    }

    fn start(&self, handle: crate::MirrorHandle) {
        *self.0.lock().unwrap() = Some(handle);
    }

    fn take(&self, _: Vec<crate::SealedBlock>) {}
}

fn mirror_ended() -> WalError {
    let (_, wal) = log();
    let mirror = Arc::new(NoMirror(Mutex::default()));
    wal.attach(mirror.clone(), crate::Waits::Kept, 1);
    mirror.0.lock().unwrap().as_ref().unwrap().end("another host has come");
    wal.append(b"x").unwrap_err()
}

fn closed() -> WalError {
    let (_, wal) = log();
    wal.close().unwrap();
    wal.append(b"x").unwrap_err()
}

fn read(volume: &MemVolume, acked: u64) -> WalError {
    let start = Start { cursor: FIRST, acked, clean: false, epoch: 1 };
    recover(volume, ZONE, start, |_, _| Ok::<_, WalError>(())).unwrap_err()
}

fn damaged() -> WalError {
    let (volume, wal) = log();
    wal.append(b"acknowledged").unwrap().1.wait().unwrap();
    volume.flip(100, 0);
    read(&volume, 1)
}

fn unreadable() -> WalError {
    let (volume, _) = log();
    volume.fail(Fault::PowerOffAfter(0));
    let _ = volume.flush();
    read(&volume, 0)
}

#[test]
fn every_error_is_met_and_says_what_happened_and_what_to_do() {
    for (name, provoke, says) in CASES {
        let error = provoke();
        let message = error.to_string();
        assert_eq!(variant(&error), *name, "{message}");
        for words in *says {
            assert!(message.contains(words), "{name}: {message:?} does not hold {words:?}");
        }
    }
}
