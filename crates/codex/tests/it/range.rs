//! Ranges and prefixes, from both ends at once, against a `BTreeMap`.

use std::collections::BTreeMap;
use std::ops::Bound;

use brooklet_codex::{Builder, BuilderOptions, Bytes, Reader};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn reader(entries: &Entries) -> Reader<Bytes> {
    let mut builder = Builder::new(Vec::new(), BuilderOptions { block_size: 64, ..Default::default() });
    entries.iter().for_each(|(key, value)| builder.add(key, value).unwrap());
    let (summary, file) = builder.finish().unwrap();
    Reader::open(file.into(), summary.len, Some(summary.footer_sum)).unwrap()
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![0u8..3, Just(u8::MAX)], 0..5)
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded)]
}

fn within(key: &Vec<u8>, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> bool {
    let above = match from {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
    };
    let below = match to {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
    };
    above && below
}

proptest! {
    #[test]
    fn a_range_is_what_lies_between(
        entries in btree_map(key(), vec(0u8..9, 0..20), 0..80),
        bounds in (bound(), bound()),
        ends in vec(any::<bool>(), 200),
    ) {
        let reader = reader(&entries);
        let between = entries.iter().filter(|(key, _)| within(key, &bounds.0, &bounds.1));
        let mut expected = between.map(|(key, value)| (key.clone(), Bytes::copy_from_slice(value)));
        let mut range = reader.range((bounds.0.clone(), bounds.1.clone()));
        for from_the_end in ends {
            let (found, expected) = if from_the_end {
                (range.next_back(), expected.next_back())
            } else {
                (range.next(), expected.next())
            };
            prop_assert_eq!(found.transpose().unwrap(), expected);
        }
    }

    #[test]
    fn a_prefix_is_what_begins_so(entries in btree_map(key(), Just(vec![]), 0..80), prefix in key()) {
        let reader = reader(&entries);
        let expected: Vec<_> = entries.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
        let found: Vec<_> = reader.prefix(&prefix).map(|entry| entry.unwrap().0).collect();
        prop_assert_eq!(&found, &expected);
        let mut backward: Vec<_> = reader.prefix(&prefix).rev().map(|entry| entry.unwrap().0).collect();
        backward.reverse();
        prop_assert_eq!(backward, expected);
    }
}

/// A source that fails gives one error, and then nothing.
#[test]
fn an_error_ends_it() {
    let entries: Entries = (0..50u8).map(|n| (vec![n], vec![n; 30])).collect();
    let mut builder =
        Builder::new(Vec::new(), BuilderOptions { block_size: 64, compress: false, ..Default::default() });
    entries.iter().for_each(|(key, value)| builder.add(key, value).unwrap());
    let (summary, mut file) = builder.finish().unwrap();
    file[500] ^= 1;
    let reader = Reader::open(Bytes::from(file), summary.len, None).unwrap();
    for backward in [false, true] {
        let mut range = reader.range::<&[u8]>(..);
        let mut step = || if backward { range.next_back() } else { range.next() };
        let good = std::iter::from_fn(&mut step).take_while(Result::is_ok).count();
        assert!(good > 3 && good < 47, "{good}");
        assert!(step().is_none());
    }
}
