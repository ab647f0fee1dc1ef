//! Handles of a log in a process that did not open it.

use std::sync::Arc;

use brooklet_io::{FileOptions, FileVolume, ManualClock, MemVolume, OpenMode, Volume};
use brooklet_wal::{Config, Cursor, Log, LogError, LogOptions, Opening, Wal, WalError, Zone};

use crate::fork::in_child;

pub fn a_child_is_refused() {
    let volume = MemVolume::new(1);
    volume.grow(256 << 10).unwrap();
    let (zone, first) =
        (Zone { offset: 0, size: 256 << 10, store: 7 }, Cursor { seq: 1, ..Cursor::default() });
    let (clock, config) = (Arc::new(ManualClock::default()), Config::default());
    let wal = Wal::open(
        Arc::new(volume),
        zone,
        config,
        Opening { tail: 0, next: first, epoch: 1 },
        clock,
        Arc::new(()),
    );
    let (_, ack) = wal.append(b"a record").unwrap();
    let said = in_child(|| {
        let calls = [ack.wait(), wal.append(b"another").map(drop)];
        calls.map(|call| matches!(call, Err(WalError::Forked)).to_string()).join(" ")
    });
    assert_eq!(said, "true true", "both calls are refused");
    ack.wait().unwrap();
}

#[test]
fn the_engine_refuses_a_child() {
    a_child_is_refused();
}

/// The child wrote its copy of the open block over the parent's.
#[test]
fn a_log_refuses_a_child_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wal");
    let open = |mode| FileVolume::open(&path, mode, FileOptions::default()).map(Arc::new);
    let log = Log::create(open(OpenMode::Create).unwrap(), LogOptions::new().ring_size(1 << 20)).unwrap();
    log.append(b"first").unwrap().1.wait().unwrap();
    let (_, ack) = log.append(b"appended before the fork").unwrap();
    let next = log.next();
    let mut kept = Some((log, ack));
    let said = in_child(|| {
        let (log, ack) = kept.take().unwrap();
        let mut results: Vec<Result<(), LogError>> = vec![
            log.append(b"another").map(drop).map_err(Into::into),
            log.append_batch(&[b"another"]).map(drop).map_err(Into::into),
            log.flush().map_err(Into::into),
            log.trim(next),
            log.resize(2 << 20),
            log.read_from(next).map(drop),
            log.close(),
            ack.wait().map_err(Into::into),
        ];
        results.extend(log.recover().map(|record| record.map(drop)));
        let (sender, told) = std::sync::mpsc::channel();
        ack.on_done(move |result| sender.send(result).unwrap());
        results.push(told.try_recv().unwrap().map_err(Into::into));
        let refused = results.iter().all(|r| matches!(r, Err(LogError::Wal(WalError::Forked))));
        // Nothing is written, or waited for.
        drop((log, ack));
        format!("{refused} {}", results.len())
    });
    assert_eq!(said, "true 10");
    let (log, ack) = kept.take().unwrap();
    ack.wait().unwrap();
    log.append(b"behind the fork").unwrap().1.wait().unwrap();
    assert!(open(OpenMode::ReadWrite).is_err(), "the child took the parent's lock with it");
    log.abandon();
    drop(ack);
    let log = Log::open(open(OpenMode::ReadWrite).unwrap(), LogOptions::new()).unwrap();
    let records: Vec<_> = log.recover().map(|record| record.unwrap().1).collect();
    assert_eq!(records, [&b"first"[..], b"appended before the fork", b"behind the fork"]);
}

/// A child is a process as any other.
#[test]
fn a_child_may_open_a_log_of_its_own() {
    let said = in_child(|| {
        let log = Log::create(Arc::new(MemVolume::new(1)), LogOptions::new().ring_size(1 << 20)).unwrap();
        log.append(b"a record").unwrap().1.wait().unwrap();
        format!("{:?}", log.close().is_ok())
    });
    assert_eq!(said, "true");
}
