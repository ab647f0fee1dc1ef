use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::filter::mix;
use crate::{Duplicates, FileOptions, Reader, key_hash};

/// Little memory, so that some hundred KiB are spilled.
const LITTLE: usize = 256 << 10;

fn options(memory: usize, threads: usize) -> FileOptions {
    let blocks =
        BuilderOptions { block_size: 512, apart_from: 3000, bits_per_item: 10, ..Default::default() };
    FileOptions { blocks, memory, threads, ..Default::default() }
}

/// Returns entries in key order. A few entries are long.
fn entries(count: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let value = |n: u64| match n % 97 {
        0 => vec![n as u8; 5000 + n as usize % 1000],
        1 => (0..200_000 * u64::from(n == 1)).map(|at| mix(at) as u8).collect(),
        _ => n.to_le_bytes().repeat(n as usize % 5),
    };
    (0..count).map(|n| (format!("key/{:x}/{n}", mix(n) % 999).into_bytes(), value(n))).collect()
}

/// Returns the same entries in another order.
fn shuffled(entries: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<(&Vec<u8>, &Vec<u8>)> {
    let mut shuffled: Vec<_> = entries.iter().collect();
    shuffled.sort_by_key(|(key, _)| key_hash(7, key));
    shuffled
}

fn build<'a>(
    dir: &TempDir,
    options: FileOptions,
    entries: impl IntoIterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
) -> Result<Vec<u8>> {
    let path = dir.path().join("file.codex");
    let mut builder = FileBuilder::new(&path, FileOptions { replace: true, ..options })?;
    for (key, value) in entries {
        builder.add(key, value)?;
    }
    let summary = builder.finish_with(b"told")?;
    let file = fs::read(&path).unwrap();
    assert_eq!(file.len() as u64, summary.len);
    assert_eq!(files(dir), ["file.codex"]);
    Ok(file)
}

fn files(dir: &TempDir) -> Vec<String> {
    let names = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

fn assert_holds(file: Vec<u8>, entries: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let len = file.len() as u64;
    let reader = Reader::open(Bytes::from(file), len, None).unwrap();
    let verified = reader.verify(Progress::ignore).unwrap();
    assert_eq!((verified.entries, verified.bytes), (entries.len() as u64, len));
    assert_eq!(reader.metadata().unwrap().as_deref(), Some(&b"told"[..]));
    let mut cursor = reader.cursor();
    for (key, value) in entries {
        assert!(cursor.next().unwrap());
        assert!(cursor.key() == key && cursor.value().unwrap() == value);
        assert!(reader.may_contain(key, key_hash(reader.filter_seed(), key)).unwrap());
        assert!(reader.get(key).unwrap().unwrap() == value);
    }
    assert!(!cursor.next().unwrap());
}

#[test]
fn any_order_memory_and_threads_give_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let entries = entries(20_000);
    let sorted = build(&dir, options(1 << 30, 2), &entries).unwrap();
    assert_holds(sorted.clone(), &entries);
    let mut nearly: Vec<_> = entries.iter().collect();
    nearly.swap(3, 4);
    let late: Vec<_> = entries.iter().skip(1).chain(entries.iter().take(1)).collect();
    for (memory, threads) in [(1 << 30, 1), (1 << 30, 3), (LITTLE, 1), (LITTLE, 2), (0, 4)] {
        let orders = [entries.iter().collect(), shuffled(&entries), nearly.clone(), late.clone()];
        for (index, order) in orders.into_iter().enumerate() {
            let file = build(&dir, options(memory, threads), order).unwrap();
            let differs = file.iter().zip(&sorted).position(|(a, b)| a != b);
            assert!(file == sorted, "order {index}, {threads} threads, {memory} B: from byte {differs:?} on");
        }
        assert!(build(&dir, options(memory, threads), entries.iter().rev()).unwrap() == sorted);
    }
}

/// A merge reads stretches on the medium and segments in memory. A file of ordered entries is not
/// merged.
#[test]
fn little_memory_is_spilled_and_order_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let entries = entries(20_000);
    let mut builder = FileBuilder::new(dir.path().join("spilled"), options(LITTLE, 2)).unwrap();
    shuffled(&entries).iter().for_each(|(key, value)| builder.add(key, value).unwrap());
    assert!(builder.spill.as_ref().unwrap().stretches.len() > 3);
    assert!(builder.memory() < 4 * LITTLE);
    drop(builder);
    let mut builder = FileBuilder::new(dir.path().join("direct"), options(LITTLE, 2)).unwrap();
    entries.iter().for_each(|(key, value)| builder.add(key, value).unwrap());
    assert!(builder.direct.is_some() && builder.sorted.is_empty());
    assert_eq!(builder.spill.as_ref().unwrap().stretches.len(), 1);
    drop(builder);
    assert_eq!(files(&dir), [""; 0]);
}

