//! A whole store, done harm to: opening, checking, listing, reading; and writing to what is left.
//!
//! Input: which store (1 byte), flags (1 byte: 1 has checksums made anew, 2 cuts the volume short,
//! or the ring's and the other, where it has one of its own; 4 writes, too), where to cut (2 bytes,
//! in units of 512 bytes), then patches, aimed at what checksums cover.
//!
//! Without new checksums, every log reads as it was after some commit that recovery may end at, or
//! gives an error that names the damage. With them, whatever reads must fit together, and nothing
//! may panic, hang or grow without bound.

#![no_main]

use std::collections::BTreeSet;

use arbitrary::{Result, Unstructured};
use brooklet::{CheckReport, Error, ErrorKind, Store};
use brooklet_fuzz::store::{DISAGREEMENT, LARGEST, Logs, Sample, Volumes, contents, options, read, samples};
use brooklet_fuzz::{patches, reseal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = run(&mut Unstructured::new(data));
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let [which, flags]: [u8; 2] = input.arbitrary()?;
    let cut: u16 = input.arbitrary()?;
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
    let volumes = Volumes::new(image, sample.ring);
    let checked = volumes.check();
    if let Err(error) = &checked {
        named(error);
    }
    let report = checked.ok();
    let opened = volumes.open(options().read_only(true));
    match opened {
        Ok(store) if resealed => fits(&store, report.as_ref()),
        Ok(store) => right(&store, sample, report.as_ref()),
        Err(error) => {
            named(&error);
            assert!(report.is_none_or(|report| !report.is_sound()), "the check found nothing: {error}");
        }
    }
    if flags & 4 != 0 {
        write(&volumes);
    }
    Ok(())
}

/// Damage shows as damage, or as no store at all.
fn named(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::CannotOpen), "{error}");
}

/// What reads is what was written.
fn right(store: &Store, sample: &Sample, report: Option<&CheckReport>) {
    let mut worst = None;
    let mut found = Vec::new();
    let keys: BTreeSet<&Vec<u8>> = sample.states.iter().flat_map(Logs::keys).collect();
    for key in keys {
        match read(store, key) {
            Ok(log) => found.push((key, Some(log))),
            Err(Error::UnknownLog { .. }) => found.push((key, None)),
            Err(Error::Damaged { place, what }) if place == DISAGREEMENT => panic!("{what}"),
            Err(error @ Error::Damaged { .. }) => worst = Some(error),
            Err(error) => panic!("damage shows as {error}"),
        }
    }
    let fits = |state: &&Logs| found.iter().all(|(key, log)| state.get(*key) == log.as_ref());
    let state = sample.states.iter().find(fits).expect("the logs of no commit");
    match store.scan("").and_then(Iterator::collect::<Result<Vec<_>, _>>) {
        Ok(logs) => {
            let listed = logs.iter().map(|log| (&log.key, log.bounds.first, log.bounds.len()));
            let held = state.iter().map(|(key, (first, entries))| (key, *first, entries.len() as u64));
            assert!(worst.is_some() || listed.eq(held), "the listing is wrong");
        }
        Err(error) => worst = Some(error),
    }
    if let Some(error) = worst {
        named(&error);
        assert!(report.is_none_or(|report| !report.is_sound()), "the check found nothing: {error}");
    }
}

/// What reads fits together; and if the check found nothing, all of it reads.
fn fits(store: &Store, report: Option<&CheckReport>) {
    let _ = store.info().map(|info| info.runs.len());
    let listed = store.scan("").and_then(|logs| logs.map(|log| Ok(log?.key)).collect::<Result<Vec<_>, _>>());
    let keys = listed.as_ref().map(Vec::as_slice).unwrap_or_default();
    assert!(keys.is_sorted_by(|a, b| a < b), "the listing is out of order");
    let mut entries = 0;
    let mut failed = listed.as_ref().err().cloned();
    for key in keys {
        match read(store, key) {
            Ok((_, log)) => entries += log.len() as u64,
            Err(error) => failed = Some(error),
        }
    }
    for key in ["large", "even", "brief", "none"] {
        let _ = (read(store, key.as_bytes()), store.scan(key).map(Iterator::count));
    }
    match (report, failed) {
        (Some(report), failed) if report.is_sound() => {
            assert!(failed.is_none(), "the check found nothing: {failed:?}");
            assert_eq!((report.logs, report.entries), (keys.len() as u64, entries));
        }
        (_, Some(error)) => {
            // A run of a version to come is no reason not to open the store.
            let newer = matches!(error, Error::NewerFormat { .. });
            let expected = [ErrorKind::Damaged, ErrorKind::NotFound];
            assert!(newer || expected.contains(&error.kind()), "{error}");
        }
        _ => {}
    }
}

/// Writing goes on or is refused; what was acknowledged is there, before and after closing.
fn write(volumes: &Volumes) {
    let Ok(store) = volumes.open(options()) else { return };
    let append = |key: &str, payload: &[u8]| {
        let seq = store.append(key, payload).and_then(|ticket| ticket.wait().map(|()| ticket.seq()));
        if let Ok(seq) = seq {
            let entry = store.read(key, seq..).expect("it was acknowledged").next();
            assert_eq!(entry.expect("it was acknowledged").expect("it is in memory").payload, payload);
        }
    };
    for key in ["fresh", "large", "even"] {
        append(key, b"one more");
    }
    let _ = store.checkpoint();
    append("fresh", b"newer");
    let _ = (store.trim("even", 1), store.delete("brief"), store.compact());
    for _ in 0..64 {
        if !matches!(store.step(), Ok(true)) {
            break;
        }
    }
    let before = contents(&store);
    let closed = store.close();
    drop(store);
    assert!(volumes.size() <= LARGEST);
    let after = volumes.open(options().read_only(true)).and_then(|store| contents(&store));
    if let (Ok(before), Ok(())) = (&before, &closed) {
        let after = after.expect("everything read before closing");
        assert!(after == *before, "closing and opening changed what the store holds");
    }
}
