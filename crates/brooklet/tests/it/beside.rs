//! Merges of new runs beside a merge that runs for long.

use std::collections::BTreeMap;
use std::sync::Arc;

use brooklet::Store;
use brooklet::io::{Fault, MemVolume, Rng};

use crate::common::small::{check, noise, open, options};

/// Number of entries of each log.
type Expected = BTreeMap<String, u64>;

/// Returns a store in the middle of a merge of all its runs, which are much larger than the runs of
/// later checkpoints.
fn within_a_merge(volume: &MemVolume) -> (Store, Expected) {
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    let (mut rng, mut expected) = (Rng::new(7), Expected::new());
    for run in 0..20 {
        for log in 0..40 {
            append(&store, &mut expected, format!("log/{:03}", (log * 7 + run) % 100), &noise(&mut rng, 900))
                .unwrap();
        }
        store.checkpoint().unwrap();
    }
    while store.info().unwrap().maintenance.compaction_steps == 0 || !is_merging(&store) {
        assert!(store.step().unwrap(), "a merge of many runs is due");
    }
    (store, expected)
}

fn append(
    store: &Store,
    expected: &mut Expected,
    key: String,
    payload: &[u8],
) -> Result<(), brooklet::Error> {
    store.append(&key, payload)?.wait()?;
    *expected.entry(key).or_default() += 1;
    Ok(())
}

fn is_merging(store: &Store) -> bool {
    store.info().unwrap().runs.iter().any(|run| run.merging)
}

/// Returns the number of runs that are newer than the running merge.
fn newer(store: &Store) -> usize {
    store.info().unwrap().runs.iter().take_while(|run| !run.merging).count()
}

/// Makes checkpoints of a few small logs, and lets the store work between them as little as `steps`
/// says; calls `seen` after each.
fn small_checkpoints(
    store: &Store,
    expected: &mut Expected,
    steps: usize,
    mut seen: impl FnMut(&Store),
) -> Result<(), brooklet::Error> {
    for round in 0..60 {
        for log in 0..3 {
            append(store, expected, format!("small/{}", (round + log) % 11), b"x")?;
        }
        if round % 5 == 0 {
            // A log that only the merged runs know loses its entries.
            store.delete(format!("log/{round:03}"))?.wait()?;
            expected.remove(&format!("log/{round:03}"));
        }
        store.checkpoint()?;
        for _ in 0..steps {
            store.step()?;
        }
        seen(store);
    }
    Ok(())
}

#[track_caller]
fn same(store: &Store, expected: &Expected, when: &str) {
    let logs = store.scan("").unwrap().map(|log| {
        let log = log.unwrap();
        let key = String::from_utf8(log.key.to_vec()).unwrap();
        let entries = store.read(&key, ..).unwrap().map(Result::unwrap).count() as u64;
        assert_eq!(entries, log.bounds.next - log.bounds.first, "{when}: {key}");
        (key, entries)
    });
    assert_eq!(&logs.collect::<Expected>(), expected, "{when}");
}

#[test]
fn new_runs_do_not_pile_up_beside_a_long_merge() {
    let volume = MemVolume::new(1);
    let (store, mut expected) = within_a_merge(&volume);
    let (mut most, mut beside) = (0, 0);
    let mut merges = store.info().unwrap().maintenance.compactions;
    small_checkpoints(&store, &mut expected, 2, |store| {
        let merging = is_merging(store);
        if merging {
            most = most.max(newer(store));
        }
        let ended = store.info().unwrap().maintenance.compactions;
        beside += u64::from(merging && ended > merges);
        merges = ended;
    })
    .unwrap();
    assert!(beside > 0, "no merge ended beside the long merge");
    assert!(most <= 14, "{most} runs waited for the merge");
    while is_merging(&store) {
        assert!(store.step().unwrap());
    }
    same(&store, &expected, "after the merge");
    store.close().unwrap();
    drop(store);
    check(&volume);
    same(&open(&volume).unwrap(), &expected, "after a reopening");
}

/// Wherever the power goes off: the store opens, its check finds it sound, and the merge goes on.
#[test]
fn a_merge_beside_another_may_be_cut_anywhere() {
    let mut beside = 0;
    for cut in (0..).step_by(13) {
        let volume = MemVolume::new(cut);
        let (store, mut expected) = within_a_merge(&volume);
        volume.fail(Fault::PowerOffAfter(cut));
        let mut merges = store.info().unwrap().maintenance.compactions;
        let done = small_checkpoints(&store, &mut expected, 2, |store| {
            let ended = store.info().map_or(merges, |info| info.maintenance.compactions);
            beside += u64::from(ended > merges && is_merging(store));
            merges = ended;
        });
        store.abandon();
        if done.is_ok() {
            break;
        }
        let volume = MemVolume::from_image(volume.crash(), cut);
        check(&volume);
        let store = open(&volume).unwrap();
        // The commit at which the power went off may be there or not: an append, or a deletion.
        let mut found = Expected::new();
        for log in store.scan("").unwrap() {
            let log = log.unwrap();
            let key = String::from_utf8(log.key.to_vec()).unwrap();
            let entries = store.read(&key, ..).unwrap().map(Result::unwrap).count() as u64;
            found.insert(key, entries);
        }
        let differ = |key: &&String| found.get(*key) != expected.get(*key);
        let others: Vec<_> = found.keys().chain(expected.keys()).filter(differ).collect();
        assert!(others.iter().all(|key| *key == others[0]), "cut after {cut} operations: {others:?}");
        if let Some(key) = others.first() {
            let (is, was) = (found.get(*key).copied(), expected.get(*key).copied());
            let is_next = is == Some(was.unwrap_or(0) + 1) || is.is_none() && key.starts_with("log/");
            assert!(is_next, "cut after {cut} operations: {key} has {is:?} entries instead of {was:?}");
        }
        while store.step().unwrap() {}
        assert!(!is_merging(&store));
        same(&store, &found, "after all merges");
        store.close().unwrap();
        drop(store);
        check(&volume);
    }
    assert!(beside > 0, "no power cut came after a merge beside another");
}