/// The more stretches there are, the more ranges a merge would like to read at once.
#[test]
fn a_merge_of_many_stretches_stays_within_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let entries = entries(20_000);
    let bytes: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
    let mut builder = FileBuilder::new(dir.path().join("file"), options(LITTLE, 1)).unwrap();
    let jobs = Arc::new(AtomicU64::new(0));
    let told = jobs.clone();
    builder.on_progress(move |progress| {
        told.store(progress.to_merge, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    shuffled(&entries).iter().for_each(|(key, value)| builder.add(key, value).unwrap());
    let stretches = builder.spill.as_ref().unwrap().stretches.len();
    // The last report is one of the last merge.
    builder.finish().unwrap();
    let jobs = jobs.load(Ordering::Relaxed);
    assert!(stretches > 3 && jobs * LITTLE as u64 > 2 * bytes as u64, "{jobs} jobs, {bytes} bytes");
}

#[test]
fn nothing_and_one_entry() {
    let dir = tempfile::tempdir().unwrap();
    for count in [0, 1] {
        let entries = entries(count);
        assert_holds(build(&dir, options(1 << 20, 2), &entries).unwrap(), &entries);
    }
}

/// Regression: three keys whose first bits differ caused a shift that is too large.
#[test]
fn few_entries_may_lie_far_apart() {
    let dir = tempfile::tempdir().unwrap();
    let entries: BTreeMap<_, _> = [&b"\xff"[..], b"", b"\x7f"].map(|key| (key.to_vec(), key.to_vec())).into();
    for threads in [1, 2] {
        let given = entries.iter().rev();
        assert_holds(build(&dir, options(LITTLE, threads), given).unwrap(), &entries);
    }
}

#[test]
fn duplicates_go_by_the_rule() {
    let dir = tempfile::tempdir().unwrap();
    let entries = entries(5_000);
    let twice = |first: Vec<u8>, last: Vec<u8>| {
        let (dir, entries) = (&dir, &entries);
        move |memory, rule| {
            let mut given: Vec<_> = shuffled(entries);
            given.extend(shuffled(entries).into_iter().rev().step_by(2).map(|(key, _)| (key, &last)));
            given.splice(0..0, shuffled(entries).into_iter().step_by(3).map(|(key, _)| (key, &first)));
            let mut expected = entries.clone();
            for (key, value) in &given {
                if rule == Duplicates::Last {
                    expected.insert(key.to_vec(), value.to_vec());
                }
            }
            for (key, value) in given.iter().rev() {
                if rule == Duplicates::First {
                    expected.insert(key.to_vec(), value.to_vec());
                }
            }
            let file = build(dir, FileOptions { duplicates: rule, ..options(memory, 2) }, given)?;
            assert_holds(file, &expected);
            Ok::<_, Error>(())
        }
    };
    let twice = twice(b"the first".to_vec(), b"the last".to_vec());
    for memory in [0, LITTLE, 1 << 30] {
        twice(memory, Duplicates::First).unwrap();
        twice(memory, Duplicates::Last).unwrap();
        assert!(matches!(twice(memory, Duplicates::Refuse), Err(Error::Duplicate { .. })));
        assert_eq!(files(&dir), ["file.codex"]);
    }
    // Sorted entries, each twice in a row.
    let again = entries.iter().flat_map(|entry| [entry, entry]);
    assert!(matches!(build(&dir, options(LITTLE, 1), again), Err(Error::Duplicate { .. })));
}

#[test]
fn any_memory_and_number_of_threads_will_do() {
    let dir = tempfile::tempdir().unwrap();
    let entries = entries(300);
    let expected = build(&dir, options(LITTLE, 1), &entries).unwrap();
    for (memory, threads) in [(0, usize::MAX), (usize::MAX, usize::MAX / 6), (usize::MAX, 0)] {
        assert!(build(&dir, options(memory, threads), shuffled(&entries)).unwrap() == expected);
    }
}

#[test]
fn what_is_there_is_replaced_only_if_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("taken");
    let builder = FileBuilder::new(&path, FileOptions::default()).unwrap();
    fs::write(&path, "somebody's").unwrap();
    assert!(matches!(builder.finish(), Err(Error::Exists { .. })));
    assert!(matches!(FileBuilder::new(&path, FileOptions::default()), Err(Error::Exists { .. })));
    assert_eq!((fs::read(&path).unwrap(), files(&dir).len()), (b"somebody's".to_vec(), 1));
    let replacing = FileOptions { replace: true, ..FileOptions::default() };
    FileBuilder::new(&path, replacing).unwrap().finish().unwrap();
    assert_ne!(fs::read(&path).unwrap(), b"somebody's");
}

#[test]
fn whoever_is_told_of_the_progress_may_end_it() {
    let dir = tempfile::tempdir().unwrap();
    let entries = entries(20_000);
    for order in [entries.iter().collect(), shuffled(&entries)] {
        let tellings = Arc::new(AtomicU64::new(0));
        let run = |after: u64| {
            let mut builder = FileBuilder::new(dir.path().join("file"), options(LITTLE, 2)).unwrap();
            let tellings = tellings.clone();
            tellings.store(0, Ordering::Relaxed);
            let mut last = 0;
            builder.on_progress(move |progress| {
                assert!(progress.entries >= last && progress.merged <= progress.to_merge);
                last = progress.entries;
                let told = tellings.fetch_add(1, Ordering::Relaxed);
                if told == after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            for (key, value) in &order {
                builder.add(key, value)?;
            }
            builder.finish()
        };
        assert_eq!(run(u64::MAX).unwrap().entries, 20_000);
        fs::remove_file(dir.path().join("file")).unwrap();
        let times = tellings.load(Ordering::Relaxed);
        assert!(times > 10);
        // The number of progress reports depends on the speed of the threads.
        for after in (0..times / 2).step_by(7) {
            assert!(matches!(run(after), Err(Error::Cancelled)));
            assert_eq!(files(&dir), [""; 0]);
        }
    }
}

#[test]
fn whoever_is_given_what_is_sorted_may_end_it() {
    let dir = tempfile::tempdir().unwrap();
    let entries = entries(20_000);
    let mut sorter = Sorter::new(dir.path(), options(LITTLE, 2));
    shuffled(&entries).into_iter().for_each(|(key, value)| sorter.add(key, value).unwrap());
    assert!(files(&dir).len() == 1, "it did not fit into memory");
    let mut given = 0;
    let ended = sorter.finish(|_, _| {
        given += 1;
        if given == 5000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(ended, Err(Error::Cancelled)) && given == 5000 && files(&dir).is_empty());
}

#[test]
fn after_an_error_nothing_is_built() {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = FileBuilder::new(dir.path().join("file"), options(LITTLE, 1)).unwrap();
    builder.on_progress(|_| ControlFlow::Break(()));
    assert!(matches!(builder.add(&[0; 70_000], b""), Err(Error::TooLarge { .. })));
    let cancelled = (0..10_000u32).find_map(|n| builder.add(&n.to_be_bytes(), &[7; 100]).err());
    assert!(matches!(cancelled, Some(Error::Cancelled)));
    assert!(matches!(builder.add(b"more", b""), Err(Error::Io(_))));
    assert!(matches!(builder.finish(), Err(Error::Io(_))));
    assert_eq!(files(&dir), [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Keys of few letters have long common prefixes, are prefixes of other keys, and are repeated.
    #[test]
    fn files_hold_what_was_given(
        given in proptest::collection::vec(
            (proptest::collection::vec(0u8..3, 0..14), proptest::collection::vec(0u8..2, 0..300)),
            0..3000,
        ),
        memory in prop_oneof![Just(0), Just(LITTLE), Just(1usize << 30)],
        last: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut expected = BTreeMap::new();
        for (key, value) in &given {
            if last {
                expected.insert(key.clone(), value.clone());
            } else {
                expected.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        let duplicates = if last { Duplicates::Last } else { Duplicates::First };
        let options = FileOptions { duplicates, ..options(memory, 2) };
        let mut sorter = Sorter::new(dir.path(), options.clone());
        given.iter().for_each(|(key, value)| sorter.add(key, value).unwrap());
        let mut sorted = Vec::new();
        sorter.finish(|key, value| {
            sorted.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        }).unwrap();
        assert!(sorted.is_sorted() && files(&dir).is_empty());
        assert!(sorted.into_iter().collect::<BTreeMap<_, _>>() == expected);
        let file = build(&dir, options, given.iter().map(|(key, value)| (key, value))).unwrap();
        assert_holds(file, &expected);
    }
}
